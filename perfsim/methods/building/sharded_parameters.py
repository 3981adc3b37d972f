"""Sharded parameters: when PyTorch's FSDP gathers the units of a model and reduces their gradients.

FSDP1 (``FullyShardedDataParallel``) keeps each unit in a flat parameter: gathers land in place, and
gradients are divided before and after they are summed. FSDP2 (``fully_shard``) keeps each parameter
apart: gathered parameters are copied out, and gradients are copied into the message.

References
----------
Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023 (arXiv
2304.11277). Code: pytorch/pytorch at 00ae0bc9, torch/distributed/fsdp/
_runtime_utils.py; at 07b3040a, torch/distributed/algorithms/_comm_hooks/default_hooks.py; PyTorch
2.13, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import HALF_PRECISIONS, Profile
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import blocks_of
from perfsim.methods.base import (
    Compute,
    Group,
    Job,
    JobRepeats,
    JobStage,
    MethodContext,
    PassPoint,
    Send,
)
from perfsim.methods.building.layerwise import LayerStarts

__all__ = [
    "FROZEN_BYTES",
    "HALF_BYTES",
    "GatherType",
    "Prefetch",
    "backward_gathers",
    "copied_backward_gathers",
    "copied_forward_gathers",
    "copied_sums",
    "divisor",
    "forward_gathers",
    "gathered_width",
    "in_forward_order",
    "in_half",
    "in_half_precision",
    "made_bytes",
    "scattered",
    "sent_width",
    "streamed",
    "with_root",
]

Prefetch = Literal["pre", "post", "none"]
"""When a unit is gathered for the backward pass: at the start of the unit before it ("pre"), at the
end of that unit ("post"), or when it is needed ("none")."""


GatherType = Literal["auto", "fp32", "bf16", "fp8"]
"""Type of gathered parameters; auto: bf16 in half precision, else fp32."""
_WIDTHS = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}
"""Bytes of a gathered parameter, by its type."""
FROZEN_BYTES = 2.0
"""Bytes of a frozen parameter in half precision; of one in 4 bits, of the 16-bit values that it
takes."""
HALF_BYTES = 2.0
"""Bytes of a gradient as the backward pass makes it in half precision; FP8's are as wide."""


def in_half(world: MethodContext) -> bool:
    """Tell whether the model computes in 16 bits or fewer."""
    return world.profile is not None and in_half_precision(world.profile)


def in_half_precision(profile: Profile) -> bool:
    """Tell whether a profile is of a model that computes in 16 bits or fewer."""
    return profile.precision in HALF_PRECISIONS


def sent_width(value_bytes: float, world: MethodContext) -> float:
    """Return the width of a gradient that is sent as it is made [bytes], of one asked for as wide.

    In half precision it has 16 bits at most.
    """
    return min(value_bytes, HALF_BYTES) if in_half(world) else value_bytes


def gathered_width(gather: GatherType, world: MethodContext) -> float:
    """Return the width of a gathered parameter [bytes]."""
    return _WIDTHS[("bf16" if in_half(world) else "fp32") if gather == "auto" else gather]


def streamed(elements: int, bytes_each: float, launches: int = 1) -> Compute:
    """Return kernels on the compute stream that move so many bytes a value.

    Examples
    --------
    >>> streamed(1000, 6.0).kernels[0].moved_bytes
    6000.0
    """
    return Compute((elementwise(elements, bytes_each / FLOAT, launches),), "compress")


ALIVE = 2
"""Units that may have gathered parameters at once: FSDP1's limit_all_gathers, and the two buffers
that FSDP2's forward pass keeps."""


# FSDP1


def with_root(units: Sequence[Bucket]) -> tuple[list[Bucket], Bucket | None]:
    """Return units with all parameters outside blocks in one, and that one, the root's.

    FSDP1 leaves what no wrapped block holds to the model's own unit. A model of one unit is its own
    root. Where no parameter is in a block, the units are as the user asked, and none is the root's.

    Examples
    --------
    >>> from perfsim.compute.profile import Gradient
    >>> names = ["head.w", "h.1.mlp.w", "h.0.mlp.w", "embed.w"]
    >>> made = [Bucket.of([Gradient(name, (1,), at, 0)]) for at, name in enumerate(names)]
    >>> units, root = with_root(made)
    >>> [[gradient.name for gradient in unit.gradients] for unit in units]
    [['h.1.mlp.w'], ['h.0.mlp.w'], ['head.w', 'embed.w']]
    """
    if len(units) == 1:
        return list(units), units[0]
    names = [gradient.name for unit in units for gradient in unit.gradients]
    blocks = dict(zip(names, blocks_of(names), strict=True))
    parts: dict[bool, list[Bucket]] = {True: [], False: []}
    for unit in units:
        parts[any(blocks[one.name] for one in unit.gradients)].append(unit)
    inside, outside = parts[True], parts[False]
    if not inside or not outside:
        return list(units), None
    root = Bucket.of([gradient for unit in outside for gradient in unit.gradients])
    return sorted([*inside, root], key=lambda unit: unit.ready_s), root


def forward_gathers(
    units: Sequence[Bucket],
    starts: LayerStarts,
    group: Group = "all",
    value_bytes: float = 4.0,
    repeats: JobRepeats = "every",
) -> list[Job]:
    """Return FSDP1's gathers of the forward pass, in its order; each unit waits for its gather.

    From the third unit on, a gather begins when the unit two before it has run. ``value_bytes`` is
    the width of a gathered parameter.
    """
    ordered, starts_s = in_forward_order(units, starts)
    return [
        Job(
            f"unit {number}",
            (Send("all_gather", value_bytes * unit.elements, group=group),),
            PassPoint("forward", starts_s[number - ALIVE + 1] if number >= ALIVE else 0.0),
            PassPoint("forward", starts_s[number]),
            repeats=repeats,
        )
        for number, unit in enumerate(ordered)
    ]


def backward_gathers(
    units: Sequence[Bucket],
    starts: LayerStarts,
    prefetch: Prefetch,
    group: Group = "all",
    value_bytes: float = 4.0,
) -> list[Job]:
    """Return FSDP1's gathers of the backward pass; units are given in its order."""
    enters_s = _entered_s(units, starts)
    done_s = [0.0, *(unit.ready_s for unit in units)]
    begins_s = {"pre": [0.0, *enters_s], "post": done_s, "none": enters_s}[prefetch]
    return [
        Job(
            f"again {number}",
            (Send("all_gather", value_bytes * unit.elements, group=group),),
            PassPoint("backward", begins_s[number]),
            PassPoint("backward", enters_s[number]),
            repeats="every",
        )
        for number, unit in enumerate(units)
    ]


def scattered(unit: Bucket, shards: int, ranks: int) -> tuple[JobStage, ...]:
    """Return FSDP1's reduction of a unit's gradients over all ranks.

    The ``shards`` ranks that share a copy of the parameters reduce-scatter them. Then an all-reduce
    adds up the copies.

    Examples
    --------
    >>> from perfsim.compute.profile import Gradient
    >>> unit = Bucket.of([Gradient("w", (1000,), 0.0, 0)])
    >>> [stage.size_bytes for stage in scattered(unit, 4, 8) if isinstance(stage, Send)]
    [4000.0, 1000.0]
    """
    shard, copies = -(-unit.elements // shards), ranks // shards
    width = unit.gradients[0].value_bytes
    if copies == 1:
        return _divided(Send("reduce_scatter", unit.size_bytes), unit.elements, shard, ranks, width)
    inside = Send("reduce_scatter", unit.size_bytes, group=shards)
    across = _across(unit, shards, copies)
    return (
        *_divided(inside, unit.elements, shard, shards, width),
        *_divided(across, shard, shard, copies, width),
    )


def _across(unit: Bucket, shards: int, copies: int) -> Send:
    """Return the all-reduce of a share of a unit's gradients over the copies of the model."""
    share_bytes = unit.size_bytes / shards
    return Send("all_reduce", share_bytes, stream="copies", group=(copies, shards))


def _divided(
    send: Send, elements: int, values_left: int, ranks: int, width: float
) -> tuple[JobStage, ...]:
    """Return a sum over ``ranks`` with the division before it and, if needed, after it.

    The division after it applies to the ``values_left`` that each rank has after the sum. Values
    are ``width`` bytes wide.
    """
    passes = 2 * width / FLOAT
    before = Compute((elementwise(elements, passes),), "compress", "post_backward")
    after = Compute((elementwise(values_left, passes),), "decompress", "post_backward")
    if ranks == 1:
        return (send,)
    return (before, send, after) if ranks > divisor(ranks) else (before, send)


def divisor(ranks: int) -> int:
    """Return the divisor of gradients before they are added up; the rest is divided after.

    Examples
    --------
    >>> [divisor(ranks) for ranks in (2, 3, 4, 16, 64)]
    [2, 2, 2, 4, 8]
    """
    factor = 1
    while ranks % factor == 0 and ranks / factor > factor:
        factor *= 2
    return factor


# FSDP2


def copied_forward_gathers(
    units: Sequence[Bucket], starts: LayerStarts, shards: int, group: Group, value_bytes: float
) -> list[Job]:
    """Return FSDP2's gathers of the forward pass, in its order.

    The stream of gathers waits for the copy of the unit two before: a gather may lead the
    computation by up to two units.
    """
    ordered, starts_s = in_forward_order(units, starts)
    return [
        _copied_gather(
            f"unit {number}",
            unit,
            shards,
            group,
            value_bytes,
            PassPoint("forward", starts_s[number - ALIVE], behind=True)
            if number >= ALIVE
            else PassPoint("forward"),
            PassPoint("forward", starts_s[number]),
        )
        for number, unit in enumerate(ordered)
    ]


def copied_backward_gathers(
    units: Sequence[Bucket], starts: LayerStarts, shards: int, group: Group, value_bytes: float
) -> list[Job]:
    """Return FSDP2's gathers of the backward pass; units are given in its order.

    A unit is gathered when the unit before it in that pass begins, behind that one's own copy. The
    last unit of the forward pass stays gathered.
    """
    enters_s = _entered_s(units, starts)
    return [
        _copied_gather(
            f"again {number}",
            unit,
            shards,
            group,
            value_bytes,
            PassPoint("backward", enters_s[number - 1], behind=True),
            PassPoint("backward", enters_s[number]),
        )
        for number, unit in enumerate(units)
        if number
    ]


def _copied_gather(
    name: str,
    unit: Bucket,
    shards: int,
    group: Group,
    value_bytes: float,
    begins: PassPoint,
    holds: PassPoint,
) -> Job:
    """Return a gather with the copies around it.

    A rank's shard is cast and copied into the message on a stream of its own (2 launches). The
    gathered parameters are copied out on the compute stream, where nothing hides it.
    """
    shard = -(-unit.elements // shards)
    cast = (FLOAT + value_bytes) + 2 * value_bytes if value_bytes < FLOAT else 2 * value_bytes
    copy_in = streamed(shard, cast, launches=2)._replace(stream="copy in")
    copy_out = streamed(unit.elements, 2 * value_bytes)._replace(kind="decompress")
    send = Send("all_gather", value_bytes * unit.elements, group=group)
    return Job(name, (copy_in, send), begins, holds, after=(copy_out,), repeats="every")


def copied_sums(
    units: Sequence[Bucket],
    shards: int,
    copies: int,
    group: Group,
    gradient_bytes: float,
    to_host: Callable[[Bucket], Compute] | None = None,
) -> list[Job]:
    """Return FSDP2's reductions of each unit's gradients, in the order of the backward pass.

    When a unit's gradients are there, the compute stream waits for the reduce-scatter of the unit
    before, then copies the gradients, of ``gradient_bytes`` each, into the message. With several
    copies of the model the shares are all-reduced after that, on a stream of their own. NCCL
    averages: nothing is divided.

    ``to_host`` is the copy of a rank's share to the host, on the stream of its last sum: that of
    the next unit waits for it. What computation waits for is the reduce-scatter alone.
    """
    jobs: list[Job] = []
    for number, unit in enumerate(units):
        begins = PassPoint("backward", unit.ready_s)
        copy = streamed(unit.elements, gradient_bytes + unit.gradients[0].value_bytes)
        copy = copy._replace(blocks=True)
        send = Send("reduce_scatter", unit.size_bytes, group=group)
        before = (f"sum {number - 1}",) if number else ()
        out = (f"out {number - 1}",) if number and to_host else ()
        last = f"sum {number}"
        if to_host is None or copies > 1:
            jobs.append(Job(last, (copy, send), begins, needs=before))
        else:
            jobs.append(Job(f"pack {number}", (copy,), begins, needs=before))
            jobs.append(Job(last, (send,), begins, needs=(f"pack {number}", *out)))
        if copies > 1:
            send = _across(unit, shards, copies)
            jobs.append(Job(f"copies {number}", (send,), begins, needs=(last, *out)))
            last = f"copies {number}"
        if to_host is not None:
            jobs.append(Job(f"out {number}", (to_host(unit),), begins, needs=(last,)))
    return jobs


def made_bytes(value_bytes: float) -> float:
    """Return the width of a gradient as the backward pass makes it [bytes], by the parameter's."""
    return max(value_bytes, HALF_BYTES)


# Both


def in_forward_order(
    units: Sequence[Bucket], starts: LayerStarts
) -> tuple[list[Bucket], list[float]]:
    """Return units in the order of the forward pass, and where each starts there [s]."""
    ordered = sorted(reversed(units), key=starts.forward_start_s)
    return ordered, [starts.forward_start_s(unit) for unit in ordered]


def _entered_s(units: Sequence[Bucket], starts: LayerStarts) -> list[float]:
    """Return where the backward pass enters each unit [s]: not before the one before is done."""
    done_s = [0.0, *(unit.ready_s for unit in units)]
    return [
        max(starts.backward_start_s(unit), done)
        for unit, done in zip(units, done_s[:-1], strict=True)
    ]
