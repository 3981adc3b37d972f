"""Pipelined chain reduce: the sum walks from rank to rank in chunks."""

from __future__ import annotations

from perfsim.collectives.broadcast_chain import broadcast_chain
from perfsim.collectives.hops import Hops, Parts

__all__ = ["LATENCY", "reduce_chain", "sent_bytes"]

LATENCY = "ring"


def reduce_chain(size_bytes: float, hops: Hops, chunks: float | None = None) -> Parts:
    """Return the time of a pipelined chain reduce, as NCCL's ring runs it.

    (P-2+c) (alpha + n/c (beta + gamma)) for c chunks: the broadcast run backwards, each chunk
    received and added before it goes on.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops
    chunks : c; None takes the best, at least 1

    Examples
    --------
    >>> hops = Hops.flat(6, alpha_s=1e-5, beta_s_per_byte=1e-9, gamma_s_per_byte=1e-10)
    >>> round(reduce_chain(1e6, hops, chunks=10).seconds * 1e6)  # 14 (10 + 110)
    1680

    References
    ----------
    Chan, Heimlich, Purkayastha & van de Geijn, Collective communication: theory, practice, and
    experience, Concurrency and Computation 2007, pipelined reduce.
    """
    paced = hops._replace(beta_s_per_byte=hops.beta_s_per_byte + hops.gamma_s_per_byte)
    return broadcast_chain(size_bytes, paced, chunks)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks (the last sends nothing): (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
