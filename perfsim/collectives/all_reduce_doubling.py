"""Recursive doubling all-reduce: every round exchanges the whole message."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, floor_log2

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "NEEDS", "all_reduce_doubling", "sent_bytes"]

LATENCY = "tree"

NEEDS = "a library that has it: NCCL has not"

FLOWS = "doubling"

AUTOMATIC = False
"""Open MPI takes it for small messages; NCCL has no such algorithm."""


def all_reduce_doubling(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a recursive doubling all-reduce.

    log2 P (alpha + n beta + n gamma). P no power of two: with the next lower power, and one fold
    and unfold more, 2 alpha + 2 n beta + n gamma. Across nodes the g GPUs of each send n at once
    through its NICs.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_reduce_doubling(1e3, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 3)

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5 (recursive doubling).
    """
    rounds = floor_log2(hops.ranks)
    inside = min(floor_log2(hops.gpus_per_node), rounds)
    across = rounds - inside
    latency_s = inside * hops.alpha_intra_s + across * hops.alpha_inter_s
    beta = inside * hops.beta_intra_s_per_byte
    beta += across * hops.gpus_per_node * hops.beta_nic_s_per_byte
    sums = rounds
    if 2**rounds != hops.ranks:
        alpha_s, wire = hops.neighbour()
        latency_s, beta, sums = latency_s + 2.0 * alpha_s, beta + 2.0 * wire, rounds + 1
    return Parts(latency_s, size_bytes * (beta + sums * hops.gamma_s_per_byte))


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks [B]: log2 P n, and its share of the folds."""
    rounds = floor_log2(hops.ranks)
    most = 1 << rounds
    return (rounds * most + 2.0 * (hops.ranks - most)) / hops.ranks * size_bytes
