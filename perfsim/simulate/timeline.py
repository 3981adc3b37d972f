"""When every task started and ended, and where the time of an iteration went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from perfsim.simulate.attribution import attribute, communication_s
from perfsim.simulate.graph import COMPUTE, TaskGraph, Value

__all__ = ["Timeline"]


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
    steady : whether the run had settled, so that the mean holds for ever
    shape : the axes (scenario, draw) of the arrays; () for floats
    ranks : whether the last axis of ``starts`` and ``ends`` is ranks
    """

    graph: TaskGraph
    starts: list[list[Value]]
    ends: list[list[Value]]
    closes: list[Value]
    averaged: int
    steady: bool
    shape: tuple[int, ...] = ()
    ranks: bool = False

    @property
    def periods(self) -> int:
        """Periods counted."""
        return len(self.closes)

    @property
    def window(self) -> tuple[Value, Value]:
        """Start and end of the periods over which means are taken [s]."""
        before = self.periods - self.averaged - 1
        return self.closes[before] if before >= 0 else 0.0, self.closes[-1]

    @property
    def period_s(self) -> Value:
        """Mean length of a period [s]."""
        start, end = self.window
        return (end - start) / self.averaged

    @property
    def mean_period_s(self) -> float:
        """Mean length of a period over all scenarios and draws [s]."""
        length = self.period_s
        return float(length) if isinstance(length, float | int) else float(length.mean())

    @property
    def iteration_s(self) -> Value:
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
        closes: list[Value] = [_element(value, self.shape, place) for value in self.closes]
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

    def _last_rank(self, shape: tuple[int, ...], place: tuple[int, ...]) -> int:
        period = self.periods - 1

        def merit(rank: int) -> tuple[float, float]:
            here = (*place, rank)
            busy = sum(
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
                    yield task, max(float(start), low), min(float(end), high)

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
        window_s = float(self._floats().period_s) * self.averaged
        parts = attribute(self._kinds, window_s)
        total = self.averaged * self.graph.iterations
        return {key: seconds / total for key, seconds in parts.items()}

    def communication(self) -> dict[str, float]:
        """Return how long an iteration communicates [s], and how much of it computation hides.

        ``busy_s``: any communicate task runs; ``hidden_s``: the compute stream works meanwhile.
        """
        busy_s, hidden_s = communication_s(self._kinds)
        total = self.averaged * self.graph.iterations
        return {"busy_s": busy_s / total, "hidden_s": hidden_s / total}

    @cached_property
    def _kinds(self) -> list[tuple[bool, str, float, float]]:
        told = [(task.stream == COMPUTE, task.kind) for task in self.graph.tasks]
        return [(*told[index], start, end) for index, start, end in self.intervals()]

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
