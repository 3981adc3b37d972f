"""Collectives with a root: broadcast (one rank to all) and reduce (all ranks to one)."""

from __future__ import annotations

from perfsim.collectives import Hops, Parts, algorithm
from perfsim.collectives.hops import ceil_log2, maximum, minimum, other_blocks_bytes, pipelined
from perfsim.collectives.reduce_scatter import reduce_scatter_ring

__all__ = [
    "broadcast_binomial",
    "broadcast_chain",
    "broadcast_split_binary",
    "reduce_binomial",
    "reduce_chain",
    "reduce_ring_gather",
]


@algorithm("broadcast", "binomial", latency="tree", flows="tree", sent_bytes=other_blocks_bytes)
def broadcast_binomial(size_bytes: float, hops: Hops) -> Parts:
    """Price a binomial tree broadcast: every round doubles the ranks that hold the message.

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
    across, inside = ceil_log2(hops.nodes), ceil_log2(hops.gpus_per_node)
    latency_s = across * hops.alpha_inter_s + inside * hops.alpha_intra_s
    beta = across * hops.beta_nic_s_per_byte + inside * hops.beta_intra_s_per_byte
    return Parts(latency_s, size_bytes * beta)


@algorithm("broadcast", "chain", sent_bytes=other_blocks_bytes)
def broadcast_chain(size_bytes: float, hops: Hops, chunks: float | None = None) -> Parts:
    """Price a pipelined chain broadcast: the message walks from rank to rank in chunks.

    (P-2+c) (alpha + n beta / c) for c chunks. On unequal hops the first chunk crosses N-1 hops
    between nodes and P-N inside them, each at its own latency and rate; each further one follows at
    the pace of the slowest hop.

    Parameters
    ----------
    size_bytes : n, the message [B]
    hops : ranks, nodes and the cost of their hops
    chunks : c; None takes the best, sqrt((P-2) n beta / alpha) as a real number (of equal hops), at
        least 1

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
    inter_s = hops.alpha_inter_s if hops.nodes > 1 else 0.0
    intra_s = hops.alpha_intra_s if hops.ranks > hops.nodes else 0.0
    slowest_s = maximum(inter_s, intra_s)
    message_s = size_bytes * hops.beta_s_per_byte
    if hops.nodes == 1:
        remaining_s = (hops.ranks - 2) * message_s
    else:
        inside_s = size_bytes * minimum(hops.beta_intra_s_per_byte, hops.beta_s_per_byte)
        remaining_s = (hops.nodes - 2) * message_s + (hops.ranks - hops.nodes) * inside_s
    if chunks is None:
        follow_s, spread_s = pipelined(slowest_s, remaining_s)
    else:
        follow_s, spread_s = (chunks - 1) * slowest_s, remaining_s / chunks
    return Parts(hops.chain_s() + follow_s, message_s + spread_s)


@algorithm(
    "broadcast",
    "split_binary",
    latency="tree",
    flows="tree",
    automatic=False,  # Open MPI takes it for middle sizes; NCCL has no such algorithm
    sent_bytes=other_blocks_bytes,  # P-1 edges of n/2, and a swap of n/2
)
def broadcast_split_binary(size_bytes: float, hops: Hops) -> Parts:
    """Price a split binary tree broadcast, with the best number of chunks.

    Each half of the message goes down one subtree, then the halves are swapped:
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
    levels = max(1, ceil_log2(hops.ranks + 1) - 1)
    across = min(levels, ceil_log2(hops.nodes))
    fill_s = across * hops.alpha_inter_s + (levels - across) * hops.alpha_intra_s
    alpha_s = hops.longest_s()
    message_s = size_bytes * hops.beta_s_per_byte
    follow_s, spread_s = pipelined(alpha_s, (levels - 1) * message_s)
    return Parts(fill_s + follow_s + alpha_s, 1.5 * message_s + spread_s)


@algorithm("reduce", "binomial", latency="tree", flows="tree", sent_bytes=other_blocks_bytes)
def reduce_binomial(size_bytes: float, hops: Hops) -> Parts:
    """Price a binomial tree reduce: every round halves the ranks that hold a part of the sum.

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
    rounds = ceil_log2(hops.nodes) + ceil_log2(hops.gpus_per_node)
    return Parts(parts.latency_s, parts.transfer_s + rounds * size_bytes * hops.gamma_s_per_byte)


@algorithm("reduce", "chain", sent_bytes=other_blocks_bytes)
def reduce_chain(size_bytes: float, hops: Hops, chunks: float | None = None) -> Parts:
    """Price a pipelined chain reduce, as NCCL's ring runs it: the sum walks from rank to rank.

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
    adding = hops._replace(
        beta_s_per_byte=hops.beta_s_per_byte + hops.gamma_s_per_byte,
        beta_intra_s_per_byte=hops.beta_intra_s_per_byte + hops.gamma_s_per_byte,
    )
    return broadcast_chain(size_bytes, adding, chunks)


def ring_gather_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks [B]: (P-1)/P n, and its block of n/P to the root."""
    ranks = hops.ranks
    return (ranks - 1) / ranks * (1.0 + 1.0 / ranks) * size_bytes


@algorithm(
    "reduce",
    "ring_gather",
    blocks=True,
    automatic=False,  # gloo's reduce; NCCL has no such algorithm
    sent_bytes=ring_gather_sent_bytes,
)
def reduce_ring_gather(size_bytes: float, hops: Hops) -> Parts:
    """Price a ring reduce: a reduce-scatter round the ring, then the root gathers the blocks.

    P alpha + (P-1)/P n (2 beta + gamma): P-1 steps of the ring, then all send their block to the
    root at once, which one hop of latency covers.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = reduce_ring_gather(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (40, 1500)

    References
    ----------
    gloo, gloo/reduce.cc at commit cc441984208d; Thakur, Rabenseifner & Gropp, IJHPCA 2005,
    section 4, for its two halves.
    """
    parts = reduce_scatter_ring(size_bytes, hops)
    gather_s = (hops.ranks - 1) / hops.ranks * size_bytes * hops.beta_s_per_byte
    return Parts(parts.latency_s + hops.longest_s(), parts.transfer_s + gather_s)
