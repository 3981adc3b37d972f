"""What the tasks of stages take and are charged to; a plan with the same tasks at other costs."""

from __future__ import annotations

from collections import Counter

from perfsim.costs import Costs
from perfsim.plan import Charge, Plan, Work
from perfsim.quantity import Grade
from perfsim.simulate.task import Task
from perfsim.stage import Compute, Send

__all__ = ["charged", "retimed", "work_of"]


def work_of(stage: Send | Compute) -> Work:
    """Return what a stage does, its kernels counted."""
    if not isinstance(stage, Compute):
        return Work(stage, ())
    kernels = stage.kernels
    if len(kernels) == 1:  # as most are, and counting takes a while
        return Work(stage, ((kernels[0], 1),))
    return Work(stage, tuple(Counter(kernels).items()))


def charged(work: Work, plan: Plan, costs: Costs) -> tuple[float, Charge]:
    """Return how long a stage takes [s] and what that is charged to; adds it to the plan's sums."""
    stage = work.stage
    if isinstance(stage, Compute):
        return _kernels(work, stage, plan, costs)
    cost = costs.send(stage)
    if stage.counted:
        plan.sent_bytes += cost.sent_bytes
        plan.calls += 1
        if stage.collective == "all_gather":
            plan.gathered_bytes += stage.size_bytes
    plan.note(cost.terms, stage.size_bytes)
    return cost.seconds, Charge("network", cost.latency_s, cost.spread, cost.grade)


def _kernels(work: Work, stage: Compute, plan: Plan, costs: Costs) -> tuple[float, Charge]:
    seconds = latency_s = spread_s = known_s = 0.0
    for kernel, count in work.kernels:
        cost = costs.kernel(kernel)
        plan.note(cost.terms, kernel.elements)
        taken_s = count * cost.seconds
        seconds += taken_s
        latency_s += count * cost.latency_s
        if cost.spread:
            spread_s += taken_s * cost.spread
        if cost.grade == "measured":
            known_s += taken_s
    cause = "second_order" if stage.kind == "second_order" else "compression"
    grade: Grade = "measured" if known_s > seconds / 2 else "modelled"
    return seconds, Charge(cause, latency_s, spread_s / seconds if spread_s else None, grade)


def retimed(plan: Plan, costs: Costs) -> Plan:
    """Return a plan with the same tasks, each stage at what it costs here."""
    made = Plan(plan.graph, count=plan.count, order=plan.order, begins=plan.begins, work=plan.work)
    tasks: list[Task] = []
    for task, charge, work in zip(plan.graph.tasks, plan.charges, plan.work, strict=True):
        if work is None:
            made.charges.append(charge)
            tasks.append(task)
            continue
        seconds, anew = charged(work, made, costs)
        made.charges.append(anew)
        latency_s = anew.latency_s if task.shares else 0.0
        tasks.append(task._replace(duration_s=seconds, latency_s=latency_s))
    made.graph = plan.graph.with_tasks(tasks)
    return made
