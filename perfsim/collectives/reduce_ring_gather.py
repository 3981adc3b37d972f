"""Ring reduce: a reduce-scatter round the ring, then the blocks are gathered at the root."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts
from perfsim.collectives.reduce_scatter_ring import reduce_scatter_ring

__all__ = ["AUTOMATIC", "BLOCKS", "LATENCY", "reduce_ring_gather", "sent_bytes"]

LATENCY = "ring"

BLOCKS = True

AUTOMATIC = False
"""gloo's reduce; NCCL has no such algorithm."""


def reduce_ring_gather(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a reduce-scatter and a gather.

    P alpha + (P-1)/P n (2 beta + gamma): P-1 steps of the ring, then all send their block to the
    root at once, which one hop of latency covers.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = reduce_ring_gather(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (40, 1500)

    References
    ----------
    gloo, gloo/reduce.cc at commit cc441984208d; Thakur, Rabenseifner & Gropp, IJHPCA 2005,
    section 4, for its two halves.
    """
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    parts = reduce_scatter_ring(size_bytes, hops)
    last_s = hops.alpha_inter_s if hops.nodes > 1 else hops.alpha_intra_s
    gather_s = (hops.ranks - 1) / hops.ranks * size_bytes * hops.beta_s_per_byte
    return Parts(parts.latency_s + last_s, parts.transfer_s + gather_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks [B]: (P-1)/P n, and its block of n/P to the root."""
    ranks = hops.ranks
    return (ranks - 1) / ranks * (1.0 + 1.0 / ranks) * size_bytes
