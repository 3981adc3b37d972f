"""A plan to its timeline where no other job is: the engine that fits, and its ranks' conditions."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.plan import Plan
from perfsim.simulate.timeline import Timeline

__all__ = ["mean_s", "run_alone"]


def run_alone(plan: Plan, durations: list[float] | None = None, *, brief: bool = False) -> Timeline:
    """Return the timeline of a plan by itself, with other durations if given [s].

    Arguments and result as ``run``'s.
    """
    if plan.mixed is not None:
        from perfsim.mixed import run_mixed

        return run_mixed(plan, durations)
    if plan.conditions is not None:
        from perfsim.conditions.running import drawn, slowed

        if plan.conditions.varies:
            return drawn(plan, durations, brief=brief)
        durations = slowed(plan, durations)
    if plan.graph.contended:
        from perfsim.simulate.event import simulate_events

        return simulate_events(plan.graph, durations, order=plan.order)
    if plan.order == "priority":
        from perfsim.simulate.priority import simulate_priority

        return simulate_priority(plan.graph, durations)
    from perfsim.simulate.array import simulate

    return simulate(plan.graph, durations, brief=brief)


def mean_s(plans: Sequence[Plan], timelines: Sequence[Timeline]) -> float:
    """Return the mean iteration of all rounds [s], from the timeline of each."""
    total_s = sum(
        plan.count * timeline.mean_period_s for plan, timeline in zip(plans, timelines, strict=True)
    )
    return total_s / sum(plan.iterations for plan in plans)
