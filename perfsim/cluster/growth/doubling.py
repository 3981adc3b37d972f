"""Open MPI's all-reduce that grows: recursive doubling for small messages, a ring for others."""

from __future__ import annotations

import math

from perfsim.cluster.growth.reach import reach
from perfsim.cluster.growth.ring import ROUNDS, ring, step
from perfsim.cluster.measured import Curve

__all__ = ["SMALL_BYTES", "doubling", "open_mpi"]

SMALL_BYTES = 10_000.0
"""Below this Open MPI's fixed rules take recursive doubling (coll_tuned_decision_fixed.c, 4.0)."""

CALL_ROUNDS = 0.5
"""What an Open MPI call costs beside its rounds, in rounds: copying into and out of the work
buffer. Small all-reduces on 2, 4 and 8 nodes of three clusters of CPUs give 0.3 to 0.8 (6.6, 11.6
and 16.4 us; 78, 128 and 169 us; 32 and 50 us)."""


def doubling(curve: Curve, size_bytes: float, ranks: int, nodes: int) -> float:
    """Return the time of recursive doubling over more ranks [s].

    T(n) (call + log2 N') / (call + log2 N), call in rounds (`CALL_ROUNDS`), N nodes: rounds inside
    a node take 0.5 us where those between take 30 (1 GbE; on one node N counts its ranks).

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5: log2 P rounds of the whole message.

    Examples
    --------
    >>> curve = Curve("all_reduce", 4, 4, 1, (8.0, 1e4), (2.5e-5, 5e-5), "measured", "x")
    >>> round(doubling(curve, 8.0, 16, 16) * 1e6)
    45
    """
    return reach(curve, size_bytes) * _rounds(ranks, nodes) / _rounds(curve.ranks, curve.nodes)


def _rounds(ranks: int, nodes: int) -> float:
    return CALL_ROUNDS + math.ceil(math.log2(nodes if nodes > 1 else ranks))


def open_mpi(curve: Curve, size_bytes: float, ranks: int, nodes: int) -> float:
    """Return the time of Open MPI's all-reduce over more ranks [s].

    Recursive doubling below 10 kB, a ring from there on, as its fixed rules choose for sums.

    Examples
    --------
    >>> curve = Curve("all_reduce", 2, 2, 1, (8.0, 1e6), (1e-5, 1e-3), "measured", "x")
    >>> round(open_mpi(curve, 8.0, 8, 8) * 1e6), round(open_mpi(curve, 4e6, 8, 8) * 1e6)
    (23, 7000)
    """
    if size_bytes < SMALL_BYTES:
        return doubling(curve, size_bytes, ranks, nodes)
    shown = next((size for size in curve.size_bytes if size >= SMALL_BYTES), curve.size_bytes[-1])
    if size_bytes / ranks >= shown / curve.ranks or curve.size_bytes[0] >= SMALL_BYTES:
        return ring(curve, size_bytes, ranks, 0.0)
    # Steps shorter than any that the curve shows: a round of doubling exchanges as many bytes.
    round_s = reach(curve, size_bytes / ranks) / _rounds(curve.ranks, curve.nodes)
    steps = ROUNDS["all_reduce"] * (ranks - 1)
    return steps * min(round_s, step(curve, shown, 0.0))
