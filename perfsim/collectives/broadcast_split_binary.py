"""Split binary tree broadcast: each half goes down one subtree, then the halves are swapped."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, log2_steps

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "broadcast_split_binary", "sent_bytes"]

LATENCY = "tree"

FLOWS = "tree"

AUTOMATIC = False
"""Open MPI takes it for middle sizes; NCCL has no such algorithm."""


def broadcast_split_binary(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a split binary tree broadcast, with the best number of chunks.

    (h-1+c) (alpha + n/c beta) for c chunks of each half and h levels, 2^(h+1) > P: a rank hands
    each chunk of n/(2c) to two children; then alpha + n/2 beta to swap the halves. The best c is
    sqrt((h-1) n beta / alpha), at least 1. Of the levels ceil(log2 N) at most lead to other nodes.

    Parameters
    ----------
    size_bytes : n, the message [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = broadcast_split_binary(1e6, Hops.flat(7, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)  # h = 2, c = 10: 110 + 10
    (120, 1600)

    References
    ----------
    Pjesivac-Grbovic et al., Performance analysis of MPI collective operations, Cluster Computing
    2007, split-binary broadcast. The form with the best c is derived here.
    """
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    levels = max(1, log2_steps(hops.ranks + 1) - 1)
    across = min(levels, log2_steps(hops.nodes))
    filling_s = across * hops.alpha_inter_s + (levels - across) * hops.alpha_intra_s
    alpha_s = hops.alpha_inter_s if hops.nodes > 1 else hops.alpha_intra_s
    wire_s = size_bytes * hops.beta_s_per_byte
    behind_s = (levels - 1) * wire_s
    # As in the chain: with m = min(alpha, behind), (c-1) alpha and behind / c at the best c >= 1.
    least_s = (alpha_s + behind_s - abs(alpha_s - behind_s)) / 2.0
    balance_s = (behind_s * least_s) ** 0.5
    return Parts(filling_s + balance_s - least_s + alpha_s, 1.5 * wire_s + balance_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks: P-1 edges of n/2 and a swap of n/2 [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
