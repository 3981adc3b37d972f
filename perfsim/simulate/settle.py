"""Many runs of one graph at once, each until it settles by itself.

``simulate`` on arrays goes on until all scenarios repeat, and averages all over the same periods;
here each has the periods that it would have alone, so that its mean is the same to the last bit
whatever runs beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfsim.simulate.array import Run
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.steady import LONGEST_CYCLE

__all__ = ["settled_periods"]

Array = Any


def settled_periods(
    graph: TaskGraph,
    durations: Sequence[float | Array],
    *,
    max_periods: int = 64,
    tolerance: float = 1e-9,
) -> Array:
    """Return the mean length of a period [s] of each scenario.

    Parameters
    ----------
    durations : seconds, one a task: floats, or arrays of one value a scenario
    max_periods, tolerance : as ``simulate``'s

    Examples
    --------
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> reduce = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> _ = graph.add("update", "compute", "update", 1.0, after=[reduce])
    >>> settled_periods(graph, [3.0, np.array([2.0, 0.5]), 1.0])
    array([6. , 4.5])
    """
    return _Runs(graph, durations, tolerance).means(max_periods)


class _Runs:
    """The pass of ``simulate`` and what has closed so far, an array over scenarios each."""

    def __init__(
        self, graph: TaskGraph, durations: Sequence[float | Array], tolerance: float
    ) -> None:
        self.graph, self.tolerance, self.depth = graph, tolerance, graph.depth
        self.run = Run(graph, list(durations), ranks=False)
        self.shape = self.run.shape
        self.rows: list[list[Array]] = []
        self.closes: list[Array] = []
        self.watched = sorted(graph.ancestors())

    def step(self) -> None:
        """Run one more period."""
        close = self.run.step()
        self.rows.append(self.run.ends[-1])
        self.run.forget()
        self.closes.append(np.broadcast_to(close, self.shape))
        if len(self.rows) > LONGEST_CYCLE + self.depth:
            self.rows[-LONGEST_CYCLE - self.depth - 1] = []

    def means(self, max_periods: int) -> Array:
        """Return each scenario's mean period, over the cycle in which it settles [s]."""
        found = np.zeros(self.shape)
        left = np.ones(self.shape, bool)
        for _ in range(max_periods):
            self.step()
            for cycle in range(1, LONGEST_CYCLE + 1):
                comparisons = max(self.depth + 1, cycle)
                if len(self.closes) < max(comparisons + cycle, self.depth + 2):
                    break
                settled = left & self.repeats(cycle, comparisons)
                if settled.any():
                    found[settled] = self.mean(cycle)[settled]
                    left &= ~settled
            if not left.any():
                return found
        found[left] = self.mean(max(1, len(self.closes) // 2))[left]
        return found

    def close(self, period: int) -> Array:
        return self.closes[period] if period >= 0 else 0.0

    def mean(self, averaged: int) -> Array:
        before = len(self.closes) - averaged - 1
        return (self.closes[-1] - self.close(before)) / averaged

    def repeats(self, cycle: int, comparisons: int) -> Array:
        """Return which scenarios repeat every ``cycle`` periods, as ``cycle_length`` tells."""
        last = len(self.closes) - 1
        same = np.ones(self.shape, bool)
        for period in range(last, last - comparisons, -1):
            length = self.close(period) - self.close(period - 1)
            before = self.close(period - cycle) - self.close(period - cycle - 1)
            limit = self.tolerance * length + 4e-15 * self.closes[period]
            change = length - before
            same &= ~((change - limit > 0.0) | (-change - limit > 0.0))
        if not same.any():
            return same
        for period in range(last, last - self.depth, -1):
            if period < cycle:
                return np.zeros(self.shape, bool)
            moved = self.closes[period] - self.closes[period - cycle]
            limit = moved * (1.0 + self.tolerance) + 4e-15 * self.closes[period]
            for index in self.watched:
                end, earlier = self.rows[period][index], self.rows[period - cycle][index]
                same &= ~(end - earlier - limit > 0.0)
        return same
