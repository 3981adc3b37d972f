"""The sweep itself: every collective, group and size until its median is known or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median

from perfsim.calibrate.sweep.groups import Group
from perfsim.calibrate.sweep.journal import Journal, Point
from perfsim.calibrate.sweep.steady import half_width, settled
from perfsim.calibrate.sweep.wire import Wire

__all__ = ["Asked", "Rule", "asked", "sizes", "sweep"]

PAIRS = frozenset({"send_recv"})
"""Collectives of two ranks."""

FIRST = 10
"""Repeats between two looks at the interval, where calls are short."""


FALLS = 1.1
WIDE = 0.10
BUMP = 1.04
"""A time so much above the next larger size's, repeats so far apart, or a time so much above the
straight line between its neighbours' (latency, rate and a burst let through make no such bump),
are looked at again."""

LOOKS = 3
"""Rounds of second looks: a point mended may show its neighbour."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When a point is done.

    Parameters
    ----------
    tolerance : half the median's 90 % interval over the median that is tight enough
    budget_s : a point's time, after which it ends, its samples few or not [s]
    most : repeats at most
    whole_s : of all points; what early ones leave of their share goes to those after them [s]
    """

    tolerance: float = 0.02
    budget_s: float = 2.0
    most: int = 200
    whole_s: float | None = None

    def share(self, spent_s: float, left: int) -> Rule:
        """Return the rule of the next of so many points that are left."""
        if self.whole_s is None:
            return self
        return replace(self, budget_s=max(self.budget_s, (self.whole_s - spent_s) / left))


@dataclass(frozen=True, slots=True)
class Asked:
    """One point to measure."""

    collective: str
    group: Group
    size_bytes: int

    @property
    def key(self) -> tuple[str, int, int, int]:
        """As `Point.key`."""
        group = self.group
        return self.collective, group.nodes, group.gpus_per_node, self.size_bytes


def sizes(least_bytes: int, most_bytes: int, factor: int = 2) -> tuple[int, ...]:
    """Return sizes from least to most, each ``factor`` times the one before; the most is in it.

    Examples
    --------
    >>> sizes(1024, 10000)
    (1024, 2048, 4096, 8192, 10000)
    """
    found = []
    size = least_bytes
    while size < most_bytes:
        found.append(size)
        size *= factor
    return (*found, most_bytes)


def asked(
    collectives: Sequence[str], groups: Sequence[Group], sizes_bytes: Sequence[int]
) -> Iterator[Asked]:
    """Yield the points in the order measured: group by group, all_reduce first, small to large."""
    for group in groups:
        for collective in collectives:
            if collective in PAIRS and len(group.ranks) != 2:
                continue
            for size in sizes_bytes:
                yield Asked(collective, group, size)


def sweep(
    wire: Wire,
    points: Sequence[Asked],
    rule: Rule,
    journal: Journal | None,
    tell: Callable[[Asked, Point | None], None],
) -> None:
    """Measure points; every rank of the job calls it with the same points.

    Parameters
    ----------
    wire : carries the collectives
    points : what is left to measure
    rule : when a point is done
    journal : rank 0's record; None on other ranks
    tell : called on every rank before a point (with None) and on rank 0 with its result
    """
    joined = None
    begun, left = time.perf_counter(), len(points)
    for curve in _curves(points):
        group = curve[0].group
        if group != joined:
            # Who is not in the groups before waits here, not inside a collective with a time-out.
            wire.together()
            wire.join(group)
            joined = group
        if wire.rank not in group.ranks:
            left -= len(curve)
            continue
        taken: list[list[float]] = []
        for point in curve:
            tell(point, None)
            spent = wire.agree(group, time.perf_counter() - begun)
            taken.append(_measure(wire, point, rule.share(spent, left)))
            left -= 1
            _keep(point, taken[-1], journal, tell)
        _look_again(wire, curve, taken, rule, journal)
    wire.together()


def _look_again(
    wire: Wire,
    curve: Sequence[Asked],
    taken: list[list[float]],
    rule: Rule,
    journal: Journal | None,
) -> None:
    """Measure the doubtful points of a curve again, and keep what is shorter."""
    lengths = [point.size_bytes for point in curve]
    for _ in range(LOOKS):
        mended = False
        for place in doubtful(lengths, taken):
            again = _measure(wire, curve[place], rule)
            # What disturbs a message only ever makes it longer.
            if median(again) < median(taken[place]):
                mended = mended or median(again) * BUMP < median(taken[place])
                taken[place] = again
                _keep(curve[place], again, journal, None)
        if not mended:
            return


def doubtful(lengths: Sequence[int], taken: Sequence[Sequence[float]]) -> list[int]:
    """Return the places of a curve that are worth another look.

    Parameters
    ----------
    lengths : messages [B], rising
    taken : repeats of each [s]

    Examples
    --------
    >>> doubtful([1, 2, 4, 8], [[1.0, 1.0], [9.0, 9.1], [4.0, 4.1], [8.0, 8.0]])
    [1]
    >>> doubtful([1, 2], [[1.0] * 8 + [3.0] * 8, [4.0, 4.0]])
    [0]
    >>> doubtful([2, 4, 8], [[26.6], [60.0], [106.0]])
    [1]
    """
    middles = [median(seconds) for seconds in taken]
    places = range(len(taken))
    falls = {place for place in places[:-1] if middles[place] > FALLS * middles[place + 1]}
    wide = {place for place in places if WIDE < half_width(taken[place]) < 1e9}
    bumps = {
        place for place in places[1:-1] if middles[place] > BUMP * _chord(lengths, middles, place)
    }
    return sorted(falls | wide | bumps)


def _chord(lengths: Sequence[int], middles: Sequence[float], place: int) -> float:
    """Return what the neighbours of a place make of it by a straight line [s]."""
    before, after = place - 1, place + 1
    part = (lengths[place] - lengths[before]) / (lengths[after] - lengths[before])
    return middles[before] + part * (middles[after] - middles[before])


def _curves(points: Sequence[Asked]) -> Iterator[list[Asked]]:
    """Yield the points of one collective and group after the other."""
    for _, of in groupby(points, lambda point: (point.group, point.collective)):
        yield list(of)


def _keep(
    point: Asked,
    seconds: Sequence[float],
    journal: Journal | None,
    tell: Callable[[Asked, Point | None], None] | None,
) -> None:
    """Put a point on record, where this rank keeps one."""
    if journal is None:
        return
    group = point.group
    shape = (len(group.ranks), group.nodes, group.gpus_per_node)
    found = Point(point.collective, *shape, point.size_bytes, tuple(seconds))
    journal.add(found)
    if tell is not None:
        tell(point, found)


def _measure(wire: Wire, point: Asked, rule: Rule) -> list[float]:
    """Repeat one point in growing batches; all ranks see the same times and decide alike."""
    of = point.collective, point.group, point.size_bytes
    begun = time.perf_counter()
    warm = wire.run(*of, 1)
    # A call longer than the whole budget is its own sample: nothing of it is warm-up.
    seconds = warm if warm[0] > rule.budget_s else wire.run(*of, 1)
    batch = min(FIRST, max(1, int(rule.budget_s / 2 / max(seconds[0], 1e-9))))
    while True:
        spent = wire.agree(point.group, time.perf_counter() - begun)
        if settled(seconds, rule.tolerance) or spent >= rule.budget_s or len(seconds) >= rule.most:
            return seconds
        seconds = seconds + wire.run(*of, min(batch, rule.most - len(seconds)))
