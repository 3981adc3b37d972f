"""Price what a method does: its kernels on a GPU, its collectives on a cluster.

A method sees the same costs (``MethodContext``) as its stages are charged. What is priced once
is remembered by the session's device and cluster (`perfsim.session`), not here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfsim.by_size import Timer, TimesBySize
from perfsim.compute.device import Device
from perfsim.compute.kernel import Kernel, count_kernels
from perfsim.compute.profile import Profile
from perfsim.errors import RequestError
from perfsim.libraries import AUTO
from perfsim.methods.base import Compute, Group, Job, JobStage, MethodContext, Send
from perfsim.network.cluster import Cluster, link_use
from perfsim.quantity import Cost, Grade, Quantity, Term, Timing
from perfsim.schedule.costed_graph import (
    CostedGraph,
    KindsOfWork,
    PricedOn,
    TaskCost,
    TaskWork,
    WorkCost,
    WorkTimes,
    sum_at,
)
from perfsim.schedule.sync_scope import sync_scope
from perfsim.simulate.task import LinkUse, Task
from perfsim.sums import sum_in_order

__all__ = [
    "Costs",
    "likeness",
    "price",
    "reprice",
    "task_work",
    "work_times",
]


@dataclass
class Costs:
    """A GPU and a cluster to price on, and what was asked of the collectives there.

    Parameters
    ----------
    algorithm : of all-reduces among all ranks that name none themselves
    protocol : of everything that is sent
    kernel_factor : on every kernel's cost
    shared : whether other jobs send over the links between nodes, so that it is asked of each
        message how it uses them
    axes : groups beside the data-parallel ranks that ``cluster`` has, each a cluster of its own
    stages : of a pipeline that the ranks belong to
    timing_only : whether messages need only their times, not what these are made of
    """

    device: Device
    cluster: Cluster
    algorithm: str = AUTO
    protocol: str = AUTO
    kernel_factor: float = 1.0
    shared: bool = False
    axes: Mapping[str, Cluster] = field(default_factory=dict)
    stages: int = 1
    timing_only: bool = False

    @property
    def priced_on(self) -> PricedOn:
        """What these costs are priced on, as a graph keeps it."""
        device, factor, cluster = self.device, self.kernel_factor, self.cluster
        more = self.shared, self.stages, self.timing_only, self.axes
        return PricedOn(device, factor, cluster, self.algorithm, self.protocol, more)

    def kernel(self, kernel: Kernel) -> Cost:
        """Price a kernel."""
        cost = self.device.cost(kernel)
        factor = self.kernel_factor
        if factor == 1.0:
            return cost
        given = "given with the scenario (single_gpu_kernels) over what device files say"
        term = Term("kernels of the method, times", Quantity(factor, "", "measured", given))
        seconds, latency_s = cost.seconds * factor, cost.latency_s * factor
        return cost._replace(seconds=seconds, latency_s=latency_s, terms=(*cost.terms, term))

    def kernel_s(self, kernel: Kernel) -> float:
        """Return what a kernel takes [s]."""
        seconds, factor = self.device.seconds(kernel), self.kernel_factor
        return seconds if factor == 1.0 else seconds * factor

    def kernels_s(self, work: TaskWork) -> float:
        """Return what the kernels of a work take [s]."""
        factor, seconds_of = self.kernel_factor, self.device.seconds
        if factor == 1.0:
            return sum_in_order([count * seconds_of(kernel) for kernel, count in work.kernels])
        return sum_in_order(
            [count * (seconds_of(kernel) * factor) for kernel, count in work.kernels]
        )

    def with_kernels(self, seconds: float, jobs: Iterable[Job]) -> Costs:
        """Return these costs with kernels scaled so that those of ``jobs`` take ``seconds``.

        Raises
        ------
        RequestError
            If the jobs run no kernel.
        """
        first = [job for job in jobs if job.repeats != "later"]
        parts = [part for job in first for part in (*job.stages, *job.after)]
        each = [count_kernels(part.kernels) for part in parts if isinstance(part, Compute)]
        modelled_s = sum_in_order(
            count * self.kernel(kernel).seconds
            for kernels in each
            for kernel, count in kernels.items()
        )
        if modelled_s <= 0:
            raise RequestError(
                "single_gpu_kernels", "the method runs no kernels of its own here; leave it out."
            )
        return replace(self, kernel_factor=seconds / modelled_s)

    def collective(self, send: Send) -> Cost:
        """Price a collective, once, among the group of ranks that it names."""
        cluster, algorithm = self._asked(send)
        return cluster.cost(send.collective, send.size_bytes, algorithm, self.protocol)

    def timing(self, send: Send) -> Timing:
        """Return the time of a collective, once, and what a rank sends.

        They take a third of the work that a cost with its reasons takes.
        """
        return self.timer(send)(send.size_bytes)

    def timer(self, send: Send) -> Timer:
        """Return the function of a size that tells the `timing` of collectives like this one."""
        cluster, algorithm = self._asked(send)
        return cluster.timer(send.collective, algorithm, self.protocol)

    def _asked(self, send: Send) -> tuple[Cluster, str]:
        """Return the group of a collective as a cluster, and the algorithm asked for there."""
        group, algorithm = send.group, send.algorithm
        if group in self.axes:
            return self.axes[str(group)], algorithm
        if send.by_asked_algorithm:
            algorithm = self.algorithm
        cluster = self.cluster.served(send.servers)
        return (cluster if group == "all" else cluster.cluster_of(group)), algorithm

    def among(self, send: Send) -> Cluster:
        """Return the group of ranks that a collective is among, as a cluster."""
        return self._asked(send)[0]

    def link_use(self, send: Send) -> LinkUse | None:
        """Return how a collective of a method uses the links between nodes; None: not at all."""
        if self.axes.get(str(send.group), self.cluster).nodes == 1:
            return None

        def seconds(part: float) -> float:
            axes = {name: cluster.with_part(part) for name, cluster in self.axes.items()}
            costs = replace(self, cluster=self.cluster.with_part(part), axes=axes)
            return costs.collective(send).seconds * send.repeats

        return link_use(seconds)

    def by_size(self, collective: str, group: Group = "all") -> TimesBySize:
        """Return what tells the time of a collective among a group of ranks by its size [s]."""
        cluster, algorithm = self._asked(Send(collective, 0.0, group=group))
        return cluster.by_size(collective, algorithm, self.protocol)

    def context(self, profile: Profile, bucket_bytes: float | None = None) -> MethodContext:
        """Return what a method may know of the cluster, its GPUs and the model on them.

        ``bucket_bytes`` is the bucket size asked for, where its memory is asked about.
        """
        known: dict[tuple[str, Group], Callable[[float], float]] = {}

        def collective_s(collective: str, size_bytes: float, group: Group = "all") -> float:
            seconds = known.get((collective, group))
            if seconds is None:
                seconds = known[collective, group] = self.by_size(collective, group).of
            return seconds(size_bytes)

        return MethodContext(
            self.cluster.gpus,
            self.cluster.nodes,
            self.cluster.gpus_per_node,
            collective_s,
            self.kernel_s,
            profile,
            self.device.software,
            self.stages,
            self.cluster.gpus_of_host,
            bucket_bytes,
        )


def task_work(stage: Send | Compute) -> TaskWork:
    """Return what a stage does, its kernels counted."""
    if not isinstance(stage, Compute):
        return TaskWork(stage, ())
    kernels = stage.kernels
    if len(kernels) == 1:  # as most are, and counting takes a while
        return TaskWork(stage, ((kernels[0], 1),))
    return TaskWork(stage, tuple(count_kernels(kernels).items()))


def likeness(stage: JobStage) -> Hashable:
    """Return what stages that do the same have in common; kernels that repeat count once."""
    if isinstance(stage, Compute) and not isinstance(stage.kernels, tuple):
        return stage.kernels.runs, stage[1:]
    return stage


_SENT = TaskCost("network")
"""What a message is charged to where only its time is asked."""


def price(work: TaskWork, costed: CostedGraph, costs: Costs) -> WorkCost:
    """Price a stage, and note the numbers behind its cost in the graph."""
    stage = work.stage
    if isinstance(stage, Compute):
        return _price_kernels(work, stage, costed, costs)
    times, scope = stage.repeats, sync_scope(stage, costs.cluster.placement)
    if costs.timing_only and not stage.shares:  # on a shared link its latency counts by itself
        seconds, sent_bytes = costs.timing(stage)
        return WorkCost(seconds * times, _SENT, sent_bytes * times, scope)
    cost = costs.collective(stage)
    asked = (stage.collective, stage.size_bytes, stage.group, stage.algorithm, stage.servers)
    costed.note(asked, stage.size_bytes, cost.terms)
    charged = TaskCost("network", cost.latency_s * times, cost.spread, cost.grade)
    return WorkCost(cost.seconds * times, charged, cost.sent_bytes * times, scope)


def _price_kernels(work: TaskWork, stage: Compute, costed: CostedGraph, costs: Costs) -> WorkCost:
    seconds = latency_s = spread_s = measured_s = 0.0
    for kernel, count in work.kernels:
        cost = costs.kernel(kernel)
        costed.note(kernel, kernel.elements, cost.terms)
        taken_s = count * cost.seconds
        seconds += taken_s
        latency_s += count * cost.latency_s
        if cost.spread:
            spread_s += taken_s * cost.spread
        if cost.grade == "measured":
            measured_s += taken_s
    cause = "second_order" if stage.kind == "second_order" else "compression"
    grade: Grade = "measured" if measured_s > seconds / 2 else "modelled"
    spread = spread_s / seconds if spread_s else None
    return WorkCost(seconds, TaskCost(cause, latency_s, spread, grade))


def reprice(
    costed: CostedGraph,
    costs: Costs,
    *,
    durations_only: bool = False,
    kernels_s: Callable[[TaskWork], float] | None = None,
) -> CostedGraph:
    """Return a graph with the same tasks, each stage at what it costs here.

    One that was not priced yet is priced itself. The cluster may have another shape: then ranks may
    wait for others before they send.

    Parameters
    ----------
    durations_only : leave the tasks as they are and return their durations beside them: where all
        that is asked is how long one rank takes, and what it sends
    """
    priced_on = costs.priced_on
    known = costed.priced_on
    if costed.durations_s is not None and not durations_only:
        known = None  # its tasks have the durations of other prices
    if priced_on.same(known):
        return costed
    known_s: Sequence[float] = ()
    if durations_only:
        known_s = costed.task_s if costed.durations_s is None else costed.durations_s
    if costed.priced_on is None:
        new = costed
        new.priced_on, new.durations_s = priced_on, None
    else:
        new = replace(costed, priced_on=priced_on, sent_bytes=0.0, _terms={}, durations_s=None)
        new.kinds_of_work = costed.kinds_of_work  # as its tasks do the same work
    works, tasks_of, sent = new.kinds_of_work
    same_kernels = priced_on.same_kernels(known)
    if durations_only and not costed.graph.contended:
        new.durations_s = [*known_s]
        kernels_s = kernels_s or costs.kernels_s
        if same_kernels:
            kernels_s = None
        new.sent_bytes = _change_durations(new, new.durations_s, costs, kernels_s)
        return new
    prices = [_price_anew(work, costed, new, costs, same_kernels) for work in works]
    sent_bytes = [one.sent_bytes if one else 0.0 for one in prices]
    for kind in sent:
        new.sent_bytes += sent_bytes[kind]
    tasks = [*costed.graph.tasks]
    moved = [
        (cost, indices, work.stage)
        for work, cost, indices in zip(works, prices, tasks_of, strict=True)
        if cost
    ]
    new.charges = [*costed.charges]
    same_scopes = all(cost.scope == tasks[indices[0]].scope for cost, indices, _ in moved)
    for cost, indices, stage in moved:
        for index in indices:
            new.charges[index] = cost.charged
            tasks[index] = _repriced(tasks[index], cost, stage)
    new.graph = (
        costed.graph.with_tasks(tasks) if same_scopes else replace(costed.graph, tasks=tasks)
    )
    return new


def work_times(
    costed: CostedGraph, algorithm: str, protocol: str, cluster: Cluster | None = None
) -> WorkTimes:
    """Return what the works of a round take that was priced for its times alone.

    Parameters
    ----------
    algorithm, protocol : those of `Costs`, perhaps others than it was priced by
    cluster : where it is sent; None: where it was priced
    """
    on = costed.priced_on
    assert on is not None
    known, cluster = costed.work_times, on.cluster if cluster is None else cluster
    same_algorithm = algorithm == on.algorithm or not costed.takes_algorithm
    if known and cluster is on.cluster and protocol == on.protocol and same_algorithm:
        return known
    costs = Costs(on.device, cluster, algorithm, protocol, on.kernel_factor, timing_only=True)
    return _work_times(costed.kinds_of_work, costs, None, costed.task_s)


def _change_durations(
    costed: CostedGraph,
    durations_s: list[float],
    costs: Costs,
    kernels_s: Callable[[TaskWork], float] | None,
) -> float:
    """Let tasks take what their work takes here, and return what a GPU sends [bytes].

    ``kernels_s`` tells of kernels; None where they take what they took.
    """
    kinds = costed.kinds_of_work
    times = costed.work_times = _work_times(kinds, costs, kernels_s, durations_s)
    for seconds, indices in zip(times.seconds, kinds.tasks, strict=True):
        for index in indices:
            durations_s[index] = seconds
    return sum_at(kinds.sent, times.sent_bytes)


def _work_times(
    kinds: KindsOfWork,
    costs: Costs,
    kernels_s: Callable[[TaskWork], float] | None,
    known_s: Sequence[float],
) -> WorkTimes:
    """Return what a work of each kind takes here.

    ``kernels_s`` tells of kernels; None where they take what their tasks took (``known_s``).
    """
    times = WorkTimes([], [])
    timers: dict[tuple[str, str, Group, int], Timer] = {}
    for work, tasks in zip(kinds.works, kinds.tasks, strict=True):
        stage, sent_bytes = work.stage, 0.0
        if isinstance(stage, Send):
            like = stage.collective, stage.algorithm, stage.group, stage.servers
            timer = timers.get(like)
            if timer is None:
                timer = timers[like] = costs.timer(stage)
            seconds, sent_bytes = timer(stage.size_bytes)
            seconds *= stage.repeats
            sent_bytes *= stage.repeats
        else:
            seconds = known_s[tasks[0]] if kernels_s is None else kernels_s(work)
        times.seconds.append(seconds)
        times.sent_bytes.append(sent_bytes)
    return times


def _price_anew(
    work: TaskWork, costed: CostedGraph, new: CostedGraph, costs: Costs, same_kernels: bool
) -> WorkCost | None:
    """Price a work of a graph for a new one; None: kernels that cost the same."""
    if same_kernels and isinstance(work.stage, Compute):
        new.note_kernels(work, costed)
        return None
    return price(work, new, costs)


def _repriced(task: Task, cost: WorkCost, stage: Send | Compute) -> Task:
    """Return a task at a new cost, with what its stage sends."""
    if isinstance(stage, Send) and (task.size_bytes, task.group) != (stage.size_bytes, stage.group):
        task = task._replace(size_bytes=stage.size_bytes, group=stage.group)
    if task.shares or cost.scope != task.scope:
        latency_s = cost.charged.latency_s if task.shares else 0.0
        return task._replace(duration_s=cost.seconds, latency_s=latency_s, scope=cost.scope)
    return task.lasting(cost.seconds)
