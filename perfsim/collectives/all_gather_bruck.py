"""Bruck's all-gather: each round every rank sends all it has, twice as far."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.collectives.hops import Hops, Parts, larger, log2_steps

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "all_gather_bruck", "rounds", "sent_bytes"]

LATENCY = "tree"

FLOWS = "bruck"

AUTOMATIC = False
"""Open MPI takes it for small messages; NCCL has no such algorithm."""


def all_gather_bruck(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of Bruck's all-gather, for any number of ranks.

    ceil(log2 P) alpha + (P-1)/P n beta. In round k each rank sends min(2^k, P - 2^k) blocks to the
    rank 2^k before it: of a node's g GPUs min(2^k, P - 2^k, g) send them out of it. Some rank
    waits for another node in every round, so that each costs a hop between nodes.

    Parameters
    ----------
    size_bytes : n, the full result (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_gather_bruck(1e6, Hops.flat(5, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 800)

    References
    ----------
    Bruck et al., Efficient algorithms for all-to-all communications in multiport message-passing
    systems, IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1.
    """
    ranks = hops.ranks
    distances = [2**turn for turn in range(log2_steps(ranks))]
    shares = [min(distance, ranks - distance) / ranks for distance in distances]
    return rounds(size_bytes, shares, distances, hops)


def rounds(
    size_bytes: float, shares: Sequence[float], distances: Sequence[int], hops: Hops
) -> Parts:
    """Return the time of rounds in which each rank sends a share of n so many ranks before it.

    Of a node's g GPUs min(d, P - d, g) send it out of the node, through its NICs.

    Examples
    --------
    >>> rounds(1000.0, [1.0, 0.5], [1, 2], Hops.flat(3, alpha_s=1e-5, beta_s_per_byte=0.125))
    Parts(latency_s=2e-05, transfer_s=187.5)
    """
    transfer_s = 0.0 * size_bytes
    for share, distance in zip(shares, distances, strict=True):
        message = share * size_bytes
        near_s = message * hops.beta_intra_s_per_byte if hops.gpus_per_node > 1 else 0.0 * message
        if hops.nodes > 1:
            crossing = min(distance, hops.ranks - distance, hops.gpus_per_node)
            near_s = larger(near_s, crossing * message * hops.beta_nic_s_per_byte)
        transfer_s = transfer_s + near_s
    alpha_s = hops.alpha_inter_s if hops.nodes > 1 else hops.alpha_intra_s
    return Parts(len(distances) * alpha_s, transfer_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
