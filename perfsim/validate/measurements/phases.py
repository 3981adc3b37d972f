"""Phases of second-order methods, by leaving parts out, as the measurements were made.

Published breakdowns come from runs of the same code with parts excluded (shyhuai/kfac_pytorch
@1dacea76, ``exclude_parts``; preconditioning is never excluded, so that it counts with building
the factors): a phase is what an iteration takes longer once that part is put back. Here the same
is done to the task graph of a prediction: what is left out takes no time.
"""

from __future__ import annotations

import re
from collections.abc import Set

from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.run import run
from perfsim.simulate.task import COMPUTE, Task
from perfsim.simulate.timeline import Timeline

__all__ = ["CUMULATIVE", "added_s", "busy_s", "part_of"]

CUMULATIVE = (
    frozenset({"passes"}),
    frozenset({"gradients"}),
    frozenset({"factors", "preconditioning", "scaling"}),
    frozenset({"factors sent"}),
    frozenset({"inverses"}),
    frozenset({"inverses sent"}),
)
"""Parts in the order in which the measurements put them back."""

JOB = re.compile(r"\w+ \d+\.(.+)")
SENT = {"factors sent": ("factors", "unpacked", "divided"),
        "inverses sent": ("broadcast", "inverses unpacked", "sent eigen"),
        "inverses": ("inverse", "eigen"),
        "gradients sent": ("sent gradient",),
        "preconditioning": ("preconditioned", "gradient"),
        "scaling": ("scaled",)}  # fmt: skip
"""Part to how its jobs' names begin; the first that fits holds."""


def part_of(task: Task) -> str:
    """Return the part of an iteration that a task of a K-FAC method belongs to.

    Examples
    --------
    >>> [part_of(Task(name, "compute", kind, 1.0)) for name, kind in [
    ...     ("backward 0.end", "backward"), ("second_order 0.conv1 A", "second_order"),
    ...     ("all_reduce 0.3", "communicate"), ("all_reduce 0.factors 3", "communicate")]]
    ['passes', 'factors', 'gradients', 'factors sent']
    """
    if task.name.startswith("cycle "):
        return "gradients"
    match = JOB.fullmatch(task.name)
    if match is None or task.kind not in ("second_order", "communicate"):
        return "passes"
    part = next((part for part, names in SENT.items() if match[1].startswith(names)), "")
    if task.kind == "second_order":
        return part or "factors"
    return {"inverses": "inverses sent", "preconditioning": "gradients sent"}.get(
        part, part or "gradients"
    )


def added_s(timeline: Timeline, to: Set[str], parts: Set[str]) -> float:
    """Return how much longer an iteration of the parts ``to`` takes with ``parts`` [s]."""
    return _iteration_s(timeline, to | parts) - _iteration_s(timeline, to)


def busy_s(timeline: Timeline, part: str) -> float:
    """Return how long the tasks of a part take by themselves in an iteration [s].

    Those on the compute stream; of a part that is sent, those on the stream that has most.
    """
    streams: dict[str, float] = {}
    for task in timeline.graph.tasks:
        if part_of(task) == part and (task.kind == "communicate" or task.stream == COMPUTE):
            streams[task.stream] = streams.get(task.stream, 0.0) + float(task.duration_s)
    return max(streams.values(), default=0.0) / timeline.graph.iterations


def _iteration_s(timeline: Timeline, parts: Set[str]) -> float:
    graph = timeline.graph
    durations = [float(task.duration_s) if part_of(task) in parts else 0.0 for task in graph.tasks]
    return float(run(CostedGraph(graph), durations).iteration_s)
