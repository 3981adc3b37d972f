"""A model divided among ranks: what each stage of a pipeline computes, and what it sends meanwhile.

`RankWork` takes the profile of the whole model on one GPU. Each layer's time is scaled by its
kernels: those of the part that one rank has, over those of the whole layer. So what measured
iterations say of a model carries over to its parts. Messages are listed as Megatron-LM and
TransformerEngine send them (NVIDIA/Megatron-LM@d98e8a64 core/tensor_parallel, core/transformer/moe;
NVIDIA/TransformerEngine@d0067d0d dot_product_attention/context_parallel.py).

References
----------
Shoeybi et al., arXiv 1909.08053 (tensor parallelism); Korthikanti et al., arXiv 2205.05198
(sequence parallelism); Liu et al., arXiv 2310.01889 (ring attention); Lepikhin et al., arXiv
2006.16668 (experts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import add
from typing import Literal, NamedTuple

from perfsim.compute.execution import Execution
from perfsim.compute.host_offload import BlocksToHost
from perfsim.compute.kernel import FLOAT
from perfsim.compute.kernel_time import (
    KernelRates,
    cast_time,
    experts_host_s,
    times_of_layers,
)
from perfsim.compute.profile import (
    FrozenParameter,
    Gradient,
    Layer,
    Profile,
    precision_bytes,
)
from perfsim.compute.recompute import blocks_again, is_again, layers_again, modules_again
from perfsim.compute.work import ModelWork, layer_operations, work_of
from perfsim.errors import RequestError
from perfsim.models.blocks import (
    NORMS,
    attended_values,
    block_spans,
    block_start,
    query_values,
)
from perfsim.models.layers import ModelLayer, is_expert, layer_figures
from perfsim.models.split import (
    Degrees,
    check_split,
    split_layers,
    stage_blocks,
)
from perfsim.sums import sum_in_order

__all__ = [
    "DTENSOR_S",
    "DividedLayers",
    "LayerMessage",
    "ModelParts",
    "RankWork",
    "Stage",
    "check_stages",
    "divide_layers",
]

_BY_OUTPUTS = ("column", "vocabulary")
"""How layers are split whose ranks each have some of the outputs, of all of the input."""
_MESSAGES_OF_EXPERTS = 4
"""All-to-alls of a layer of experts: there and back, in each pass."""


Pass = Literal["forward", "backward"]


class LayerMessage(NamedTuple):
    """Collectives of one kind in a pass over a stage: what, among whom, and what can hide them.

    Parameters
    ----------
    phase : the pass in which they are sent
    axis : the kind of parallelism whose ranks take part
    collective, size_bytes : as for `Cluster.cost`
    behind_s : computation beside which each of them runs [s]; 0: computation waits for it
    part : share of each that nothing hides, whatever it runs beside
    least_s : what each takes at least, by the kernels that move it [s]
    """

    phase: Pass
    axis: str
    collective: str
    size_bytes: float
    behind_s: float = 0.0
    part: float = 0.0
    least_s: float = 0.0


class _StageTimes(NamedTuple):
    """Times of the layers with parameters of a stage [s], and host and GPU as shares of them."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    slower: float
    host: float
    device: float


@dataclass(frozen=True, eq=False)
class Stage:
    """What a rank of one stage of a pipeline computes and sends.

    Parameters
    ----------
    work : of a rank that has all stages
    spans : first layer of each of its chunks, and the one after its last
    times : of its layers
    chunks : (forward, backward, part of backward for weights) of each of its chunks, one
        micro-batch [s]
    messages : by chunk, what it sends in the passes of a micro-batch, and how often
    content : its layers by number, names aside; alike in stages of one model, divided in one way
    """

    work: RankWork
    spans: tuple[tuple[int, int], ...]
    times: _StageTimes
    chunks: tuple[tuple[float, float, float], ...]
    messages: tuple[tuple[tuple[LayerMessage, int], ...], ...]
    content: tuple[int, ...]

    @cached_property
    def profile(self) -> Profile:
        """Its layers and gradients, with the times of one micro-batch."""
        return self.work.profile_of(self.owners, self.times, self.copied)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """Its layers with parameters, by their number in the profile of the whole model."""
        owners = self.work.divided.owners
        return tuple(dict.fromkeys(owners[index] for index in self._indexes()))

    @cached_property
    def places(self) -> tuple[tuple[str, tuple[float, ...], tuple[float, ...]], ...]:
        """Groups, with what each layer with parameters sends in both passes [B]."""
        owners, count = self.work.divided.owners, len(self.owners)
        layer_of = {owner: layer for layer, owner in enumerate(self.owners)}
        found: dict[str, dict[Pass, list[float]]] = {}
        for first, end in self.spans:
            for axis, phase, index, size in self.work.messages.places(first, end):
                if axis not in found:
                    found[axis] = {"forward": [0.0] * count, "backward": [0.0] * count}
                found[axis][phase][layer_of[owners[first + index]]] += size
        return tuple(
            [(axis, tuple(of["forward"]), tuple(of["backward"])) for axis, of in found.items()]
        )

    @cached_property
    def layers(self) -> tuple[ModelLayer, ...]:
        """Its part of the model's layers; an output layer with its copy of the embedding."""
        divided = self.work.divided
        parts, tied = divided.parts, divided.tied
        if tied is None or self.copied is None:
            return tuple([parts[index] for index in self._indexes()])
        weight, head = parts[tied.embedding].tensors, parts[tied.head]
        head = head._replace(tensors=(*weight, *head.tensors))
        return tuple([head if at == tied.head else parts[at] for at in self._indexes()])

    @cached_property
    def whole(self) -> tuple[ModelLayer, ...]:
        """Its layers, undivided."""
        whole = self.work.divided.whole
        return tuple([whole[index] for index in self._indexes()])

    @cached_property
    def elements(self) -> int:
        """The parameters that it trains, its copy of a tied embedding among them."""
        return sum(self.work.elements[owner] for owner in self.owners) + self.copied_elements

    @cached_property
    def frozen_elements(self) -> int:
        """Its parameters that are not trained; those in 4 bits as the 16-bit values they take."""
        return sum(layer.stored_elements for layer in self.layers if layer.frozen)

    @cached_property
    def copied(self) -> int | None:
        """The embedding that its output layer has a copy of, by its number in the profile.

        Where both are one matrix on two stages, Megatron-LM makes it on both (NVIDIA/Megatron-LM@
        00c2c0ad core/models/common/language_module/language_module.py,
        setup_embeddings_and_output_layer); None for other stages.
        """
        tied, indexes = self.work.divided.tied, frozenset(self._indexes())
        if tied is None or tied.head not in indexes or tied.embedding in indexes:
            return None
        return self.work.divided.owners[tied.embedding]

    @cached_property
    def copied_elements(self) -> int:
        """Parameters of that copy."""
        return 0 if self.copied is None else self.work.elements[self.copied]

    @cached_property
    def experts(self) -> frozenset[str]:
        """Names of the gradients of experts."""
        owners = self.work.divided.expert_owners & set(self.owners)
        return frozenset(one.name for owner in owners for one in self.work.gradients[owner])

    @cached_property
    def expert_elements(self) -> int:
        """Parameters of its experts."""
        owners = self.work.divided.expert_owners & set(self.owners)
        return sum(self.work.elements[owner] for owner in owners)

    def _indexes(self) -> Iterator[int]:
        return (index for first, end in self.spans for index in range(first, end))


class ModelParts(NamedTuple):
    """A model divided among ranks.

    ``boundary_bytes`` is what a rank of a stage sends to the next for a micro-batch: its tokens,
    which context-parallel ranks divide, and tensor-parallel ranks with sequence parallelism.
    ``sends`` says by stage to how many chunks of other stages it sends so much in a forward and in
    a backward pass. ``blocks`` are those of each chunk of the pipeline, in the order of the model.
    ``divided`` are the layers that all of it is made of.
    """

    stages: tuple[Stage, ...]
    boundary_bytes: float
    sends: tuple[tuple[int, int], ...]
    blocks: tuple[int, ...]
    divided: DividedLayers


class _Tied(NamedTuple):
    """An embedding whose matrix is that of the output layer too, and that layer, by number."""

    embedding: int
    head: int


@dataclass(frozen=True, eq=False)
class DividedLayers:
    """The layers of a model as one of its tensor-, context- and expert-parallel ranks has them.

    Micro-batches of any size and pipelines of any length share them.

    Parameters
    ----------
    degrees : by how many ranks they are divided
    whole, parts : the layers undivided, and the part of each that a rank has; for one sample
    spans : first layer of each block and the one after its last
    whole_work, part_work : their kernels
    kinds : by layer, a number that layers have in common which differ in their names only
    owners : by layer, the layer of the profile that it counts to
    expert_owners : layers of the profile that are experts
    operations : by layer, what an eager framework launches for it
    trained, trained_whole : parameters with gradients, by layer of a rank and of the whole model
    tied : embedding and output layer where these are one matrix; None where they are two
    """

    degrees: Degrees
    whole: tuple[ModelLayer, ...]
    parts: tuple[ModelLayer, ...]
    spans: tuple[tuple[int, int], ...]
    whole_work: ModelWork
    part_work: ModelWork
    kinds: tuple[int, ...]
    owners: tuple[int, ...]
    expert_owners: frozenset[int]
    operations: tuple[float, ...]
    trained: tuple[int, ...]
    trained_whole: int
    tied: _Tied | None


def divide_layers(
    layers: Sequence[ModelLayer], degrees: Degrees, era: str, *, autocast: bool = False
) -> DividedLayers:
    """Divide the layers of a model among tensor-, context- and expert-parallel ranks.

    Parameters
    ----------
    layers : of the whole model, for one sample, in the order of its profile
    era : of the software that runs them
    autocast : whether mixed precision casts the values of an fp32 model at each operation

    Raises
    ------
    RequestError
        If they cannot be divided so; says the nearest degree that works.
    """
    check_split(layers, degrees)
    parts = split_layers(layers, degrees)
    whole_work = work_of(layers, era, autocast=autocast)
    owners: list[int] = []
    last = -1
    for layer in layers:
        # Layers without parameters count to the one before, as in a profile.
        last += bool(layer.tensors) or not owners
        owners.append(last)
    return DividedLayers(
        degrees,
        tuple(layers),
        parts,
        tuple(block_spans(layers)),
        whole_work,
        work_of(parts, era, autocast=autocast),
        _kinds(layers, parts),
        tuple(owners),
        frozenset(owner for owner, part in zip(owners, parts, strict=True) if is_expert(part)),
        layer_operations(layers, "torch2"),
        tuple([part.trained_elements for part in parts]),
        whole_work.parameters,
        _tied(layers),
    )


def _tied(layers: Sequence[ModelLayer]) -> _Tied | None:
    """Return the embedding and the output layer that has its matrix; None where it has its own."""
    words = [index for index, layer in enumerate(layers) if layer.split == "vocabulary"]
    embeddings = [index for index in words if layers[index].kind == "embedding"]
    heads = [
        index
        for index in words
        if layers[index].kind == "linear" and all(len(s) < 2 for _, s in layers[index].tensors)
    ]
    return _Tied(embeddings[0], heads[0]) if embeddings and heads else None


def _kinds(whole: Sequence[ModelLayer], parts: Sequence[ModelLayer]) -> tuple[int, ...]:
    """Return a number for each layer: the same where layers differ in their names only."""
    numbers: dict[Hashable, int] = {}
    found = []
    for pair in zip(whole, parts, strict=True):
        shapes = tuple(shape for layer in pair for _, shape in layer.tensors)
        key = (shapes, *map(layer_figures, pair))
        found.append(numbers.setdefault(key, len(numbers)))
    return tuple(found)


def _place(stage: int, chunk: int, stages: int, folded: bool) -> int:
    """Return where a chunk of a stage stands in the order of the model."""
    back = folded and chunk % 2 == 1
    return chunk * stages + (stages - 1 - stage if back else stage)


def _sends(places: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Return by stage how many of its chunks stand before and behind one of another stage.

    Parameters
    ----------
    places : by stage, where its chunks stand in the order of the model
    """
    last = sum(map(len, places)) - 1
    return tuple(
        (
            sum(at < last and at + 1 not in own for at in own),
            sum(at > 0 and at - 1 not in own for at in own),
        )
        for own in places
    )


def _cuts(count: int, spans: Sequence[tuple[int, int]], blocks: Sequence[int]) -> list[int]:
    """Return the first layer of each chunk, and the one after the last of all."""
    cuts, done = [0], 0
    for each in blocks[:-1]:
        done += each
        cuts.append(spans[done][0] if done < len(spans) else spans[-1][1])
    return [*cuts, count]


_Seconds = tuple[float, float]
"""Forward and backward time of a layer [s]."""


_NORMS_OF_A_BLOCK = 2
"""Normalisations of a block whose heads have none: before attention and before the MLP."""

DTENSOR_S = {
    (True, False): (2.70e-3, 4.15e-3),
    (True, True): (3.37e-3, 5.14e-3),
    (False, False): (2.15e-3, 3.13e-3),
    (False, True): (2.22e-3, 3.31e-3),
}
"""What the host takes longer for a block by DTensor than by plain tensors, forward and backward
[s]: by whether tokens are divided too (sequence parallelism, each input gathered once, as
torchtitan has it) and whether heads are normed. Measured by tests/scripts/dtensor_host.py with
PyTorch 2.13 on one core of an AMD EPYC; its parts of a layer are those of Llama and Qwen3."""


def dtensor_host_s(block: Sequence[ModelLayer], degrees: Degrees, recompute: str) -> float:
    """Return what DTensor's host takes longer for a block than plain tensors', both passes [s].

    A forward pass that is computed again, or whose operations are looked at again for what was
    kept, takes as long again.

    Examples
    --------
    >>> from perfsim.models import build_model
    >>> layers = build_model("llama3-8b")
    >>> block = layers[slice(*next(block_spans(layers)))]
    >>> round(1e3 * dtensor_host_s(block, Degrees(tp=8), "none"), 2)
    6.85
    """
    normed = sum(layer.kind in NORMS for layer in block) > _NORMS_OF_A_BLOCK
    forward_s, backward_s = DTENSOR_S[degrees.sequence, normed]
    return forward_s * (1 + (recompute in ("selective", "full"))) + backward_s


class RankWork:
    """What a rank of a divided model computes and sends for a micro-batch.

    Its times are those of the whole model, each layer's scaled by its kernels.

    Parameters
    ----------
    profile : the whole model on the GPU, at the samples of a micro-batch
    divided : its layers, divided among ranks
    rates : what prices kernels there
    recompute : what the backward pass computes again
    overlapped : whether tensor-parallel messages are cut up to run beside the products that they
        belong to (TransformerEngine's user buffers)
    experts_overlapped : whether tokens go to their experts and back beside another micro-batch's
        computation (Megatron-LM's overlap_moe_expert_parallel_comm)
    added_bytes : memory traffic that adds a micro-batch's gradient of one parameter to the sum
    to_host : how what blocks keep goes to the host; None: it stays
    """

    def __init__(
        self,
        profile: Profile,
        divided: DividedLayers,
        rates: KernelRates,
        recompute: str = "none",
        *,
        overlapped: bool = False,
        experts_overlapped: bool = False,
        added_bytes: float = 0.0,
        to_host: BlocksToHost | None = None,
    ) -> None:
        self.profile, self.divided = profile, divided
        batch = profile.batch
        whole_s = times_of_layers(divided.whole_work, batch, rates, recompute)
        by_layer = partial(times_of_layers, divided.part_work, batch, rates.one_by_one())
        self._recompute = recompute
        # Where all of some blocks of each chunk is computed again, both ways are known of each.
        some = bool(blocks_again(recompute))
        part_s = by_layer("none" if some else recompute)
        again_s = by_layer("full") if some else part_s
        self._width = precision_bytes(profile.precision)
        self.messages = _Messages(
            divided,
            part_s,
            batch * self._width,
            recompute,
            modules_again(recompute, rates.execution),
            overlapped,
            experts_overlapped,
            FLOAT / self._width if rates.execution.ring_sums_in_fp32 else 1.0,
            FLOAT / self._width,
        )
        owners = divided.owners
        count = len(profile.layers)
        if owners[-1] + 1 != count:
            raise ValueError(f"{profile.model}: profile and definition differ")
        before = [[0.0, 0.0] for _ in range(count)]
        for owner, (forward_s, backward_s) in zip(owners, whole_s, strict=True):
            before[owner][0] += forward_s
            before[owner][1] += backward_s
        # How many times as long a layer takes in the profile as by its kernels. Codes that divide
        # models keep parameters in 16 bits: the profile's casts of all weights are not theirs.
        kernels_s = sum_in_order(map(sum_in_order, whole_s))
        cast_s = cast_time(divided.trained_whole, rates)
        kept = kernels_s / (kernels_s + cast_s) if kernels_s else 1.0
        grown = [
            (
                kept * layer.forward_s / forward_s if forward_s else 1.0,
                kept * layer.backward_s / backward_s if backward_s else 1.0,
            )
            for layer, (forward_s, backward_s) in zip(profile.layers, before, strict=True)
        ]
        each_s = added_bytes / rates.bytes_per_s

        def as_measured(seconds: Sequence[_Seconds]) -> list[_Seconds]:
            layers = zip(owners, divided.trained, seconds, strict=True)
            longer = [
                (forward_s * grown[owner][0], backward_s * grown[owner][1] + each_s * trained)
                for owner, trained, (forward_s, backward_s) in layers
            ]
            if to_host is None:
                return longer
            return to_host.longer(divided.parts, divided.spans, batch, longer)

        self._seconds = as_measured(part_s)
        self._again_s = as_measured(again_s) if some else self._seconds
        # Layers that take alike, and are, have the same number.
        numbers: dict[Hashable, int] = {}
        self._alike = tuple(
            numbers.setdefault(pair, len(numbers))
            for pair in zip(divided.kinds, self._seconds, self._again_s, strict=True)
        )
        self._launched = sum_in_order(divided.operations)
        # What the host needs besides the launches that a profile has, by layer.
        self._host_s = self._host_times(rates.execution, "none" if some else recompute)
        self._host_again_s = self._host_times(rates.execution, "full") if some else self._host_s
        self._chunks: dict[Hashable, tuple[float, float, float]] = {}
        self._times: dict[Hashable, _StageTimes] = {}

    def _host_times(self, execution: Execution, recompute: str) -> list[float]:
        """Return what the host needs besides the launches that a profile has, by layer [s]."""
        divided = self.divided
        layers = divided.part_work.layers
        found = [experts_host_s(layer, execution, recompute) for layer in layers]
        if execution.dtensor and divided.degrees.tp > 1:
            for first, end in divided.spans:
                block = divided.whole[first:end]
                found[first] += dtensor_host_s(block, divided.degrees, recompute)
        return found

    def _again(self, span: tuple[int, int]) -> frozenset[int]:
        """Return the layers of a chunk that are in blocks of which all is computed again."""
        return layers_again(self.divided.spans, self._recompute, *span)

    def stages(
        self,
        stages: int = 1,
        chunks: int = 1,
        *,
        given: Sequence[int] | None = None,
        folded: bool = False,
    ) -> ModelParts:
        """Put the layers on the stages of a pipeline.

        Parameters
        ----------
        stages, chunks : of the pipeline, and of each stage
        given : blocks of each chunk, as asked for
        folded : whether the second chunk of a stage is that many places before the end, as V-shaped
            schedules have it

        Raises
        ------
        RequestError
            If the blocks cannot be put on so many stages, or a stage would have no layer; says what
            works.
        """
        divided, spans = self.divided, self.divided.spans
        check_stages(divided.whole, stages)
        blocks = stage_blocks(len(spans), stages, chunks, given) if stages > 1 else [len(spans)]
        cuts = _cuts(len(divided.whole), spans, blocks)
        places = [
            [_place(stage, chunk, stages, folded) for chunk in range(chunks)]
            for stage in range(stages)
        ]
        found = []
        for stage, own in enumerate(places):
            layers = [(cuts[at], cuts[at + 1]) for at in own]
            if all(first == end for first, end in layers):
                even = ",".join(map(str, stage_blocks(len(spans), stages, chunks)))
                raise RequestError(
                    "stage_layers",
                    f"{','.join(map(str, blocks))} leaves stage {stage + 1} of {stages} without a"
                    f" layer; give it a block, as in {even}.",
                )
            made = self._stage(layers)
            if not made.elements:
                raise RequestError(
                    "stage_layers",
                    f"{','.join(map(str, blocks))} leaves stage {stage + 1} of {stages} without an"
                    " adapter to train; give it a block.",
                )
            found.append(made)
        stream = divided.parts[spans[0][0] if spans else 0]
        boundary = self.profile.batch * self._width * stream.outputs
        return ModelParts(tuple(found), boundary, _sends(places), tuple(blocks), divided)

    @cached_property
    def gradients(self) -> list[list[Gradient]]:
        """The gradients that a rank has of each layer with parameters."""
        divided = self.divided
        found: list[list[Gradient]] = [[] for _ in self.profile.layers]
        for gradient in self.profile.gradients:
            found[gradient.layer].append(gradient)
        first = -1
        for owner, part in zip(divided.owners, divided.parts, strict=True):
            if owner == first:
                continue
            first = owner
            found[owner] = [
                gradient if shape == gradient.shape else replace(gradient, shape=shape)
                for gradient, (_, shape) in zip(found[owner], part.trained, strict=False)
            ]
        return found

    @cached_property
    def elements(self) -> list[int]:
        """The trained parameters that a rank has of each layer with parameters."""
        return [sum(one.elements for one in gradients) for gradients in self.gradients]

    def _stage(self, spans: Sequence[tuple[int, int]]) -> Stage:
        """Return the stage of some spans of layers."""
        divided = self.divided
        key = tuple([number for first, end in spans for number in self._alike[first:end]])
        if key not in self._times:
            self._times[key] = self._timed(spans)
        times = self._times[key]
        return Stage(
            self,
            tuple(spans),
            times,
            tuple([self._chunk(span, times.slower) for span in spans]),
            tuple([self.messages.of(first, end) for first, end in spans]),
            tuple([kind for first, end in spans for kind in divided.kinds[first:end]]),
        )

    def _timed(self, spans: Sequence[tuple[int, int]]) -> _StageTimes:
        """Return how long the layers of a stage take; the later of host and GPU sets the pace."""
        profile, divided = self.profile, self.divided
        indexes = [index for first, end in spans for index in range(first, end)]
        again = frozenset(index for span in spans for index in self._again(span))
        launched = sum_in_order(divided.operations[index] for index in indexes) / self._launched
        forwards_s: list[float] = []
        backwards_s: list[float] = []
        seen: dict[int, int] = {}
        for index in indexes:
            owner = divided.owners[index]
            forward_s, backward_s = (self._again_s if index in again else self._seconds)[index]
            at = seen.get(owner)
            if at is None:
                seen[owner] = len(forwards_s)
                forwards_s.append(forward_s)
                backwards_s.append(backward_s)
            else:
                forwards_s[at] += forward_s
                backwards_s[at] += backward_s
        passes_s = sum_in_order(map(add, forwards_s, backwards_s))
        whole_s = profile.forward_s + profile.backward_s
        host_s = launched * profile.host_share * whole_s
        host_s += sum_in_order(
            [(self._host_again_s if index in again else self._host_s)[index] for index in indexes]
        )
        device_s = passes_s * profile.device_share
        longest_s = max(host_s, device_s)
        slower = longest_s / passes_s if passes_s else 1.0
        return _StageTimes(
            tuple([seconds * slower for seconds in forwards_s]),
            tuple([seconds * slower for seconds in backwards_s]),
            slower,
            host_s / longest_s,
            device_s / longest_s,
        )

    def _chunk(self, span: tuple[int, int], slower: float) -> tuple[float, float, float]:
        first, end = span
        key = self._alike[first:end]
        if key not in self._chunks:
            forward_s = backward_s = weights_s = 0.0
            again = self._again(span)
            for index in range(first, end):
                ahead_s, back_s = (self._again_s if index in again else self._seconds)[index]
                forward_s, backward_s = forward_s + ahead_s, backward_s + back_s
                part = self.divided.parts[index]
                if part.kind == "linear" and not part.frozen:
                    # A product as large as the forward one; another makes the input's gradient.
                    weights_s += min(ahead_s, back_s / 2)
            self._chunks[key] = forward_s, backward_s, weights_s
        forward_s, backward_s, weights_s = self._chunks[key]
        return forward_s * slower, backward_s * slower, weights_s * slower

    def profile_of(
        self, owners: Sequence[int], times: _StageTimes, copied: int | None = None
    ) -> Profile:
        """Return the profile of a stage that has some layers of the model's.

        Parameters
        ----------
        copied : a layer whose gradients its last layer has too
        """
        profile = self.profile
        timed = zip(owners, times.forward_s, times.backward_s, strict=True)
        layers = [
            Layer(profile.layers[owner].name, profile.layers[owner].kind, forward_s, backward_s)
            for owner, forward_s, backward_s in timed
        ]
        ready_s, done_s = [0.0] * len(layers), 0.0
        for index in range(len(layers) - 1, -1, -1):
            done_s += layers[index].backward_s
            ready_s[index] = done_s
        own = tuple(
            [
                gradient.at(ready_s[layer], layer)
                for layer, owner in enumerate(owners)
                for gradient in self.gradients[owner]
            ]
        )
        if copied is not None:
            last = len(layers) - 1
            own += tuple([one.at(ready_s[last], last) for one in self.gradients[copied]])
        share = sum(gradient.elements for gradient in own) / max(profile.elements, 1)
        optimizer_s = profile.optimizer_s * share
        passes_s = sum_in_order(layer.forward_s + layer.backward_s for layer in layers)
        return replace(
            profile,
            layers=tuple(layers),
            gradients=own,
            optimizer_s=optimizer_s,
            iteration_s=passes_s + optimizer_s + profile.other_s,
            host_share=times.host,
            device_share=times.device,
            frozen=self._frozen_of(owners) if profile.frozen else (),
        )

    def _frozen_of(self, owners: Sequence[int]) -> tuple[FrozenParameter, ...]:
        """Return the frozen parameters that a rank has of some layers, by their places there."""
        places = {owner: layer for layer, owner in enumerate(owners)}
        return tuple(
            FrozenParameter(*tensor, places[owner])
            for owner, part in zip(self.divided.owners, self.divided.parts, strict=True)
            if part.frozen and owner in places
            for tensor in part.stored
        )


def check_stages(layers: Sequence[ModelLayer], stages: int) -> None:
    """Check that a network is one chain of blocks, so that it can have several stages.

    Raises
    ------
    RequestError
        If it is none.
    """
    if stages == 1:
        return
    if not any(layer.kind == "attention" for layer in layers):
        raise RequestError("pp", "only transformers have stages; leave it out.", value=stages)
    if len({layer.causal for layer in layers if layer.kind == "attention"}) > 1:
        raise RequestError(
            "pp",
            "an encoder with a decoder behind it has two pipelines; leave it out.",
            value=stages,
        )


class _Sent(NamedTuple):
    """What the layers of a span send, and how often; and how many bytes where.

    ``places`` are group, pass, number of the layer in the span, and bytes.
    """

    messages: tuple[tuple[LayerMessage, int], ...]
    places: tuple[tuple[str, Pass, int, float], ...]


class _Messages:
    """What the layers of a divided model send, a micro-batch.

    ``unit`` is the bytes of a value, times the samples of a micro-batch. ``recompute`` says what
    the backward pass computes again, ``again`` which parts of a block it does.
    ``ring_sums`` is how many times as wide as keys and values their gradients go round a ring,
    ``float_width`` the same of an fp32 value.
    """

    def __init__(
        self,
        divided: DividedLayers,
        seconds: Sequence[tuple[float, float]],
        unit: float,
        recompute: str,
        again: frozenset[str],
        overlapped: bool,
        experts_overlapped: bool,
        ring_sums: float,
        float_width: float,
    ) -> None:
        self.divided, self.seconds = divided, seconds
        self.whole, self.parts = divided.whole, divided.parts
        self.degrees, self.unit = divided.degrees, unit
        self.overlapped, self.recompute, self.again = overlapped, recompute, again
        self.experts_overlapped, self.ring_sums = experts_overlapped, ring_sums
        self.float_width = float_width
        self.tokens = next((layer.rows for layer in self.parts if layer.kind == "attention"), 1)
        self.found: dict[Hashable, _Sent] = {}

    def of(self, first: int, end: int) -> tuple[tuple[LayerMessage, int], ...]:
        """Return what the layers of a span send, and how often; kept for spans that are alike."""
        return self._of(first, end).messages

    def places(self, first: int, end: int) -> tuple[tuple[str, Pass, int, float], ...]:
        """Return what each layer of a span sends: group, pass, number in the span, bytes."""
        return self._of(first, end).places

    def _of(self, first: int, end: int) -> _Sent:
        reach = end
        while reach < len(self.parts) and self.parts[reach].split in _BY_OUTPUTS:
            reach += 1
        key = end - first, self.divided.kinds[first:reach]
        if key not in self.found:
            self.found[key] = self._sent(first, end)
        return self.found[key]

    def _sent(self, first: int, end: int) -> _Sent:
        sent: Counter[LayerMessage] = Counter()
        again: list[LayerMessage] = []
        places: dict[tuple[str, Pass, int], float] = {}
        whole = layers_again(self.divided.spans, self.recompute, first, end)
        for index in range(first, end):
            messages = [*self._layer(index, first)]
            sent.update(messages)
            every = self.recompute == "full" or index in whole
            repeated: list[LayerMessage] = []
            if every or is_again(self.parts[index].module, self.again):
                forward = [one for one in messages if one.phase == "forward"]
                repeated = [one._replace(phase="backward") for one in forward]
                again += repeated
            for one in (*messages, *repeated):
                place = one.axis, one.phase, index - first
                places[place] = places.get(place, 0.0) + one.size_bytes
        sent.update(again)
        return _Sent(tuple(sent.items()), tuple([(*at, size) for at, size in places.items()]))

    def _layer(self, index: int, first: int) -> Iterator[LayerMessage]:
        layer = self.parts[index]
        before = self.parts[index - 1] if index > first else None
        if self._is_dispatched(layer):
            yield from self._among_ranks_of_an_expert(layer, before, index)
        elif (self.degrees.etp if is_expert(layer) else self.degrees.tp) > 1:
            if layer.split == "column" and not _read_together(before, layer):
                yield from self._into(index, self._reads(layer))
            elif layer.split == "row":
                values = self._values(layer, layer.outputs)
                yield from self._summed(values, *self.seconds[index])
            elif layer.split == "vocabulary" and layer.kind == "embedding":
                yield from self._summed(layer.outputs)
            elif layer.split == "vocabulary":
                yield from self._into(index, self._reads(layer))
        if self.degrees.cp > 1 and layer.kind == "attention":
            context = {"ring": self._ring, "all_gather": self._gathered, "ulysses": self._by_heads}
            yield from context[self.degrees.context](index)
        if self.degrees.ep > 1 and is_expert(layer) and layer.split == "column":
            yield from self._experts(index)

    def _is_dispatched(self, layer: ModelLayer) -> bool:
        """Tell whether a dispatcher takes tokens to experts that several ranks share.

        Without expert parallelism tokens are gathered before each is copied for its experts.
        """
        degrees = self.degrees
        return is_expert(layer) and degrees.ep > 1 and degrees.etp > 1 and degrees.sequence

    def _among_ranks_of_an_expert(
        self, layer: ModelLayer, before: ModelLayer | None, index: int
    ) -> Iterator[LayerMessage]:
        """Yield what a dispatcher gathers of tokens that have come to experts, and what it sums up.

        A token has come once for each of its experts. What was gathered is kept for the backward
        pass. Computation waits for both, as for the all-to-alls (NVIDIA/Megatron-LM@d98e8a64
        core/transformer/moe/token_dispatcher.py, dispatch_postprocess and combine_preprocess).
        """
        behind_s, come = self._beside_experts_s(index), self.degrees.received
        if layer.split == "column" and not _read_together(before, layer):
            size = come * self.unit * self._width(layer) * layer.rows
            yield LayerMessage("forward", "tp", "all_gather", size, behind_s)
            yield LayerMessage("backward", "tp", "reduce_scatter", size, behind_s)
        elif layer.split == "row":
            size = come * self.unit * layer.outputs
            yield LayerMessage("forward", "tp", "reduce_scatter", size, behind_s)
            yield LayerMessage("backward", "tp", "all_gather", size, behind_s)

    def _values(self, layer: ModelLayer, values: float) -> float:
        """Return values of all tokens; experts have a token's several times."""
        return values * min(1.0, self.tokens / layer.rows) if layer.rows else values

    def _reads(self, layer: ModelLayer) -> float:
        """Return the values that a product reads, those of its tokens."""
        return self._values(layer, self._width(layer) * layer.rows)

    def _width(self, layer: ModelLayer) -> float:
        """Return the values of a row that a product reads."""
        return layer.flops / (2.0 * layer.outputs)

    def _into(self, index: int, values: float) -> Iterator[LayerMessage]:
        """Yield what a layer divided by its outputs needs, and what the gradient of its input."""
        size = self.unit * values
        beside_s = self._product_s(index)
        if not self.degrees.sequence:
            yield LayerMessage("backward", "tp", "all_reduce", size, beside_s)
            return
        yield self._cut_up("forward", "all_gather", size, beside_s)
        # The input was not kept: it is gathered again beside the gradient of the input.
        yield LayerMessage("backward", "tp", "all_gather", size, beside_s)
        yield LayerMessage("backward", "tp", "reduce_scatter", size, beside_s)

    def _summed(
        self, values: float, forward_s: float = 0.0, backward_s: float = 0.0
    ) -> Iterator[LayerMessage]:
        """Yield what adds up the outputs of a layer divided by its inputs, which takes so long."""
        size = self.unit * values
        if not self.degrees.sequence:
            yield LayerMessage("forward", "tp", "all_reduce", size)
            return
        yield self._cut_up("forward", "reduce_scatter", size, forward_s)
        # One of the two products of the backward pass, that for the input, reads what comes.
        yield self._cut_up("backward", "all_gather", size, backward_s / 2)

    def _cut_up(self, phase: Pass, collective: str, size: float, product_s: float) -> LayerMessage:
        """Return a message that a product waits for, cut up to run beside it where asked for.

        User buffers hide all but its first step (all-gather) or its first part.
        """
        if not self.overlapped:
            return LayerMessage(phase, "tp", collective, size)
        part = 1.0 / (self.degrees.tp if collective == "all_gather" else _SPLITS)
        return LayerMessage(phase, "tp", collective, size, product_s, part)

    def _product_s(self, index: int) -> float:
        """Return the time of one of the products of the layers that read the same input [s]."""
        seconds, before = self.seconds[index][0], self.parts[index]
        for at in range(index + 1, len(self.parts)):
            layer = self.parts[at]
            if layer.split not in _BY_OUTPUTS or not _read_together(before, layer):
                break
            seconds, before = seconds + self.seconds[at][0], layer
        return seconds

    def _ring(self, index: int) -> Iterator[LayerMessage]:
        """Yield what goes round a ring of context-parallel ranks.

        Keys and values do in both passes, and their gradients with them in the backward pass.
        """
        ranks, size = self.degrees.cp, self.unit * self._pairs(index)
        forward_s, backward_s = self.seconds[index]
        for _ in range(ranks - 1):
            yield LayerMessage("forward", "cp", "send_recv", size, forward_s / ranks)
            both = (1.0 + self.ring_sums) * size
            yield LayerMessage("backward", "cp", "send_recv", both, backward_s / ranks)

    def _pairs(self, index: int) -> float:
        """Return the keys and values of a rank's own tokens."""
        queries = self.parts[index].outputs
        return max(0.0, attended_values(self.parts, index, self.whole) - queries)

    def _gathered(self, index: int) -> Iterator[LayerMessage]:
        """Yield what gathers the keys and values of all context-parallel ranks before attention.

        They are gathered again in the backward pass, which sums up their gradients.
        """
        size = self.degrees.cp * self.unit * self._pairs(index)
        yield LayerMessage("forward", "cp", "all_gather", size)
        yield LayerMessage("backward", "cp", "all_gather", size)
        yield LayerMessage("backward", "cp", "reduce_scatter", self.ring_sums * size)

    def _by_heads(self, index: int) -> Iterator[LayerMessage]:
        """Yield the all-to-alls that give a rank some heads of all tokens, and take them back.

        Where there are fewer heads of keys and values than ranks, each goes to several.
        """
        written, degrees = self.parts[index].outputs, self.degrees
        first = block_start(self.whole, index)
        shared = [layer.parts for layer in self.whole[first:index] if layer.parts]
        heads = -(-min(shared, default=self.whole[index].heads) // degrees.tp)
        copies = max(1.0, degrees.cp / heads)
        queries = query_values(self.parts, index, self.whole)
        into = self.unit * (queries + copies * self._pairs(index))
        phases: tuple[Pass, ...] = ("forward", "backward")
        for phase in phases:
            yield LayerMessage(phase, "cp", "all_to_all", into)
            yield LayerMessage(phase, "cp", "all_to_all", self.unit * written)

    def _experts(self, index: int) -> Iterator[LayerMessage]:
        """Yield what takes tokens to their experts and back, in each pass.

        HybridEP gathers which experts all tokens of a group go to. With a token's copies to experts
        it sends what all experts of a node weigh, and their gradients with those that come back
        (deepseek-ai/DeepEP@94a9f8f6 docs/Hybrid-EP_Implementation.md, sections 4 and 5;
        csrc/hybrid_ep/backend/hybrid_ep_backend.cuh, FORWARD_DISPATCH, BACKWARD_COMBINE).
        """
        layer, degrees = self.parts[index], self.degrees
        shared = degrees.etp if degrees.sequence else 1
        rows, width = self.unit * layer.rows / shared, self._width(layer)
        least_s = degrees.received * rows * width / degrees.kernel_bytes_per_s
        behind_s = self._beside_experts_s(index)
        experts = layer.tensors[0][1][0]
        weights = self.float_width * experts * degrees.weights_of
        if degrees.weights_of:
            chosen = self.whole[index].rows / next(
                one.rows for one in self.whole if one.kind == "attention"
            )
            flags = rows / chosen / degrees.imbalance * self.float_width / FLOAT
            size = degrees.ep * flags * degrees.ep * experts  # a byte each, of all ranks' tokens
            yield LayerMessage("forward", "ep", "all_gather", size, behind_s)
        phases: tuple[Pass, ...] = ("forward", "backward")
        for phase in phases:
            for more in (weights, 0.0):
                size = degrees.sent * rows * (width + more)
                yield LayerMessage(phase, "ep", "all_to_all", size, behind_s, least_s=least_s)

    def _beside_experts_s(self, index: int) -> float:
        """Return the computation of another micro-batch beside which tokens go to experts [s].

        A block of it is shared by the four all-to-alls of a layer, and by what goes with each.
        """
        if not self.experts_overlapped:
            return 0.0
        spans = self.divided.spans
        first, end = next(span for span in spans if span[0] <= index < span[1])
        messages = _MESSAGES_OF_EXPERTS * (1 + self._is_dispatched(self.parts[index]))
        return sum_in_order(map(sum_in_order, self.seconds[first:end])) / messages


def _read_together(before: ModelLayer | None, layer: ModelLayer) -> bool:
    """Return whether a layer reads what the one before it gathered: q, k and v; gate and up.

    Keys and values of cross-attention read the encoder's tokens, and its queries the decoder's.
    """
    return before is not None and before.split == "column" and before.rows == layer.rows


_SPLITS = 4
"""Parts of a reduce-scatter that runs beside its product (NVIDIA/TransformerEngine@d0067d0d
module/base.py: 4 pipelined splits)."""
