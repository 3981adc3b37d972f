"""A plan to its timeline: the engine that fits, and the conditions that its ranks are under."""

from __future__ import annotations

from perfsim.plan import Plan
from perfsim.simulate.timeline import Timeline

__all__ = ["run"]


def run(plan: Plan, durations: list[float] | None = None, *, brief: bool = False) -> Timeline:
    """Return the timeline of a plan, with other durations if given [s].

    Durations are those of a GPU as it should be; the plan's conditions slow them down. Where
    ranks vary by chance the timeline has an axis of draws, and where ``brief`` is enough only the
    length of its periods; beside other jobs it has an axis of starts. Of several types of GPU it
    is that of the one that ends last.
    """
    if plan.beside:
        from perfsim.conditions.beside import together

        return together(plan, durations, brief=brief)[0]
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
