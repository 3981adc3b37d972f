"""Sharded parameters: when units of a model are gathered, as PyTorch's FSDP does it.

References
----------
Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023 (arXiv
2304.11277). Code: pytorch/pytorch at 00ae0bc9, torch/distributed/fsdp/
_runtime_utils.py; at 07b3040a, torch/distributed/algorithms/_comm_hooks/default_hooks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Group, Job, JobStage, MethodContext, PassPoint, Send

__all__ = [
    "MOST_PARTS",
    "PUSH_PULL",
    "Places",
    "Prefetch",
    "backward_gathers",
    "crossing",
    "divisor",
    "forward_gathers",
    "push_pull",
    "scattered",
    "split_evenly",
    "split_whole",
    "too_many",
    "update_shares",
]


@dataclass(frozen=True)
class Places:
    """When each layer starts in a pass [s], from the start of that pass.

    Parameters
    ----------
    forward_s : start of each layer in the forward pass
    backward_s : start of each layer in the backward pass
    order : place of each gradient in the order in which the model registers its parameters
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    order: dict[str, int]

    @classmethod
    def of(cls, world: MethodContext) -> Places:
        """Return the places of the layers of the model as it runs here.

        Raises
        ------
        ValueError
            If the world knows no profile.
        """
        profile = world.profile
        if profile is None:
            raise ValueError("this world knows no profile")
        forward = accumulate((layer.forward_s for layer in profile.layers), initial=0.0)
        backward = accumulate((layer.backward_s for layer in reversed(profile.layers)), initial=0.0)
        return cls(
            tuple(forward)[:-1],
            tuple(backward)[-2::-1],
            {gradient.name: place for place, gradient in enumerate(profile.gradients)},
        )

    def needed(self, bucket: Bucket) -> PassPoint:
        """Return the place in the next forward pass where the bucket's first layer starts."""
        return PassPoint("next", self.forward_start_s(bucket))

    def forward_start_s(self, bucket: Bucket) -> float:
        """Return when the first of the bucket's layers starts in the forward pass [s]."""
        return min(self.forward_s[gradient.layer] for gradient in bucket.gradients)

    def backward_start_s(self, bucket: Bucket) -> float:
        """Return when the first of the bucket's layers starts in the backward pass [s]."""
        return min(self.backward_s[gradient.layer] for gradient in bucket.gradients)

    def rank(self, bucket: Bucket) -> int:
        """Return the place of the bucket's first parameter in the model."""
        return min(self.order[gradient.name] for gradient in bucket.gradients)


def update_shares(buckets: Sequence[Bucket]) -> list[float]:
    """Return the share of the optimizer's step that each bucket takes: that of its values."""
    total = sum(bucket.elements for bucket in buckets)
    return [bucket.elements / total for bucket in buckets]


def crossing(
    buckets: Sequence[Bucket],
    world: MethodContext,
    stages: Callable[[Bucket, int], Sequence[JobStage]],
) -> list[Job]:
    """Return a job a bucket that the next forward pass waits for where its first layer starts.

    It begins when the bucket is ready, and brings its share of the update. ``stages`` gets the
    bucket and the place of its first parameter in the model.
    """
    places = Places.of(world)
    return [
        Job(
            f"{number}",
            tuple(stages(bucket, places.rank(bucket))),
            PassPoint("backward", bucket.ready_s),
            places.needed(bucket),
            updates=share,
        )
        for number, (bucket, share) in enumerate(zip(buckets, update_shares(buckets), strict=True))
    ]


PUSH_PULL = "(1 + (P - 2) * max(P - servers, 0) / (P * P + min(servers, P) * (P - 2))) * 4 * n"
"""Bytes that a rank sends, mean over ranks, where servers stand on the nodes and beside them."""

MOST_PARTS = 20_000
"""Messages of an iteration up to which a prediction takes seconds, not minutes."""


def split_evenly(gradient: Gradient, most: int) -> list[int]:
    """Return the values in each part of a gradient cut along its first axis, near ``most`` each.

    As many parts as ``most`` asks for, but none less than a row: of equal rows, the last ones
    with one more.

    Examples
    --------
    >>> split_evenly(Gradient("w", (5, 100), 0.0, 0), 200)
    [100, 200, 200]
    >>> split_evenly(Gradient("w", (2, 1000), 0.0, 0), 300)
    [1000, 1000]
    """
    count = min(-(-gradient.elements // most), gradient.shape[0])
    rows, more = divmod(gradient.shape[0], count)
    row = gradient.elements // gradient.shape[0]
    return [row * (rows + (part >= count - more)) for part in range(count)]


def split_whole(elements: int, most: int) -> list[int]:
    """Return the values in each part of a tensor cut into parts of ``most`` and a rest.

    Examples
    --------
    >>> split_whole(250, 100)
    [100, 100, 50]
    """
    return [min(most, elements - start) for start in range(0, elements, most)]


def too_many(elements: int, most: int, option: str) -> str:
    """Return why a model cannot be cut into parts of ``most`` values, or "".

    Examples
    --------
    >>> too_many(10**8, 100, "slice")
    'would cut 100,000,000 parameters into more than 20,000 parts; set slice to at least 5,000'
    """
    if elements <= MOST_PARTS * most:
        return ""
    return (
        f"would cut {elements:,} parameters into more than {MOST_PARTS:,} parts; set {option} to"
        f" at least {-(-elements // MOST_PARTS):,}"
    )


def push_pull(parts: Sequence[int], priority: int, servers: int) -> list[Send]:
    """Return push and pull of each part, by number of values; no part waits for another's pull.

    Both go on one stream: servers that stand on the workers' nodes send what others pull on the
    NICs that push, and the cost of a push is half that of both at once (see ``push_sharded``).
    """
    return [
        Send(
            collective,
            float(FLOAT * part),
            awaited=awaited,
            priority=priority,
            servers=servers,
        )
        for part in parts
        for collective, awaited in (("push", True), ("pull", False))
    ]


Prefetch = Literal["pre", "post", "none"]
"""When a unit is gathered for the backward pass: with the start of the unit before it, with its
end, or when it is needed."""

ALIVE = 2
"""Units whose parameters may be gathered at once (limit_all_gathers)."""


def forward_gathers(units: Sequence[Bucket], places: Places, group: Group = "all") -> list[Job]:
    """Return the gathers of the forward pass, in its order; the pass waits unit by unit.

    From the third unit on a gather begins when the unit two before it has been run.
    """
    ordered = sorted(reversed(units), key=places.forward_start_s)
    starts_s = [places.forward_start_s(unit) for unit in ordered]
    return [
        Job(
            f"unit {number}",
            (Send("all_gather", unit.size_bytes, group=group),),
            PassPoint("forward", starts_s[number - ALIVE + 1] if number >= ALIVE else 0.0),
            PassPoint("forward", starts_s[number]),
        )
        for number, unit in enumerate(ordered)
    ]


def backward_gathers(
    units: Sequence[Bucket], places: Places, prefetch: Prefetch, group: Group = "all"
) -> list[Job]:
    """Return the gathers of the backward pass; units are given in its order."""
    # A unit is entered when the backward pass is through with the one before it.
    done_s = [0.0, *(unit.ready_s for unit in units)]
    enters_s = [
        max(places.backward_start_s(unit), done)
        for unit, done in zip(units, done_s[:-1], strict=True)
    ]
    begins_s = {"pre": [0.0, *enters_s], "post": done_s, "none": enters_s}[prefetch]
    return [
        Job(
            f"again {number}",
            (Send("all_gather", unit.size_bytes, group=group),),
            PassPoint("backward", begins_s[number]),
            PassPoint("backward", enters_s[number]),
        )
        for number, unit in enumerate(units)
    ]


def scattered(unit: Bucket, shards: int, ranks: int) -> tuple[JobStage, ...]:
    """Return the reduction of a unit's gradients: among ``shards`` that share a copy, then copies.

    Examples
    --------
    >>> from perfsim.compute.profile import Gradient
    >>> unit = Bucket.of([Gradient("w", (1000,), 0.0, 0)])
    >>> [stage.size_bytes for stage in scattered(unit, 4, 8) if isinstance(stage, Send)]
    [4000.0, 1000.0]
    """
    own, copies = -(-unit.elements // shards), ranks // shards
    if copies == 1:
        return _divided(Send("reduce_scatter", unit.size_bytes), unit.elements, own, ranks)
    inside = Send("reduce_scatter", unit.size_bytes, group=shards)
    share_bytes = unit.size_bytes / shards
    across = Send("all_reduce", share_bytes, stream="copies", group=(copies, shards))
    return (
        *_divided(inside, unit.elements, own, shards),
        *_divided(across, own, own, copies),
    )


def _divided(send: Send, elements: int, left: int, ranks: int) -> tuple[JobStage, ...]:
    """Return a sum over ``ranks`` with the divisions before it and, if need be, after it."""
    before = Compute((elementwise(elements, passes=2),), "compress", "post_backward")
    after = Compute((elementwise(left, passes=2),), "decompress", "post_backward")
    if ranks == 1:
        return (send,)
    return (before, send, after) if ranks > divisor(ranks) else (before, send)


def divisor(ranks: int) -> int:
    """Return what gradients are divided by before they are added up; the rest comes after.

    Examples
    --------
    >>> [divisor(ranks) for ranks in (2, 3, 4, 16, 64)]
    [2, 2, 2, 4, 8]
    """
    factor = 1
    while ranks % factor == 0 and ranks / factor > factor:
        factor *= 2
    return factor
