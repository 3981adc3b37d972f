"""The tasks of a round as they are issued: what they wait for, and what they are charged to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.costs import Costs
from perfsim.course import Course, Late
from perfsim.meetings import meeting_of
from perfsim.plan import WORK, Charge, Plan
from perfsim.quantity import Grade
from perfsim.simulate.meeting import Meeting
from perfsim.simulate.task import COMPUTE, Credit, Shared, TaskKind
from perfsim.stage import Compute, Send

__all__ = ["Tasks"]


class Tasks:
    """The plan of a round while it is filled.

    ``waits`` is what the next task on the compute stream waits for besides its own: the ends of
    jobs that computation is held up by.
    """

    def __init__(self, plan: Plan, costs: Costs) -> None:
        self.plan, self.graph, self.costs = plan, plan.graph, costs
        self.waits: list[int | Late] = []
        self._late: list[tuple[int, Late]] = []
        self._computed: list[int] = []

    def add(
        self,
        name: str,
        stream: str,
        kind: TaskKind,
        seconds: float,
        after: Sequence[int],
        charge: Charge = WORK,
        priority: int = 0,
        shares: Shared | None = None,
        credit: Credit | None = None,
        meeting: Meeting | None = None,
        size_bytes: float = 0.0,
    ) -> int:
        """Add a task and return its index; one on the compute stream takes over what waits."""
        late: list[Late] = []
        if stream == COMPUTE:
            if self.waits:
                after = sorted({*after, *[wait for wait in self.waits if isinstance(wait, int)]})
                late = [wait for wait in self.waits if isinstance(wait, Late)]
                self.waits = []
            if self.plan.order == "priority":
                # Messages overtake each other; kernels stay in the order in which they are issued.
                after = sorted({*after, *self._computed[-1:]})
            self._computed.append(len(self.graph.tasks))
        self.plan.charges.append(charge)
        task = self.graph.add(
            name,
            stream,
            kind,
            seconds,
            after=after,
            collective=kind == "communicate",
            priority=priority,
            shares=shares,
            latency_s=charge.latency_s if shares else 0.0,
            credit=credit,
            meeting=meeting,
            size_bytes=size_bytes,
        )
        for wait in late:
            self._late.append((task, wait))
        return task

    def send(self, name: str, stage: Send, after: Sequence[int]) -> int:
        """Add a collective."""
        cost = self.costs.send(stage)
        if stage.counted:
            self.plan.sent_bytes += cost.sent_bytes
            self.plan.calls += 1
            if stage.collective == "all_gather":
                self.plan.gathered_bytes += stage.size_bytes
        self.plan.note(cost.terms, stage.size_bytes)
        charge = Charge("network", cost.latency_s, cost.spread, cost.grade)
        ahead = stage.credit_bytes
        return self.add(
            f"{stage.collective} {name}",
            stage.stream,
            "communicate",
            cost.seconds,
            after,
            charge,
            stage.priority,
            stage.shares,
            Credit(stage.size_bytes, ahead) if ahead else None,
            meeting_of(stage, self.costs.cluster.placement),
            stage.size_bytes,
        )

    def compute(self, name: str, stage: Compute, after: Sequence[int]) -> int:
        """Add the kernels of a stage as one task."""
        seconds = latency_s = spread_s = known_s = 0.0
        for kernel, count, cost in self.costs.kernels(stage.kernels):
            self.plan.note(cost.terms, kernel.elements)
            seconds += count * cost.seconds
            latency_s += count * cost.latency_s
            spread_s += count * cost.seconds * (cost.spread or 0.0)
            known_s += count * cost.seconds * (cost.grade == "measured")
        cause = "second_order" if stage.kind == "second_order" else "compression"
        grade: Grade = "measured" if known_s > seconds / 2 else "modelled"
        charge = Charge(cause, latency_s, spread_s / seconds if spread_s else None, grade)
        return self.add(f"{stage.kind} {name}", stage.stream, stage.kind, seconds, after, charge)

    def close(self, done: Sequence[Mapping[str, Course]]) -> None:
        """Link what waits for jobs that were planned later, and the round to the one before."""
        if self.plan.order == "priority":
            self.graph.link(self._computed[0], self._computed[-1], 1)
        for task, wait in self._late:
            for other in done[wait.place][wait.job].ends:
                self.graph.link(task, other, wait.back)
