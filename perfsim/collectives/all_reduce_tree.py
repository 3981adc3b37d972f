"""Double binary tree all-reduce, pipelined, as NCCL builds it."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, log2_steps

__all__ = ["FLOWS", "LATENCY", "all_reduce_tree", "sent_bytes"]

LATENCY = "tree"

FLOWS = "tree"


def all_reduce_tree(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a double binary tree all-reduce.

    2 [(g-1) alpha_intra + ceil(log2 N) alpha_inter] + 2 n beta_tree + n gamma: up and down a chain
    inside each node and a binary tree over the nodes; two trees carry half of n each. The time
    to fill the pipeline is part of the fitted alpha.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_reduce_tree(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (60, 2000)

    References
    ----------
    Sanders, Speck & Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
    Parallel Computing 2009; NCCL since 2.4, src/graph/tuning.cc for the count of hops.
    """
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    inside_s = (hops.gpus_per_node - 1) * hops.alpha_intra_s
    between_s = log2_steps(hops.nodes) * hops.alpha_inter_s
    transfer_s = size_bytes * (2.0 * hops.tree_beta_s_per_byte + hops.gamma_s_per_byte)
    return Parts(2.0 * (inside_s + between_s), transfer_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks: 2 (P-1)/P n [B], P-1 edges up and down."""
    return 2.0 * (hops.ranks - 1) / hops.ranks * size_bytes
