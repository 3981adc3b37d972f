"""All-reduce: every rank ends with the sum over all ranks.

Here are the algorithms that GPUs run themselves; in `perfsim.collectives.in_switch` switches add.
"""

from __future__ import annotations

from perfsim.collectives import Hops, Line, Parts, algorithm
from perfsim.collectives.hops import (
    ceil_log2,
    exchanged,
    floor_log2,
    folded,
    other_blocks_bytes,
)
from perfsim.sums import sum_in_order

__all__ = [
    "all_reduce_doubling",
    "all_reduce_halving_doubling",
    "all_reduce_hierarchical",
    "all_reduce_ring",
    "all_reduce_torus2d",
    "all_reduce_tree",
    "torus_grid",
]

NOT_IN_NCCL = "a library that has it: NCCL has not"


def twice_other_blocks_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, as a mean over ranks: 2 (P-1)/P n [B].

    Each block travels P - 1 hops to be added and P - 1 to be handed out, around a ring as up and
    down the edges of a tree, or by halving and doubling: there the m ranks of the largest power of
    two send 2 (m-1) n in all, and each rank that folds 2 n.
    """
    return 2.0 * other_blocks_bytes(size_bytes, hops)


def ring_line(hops: Hops) -> Line:
    """Return the time of a ring all-reduce over the size (see `all_reduce_ring`)."""
    ranks, nodes = hops.ranks, hops.nodes
    s_per_byte = 2.0 * hops.beta_s_per_byte + hops.gamma_s_per_byte
    return Line(2 * (nodes - 1), 2 * (ranks - nodes), (ranks - 1) / ranks, s_per_byte)


@algorithm("all_reduce", "ring", blocks=True, sent_bytes=twice_other_blocks_bytes, line=ring_line)
def all_reduce_ring(size_bytes: float, hops: Hops) -> Parts:
    """Price a ring all-reduce: a reduce-scatter round the ring, then an all-gather round it.

    2 (P-1) alpha + 2 (P-1)/P n beta + (P-1)/P n gamma, beta that of the busiest link. On unequal
    hops 2 (N-1) of the 2 (P-1) steps cross to another node and 2 (P-N) stay inside one.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    The ring has N hops between nodes, and a block that makes P - 1 hops crosses N - 1 or N of
    them. We take N - 1: with one GPU a node it is P - 1, which gives the formula for equal hops,
    while N would count more crossings than there are steps. NCCL's tuner counts 2 N up to 2.22
    and 2 (N - 1) from 2.23 (src/graph/tuning.cc).

    Examples
    --------
    >>> parts = all_reduce_ring(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (60, 1500)

    References
    ----------
    Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC
    2009, section 3; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.
    """
    return ring_line(hops).parts(size_bytes, hops)


def tree_line(hops: Hops) -> Line:
    """Return the time of a tree all-reduce over the size (see `all_reduce_tree`)."""
    s_per_byte = 2.0 * hops.tree_beta_s_per_byte + hops.gamma_s_per_byte
    return Line(2 * ceil_log2(hops.nodes), 2 * (hops.gpus_per_node - 1), 1.0, s_per_byte)


@algorithm(
    "all_reduce",
    "tree",
    latency="tree",
    flows="tree",
    sent_bytes=twice_other_blocks_bytes,
    line=tree_line,
)
def all_reduce_tree(size_bytes: float, hops: Hops) -> Parts:
    """Price a double binary tree all-reduce, pipelined, as NCCL builds it.

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
    return tree_line(hops).parts(size_bytes, hops)


@algorithm(
    "all_reduce",
    "halving_doubling",
    latency="tree",
    flows="halving",
    automatic=False,
    needs=NOT_IN_NCCL,
    sent_bytes=twice_other_blocks_bytes,
)
def all_reduce_halving_doubling(size_bytes: float, hops: Hops) -> Parts:
    """Price Rabenseifner's all-reduce: a reduce-scatter by halving, an all-gather by doubling.

    2 log2 P alpha + 2 (P-1)/P n beta + (P-1)/P n gamma. Where P is no power of two, the next lower
    power of ranks does so, and one fold and unfold add 2 alpha + 2 n beta + n gamma. Neighbours
    exchange first and most: the rounds inside a node come first, and then the shards of its GPUs
    share its NICs.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_reduce_halving_doubling(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (60, 1750)
    >>> parts = all_reduce_halving_doubling(1e6, Hops.flat(6, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)  # 4 ranks, fold and unfold
    (60, 3500)

    References
    ----------
    Rabenseifner, Optimization of collective reduction operations, ICCS 2004, section 4; Thakur,
    Rabenseifner & Gropp, IJHPCA 2005, section 4.
    """
    shares = [0.5 ** (k + 1) for k in range(floor_log2(hops.ranks))]
    rounds_s, wires_s = exchanged(size_bytes, shares, hops)
    power, sums = 2 ** len(shares), sum_in_order(shares)
    parts = Parts(2.0 * rounds_s, 2.0 * wires_s + sums * size_bytes * hops.gamma_s_per_byte)
    if power == hops.ranks:
        return parts
    alpha_s, beta = folded(hops)
    fold_s = size_bytes * (2.0 * beta + hops.gamma_s_per_byte)
    return Parts(parts.latency_s + 2.0 * alpha_s, parts.transfer_s + fold_s)


def doubling_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks [B]: log2 P n, and its share of the folds."""
    rounds = floor_log2(hops.ranks)
    power = 1 << rounds
    return (rounds * power + 2.0 * (hops.ranks - power)) / hops.ranks * size_bytes


@algorithm(
    "all_reduce",
    "doubling",
    latency="tree",
    flows="doubling",
    automatic=False,  # Open MPI takes it for small messages
    needs=NOT_IN_NCCL,
    sent_bytes=doubling_sent_bytes,
)
def all_reduce_doubling(size_bytes: float, hops: Hops) -> Parts:
    """Price a recursive doubling all-reduce: every round exchanges the whole message.

    log2 P (alpha + n beta + n gamma). Where P is no power of two, the next lower power of ranks
    does so, and one fold and unfold add 2 alpha + 2 n beta + n gamma. Across nodes the g GPUs of
    each send n at once through its NICs.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_reduce_doubling(1e3, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 3)

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5 (recursive doubling).
    """
    rounds = floor_log2(hops.ranks)
    latency_s, wires_s = exchanged(size_bytes, [1.0] * rounds, hops)
    transfer_s = wires_s + rounds * size_bytes * hops.gamma_s_per_byte
    if 2**rounds == hops.ranks:
        return Parts(latency_s, transfer_s)
    alpha_s, beta = folded(hops)
    folds_s = size_bytes * (2.0 * beta + hops.gamma_s_per_byte)
    return Parts(latency_s + 2.0 * alpha_s, transfer_s + folds_s)


def hierarchical_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: 2 (g-1)/g n inside the node, 2 (N-1)/N n/g out of it [B]."""
    inside, nodes = hops.gpus_per_node, hops.nodes
    return 2.0 * size_bytes * ((inside - 1) / inside + (nodes - 1) / nodes / inside)


def uneven_refusal(hops: Hops) -> str:
    """Return why the ranks of these nodes do not pair up across nodes, or ""."""
    if hops.ranks == hops.nodes * hops.gpus_per_node:
        return ""
    return "needs as many GPUs on every node; take ring"


@algorithm(
    "all_reduce",
    "hierarchical",
    blocks=True,
    automatic=False,  # NCCL's tuner does not consider it
    needs="a program that calls the two levels itself: NCCL has no such algorithm",
    refusal=uneven_refusal,
    sent_bytes=hierarchical_sent_bytes,
)
def all_reduce_hierarchical(size_bytes: float, hops: Hops) -> Parts:
    """Price a two-level ring all-reduce.

    Reduce-scatter inside each node, all-reduce between nodes, all-gather inside each node:
    2 (g-1) alpha_intra + 2 (g-1)/g n beta_intra + 2 (N-1) alpha_inter + 2 (N-1)/N n beta_nic, and
    for the sums [(g-1)/g n + (N-1)/N n/g] gamma. The g shards of n/g cross at once and share the
    node's NICs, so together they move n through beta_nic.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> hops = Hops(8, 2, 4, 1e-6, 1e-5, 1e-9, 1e-9, 1e-10, 1e-9)
    >>> parts = all_reduce_hierarchical(1e6, hops)
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (26, 1150)

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4, for each of the two rings.
    """
    inside, nodes = hops.gpus_per_node, hops.nodes
    in_node = (inside - 1) / inside * size_bytes
    across = (nodes - 1) / nodes * size_bytes
    latency_s = 2.0 * ((inside - 1) * hops.alpha_intra_s + (nodes - 1) * hops.alpha_inter_s)
    wires_s = 2.0 * (in_node * hops.beta_intra_s_per_byte + across * hops.beta_nic_s_per_byte)
    return Parts(latency_s, wires_s + (in_node + across / inside) * hops.gamma_s_per_byte)


def torus_grid(nodes: int, gpus_per_node: int) -> tuple[int, int]:
    """Return the ranks in a row and in a column of the most square grid with rows of whole nodes.

    Of two grids that are as square it takes the one with shorter rows, which sends less between
    nodes.

    Examples
    --------
    >>> torus_grid(16, 1), torus_grid(8, 4), torus_grid(32, 4), torus_grid(7, 1)
    ((4, 4), (4, 8), (8, 16), (1, 7))
    """
    sides = [
        (gpus_per_node * whole, nodes // whole)
        for whole in range(1, nodes + 1)
        if nodes % whole == 0
    ]
    return min(sides, key=lambda side: (max(side) / min(side), side[0]))


def torus2d_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: 2 (X-1)/X n along its row, 2 (Y-1)/Y n/X down its column [B]."""
    row, column = torus_grid(hops.nodes, hops.gpus_per_node)
    return 2.0 * size_bytes * ((row - 1) / row + (column - 1) / column / row)


@algorithm(
    "all_reduce",
    "torus2d",
    blocks=True,
    automatic=False,  # NCCL's tuner does not consider it
    needs="a program that calls rows and columns itself: NCCL has no such algorithm",
    refusal=uneven_refusal,
    sent_bytes=torus2d_sent_bytes,
)
def all_reduce_torus2d(size_bytes: float, hops: Hops) -> Parts:
    """Price an all-reduce over the most square grid of X ranks a row, Y a column.

    Reduce-scatter along the rows, all-reduce down the columns, all-gather along the rows. A row is
    a ring through k = X/g whole nodes; the X columns are rings of Y nodes, and the g columns of a
    node share its NICs. 2 [(k-1) alpha_inter + (X-k) alpha_intra] + 2 (X-1)/X n beta, the beta of
    one node where k = 1; 2 (Y-1) alpha_inter + 2 (Y-1)/Y n/k beta_nic; and for the sums
    [(X-1)/X + (Y-1)/Y / X] n gamma.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    With rows of one node it is the hierarchical all-reduce. Longer rows cross fewer times, k + Y
    - 2 in place of N - 1 each way, and send more: the row's bytes cross too.

    Examples
    --------
    >>> parts = all_reduce_torus2d(1e6, Hops.flat(16, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (120, 1875)

    References
    ----------
    Mikami et al., Massively distributed SGD: ImageNet/ResNet-50 training in a flash, arXiv
    1811.05233 (a logical 2D grid of GPUs; of its text the abstract was read, which gives no grid);
    phases: horovod/horovod@2626dc87 horovod/common/ops/nccl_operations.cc, NCCLTorusAllreduce,
    whose rows are nodes. Rings: Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.
    """
    row, column = torus_grid(hops.nodes, hops.gpus_per_node)
    nodes_per_row = row // hops.gpus_per_node
    along = (row - 1) / row * size_bytes
    down = (column - 1) / column * size_bytes
    crossings = (nodes_per_row - 1) + (column - 1)
    latency_s = crossings * hops.alpha_inter_s + (row - nodes_per_row) * hops.alpha_intra_s
    beta = hops.beta_intra_s_per_byte if nodes_per_row == 1 else hops.beta_s_per_byte
    wires_s = 2.0 * (along * beta + down / nodes_per_row * hops.beta_nic_s_per_byte)
    return Parts(2.0 * latency_s, wires_s + (along + down / row) * hops.gamma_s_per_byte)
