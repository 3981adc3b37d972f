"""Closed forms that both engines are held against: bounds on a run, and exact answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from perfsim.simulate.graph import TaskGraph, checked_durations
from perfsim.simulate.task import Duration
from perfsim.sums import sum_in_order

__all__ = ["busiest_stream_s", "makespan_bounds_s", "steady_period_s", "wait_free_chain"]


def wait_free_chain(ready_s: Sequence[float], durations_s: Sequence[float]) -> float:
    """Return when a stream that runs messages in order has sent the last one.

    end_i = max(ready_i, end_(i-1)) + t_i, with end_0 = 0.

    Parameters
    ----------
    ready_s : when each message may start [s]
    durations_s : how long each takes (t_i) [s]

    Returns
    -------
    float
        End of the last message [s].

    Examples
    --------
    >>> wait_free_chain([1.0, 2.0], [3.0, 1.0])
    5.0

    References
    ----------
    Shi, Chu & Li, MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
    Algorithms, INFOCOM 2019: the recurrence for the start tau_c of a layer's communication.
    """
    end_s = 0.0
    for ready, duration in zip(ready_s, durations_s, strict=True):
        end_s = max(ready, end_s) + duration
    return end_s


def makespan_bounds_s(
    graph: TaskGraph, periods: int, durations: Sequence[Duration] | None = None
) -> tuple[float, float]:
    """Return a lower and an upper bound on the end of the last of ``periods`` periods [s].

    Lower: the longest chain of dependencies, or the work of the busiest stream. Upper: all work
    one after another. One worker, durations as floats.

    Examples
    --------
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> _ = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> makespan_bounds_s(graph, periods=2)
    (6.0, 10.0)
    """
    graph.check()
    spent = _floats(graph, durations)
    width = len(spent)
    ends: list[float] = []
    for period in range(periods):
        for index, task in enumerate(graph.tasks):
            start = max(
                (
                    ends[(period - back) * width + other]
                    for other, back in task.after
                    if back <= period
                ),
                default=0.0,
            )
            ends.append(start + spent[index])
    load = max(
        sum_in_order(
            one for one, task in zip(spent, graph.tasks, strict=True) if task.stream == name
        )
        for name in graph.streams
    )
    return max(*ends, periods * load), periods * sum_in_order(spent)


def busiest_stream_s(graph: TaskGraph, durations: Sequence[Duration] | None = None) -> float:
    """Return the work a period of the busiest stream that can delay a period's end [s].

    No steady period is shorter. One worker, durations as floats.

    Examples
    --------
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> _ = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> busiest_stream_s(graph)
    3.0
    """
    spent = _floats(graph, durations)
    loads: dict[str, float] = {}
    for index in sorted(graph.ancestors()):
        stream = graph.tasks[index].stream
        loads[stream] = loads.get(stream, 0.0) + spent[index]
    return max(loads.values())


def steady_period_s(graph: TaskGraph, durations: Sequence[Duration] | None = None) -> float:
    """Return the exact mean length of a period in the long run, in issue order [s].

    The largest, over all cycles of what tasks wait for (dependencies and stream order), of the
    work on the cycle over the periods that the cycle points back. One worker, floats.

    Parameters
    ----------
    graph : the template
    durations : seconds, one a task, in place of the tasks' own

    Raises
    ------
    ValueError
        If streams share a link.

    Notes
    -----
    Starts from the busiest stream and moves to a better cycle while Bellman and Ford's
    relaxation finds one: work of one round is tasks x dependencies.

    Examples
    --------
    Two streams of 3 s and 2 s in a ring that closes once a period:

    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0, after=[(1, 1)])
    >>> _ = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> steady_period_s(graph)
    5.0

    With a delay of one period more, the busiest stream alone counts:

    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0, after=[(1, 2)])
    >>> _ = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> steady_period_s(graph)
    3.0

    References
    ----------
    Baccelli, Cohen, Olsder & Quadrat, Synchronization and Linearity, 1992, section 3.2 (the
    largest cycle mean is the eigenvalue in (max, +)).
    """
    if graph.contended:
        raise ValueError("tasks on several streams share a link: no closed form")
    spent = _floats(graph, durations)
    ratio = busiest_stream_s(graph, durations)
    while True:
        cycle = _better_cycle(graph, spent, ratio)
        if not cycle:
            return ratio
        found = sum_in_order(spent[index] for index, _ in cycle) / sum_in_order(
            back for _, back in cycle
        )
        if found <= ratio:
            return ratio
        ratio = found


def _better_cycle(graph: TaskGraph, spent: list[float], ratio: float) -> list[tuple[int, int]]:
    """Return a cycle of (task, periods back to the one it waits for) above ``ratio``, or []."""
    waits = graph.waits()
    members = sorted(graph.ancestors())
    noise = 1e-14 * sum_in_order(spent[index] for index in members)
    height = dict.fromkeys(members, 0.0)
    via: dict[int, tuple[int, int]] = {}
    risen = -1
    for _ in range(len(members) + 1):
        risen = -1
        for index in members:
            for other, back in waits[index]:
                level = height[other] + spent[index] - ratio * back
                if level > height[index] + noise:
                    height[index], via[index], risen = level, (other, back), index
        if risen < 0:
            return []
    for _ in members:
        risen = via[risen][0]
    cycle = [(risen, via[risen][1])]
    while via[cycle[-1][0]][0] != risen:
        step = via[cycle[-1][0]][0]
        cycle.append((step, via[step][1]))
    return cycle


def _floats(graph: TaskGraph, durations: Sequence[Duration] | None) -> list[float]:
    return [float(cast(float, value)) for value in checked_durations(graph, durations)]
