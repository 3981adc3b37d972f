"""Ring all-reduce: a reduce-scatter round the ring, then an all-gather round it."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts

__all__ = ["BLOCKS", "LATENCY", "all_reduce_ring", "sent_bytes"]

LATENCY = "ring"

BLOCKS = True


def all_reduce_ring(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a ring all-reduce.

    2 (P-1) alpha + 2 (P-1)/P n beta + (P-1)/P n gamma, beta that of the busiest link. On unequal
    hops 2 (N-1) of the 2 (P-1) steps cross to another node and 2 (P-N) stay inside one.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    The ring has N inter-node hops, and a block that makes P - 1 hops crosses N - 1 or N of them.
    We take N - 1: with one GPU a node it is P - 1, so that the formula for equal hops comes out,
    where N would count more crossings than there are steps. NCCL's tuner counts 2 N up to 2.22
    and 2 (N - 1) from 2.23 (src/graph/tuning.cc).

    Examples
    --------
    >>> parts = all_reduce_ring(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (60, 1500)

    References
    ----------
    Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC
    2009, section 3; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.
    """
    share = (hops.ranks - 1) / hops.ranks * size_bytes
    transfer_s = share * (2.0 * hops.beta_s_per_byte + hops.gamma_s_per_byte)
    return Parts(2.0 * hops.chain_s(), transfer_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: 2 (P-1)/P n [B]."""
    return 2.0 * (hops.ranks - 1) / hops.ranks * size_bytes
