"""Flows of collectives in rounds whose partners stand twice, or half, as far each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from perfsim.cluster.pattern import Pattern, phases

__all__ = [
    "bruck_exchange_flows",
    "bruck_flows",
    "doubling_flows",
    "gathering_flows",
    "halving_flows",
    "pat_flows",
]

Step = Counter[tuple[int, int]]
"""(source, target) -> ranks that send so, by their nodes."""


def halving_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of recursive halving; the doubling that may follow mirrors them.

    In round i rank r exchanges 1/2^(i+1) of the buffer with rank r XOR 2^i: halves first, with
    the nearest. Ranks past the largest power of two first hand over their whole buffer to a
    neighbour and sit out.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in halving_flows((1,) * 4).phases]
    [[0.5, 0.5, 0.5, 0.5], [0.25, 0.25, 0.25, 0.25]]

    References
    ----------
    Rabenseifner, ICCS 2004; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.2.
    """
    home, folds, steps, chains = _swaps(placement)
    weights = [0.5 / distance for distance in _distances(len(home))]
    return Pattern(phases([*folds, *steps], [1.0] * len(folds) + weights), chains)


def doubling_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of an all-reduce by recursive doubling: the whole buffer in every round.

    In round i rank r exchanges it with rank r XOR 2^i; ranks past the largest power of two hand
    theirs over before and get the result after.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in doubling_flows((1,) * 4).phases]
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5.
    """
    _, folds, steps, chains = _swaps(placement)
    steps = [*folds, *steps, *map(_back, folds)]
    return Pattern(phases(steps, [1.0] * len(steps)), chains)


def gathering_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of an all-gather by recursive doubling: twice the blocks, twice as far.

    In round i rank r exchanges the 2^i blocks of P that it has with rank r XOR 2^i; ranks past
    the largest power of two hand their block over before and get all after.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in gathering_flows((1,) * 4).phases]
    [[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.5, 0.5]]

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1.
    """
    home, folds, steps, chains = _swaps(placement)
    ranks = sum(placement)
    blocks = [distance * (ranks / len(home)) for distance in _distances(len(home))]
    sent = [1.0] * len(folds) + blocks + [float(ranks)] * len(folds)
    weights = [count / ranks for count in sent]
    return Pattern(phases([*folds, *steps, *map(_back, folds)], weights), chains)


def bruck_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of Bruck's all-gather: twice the blocks, twice as far round the ring.

    In round i rank r sends min(2^i, P - 2^i) blocks of P to rank r - 2^i.

    Examples
    --------
    >>> [(phase[0].target, 3 * phase[0].weight) for phase in bruck_flows((1,) * 3).phases]
    [(2, 1.0), (1, 1.0)]

    References
    ----------
    Bruck et al., IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1.
    """
    ranks = sum(placement)
    rounds = [(-far, min(far, ranks - far) / ranks) for far in _distances(ranks)]
    return _shifts(placement, rounds)


def bruck_exchange_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of Bruck's all-to-all: half of the blocks each round, twice as far.

    In round i rank r sends half of its buffer to rank r - 2^i.

    Examples
    --------
    >>> [phase[0].weight for phase in bruck_exchange_flows((1,) * 8).phases]
    [0.5, 0.5, 0.5]

    References
    ----------
    Bruck et al., IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.4.
    """
    return _shifts(placement, [(-far, 0.5) for far in _distances(sum(placement))])


def pat_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of PAT's all-gather: twice the blocks, half as far; backwards to scatter.

    From the farthest, 2^i >= P/2, to the nearest rank r sends to r + 2^i what it has and that one
    misses: the blocks that came from multiples of 2^(i+1) before it, below P - 2^i.

    Examples
    --------
    >>> [phase[0][1:] for phase in pat_flows((1,) * 8).phases]
    [(4, 0.125), (2, 0.25), (1, 0.5)]

    References
    ----------
    Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale, arXiv
    2506.20252.
    """
    ranks = sum(placement)
    rounds = [
        (far, len(range(0, ranks - far, 2 * far)) / ranks) for far in reversed(_distances(ranks))
    ]
    return _shifts(placement, rounds)


def _distances(ranks: int) -> list[int]:
    """Return the powers of two below a number of ranks."""
    return [1 << power for power in range((ranks - 1).bit_length())]


def _back(step: Step) -> Step:
    return Counter({(target, source): count for (source, target), count in step.items()})


Chains = tuple[tuple[tuple[int, int], ...], ...]


def _swaps(placement: Sequence[int]) -> tuple[list[int], list[Step], list[Step], Chains]:
    """Return who swaps with whom: nodes of the ranks that take part, folds, rounds, chains."""
    home = [node for node, gpus in enumerate(placement) for _ in range(gpus)]
    extra = len(home) - (1 << (len(home).bit_length() - 1))
    folds = []
    if extra:
        folds.append(Counter((home[2 * i], home[2 * i + 1]) for i in range(extra)))
        home = [home[2 * i + 1] for i in range(extra)] + home[2 * extra :]
    ranks = range(len(home))
    steps = [Counter((home[r], home[r ^ far]) for r in ranks) for far in _distances(len(home))]
    hops = ([(home[r], home[r ^ far]) for far in _distances(len(home))] for r in ranks)
    return home, folds, steps, _crossing(hops)


def _shifts(placement: Sequence[int], rounds: Sequence[tuple[int, float]]) -> Pattern:
    """Return rounds in which every rank sends a weight to the one so far on, round the ring."""
    home = [node for node, gpus in enumerate(placement) for _ in range(gpus)]
    ranks = len(home)
    steps = [Counter((home[r], home[(r + by) % ranks]) for r in range(ranks)) for by, _ in rounds]
    hops = []
    for rank in range(ranks):
        chain, at = [], rank
        for by, _ in rounds:
            chain.append((home[at], home[(at + by) % ranks]))
            at = (at + by) % ranks
        hops.append(chain)
    return Pattern(phases(steps, [weight for _, weight in rounds]), _crossing(hops))


def _crossing(chains: Iterable[Sequence[tuple[int, int]]]) -> Chains:
    """Return each chain once, without the hops inside a node."""
    found = {tuple(hop for hop in chain if hop[0] != hop[1]) for chain in chains}
    return tuple(sorted(chain for chain in found if chain))
