"""Reduce-scatter: each rank ends with one block of the sum over all ranks."""

from __future__ import annotations

from perfsim.collectives import Hops, Line, Parts, algorithm
from perfsim.collectives.all_gather import all_gather_pat, pat_refusal
from perfsim.collectives.hops import exchanged, floor_log2, folded, other_blocks_bytes
from perfsim.sums import sum_in_order

__all__ = [
    "reduce_scatter_halving",
    "reduce_scatter_pat",
    "reduce_scatter_ring",
]


def ring_line(hops: Hops) -> Line:
    """Return the time of a ring reduce-scatter over the size (see `reduce_scatter_ring`)."""
    ranks, nodes = hops.ranks, hops.nodes
    s_per_byte = hops.beta_s_per_byte + hops.gamma_s_per_byte
    return Line(nodes - 1, ranks - nodes, (ranks - 1) / ranks, s_per_byte)


@algorithm("reduce_scatter", "ring", blocks=True, sent_bytes=other_blocks_bytes, line=ring_line)
def reduce_scatter_ring(size_bytes: float, hops: Hops) -> Parts:
    """Price a ring reduce-scatter.

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
    return ring_line(hops).parts(size_bytes, hops)


def halving_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks [B]: (P-1)/P n, and its share of the folds."""
    ranks, power = hops.ranks, 1 << floor_log2(hops.ranks)
    folds = (ranks - power) * (1.0 + 1.0 / ranks)
    return ((power - 1) + folds) / ranks * size_bytes


@algorithm(
    "reduce_scatter",
    "halving",
    latency="tree",
    flows="gathering",  # run backwards
    automatic=False,  # NCCL has no such algorithm
    sent_bytes=halving_sent_bytes,
)
def reduce_scatter_halving(size_bytes: float, hops: Hops) -> Parts:
    """Price a recursive halving reduce-scatter: each round exchanges half of what is left.

    log2 P alpha + (P-1)/P n (beta + gamma): the all-gather by doubling run backwards, so that the
    farthest ranks exchange first and most. Where P is no power of two, the next lower power of
    ranks does so, and a rank that another folds into has two blocks to come to; the others fold
    theirs in, alpha + n (beta + gamma), and get their block, alpha + n/P beta. gloo's, which
    PyTorch does not call, exchanges with the nearest first.

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
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.2; open-mpi/ompi
    ompi/mca/coll/base/coll_base_reduce_scatter.c, recursivehalving.
    """
    ranks, rounds = hops.ranks, floor_log2(hops.ranks)
    surplus = ranks - 2**rounds
    shares = [(2**k + min(2**k, surplus)) / ranks for k in range(rounds)]
    latency_s, wires_s = exchanged(size_bytes, shares, hops)
    transfer_s = wires_s + sum_in_order(shares) * size_bytes * hops.gamma_s_per_byte
    if not surplus:
        return Parts(latency_s, transfer_s)
    alpha_s, beta = folded(hops)
    folds_s = size_bytes * ((1.0 + 1.0 / ranks) * beta + hops.gamma_s_per_byte)
    return Parts(latency_s + 2.0 * alpha_s, transfer_s + folds_s)


@algorithm(
    "reduce_scatter",
    "pat",
    latency="tree",
    flows="pat",
    automatic=False,  # NCCL has it from 2.23 on, with one GPU a node
    refusal=pat_refusal,
    sent_bytes=other_blocks_bytes,
)
def reduce_scatter_pat(size_bytes: float, hops: Hops) -> Parts:
    """Price a reduce-scatter over parallel aggregated trees: the all-gather run backwards.

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
