"""Bruck's all-to-all: in each round half of all blocks moves, twice as far."""

from __future__ import annotations

from perfsim.collectives.all_gather_bruck import rounds
from perfsim.collectives.hops import Hops, Parts, log2_steps

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
    distances = [2**turn for turn in range(log2_steps(hops.ranks))]
    return rounds(size_bytes, [0.5] * len(distances), distances, hops)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: ceil(log2 P) n/2 [B]."""
    return log2_steps(hops.ranks) * size_bytes / 2.0
