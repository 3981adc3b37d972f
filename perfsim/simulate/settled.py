"""The array engine over many scenarios at once: the period in which each of them settles.

A sweep in which only numbers differ runs one graph for thousands of rows. Each row is averaged
over the cycle in which it settles, as `simulate` does for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfsim.simulate.array import ArrayRun
from perfsim.simulate.timeline import MAX_CYCLE

if TYPE_CHECKING:
    from perfsim.simulate.graph import TaskGraph

__all__ = ["settled_periods"]

RunArray = Any


def settled_periods(
    graph: TaskGraph,
    durations: Sequence[float | RunArray],
    *,
    max_periods: int = 64,
    tolerance: float = 1e-9,
) -> RunArray:
    """Return the mean length of a period [s] of each scenario.

    Parameters
    ----------
    durations : seconds, one a task: floats, or arrays of one value a scenario
    max_periods, tolerance : as ``simulate``'s

    Examples
    --------
    >>> from perfsim.simulate.graph import TaskGraph
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> reduce = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> _ = graph.add("update", "compute", "update", 1.0, after=[reduce])
    >>> settled_periods(graph, [3.0, np.array([2.0, 0.5]), 1.0])
    array([6. , 4.5])
    """
    return _Runs(graph, durations, tolerance).means(max_periods)


class _Runs:
    """The pass of `ArrayRun` and the ends of periods so far, each an array over scenarios."""

    def __init__(
        self, graph: TaskGraph, durations: Sequence[float | RunArray], tolerance: float
    ) -> None:
        self.graph, self.tolerance, self.depth = graph, tolerance, graph.depth
        self.run = ArrayRun(graph, list(durations), ranks=False)
        self.shape = self.run.shape
        self.rows: list[list[RunArray]] = []
        self.closes: list[RunArray] = []
        self.watched = sorted(graph.ancestors())

    def step(self) -> None:
        """Run one more period."""
        close = self.run.step()
        self.rows.append(self.run.ends[-1])
        self.run.forget()
        self.closes.append(np.broadcast_to(close, self.shape))
        if len(self.rows) > MAX_CYCLE + self.depth:
            self.rows[-MAX_CYCLE - self.depth - 1] = []

    def means(self, max_periods: int) -> RunArray:
        """Return each scenario's mean period, over the cycle in which it settles [s]."""
        settled_after = self.graph.settled_after(in_order=True)
        if settled_after:
            for _ in range(settled_after):
                self.step()
            return self.mean(1)
        found = np.zeros(self.shape)
        left = np.ones(self.shape, bool)
        for _ in range(max_periods):
            self.step()
            for cycle in range(1, MAX_CYCLE + 1):
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

    def close(self, period: int) -> RunArray:
        return self.closes[period] if period >= 0 else 0.0

    def mean(self, averaged: int) -> RunArray:
        before = len(self.closes) - averaged - 1
        return (self.closes[-1] - self.close(before)) / averaged

    def repeats(self, cycle: int, comparisons: int) -> RunArray:
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
