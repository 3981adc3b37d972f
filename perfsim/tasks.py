"""The tasks of a round as they are issued: what they wait for, and what they are charged to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.charging import charged, work_of
from perfsim.costs import Costs
from perfsim.course import Course, Late
from perfsim.meetings import meeting_of
from perfsim.plan import WORK, Charge, Plan, Work
from perfsim.simulate.meeting import Meeting
from perfsim.simulate.task import COMPUTE, Credit, Shared, TaskKind
from perfsim.stage import Compute, Group, Send

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
        group: Group = "all",
        work: Work | None = None,
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
        self.plan.work.append(work)
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
            group=group,
        )
        for wait in late:
            self._late.append((task, wait))
        return task

    def send(self, name: str, stage: Send, after: Sequence[int]) -> int:
        """Add a collective."""
        work = work_of(stage)
        seconds, charge = charged(work, self.plan, self.costs)
        ahead = stage.credit_bytes
        crossing = self.costs.crossing(stage) if self.costs.shared else None
        if crossing is not None:
            self.plan.crossings[len(self.graph.tasks)] = crossing
        return self.add(
            f"{stage.collective} {name}",
            stage.stream,
            "communicate",
            seconds,
            after,
            charge,
            stage.priority,
            stage.shares,
            Credit(stage.size_bytes, ahead) if ahead else None,
            meeting_of(stage, self.costs.cluster.placement),
            stage.size_bytes,
            stage.group,
            work,
        )

    def compute(self, name: str, stage: Compute, after: Sequence[int]) -> int:
        """Add the kernels of a stage as one task."""
        work = work_of(stage)
        seconds, charge = charged(work, self.plan, self.costs)
        kind = stage.kind
        return self.add(f"{kind} {name}", stage.stream, kind, seconds, after, charge, work=work)

    def close(self, done: Sequence[Mapping[str, Course]]) -> None:
        """Link what waits for jobs that were planned later, and the round to the one before."""
        if self.plan.order == "priority":
            self.graph.link(self._computed[0], self._computed[-1], 1)
        for task, wait in self._late:
            for other in done[wait.place][wait.job].ends:
                self.graph.link(task, other, wait.back)
