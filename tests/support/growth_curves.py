"""Curves of few points by hand, and the sizes and counts of nodes at which they grow."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from perfsim.network.measured import CollectiveCurve

__all__ = ["SIZES", "counts", "curve", "us"]

SIZES = tuple(8.0 * 2**power for power in range(30))
counts = st.sampled_from([2, 4, 8, 16])


def curve(
    collective: str, ranks: int, nodes: int, points: dict[float, float], **more
) -> CollectiveCurve:
    """Return a curve of times in microseconds by bytes."""
    sizes = tuple(sorted(points))
    times = tuple(points[size] * 1e-6 for size in sizes)
    return CollectiveCurve(
        collective, ranks, nodes, ranks // nodes, sizes, times, "measured", "hand", **more
    )


def us(seconds: float) -> float:
    """Return seconds as microseconds, to compare with."""
    return pytest.approx(seconds * 1e6, rel=1e-9)
