"""What one rank has of each layer where tensor, context and expert parallelism divide a model.

`split_layers` divides the layers of a network, `check_split` says in one sentence what cannot be
divided so, `stage_blocks` puts the blocks of a network on the stages of a pipeline, and
`check_schedule` says what a pipeline's schedule cannot run.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from perfsim.errors import RequestError, unknown
from perfsim.models.blocks import NORMS
from perfsim.models.layers import LayerShape, ModelLayer, is_expert, layer_figures

__all__ = [
    "BESIDE_MICRO_BATCH",
    "CONTEXT_EXCHANGES",
    "DISPATCHERS",
    "FOLDED",
    "KERNEL_RATES",
    "SCHEDULES",
    "SPLIT_BACKWARD",
    "ZERO_BUBBLE",
    "Degrees",
    "check_schedule",
    "check_split",
    "copies_sent",
    "split_layers",
    "stage_blocks",
]

SCHEDULES = {
    "gpipe": "all forwards, then all backwards",
    "1f1b": "one forward, one backward in turn",
    "interleaved": "1f1b over several chunks a stage",
    "zb-h1": "1f1b, weight gradients fill its waits",
    "zb-h2": "as zb-h1, no waits for twice the memory",
    "zbv": "two chunks a stage, down and back up: no waits for the memory of 1f1b",
    "dualpipev": "as zbv; a forward of one chunk runs with a backward of the other",
}
"""Orders in which the stages of a pipeline run micro-batches, each in a line."""

ZERO_BUBBLE = ("zb-h1", "zb-h2", "zbv")
"""Those that put gradients of weights into the waits."""

SPLIT_BACKWARD = (*ZERO_BUBBLE, "dualpipev")
"""Those that may put off gradients of weights."""

BESIDE_MICRO_BATCH = ("interleaved", "dualpipev")
"""Those in which a forward of a micro-batch runs beside a backward of another."""

FOLDED = ("zbv", "dualpipev")
"""Those of two chunks a stage, of which the second runs back from the last stage to the first."""

CONTEXT_EXCHANGES = {
    "ring": "keys and values go round the ranks, beside the attention of each part",
    "all_gather": "keys and values of all ranks are gathered before attention",
    "ulysses": "all-to-alls give each rank some heads of all tokens, and their tokens back",
}
"""How context-parallel ranks come to the keys and values of all tokens, each in a line: p2p,
all_gather and a2a in NVIDIA/TransformerEngine (context_parallel.py); Jacobs et al., DeepSpeed
Ulysses, arXiv 2309.14509."""

DISPATCHERS = {
    "alltoall": "a copy of a token to each of its experts, by NCCL's all-to-all",
    "deepep": "one copy to each node that has some of them, or rank of one node, by DeepEP",
    "hybridep": "the same by HybridEP, which fills the links with fewer multiprocessors",
}
"""What takes tokens to experts on other ranks, each in a line."""

KERNEL_RATES = {"deepep": (389e9, 143e9)}
"""What the kernels of a dispatcher bring to a rank at most, inside a node and across nodes [B/s],
all copies of tokens counted, a rank's own among them.

DeepEP inside a node: on 8 B200 dispatch and combine in bf16 reach 348 and 302 GB/s with 16
multiprocessors and 494 and 420 with 24 (deepseek-ai/DeepEP@94a9f8f6 docs/README_Hybrid-EP.md, MIT);
with the 20 that Megatron-LM gives them (NVIDIA/Megatron-LM@d98e8a64 transformer_config.py,
moe_deepep_num_sms) 421 and 361, 389 where one follows the other. On 8 H800 153 and 158, which their
links carry (docs/legacy.md). Across two nodes 143 on GPUs with NVLinks of 200 and of 450 GB/s: the
median of 146 on H20 (issue 137), 145 and 134 on H200 (493), and of 141 on H800 (docs/legacy.md: 43
GB/s to nodes, 3.27 copies in each). HybridEP reaches what the links carry: 735 and 674 GB/s on 8
B200 with 16 multiprocessors."""


class Degrees(NamedTuple):
    """By how many ranks the layers of a model are divided.

    Parameters
    ----------
    tp, cp, ep : tensor-, context- and expert-parallel ranks
    sequence : whether the tensor-parallel ranks divide the tokens of what they do not divide
        otherwise, normalisations and dropout (Korthikanti et al., arXiv 2205.05198)
    context : how context-parallel ranks exchange keys and values, of ``CONTEXT_EXCHANGES``
    whole_experts : whether tensor-parallel ranks have whole experts and divide the tokens that come
        to them, in place of each expert
    imbalance : tokens of the fullest expert-parallel rank, over the mean of all
    dispatcher : what takes tokens to their experts, of ``DISPATCHERS``
    sent, received : copies of a token that are sent, and that come to ranks, for each of its
        experts (see ``copies_sent``)
    kernel_bytes_per_s : what the dispatcher's kernels bring to a rank at most (``KERNEL_RATES``)
    weights_of : expert-parallel ranks whose experts' weights go with each copy of a token; 0: what
        a token's own experts weigh is left out, as it is small
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence: bool = True
    imbalance: float = 1.0
    dispatcher: str = "alltoall"
    sent: float = 1.0
    received: float = 1.0
    whole_experts: bool = False
    context: str = "ring"
    kernel_bytes_per_s: float = math.inf
    weights_of: int = 0

    @property
    def etp(self) -> int:
        """Tensor-parallel ranks that divide each expert."""
        return 1 if self.whole_experts else self.tp


def split_layers(layers: Sequence[ModelLayer], degrees: Degrees) -> tuple[ModelLayer, ...]:
    """Return the layers as one rank has them: their tensors and their work for one sample.

    Experts are divided among ``ep`` ranks, and each of them among ``tp`` unless they are whole;
    Megatron-LM's default is the same (expert_tensor_parallel_size). Vocabulary and widths that do
    not divide are padded.

    Examples
    --------
    >>> from perfsim.models import build_model
    >>> layers = build_model("llama3-8b")
    >>> part = split_layers(layers, Degrees(tp=8))
    >>> round(sum(layer.elements for layer in part) / 1e6)
    1004
    """
    if degrees.tp == degrees.cp == degrees.ep == 1 and degrees.imbalance == 1.0:
        return tuple(layers)
    made: dict[Hashable, ModelLayer] = {}
    found = []
    for layer in layers:
        shapes = tuple(shape for _, shape in layer.tensors)
        key = (shapes, layer_figures(layer))
        known = made.get(key)
        if known is None:
            known = made[key] = _split(layer, degrees)
        names = (name for name, _ in layer.tensors)
        tensors = tuple(zip(names, (shape for _, shape in known.tensors), strict=True))
        found.append(known._replace(name=layer.name, tensors=tensors))
    return tuple(found)


def _split(layer: ModelLayer, degrees: Degrees) -> ModelLayer:
    """Return what one rank has of a layer."""
    wide = layer.outputs / max(layer.rows, 1)
    layer = _in_context(layer, degrees.cp)
    if is_expert(layer):
        layer = _among_experts(layer, wide, degrees)
        if degrees.whole_experts:
            return _scaled(layer, 1 / degrees.tp, rows=True)
    return layer if degrees.tp == 1 else _in_tensor(layer, wide, degrees)


def _in_tensor(layer: ModelLayer, wide: float, degrees: Degrees) -> ModelLayer:
    """Return what one of ``tp`` ranks has of a layer that is ``wide`` outputs wide."""
    tp = degrees.tp
    if layer.kind == "attention":
        return _scaled(layer, 1 / tp)._replace(heads=layer.heads // tp)
    if layer.split == "column":
        share = -(-layer.parts // tp) / layer.parts if layer.parts else 1 / tp
        return _divided(_scaled(layer, share), wide, share, outputs=True)
    if layer.split == "row":
        made = layer._replace(flops=layer.flops / tp)
        if degrees.sequence:
            made = made._replace(
                permuted=layer.permuted / tp,
                unfused=layer.unfused / tp,
                scaled=layer.scaled / tp,
            )
        return _divided(made, wide, 1 / tp, outputs=False)
    if layer.split == "vocabulary":
        made = layer if layer.kind == "embedding" else _scaled(layer, 1 / tp)
        return _divided(made, wide, 1 / tp, outputs=True)
    divides = degrees.sequence and (layer.rows > 1 or layer.kind in NORMS)
    return _scaled(layer, 1 / tp, rows=True) if divides else layer


def _scaled(layer: ModelLayer, share: float, *, rows: bool = False) -> ModelLayer:
    """Return a layer with a share of its work and outputs, of its rows too where asked."""
    return layer._replace(
        flops=layer.flops * share,
        activation_bytes=layer.activation_bytes * share,
        copies=layer.copies * share,
        dropped=layer.dropped * share,
        rotated=layer.rotated * share,
        permuted=layer.permuted * share,
        unfused=layer.unfused * share,
        kept=layer.kept * share,
        modulated=layer.modulated * share,
        scaled=layer.scaled * share,
        rows=max(1, round(layer.rows * share)) if rows and layer.rows else layer.rows,
        document=max(1, round(layer.document * share))
        if rows and layer.document
        else layer.document,
    )


def _in_context(layer: ModelLayer, cp: int) -> ModelLayer:
    """Return a layer on one of ``cp`` parts of the tokens; masked attention is shared evenly.

    So is each document of a packed sample: a rank has two of its ``2 cp`` parts (NVIDIA/
    TransformerEngine@d0067d0d pytorch/attention/dot_product_attention/context_parallel.py,
    cu_seqlens_q_padded // (2 * cp_size) of the layout thd). Queries meet the keys of all tokens.
    """
    if cp == 1 or layer.rows == 1 or layer.kind == "parameter":
        return layer
    part = _scaled(layer, 1 / cp, rows=True)
    return part._replace(keys=layer.rows) if layer.causal else part


def _among_experts(layer: ModelLayer, wide: float, degrees: Degrees) -> ModelLayer:
    """Return the experts of one rank, and the tokens that come to the fullest rank.

    ``wide`` are the layer's outputs for a row.
    """
    name, (experts, *shape) = layer.tensors[0]
    tensors: tuple[tuple[str, LayerShape], ...] = ((name, (-(-experts // degrees.ep), *shape)),)
    busy = degrees.imbalance if degrees.ep > 1 else 1.0
    made = layer if busy == 1.0 else _scaled(layer, busy, rows=True)
    if degrees.ep == 1:
        return made._replace(tensors=tensors)
    width = made.flops / (2.0 * made.outputs) if made.split == "column" else wide
    moved = 0.0
    if degrees.dispatcher != "alltoall":
        moved = _BUFFERED * degrees.received
        if made.split == "row":
            made = made._replace(unfused=made.unfused * _WEIGHTED_IN_FP32)
    elif tensors[0][1][0] > 1:
        # What comes is in the order of the ranks: it is put in that of a rank's own experts.
        moved = 2.0
    return made._replace(tensors=tensors, permuted=made.permuted + moved * made.rows * width)


_BUFFERED = 1.5
"""Values that each pass moves on either side of the experts for a value that comes to a rank: it
is written to a buffer and read from it to be put in order, and read once more to be added up (six
in both passes on both sides; deepseek-ai/DeepEP@94a9f8f6 docs/Hybrid-EP_Implementation.md, section
7.2: permutation is a kernel of its own by default)."""


_WEIGHTED_IN_FP32 = 17.0 / 7.0
"""How many more values operations beside experts' last product move where the router's weights are
fp32, as DeepEP and HybridEP take them: the weighted bias of each expert and its sum with a token
are fp32 too, and cast: 14 values of 16 bits forward and 20 backward, of 6 and 8 (NVIDIA/
Megatron-LM@d98e8a64 megatron/core/transformer/moe/token_dispatcher.py, experts.py: _apply_bias)."""


def copies_sent(layers: Sequence[ModelLayer], places: int) -> float:
    """Return how many copies of a token are sent, for each of its experts, if one goes to a place.

    A place is a node, or a rank where all are in one node, as DeepEP has it. Of ``E`` experts that
    stand evenly in ``P`` places, ``k`` are chosen at random: a place has none of them with
    probability ``C(E - E/P, k) / C(E, k)``. Where a token's are in some groups of experts only
    (DeepSeek-AI, arXiv 2412.19437, section 2.1.2), E and P are those of these groups.

    Examples
    --------
    >>> from perfsim.models import build_model
    >>> round(copies_sent(build_model("deepseek-v3"), 4), 3)
    0.454
    """
    count, chosen = _experts_chosen(layers)
    groups, some = next(layer.groups for layer in layers if is_expert(layer))
    if some < groups:
        count = count * some // groups
        places = places * some // groups if places >= groups else min(places, some)
    left = count - count // places
    none = math.comb(left, chosen) / math.comb(count, chosen)
    return min(1.0, places * (1.0 - none) / chosen)


def _divided(layer: ModelLayer, wide: float, share: float, *, outputs: bool) -> ModelLayer:
    """Return a layer with a share of its tensors, cut along their outputs or their inputs.

    ``wide`` are its outputs for a row, before it was divided.
    """
    tensors = tuple(
        (name, _cut(shape, wide, share, outputs, layer.kind == "embedding"))
        for name, shape in layer.tensors
    )
    return layer._replace(tensors=tensors)


def _cut(
    shape: LayerShape, wide: float, share: float, outputs: bool, looked_up: bool
) -> LayerShape:
    """Return a tensor's shape cut along the axis of its outputs (its words) or of its inputs."""
    if len(shape) == 1:
        return (_part(shape[0], share),) if outputs else shape
    first = len(shape) - 2
    of_outputs = first if looked_up or shape[first] == wide else first + 1
    axis = of_outputs if outputs else 2 * first + 1 - of_outputs
    return tuple(_part(size, share) if at == axis else size for at, size in enumerate(shape))


def _part(size: int, share: float) -> int:
    return max(1, round(-(-size * share // 1)))


def check_split(layers: Sequence[ModelLayer], degrees: Degrees) -> None:
    """Check that layers can be divided so.

    Raises
    ------
    RequestError
        If they cannot; says the nearest degree that works.
    """
    attention = [layer for layer in layers if layer.kind == "attention"]
    known = any(layer.split for layer in layers)
    for field, degree in (("tp", degrees.tp), ("cp", degrees.cp), ("ep", degrees.ep)):
        if degree > 1 and (not attention or not known):
            raise RequestError(
                field, "only transformers are divided so; leave it out.", value=degree
            )
    if degrees.tp > 1:
        heads = attention[0].heads
        if heads % degrees.tp:
            raise _not_divided("tp", degrees.tp, f"{heads} heads of attention", heads)
    if degrees.cp > 1:
        if not any(layer.causal for layer in attention):
            why = "only decoders divide their tokens; leave it out."
            raise RequestError("cp", why, value=degrees.cp)
        if degrees.context == "ulysses" and attention[0].heads // degrees.tp % degrees.cp:
            what = f"{attention[0].heads // degrees.tp} heads of attention (`cp_comm` ulysses)"
            raise _not_divided("cp", degrees.cp, what, attention[0].heads // degrees.tp)
        tokens = attention[0].rows
        if tokens % (2 * degrees.cp):
            what = f"{tokens} tokens in two parts a rank (the first and the last of the sequence)"
            raise _not_divided("cp", degrees.cp, what, max(1, tokens // 2))
        if 0 < attention[0].document < 2 * degrees.cp:
            document = attention[0].document
            why = (
                f"{degrees.cp} cuts each document in {2 * degrees.cp} parts, two a rank, but"
                f" `document_tokens` is {document}; the most is {max(1, document // 2)}."
            )
            raise RequestError("cp", why, value=degrees.cp)
    if degrees.ep > 1 or degrees.whole_experts:
        experts = max((layer.tensors[0][1][0] for layer in layers if is_expert(layer)), default=0)
        if not experts:
            field, degree = ("ep", degrees.ep) if degrees.ep > 1 else ("etp", 1)
            raise RequestError(field, "the model has no experts; leave it out.", value=degree)
        if experts % degrees.ep:
            raise _not_divided("ep", degrees.ep, f"{experts} experts", experts)
        _check_imbalance(layers, degrees)


def _check_imbalance(layers: Sequence[ModelLayer], degrees: Degrees) -> None:
    """Check that the fullest rank can have so many tokens: each chooses an expert once at most.

    Of ``E`` experts that each token chooses ``k`` of, a rank has ``E / ep`` and gets ``k / ep`` of
    each token on average, and all that it can where every token chooses its experts.
    """
    experts, chosen = _experts_chosen(layers)
    a_rank = experts // degrees.ep
    most = f"{min(chosen, a_rank) * degrees.ep / chosen:g}"
    if degrees.imbalance <= float(most):
        return
    raise RequestError(
        "imbalance",
        f"{degrees.imbalance:g} times the mean cannot come to one rank: tokens choose {chosen} of"
        f" {experts} experts, and a rank of `ep` {degrees.ep} has {a_rank}; at most {most} can.",
        value=degrees.imbalance,
        nearest=most,
    )


def _experts_chosen(layers: Sequence[ModelLayer]) -> tuple[int, int]:
    """Return how many experts a layer has, and how many of them a token chooses."""
    experts = next(layer for layer in layers if is_expert(layer))
    tokens = next(layer.rows for layer in layers if layer.kind == "attention")
    return experts.tensors[0][1][0], round(experts.rows / tokens)


def _not_divided(field: str, degree: int, what: str, whole: int) -> RequestError:
    divisors = [size for size in range(1, whole + 1) if whole % size == 0]
    nearest = min(divisors, key=lambda size: (abs(size - degree), size))
    return RequestError(
        field, f"{degree} does not divide {what}; the nearest that does is {nearest}.", value=degree
    )


_ENDS = 2
"""Chunks that have no block: embedding and output layer may stand alone."""


def stage_blocks(
    blocks: int, stages: int, chunks: int = 1, given: Sequence[int] | None = None
) -> list[int]:
    """Return how many blocks each chunk of a pipeline has, in the order of the model.

    Where they do not divide, the first and the last have one fewer than others, since embedding and
    output layer stand there (torchtitan's pipelining does so). With one or two chunks more than
    blocks these stand alone.

    Parameters
    ----------
    given : blocks of each chunk, in the order of the model, as asked for

    Raises
    ------
    RequestError
        If there are more stages than blocks, or what is asked for does not add up.

    Examples
    --------
    >>> stage_blocks(32, 4), stage_blocks(126, 16)[:3], stage_blocks(126, 16)[-1]
    ([8, 8, 8, 8], [7, 8, 8], 7)
    """
    parts = stages * chunks
    if given:
        if len(given) != parts or sum(given) != blocks or min(given) < 0:
            raise RequestError(
                "stage_layers",
                f"{','.join(map(str, given))} must name {parts} stages with {blocks} blocks in"
                f" all, such as {','.join(map(str, stage_blocks(blocks, stages, chunks)))}.",
            )
        return list(given)
    if parts > blocks + _ENDS:
        what = f"{stages} stages" + (f" of {chunks} chunks" if chunks > 1 else "")
        raise RequestError(
            "pp",
            f"{what} for {blocks} blocks; at most {(blocks + _ENDS) // chunks} stages work.",
            value=stages,
        )
    if parts > blocks:
        # Embedding and output layer are chunks of their own.
        alone = parts - blocks
        return [0] * (alone // 2) + [1] * blocks + [0] * (alone - alone // 2)
    each, more = divmod(blocks, parts)
    found = [each] * parts
    middle = list(_inner_first(parts))
    for at in middle[:more]:
        found[at] += 1
    return found


def _inner_first(parts: int) -> Iterator[int]:
    """Yield the places of a pipeline: those inside, then the first, then the last."""
    yield from range(1, parts - 1)
    if parts > 1:
        yield 0
    yield parts - 1


def check_schedule(schedule: str, stages: int, chunks: int, micro_batches: int) -> None:
    """Refuse a schedule that does not exist or cannot run so, with the nearest that works.

    Examples
    --------
    >>> check_schedule("interleaved", 4, 2, 16)
    >>> check_schedule("interleaved", 4, 2, 18)
    Traceback (most recent call last):
    perfsim.errors.RequestError: accumulate: interleaved runs micro-batches in groups of pp, and \
4 does not divide 18; the nearest that work are 16 and 20.
    """
    if schedule not in SCHEDULES:
        raise unknown("schedule", schedule, SCHEDULES)
    for field, value in (("pp", stages), ("virtual_stages", chunks), ("accumulate", micro_batches)):
        if value < 1:
            raise RequestError(field, f"{value} is below 1.", value=value, nearest="1")
    if stages == 1:
        return
    least, most = (2, 2) if schedule in FOLDED else (1, 1)
    if schedule == "interleaved":
        least, most = 2, chunks
    if not least <= chunks <= most:
        nearest = max(least, min(chunks, most))
        needs = f"{least} chunks or more" if schedule == "interleaved" else f"{least}"
        raise RequestError(
            "virtual_stages",
            f"{schedule} needs {needs} of each stage, not {chunks}; "
            f"the nearest that works is {nearest}.",
            value=chunks,
            nearest=str(nearest),
        )
    if schedule == "interleaved" and micro_batches % stages:
        below = micro_batches // stages * stages
        works = [count for count in (below, below + stages) if count]
        nearest = min(works, key=lambda count: abs(count - micro_batches))
        raise RequestError(
            "accumulate",
            f"interleaved runs micro-batches in groups of `pp`, and {stages} does not divide "
            f"{micro_batches}; the nearest that work{'s' if len(works) == 1 else ''} "
            f"{'is' if len(works) == 1 else 'are'} {' and '.join(map(str, works))}.",
            value=micro_batches,
            nearest=str(nearest),
        )
    fewest = 2 * stages if schedule == "dualpipev" else stages
    if schedule in SPLIT_BACKWARD and micro_batches < fewest:
        twice = "twice " if fewest > stages else ""
        raise RequestError(
            "accumulate",
            f"{schedule} needs {twice}as many micro-batches as `pp` has stages, not"
            f" {micro_batches}; the nearest that works is {fewest}.",
            value=micro_batches,
            nearest=str(fewest),
        )
