"""The event engine: the same graph on SimPy, for what is decided while it runs.

One process per stream and rank. In issue order it means exactly what ``array`` means; in
priority order a free stream chooses among the tasks that are ready. Tasks that share a link
(`perfsim.simulate.sharing`) slow each other down while they are on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

from perfsim.simulate.graph import Task, TaskGraph, Value, checked_durations
from perfsim.simulate.steady import until_steady
from perfsim.simulate.timeline import Timeline

__all__ = ["Order", "simulate_events"]

Order = Literal["issue", "priority"]


def simulate_events(
    graph: TaskGraph,
    durations: Sequence[Value] | None = None,
    *,
    ranks: bool = False,
    order: Order = "issue",
    periods: int | None = None,
    max_periods: int = 64,
    tolerance: float = 1e-9,
) -> Timeline:
    """Run the graph event by event; arguments and result as ``simulate``'s.

    Parameters
    ----------
    order : "issue": a stream runs its tasks in the order of the graph. "priority": a free stream
        takes, of the tasks that are ready, the one of highest priority (ties in issue order), or
        is handed several ahead (see ``Credit``); a collective is ready when it is on every rank
        (whatever its ``meeting``), and all ranks run them in the order in which the first of them
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
    from perfsim.simulate.event_log import EventLog
    from perfsim.simulate.stream_order import start_by_priority, start_in_issue_order

    if order not in get_args(Order):
        raise ValueError(f"order {order!r} is not one of {', '.join(get_args(Order))}")
    graph.check()
    spent, count = _by_rank(graph, checked_durations(graph, durations), ranks)
    for task in graph.tasks:
        if count > 1 and task.shares and not task.collective:
            raise ValueError(
                f"task {task.name!r}: of several ranks' tasks only collectives may share a link"
            )
    log = EventLog(graph, spent, count, horizon=(periods or max_periods) + max_periods)
    (start_in_issue_order if order == "issue" else start_by_priority)(log)

    def step(period: int) -> Value:
        log.run_period(period)
        return max(log.ends[period][graph.closing])

    def rows(periods: int) -> list[list[Value]]:
        return log.rows(log.ends, periods)

    closes, cycle = until_steady(graph, step, rows, periods, max_periods, tolerance, count > 1)
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
    graph: TaskGraph, durations: list[Value], ranks: bool
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
    """Return how long a collective takes on each rank: as long as on the slowest that it meets."""
    if task.meeting is None or len(column) == 1:
        return [max(column)] * len(column)
    import numpy as np

    return [float(seconds) for seconds in task.meeting.together(np.array(column))]
