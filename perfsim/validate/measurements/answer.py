"""What a prediction says of a metric, and how its error is counted."""

from __future__ import annotations

from collections.abc import Callable

from perfsim.prediction import Prediction
from perfsim.validate.measurements.phases import CUMULATIVE, added_s, busy_s

__all__ = ["METRICS", "PHASES", "RATIOS", "Answer", "answer"]

Answer = tuple[float, float, float]
"""Predicted value and its interval, in the metric's unit."""


def _rate(prediction: Prediction, factor: float) -> Answer:
    work = prediction.samples_per_s * prediction.iteration_s * factor
    low, high = prediction.iteration_s_interval
    return work / prediction.iteration_s, work / high, work / low


def _part(*names: str) -> Callable[[Prediction], Answer]:
    def read(prediction: Prediction) -> Answer:
        value = sum(prediction.breakdown_s[name] for name in names)
        return value, value, value

    return read


def _phase(first: int, last: int) -> Callable[[Prediction], Answer]:
    """Return what reads phases ``first`` to ``last`` of the iteration that updates everything."""

    def read(prediction: Prediction) -> Answer:
        before = frozenset[str]().union(*CUMULATIVE[:first])
        parts = frozenset[str]().union(*CUMULATIVE[first : last + 1])
        value = added_s(prediction.timelines[0], before, parts)
        return value, value, value

    return read


def _busy(part: str) -> Callable[[Prediction], Answer]:
    def read(prediction: Prediction) -> Answer:
        value = busy_s(prediction.timelines[0], part)
        return value, value, value

    return read


def _efficiency(prediction: Prediction, factor: float = 1.0) -> Answer:
    ratio = prediction.scaling_efficiency / prediction.samples_per_s
    return _rate(prediction, ratio * factor)


def _gpus(prediction: Prediction) -> int:
    return int(prediction.scenario.gpus)


METRICS: dict[str, tuple[bool, Callable[[Prediction], Answer]]] = {
    "iteration_s": (False, lambda one: (one.iteration_s, *one.iteration_s_interval)),
    "throughput": (True, lambda one: _rate(one, 1.0)),
    "throughput_per_gpu": (True, lambda one: _rate(one, 1.0 / _gpus(one))),
    "scaling_efficiency": (True, _efficiency),
    "speedup_vs_1gpu": (True, lambda one: _efficiency(one, _gpus(one))),
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
"""Metric to whether more is faster, and what a prediction says of it."""

WHOLE = (
    "iteration_s",
    "throughput",
    "throughput_per_gpu",
    "scaling_efficiency",
    "speedup_vs_1gpu",
)

RATIOS = ("scaling_efficiency", "speedup_vs_1gpu")
"""Metrics that are an iteration relative to that of one GPU."""

PHASES = tuple(metric for metric in METRICS if metric not in WHOLE)
"""Metrics that are a part of an iteration: counted apart from whole iterations."""


def answer(metric: str, measured: float, prediction: Prediction) -> tuple[Answer, float]:
    """Return what is predicted of a metric, and the relative error of the time behind it.

    The error is predicted over measured time less 1, of a rate measured over predicted rate less
    1: above zero is predicted too slow in either case.
    """
    rises, read = METRICS[metric]
    found = read(prediction)
    if rises:
        return found, measured / found[0] - 1.0
    return found, found[0] / measured - 1.0
