"""Recursive doubling all-gather: partners twice as far swap all they have."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, floor_log2, log2_steps

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "all_gather_doubling", "refusal", "sent_bytes"]

LATENCY = "tree"

FLOWS = "gathering"

AUTOMATIC = False
"""Open MPI takes it for small messages; NCCL has no such algorithm."""


def refusal(hops: Hops) -> str:
    """Return why these ranks cannot use it, or ""."""
    return "" if hops.ranks & (hops.ranks - 1) == 0 else "needs a power of two; take bruck"


def all_gather_doubling(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a recursive doubling all-gather.

    log2 P alpha + (P-1)/P n beta. The rounds inside a node move (g-1)/P n; in those across nodes
    each of the g GPUs sends what its node has, g (P-g)/P n in all through the NICs.

    Parameters
    ----------
    size_bytes : n, the full result (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_gather_doubling(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 875)

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1 (recursive doubling).
    """
    ranks, rounds = hops.ranks, log2_steps(hops.ranks)
    inside = rounds if hops.nodes == 1 else min(floor_log2(hops.gpus_per_node), rounds)
    near = min(2**inside, ranks)
    latency_s = inside * hops.alpha_intra_s + (rounds - inside) * hops.alpha_inter_s
    beta = (near - 1) / ranks * hops.beta_intra_s_per_byte
    beta += (ranks - near) / ranks * hops.gpus_per_node * hops.beta_nic_s_per_byte
    return Parts(latency_s, size_bytes * beta)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
