"""A plan as a person reads it in a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

from perfsim.planning.capacity import Plan
from perfsim.planning.choice import Choice
from perfsim.report.terminal import print_lines

__all__ = ["print_plan"]

WIDTH = 80
SHOWN_LEFT_OUT = 8


def print_plan(plan: Plan) -> None:
    """Print what meets the target best, the Pareto front, what is left out, and notes."""
    target = plan.target
    paid = plan.prices.currency if any(one.cost is not None for one in plan.choices) else "GPU h"
    least = "least GPU h" if paid == "GPU h" else "cheapest"
    print_lines(
        [
            f"{target.samples:,} samples, {target.epochs:g} epochs: {len(plan.choices)} clusters"
            f" and methods, {len(plan.meeting)} meet the target",
            "",
            f"{'fastest':{len(least)}} {plan.fastest.words}: {_hours(plan.fastest)},"
            f" {_paid(plan.fastest, paid)}",
            f"{least} {plan.cheapest.words}: {_hours(plan.cheapest)}, {_paid(plan.cheapest, paid)}",
            "",
            "Pareto front: nothing else is both faster and cheaper",
        ],
        most=WIDTH,
    )
    energy = "" if target.gpu_power_w is None else f"{'kWh':>8}"
    head = f"{'method':13}{'gpus':>5} {'gpu':10}{'network':11}{'hours':>7}"
    print(f"{head} {'90 % interval':>15}{paid:>8}{energy}")
    for one in plan.front:
        told = one.scenario
        low, high = (end / 3600.0 for end in one.interval_s)
        print(
            f"{told['method']:13}{told['gpus']:>5} {told['gpu']:10}{_network(told)[:10]:11}"
            f"{one.seconds / 3600.0:7.4g} {f'{low:.3g} to {high:.3g}':>15}{one.spent:8.4g}"
            f"{'' if one.energy_kwh is None else f'{one.energy_kwh:8.4g}'}"
            f"{'' if one.excess(target) <= 1.0 else '!'}"
        )
    if len(plan.meeting) < len(plan.choices):
        print("! misses the target")
    if plan.left_out:
        print(f"\nleft out ({len(plan.left_out)})")
        told_lines = [f"{name}: {why}" for name, why in sorted(plan.left_out.items())]
        print_lines(told_lines[:SHOWN_LEFT_OUT], most=WIDTH)
        if len(told_lines) > SHOWN_LEFT_OUT:
            print(f"and {len(told_lines) - SHOWN_LEFT_OUT} more (--json lists all)")
    print("\nNotes")
    print_lines(plan.notes, "  - ", "    ", WIDTH)


def _network(told: dict[str, Any]) -> str:
    return "one node" if told["nodes"] == 1 else str(told["net"])


def _hours(one: Choice) -> str:
    return f"{one.seconds / 3600.0:.4g} h"


def _paid(one: Choice, unit: str) -> str:
    return f"{one.spent:.4g} {unit}"
