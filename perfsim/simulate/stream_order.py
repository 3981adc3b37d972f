"""In which order a stream runs its tasks: as issued, or by priority among the ready ones."""

from __future__ import annotations

from collections.abc import Generator
from heapq import heapify, heappop, heappush
from itertools import product
from typing import Any

from simpy import Environment, Event

from perfsim.simulate.event_log import EventLog, Instance
from perfsim.simulate.graph import TaskGraph

__all__ = ["start_by_priority", "start_in_issue_order"]

Place = tuple[str, int]
"""(stream, rank)."""


def _streams(graph: TaskGraph) -> dict[str, list[int]]:
    return {
        name: [index for index, task in enumerate(graph.tasks) if task.stream == name]
        for name in graph.streams
    }


def start_in_issue_order(log: EventLog) -> None:
    """Start a process per stream and rank that runs the stream's tasks as issued."""
    env, graph = log.env, log.graph
    done: dict[tuple[int, int, int], Event] = {}

    def ended(period: int, index: int, rank: int) -> Event:
        return done.setdefault((period, index, rank), env.event())

    def stream(indexes: list[int], rank: int) -> Generator[Event, Any, None]:
        for period in range(log.horizon):
            for index in indexes:
                for other, back in graph.tasks[index].after:
                    if period >= back:
                        yield ended(period - back, other, rank)
                yield from log.run_task((period, index), rank)
                ended(period, index, rank).succeed()

    for indexes in _streams(graph).values():
        for rank in range(log.count):
            env.process(stream(indexes, rank))


def start_by_priority(log: EventLog) -> None:
    """Start a process per stream and rank that runs the most urgent task that is ready."""
    desk = _Desk(log)
    for stream, rank in product(log.graph.streams, range(log.count)):
        log.env.process(desk.serve(stream, rank))


class _Settled(Event):
    """Comes after all other events of the same moment (SimPy's own have urgency 0 and 1)."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=2)  # type: ignore[arg-type]


class _Desk:
    """Which tasks are ready where, and the order of collectives that all ranks keep to."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.tasks = log, log.graph.tasks
        places = list(product(log.graph.streams, range(log.count)))
        self._ready: dict[Place, list[tuple[int, Instance]]] = {place: [] for place in places}
        self._wake: dict[Place, Event] = {}
        self._agreed: dict[str, list[Instance]] = {name: [] for name in log.graph.streams}
        self._kept = dict.fromkeys(places, 0)
        self._arrived: dict[Instance, int] = {}
        self._missing: dict[tuple[Instance, int], int] = {}
        self._heirs: list[list[tuple[int, int]]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            for other, back in set(task.after):
                self._heirs[other].append((index, back))
        for period, index, rank in product(
            range(log.horizon), range(len(self.tasks)), range(log.count)
        ):
            missing = sum(back <= period for _, back in set(self.tasks[index].after))
            self._missing[(period, index), rank] = missing
            if not missing:
                self._offer((period, index), rank)

    def serve(self, stream: str, rank: int) -> Generator[Event, Any, None]:
        """Run the tasks of one stream on one rank."""
        share = sum(task.stream == stream for task in self.tasks)
        for _ in range(share * self.log.horizon):
            instance = yield from self._choose((stream, rank))
            yield from self.log.run_task(instance, rank)
            period, index = instance
            for heir, back in self._heirs[index]:
                self._release((period + back, heir), rank)

    def _release(self, instance: Instance, rank: int) -> None:
        if instance[0] < self.log.horizon:
            self._missing[instance, rank] -= 1
            if self._missing[instance, rank] == 0:
                self._offer(instance, rank)

    def _offer(self, instance: Instance, rank: int) -> None:
        task = self.tasks[instance[1]]
        ranks = [rank]
        if task.collective:
            self._arrived[instance] = self._arrived.get(instance, 0) + 1
            ranks = list(range(self.log.count)) if self._arrived[instance] == self.log.count else []
        for one in ranks:
            place = (task.stream, one)
            heappush(self._ready[place], (-task.priority, instance))
            if place in self._wake:
                self._wake.pop(place).succeed()

    def _choose(self, place: Place) -> Generator[Event, Any, Instance]:
        ready, agreed = self._ready[place], self._agreed[place[0]]
        while True:
            yield _Settled(self.log.env)
            if self._kept[place] < len(agreed):
                instance = agreed[self._kept[place]]
                ready.remove((-self.tasks[instance[1]].priority, instance))
                heapify(ready)
                self._kept[place] += 1
                return instance
            if ready:
                _, instance = heappop(ready)
                if self.tasks[instance[1]].collective:
                    agreed.append(instance)
                    self._kept[place] += 1
                return instance
            self._wake[place] = self.log.env.event()
            yield self._wake[place]
