"""Binomial tree broadcast: every round doubles the ranks that hold the message."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, log2_steps

__all__ = ["FLOWS", "LATENCY", "broadcast_binomial", "sent_bytes"]

LATENCY = "tree"

FLOWS = "tree"


def broadcast_binomial(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a binomial tree broadcast.

    ceil(log2 P) (alpha + n beta): first over the nodes, then inside each, so ceil(log2 N) rounds
    at the cost of the NICs and ceil(log2 g) at that of the node's own links.

    Parameters
    ----------
    size_bytes : n, the message [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = broadcast_binomial(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 3000)

    References
    ----------
    Chan, Heimlich, Purkayastha & van de Geijn, Collective communication: theory, practice, and
    experience, Concurrency and Computation 2007, minimum-spanning-tree broadcast.
    """
    across, inside = log2_steps(hops.nodes), log2_steps(hops.gpus_per_node)
    latency_s = across * hops.alpha_inter_s + inside * hops.alpha_intra_s
    beta = across * hops.beta_nic_s_per_byte + inside * hops.beta_intra_s_per_byte
    return Parts(latency_s, size_bytes * beta)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks: (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
