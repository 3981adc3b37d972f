"""What an algorithm's formula takes (`Hops`) and returns (`Parts`), and the mathematics it uses.

Letters in the formulas: P ranks on N nodes of g GPUs, a message of n bytes, alpha the latency of
a hop, beta the time a byte on a link, gamma the time to add one byte.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "Hops",
    "Line",
    "Parts",
    "ceil_log2",
    "floor_log2",
    "maximum",
    "other_blocks_bytes",
    "pipelined",
]


class Parts(NamedTuple):
    """The two parts of a collective's time.

    ``latency_s`` does not shrink when bandwidth grows; ``transfer_s`` is bytes moved and reduced.
    """

    latency_s: float
    transfer_s: float

    @property
    def seconds(self) -> float:
        """The whole time [s]."""
        return self.latency_s + self.transfer_s


class Hops(NamedTuple):
    """The hops that a collective crosses: how many of each class, and what each costs.

    The numbers with a unit may be floats or arrays that broadcast.

    Parameters
    ----------
    ranks : P, GPUs that take part
    nodes : N, their nodes
    gpus_per_node : g, GPUs on the fullest node
    alpha_intra_s, alpha_inter_s : latency of one hop inside a node, between two nodes [s]
    beta_s_per_byte : busiest link of a ring through all ranks [s/B]
    tree_beta_s_per_byte : the same for a double binary tree [s/B]
    beta_intra_s_per_byte : link between GPUs of a node [s/B]
    beta_nic_s_per_byte : all NICs of a node together [s/B]
    gamma_s_per_byte : reduction of one byte on the GPU [s/B]
    servers : machines without GPUs that take part in pushes and pulls

    Examples
    --------
    >>> Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9).nodes
    4
    """

    ranks: int
    nodes: int
    gpus_per_node: int
    alpha_intra_s: float
    alpha_inter_s: float
    beta_s_per_byte: float
    tree_beta_s_per_byte: float
    beta_intra_s_per_byte: float
    beta_nic_s_per_byte: float
    gamma_s_per_byte: float = 0.0
    servers: int = 0

    @classmethod
    def flat(
        cls, ranks: int, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
    ) -> Hops:
        """Return ``ranks`` GPUs on equal hops: each on a node of its own."""
        beta = beta_s_per_byte
        return cls(ranks, ranks, 1, alpha_s, alpha_s, beta, beta, beta, beta, gamma_s_per_byte)

    def chain_s(self) -> float:
        """Return the latency of one pass over all ranks in line [s].

        (N-1) alpha_inter + (P-N) alpha_intra: the ranks of a node follow each other, so that N - 1
        of the P - 1 hops lead to another node.
        """
        return (self.nodes - 1) * self.alpha_inter_s + (
            self.ranks - self.nodes
        ) * self.alpha_intra_s

    def neighbour(self) -> tuple[float, float]:
        """Return latency [s] and cost [s/B] of a message to the next rank, in the node if it can.

        Examples
        --------
        >>> Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9).neighbour()
        (1e-05, 1e-09)
        """
        if self.gpus_per_node > 1:
            return self.alpha_intra_s, self.beta_intra_s_per_byte
        return self.alpha_inter_s, self.beta_nic_s_per_byte

    def longest_s(self) -> float:
        """Return the latency of a hop between nodes, or inside the node where there is one [s]."""
        return self.alpha_inter_s if self.nodes > 1 else self.alpha_intra_s


class Line(NamedTuple):
    """The time of a collective that is a straight line over the size of its message.

    An algorithm that has one writes its formula by it, and gives it to the decorator as ``line``.

    Parameters
    ----------
    inter_hops, intra_hops : hops between nodes and inside one, one after another
    share : of the message, what passes the busiest link
    s_per_byte : what a byte takes there [s/B]

    Examples
    --------
    >>> ring = Line(inter_hops=6, intra_hops=0, share=0.75, s_per_byte=2e-9)
    >>> ring.latency_s(1e-6, 0.5), ring.transfer_s(1e6)
    (3.0, 0.0015)
    """

    inter_hops: int
    intra_hops: int
    share: float
    s_per_byte: float

    def latency_s(self, alpha_intra_s: float, alpha_inter_s: float) -> float:
        """Return what the hops take one after another, one of each class taking so long [s]."""
        return self.inter_hops * alpha_inter_s + self.intra_hops * alpha_intra_s

    def transfer_s(self, size_bytes: float) -> float:
        """Return what the bytes of a message take [s]."""
        return self.share * size_bytes * self.s_per_byte

    def parts(self, size_bytes: float, hops: Hops) -> Parts:
        """Return the parts of the time for a size."""
        return Parts(
            self.latency_s(hops.alpha_intra_s, hops.alpha_inter_s), self.transfer_s(size_bytes)
        )


def other_blocks_bytes(size_bytes: float, hops: Hops) -> float:
    """Return (P-1)/P n: of P blocks of n/P those of all other ranks [B].

    Examples
    --------
    >>> other_blocks_bytes(1000.0, Hops.flat(4, 1e-5, 1e-9))
    750.0
    """
    return (hops.ranks - 1) / hops.ranks * size_bytes


def pipelined(alpha_s: float, remaining_s: float) -> tuple[float, float]:
    """Return what a message costs in the best number of chunks: (c-1) alpha and remaining / c [s].

    ``remaining_s`` is the time that all chunks after the first hop would take as one. The best c
    is sqrt(remaining / alpha) as a real number, at least 1. With m = min(alpha, remaining) both
    parts follow from sqrt(remaining m), without a division by an alpha that may be 0.

    Examples
    --------
    >>> latency_s, transfer_s = pipelined(1e-5, 4e-3)  # c = 20
    >>> round(latency_s * 1e6), round(transfer_s * 1e6)
    (190, 200)
    """
    least_s = minimum(alpha_s, remaining_s)
    balance_s = (remaining_s * least_s) ** 0.5
    return balance_s - least_s, balance_s


def maximum(first: float, second: float) -> float:
    """Return the larger of two numbers, element by element where they are arrays.

    Examples
    --------
    >>> maximum(2.0, 3.0)
    3.0
    """
    return (first + second + abs(first - second)) / 2.0


def minimum(first: float, second: float) -> float:
    """Return the smaller of two numbers, element by element where they are arrays.

    Examples
    --------
    >>> minimum(2.0, 3.0)
    2.0
    """
    return (first + second - abs(first - second)) / 2.0


def floor_log2(count: int) -> int:
    """Return floor(log2 count): the doublings that stay within ``count``.

    Examples
    --------
    >>> [floor_log2(count) for count in (1, 2, 3, 4, 8, 9)]
    [0, 1, 1, 2, 3, 3]
    """
    return count.bit_length() - 1


def ceil_log2(count: int) -> int:
    """Return ceil(log2 count): the rounds in which doubling reaches ``count`` members.

    Examples
    --------
    >>> [ceil_log2(count) for count in (1, 2, 3, 4, 8, 9)]
    [0, 1, 2, 2, 3, 4]
    """
    return (count - 1).bit_length()
