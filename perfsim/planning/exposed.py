"""Exposed communication by bucket: whose message was on the wire while computation stood still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfsim.plan import Plan
from perfsim.simulate.graph import COMPUTE
from perfsim.simulate.timeline import Timeline

__all__ = ["Exposed", "exposed"]

KERNELS = ("compress", "decompress", "second_order")


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

    ``exposed_s`` of all sums to the prediction's ``communication_exposed``.
    """
    total = sum(plan.iterations for plan in plans)
    found = []
    for number, (plan, timeline) in enumerate(zip(plans, timelines, strict=True)):
        one = timeline.select() if timeline.ranks else timeline
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
    marks: list[tuple[float, int, float, int, str]] = []
    for index, start, end in timeline.intervals():
        task = tasks[index]
        what, _, job = task.name.partition(" ")
        computes = task.kind in KERNELS or task.stream == COMPUTE
        if task.kind == "communicate":
            busy[job] = busy.get(job, 0.0) + end - start
            words.setdefault(job, []).append(what)
        elif task.kind in KERNELS:
            kernels[job] = kernels.get(job, 0.0) + end - start
        if end > start and (computes or task.kind == "communicate"):
            kind = "" if computes and task.kind != "communicate" else job
            marks += [(start, 1, start, index, kind), (end, 0, start, index, kind)]
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


def _shown(marks: list[tuple[float, int, float, int, str]]) -> dict[str, float]:
    """Return the time in which nothing but a job's message runs [s], by job.

    Marks are (moment, whether it starts, when it started, task, job; "" for computation).
    """
    found: dict[str, float] = {}
    running: set[tuple[float, int, str]] = set()
    computing, before = 0, 0.0
    for moment, starts, start, index, job in sorted(marks):
        if moment > before and running and not computing:
            first = min(running)[2]
            found[first] = found.get(first, 0.0) + moment - before
        before = moment
        if not job:
            computing += 1 if starts else -1
        elif starts:
            running.add((start, index, job))
        else:
            running.discard((start, index, job))
    return found
