"""All-gather: each rank starts with one block and ends with the blocks of all ranks."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.collectives import Hops, Line, Parts, algorithm
from perfsim.collectives.hops import (
    ceil_log2,
    exchanged,
    floor_log2,
    maximum,
    other_blocks_bytes,
)

__all__ = [
    "all_gather_bruck",
    "all_gather_doubling",
    "all_gather_neighbor",
    "all_gather_pat",
    "all_gather_ring",
    "bruck_rounds",
    "pat_refusal",
]


def ring_line(hops: Hops) -> Line:
    """Return the time of a ring all-gather over the size (see `all_gather_ring`)."""
    ranks, nodes = hops.ranks, hops.nodes
    return Line(nodes - 1, ranks - nodes, (ranks - 1) / ranks, hops.beta_s_per_byte)


@algorithm("all_gather", "ring", blocks=True, sent_bytes=other_blocks_bytes, line=ring_line)
def all_gather_ring(size_bytes: float, hops: Hops) -> Parts:
    """Price a ring all-gather.

    (P-1) alpha + (P-1)/P n beta; N-1 of the P-1 steps cross to another node.

    Parameters
    ----------
    size_bytes : n, the full result (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_gather_ring(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 750)

    References
    ----------
    Thakur, Rabenseifner & Gropp, Optimization of collective communication operations in MPICH,
    IJHPCA 2005, section 4.1.
    """
    return ring_line(hops).parts(size_bytes, hops)


def doubling_refusal(hops: Hops) -> str:
    """Return why partners cannot double their distance up to all ranks, or ""."""
    return "" if hops.ranks & (hops.ranks - 1) == 0 else "needs a power of two; take bruck"


@algorithm(
    "all_gather",
    "doubling",
    latency="tree",
    flows="gathering",
    automatic=False,  # Open MPI takes it for small messages; NCCL has no such algorithm
    refusal=doubling_refusal,
    sent_bytes=other_blocks_bytes,
)
def all_gather_doubling(size_bytes: float, hops: Hops) -> Parts:
    """Price a recursive doubling all-gather: partners twice as far swap all they have.

    log2 P alpha + (P-1)/P n beta, for P a power of two. The rounds inside a node move (g-1)/P n; in
    those across nodes each of the g GPUs sends what its node has, g (P-g)/P n in all through the
    NICs.

    Parameters
    ----------
    size_bytes : n, the full result (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_gather_doubling(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 875)

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1 (recursive doubling).
    """
    shares = [2**k / hops.ranks for k in range(floor_log2(hops.ranks))]
    return exchanged(size_bytes, shares, hops)


@algorithm(
    "all_gather",
    "bruck",
    latency="tree",
    flows="bruck",
    automatic=False,  # Open MPI takes it for small messages; NCCL has no such algorithm
    sent_bytes=other_blocks_bytes,
)
def all_gather_bruck(size_bytes: float, hops: Hops) -> Parts:
    """Price Bruck's all-gather, for any number of ranks.

    ceil(log2 P) alpha + (P-1)/P n beta. In round k each rank sends min(2^k, P - 2^k) blocks to the
    rank 2^k before it. Some rank waits for another node in every round, so that each round costs a
    hop between nodes.

    Parameters
    ----------
    size_bytes : n, the full result (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_gather_bruck(1e6, Hops.flat(5, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 800)

    References
    ----------
    Bruck et al., Efficient algorithms for all-to-all communications in multiport message-passing
    systems, IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1.
    """
    ranks = hops.ranks
    distances = [2**k for k in range(ceil_log2(ranks))]
    shares = [min(distance, ranks - distance) / ranks for distance in distances]
    return bruck_rounds(size_bytes, shares, distances, hops)


def bruck_rounds(
    size_bytes: float, shares: Sequence[float], distances: Sequence[int], hops: Hops
) -> Parts:
    """Price rounds in which each rank sends a share of n to the rank at a distance d before it.

    Of a node's g GPUs min(d, P - d, g) send out of the node, through its NICs.

    Examples
    --------
    >>> flat = Hops.flat(3, alpha_s=1e-5, beta_s_per_byte=0.125)
    >>> bruck_rounds(1000.0, [1.0, 0.5], [1, 2], flat)
    Parts(latency_s=2e-05, transfer_s=187.5)
    """
    transfer_s = 0.0 * size_bytes
    for share, distance in zip(shares, distances, strict=True):
        message = share * size_bytes
        inside_s = across_s = 0.0 * message
        if hops.gpus_per_node > 1:
            inside_s = message * hops.beta_intra_s_per_byte
        if hops.nodes > 1:
            senders = min(distance, hops.ranks - distance, hops.gpus_per_node)
            across_s = senders * message * hops.beta_nic_s_per_byte
        transfer_s = transfer_s + maximum(inside_s, across_s)
    return Parts(len(distances) * hops.longest_s(), transfer_s)


def neighbor_refusal(hops: Hops) -> str:
    """Return why these ranks do not pair up, or ""."""
    return "" if hops.ranks % 2 == 0 else "needs an even number of ranks; take ring"


@algorithm(
    "all_gather",
    "neighbor",
    blocks=True,
    automatic=False,  # Open MPI takes it for large messages; NCCL has no such algorithm
    refusal=neighbor_refusal,
    sent_bytes=other_blocks_bytes,
)
def all_gather_neighbor(size_bytes: float, hops: Hops) -> Parts:
    """Price a neighbour exchange: a rank swaps two blocks with its two neighbours in turn.

    P/2 alpha + (P-1)/P n beta: half a ring's steps, each with two blocks but the first. The first
    and last rank of a node have a neighbour in another node, and their exchanges are in turn with
    both: on several nodes of several GPUs every other step waits for a hop between nodes.

    Parameters
    ----------
    size_bytes : n, the full result (the blocks of all P ranks) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_gather_neighbor(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (40, 875)

    References
    ----------
    Chen, Zhang, Zhang & Yuan, Performance evaluation of allgather algorithms on terascale Linux
    cluster with fast Ethernet, HPC Asia 2005, section 3.
    """
    ranks, inside = hops.ranks, hops.gpus_per_node
    steps = ranks // 2
    across = 0 if hops.nodes == 1 else steps if inside == 1 else (steps + inside % 2) // 2
    latency_s = across * hops.alpha_inter_s + (steps - across) * hops.alpha_intra_s
    return Parts(latency_s, (ranks - 1) / ranks * size_bytes * hops.beta_s_per_byte)


def pat_refusal(hops: Hops) -> str:
    """Return why NCCL has no parallel aggregated trees on these nodes, or ""."""
    return "" if hops.gpus_per_node == 1 else "is NCCL's for one GPU a node; take ring"


@algorithm(
    "all_gather",
    "pat",
    latency="tree",
    flows="pat",
    automatic=False,  # NCCL has it from 2.23 on, with one GPU a node
    refusal=pat_refusal,
    sent_bytes=other_blocks_bytes,
)
def all_gather_pat(size_bytes: float, hops: Hops) -> Parts:
    """Price an all-gather over parallel aggregated trees, in logarithmic steps.

    ceil(log2 P) alpha + (P-1)/P n beta: a binomial tree from each rank, all at once; what goes the
    same way travels in one message. With little buffer NCCL cuts large messages into more steps,
    at a size where the wires decide.

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
    across_s = ceil_log2(hops.nodes) * hops.alpha_inter_s
    inside_s = ceil_log2(hops.gpus_per_node) * hops.alpha_intra_s
    share = (hops.ranks - 1) / hops.ranks * size_bytes
    return Parts(across_s + inside_s, share * hops.beta_s_per_byte)
