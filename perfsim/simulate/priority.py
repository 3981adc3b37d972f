"""The priority engine: one rank, streams that take the most urgent task that is ready.

It means what ``event`` means in priority order on one rank, without a process a stream: two heaps,
and no task is looked at before something has happened to it. For graphs of tens of thousands of
messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

from perfsim.simulate.graph import TaskGraph, checked_durations
from perfsim.simulate.task import Duration
from perfsim.simulate.timeline import Timeline, until_steady

__all__ = ["simulate_priority"]


def simulate_priority(
    graph: TaskGraph,
    durations: Sequence[Duration] | None = None,
    *,
    periods: int | None = None,
    max_periods: int = 64,
    tolerance: float = 1e-9,
) -> Timeline:
    """Run the graph; parameters and result are those of `simulate_events` on one rank.

    Raises
    ------
    ValueError
        If the graph or a duration is not valid, a duration is an array, or streams share a link.

    Examples
    --------
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> late = graph.add("last layers", "communication", "communicate", 2.0, after=[backward])
    >>> soon = graph.add("first layers", "communication", "communicate", 1.0, after=[backward],
    ...                  priority=1)
    >>> _ = graph.add("update", "compute", "update", 1.0, after=[late, soon])
    >>> simulate_priority(graph, periods=1).starts[0][soon]
    3.0
    """
    if graph.contended:
        raise ValueError("tasks on several streams share a link: only the event engine runs that")
    spent = checked_durations(graph, durations)
    if not all(isinstance(value, (float, int)) for value in spent):
        raise ValueError("the priority engine takes one value a task")
    run = _Run(graph, [*map(float, spent)], horizon=(periods or max_periods) + max_periods)

    def step(period: int) -> Duration:
        run.complete(period)
        return run.ends[period][graph.closing]

    def rows(periods: int) -> list[list[Duration]]:
        return run.ends[:periods]

    closes, cycle = until_steady(graph, step, rows, periods, max_periods, tolerance)
    kept = run.reach(len(closes), float(closes[-1]), max_periods)
    return Timeline(
        graph=graph,
        starts=run.starts[:kept],
        ends=run.ends[:kept],
        closes=closes,
        averaged=cycle or max(1, len(closes) // 2),
        steady=cycle > 0,
    )


class _Run:
    """The state of a run: what is ready, what is under way, and what has ended."""

    def __init__(self, graph: TaskGraph, spent: list[float], horizon: int) -> None:
        self.spent, self.horizon = spent, horizon
        self.starts: list[list[Duration]] = []
        self.ends: list[list[Duration]] = []
        self._left: list[int] = []
        self._missing: list[list[int]] = []
        names = {name: place for place, name in enumerate(graph.streams)}
        self._stream = [names[task.stream] for task in graph.tasks]
        self._rank = [-task.priority for task in graph.tasks]
        self._asked = [task.credit for task in graph.tasks]
        self._has_credit = any(self._asked)
        self._ready: list[list[tuple[int, int, int]]] = [[] for _ in names]
        self._handed: list[deque[tuple[int, int, int]]] = [deque() for _ in names]
        self._credit = [0.0] * len(names)
        self._free = [True] * len(names)
        self._touched = [False] * len(names)
        self._changed: list[int] = []
        self._under_way: list[tuple[float, int, int]] = []
        order = graph.order()
        self._dependents, self._awaited = order.dependents, order.awaited
        self._waits = order.awaited[-1]
        self._grow(order.depth - 1)
        self._now = 0.0

    def complete(self, period: int) -> None:
        """Advance the clock until every task of a period has ended."""
        self._grow(period)
        left, under_way = self._left, self._under_way
        while left[period]:
            while self._changed:
                self._start()
            if not left[period]:
                break
            self._now, period_ended, index = heappop(under_way)
            self._end(period_ended, index)
            while under_way and under_way[0][0] <= self._now:
                _, period_ended, index = heappop(under_way)
                self._end(period_ended, index)

    def reach(self, periods: int, moment: float, most: int) -> int:
        """Complete the later periods that start before ``moment``; return how many rows count."""
        kept = periods
        for period, row in enumerate(self.starts[: periods + most]):
            if min(row) < moment:
                kept = max(kept, period + 1)
        for period in range(periods, kept):
            self.complete(period)
        return kept

    def _grow(self, period: int) -> None:
        while len(self.starts) <= period:
            here, count = len(self.starts), len(self.spent)
            self.starts.append([inf] * count)
            self.ends.append([inf] * count)
            self._left.append(count)
            first = here < len(self._awaited) - 1
            self._missing.append([*self._awaited[here if first else -1]])
            for index, missing in enumerate(self._missing[here] if first else ()):
                # What never waits for anything is offered again when it is taken.
                if not missing and (here == 0 or self._waits[index]):
                    self._offer(here, index)

    def _offer(self, period: int, index: int) -> None:
        stream = self._stream[index]
        heappush(self._ready[stream], (self._rank[index], period, index))
        # A busy stream takes no task. With credit it may be handed some beforehand.
        if not self._touched[stream] and (self._free[stream] or self._has_credit):
            self._touched[stream] = True
            heappush(self._changed, stream)

    def _hand_over(self, stream: int) -> None:
        """Hand a stream what is ready, the most urgent first, as far as its credit allows."""
        ready, handed = self._ready[stream], self._handed[stream]
        while ready:
            credit = self._asked[ready[0][2]]
            if self._free[stream] and not handed:
                self._credit[stream] = 0.0
            elif credit is None or self._credit[stream] >= credit.limit:
                return
            handed.append(heappop(ready))
            self._credit[stream] += credit.size if credit else 0.0
            _, period, index = handed[-1]
            if not self._waits[index]:
                self._offer_again(period, index)

    def _offer_again(self, period: int, index: int) -> None:
        """Offer what never waits for anything once more, in the next period."""
        if period + 1 < self.horizon:
            self._grow(period + 1)
            self._offer(period + 1, index)

    def _start(self) -> None:
        """Let each free stream take a task; what takes no time ends at once.

        Streams take their turns by number. One that changes after its turn waits for the next.
        """
        now, changed, touched, free = self._now, self._changed, self._touched, self._free
        turn, behind = -1, []
        while changed:
            stream = heappop(changed)
            if stream <= turn:
                behind.append(stream)
                continue
            turn = stream
            touched[stream] = False
            if self._has_credit:
                self._hand_over(stream)
                handed = self._handed[stream]
                if not free[stream] or not handed:
                    continue
                _, period, index = handed.popleft()
            elif free[stream] and self._ready[stream]:
                _, period, index = heappop(self._ready[stream])
                if not self._waits[index]:
                    self._offer_again(period, index)
            else:
                continue
            self.starts[period][index] = now
            self.ends[period][index] = end = now + self.spent[index]
            free[stream] = False
            if end <= now:
                self._end(period, index)
            else:
                heappush(self._under_way, (end, period, index))
        if behind:
            heapify(behind)
            self._changed = behind

    def _end(self, period: int, index: int) -> None:
        stream, credit = self._stream[index], self._asked[index]
        self._free[stream] = True
        if not self._touched[stream]:
            self._touched[stream] = True
            heappush(self._changed, stream)
        if credit:
            self._credit[stream] -= credit.size
        self._left[period] -= 1
        for dependent, back in self._dependents[index]:
            later = period + back
            if back:
                if later >= self.horizon:
                    continue
                self._grow(later)
            missing = self._missing[later]
            missing[dependent] -= 1
            if not missing[dependent]:
                self._offer(later, dependent)
