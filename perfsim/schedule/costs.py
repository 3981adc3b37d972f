"""What kernels and collectives cost here, with the algorithm and protocol that the user asked for.

A method is told the same costs (``MethodContext``) as its stages are charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from perfsim.compute.device import Device
from perfsim.compute.kernel import Kernel
from perfsim.compute.profile import Profile
from perfsim.errors import RequestError
from perfsim.libraries import AUTO
from perfsim.methods.base import Compute, Group, Job, MethodContext, Send
from perfsim.network.cluster import Cluster, link_use
from perfsim.quantity import Cost, Grade, Quantity, Term
from perfsim.schedule.plan import CostedGraph, TaskCost, Work
from perfsim.simulate.graph import Task
from perfsim.simulate.shared_link import LinkUse

__all__ = ["Costs", "charged", "retimed", "work_of"]


@dataclass
class Costs:
    """A GPU, a cluster, and what was asked of the collectives there.

    Parameters
    ----------
    algorithm : of all-reduces among all ranks that name none themselves
    protocol : of everything that is sent
    kernel_factor : on every kernel's cost
    shared : whether other jobs send over the links between nodes, so that it is asked of each
        message how it uses them
    """

    device: Device
    cluster: Cluster
    algorithm: str = AUTO
    protocol: str = AUTO
    kernel_factor: float = 1.0
    shared: bool = False
    _kernels: dict[Kernel, Cost] = field(default_factory=dict, repr=False)
    _parts: dict[float, Costs] = field(default_factory=dict, repr=False)
    _crossings: dict[tuple[object, ...], LinkUse | None] = field(default_factory=dict, repr=False)

    def kernel(self, kernel: Kernel) -> Cost:
        """Return what a kernel costs."""
        cost = self._kernels.get(kernel)
        if cost is None:
            cost = self._kernels[kernel] = self._scaled(self.device.cost(kernel))
        return cost

    def held(self, seconds: float, jobs: Iterable[Job]) -> Costs:
        """Return these costs with kernels such that those of ``jobs`` take ``seconds`` in all.

        Raises
        ------
        RequestError
            If the jobs run no kernel.
        """
        parts = [part for job in jobs for part in (*job.stages, *job.after)]
        kernels = [one for part in parts if isinstance(part, Compute) for one in part.kernels]
        modelled_s = sum(self.kernel(kernel).seconds for kernel in kernels)
        if modelled_s <= 0:
            raise RequestError(
                "single_gpu_kernels", "the method runs no kernels of its own here; leave it out."
            )
        return replace(self, kernel_factor=seconds / modelled_s, _kernels={})

    def _scaled(self, cost: Cost) -> Cost:
        factor = self.kernel_factor
        if factor == 1.0:
            return cost
        given = "given with the scenario (single_gpu_kernels) over what device files say"
        term = Term("kernels of the method, times", Quantity(factor, "", "measured", given))
        seconds, latency_s = cost.seconds * factor, cost.latency_s * factor
        return cost._replace(seconds=seconds, latency_s=latency_s, terms=(*cost.terms, term))

    def kernels(self, kernels: Iterable[Kernel]) -> list[tuple[Kernel, int, Cost]]:
        """Return each different kernel, how often it runs, and what it costs once."""
        return [(one, count, self.kernel(one)) for one, count in Counter(kernels).items()]

    def send(self, send: Send) -> Cost:
        """Return what a collective of a method costs."""
        return self.collective(
            send.collective, send.size_bytes, send.group, send.algorithm, send.servers
        )

    def collective(
        self,
        collective: str,
        size_bytes: float,
        group: Group = "all",
        algorithm: str = AUTO,
        servers: int = 0,
    ) -> Cost:
        """Return what a collective costs among a group of the ranks."""
        if algorithm == AUTO and collective == "all_reduce" and group == "all":
            algorithm = self.algorithm
        return self.cluster.served(servers).of(
            group, collective, size_bytes, algorithm, self.protocol
        )

    def crossing(self, send: Send) -> LinkUse | None:
        """Return how a collective of a method uses the links between nodes; None: not at all."""
        if self.cluster.nodes == 1:
            return None
        key = (send.collective, send.size_bytes, send.group, send.algorithm, send.servers)
        if key not in self._crossings:
            self._crossings[key] = link_use(lambda part: self._with_part(part).send(send).seconds)
        return self._crossings[key]

    def _with_part(self, part: float) -> Costs:
        if part not in self._parts:
            self._parts[part] = replace(
                self, cluster=self.cluster.with_part(part), _parts={}, _crossings={}
            )
        return self._parts[part]

    def all_reduce_s(self, size_bytes: float) -> float:
        """Return the time of an all-reduce among all ranks [s]."""
        return self.cluster.served(0).seconds(
            "all_reduce", size_bytes, self.algorithm, self.protocol
        )

    def world(self, profile: Profile) -> MethodContext:
        """Return what a method may know of the cluster, its GPUs and the model on them."""

        def collective_s(collective: str, size_bytes: float, group: Group = "all") -> float:
            return self.collective(collective, size_bytes, group).seconds

        return MethodContext(
            self.cluster.gpus,
            self.cluster.nodes,
            self.cluster.gpus_per_node,
            collective_s,
            lambda kernel: self.kernel(kernel).seconds,
            profile,
        )


def work_of(stage: Send | Compute) -> Work:
    """Return what a stage does, its kernels counted."""
    if not isinstance(stage, Compute):
        return Work(stage, ())
    kernels = stage.kernels
    if len(kernels) == 1:  # as most are, and counting takes a while
        return Work(stage, ((kernels[0], 1),))
    return Work(stage, tuple(Counter(kernels).items()))


def charged(work: Work, plan: CostedGraph, costs: Costs) -> tuple[float, TaskCost]:
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
    return cost.seconds, TaskCost("network", cost.latency_s, cost.spread, cost.grade)


def _kernels(work: Work, stage: Compute, plan: CostedGraph, costs: Costs) -> tuple[float, TaskCost]:
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
    return seconds, TaskCost(cause, latency_s, spread_s / seconds if spread_s else None, grade)


def retimed(plan: CostedGraph, costs: Costs) -> CostedGraph:
    """Return a plan with the same tasks, each stage at what it costs here."""
    made = CostedGraph(
        plan.graph, count=plan.count, order=plan.order, begins=plan.begins, work=plan.work
    )
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
