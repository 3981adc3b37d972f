"""Pipelined chain broadcast: the message walks from rank to rank in chunks."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts

__all__ = ["LATENCY", "broadcast_chain", "sent_bytes"]

LATENCY = "ring"


def broadcast_chain(size_bytes: float, hops: Hops, chunks: float | None = None) -> Parts:
    """Return the time of a pipelined chain broadcast.

    (P-2+c) (alpha + n beta / c) for c chunks. On unequal hops the first chunk crosses N-1 hops
    between nodes and P-N inside them; each further one follows at the pace of the slowest hop.

    Parameters
    ----------
    size_bytes : n, the message [B]
    hops : ranks, nodes and the cost of their hops
    chunks : c; None takes the best, sqrt((P-2) n beta / alpha) as a real number, at least 1

    Examples
    --------
    >>> hops = Hops.flat(6, alpha_s=1e-5, beta_s_per_byte=1e-9)
    >>> round(broadcast_chain(1e6, hops, chunks=10).seconds * 1e6)
    1540
    >>> round(broadcast_chain(1e6, hops).seconds * 1e6)  # the best is c = 20
    1440

    References
    ----------
    Chan, Heimlich, Purkayastha & van de Geijn, Collective communication: theory, practice, and
    experience, Concurrency and Computation 2007, pipelined broadcast.
    """
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    inter_s = hops.alpha_inter_s if hops.nodes > 1 else 0.0
    intra_s = hops.alpha_intra_s if hops.ranks > hops.nodes else 0.0
    slowest_s = (inter_s + intra_s + abs(inter_s - intra_s)) / 2.0
    wire_s = size_bytes * hops.beta_s_per_byte
    behind_s = (hops.ranks - 2) * wire_s
    if chunks is not None:
        return Parts(hops.chain_s() + (chunks - 1) * slowest_s, wire_s + behind_s / chunks)
    # With m = min(alpha, (P-2) n beta), c >= 1 included, (c-1) alpha and (P-2) n beta / c come to:
    least_s = (slowest_s + behind_s - abs(slowest_s - behind_s)) / 2.0
    balance_s = (behind_s * least_s) ** 0.5
    return Parts(hops.chain_s() + balance_s - least_s, wire_s + balance_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks (the last sends nothing): (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
