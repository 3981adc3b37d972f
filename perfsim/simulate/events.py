"""The event engine (SimPy): for what is decided while a graph runs.

It runs streams that choose by priority, share a link with other streams, or share the network with
other jobs. Where the array engine applies too, both agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from heapq import heapify, heappush
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from simpy import Environment, Event

from perfsim.simulate.graph import TaskGraph, checked_durations
from perfsim.simulate.shared_link import SharedLink
from perfsim.simulate.task import Duration, LinkUse, Task
from perfsim.simulate.timeline import Timeline, until_steady

if TYPE_CHECKING:
    from perfsim.simulate.shared_link import CrossedLink

__all__ = [
    "EventLog",
    "Instance",
    "QueueOrder",
    "simulate_events",
    "start_by_priority",
    "start_in_issue_order",
]

QueueOrder = Literal["issue", "priority"]


def simulate_events(
    graph: TaskGraph,
    durations: Sequence[Duration] | None = None,
    *,
    ranks: bool = False,
    order: QueueOrder = "issue",
    periods: int | None = None,
    max_periods: int = 64,
    tolerance: float = 1e-9,
) -> Timeline:
    """Run the graph event by event; parameters and result are those of `simulate`.

    Parameters
    ----------
    order : "issue": a stream runs its tasks in the order of the graph. "priority": a free stream
        takes, of the tasks that are ready, the one of highest priority (ties in issue order), or
        is handed several ahead (see ``Credit``); a collective is ready when it is on every rank
        (whatever its ``scope``), and all ranks run them in the order in which the first of them
        takes one. A running task is not interrupted.

    Raises
    ------
    ValueError
        If the graph or a duration is not valid, an array has axes other than ranks, or several
        ranks share a link for what is no collective.

    Examples
    --------
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> late = graph.add("last layers", "communication", "communicate", 2.0, after=[backward])
    >>> soon = graph.add("first layers", "communication", "communicate", 1.0, after=[backward],
    ...                  priority=1)
    >>> _ = graph.add("update", "compute", "update", 1.0, after=[late, soon])
    >>> simulate_events(graph, periods=1).starts[0][soon]
    5.0
    >>> simulate_events(graph, periods=1, order="priority").starts[0][soon]
    3.0
    """
    if order not in get_args(QueueOrder):
        raise ValueError(f"order {order!r} is not one of {', '.join(get_args(QueueOrder))}")
    graph.check()
    spent, count = _by_rank(graph, checked_durations(graph, durations), ranks)
    for task in graph.tasks:
        if count > 1 and task.shares and not task.collective:
            raise ValueError(
                f"task {task.name!r}: of several ranks' tasks only collectives may share a link"
            )
    log = EventLog(graph, spent, count, horizon=(periods or max_periods) + max_periods)
    (start_in_issue_order if order == "issue" else start_by_priority)(log)

    def step(period: int) -> Duration:
        log.run_period(period)
        return max(log.ends[period][graph.closing])

    def rows(periods: int) -> list[list[Duration]]:
        return log.rows(log.ends, periods)

    settled = graph.settled_after(in_order=order == "issue") if count == 1 else 0
    closes, cycle = until_steady(
        graph, step, rows, periods, max_periods, tolerance, count > 1, settled
    )
    kept = log.reach(len(closes), cast(float, closes[-1]), max_periods)
    return Timeline(
        graph=graph,
        starts=log.rows(log.starts, kept),
        ends=log.rows(log.ends, kept),
        closes=closes,
        averaged=cycle or max(1, len(closes) // 2),
        steady=cycle > 0,
        ranks=count > 1,
    )


def _by_rank(
    graph: TaskGraph, durations: list[Duration], ranks: bool
) -> tuple[list[list[float]], int]:
    """Return ``spent[task][rank]`` and the number of ranks."""
    columns = []
    for task, value in zip(graph.tasks, durations, strict=True):
        shape = () if isinstance(value, float | int) else value.shape
        column = [float(value)] if isinstance(value, float | int) else value.ravel().tolist()
        if len(column) > 1 and not (ranks and len(column) == shape[-1]):
            raise ValueError(
                f"task {task.name!r}: the event engine takes one value a task, or with ranks=True"
                " one a rank"
            )
        columns.append(column)
    count = max(len(column) for column in columns)
    spread = [column * count if len(column) == 1 else column for column in columns]
    return [
        _together(task, column) if task.collective else column
        for task, column in zip(graph.tasks, spread, strict=True)
    ], count


def _together(task: Task, column: list[float]) -> list[float]:
    """Return how long a collective takes on each rank: as long as on the slowest it waits for."""
    if task.scope is None or len(column) == 1:
        return [max(column)] * len(column)
    import numpy as np

    return [float(seconds) for seconds in task.scope.together(np.array(column))]


Instance = tuple[int, int]
"""(period, task)."""


class EventLog:
    """The clock of a run: when each task started and ended, and the events that others wait for."""

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
        self._crossings: Mapping[int, LinkUse] = {}
        self._crossed: CrossedLink | None = None
        self._job = 0

    def cross(self, crossings: Mapping[int, LinkUse], link: CrossedLink, job: int) -> None:
        """Send some tasks over a link that other jobs use too."""
        self._crossings, self._crossed, self._job = crossings, link, job

    def run_task(self, instance: Instance, rank: int) -> Generator[Event, Any, None]:
        """Run one task on one rank, once all ranks are there if it is a collective."""
        period, index = instance
        scope = self.graph.tasks[index].scope
        if self.graph.tasks[index].collective and self.count > 1 and scope is not None:
            self._arrival(instance, rank).succeed()
            for one in scope.partners(rank, self.count, period):
                yield self._arrival(instance, one)
        elif self.graph.tasks[index].collective and self.count > 1:
            waiting, all_there = self._arrived.setdefault(instance, ([], self.env.event()))
            waiting.append(rank)
            if len(waiting) == self.count:
                all_there.succeed()
                del self._arrived[instance]
            yield all_there
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
        """Return the event that one rank has arrived at a collective."""
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

    def rows(self, moments: list[list[list[float]]], periods: int) -> list[list[Duration]]:
        """Return the first ``periods`` rows as a Timeline keeps them."""
        if self.count == 1:
            return [[ranks[0] for ranks in row] for row in moments[:periods]]
        import numpy as np

        return [[np.array(ranks) for ranks in row] for row in moments[:periods]]


StreamPlace = tuple[str, int]
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
    dispatcher = _Dispatcher(log)
    for stream, rank in product(log.graph.streams, range(log.count)):
        log.env.process(dispatcher.hand_over((stream, rank)))
        log.env.process(dispatcher.serve((stream, rank)))


class _Settled(Event):
    """Comes after all other events of the same moment (SimPy's own have urgency 0 and 1)."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=2)  # type: ignore[arg-type]


class _Dispatcher:
    """Hands ready tasks to streams, and keeps collectives in one order on all ranks."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.tasks = log, log.graph.tasks
        places = list(product(log.graph.streams, range(log.count)))
        self._ready: dict[StreamPlace, list[tuple[int, Instance]]] = {place: [] for place in places}
        self._wake: dict[StreamPlace, Event] = {}
        self._handed: dict[StreamPlace, deque[Instance]] = {place: deque() for place in places}
        self._idle: dict[StreamPlace, Event] = {}
        # Tasks handed over that have not ended, and the sum of their sizes.
        self._under_way = {place: [0, 0.0] for place in places}
        self._agreed: dict[str, list[Instance]] = {name: [] for name in log.graph.streams}
        self._kept = dict.fromkeys(places, 0)
        self._arrived: dict[Instance, int] = {}
        self._missing: dict[tuple[Instance, int], int] = {}
        self._dependents: list[list[tuple[int, int]]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            for other, back in set(task.after):
                self._dependents[other].append((index, back))
        for period, index, rank in product(
            range(log.horizon), range(len(self.tasks)), range(log.count)
        ):
            missing = sum(back <= period for _, back in set(self.tasks[index].after))
            self._missing[(period, index), rank] = missing
            if not missing:
                self._offer((period, index), rank)

    def hand_over(self, place: StreamPlace) -> Generator[Event, Any, None]:
        """Give one stream on one rank what is ready, the most urgent first, as credit allows."""
        while True:
            yield _Settled(self.log.env)
            while (instance := self._next(place)) is not None:
                self._handed[place].append(instance)
                _called(self._idle, place)
            self._wake[place] = self.log.env.event()
            yield self._wake[place]

    def serve(self, place: StreamPlace) -> Generator[Event, Any, None]:
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
            for dependent, back in self._dependents[index]:
                self._release((period + back, dependent), rank)
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

    def _count(self, place: StreamPlace, index: int, sign: int) -> None:
        credit = self.tasks[index].credit
        under_way = self._under_way[place]
        under_way[0] += sign
        under_way[1] += sign * credit.size if credit else 0.0
        if not under_way[0]:
            under_way[1] = 0.0  # whatever adding and taking away has left over

    def _next(self, place: StreamPlace) -> Instance | None:
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


def _called(waiting: dict[StreamPlace, Event], place: StreamPlace) -> None:
    """Wake up who waits at a place, if anyone does."""
    if place in waiting:
        waiting.pop(place).succeed()
