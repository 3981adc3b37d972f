"""Neighbour exchange all-gather: a rank swaps two blocks with its two neighbours in turn."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts

__all__ = ["AUTOMATIC", "BLOCKS", "LATENCY", "all_gather_neighbor", "refusal", "sent_bytes"]

LATENCY = "ring"

BLOCKS = True

AUTOMATIC = False
"""Open MPI takes it for large messages; NCCL has no such algorithm."""


def refusal(hops: Hops) -> str:
    """Return why these ranks cannot use it, or ""."""
    return "" if hops.ranks % 2 == 0 else "needs an even number of ranks; take ring"


def all_gather_neighbor(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a neighbour exchange all-gather.

    P/2 alpha + (P-1)/P n beta: half a ring's steps, in the same mix of hops inside and between
    nodes, each with two blocks but the first.

    Parameters
    ----------
    size_bytes : n, the full result (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_gather_neighbor(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (40, 875)

    References
    ----------
    Chen, Zhang, Zhang & Yuan, Performance evaluation of allgather algorithms on terascale Linux
    cluster with fast Ethernet, HPC Asia 2005, section 3.
    """
    ranks = hops.ranks
    if ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    latency_s = hops.chain_s() * (ranks / 2.0) / (ranks - 1)
    return Parts(latency_s, (ranks - 1) / ranks * size_bytes * hops.beta_s_per_byte)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
