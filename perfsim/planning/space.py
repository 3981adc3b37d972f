"""Which GPU counts and bandwidths a report looks at, and how many it can afford."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["bandwidths", "gpu_counts", "is_heavy", "nearest", "spread", "tasks_of", "thinned"]

GBIT = 1e9 / 8
"""Bytes a second in a Gbit/s."""

RATES = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0)
"""Ethernet and InfiniBand rates that are sold [Gbit/s]."""

BEYOND = 8
"""Counts go to so many times the GPUs asked for, at least to ``LEAST``."""

LEAST = 64
MOST_COUNTS = 10

MAP_TASKS = 40_000
CURVE_TASKS = 10_000
"""Tasks that a map, and a method's curve, may have in all: about a second for 5,000."""

HEAVY_TASKS = 1_500
"""A method whose prediction has more is left out of the map."""

TASKS_A_PREDICTION = 100
"""What a prediction takes besides its tasks, in tasks."""

SIDES = (3, 7)


def gpu_counts(gpus: int, gpus_per_node: int) -> list[int]:
    """Return GPU counts for a scaling curve: 1, part of a node, then nodes doubled.

    Examples
    --------
    >>> gpu_counts(24, 4)
    [1, 2, 4, 8, 16, 24, 32, 64, 128]
    """
    most = max(LEAST, BEYOND * gpus)
    found = {1, gpus}
    count = 2
    while count < gpus_per_node:
        found.add(count)
        count *= 2
    count = gpus_per_node
    while count <= most:
        found.add(count)
        count *= 2
    ordered = sorted(found)
    while len(ordered) > MOST_COUNTS:
        ordered.remove(next(count for count in ordered[1:] if count != gpus))
    return ordered


def bandwidths(rate_bytes_per_s: float, count: int) -> list[float]:
    """Return ``count`` rates that are sold, around one [B/s].

    Examples
    --------
    >>> [rate * 8 / 1e9 for rate in bandwidths(1.17e9, 3)]
    [5.0, 10.0, 25.0]
    """
    own = rate_bytes_per_s / GBIT
    nearest = min(range(len(RATES)), key=lambda place: abs(RATES[place] / own - 1.0))
    first = max(0, min(nearest - count // 2, len(RATES) - count))
    return [rate * GBIT for rate in RATES[first : first + count]]


def nearest(counts: Sequence[int], wanted: int, most: int) -> list[int]:
    """Return at most so many of ascending counts, with the one that is wanted in their middle.

    Examples
    --------
    >>> nearest([8, 16, 32, 64, 128], 32, 3), nearest([8, 16, 32], 4, 2)
    ([16, 32, 64], [8, 16])
    """
    place = min(range(len(counts)), key=lambda one: abs(counts[one] - wanted))
    first = max(0, min(place - most // 2, len(counts) - most))
    return list(counts[first : first + most])


def tasks_of(prediction: Prediction) -> int:
    """Return what a prediction costs, in tasks."""
    return TASKS_A_PREDICTION + sum(len(one.graph.tasks) for one in prediction.timelines)


def is_heavy(prediction: Prediction) -> bool:
    """Say whether a map of this method would take too long."""
    return tasks_of(prediction) > HEAVY_TASKS


def spread(predictions: Iterable[Prediction]) -> int:
    """Return how many rates, and how many GPU counts, a map of these methods can afford."""
    tasks = sum(tasks_of(one) for one in predictions)
    return max(SIDES[0], min(SIDES[1], isqrt(MAP_TASKS // tasks)))


def thinned(counts: Sequence[int], prediction: Prediction) -> list[int]:
    """Return the counts that a method's curve can afford: one GPU, that of the prediction, ends."""
    own = int(prediction.scenario["gpus"])
    more = max(0, CURVE_TASKS // tasks_of(prediction))
    others = [count for count in counts if count not in (1, own)]
    if more < len(others):
        step = len(others) / more if more else 0.0
        others = [others[int((place + 1) * step) - 1] for place in range(more)]
    return sorted({1, own, *others})
