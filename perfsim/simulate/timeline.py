"""When every task started and ended, and where the time of an iteration went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.task import COMPUTE, Duration
from perfsim.sums import sum_in_order

__all__ = [
    "BREAKDOWN_PARTS",
    "MAX_CYCLE",
    "Attribution",
    "Timeline",
    "attribute_time",
    "cycle_length",
    "level_of",
    "until_steady",
]

BREAKDOWN_PARTS = (
    "forward",
    "backward",
    "compression",
    "second_order",
    "communication_exposed",
    "update",
    "other",
)
"""The parts of an iteration, as a prediction shows them."""

_PART_OF_KIND = {
    "forward": "forward",
    "backward": "backward",
    "compress": "compression",
    "decompress": "compression",
    "second_order": "second_order",
    "communicate": "communication_exposed",
    "update": "update",
    "other": "other",
}

_ELSEWHERE = ("compression", "second_order", "communication_exposed")
"""Parts that count on other streams while the compute stream is idle, the first match first."""

_LEVELS = [(True, part) for part in BREAKDOWN_PARTS] + [(False, part) for part in _ELSEWHERE]
"""(On the compute stream, part): what an instant counts as, the first that runs."""

_LEVEL_OF_KIND = {
    (on_compute, kind): level
    for level, (on_compute, part) in enumerate(_LEVELS)
    for kind, of_kind in _PART_OF_KIND.items()
    if of_kind == part
}

_COMMUNICATES = [part == "communication_exposed" for _, part in _LEVELS]
_COMPUTES = [on_compute and part != "communication_exposed" for on_compute, part in _LEVELS]

Span = tuple[int | None, float, float]
"""(level, start, end), clipped to the window; without a level it counts as nothing."""


def level_of(on_compute: bool, kind: str) -> int | None:
    """Return the level at which a kind of task counts: where several run, the lowest does."""
    return _LEVEL_OF_KIND.get((on_compute, kind))


class Attribution(NamedTuple):
    """Where the time of a window went.

    Parameters
    ----------
    parts : seconds of each part, which sum to the window
    busy_s : with any communication
    hidden_s : of these, how many computation hides; communication on the compute stream itself is
        hidden by nothing
    """

    parts: dict[str, float]
    busy_s: float
    hidden_s: float


def attribute_time(intervals: Iterable[Span], window_s: float) -> Attribution:
    """Attribute each instant of a window of ``window_s`` to what runs in it.

    Examples
    --------
    >>> backward, send = level_of(True, "backward"), level_of(False, "communicate")
    >>> runs = [(backward, 0.0, 2.0), (send, 1.0, 5.0)]
    >>> parts, busy_s, hidden_s = attribute_time(runs, 6.0)
    >>> parts["backward"], parts["communication_exposed"], parts["other"]
    (2.0, 3.0, 1.0)
    >>> busy_s, hidden_s
    (4.0, 1.0)
    """
    marks: list[tuple[float, int, int]] = []
    for level, start, end in _joined(intervals):
        marks.append((start, level, 1))
        marks.append((end, level, -1))
    marks.sort()
    spent: list[list[float]] = [[] for _ in _LEVELS]
    busy: list[float] = []
    hidden: list[float] = []
    running = [0] * len(_LEVELS)
    communicating = computing = 0
    before = 0.0
    for moment, level, change in marks:
        if moment > before:
            for running_level, active in enumerate(running):
                if active:
                    spent[running_level].append(moment - before)
                    break
            if communicating:
                busy.append(moment - before)
                if computing:
                    hidden.append(moment - before)
        before = moment
        running[level] += change
        if _COMMUNICATES[level]:
            communicating += change
        elif _COMPUTES[level]:
            computing += change
    lists: dict[str, list[float]] = {part: [] for part in BREAKDOWN_PARTS}
    for (_, part), seconds in zip(_LEVELS, spent, strict=True):
        lists[part] += seconds
    parts = {part: math.fsum(seconds) for part, seconds in lists.items()}
    # The rest is "other", so that the parts sum to the window to the last digit.
    parts["other"] = 0.0
    parts["other"] = max(0.0, window_s - math.fsum(parts.values()))
    return Attribution(parts, math.fsum(busy), math.fsum(hidden))


def _joined(intervals: Iterable[Span]) -> Iterator[tuple[int, float, float]]:
    """Yield (level, start, end) of what runs, one interval for those that follow without a gap."""
    latest: list[tuple[float, float] | None] = [None] * len(_LEVELS)
    for level, start, end in intervals:
        if level is None or end <= start:
            continue
        known = latest[level]
        if known is None:
            latest[level] = start, end
        elif known[1] == start:
            latest[level] = known[0], end
        else:
            yield level, *known
            latest[level] = start, end
    for level, known in enumerate(latest):
        if known is not None:
            yield level, *known


MAX_CYCLE = 4
"""Periods in the longest cycle in which a run may settle."""


def until_steady(
    graph: TaskGraph,
    step: Callable[[int], Duration],
    rows: Callable[[int], Sequence[Sequence[Duration]]],
    periods: int | None,
    max_periods: int,
    tolerance: float,
    ranks: bool = False,
    settled_after: int = 0,
) -> tuple[list[Duration], int]:
    """Run periods until they repeat, and return when each closed and the cycle they settled in.

    Parameters
    ----------
    step : runs a period, given its number from 0 on, and returns when it closed [s]
    rows : given a count, the ends of the tasks in the first periods [s]
    periods : exactly this many, settled or not; None for at most ``max_periods``
    settled_after : the first period as long as all later ones, where the graph tells; 0 else

    Raises
    ------
    ValueError
        If ``periods`` is below 1.
    """
    if periods is not None and periods < 1:
        raise ValueError(f"periods = {periods}; at least 1")
    closes: list[Duration] = []
    cycle = 0
    if settled_after and periods is None:
        return [step(period) for period in range(settled_after)], 1
    for count in range(1, (periods or max_periods) + 1):
        closes.append(step(count - 1))
        if periods is None or count == periods:
            cycle = cycle_length(graph, closes, rows(count), tolerance, ranks)
        if cycle and periods is None:
            break
    return closes, cycle


def cycle_length(
    graph: TaskGraph,
    closes: Sequence[Duration],
    rows: Sequence[Sequence[Duration]],
    tolerance: float,
    ranks: bool = False,
) -> int:
    """Return the number of periods after which the run repeats, or 0 if it has not settled.

    A run repeats every q periods when (a) the lengths of the last q periods equal those of the q
    before, over ``depth + 1`` comparisons in a row, and (b) no task that can delay a closing falls
    behind: over q periods its end moves by no more than the closings do, in as many periods as
    dependencies point back. By (b) no later period can be longer in issue order, as ends are then
    maxima and sums of earlier ends (monotone and homogeneous). Where streams choose by priority or
    share a link, an end may come earlier because another came later: there (a) and (b) describe
    what was seen, not what must follow.

    Parameters
    ----------
    graph : the template
    closes : end of each complete period [s]
    rows : ends of the tasks [s], a row a period
    tolerance : relative difference that counts as none
    ranks : the last axis of the ends is ranks (and is gone from ``closes``)

    References
    ----------
    Baccelli, Cohen, Olsder & Quadrat, Synchronization and Linearity, 1992, chapter 3.
    """
    count, depth = len(closes), graph.depth
    if count < depth + 2:
        return 0
    for cycle in range(1, MAX_CYCLE + 1):
        comparisons = max(depth + 1, cycle)
        if count < comparisons + cycle:
            return 0
        if all(
            _equal(closes, count - 1 - step, cycle, tolerance) for step in range(comparisons)
        ) and _keeps_up(graph, closes, rows, cycle, tolerance, ranks):
            return cycle
    return 0


def _close(closes: Sequence[Duration], period: int) -> Duration:
    return closes[period] if period >= 0 else 0.0


def _equal(closes: Sequence[Duration], period: int, cycle: int, tolerance: float) -> bool:
    length = closes[period] - _close(closes, period - 1)
    before = closes[period - cycle] - _close(closes, period - cycle - 1)
    limit = tolerance * length + _rounding(closes[period])
    change = length - before
    return not (_anywhere(change - limit) or _anywhere(-change - limit))


def _anywhere(excess: Duration) -> bool:
    return excess > 0.0 if isinstance(excess, float) else bool((excess > 0.0).any())


def _rounding(moment: Duration) -> Duration:
    return 4e-15 * moment


def _keeps_up(
    graph: TaskGraph,
    closes: Sequence[Duration],
    rows: Sequence[Sequence[Duration]],
    cycle: int,
    tolerance: float,
    ranks: bool,
) -> bool:
    count = len(rows)
    for period in range(count - 1, count - 1 - graph.depth, -1):
        if period < cycle:
            return False
        moved = closes[period] - closes[period - cycle]
        limit = moved * (1.0 + tolerance) + _rounding(closes[period])
        pairs = zip(rows[period], rows[period - cycle], strict=True)
        if {float}.issuperset(map(type, (limit, *rows[period]))):
            behind = [
                index for index, (end, before) in enumerate(pairs) if end - before - limit > 0.0
            ]
        else:
            behind = [
                index
                for index, (end, before) in enumerate(pairs)
                if _anywhere(_last_rank(end - before, ranks) - limit)
            ]
        if behind and not graph.ancestors().isdisjoint(behind):
            return False
    return True


def _last_rank(value: Duration, ranks: bool) -> Duration:
    if not ranks or isinstance(value, float):
        return value
    return value.max(axis=-1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Timeline:
    """The run of a task graph over several periods.

    Parameters
    ----------
    graph : the template
    starts, ends : seconds, ``starts[period][task]``; the rows beyond ``periods`` are there for
        tasks that reach into the last counted period
    closes : end of each counted period [s], of the rank that ends last
    averaged : over how many of the last periods the means are taken
    steady : whether the run had settled, so that its mean holds for all later periods
    shape : the axes (scenario, draw) of the arrays; () for floats
    ranks : whether the last axis of ``starts`` and ``ends`` is ranks
    shown : of many draws, those whose tasks are known, the one nearest to the mean first; then
        ``starts`` and ``ends`` have none
    """

    graph: TaskGraph
    starts: list[list[Duration]]
    ends: list[list[Duration]]
    closes: list[Duration]
    averaged: int
    steady: bool
    shape: tuple[int, ...] = ()
    ranks: bool = False
    shown: tuple[Timeline, ...] = ()

    @property
    def periods(self) -> int:
        """Periods counted."""
        return len(self.closes)

    @property
    def window(self) -> tuple[Duration, Duration]:
        """Start and end of the periods over which means are taken [s]."""
        before = self.periods - self.averaged - 1
        return self.closes[before] if before >= 0 else 0.0, self.closes[-1]

    @property
    def period_s(self) -> Duration:
        """Mean length of a period [s]."""
        start, end = self.window
        return (end - start) / self.averaged

    @property
    def mean_period_s(self) -> float:
        """Mean length of a period over all scenarios and draws [s]."""
        length = self.period_s
        return float(length) if isinstance(length, float | int) else float(length.mean())

    @property
    def iteration_s(self) -> Duration:
        """Mean time of a training iteration [s]."""
        return self.period_s / self.graph.iterations

    def select(self, index: int | tuple[int, ...] = (), rank: int | None = None) -> Timeline:
        """Return the timeline of one element of the axes (scenario, draw), and of one rank.

        Without ``rank``: the rank that ends last; of several, the one that computes longest (the
        others wait for it).

        Examples
        --------
        >>> import numpy as np
        >>> from perfsim.simulate.array import simulate
        >>> graph = TaskGraph()
        >>> _ = graph.add("backward", "compute", "backward", np.array([1.0, 2.0]))
        >>> simulate(graph).select(1).iteration_s
        2.0
        """
        place = (index,) if isinstance(index, int) else tuple(index)
        if len(place) != len(self.shape):
            raise ValueError(f"select takes {len(self.shape)} indexes (axes {self.shape})")
        closes: list[Duration] = [_element(value, self.shape, place) for value in self.closes]
        shape = self.shape
        if self.ranks:
            count = max(_last_axis(value) for row in self.ends for value in row)
            shape = (*shape, count)
            place = (*place, self._last_rank(shape, place) if rank is None else rank)
        return Timeline(
            graph=self.graph,
            starts=[[_element(value, shape, place) for value in row] for row in self.starts],
            ends=[[_element(value, shape, place) for value in row] for row in self.ends],
            closes=closes,
            averaged=self.averaged,
            steady=self.steady,
        )

    def each(self) -> list[Timeline]:
        """Return the timeline of each element of the one axis that there is, such as draws.

        They are those that `select` returns one by one.
        """
        [count] = self.shape

        def by_element(row: Sequence[Duration]) -> list[list[Duration]]:
            columns = [
                [value] * count
                if isinstance(value, float)
                else value.tolist() * (count // len(value))
                for value in row
            ]
            return [list(one) for one in zip(*columns, strict=True)]

        starts, ends = (list(map(by_element, rows)) for rows in (self.starts, self.ends))
        closes = by_element(self.closes)
        return [
            Timeline(
                graph=self.graph,
                starts=[row[place] for row in starts],
                ends=[row[place] for row in ends],
                closes=closes[place],
                averaged=self.averaged,
                steady=self.steady,
            )
            for place in range(count)
        ]

    def _last_rank(self, shape: tuple[int, ...], place: tuple[int, ...]) -> int:
        period = self.periods - 1

        def merit(rank: int) -> tuple[float, float]:
            here = (*place, rank)
            busy = sum_in_order(
                _element(end, shape, here) - _element(start, shape, here)
                for task, start, end in zip(
                    self.graph.tasks, self.starts[period], self.ends[period], strict=True
                )
                if task.stream == COMPUTE
            )
            return _element(self.ends[period][self.graph.closing], shape, here), busy

        return max(range(shape[-1]), key=merit)

    def intervals(self) -> Iterator[tuple[int, float, float]]:
        """Yield (task, start, end) of all that runs in the window, clipped to it [s]."""
        timeline = self._floats()
        low, high = (float(moment) for moment in timeline.window)
        for starts, ends in zip(timeline.starts, timeline.ends, strict=True):
            for task, (start, end) in enumerate(zip(starts, ends, strict=True)):
                if end > low and start < high:
                    yield task, float(start if start > low else low), float(min(end, high))

    def breakdown(self) -> dict[str, float]:
        """Return where an iteration's time goes [s]; the values sum to ``iteration_s``.

        Each instant counts once: for the task on the compute stream; if that is idle, for a
        method's kernel on another stream (compression before second_order); else for
        communication that runs (communication_exposed); else for other. A rank that waits for
        others before a collective starts is not communicating yet.

        Raises
        ------
        ValueError
            If the timeline has scenario or draw axes: ``select`` an element first.
        """
        total = self.averaged * self.graph.iterations
        return {key: seconds / total for key, seconds in self._attribution.parts.items()}

    def communication(self) -> dict[str, float]:
        """Return how long an iteration communicates [s], and how much of it computation hides.

        ``busy_s``: any communicate task runs; ``hidden_s``: the compute stream works meanwhile.
        """
        _, busy_s, hidden_s = self._attribution
        total = self.averaged * self.graph.iterations
        return {"busy_s": busy_s / total, "hidden_s": hidden_s / total}

    @cached_property
    def _attribution(self) -> Attribution:
        window_s = float(self._floats().period_s) * self.averaged
        levels = [level_of(task.stream == COMPUTE, task.kind) for task in self.graph.tasks]
        runs = ((levels[index], start, end) for index, start, end in self.intervals())
        return attribute_time(runs, window_s)

    def _floats(self) -> Timeline:
        if self.shape:
            raise ValueError(f"the timeline has axes {self.shape}; select one element first")
        return self.select() if self.ranks else self


def _element(value: Any, shape: tuple[int, ...], place: tuple[int, ...]) -> float:
    if isinstance(value, float):
        return value
    if value.shape == shape:
        return float(value[place])
    import numpy as np

    return float(np.broadcast_to(value, shape)[place])


def _last_axis(value: Any) -> int:
    return 1 if isinstance(value, float) else int(value.shape[-1])
