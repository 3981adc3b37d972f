"""When a periodic run has settled: every later period repeats the last ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfsim.simulate.graph import TaskGraph, Value

__all__ = ["LONGEST_CYCLE", "cycle_length", "until_steady"]

LONGEST_CYCLE = 4
"""Periods in the longest limit cycle that is looked for."""


def until_steady(
    graph: TaskGraph,
    step: Callable[[int], Value],
    rows: Callable[[int], Sequence[Sequence[Value]]],
    periods: int | None,
    max_periods: int,
    tolerance: float,
    ranks: bool = False,
) -> tuple[list[Value], int]:
    """Run periods until they repeat, and return when each closed and the cycle they settled in.

    Parameters
    ----------
    step : runs the period of a number, from 0 on, and returns when it closed [s]
    rows : ends of the tasks in the first so many periods [s]
    periods : exactly so many, settled or not; None for at most ``max_periods``

    Raises
    ------
    ValueError
        If ``periods`` is below 1.
    """
    if periods is not None and periods < 1:
        raise ValueError(f"periods = {periods}; at least 1")
    closes: list[Value] = []
    cycle = 0
    for count in range(1, (periods or max_periods) + 1):
        closes.append(step(count - 1))
        if periods is None or count == periods:
            cycle = cycle_length(graph, closes, rows(count), tolerance, ranks)
        if cycle and periods is None:
            break
    return closes, cycle


def cycle_length(
    graph: TaskGraph,
    closes: Sequence[Value],
    rows: Sequence[Sequence[Value]],
    tolerance: float,
    ranks: bool = False,
) -> int:
    """Return the number of periods after which the run repeats, or 0 if it has not settled.

    A run repeats every q periods when (a) the lengths of the last q periods equal those of the q
    before, over ``depth + 1`` comparisons in a row, and (b) no task that can delay a closing falls
    behind: over q periods its end moves by no more than the closings do, in as many periods as
    dependencies point back. By (b) no later period can be longer in issue order, as ends are then
    maxima and sums of earlier ends (monotone and homogeneous). Where streams choose by priority or
    share a link, an end may come earlier because another came later: there (a) and (b) tell what
    has been seen, not what must follow.

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
    for cycle in range(1, LONGEST_CYCLE + 1):
        comparisons = max(depth + 1, cycle)
        if count < comparisons + cycle:
            return 0
        if all(
            _equal(closes, count - 1 - step, cycle, tolerance) for step in range(comparisons)
        ) and _keeps_up(graph, closes, rows, cycle, tolerance, ranks):
            return cycle
    return 0


def _close(closes: Sequence[Value], period: int) -> Value:
    return closes[period] if period >= 0 else 0.0


def _equal(closes: Sequence[Value], period: int, cycle: int, tolerance: float) -> bool:
    length = closes[period] - _close(closes, period - 1)
    before = closes[period - cycle] - _close(closes, period - cycle - 1)
    limit = tolerance * length + _rounding(closes[period])
    change = length - before
    return not (_anywhere(change - limit) or _anywhere(-change - limit))


def _anywhere(excess: Value) -> bool:
    return excess > 0.0 if isinstance(excess, float) else bool((excess > 0.0).any())


def _rounding(moment: Value) -> Value:
    return 4e-15 * moment


def _keeps_up(
    graph: TaskGraph,
    closes: Sequence[Value],
    rows: Sequence[Sequence[Value]],
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


def _last_rank(value: Value, ranks: bool) -> Value:
    if not ranks or isinstance(value, float):
        return value
    return value.max(axis=-1)  # type: ignore[no-any-return]
