"""PAT all-gather: parallel aggregated trees, in logarithmic steps."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, log2_steps

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "all_gather_pat", "refusal", "sent_bytes"]

LATENCY = "tree"

FLOWS = "pat"

AUTOMATIC = False
"""NCCL has it from 2.23 on, with one GPU a node: used only when asked for."""


def refusal(hops: Hops) -> str:
    """Return why these ranks cannot use it, or ""."""
    return "" if hops.gpus_per_node == 1 else "is NCCL's for one GPU a node; take ring"


def all_gather_pat(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of an all-gather over parallel aggregated trees.

    ceil(log2 P) alpha + (P-1)/P n beta: a binomial tree from each rank, all at once, what goes the
    same way in one message. With little buffer NCCL cuts large messages into more steps, at a size
    at which the wires decide.

    Parameters
    ----------
    size_bytes : n, the full result (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_gather_pat(1e6, Hops.flat(16, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (40, 938)

    References
    ----------
    Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale, arXiv
    2506.20252; NCCL since 2.23.
    """
    across_s = log2_steps(hops.nodes) * hops.alpha_inter_s
    inside_s = log2_steps(hops.gpus_per_node) * hops.alpha_intra_s
    share = (hops.ranks - 1) / hops.ranks * size_bytes
    return Parts(across_s + inside_s, share * hops.beta_s_per_byte)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
