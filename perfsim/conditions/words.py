"""What a prediction under conditions says: which they are, and what was assumed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot, sqrt
from typing import Any

from perfsim.conditions.conditions import Conditions, parse_straggler
from perfsim.conditions.job_names import label
from perfsim.conditions.running import OTHER_RANK, sample
from perfsim.plan import Plan
from perfsim.simulate.draws import meets_all
from perfsim.simulate.timeline import Timeline
from perfsim.units import format_seconds

__all__ = ["condition_notes", "named"]


def named(scenario: Mapping[str, Any]) -> str:
    """Return the conditions of a prediction's scenario in short, "" where there are none.

    Examples
    --------
    >>> named({"straggler": ["1:1.5"], "jitter": 0.05, "background": 0.3})
    '1 GPU 1.5x slower, computation varies by 5%, other traffic takes 30% between nodes'
    """
    parts = []
    for count, factor in map(parse_straggler, scenario["straggler"]):
        parts.append(f"{_gpus(count)} {factor:g}x slower")
    if scenario["jitter"]:
        parts.append(f"computation varies by {_share(scenario['jitter'])}")
    if scenario["background"]:
        parts.append(f"other traffic takes {_share(scenario['background'])} between nodes")
    parts += [f"beside {label(name)}" for name in scenario.get("beside", [])]
    return ", ".join(parts)


def condition_notes(
    conditions: Conditions | None,
    background: float,
    seed: int,
    nodes: int,
    plans: Sequence[Plan],
    timelines: Sequence[Timeline],
) -> list[str]:
    """Return what was assumed of the conditions of a prediction."""
    notes = []
    if conditions is not None:
        notes += _straggler_notes(conditions, plans)
        if conditions.jitter:
            notes += _jitter_notes(conditions, plans, timelines)
        if any(task.stream.startswith(OTHER_RANK) for plan in plans for task in plan.graph.tasks):
            notes.append(
                "The method divides work among the GPUs: each is taken to have as much as the one"
                " that has most, so that a slow GPU delays the others by at most as much."
            )
    if background:
        notes.append(
            f"Other traffic takes {_share(background)} of every link between nodes all the time: a"
            f" byte takes {1 / (1 - background):.3g} times as long there; latency and the choice of"
            " algorithm stay."
            if nodes > 1
            else "--background has no effect: all GPUs stand on one node."
        )
    if seed and not (conditions and conditions.jitter):
        notes.append("--seed has no effect without --jitter.")
    if notes:
        notes.append(
            "The S-SGD that it is held against runs under the same conditions; scaling efficiency"
            " is over one GPU as it should be; the interval does not hold how wrong the conditions"
            " may be."
        )
    return notes


def _straggler_notes(conditions: Conditions, plans: Sequence[Plan]) -> list[str]:
    if not conditions.stragglers:
        return []
    slow = " and ".join(
        f"{_gpus(count)} {factor:g} times" for count, factor in conditions.stragglers
    )
    found = f"Slower in all that they compute: {slow} (passes, update and kernels of the method)."
    if conditions.varies or any(meets_all(plan.graph, conditions.ranks) for plan in plans):
        return [found]
    return [
        f"{found} No GPU waits for all the others, but in the long run all go at the pace of the"
        " slowest."
    ]


def _jitter_notes(
    conditions: Conditions, plans: Sequence[Plan], timelines: Sequence[Timeline]
) -> list[str]:
    if not conditions.varies:
        return ["--jitter has no effect on the mean iteration of one GPU."]
    counted = [draws * periods for draws, _, periods in map(sample, plans)]
    error_s = _error_s(plans, timelines)
    notes = [
        f"Each GPU's computation varies by {_share(conditions.jitter)} (one standard deviation;"
        " normal, being the sum of many kernels (see Giladi et al. 2023, arXiv 2306.10598), alike"
        " for all of an iteration, independent among GPUs and iterations; rare long stalls are not"
        f" in it). The mean of {min(counted):,} drawn periods, seed {conditions.seed}; its"
        f" standard error is {format_seconds(error_s, 3)}."
    ]
    if any(count > 1 for plan in plans for count in plan.repeats):
        notes.append(
            "Local iterations are drawn together with the exchange after them: what is waited for"
            " is the slowest GPU's sum."
        )
    some = [plan for plan in plans if plan.calls and not meets_all(plan.graph, conditions.ranks)]
    if some:
        warm_up = sample(some[0])[1]
        notes.append(
            "A GPU waits for those that it exchanges with only: the mean over all GPUs, after"
            f" {warm_up} periods from a common start."
        )
    return notes


def _error_s(plans: Sequence[Plan], timelines: Sequence[Timeline]) -> float:
    """Return the standard error of the mean iteration over draws [s]."""
    import numpy as np

    total = sum(plan.iterations for plan in plans)
    errors = (
        plan.count / total * float(np.std(timeline.period_s, ddof=1)) / sqrt(timeline.shape[0])
        for plan, timeline in zip(plans, timelines, strict=True)
    )
    return hypot(*errors)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _share(share: float) -> str:
    return f"{100 * share:.4g}%"
