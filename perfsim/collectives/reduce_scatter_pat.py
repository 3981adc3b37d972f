"""PAT reduce-scatter: the all-gather over parallel aggregated trees run backwards."""

from __future__ import annotations

from perfsim.collectives.all_gather_pat import all_gather_pat, refusal, sent_bytes
from perfsim.collectives.hops import Hops, Parts

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "reduce_scatter_pat", "refusal", "sent_bytes"]

LATENCY = "tree"

FLOWS = "pat"

AUTOMATIC = False
"""NCCL has it from 2.23 on, with one GPU a node: used only when asked for."""


def reduce_scatter_pat(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a reduce-scatter over parallel aggregated trees.

    ceil(log2 P) alpha + (P-1)/P n (beta + gamma).

    Parameters
    ----------
    size_bytes : n, the full size (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = reduce_scatter_pat(1e6, Hops.flat(16, 1e-5, 1e-9, gamma_s_per_byte=1e-10))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (40, 1031)

    References
    ----------
    Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale, arXiv
    2506.20252; NCCL since 2.23.
    """
    parts = all_gather_pat(size_bytes, hops)
    sums = (hops.ranks - 1) / hops.ranks * size_bytes
    return Parts(parts.latency_s, parts.transfer_s + sums * hops.gamma_s_per_byte)
