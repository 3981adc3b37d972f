"""In which order a stream runs its tasks: as issued, or by priority among the ready ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from heapq import heapify, heappush
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
        log.env.process(desk.hand_over((stream, rank)))
        log.env.process(desk.serve((stream, rank)))


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
        self._handed: dict[Place, deque[Instance]] = {place: deque() for place in places}
        self._idle: dict[Place, Event] = {}
        # Tasks handed over that have not ended, and the sum of their sizes.
        self._under_way = {place: [0, 0.0] for place in places}
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

    def hand_over(self, place: Place) -> Generator[Event, Any, None]:
        """Give one stream on one rank what is ready, the most urgent first, as credit allows."""
        while True:
            yield _Settled(self.log.env)
            while (instance := self._next(place)) is not None:
                self._handed[place].append(instance)
                _called(self._idle, place)
            self._wake[place] = self.log.env.event()
            yield self._wake[place]

    def serve(self, place: Place) -> Generator[Event, Any, None]:
        """Run what one stream on one rank is handed, in that order."""
        stream, rank = place
        share = sum(task.stream == stream for task in self.tasks)
        for _ in range(share * self.log.horizon):
            if not self._handed[place]:
                self._idle[place] = self.log.env.event()
                yield self._idle[place]
            instance = self._handed[place].popleft()
            yield from self.log.run_task(instance, rank)
            period, index = instance
            self._count(place, index, -1)
            for heir, back in self._heirs[index]:
                self._release((period + back, heir), rank)
            _called(self._wake, place)

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
            _called(self._wake, place)

    def _count(self, place: Place, index: int, sign: int) -> None:
        credit = self.tasks[index].credit
        under_way = self._under_way[place]
        under_way[0] += sign
        under_way[1] += sign * credit.size if credit else 0.0
        if not under_way[0]:
            under_way[1] = 0.0  # whatever adding and taking away has left over

    def _next(self, place: Place) -> Instance | None:
        """Take what is handed over next, if the stream's credit allows it."""
        ready, agreed = self._ready[place], self._agreed[place[0]]
        follows = self._kept[place] < len(agreed)
        if not follows and not ready:
            return None
        instance = agreed[self._kept[place]] if follows else ready[0][1]
        task = self.tasks[instance[1]]
        tasks, size = self._under_way[place]
        if tasks and (task.credit is None or size >= task.credit.limit):
            return None
        ready.remove((-task.priority, instance))
        heapify(ready)
        if task.collective:
            self._kept[place] += 1
            if not follows:
                agreed.append(instance)
        self._count(place, instance[1], 1)
        return instance


def _called(waiting: dict[Place, Event], place: Place) -> None:
    """Wake up who waits at a place, if anyone does."""
    if place in waiting:
        waiting.pop(place).succeed()
