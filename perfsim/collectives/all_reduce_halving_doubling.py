"""Rabenseifner's all-reduce: recursive halving, then recursive doubling."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, floor_log2
from perfsim.collectives.reduce_scatter_halving import halving_s

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "NEEDS", "all_reduce_halving_doubling", "sent_bytes"]

LATENCY = "tree"

NEEDS = "a library that has it: NCCL has not"

FLOWS = "halving"

AUTOMATIC = False
"""NCCL has no such algorithm, so it is used only when asked for."""


def all_reduce_halving_doubling(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a reduce-scatter by halving and an all-gather by doubling.

    2 log2 P alpha + 2 (P-1)/P n beta + (P-1)/P n gamma. P no power of two: with the next lower
    power, and one fold and unfold more, 2 alpha + 2 n beta + n gamma. Neighbours exchange first
    and most, so that the rounds inside a node come first and its GPUs' shards share its NICs.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_reduce_halving_doubling(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (60, 1750)
    >>> parts = all_reduce_halving_doubling(1e6, Hops.flat(6, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)  # 4 ranks, fold and unfold
    (60, 3500)

    References
    ----------
    Rabenseifner, Optimization of collective reduction operations, ICCS 2004, section 4; Thakur,
    Rabenseifner & Gropp, IJHPCA 2005, section 4.
    """
    rounds_s, wires_s = halving_s(size_bytes, hops)
    most = 1 << floor_log2(hops.ranks)
    sums = (most - 1) / most
    parts = Parts(2.0 * rounds_s, 2.0 * wires_s + sums * size_bytes * hops.gamma_s_per_byte)
    if most == hops.ranks:
        return parts
    alpha_s, beta = hops.neighbour()
    fold_s = size_bytes * (2.0 * beta + hops.gamma_s_per_byte)
    return Parts(parts.latency_s + 2.0 * alpha_s, parts.transfer_s + fold_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks [B]: 2 (P-1)/P n.

    2 (m-1) n by the m ranks of the largest power of two, and 2 n by each rank that folds.
    """
    return 2.0 * (hops.ranks - 1) * size_bytes / hops.ranks
