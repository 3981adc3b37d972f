"""The critical path of the steady iteration: the tasks that a period's length is made of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from perfsim.simulate.timeline import Timeline

__all__ = ["WAITING", "Step", "critical_path", "one_run", "periods_shown"]

WAITING = "waiting"
"""Kind of a stretch in which no task of this worker runs on the path."""

ROUNDING = 1e-12
"""Two moments nearer to each other than this share of the later one are the same."""


@dataclass(frozen=True, slots=True)
class Step:
    """One task on the critical path, from the start of the iterations that the path covers."""

    task: str
    stream: str
    kind: str
    start_s: float
    end_s: float


def critical_path(timeline: Timeline) -> list[Step]:
    """Return what the last steady period waited for, in order; the steps leave no gap.

    From the end of the period back: each task began when the last of what it waits for ended,
    which is a dependency or the task before it on its stream. A run that repeats every q periods
    (or means over q) has the path of all q; one that does not settle that of its last period.
    With ranks it is the path of the rank that ends last, and what no task of that rank explains
    is a step of kind "waiting"; with draws it is that of the last period of one (see ``one_run``).

    Examples
    --------
    >>> from perfsim.simulate.array import simulate
    >>> from perfsim.simulate.graph import TaskGraph
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> reduce = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> _ = graph.add("update", "compute", "update", 1.0, after=[reduce])
    >>> [(step.task, step.start_s, step.end_s) for step in critical_path(simulate(graph))]
    [('backward', 0.0, 3.0), ('all_reduce', 3.0, 5.0), ('update', 5.0, 6.0)]
    """
    cycle = periods_shown(timeline)
    timeline = one_run(timeline)
    before = timeline.periods - cycle - 1
    low = float(cast(float, timeline.closes[before])) if before >= 0 else 0.0
    moment = float(cast(float, timeline.closes[-1]))
    near = ROUNDING * moment
    tasks = timeline.graph.tasks
    ahead = _before_on_stream(timeline)
    place: tuple[int, int] | None = (timeline.periods - 1, timeline.graph.closing)
    steps: list[Step] = []

    def add(task: str, stream: str, kind: str, start: float) -> None:
        steps.append(Step(task, stream, kind, max(start, low) - low, moment - low))

    while place is not None and moment > low + near:
        period, index = place
        start, end = _moments(timeline, place)
        if end < moment - near:
            add(WAITING, "", WAITING, end)
            moment = end
            continue
        task = tasks[index]
        if moment - start > near:
            add(task.name, task.stream, task.kind, start)
            moment = start
        waits = [(period - back, other) for other, back in task.after if back <= period]
        waits += [ahead[place]] if place in ahead else []
        place = max(waits, key=lambda one: (_moments(timeline, one)[1], one), default=None)
    if moment > low + near:
        add(WAITING, "", WAITING, low)
    return steps[::-1]


def periods_shown(timeline: Timeline) -> int:
    """Return how many periods a critical path covers."""
    return timeline.averaged if timeline.steady and not timeline.shape else 1


def one_run(timeline: Timeline) -> Timeline:
    """Return the run of one worker: the rank that ends last, the draw nearest to the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from perfsim.simulate.array import simulate
    >>> from perfsim.simulate.graph import TaskGraph
    >>> graph = TaskGraph()
    >>> _ = graph.add("backward", "compute", "backward", np.array([1.0, 2.0, 6.0]))
    >>> one_run(simulate(graph)).iteration_s
    2.0
    """
    if not timeline.shape:
        return timeline.select() if timeline.ranks else timeline
    import numpy as np

    lengths = np.broadcast_to(np.asarray(timeline.period_s), timeline.shape)
    nearest = int(np.abs(lengths - lengths.mean()).argmin())
    return timeline.select(tuple(int(at) for at in np.unravel_index(nearest, timeline.shape)))


def _moments(timeline: Timeline, place: tuple[int, int]) -> tuple[float, float]:
    """Return when the task of a period starts and ends [s]."""
    period, index = place
    start, end = timeline.starts[period][index], timeline.ends[period][index]
    return float(cast(float, start)), float(cast(float, end))


def _before_on_stream(timeline: Timeline) -> dict[tuple[int, int], tuple[int, int]]:
    """Return, for the task of a period, what its stream ran before it (in the order of the run)."""
    runs: dict[str, list[tuple[float, float, int, int]]] = {}
    for period in range(len(timeline.starts)):
        for index, task in enumerate(timeline.graph.tasks):
            start, end = _moments(timeline, (period, index))
            runs.setdefault(task.stream, []).append((start, end, period, index))
    found = {}
    for ran in runs.values():
        ran.sort()
        for one, other in pairwise(ran):
            found[other[2:]] = one[2:]
    return found
