"""The clock of the event engine, and what has happened on it so far."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from simpy import Environment, Event

from perfsim.simulate.crossing import Crossing
from perfsim.simulate.graph import TaskGraph, Value
from perfsim.simulate.sharing import SharedLink

if TYPE_CHECKING:
    from perfsim.simulate.crossed_link import CrossedLink

__all__ = ["EventLog", "Instance"]

Instance = tuple[int, int]
"""(period, task)."""


class EventLog:
    """The clock, when each task started and ended, and the moments that others wait for."""

    def __init__(
        self,
        graph: TaskGraph,
        spent: list[list[float]],
        count: int,
        horizon: int,
        env: Environment | None = None,
    ) -> None:
        self.env = env or Environment()
        self.graph, self.horizon = graph, horizon
        self.spent, self.count = spent, count
        self.starts: list[list[list[float]]] = []
        self.ends: list[list[list[float]]] = []
        self._left: list[int] = []
        self._complete: list[Event] = []
        self._arrived: dict[Instance, tuple[list[int], Event]] = {}
        self._there: dict[tuple[Instance, int], Event] = {}
        # Every rank has its own part of a link; collectives keep these parts in step.
        self._links = {
            (task.shares.name, rank): SharedLink(self.env, task.shares.capacity)
            for task in graph.tasks
            if task.shares
            for rank in range(count)
        }
        self._crossings: Mapping[int, Crossing] = {}
        self._crossed: CrossedLink | None = None
        self._job = 0

    def cross(self, crossings: Mapping[int, Crossing], link: CrossedLink, job: int) -> None:
        """Let some tasks go over a link on which other jobs send too."""
        self._crossings, self._crossed, self._job = crossings, link, job

    def run_task(self, instance: Instance, rank: int) -> Generator[Event, Any, None]:
        """Run one task on one rank, once all ranks are there if it is a collective."""
        period, index = instance
        met = self.graph.tasks[index].meeting
        if self.graph.tasks[index].collective and self.count > 1 and met is not None:
            self._arrival(instance, rank).succeed()
            for one in met.partners(rank, self.count, period):
                yield self._arrival(instance, one)
        elif self.graph.tasks[index].collective and self.count > 1:
            waiting, meeting = self._arrived.setdefault(instance, ([], self.env.event()))
            waiting.append(rank)
            if len(waiting) == self.count:
                meeting.succeed()
                del self._arrived[instance]
            yield meeting
        self._grow(period)
        task, spent_s = self.graph.tasks[index], self.spent[index][rank]
        self.starts[period][index][rank] = self.env.now
        crossing = self._crossings.get(index)
        if crossing is not None and self._crossed is not None:
            off_s = min(crossing.off_s, spent_s)
            yield self.env.timeout(off_s)
            yield from self._crossed.carry(self._job, spent_s - off_s, crossing, task.shares)
        elif task.shares is None:
            yield self.env.timeout(spent_s)
        else:
            latency_s = min(task.latency_s, spent_s)
            yield self.env.timeout(latency_s)
            yield from self._links[task.shares.name, rank].carry(spent_s - latency_s)
        self.ends[period][index][rank] = self.env.now
        self._left[period] -= 1
        if self._left[period] == 0:
            self._complete[period].succeed()

    def _arrival(self, instance: Instance, rank: int) -> Event:
        """Return the event that one rank has got to a collective."""
        return self._there.setdefault((instance, rank), self.env.event())

    def _grow(self, period: int) -> None:
        width = len(self.graph.tasks)
        while len(self.starts) <= period:
            self.starts.append([[float("inf")] * self.count for _ in range(width)])
            self.ends.append([[float("inf")] * self.count for _ in range(width)])
            self._left.append(width * self.count)
            self._complete.append(self.env.event())

    def run_period(self, period: int) -> None:
        """Advance the clock until every task of ``period`` has ended on every rank."""
        self._grow(period)
        if not self._complete[period].processed:
            self.env.run(until=self._complete[period])

    def reach(self, periods: int, moment: float, most: int) -> int:
        """Complete the later periods that start before ``moment``; return how many rows count."""
        kept = periods
        for period, row in enumerate(self.starts[: periods + most]):
            if min(min(starts) for starts in row) < moment:
                kept = max(kept, period + 1)
        for period in range(periods, kept):
            self.run_period(period)
        return kept

    def rows(self, moments: list[list[list[float]]], periods: int) -> list[list[Value]]:
        """Return the first ``periods`` rows as a Timeline keeps them."""
        if self.count == 1:
            return [[ranks[0] for ranks in row] for row in moments[:periods]]
        import numpy as np

        return [[np.array(ranks) for ranks in row] for row in moments[:periods]]
