"""Recursive halving reduce-scatter: each round exchanges half of what is left."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, floor_log2

__all__ = ["AUTOMATIC", "FLOWS", "LATENCY", "halving_s", "reduce_scatter_halving", "sent_bytes"]

LATENCY = "tree"

FLOWS = "halving"

AUTOMATIC = False
"""NCCL has no such algorithm, so it is used only when asked for."""


def halving_s(size_bytes: float, hops: Hops) -> tuple[float, float]:
    """Return latency and time on the wires of log2 P rounds of halving [s].

    Round k exchanges n / 2^k. The first log2 g rounds stay inside the node; in each later one the
    g GPUs of a node exchange at once through its NICs.

    Examples
    --------
    >>> halving_s(1e6, Hops(8, 2, 4, 1e-6, 1e-5, 1e-9, 1e-9, 1e-10, 1e-9))[1]  # 75 and 500 us
    0.000575
    """
    rounds = floor_log2(hops.ranks)
    inside = min(floor_log2(hops.gpus_per_node), rounds)
    near, far = 1.0 - 0.5**inside, 0.5**inside - 0.5**rounds
    latency_s = inside * hops.alpha_intra_s + (rounds - inside) * hops.alpha_inter_s
    beta = near * hops.beta_intra_s_per_byte
    beta += far * hops.gpus_per_node * hops.beta_nic_s_per_byte
    return latency_s, size_bytes * beta


def reduce_scatter_halving(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of a recursive halving reduce-scatter.

    log2 P alpha + (P-1)/P n (beta + gamma). P no power of two: with the next lower power, and the
    others fold theirs in, alpha + n (beta + gamma), and get their block, alpha + n/P beta.

    Parameters
    ----------
    size_bytes : n, the full size (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = reduce_scatter_halving(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 875)

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.2.
    """
    latency_s, wires_s = halving_s(size_bytes, hops)
    most = 1 << floor_log2(hops.ranks)
    transfer_s = wires_s + (most - 1) / most * size_bytes * hops.gamma_s_per_byte
    if most == hops.ranks:
        return Parts(latency_s, transfer_s)
    alpha_s, beta = hops.neighbour()
    extra_s = size_bytes * ((1.0 + 1.0 / hops.ranks) * beta + hops.gamma_s_per_byte)
    return Parts(latency_s + 2.0 * alpha_s, transfer_s + extra_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks [B]: (P-1)/P n, and its share of the folds."""
    ranks, most = hops.ranks, 1 << floor_log2(hops.ranks)
    folds = (ranks - most) * (1.0 + 1.0 / ranks)
    return ((most - 1) + folds) / ranks * size_bytes
