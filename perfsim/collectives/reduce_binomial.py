"""Binomial tree reduce: every round halves the ranks that still hold a part of the sum."""

from __future__ import annotations

from perfsim.collectives.broadcast_binomial import broadcast_binomial
from perfsim.collectives.hops import Hops, Parts, log2_steps

__all__ = ["FLOWS", "LATENCY", "reduce_binomial", "sent_bytes"]

LATENCY = "tree"

FLOWS = "tree"


def reduce_binomial(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a binomial tree reduce.

    ceil(log2 P) (alpha + n beta + n gamma): the broadcast run backwards, with a sum each round.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = reduce_binomial(1e6, Hops.flat(8, 1e-5, 1e-9, gamma_s_per_byte=1e-10))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 3300)

    References
    ----------
    Chan, Heimlich, Purkayastha & van de Geijn, Collective communication: theory, practice, and
    experience, Concurrency and Computation 2007, minimum-spanning-tree reduce.
    """
    parts = broadcast_binomial(size_bytes, hops)
    rounds = log2_steps(hops.nodes) + log2_steps(hops.gpus_per_node)
    return Parts(parts.latency_s, parts.transfer_s + rounds * size_bytes * hops.gamma_s_per_byte)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks: (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
