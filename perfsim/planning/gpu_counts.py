"""Which numbers of GPUs a curve is predicted at, and how many of them a method can afford."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.prediction import Prediction

__all__ = ["counts_around", "gpu_counts", "tasks_of", "thinned"]

_COUNTS_BEYOND = 8
"""Curves reach this many times the GPUs asked for, at least ``_MIN_GPUS_SHOWN``."""

_MIN_GPUS_SHOWN = 64
_MAX_COUNTS = 10

_CURVE_TASKS = 10_000
"""Tasks that a method's curve may have in all: about a second for 5,000."""

_TASKS_A_PREDICTION = 100
"""What a prediction takes besides its tasks, in tasks."""


def gpu_counts(gpus: int, gpus_per_node: int) -> list[int]:
    """Return GPU counts for a scaling curve: 1, part of a node, then nodes doubled.

    Examples
    --------
    >>> gpu_counts(24, 4)
    [1, 2, 4, 8, 16, 24, 32, 64, 128]
    """
    most = max(_MIN_GPUS_SHOWN, _COUNTS_BEYOND * gpus)
    counts = {1, gpus}
    count = 2
    while count < gpus_per_node:
        counts.add(count)
        count *= 2
    count = gpus_per_node
    while count <= most:
        counts.add(count)
        count *= 2
    ordered = sorted(counts)
    while len(ordered) > _MAX_COUNTS:
        ordered.remove(next(count for count in ordered[1:] if count != gpus))
    return ordered


def thinned(counts: Sequence[int], prediction: Prediction) -> list[int]:
    """Return the counts that a method's curve can afford: 1, the prediction's own, some others."""
    own = prediction.scenario.gpus
    more = max(0, _CURVE_TASKS // tasks_of(prediction))
    others = [count for count in counts if count not in (1, own)]
    if more < len(others):
        step = len(others) / more if more else 0.0
        others = [others[int((index + 1) * step) - 1] for index in range(more)]
    return sorted({1, own, *others})


def counts_around(counts: Sequence[int], wanted: int, most: int) -> list[int]:
    """Return at most ``most`` of ascending counts, around the wanted one.

    Examples
    --------
    >>> counts_around([8, 16, 32, 64, 128], 32, 3), counts_around([8, 16, 32], 4, 2)
    ([16, 32, 64], [8, 16])
    """
    index = min(range(len(counts)), key=lambda one: abs(counts[one] - wanted))
    first = max(0, min(index - most // 2, len(counts) - most))
    return list(counts[first : first + most])


def tasks_of(prediction: Prediction) -> int:
    """Return the cost of a prediction, in tasks."""
    return _TASKS_A_PREDICTION + sum(len(one.graph.tasks) for one in prediction.timelines)
