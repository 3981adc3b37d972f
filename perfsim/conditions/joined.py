"""Rounds that are run one after the other where ranks drift apart between exchanges.

Local iterations and the one that exchanges may be run by themselves and their means weighted as
long as every iteration is the same on each rank. Where computation varies by chance, what is
waited for at the exchange is the largest of the ranks' sums, not the sum of the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import NamedTuple

from perfsim.errors import RequestError
from perfsim.stage import LOCAL, Job, Round, Send

__all__ = ["MOST_APART", "Joined", "exchanges", "joined"]

MOST_APART = 256
"""Iterations between exchanges that are run one by one; local ones without any message are one."""

NEGLIGIBLE = 1e-9


class Joined(NamedTuple):
    """A round, and how many iterations each of its own stands for."""

    round: Round
    repeats: tuple[int, ...]


def exchanges(jobs: Sequence[Job], nodes: int) -> bool:
    """Tell whether ranks of different nodes wait for each other in these jobs."""
    return any(
        isinstance(stage, Send) and (stage.group != "node" or nodes == 1)
        for job in jobs
        for stage in job.stages
    )


def joined(
    rounds: Sequence[Round], exchanging: Callable[[int], bool], flag: str = "--jitter"
) -> list[Joined]:
    """Return the rounds with those that exchange nothing put before the one that follows.

    Where there are not as many of them for each exchange, exchanges come after as few and as many
    as make the mean. ``flag`` is what asks for it.

    Raises
    ------
    RequestError
        If there are too many for each exchange to run them one by one.

    Examples
    --------
    >>> rounds = [Round((LOCAL,), 3), Round((0,), 1)]
    >>> joined(rounds, lambda iteration: iteration != LOCAL)[0]
    Joined(round=Round(iterations=(-1, 0), count=1.0), repeats=(3, 1))
    """
    found: list[Joined] = []
    apart: Round | None = None
    for one in rounds:
        if not any(exchanging(iteration) for iteration in one.iterations):
            apart = one
            continue
        found += [_plain(one)] if apart is None else _after(apart, one, flag)
        apart = None
    return found + ([] if apart is None else [_plain(apart)])


def _plain(one: Round) -> Joined:
    return Joined(one, (1,) * len(one.iterations))


def _after(apart: Round, one: Round, flag: str) -> list[Joined]:
    each = apart.count * len(apart.iterations) / one.count
    few = floor(each + NEGLIGIBLE)
    shares = {few: 1.0 - (each - few), few + 1: each - few}
    found = []
    for count, share in shares.items():
        if share <= NEGLIGIBLE:
            continue
        before, repeats = _iterations(apart, count, flag)
        whole = Round((*before, *one.iterations), one.count * share)
        found.append(Joined(whole, (*repeats, *(1,) * len(one.iterations))))
    return found


def _iterations(apart: Round, count: int, flag: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return so many iterations in a row, and how many each stands for."""
    if count == 0:
        return (), ()
    if apart.iterations == (LOCAL,):
        return (LOCAL,), (count,)
    if count > MOST_APART:
        raise RequestError(
            f"{flag}: {count} iterations between two exchanges are too many to follow, at most"
            f" {MOST_APART}; set a shorter interval."
        )
    kinds = apart.iterations
    return tuple(kinds[at % len(kinds)] for at in range(count)), (1,) * count
