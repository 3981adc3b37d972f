"""Ring reduce-scatter: each rank ends with one block of the sum."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts

__all__ = ["BLOCKS", "LATENCY", "reduce_scatter_ring", "sent_bytes"]

LATENCY = "ring"

BLOCKS = True


def reduce_scatter_ring(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a ring reduce-scatter.

    (P-1) alpha + (P-1)/P n (beta + gamma); N-1 of the P-1 steps cross to another node.

    Parameters
    ----------
    size_bytes : n, the full buffer of one rank before the sum (P blocks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = reduce_scatter_ring(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 750)

    References
    ----------
    Thakur, Rabenseifner & Gropp, Optimization of collective communication operations in MPICH,
    IJHPCA 2005, section 4.3.
    """
    share = (hops.ranks - 1) / hops.ranks * size_bytes
    return Parts(hops.chain_s(), share * (hops.beta_s_per_byte + hops.gamma_s_per_byte))


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
