"""The priority engine: one rank, streams that take the most urgent task that is ready.

It means what ``event`` means in priority order on one rank, without a process a stream: two heaps,
no task is looked at before something has happened to it, and tasks that run back to back are
started as one. For graphs of tens of thousands of messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import inf
from typing import Any

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
    brief: bool = False,
) -> Timeline:
    """Run the graph; parameters and result are those of `simulate_events` on one rank.

    ``brief`` runs no periods after the last that counts: only the length of periods can be asked.

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
    given = checked_durations(graph, durations)
    spent: list[Any] = given
    if not {float}.issuperset(map(type, given)):
        if not all(isinstance(value, (float, int)) for value in given):
            raise ValueError("the priority engine takes one value a task")
        spent = [*map(float, given)]
    run = _Run(graph, spent, horizon=(periods or max_periods) + max_periods)

    def step(period: int) -> Duration:
        run.complete(period)
        return run.closes[period]

    def rows(periods: int) -> list[list[Duration]]:
        return run.rows()[1][:periods]

    settled = graph.settled_after(in_order=False)
    closes, cycle = until_steady(
        graph, step, rows, periods, max_periods, tolerance, settled_after=settled
    )
    kept = 0 if brief else run.reach(len(closes), float(closes[-1]), max_periods)
    starts, ends = run.rows() if kept else ([], [])
    return Timeline(
        graph=graph,
        starts=starts[:kept],
        ends=ends[:kept],
        closes=closes,
        averaged=cycle or max(1, len(closes) // 2),
        steady=cycle > 0,
    )


_UnderWay = tuple[int, int, int, list[float]]
"""A burst that a stream has under way: its period, which one, the first of its tasks that are left,
and when that starts and each that is left ends."""


class _Run:
    """The state of a run: what is ready, what is under way, and what has ended.

    What is offered, handed over and started are bursts (`perfsim.simulate.bursts.Bursts`), most of
    one task. A more urgent one takes a stream at the end of the task that runs then.

    ``closes`` has, by period, the end of the task that closes it.
    """

    def __init__(self, graph: TaskGraph, spent: list[float], horizon: int) -> None:
        self.spent, self.horizon = spent, horizon
        self.closes: dict[int, float] = {}
        self._closing = graph.closing
        # What ran back to back: period, first task, when that starts and when each ends.
        self._log: list[tuple[int, int, list[float]]] = []
        self._starts: list[list[Duration]] = []
        self._ends: list[list[Duration]] = []
        self._left: list[int] = []
        self._missing: list[list[int]] = []
        bursts = graph.order().bursts
        if 0.0 in spent and not all(map(spent.__getitem__, bursts.inside)):
            # What takes no time ends in its stream's turn: by itself, not in a burst.
            bursts = graph.order().single_bursts
        self._first, self._dependents, self._several = (
            bursts.first,
            bursts.dependents,
            bursts.several,
        )
        self._stream, self._rank, self._asked = bursts.stream, bursts.rank, bursts.credit
        self._has_credit = any(self._asked)
        count = len(bursts.streams)
        self._ready: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
        self._handed: list[deque[tuple[int, int, int]]] = [deque() for _ in range(count)]
        self._credit = [0.0] * count
        self._free = [True] * count
        self._changed = 0  # a bit for each stream that something has happened to
        self._ending: list[tuple[float, int, int]] = []
        self._bursting: list[_UnderWay | None] = [None] * count
        # At which of its ends a stream is free: the last, or earlier for a more urgent task.
        self._until = [0] * count
        self._done: dict[tuple[int, int], int] = {}
        self._awaited, self._waits = bursts.awaited, bursts.awaited[-1]
        self._grow(len(self._awaited) - 2)
        self._now, self._turn = 0.0, -1

    def complete(self, period: int) -> None:
        """Advance the clock until every task of a period has ended."""
        self._grow(period)
        left, ending = self._left, self._ending
        while left[period]:
            while self._changed:
                self._start()
            if not left[period]:
                break
            self._now, period_ended, burst = heappop(ending)
            self._turn = -1
            self._end(period_ended, burst)
            while ending and ending[0][0] <= self._now:
                _, period_ended, burst = heappop(ending)
                self._end(period_ended, burst)

    def rows(self) -> tuple[list[list[Duration]], list[list[Duration]]]:
        """Return when tasks started and ended, a row a period; infinity where they have not yet."""
        started = filter(None, self._bursting)
        under_way = [(period, begin, [ends[0], inf]) for period, _, begin, ends in started]
        for period, begin, moments in (*self._log, *under_way):
            while len(self._starts) <= period:
                self._starts.append([inf] * len(self.spent))
                self._ends.append([inf] * len(self.spent))
            end = begin + len(moments) - 1
            self._starts[period][begin:end] = moments[:-1]
            self._ends[period][begin:end] = moments[1:]
        self._log.clear()
        return self._starts, self._ends

    def reach(self, periods: int, moment: float, most: int) -> int:
        """Complete the later periods that start before ``moment``; return how many rows count."""
        kept = periods
        for period, row in enumerate(self.rows()[0][: periods + most]):
            if min(row) < moment:
                kept = max(kept, period + 1)
        for period in range(periods, kept):
            self.complete(period)
        return kept

    def _grow(self, period: int) -> None:
        while len(self._left) <= period:
            here = len(self._left)
            self._left.append(len(self.spent))
            first = here < len(self._awaited) - 1
            self._missing.append([*self._awaited[here if first else -1]])
            for burst, missing in enumerate(self._missing[here] if first else ()):
                # What never waits for anything is offered again when it is taken.
                if not missing and (here == 0 or self._waits[burst]):
                    self._offer(here, burst)

    def _offer(self, period: int, burst: int) -> None:
        stream = self._stream[burst]
        offered = self._rank[burst], period, burst
        heappush(self._ready[stream], offered)
        # A busy stream takes no task. With credit it may be handed some beforehand.
        if self._free[stream] or self._has_credit:
            self._changed |= 1 << stream
        under_way = self._bursting[stream]
        if under_way is not None:
            period, burst, _, _ = under_way
            if offered < (self._rank[burst], period, burst):
                self._interrupt(stream, under_way)

    def _interrupt(self, stream: int, under_way: _UnderWay) -> None:
        """Let a burst give way at the end of the task of it that runs now."""
        period, burst, _, ends = under_way
        if self._until[stream] < len(ends) - 1:
            return
        # A task that ends now is followed by the next one in its stream's turn.
        until = (bisect_left if self._turn < stream else bisect_right)(ends, self._now)
        if until < len(ends) - 1:
            self._until[stream] = until
            if ends[until] > self._now:
                heappush(self._ending, (ends[until], period, burst))
            else:
                self._end(period, burst)

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
            _, period, burst = handed[-1]
            if not self._waits[burst]:
                self._offer_again(period, burst)

    def _offer_again(self, period: int, burst: int) -> None:
        """Offer what never waits for anything once more, in the next period."""
        if period + 1 < self.horizon:
            self._grow(period + 1)
            self._offer(period + 1, burst)

    def _start(self) -> None:
        """Let each free stream take a task; what takes no time ends at once.

        Streams take their turns by number. One that changes after its turn waits for the next.
        """
        now, free = self._now, self._free
        turn = -1
        while left := self._changed >> (turn + 1):
            turn += (left & -left).bit_length()
            stream = turn
            self._changed ^= 1 << stream
            if turn > self._turn:  # noqa: PLR1730 (half the time of max())
                self._turn = turn
            if self._has_credit:
                self._hand_over(stream)
                handed = self._handed[stream]
                if not free[stream] or not handed:
                    continue
                _, period, burst = handed.popleft()
            elif free[stream] and self._ready[stream]:
                _, period, burst = heappop(self._ready[stream])
                if not self._waits[burst]:
                    self._offer_again(period, burst)
            else:
                continue
            free[stream] = False
            index = self._first[burst]
            if self._several[burst]:
                end = self._start_burst(stream, period, burst)
            else:
                end = now + self.spent[index]
                self._log.append((period, index, [now, end]))
                if index == self._closing:
                    self.closes[period] = end
            if end <= now:
                self._end(period, burst)
            else:
                heappush(self._ending, (end, period, burst))
        # Whatever ends from here on at this moment finds that all streams have had a turn.
        self._turn = len(free)

    def _start_burst(self, stream: int, period: int, burst: int) -> float:
        """Start what is left of a burst, and return when it ends if nothing comes between."""
        begin = self._first[burst]
        if self._done:
            begin += self._done.pop((period, burst), 0)
        spent = self.spent[begin : self._first[burst + 1]]
        ends = [*accumulate(spent, initial=self._now)]
        self._bursting[stream] = period, burst, begin, ends
        self._until[stream] = len(spent)
        return ends[-1]

    def _end(self, period: int, burst: int) -> None:
        stream, credit = self._stream[burst], self._asked[burst]
        count, interrupted = 1, False
        if self._several[burst]:
            under_way = self._bursting[stream]
            count = self._until[stream]
            if (
                under_way is None
                or under_way[:2] != (period, burst)
                or under_way[3][count] != self._now
            ):
                return  # it gave way before, so that its end comes later
            interrupted = self._end_burst(stream, under_way)
        self._free[stream] = True
        self._changed |= 1 << stream
        if credit:
            self._credit[stream] -= credit.size
        self._left[period] -= count
        if interrupted:
            return
        for dependent, back, times in self._dependents[burst]:
            later = period + back
            if back:
                if later >= self.horizon:
                    continue
                self._grow(later)
            missing = self._missing[later]
            missing[dependent] -= times
            if not missing[dependent]:
                self._offer(later, dependent)

    def _end_burst(self, stream: int, under_way: _UnderWay) -> bool:
        """Note when tasks of a burst ran, offer what is left of it, and tell whether any is."""
        period, burst, begin, ends = under_way
        count = self._until[stream]
        del ends[count + 1 :]
        self._log.append((period, begin, ends))
        if begin <= self._closing < begin + count:
            self.closes[period] = ends[self._closing - begin + 1]
        self._bursting[stream] = None
        left = begin + count < self._first[burst + 1]
        if left:
            self._done[period, burst] = begin + count - self._first[burst]
            heappush(self._ready[stream], (self._rank[burst], period, burst))
        return left
