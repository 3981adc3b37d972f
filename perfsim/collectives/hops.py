"""What an algorithm's formula takes (`Hops`) and returns (`Parts`), and the mathematics it uses.

Letters in the formulas: P ranks on N nodes of g GPUs, a message of n bytes, alpha the latency of
a hop, beta the time a byte on a link, gamma the time to add one byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "ExchangePairs",
    "Hops",
    "Line",
    "Parts",
    "ceil_log2",
    "exchange_pairs",
    "exchanged",
    "floor_log2",
    "folded",
    "maximum",
    "minimum",
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


class ExchangePairs(NamedTuple):
    """The pairs of nodes, sender's and receiver's, of ranks that exchange with rank r XOR 2^i.

    Parameters
    ----------
    home : the node of each rank that takes part
    folds : of each surplus rank, where the ranks are no power of two, and the next one, into which
        it folds and which takes part
    rounds : in each round those of every rank that takes part
    """

    home: list[int]
    folds: list[tuple[int, int]]
    rounds: list[list[tuple[int, int]]]


def exchange_pairs(home: Sequence[int]) -> ExchangePairs:
    """Return the pairs that exchange in recursive halving and doubling, by the node of each rank.

    Examples
    --------
    >>> exchange_pairs([0, 0, 1])
    ExchangePairs(home=[0, 1], folds=[(0, 0)], rounds=[[(0, 1), (1, 0)]])
    """
    rounds = floor_log2(len(home))
    surplus = len(home) - 2**rounds
    folds = [(home[2 * one], home[2 * one + 1]) for one in range(surplus)]
    active = [*home[1 : 2 * surplus : 2], *home[2 * surplus :]]
    met = [
        [(active[one], active[one ^ far]) for one in range(len(active))]
        for far in (1 << power for power in range(rounds))
    ]
    return ExchangePairs(active, folds, met)


class ExchangeRound(NamedTuple):
    """One round in which pairs of ranks exchange messages.

    Parameters
    ----------
    inside : whether a pair is on one node
    senders : ranks that send out of their node, of the node that most of them are on
    """

    inside: bool
    senders: int


@lru_cache(maxsize=1024)
def _exchange_rounds(
    ranks: int, nodes: int, gpus_per_node: int
) -> tuple[tuple[ExchangeRound, ...], ExchangeRound]:
    """Return the rounds in which rank r exchanges with rank r XOR 2^i, and the fold before them.

    Full nodes come first; the ranks that they leave are on as few of the others as can be.

    Examples
    --------
    >>> rounds, fold = _exchange_rounds(6, 2, 4)  # ranks 1 and 3 of one node, 4 and 5 of the other
    >>> [tuple(one) for one in rounds], tuple(fold)
    ([(True, 0), (False, 2)], (True, 0))
    """
    home: list[int] = []
    for node in range(nodes):
        home += [node] * min(gpus_per_node, ranks - len(home) - (nodes - 1 - node))
    pairs = exchange_pairs(home)
    return tuple(map(_exchange_round, pairs.rounds)), _exchange_round(pairs.folds)


def _exchange_round(pairs: Sequence[tuple[int, int]]) -> ExchangeRound:
    """Return what pairs of nodes, the sender's and the receiver's, are as a round."""
    out = Counter(sender for sender, receiver in pairs if sender != receiver)
    return ExchangeRound(out.total() < len(pairs), max(out.values(), default=0))


def exchanged(size_bytes: float, shares: Sequence[float], hops: Hops) -> Parts:
    """Price rounds of recursive halving or doubling, each with a share of n for every rank.

    The shares are those of neighbours first, then of ranks twice as far each time. A round is as
    slow as its slowest pair: pairs in a node use its links, and all that send out of a node share
    its NICs.

    Examples
    --------
    >>> hops = Hops(8, 2, 4, 1e-6, 1e-5, 1e-9, 1e-9, 1e-10, 1e-9)
    >>> parts = exchanged(1e6, [0.5, 0.25, 0.125], hops)
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)  # 75 and 500 us
    (12, 575)
    """
    rounds, _ = _exchange_rounds(hops.ranks, hops.nodes, hops.gpus_per_node)
    latency_s, transfer_s = 0.0, 0.0 * size_bytes
    for share, met in zip(shares, rounds, strict=True):
        alpha_s, beta = _slowest_pair(met, hops)
        latency_s, transfer_s = latency_s + alpha_s, transfer_s + share * size_bytes * beta
    return Parts(latency_s, transfer_s)


def folded(hops: Hops) -> tuple[float, float]:
    """Return latency [s] and cost [s/B] of the message by which a surplus rank folds into the next.

    Examples
    --------
    >>> folded(Hops.flat(3, alpha_s=1e-5, beta_s_per_byte=1e-9))
    (1e-05, 1e-09)
    """
    _, fold = _exchange_rounds(hops.ranks, hops.nodes, hops.gpus_per_node)
    return _slowest_pair(fold, hops)


def _slowest_pair(met: ExchangeRound, hops: Hops) -> tuple[float, float]:
    """Return latency [s] and cost [s/B] of a round."""
    if not met.senders:
        return hops.alpha_intra_s, hops.beta_intra_s_per_byte
    across = met.senders * hops.beta_nic_s_per_byte
    if not met.inside:
        return hops.alpha_inter_s, across
    slowest = maximum(across, hops.beta_intra_s_per_byte)
    return maximum(hops.alpha_inter_s, hops.alpha_intra_s), slowest


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
