"""Hierarchical all-reduce: reduce-scatter in the node, all-reduce between nodes, all-gather."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts

__all__ = ["AUTOMATIC", "BLOCKS", "LATENCY", "NEEDS", "all_reduce_hierarchical", "sent_bytes"]

LATENCY = "ring"

NEEDS = "a program that calls the two levels itself: NCCL has no such algorithm"

BLOCKS = True

AUTOMATIC = False
"""NCCL's tuner does not consider it, so it is used only when asked for."""


def all_reduce_hierarchical(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a two-level ring all-reduce.

    2 (g-1) alpha_intra + 2 (g-1)/g n beta_intra + 2 (N-1) alpha_inter + 2 (N-1)/N n beta_nic, and
    for the sums [(g-1)/g n + (N-1)/N n/g] gamma. The g shards of n/g cross at once and share the
    node's NICs, so together they move n through beta_nic.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> hops = Hops(8, 2, 4, 1e-6, 1e-5, 1e-9, 1e-9, 1e-10, 1e-9)
    >>> parts = all_reduce_hierarchical(1e6, hops)
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (26, 1150)

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4, for each of the two rings.
    """
    inside, nodes = hops.gpus_per_node, hops.nodes
    in_node = (inside - 1) / inside * size_bytes
    across = (nodes - 1) / nodes * size_bytes
    latency_s = 2.0 * ((inside - 1) * hops.alpha_intra_s + (nodes - 1) * hops.alpha_inter_s)
    wires_s = 2.0 * (in_node * hops.beta_intra_s_per_byte + across * hops.beta_nic_s_per_byte)
    return Parts(latency_s, wires_s + (in_node + across / inside) * hops.gamma_s_per_byte)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: 2 (g-1)/g n inside the node, 2 (N-1)/N n/g out of it [B]."""
    inside, nodes = hops.gpus_per_node, hops.nodes
    return 2.0 * size_bytes * ((inside - 1) / inside + (nodes - 1) / nodes / inside)
