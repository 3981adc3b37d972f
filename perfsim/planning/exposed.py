"""Exposed communication by bucket: whose message was on the wire while computation stood still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfsim.plan import Plan
from perfsim.planning.critical_path import one_run
from perfsim.simulate.graph import COMPUTE, Task
from perfsim.simulate.timeline import Timeline

__all__ = ["Exposed", "exposed"]

KERNELS = ("compress", "decompress", "second_order")

Run = tuple[int, float, int, str]
"""A task that runs: level, start [s], index in the graph, job."""

Mark = tuple[float, int, Run]
"""When a run starts (1) or ends (0) [s]."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """What one bucket (or other job of a method) takes in an iteration, on average [s].

    ``bucket`` is "iteration.name" as a timeline shows it, ``round`` which of the method's rounds
    it belongs to. ``busy_s`` counts its messages one by one, ``exposed_s`` only instants in which
    nothing is computed; an instant belongs to the message that began first.
    """

    round: int
    bucket: str
    collectives: str
    busy_s: float
    exposed_s: float
    kernels_s: float


def exposed(plans: Sequence[Plan], timelines: Sequence[Timeline]) -> list[Exposed]:
    """Return the buckets in the order in which they are sent.

    ``exposed_s`` of all sums to the prediction's ``communication_exposed``; where ranks vary by
    chance, to that of one draw (see ``one_run``).
    """
    total = sum(plan.iterations for plan in plans)
    found = []
    for number, (plan, timeline) in enumerate(zip(plans, timelines, strict=True)):
        one = one_run(timeline)
        share = plan.iterations / total / (one.averaged * one.graph.iterations)
        for row in _of_round(one, number):
            found.append(
                replace(
                    row,
                    busy_s=row.busy_s * share,
                    exposed_s=row.exposed_s * share,
                    kernels_s=row.kernels_s * share,
                )
            )
    return found


def _of_round(timeline: Timeline, number: int) -> list[Exposed]:
    """Return the rows of a round, summed over the window [s]."""
    tasks = timeline.graph.tasks
    busy: dict[str, float] = {}
    kernels: dict[str, float] = {}
    words: dict[str, list[str]] = {}
    marks: list[Mark] = []
    for index, start, end in timeline.intervals():
        task = tasks[index]
        what, _, job = task.name.partition(" ")
        if task.kind == "communicate":
            busy[job] = busy.get(job, 0.0) + end - start
            words.setdefault(job, []).append(what)
        elif task.kind in KERNELS:
            kernels[job] = kernels.get(job, 0.0) + end - start
        level = _level(task)
        if end > start and level is not None:
            run = (level, start, index, job)
            marks += [(start, 1, run), (end, 0, run)]
    shown = _shown(marks)
    return [
        Exposed(
            number,
            job,
            " + ".join(dict.fromkeys(words[job])),
            busy[job],
            shown.get(job, 0.0),
            kernels.get(job, 0.0),
        )
        for job in busy
    ]


def _level(task: Task) -> int | None:
    """Return which of several tasks that run at once an instant belongs to, the least first.

    As in a prediction's breakdown: computation, then kernels on other streams, then messages. The
    levels of messages are odd.
    """
    if task.stream == COMPUTE:
        return 1 if task.kind == "communicate" else 0
    if task.kind == "communicate":
        return 3
    return 2 if task.kind in KERNELS else None


def _shown(marks: list[Mark]) -> dict[str, float]:
    """Return the time in which an instant belongs to a job's message [s], by job."""
    found: dict[str, float] = {}
    running: set[Run] = set()
    before = 0.0
    for moment, starts, run in sorted(marks):
        if moment > before and running:
            level, _, _, job = min(running)
            if level % 2:
                found[job] = found.get(job, 0.0) + moment - before
        before = moment
        if starts:
            running.add(run)
        else:
            running.discard(run)
    return found
