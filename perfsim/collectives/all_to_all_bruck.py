"""Bruck's all-to-all: in each round half of all blocks moves, twice as far."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, larger, log2_steps

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "all_to_all_bruck", "sent_bytes"]

LATENCY = "tree"

FLOWS = "bruck_exchange"

AUTOMATIC = False
"""Open MPI takes it for small messages; NCCL has no such algorithm."""


def all_to_all_bruck(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of Bruck's all-to-all.

    ceil(log2 P) (alpha + n/2 beta). In round k each rank sends half of its blocks to the rank 2^k
    before it: of a node's g GPUs min(2^k, P - 2^k, g) send them out of it.

    Parameters
    ----------
    size_bytes : n, what each rank sends in all, P blocks of n/P (its own stays) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_to_all_bruck(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 1500)

    References
    ----------
    Bruck et al., Efficient algorithms for all-to-all communications in multiport message-passing
    systems, IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.4.
    """
    rounds = log2_steps(hops.ranks)
    message, transfer_s = size_bytes / 2.0, 0.0 * size_bytes
    for distance in (2**turn for turn in range(rounds)):
        near_s = message * hops.beta_intra_s_per_byte if hops.gpus_per_node > 1 else 0.0 * message
        if hops.nodes > 1:
            crossing = min(distance, hops.ranks - distance, hops.gpus_per_node)
            near_s = larger(near_s, crossing * message * hops.beta_nic_s_per_byte)
        transfer_s = transfer_s + near_s
    return Parts(
        rounds * (hops.alpha_inter_s if hops.nodes > 1 else hops.alpha_intra_s), transfer_s
    )


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: ceil(log2 P) n/2 [B]."""
    return log2_steps(hops.ranks) * size_bytes / 2.0
