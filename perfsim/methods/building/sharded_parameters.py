"""Sharded parameters: when PyTorch's FSDP gathers the units of a model.

References
----------
Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023 (arXiv
2304.11277). Code: pytorch/pytorch at 00ae0bc9, torch/distributed/fsdp/
_runtime_utils.py; at 07b3040a, torch/distributed/algorithms/_comm_hooks/default_hooks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from perfsim.compute.kernel import elementwise
from perfsim.compute.profile import HALF_PRECISIONS
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    Group,
    Job,
    JobStage,
    MethodContext,
    PassPoint,
    Send,
)
from perfsim.methods.building.layerwise import LayerStarts

__all__ = [
    "GatherType",
    "Prefetch",
    "backward_gathers",
    "divisor",
    "forward_gathers",
    "gathered_width",
    "scattered",
]

Prefetch = Literal["pre", "post", "none"]
"""When a unit is gathered for the backward pass: at the start of the unit before it ("pre"), at the
end of that unit ("post"), or when it is needed ("none")."""


GatherType = Literal["auto", "fp32", "bf16", "fp8"]
"""Type of gathered parameters; auto: bf16 in half precision, else fp32."""
_WIDTHS = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}
"""Bytes of a gathered parameter, by its type."""


def gathered_width(gather: GatherType, world: MethodContext) -> float:
    """Return the width of a gathered parameter [bytes]."""
    half = world.profile is not None and world.profile.precision in HALF_PRECISIONS
    return _WIDTHS[("bf16" if half else "fp32") if gather == "auto" else gather]


ALIVE = 2
"""Units that may have gathered parameters at once (limit_all_gathers)."""


def forward_gathers(
    units: Sequence[Bucket], starts: LayerStarts, group: Group = "all", value_bytes: float = 4.0
) -> list[Job]:
    """Return the gathers of the forward pass, in its order; each unit waits for its gather.

    From the third unit on, a gather begins when the unit two before it has run. ``value_bytes`` is
    the width of a gathered parameter.
    """
    ordered = sorted(reversed(units), key=starts.forward_start_s)
    starts_s = [starts.forward_start_s(unit) for unit in ordered]
    return [
        Job(
            f"unit {number}",
            (Send("all_gather", value_bytes * unit.elements, group=group),),
            PassPoint("forward", starts_s[number - ALIVE + 1] if number >= ALIVE else 0.0),
            PassPoint("forward", starts_s[number]),
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
    """Return the gathers of the backward pass; units are given in its order."""
    # The backward pass enters a unit when it has finished the one before.
    done_s = [0.0, *(unit.ready_s for unit in units)]
    enters_s = [
        max(starts.backward_start_s(unit), done)
        for unit, done in zip(units, done_s[:-1], strict=True)
    ]
    begins_s = {"pre": [0.0, *enters_s], "post": done_s, "none": enters_s}[prefetch]
    return [
        Job(
            f"again {number}",
            (Send("all_gather", value_bytes * unit.elements, group=group),),
            PassPoint("backward", begins_s[number]),
            PassPoint("backward", enters_s[number]),
        )
        for number, unit in enumerate(units)
    ]


def scattered(unit: Bucket, shards: int, ranks: int) -> tuple[JobStage, ...]:
    """Return the reduction of a unit's gradients over all ranks.

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
    if copies == 1:
        return _divided(Send("reduce_scatter", unit.size_bytes), unit.elements, shard, ranks)
    inside = Send("reduce_scatter", unit.size_bytes, group=shards)
    share_bytes = unit.size_bytes / shards
    across = Send("all_reduce", share_bytes, stream="copies", group=(copies, shards))
    return (
        *_divided(inside, unit.elements, shard, shards),
        *_divided(across, shard, shard, copies),
    )


def _divided(send: Send, elements: int, values_left: int, ranks: int) -> tuple[JobStage, ...]:
    """Return a sum over ``ranks`` with the division before it and, if needed, after it.

    The division after it applies to the ``values_left`` that each rank has after the sum.
    """
    before = Compute((elementwise(elements, passes=2),), "compress", "post_backward")
    after = Compute((elementwise(values_left, passes=2),), "decompress", "post_backward")
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
