"""What of training is moved to the memory of the host, and how long that takes.

Checkpoints: the input of each block is copied to the host as the forward pass has used it, and back
before the backward pass computes the block again, on a stream of its own. Activations: so is all
that the first blocks keep for their backward passes. The optimizer: gradients are copied to the
host, whose CPUs update the parameters, which are copied back. Parameters: what a rank keeps of them
is on the host, and copied to the GPU before each gather, which is a job of the method
(`perfsim.methods.building.host_copies`).

References
----------
Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC 2021 (arXiv
2101.06840). Code: deepspeedai/DeepSpeed@edaa7221, deepspeed/runtime/zero/stage3.py and
stage_1_and_2.py; huggingface/trl, trl/models/activation_offloading.py, which is pytorch/torchtune's
torchtune/training/_activation_offloading.py (``OffloadActivations``); NVIDIA/TransformerEngine,
transformer_engine/pytorch/cpu_offload.py (``AsyncDoubleBufferGroupOffloadHandler``), which verl's
verl/utils/activation_offload.py follows; NVIDIA/Megatron-LM@60e03962
megatron/core/transformer/transformer_config.py (``cpu_offloading_num_layers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from perfsim.compute.device import Device
from perfsim.compute.execution import Execution, execution_of
from perfsim.compute.host_link import HostLink, host_link, link_words
from perfsim.compute.kernel import FLOAT, HALF
from perfsim.compute.memory import STASHED, block_bytes, checkpoint_bytes
from perfsim.compute.profile import Layer, Profile, defined_tokens, matches_definition
from perfsim.errors import RequestError
from perfsim.models import build_model
from perfsim.models.blocks import block_count, block_spans
from perfsim.models.layers import ModelLayer
from perfsim.note import assumption
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes, format_rate, format_seconds

__all__ = [
    "ACTIVATIONS",
    "CHECKPOINTS",
    "CPU_ADAM_RATE",
    "NOTHING",
    "OFFLOADED",
    "OPTIMIZER",
    "PARAMETERS",
    "BlocksToHost",
    "HostRanks",
    "HostUpdate",
    "UpdateOnHost",
    "activation_blocks",
    "blocks_note",
    "blocks_to_host",
    "check_blocks",
    "cpu_adam_rate",
    "longer_passes",
    "offloaded",
    "parameters_note",
    "update_on_host",
    "updated_on_host",
    "windows",
    "with_passes",
]

NOTHING, CHECKPOINTS, OPTIMIZER, PARAMETERS = "none", "checkpoints", "optimizer", "parameters"
ACTIVATIONS = "activations"
OFFLOADED = (ACTIVATIONS, CHECKPOINTS, OPTIMIZER, PARAMETERS)
"""Words for what may be in the memory of the host, in the order in which they are written."""

CPU_ADAM_RATE = 10e9 / 2.57
"""Parameters that the CPUs of a host update in a second by Adam, all cores at work: DeepSpeed's
CPU-Adam takes 0.22, 1.03 and 2.57 s for 1, 4 and 10 billion on a DGX-2, which has two CPUs of 24
cores (ZeRO-Offload, table 4). Of other hosts nothing is known here: Adam there is bound by memory,
28 bytes a parameter, so that hosts with faster memory need less. Left out, not fitted: 8 H200 and 8
B200 need 2.0 s more with it than without for 8.03 billion parameters, by their TFLOPS at 8,192
tokens (stas00/ml-engineering@744d01e1 insights/when-to-upgrade-gpus), where this gives 2.1 s."""


_TORCH_TIMES_AS_LONG = (5.1 * 6.5) ** 0.5
"""How many times as long PyTorch's Adam takes on the CPUs: between 5.1 and 6.5 times for 1 to 10
billion parameters (deepspeedai/DeepSpeed@edaa7221 docs/_pages/training.md, "CPU-Adam")."""

_TORCH_FUSED_SPEEDUP = 6.0174 / 1.1788
"""How much faster the same is in one kernel (``fused``): 10 parameters of a million values on 56
cores, non-fused and fused [s] (pytorch/pytorch pull 123074). Of larger models nothing is known."""

_ADAMS = frozenset({"adam", "adamw", "adam-fused", "adamw-fused", "adamw-by-operation"})
"""Names of Adam, as one asks for it and as profiles call it, with fp32 state."""


class HostUpdate(NamedTuple):
    """How a method's code updates parameters on the CPUs of hosts.

    Parameters
    ----------
    library : whose Adam runs there
    gradients : whether the update waits for copies of gradients that are no job of the method
    parameters : whether updated parameters are copied to the GPU before the next forward pass
    """

    library: Literal["DeepSpeed", "PyTorch"]
    gradients: bool = False
    parameters: bool = False


ZERO_OFFLOAD = HostUpdate("DeepSpeed", gradients=True, parameters=True)
"""ZeRO-Offload's: parameters are on the GPU."""


def cpu_adam_rate(library: Literal["DeepSpeed", "PyTorch"], optimizer: str) -> float:
    """Return the parameters that the CPUs of a host update in a second, all cores at work.

    Raises
    ------
    RequestError
        If the optimizer is not Adam with its state in fp32.

    Examples
    --------
    >>> [round(cpu_adam_rate(one, "adamw") / 1e9, 2) for one in ("DeepSpeed", "PyTorch")]
    [3.89, 0.68]
    """
    if optimizer not in _ADAMS:
        why = "the CPUs' rate is known of Adam alone; set `optimizer` adamw."
        raise RequestError("offload", why)
    if library == "DeepSpeed":
        return CPU_ADAM_RATE
    fused = _TORCH_FUSED_SPEEDUP if optimizer.endswith("fused") else 1.0
    return CPU_ADAM_RATE / _TORCH_TIMES_AS_LONG * fused


def offloaded(words: str) -> frozenset[str]:
    """Return what a scenario's `offload` names.

    Examples
    --------
    >>> sorted(offloaded("activations:20+optimizer")), offloaded("none")
    (['activations', 'optimizer'], frozenset())
    """
    return frozenset(word.partition(":")[0] for word in words.split("+")) - {NOTHING}


def activation_blocks(words: str, blocks: int) -> int:
    """Return of how many blocks activations go to the host; 0 where those of none do.

    Parameters
    ----------
    words : what is in the memory of the host, as `offload` of a scenario names it
    blocks : that the model has

    Raises
    ------
    RequestError
        If the number that is asked for leaves no block on the GPU.

    Examples
    --------
    >>> [activation_blocks(words, 32) for words in ("activations", "activations:20", "optimizer")]
    [31, 20, 0]
    """
    for word in words.split("+"):
        name, _, asked = word.partition(":")
        if name == ACTIVATIONS:
            number = int(asked) if asked else blocks - 1
            if number < blocks:
                return number
            why = f"activations: of {blocks} blocks at most {blocks - 1} go to the host."
            raise RequestError("offload", why, value=words)
    return 0


def windows(sent: int, blocks: int) -> list[tuple[int, int]]:
    """Return the blocks while which each copy of activations goes, of the first ``sent`` blocks.

    Copies are spread over all blocks: that of one must be over when its window ends, where the next
    begins (``layer_window_map`` of Transformer Engine). The first begins behind the first block.

    Parameters
    ----------
    sent, blocks : how many blocks' activations are copied, and how many there are

    Examples
    --------
    >>> windows(2, 4), windows(2, 5)
    ([(1, 2), (2, 4)], [(1, 3), (3, 5)])
    """
    each, more = divmod(blocks, sent)
    ends = [each * (number + 1) + min(number + 1, more) for number in range(sent)]
    return [*pairwise([1, *ends])]


def longer_by_activations(
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    sent_bytes: Sequence[float],
    link: HostLink,
) -> tuple[list[float], list[float]]:
    """Return how many times as long both passes of each block take with activations on the host.

    In the forward pass the activations of a block go out during its window (`windows`), in the
    backward pass they come back during the same one, before the block needs them.

    Parameters
    ----------
    forward_s, backward_s : of each block, in the order of the model [s]
    sent_bytes : what each of the first blocks keeps, which goes to the host

    Examples
    --------
    >>> longer_by_activations([1.0] * 4, [2.0] * 4, [30e9, 30e9], HostLink(10e9, 10e9))
    ([1.0, 3.0, 1.5, 1.5], [1.0, 1.5, 1.0, 1.0])
    """
    ahead, behind = [1.0] * len(forward_s), [1.0] * len(backward_s)
    for size, (first, end) in zip(
        sent_bytes, windows(len(sent_bytes), len(forward_s)), strict=True
    ):
        for rate, passes_s, longer in (
            (link.out, forward_s, ahead),
            (link.back, backward_s, behind),
        ):
            alone_s = sum_in_order(passes_s[first:end])
            if alone_s:
                longer[first:end] = [max(1.0, size / rate / alone_s)] * (end - first)
    return ahead, behind


def longer_passes(
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    sent_bytes: Sequence[float],
    link: HostLink,
) -> tuple[list[float], list[float]]:
    """Return how many times as long both passes of each block take with checkpoints on the host.

    The input of a block goes out while the next ones are computed. Computation waits for it
    `STASHED` blocks later, so that in the long run a block takes no less than its copy. In the
    backward pass, which computes blocks again, the input of a block comes back while the one behind
    it is computed; those of the last blocks are still there.

    Parameters
    ----------
    forward_s, backward_s : of each block, in the order of the model [s]
    sent_bytes : the input of each block

    Examples
    --------
    >>> link = HostLink(10e9, 10e9)
    >>> longer_passes([1.0] * 7, [3.0] * 7, [20e9] * 7, link)[0]
    [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    >>> longer_passes([1.0] * 7, [1.0] * 7, [20e9] * 7, link)[1]
    [2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    ahead, behind, count = [], [], len(forward_s)
    for at, (pass_s, again_s, size) in enumerate(
        zip(forward_s, backward_s, sent_bytes, strict=True)
    ):
        out = size / link.out / pass_s if at >= STASHED and pass_s else 1.0
        back = size / link.back / again_s if at < count - STASHED and again_s else 1.0
        ahead.append(max(1.0, out))
        behind.append(max(1.0, back))
    return ahead, behind


def with_passes(profile: Profile, ahead: Sequence[float], behind: Sequence[float]) -> Profile:
    """Return a profile whose layers take so many times as long, forward and backward.

    A gradient is ready as much later as the backward pass up to it takes longer.
    """
    layers = tuple(
        Layer(layer.name, layer.kind, layer.forward_s * first, layer.backward_s * second)
        for layer, first, second in zip(profile.layers, ahead, behind, strict=True)
    )
    ends = [*accumulate(layer.backward_s for layer in reversed(profile.layers))][::-1]
    later = [
        *accumulate(
            after.backward_s - before.backward_s
            for after, before in zip(reversed(layers), reversed(profile.layers), strict=True)
        )
    ][::-1]
    gradients = []
    for gradient in profile.gradients:
        at = gradient.layer
        before_s = ends[at] - profile.layers[at].backward_s
        within_s = min(max(gradient.ready_s - before_s, 0.0), profile.layers[at].backward_s)
        behind_s = later[at + 1] if at + 1 < len(layers) else 0.0
        more_s = behind_s + (behind[at] - 1.0) * within_s
        gradients.append(gradient.at(gradient.ready_s + more_s))
    more_s = sum_in_order(layer.forward_s + layer.backward_s for layer in layers)
    more_s -= profile.forward_s + profile.backward_s
    return replace(
        profile,
        layers=layers,
        gradients=tuple(gradients),
        iteration_s=profile.iteration_s + more_s,
    )


class BlocksToHost(NamedTuple):
    """What blocks keep that goes to the host, and how wide the software has it.

    Parameters
    ----------
    words : what is in the memory of the host, as `offload` of a scenario names it: the inputs of
        blocks that are computed again, or all that the first of them keep
    link : to the host
    precision, execution, gathered : as for `perfsim.compute.memory.activation_bytes`
    """

    words: str
    link: HostLink
    precision: str
    execution: Execution
    gathered: int

    def of_profile(self, profile: Profile) -> Profile:
        """Return the profile of a defined model with what its passes wait for copies."""
        layers = build_model(profile.model, defined_tokens(profile))
        owners, owner = [], -1
        for layer in layers:  # those without parameters count to the one before
            owner += bool(layer.tensors) or owner < 0
            owners.append(owner)
        spans = [*block_spans(layers)]
        blocks = [(owners[first], owners[end - 1] + 1) for first, end in spans]
        seconds = [(layer.forward_s, layer.backward_s) for layer in profile.layers]
        ratios = self._ratios(layers, spans, profile.batch, blocks, seconds)
        return with_passes(profile, [both[0] for both in ratios], [both[1] for both in ratios])

    def longer(
        self,
        layers: Sequence[ModelLayer],
        spans: Sequence[tuple[int, int]],
        batch: int,
        seconds: Sequence[tuple[float, float]],
    ) -> list[tuple[float, float]]:
        """Return the times of layers with what they wait for copies, ``seconds`` without [s].

        ``spans`` are the first layer of each block and the one after its last.
        """
        ratios = self._ratios(layers, spans, batch, spans, seconds)
        return [
            (forward_s * ahead, backward_s * behind)
            for (forward_s, backward_s), (ahead, behind) in zip(seconds, ratios, strict=True)
        ]

    def _ratios(
        self,
        layers: Sequence[ModelLayer],
        spans: Sequence[tuple[int, int]],
        batch: int,
        blocks: Sequence[tuple[int, int]],
        seconds: Sequence[tuple[float, float]],
    ) -> list[tuple[float, float]]:
        """Return how many times as long each timed layer takes; ``blocks`` are their spans."""
        forward_s, backward_s = (
            [sum_in_order(both[way] for both in seconds[first:end]) for first, end in blocks]
            for way in (0, 1)
        )
        how = self.precision, self.execution
        if CHECKPOINTS in offloaded(self.words):
            wait, sizes = longer_passes, checkpoint_bytes(layers, spans, *how)
        else:
            wait, sizes = longer_by_activations, block_bytes(layers, spans, *how, self.gathered)
            sizes = sizes[: activation_blocks(self.words, len(spans))]
        longer = wait(forward_s, backward_s, [batch * size for size in sizes], self.link)
        ratios = [(1.0, 1.0)] * len(seconds)
        for (first, end), both in zip(blocks, zip(*longer, strict=True), strict=True):
            ratios[first:end] = [both] * (end - first)
        return ratios


def blocks_to_host(
    words: str, device: Device, profile: Profile, era: str, *, autocast: bool, gathered: int = 1
) -> BlocksToHost | None:
    """Return how what blocks keep goes to the host, None where it stays on the GPU.

    Parameters
    ----------
    words : what is in the memory of the host, as `offload` of a scenario names it
    era : the software that runs the model
    autocast : whether values between layers are fp32 in mixed precision
    gathered : ranks that keep a part each of what a product reads (sequence parallelism)

    Raises
    ------
    RequestError
        If the link of the GPU to its host is not known.
    """
    if not offloaded(words) & {ACTIVATIONS, CHECKPOINTS}:
        return None
    precision = profile.precision if autocast else profile.precision.removeprefix("amp-")
    return BlocksToHost(words, host_link(device), precision, execution_of(era), gathered)


def check_blocks(words: str, profile: Profile, recompute: str, stages: int) -> None:
    """Refuse to copy what blocks keep where no code is known that does, or in stages.

    ``words`` are what is in the memory of the host.

    Raises
    ------
    RequestError
        The message says what to set or to leave out.
    """
    named = offloaded(words)
    if CHECKPOINTS in named and (recompute != "full" or not matches_definition(profile)):
        why = (
            "checkpoints are the inputs of blocks that are computed again; set `recompute` full, or"
            " leave it out."
        )
        raise RequestError("offload", why, value=words)
    if ACTIVATIONS in named:
        if recompute != "none":
            why = (
                "activations: no code is known here that copies them and computes blocks again; set"
                " checkpoints in their place, or leave `recompute` out."
            )
            raise RequestError("offload", why, value=words)
        blocks = defined_blocks(profile)
        if not blocks:
            why = "activations go by blocks, which only networks with attention have; leave it out."
            raise RequestError("offload", why, value=words)
        activation_blocks(words, blocks)
    moved = named & {ACTIVATIONS, CHECKPOINTS}
    if stages > 1 and moved:
        [what] = moved
        why = f"{what}: no code is known here that copies them in a pipeline; leave `pp` out."
        raise RequestError("offload", why, value=words)


def defined_blocks(profile: Profile) -> int:
    """Return how many blocks a model has; 0 for one without a definition or attention."""
    if not matches_definition(profile):
        return 0
    return block_count(build_model(profile.model, defined_tokens(profile)))


def _way(device: Device) -> str:
    """Return over what a GPU reaches its host, and whether that was measured."""
    measured = "half of what was measured of one" if (device.c2c_gpus or 1) > 1 else "measured"
    return f"{link_words(device)}, {measured}"


def blocks_note(words: str, profile: Profile, device: Device) -> str:
    """Say what of blocks is on the host, and how fast it goes there and back."""
    link = host_link(device)
    rates = f"at {format_rate(link.out)} and {format_rate(link.back)} ({_way(device)})"
    if CHECKPOINTS in offloaded(words):
        return (
            "`offload` checkpoints: the input of each block goes to pinned memory of the host and"
            f" back on a stream of its own, {rates}, as in trl and torchtune."
        )
    blocks = defined_blocks(profile)
    return (
        f"`offload` activations: what {activation_blocks(words, blocks)} of {blocks} blocks keep"
        f" goes to pinned memory of the host and back on streams of its own, {rates}, as by"
        " Transformer Engine."
    )


class UpdateOnHost(NamedTuple):
    """An update of all parameters of a model by the CPUs of hosts, by what it takes [s].

    ``copies_s`` are gradients that nothing hides and the new parameters, ``adam_s`` is the CPUs'.
    """

    copies_s: float
    adam_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.copies_s + self.adam_s


_SUM_BYTES = 4.0
"""Bytes a parameter that adding a micro-batch's gradient moves, half each way."""


def update_on_host(
    parameters: float,
    ranks: int,
    link: HostLink,
    backward_s: float,
    micro_batches: int = 1,
    *,
    how: HostUpdate = ZERO_OFFLOAD,
    rate: float = CPU_ADAM_RATE,
) -> UpdateOnHost:
    """Return what an update on the host takes, of as many parameters as a rank has.

    With several micro-batches their sum is on the host too: it comes to the GPU, the gradient is
    added, and it goes back, in 16 bits. The last goes to the host in fp32. All that runs beside the
    backward pass; the update waits for what is longer, as the gradients' norm needs all. The ranks
    of a host share its CPUs. The parameters go back in 16 bits.

    Parameters
    ----------
    parameters : that one rank updates
    ranks : on one host
    backward_s : backward pass of a micro-batch
    how : which of the copies there are
    rate : parameters that the CPUs of a host update in a second [1/s]

    Examples
    --------
    >>> found = update_on_host(10e9 / 8, 8, HostLink(50e9, 50e9), 1.0)
    >>> round(found.adam_s, 2), found.copies_s
    (2.57, 0.05)
    """
    added_s = parameters * _SUM_BYTES / 2 * (1 / link.out + 1 / link.back)
    sent_s = parameters * FLOAT / link.out
    left_s = max(0.0, sent_s + (micro_batches > 1) * added_s - backward_s)
    left_s += (micro_batches - 1) * max(0.0, added_s - backward_s)
    back_s = parameters * HALF / link.back
    copies_s = left_s * how.gradients + back_s * how.parameters
    return UpdateOnHost(copies_s, parameters * ranks / rate)


class HostRanks(NamedTuple):
    """The ranks on one host, and the share of the parameters that each updates."""

    on_host: int
    share: float

    @classmethod
    def of(cls, gpus_per_node: int, share: float, device: Device) -> HostRanks:
        """Return the ranks of a host; some nodes have several of them."""
        return cls(min(gpus_per_node, device.host_gpus or gpus_per_node), share)


def updated_on_host(
    profile: Profile,
    optimizer: str,
    how: HostUpdate,
    device: Device,
    ranks: HostRanks,
    backward_s: float,
    micro_batches: int,
) -> tuple[Profile, str]:
    """Return a profile whose update runs on the host, and the note on it.

    Parameters
    ----------
    backward_s : what a rank's backward pass of a micro-batch takes

    Raises
    ------
    RequestError
        If the optimizer is not Adam, or the link of the GPU to its host is not known.
    """
    rate = cpu_adam_rate(how.library, optimizer)
    link, own = host_link(device), profile.elements * ranks.share
    told = backward_s, micro_batches
    alone = update_on_host(profile.elements, 1, link, *told, how=how, rate=rate)
    each = update_on_host(own, ranks.on_host, link, *told, how=how, rate=rate)
    passes_s = profile.iteration_s - profile.optimizer_s
    made = replace(
        profile,
        optimizer_s=alone.seconds,
        iteration_s=passes_s + alone.seconds,
        host_sharing=each.seconds / ranks.share / alone.seconds,
    )
    held_bytes = _STATE_WIDTHS * (profile.kept_bytes if how.library == "PyTorch" else FLOAT)
    if how.gradients and not how.parameters:  # the 16-bit ones stay there too
        held_bytes += HALF
    copies = f" copies {format_seconds(each.copies_s)} over {link_words(device)};"
    note = assumption(
        f"Update on the host: the CPUs of a host take {format_seconds(each.adam_s)} for Adam,"
        f" {_rate_words(how.library, rate, optimizer)}; torchrun gives a rank one thread unless"
        f" OMP_NUM_THREADS says more, and then it may take far longer;"
        f"{copies if each.copies_s else ''} the state takes"
        f" {format_bytes(held_bytes * ranks.on_host * own)} of a host.",
        f"the CPUs' Adam: {rate / 1e9:.1f} billion parameters a second",
    )
    return made, note


def _rate_words(library: Literal["DeepSpeed", "PyTorch"], rate: float, optimizer: str) -> str:
    """Say how fast the CPUs update, and who measured that [parameters/s]."""
    how = (
        f"{CPU_ADAM_RATE / 1e9:.1f} billion parameters a second on two CPUs of 24 cores, all at"
        " work (ZeRO-Offload, table 4)"
    )
    if library == "DeepSpeed":
        return f"as DeepSpeed's CPU-Adam: {how}"
    fused = ", and one kernel was 5.1 times as fast" if optimizer.endswith("fused") else ""
    return (
        f"by {rate / 1e9:.1f} billion parameters a second in PyTorch: DeepSpeed's CPU-Adam does"
        f" {how}, 5.1 to 6.5 times as many by its makers{fused}"
    )


_STATE_WIDTHS = 4.0
"""Values a parameter on the host: the parameter, its gradient and two moments; all in fp32, but in
PyTorch as wide as the parameter is kept."""


def parameters_note(device: Device, library: Literal["DeepSpeed", "PyTorch"]) -> str:
    """Say where parameters are, and how fast they come to the GPU."""
    link = host_link(device)
    how = {
        "PyTorch": "as in CPUOffloadPolicy of PyTorch's FSDP, and gradients go back",
        "DeepSpeed": "as by DeepSpeed's offload_param",
    }
    return (
        "`offload` parameters: a rank's shard comes from pinned memory of the host before each"
        f" gather, at {format_rate(link.back)} ({_way(device)}, each GPU on a link of"
        f" its own), {how[library]}."
    )
