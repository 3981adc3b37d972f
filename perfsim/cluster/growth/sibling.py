"""All-gather and reduce-scatter from an all-reduce: half of the ring, and a floor of their own."""

from __future__ import annotations

import math

from perfsim.cluster.growth.reach import SMALL_BYTES, reach
from perfsim.cluster.measured import Curve

__all__ = ["FLOOR_BYTES", "HALVES", "SMALL_BYTES", "gathering_floor", "half", "sibling"]

HALVES = ("all_gather", "reduce_scatter")

FLOOR_BYTES = 1024.0
"""Up to here an all-reduce costs its floor."""


def sibling(curve: Curve, size_bytes: float, latency_s: float) -> float:
    """Return the time of an all_gather or reduce_scatter on the ranks of an all_reduce [s].

    L + (T(n) - F) / 2: a ring all-reduce is a reduce-scatter and an all-gather of the same bytes,
    so what it takes above its floor F is twice what either takes above its own. The floors
    differ: small all-reduces go over trees, log2 N levels, while these two have none and take
    P-1 steps.

    Parameters
    ----------
    curve : the all_reduce
    size_bytes : n, the blocks of all ranks
    latency_s : L, what a small message of this collective takes, measured or `gathering_floor`

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5 (Rabenseifner's decomposition).

    Examples
    --------
    >>> curve = Curve("all_reduce", 8, 2, 4, (8.0, 1e3, 1e8), (2e-5, 2e-5, 1e-2), "measured", "x")
    >>> round(sibling(curve, 1e8, 7e-5) * 1e6)
    5060
    """
    if curve.size_bytes[0] > SMALL_BYTES:
        return reach(curve, size_bytes) / 2.0
    return half(reach(curve, size_bytes), floor(curve), latency_s)


def half(time_s: float, floor_s: float, latency_s: float) -> float:
    """Return L + (T - F) / 2, one half of an all-reduce with a floor of its own [s].

    Examples
    --------
    >>> half(10.0, 2.0, 3.0)
    7.0
    """
    return latency_s + max(time_s - floor_s, 0.0) / 2.0


def floor(curve: Curve) -> float:
    """Return what a small message takes [s]: the median up to 1 KiB.

    Examples
    --------
    >>> floor(Curve("all_reduce", 2, 2, 1, (8.0, 64.0, 1e6), (3e-5, 2e-5, 1e-3), "measured", "x"))
    3e-05
    """
    small = sorted(
        seconds
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True)
        if size <= FLOOR_BYTES
    )
    return small[len(small) // 2] if small else curve.seconds[0]


def gathering_floor(floor_s: float, ranks: int, nodes: int, call_s: float, inside: float) -> float:
    """Return what a small all_gather or reduce_scatter takes, told by all_reduce alone [s].

    On one node the all-reduce's own floor. Between nodes call + (N-1) alpha + (P-N) alpha
    ``inside``: once round the ring, with alpha the hop of the all-reduce's tree,
    (F - call) / (2 log2 N).

    Parameters
    ----------
    floor_s : F, a small all-reduce on the same ranks
    ranks, nodes : P and N
    call_s : what a call costs without a hop between nodes
    inside : hop of a ring inside a node over hop of a tree between nodes, as NCCL's figures say

    Examples
    --------
    >>> round(gathering_floor(7e-5, 32, 8, 1e-5, 0.1) * 1e6)
    104
    """
    if nodes == 1:
        return floor_s
    alpha_s = max(floor_s - call_s, 0.0) / (2.0 * math.log2(nodes))
    return call_s + ((nodes - 1) + (ranks - nodes) * inside) * alpha_s
