"""A plan to its timeline, by itself or beside other jobs."""

from __future__ import annotations

from perfsim.alone import run_alone
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
    return run_alone(plan, durations, brief=brief)
