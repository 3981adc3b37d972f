"""Ranks that vary by chance: the pass of ``array`` with other durations in every period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfsim.simulate.array import Run
from perfsim.simulate.graph import TaskGraph, Value, checked_durations
from perfsim.simulate.meeting import joins_all
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["UNCHANGED", "meets_all", "simulate_draws"]

UNCHANGED = -1
"""In place of a factor's number: the task takes as long on every rank in every period."""


def meets_all(graph: TaskGraph, ranks: int) -> bool:
    """Return whether all ranks wait for each other in every period."""
    if ranks == 1:
        return True
    meetings = {
        graph.tasks[index].meeting for index in graph.ancestors() if graph.tasks[index].collective
    }
    return None in meetings or joins_all(frozenset(one for one in meetings if one), ranks)


def simulate_draws(
    graph: TaskGraph,
    durations: Sequence[float],
    which: Sequence[int],
    factors: Callable[[int], Sequence[NDArray[np.float64]]],
    *,
    warm_up: int,
    counted: int,
    brief: bool = False,
) -> Timeline:
    """Run the graph with durations drawn anew in every period, and return when tasks ran.

    Parameters
    ----------
    durations : seconds, one a task
    which : by which of the factors each task is multiplied; ``UNCHANGED`` for none
    factors : period to factors, each over (draw, rank)
    warm_up : periods before those that count
    counted : periods over which means are taken
    brief : leave out when tasks ran, so that only the length of periods can be asked

    Returns
    -------
    Timeline
        With the axis of draws. In each period it shows the rank that works longest, the one that
        others wait for, and a period ends with the last rank. Where not all ranks wait
        for each other (see ``meets_all``) it shows the first rank, and a period ends when it does
        so in the mean over ranks: all advance alike in the long run, and the last one's lead over
        the mean grows only at first.

    Examples
    --------
    >>> import numpy as np
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> reduce = graph.add("reduce", "wire", "communicate", 1.0, [backward], collective=True)
    >>> _ = graph.add("update", "compute", "update", 0.0, [reduce])
    >>> slower = np.array([[1.0, 2.0], [1.5, 1.0]])  # two draws of two ranks
    >>> run = simulate_draws(graph, [3.0, 1.0, 0.0], [0, UNCHANGED, UNCHANGED],
    ...                      lambda period: [slower], warm_up=1, counted=2)
    >>> run.iteration_s.tolist()
    [7.0, 5.5]
    """
    import numpy as np

    if warm_up < 1 or counted < 1:
        raise ValueError(f"warm_up = {warm_up}, counted = {counted}; each at least 1")
    run = Run(graph, checked_durations(graph, list(durations)), ranks=True)
    run.ranks = True
    everyone = False
    work_s = [
        sum(second for second, one in zip(durations, which, strict=True) if one == number)
        for number in range(1 + max(which))
    ]
    starts: list[list[Value]] = []
    ends: list[list[Value]] = []
    closes: list[Value] = []
    draws = 0
    for period in range(warm_up + counted + (0 if brief else graph.depth + 1)):
        drawn = factors(period)
        shape = drawn[0].shape
        draws = shape[0]
        everyone = everyone or (period == 0 and meets_all(graph, shape[-1]))
        run.step(_multiplied(durations, which, drawn))
        last = np.broadcast_to(run.ends[-1][graph.closing], shape)
        if period < warm_up + counted:
            closes.append(last.max(axis=-1) if everyone else last.mean(axis=-1))
        if not brief:
            busy = [work * factor for work, factor in zip(work_s, drawn, strict=False)]
            shown = np.sum(busy, axis=0).argmax(axis=-1) if everyone else np.zeros(draws, int)
            starts.append([_of_rank(value, shape, shown) for value in run.starts[-1]])
            ends.append([_of_rank(value, shape, shown) for value in run.ends[-1]])
        run.forget()
    return Timeline(
        graph=graph,
        starts=starts,
        ends=ends,
        closes=closes,
        averaged=counted,
        steady=True,
        shape=(draws,),
    )


def _multiplied(
    durations: Sequence[float], which: Sequence[int], factors: Sequence[NDArray[np.float64]]
) -> list[Value]:
    """Return how long each task takes in a period."""
    return [
        second if one == UNCHANGED else second * factors[one]
        for second, one in zip(durations, which, strict=True)
    ]


def _of_rank(value: Value, shape: tuple[int, ...], ranks: NDArray[np.intp]) -> Value:
    """Return a moment of one rank in each draw."""
    import numpy as np

    if isinstance(value, float):
        return value
    moments: NDArray[np.float64]
    if value.shape == (shape[0], 1):
        moments = value[:, 0]
    else:
        moments = np.broadcast_to(value, shape)[np.arange(shape[0]), ranks]
    return moments
