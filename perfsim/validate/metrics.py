"""What a prediction says of a published metric, and how its error is counted.

Most metrics follow from the iteration or its breakdown. Published breakdowns of second-order
methods come from runs of the same code with parts excluded (shyhuai/kfac_pytorch@1dacea76,
``exclude_parts``; preconditioning is never excluded, so that it counts with building the factors):
a phase is the time that an iteration gains when its part is put back. Here the same is done to the
task graph of a prediction: a part that is left out takes no time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from functools import cache

from perfsim.models import model_flops
from perfsim.prediction import PredictedIteration
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.run import run
from perfsim.simulate.task import COMPUTE, Task, TaskKind
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order
from perfsim.throughput import CONVENTIONS

__all__ = [
    "METRICS",
    "PHASE_METRICS",
    "PHASE_PARTS",
    "RATIO_METRICS",
    "_PredictedValue",
    "added_s",
    "busy_s",
    "part_of",
    "predicted_metric",
]

PHASE_PARTS = (
    frozenset({"passes"}),
    frozenset({"gradients"}),
    frozenset({"factors", "preconditioning", "scaling"}),
    frozenset({"factors sent"}),
    frozenset({"inverses"}),
    frozenset({"inverses sent"}),
)
"""Parts of an iteration in the order in which the measurements put them back."""

_JOB_NAME = re.compile(r"\w+ \d+\.(.+)")
_JOBS_OF_PART = {"factors sent": ("factors", "unpacked", "divided"),
        "inverses sent": ("broadcast", "inverses unpacked", "sent inverses"),
        "inverses": ("inverse",),
        "gradients sent": ("sent gradient",),
        "preconditioning": ("preconditioned", "gradient"),
        "scaling": ("scaled",)}  # fmt: skip
"""Part -> beginnings of its jobs' names; the first part that fits counts."""


def part_of(task: Task) -> str:
    """Return the part of an iteration that a task of a K-FAC method belongs to.

    Examples
    --------
    >>> [part_of(Task(name, "compute", kind, 1.0)) for name, kind in [
    ...     ("backward 0.end", "backward"), ("second_order 0.conv1 A", "second_order"),
    ...     ("all_reduce 0.3", "communicate"), ("all_reduce 0.factors 3", "communicate")]]
    ['passes', 'factors', 'gradients', 'factors sent']
    """
    return _part_of(task.name, task.kind)


@cache  # asked for with every phase of a run; names are few
def _part_of(name: str, kind: TaskKind) -> str:
    if name.startswith("cycle "):
        return "gradients"
    match = _JOB_NAME.fullmatch(name)
    if match is None or kind not in ("second_order", "communicate"):
        return "passes"
    part = next((part for part, names in _JOBS_OF_PART.items() if match[1].startswith(names)), "")
    if kind == "second_order":
        return part or "factors"
    return {"inverses": "inverses sent", "preconditioning": "gradients sent"}.get(
        part, part or "gradients"
    )


def added_s(timeline: Timeline, to: Set[str], parts: Set[str]) -> float:
    """Return the time that ``parts`` add to an iteration of the parts ``to`` [s]."""
    graph = timeline.graph
    tasks = [(part_of(task), float(task.duration_s)) for task in graph.tasks]

    def iteration_s(kept: Set[str]) -> float:
        durations = [seconds if part in kept else 0.0 for part, seconds in tasks]
        return float(run(CostedGraph(graph), durations, brief=True).iteration_s)

    return iteration_s(to | parts) - iteration_s(to)


def busy_s(timeline: Timeline, part: str) -> float:
    """Return how long the tasks of a part take alone in an iteration [s].

    Counted are those on the compute stream; of a part that is sent, those on its busiest stream.
    """
    streams: dict[str, float] = {}
    for task in timeline.graph.tasks:
        if part_of(task) == part and (task.kind == "communicate" or task.stream == COMPUTE):
            streams[task.stream] = streams.get(task.stream, 0.0) + float(task.duration_s)
    return max(streams.values(), default=0.0) / timeline.graph.iterations


_PredictedValue = tuple[float, float, float]
"""Predicted value and its interval, in the metric's unit."""


def _rate(prediction: PredictedIteration, factor: float) -> _PredictedValue:
    work = prediction.samples_per_s * prediction.iteration_s * factor
    low, high = prediction.iteration_s_interval
    return work / prediction.iteration_s, work / high, work / low


def _part(*names: str) -> Callable[[PredictedIteration], _PredictedValue]:
    def read(prediction: PredictedIteration) -> _PredictedValue:
        value = sum_in_order(prediction.breakdown_s[name] for name in names)
        return value, value, value

    return read


def _phase(first: int, last: int) -> Callable[[PredictedIteration], _PredictedValue]:
    """Return a reader of phases ``first`` to ``last`` of the iteration that updates everything."""

    def read(prediction: PredictedIteration) -> _PredictedValue:
        before = frozenset[str]().union(*PHASE_PARTS[:first])
        parts = frozenset[str]().union(*PHASE_PARTS[first : last + 1])
        value = added_s(prediction.timelines[0], before, parts)
        return value, value, value

    return read


def _busy(part: str) -> Callable[[PredictedIteration], _PredictedValue]:
    def read(prediction: PredictedIteration) -> _PredictedValue:
        value = busy_s(prediction.timelines[0], part)
        return value, value, value

    return read


def _efficiency(prediction: PredictedIteration, factor: float = 1.0) -> _PredictedValue:
    ratio = prediction.scaling_efficiency / prediction.samples_per_s
    return _rate(prediction, ratio * factor)


def _gpus(prediction: PredictedIteration) -> int:
    return int(prediction.scenario.gpus)


def _flops(convention: str) -> Callable[[PredictedIteration], _PredictedValue]:
    """Return a reader of the model's FLOP/s on a GPU by one way of counting."""

    def read(prediction: PredictedIteration) -> _PredictedValue:
        scenario = prediction.scenario
        tokens, document = (scenario.further.get(key) for key in ("seq", "document_tokens"))
        work = model_flops(scenario.model, tokens, document).get(convention, 0.0)
        return _rate(prediction, work / scenario.gpus)

    return read


METRICS: dict[str, tuple[bool, Callable[[PredictedIteration], _PredictedValue]]] = {
    "iteration_s": (False, lambda it: (it.iteration_s, *it.iteration_s_interval)),
    "throughput": (True, lambda it: _rate(it, 1.0)),
    "throughput_per_gpu": (True, lambda it: _rate(it, 1.0 / _gpus(it))),
    **{f"flops_per_gpu_{name}": (True, _flops(name)) for name in CONVENTIONS},
    "scaling_efficiency": (True, _efficiency),
    "speedup_vs_1gpu": (True, lambda it: _efficiency(it, _gpus(it))),
    "compression_s": (False, _part("compression")),
    "sparsify_s": (False, _part("compression")),
    "exposed_comm_s": (False, _part("communication_exposed")),
    "compress_plus_comm_s": (False, _part("compression", "communication_exposed")),
    "breakdown_exposed_grad_comm_s": (False, _phase(1, 1)),
    "breakdown_factor_compute_s": (False, _phase(2, 2)),
    "factor_compute_s": (False, _phase(2, 2)),
    "breakdown_exposed_factor_comm_s": (False, _phase(3, 3)),
    "factor_compute_plus_comm_s": (False, _phase(2, 3)),
    "breakdown_inverse_compute_s": (False, _phase(4, 4)),
    "inverse_compute_s": (False, _phase(4, 4)),
    "breakdown_exposed_inverse_comm_s": (False, _phase(5, 5)),
    "inverse_total_s": (False, _phase(4, 5)),
    "eigendecomp_s": (False, _busy("inverses")),
    "factor_comm_s": (False, _busy("factors sent")),
    "bcast_eigen_s": (False, _busy("inverses sent")),
    "precondition_s": (False, _busy("preconditioning")),
    "bcast_gradient_s": (False, _busy("gradients sent")),
}
"""Metric -> whether more of it is faster, and how it is read from a prediction."""

_WHOLE_ITERATION = (
    "iteration_s",
    "throughput",
    "throughput_per_gpu",
    *(f"flops_per_gpu_{name}" for name in CONVENTIONS),
    "scaling_efficiency",
    "speedup_vs_1gpu",
)

RATIO_METRICS = ("scaling_efficiency", "speedup_vs_1gpu")
"""Metrics that compare an iteration with that of one GPU."""

PHASE_METRICS = tuple(metric for metric in METRICS if metric not in _WHOLE_ITERATION)
"""Metrics of a part of an iteration, whose errors are counted apart from whole iterations."""


def predicted_metric(
    metric: str, measured: float, prediction: PredictedIteration
) -> tuple[_PredictedValue, float]:
    """Return the predicted value of a metric with its interval, and the error of its time.

    The error of a time is predicted over measured less 1; of a rate, measured over predicted less
    1. Above zero is predicted too slow in both cases.
    """
    is_rate, read = METRICS[metric]
    predicted = read(prediction)
    if is_rate:
        return predicted, measured / predicted[0] - 1.0
    return predicted, predicted[0] / measured - 1.0
