"""Tensors for fusion policies, what a policy is told of them, and the buckets it makes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from perfsim import fusion
from perfsim.by_size import one_by_one
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket, FusionContext

MIB = 2**20
POLICIES = fusion.policy_names()


def tensors(*pairs: tuple[int, float]) -> list[Gradient]:
    """Gradients of (elements, ready_s), named by their place."""
    return [Gradient(str(place), (size,), ready, 0) for place, (size, ready) in enumerate(pairs)]


def context(
    gradients: Sequence[Gradient],
    limit_bytes: float | None = None,
    all_reduce_s: Callable[[float], float] = lambda size: 1e-4 + 1e-9 * size,
    shrink: float = 1.0,
    **options: str,
) -> FusionContext:
    """Return what a policy is told: limit, cost of an all-reduce, share that is sent, options."""
    backward_s = max((gradient.ready_s for gradient in gradients), default=0.0)
    return FusionContext(
        limit_bytes,
        backward_s,
        lambda gradient: shrink * gradient.size_bytes,
        lambda collective: one_by_one(all_reduce_s),
        options,
    )


def places(buckets: Sequence[Bucket]) -> list[list[int]]:
    """Return the places of the tensors in each bucket."""
    return [[int(gradient.name) for gradient in bucket.gradients] for bucket in buckets]


@st.composite
def gradient_lists(draw: st.DrawFn, most: int = 30) -> list[Gradient]:
    """Draw gradients of any size, each ready up to 5 ms after the one before."""
    sizes = draw(st.lists(st.integers(1, 3_000_000), min_size=1, max_size=most))
    gaps = draw(
        st.lists(st.floats(0, 5e-3), min_size=len(sizes), max_size=len(sizes)).map(
            itertools.accumulate
        )
    )
    return tensors(*zip(sizes, gaps, strict=True))
