"""Small questions to a plan: one of its causes twice as fast, or uncertain."""

from __future__ import annotations

from math import hypot

from perfsim.schedule import Charge, Plan
from perfsim.simulate.array import simulate

__all__ = ["BOTTLENECKS", "bottleneck", "halved", "interval", "steady_s"]

BOTTLENECKS = ("compute", "bandwidth", "latency", "compression", "second_order")
"""The causes that can hold an iteration back."""


def steady_s(plan: Plan, durations: list[float] | None = None) -> float:
    """Return the steady iteration, with other durations if given [s]."""
    return float(simulate(plan.graph, durations).iteration_s)


def halved(plan: Plan, cause: str) -> list[float]:
    """Return the tasks' durations with one cause twice as fast [s].

    bandwidth halves what a collective spends on bytes, latency what it spends on hops.
    """
    return [
        duration - _share(charge, duration, cause) / 2
        for duration, charge in zip(_durations(plan), plan.charges, strict=True)
    ]


def bottleneck(plan: Plan, iteration_s: float) -> tuple[str, dict[str, float]]:
    """Return the cause that holds the iteration back most, and each cause's worth.

    The worth of a cause is the share of the iteration that would be saved if it were twice as
    fast; the bottleneck is the cause worth most.
    """
    worth = {
        cause: 1.0 - steady_s(plan, halved(plan, cause)) / iteration_s for cause in BOTTLENECKS
    }
    return max(worth, key=lambda cause: worth[cause]), worth


def interval(plan: Plan, iteration_s: float, compute_spread: float | None) -> tuple[float, float]:
    """Return the 90 % interval that the spreads of the plan's costs give [s].

    Computation, network and kernels are moved by their spread one at a time, all tasks of a
    cause together, and the deviations add in quadrature, each side by itself.
    """
    below = above = 0.0
    durations = _durations(plan)
    for cause in ("compute", "network", "compression", "second_order"):
        spreads = [
            _spread(charge, compute_spread) if charge.cause == cause else 0.0
            for charge in plan.charges
        ]
        if not any(spreads):
            continue
        ends = [
            steady_s(
                plan,
                [
                    duration * max(0.0, 1.0 + sign * spread)
                    for duration, spread in zip(durations, spreads, strict=True)
                ],
            )
            for sign in (-1.0, 1.0)
        ]
        below = hypot(below, max(0.0, iteration_s - min(ends)))
        above = hypot(above, max(0.0, max(ends) - iteration_s))
    return max(0.0, iteration_s - below), iteration_s + above


def _durations(plan: Plan) -> list[float]:
    return [float(task.duration_s) for task in plan.graph.tasks]


def _spread(charge: Charge, compute_spread: float | None) -> float:
    spread = compute_spread if charge.cause == "compute" else charge.spread
    return spread or 0.0


def _share(charge: Charge, duration: float, cause: str) -> float:
    """Return the part of a duration that a cause accounts for [s]."""
    if charge.cause == "network":
        parts = {"latency": charge.latency_s, "bandwidth": duration - charge.latency_s}
        return parts.get(cause, 0.0)
    return duration if charge.cause == cause else 0.0
