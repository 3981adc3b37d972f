"""The one cache: what a session has read from files and worked out, and when it is dropped.

Records (devices, clusters) keep nothing themselves; a profile keeps the latest few copies of itself
at other times. A `Session` holds

- what was read or made of files, by what was asked for (`Session.once`);
- what kernels and collectives cost, in the devices and clusters that it made
  (`RememberingDevice`, `RememberingCluster`);
- the jobs of a method and their task graphs, for scenarios that differ in nothing that these
  depend on (`JobCache`).

It never holds an answer. `Session.refresh` drops all of it where a file or folder has changed.
Elsewhere in the package ``functools.cache`` stands only on functions of values that cannot change,
such as the name of a method or the numbers of a curve, and of files that ship, such as the law of
node types: who edits these begins a new process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Hashable
from dataclasses import fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from perfsim.by_size import Timer, TimesBySize
from perfsim.compute.device import Device
from perfsim.compute.kernel import Kernel
from perfsim.compute.profile import Profile
from perfsim.data.catalog import FILE_SUFFIXES, RECORDS, Catalog, Made
from perfsim.data.files import files_changed, noting, stamp
from perfsim.errors import RequestError, shown
from perfsim.fusion.buckets import ReadyGradients, SentGradients
from perfsim.libraries import AUTO
from perfsim.methods.base import Group, Job, JobStage, Method, MethodContext
from perfsim.network.cluster import Cluster
from perfsim.network.network_file import Network
from perfsim.network.route import Route
from perfsim.quantity import Cost, Timing
from perfsim.schedule.costed_graph import CostedGraph, TaskWork
from perfsim.schedule.costs import Costs, reprice, task_work
from perfsim.schedule.identity import ByIdentity, Identity
from perfsim.schedule.job_structure import GraphOfJobs, PassSeconds, structure_of

__all__ = [
    "Answers",
    "JobCache",
    "RecordedCosts",
    "RememberingCluster",
    "RememberingDevice",
    "Session",
    "SessionWithNetworks",
    "SourceSession",
    "WorksOfJobs",
    "default_session",
    "fresh",
    "job_cache",
]

MAX_COSTS = 100_000
"""Costs that a device or a cluster remembers, some 50 MB; then it forgets them all."""

MAX_TASKS = 80_000
MAX_ROUNDS = 256
"""Jobs and tasks of graphs that a `JobCache` keeps, some 150 MB, and of how many rounds: those of a
comparison of all methods twice, as it is asked again with another number. The oldest make room."""

MAX_SENT = 32
"""Models and methods of which a `JobCache` keeps gradients with what is sent for each, some 0.6 MB
each where networks have led to many partitions."""

MAX_WORKS = 4096
"""Stages of which a `JobCache` keeps what they do, some 4 MB."""

MAX_KEPT = 1024
"""Things that a session keeps besides, of which a cluster with its costs is the largest; then it
drops all."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class _Memory(dict[K, T]):
    """Answers by question, no more than ``MAX_COSTS`` of them."""

    def keep(self, question: K, answer: T) -> T:
        """Keep an answer and return it."""
        if len(self) >= MAX_COSTS:
            self.clear()
        self[question] = answer
        return answer


class Answers:
    """What was worked out about one thing, each question once.

    Examples
    --------
    >>> answers = Answers()
    >>> answers.once("how many", lambda: 3), answers.once("how many", lambda: 4)
    (3, 3)
    """

    def __init__(self) -> None:
        self._known = _Memory[Hashable, Any]()

    def once(self, question: Hashable, work_out: Callable[[], T]) -> T:
        """Return the answer to a question, worked out where it was not asked before."""
        if question not in self._known:
            self._known.keep(question, work_out())
        found: T = self._known[question]
        return found


def _remembering(timer: Timer) -> Timer:
    """Return a function of a size that remembers its answers."""
    timings = _Memory[float, Timing]()

    def remembered(size_bytes: float) -> Timing:
        timing = timings.get(size_bytes)
        return timing if timing is not None else timings.keep(size_bytes, timer(size_bytes))

    return remembered


class RememberingDevice(Device):
    """A GPU that remembers what its kernels cost."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._costs = _Memory[Kernel, Cost]()
        self._sources = _Memory[tuple[str, bool], Device | None]()
        self._how = _Memory[tuple[str, bool], Literal["rates", "parts", "cost"]]()

    @classmethod
    def like(cls, device: Device) -> RememberingDevice:
        """Return a device that costs the same and remembers it."""
        return cls(**{field.name: getattr(device, field.name) for field in fields(device)})

    def cost(self, kernel: Kernel) -> Cost:
        """Return what one kernel costs (see `Device.cost`)."""
        cost = self._costs.get(kernel)
        return cost if cost is not None else self._costs.keep(kernel, super().cost(kernel))

    def _measured_on(self, kernel: Kernel) -> Device | None:
        """Return the GPU whose points price a kernel (see `Device`)."""
        asked = kernel.name, bool(kernel.parts)
        if asked not in self._sources:
            self._sources[asked] = super()._measured_on(kernel)
        return self._sources[asked]

    def _priced_by(self, kernel: Kernel) -> Literal["rates", "parts", "cost"]:
        """Return what prices kernels of a name (see `Device`)."""
        asked = kernel.name, bool(kernel.parts)
        how = self._how.get(asked)
        return how if how is not None else self._how.keep(asked, super()._priced_by(kernel))


class RememberingCluster(Cluster):
    """A cluster that remembers what its collectives cost, their routes, and its parts.

    A cluster made of it with other links or ranks begins with nothing remembered.
    """

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._costs = _Memory[tuple[str, float, str, str], Cost]()
        self._timers = _Memory[tuple[str, str, str], Timer]()
        self._routes = _Memory[tuple[str, str, str], Route]()
        self._compared = _Memory[tuple[str, str, str], tuple[Route, ...]]()
        self._by_size = _Memory[tuple[str, str, str], TimesBySize]()
        self._clusters = _Memory[tuple[str, Hashable], Cluster]()

    @classmethod
    def like(cls, cluster: Cluster) -> RememberingCluster:
        """Return a cluster that costs the same and remembers it."""
        return cls(**{field.name: getattr(cluster, field.name) for field in fields(cluster)})

    def cost(
        self, collective: str, size_bytes: float, algorithm: str = AUTO, protocol: str = AUTO
    ) -> Cost:
        """Return what one collective costs (see `Cluster.cost`)."""
        asked = (collective, size_bytes, algorithm, protocol)
        cost = self._costs.get(asked)
        return cost if cost is not None else self._costs.keep(asked, super().cost(*asked))

    def timer(self, collective: str, algorithm: str = AUTO, protocol: str = AUTO) -> Timer:
        """Return what tells a collective's time and what a rank sends (see `Cluster.timer`)."""
        asked = (collective, algorithm, protocol)
        timer = self._timers.get(asked)
        if timer is None:
            timer = self._timers.keep(asked, _remembering(super().timer(*asked)))
        return timer

    def by_size(self, collective: str, algorithm: str = AUTO, protocol: str = AUTO) -> TimesBySize:
        """Return what tells a collective's time by its size (see `Cluster.by_size`)."""
        asked = (collective, algorithm, protocol)
        times = self._by_size.get(asked)
        return times if times is not None else self._by_size.keep(asked, super().by_size(*asked))

    def compared_routes(
        self, collective: str, algorithm: str = AUTO, protocol: str = AUTO
    ) -> tuple[Route, ...]:
        """Return the routes of which the fastest tells the time (see `Cluster.compared_routes`)."""
        asked = (collective, algorithm, protocol)
        routes = self._compared.get(asked)
        if routes is None:
            routes = self._compared.keep(asked, super().compared_routes(*asked))
        return routes

    def route(self, collective: str, name: str, protocol: str = AUTO) -> Route:
        """Return an algorithm of a collective over the links here (see `Cluster.route`)."""
        asked = (collective, name, protocol)
        route = self._routes.get(asked)
        return route if route is not None else self._routes.keep(asked, super().route(*asked))

    def cluster_of(self, group: Group) -> Cluster:
        """Return one group of the ranks as a cluster of its own."""
        return self._once("group", group, super().cluster_of)

    def served(self, servers: int) -> Cluster:
        """Return the cluster with so many machines more that serve pushes and pulls."""
        if servers == self.servers:  # asked for with every collective
            return self
        return self._once("servers", servers, super().served)

    def with_part(self, part: float) -> Cluster:
        """Return the cluster with a part of what is left of the links between its nodes."""
        return self._once("part", part, super().with_part)

    def without_traffic(self) -> Cluster:
        """Return the cluster without other traffic."""
        return self._once(
            "without traffic", (), lambda _: super(RememberingCluster, self).without_traffic()
        )

    def as_measured(self) -> Cluster:
        """Return the cluster without its fabric."""
        return self._once(
            "as measured", (), lambda _: super(RememberingCluster, self).as_measured()
        )

    def in_one_place(self) -> Cluster:
        """Return the cluster with all nodes at one site."""
        if self.wide is None:
            return self
        return self._once(
            "in one place", (), lambda _: super(RememberingCluster, self).in_one_place()
        )

    def by_site(self) -> Cluster:
        """Return the cluster with sites in place of nodes in what groups of the ranks mean."""
        if self.wide is None or self.wide.by_site:
            return self
        return self._once("by site", (), lambda _: super(RememberingCluster, self).by_site())

    def by_itself(self) -> Cluster:
        """Return the group as if no other sent out of its nodes."""
        return self._once("by_itself", (), lambda _: super(RememberingCluster, self).by_itself())

    def _once(self, what: str, which: K, make: Callable[[K], Cluster]) -> Cluster:
        """Return another cluster made of this one, the same one each time."""
        cluster = self._clusters.get((what, which))
        return cluster if cluster is not None else self._clusters.keep((what, which), make(which))


_SHAPE = frozenset({"ranks", "nodes", "gpus_per_node", "gpus_of_host"})
"""What a method may read of the shape of its cluster."""

_shape_of = attrgetter(*sorted(_SHAPE))


class _RecordedContext(MethodContext):
    """What a method is told, which notes what of the cluster's shape the method reads."""

    _note: Callable[[str, str], Any] | None = None

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute, noted if it is of the shape."""
        if name in _SHAPE:
            note = object.__getattribute__(self, "_note")
            if note is not None:
                return note("shape", name)
        return object.__getattribute__(self, name)


class RecordedCosts:
    """The costs that a method and a fusion policy ask for, recorded with the answers.

    So is what a method reads of its cluster's shape: its ranks and nodes.

    Parameters
    ----------
    context : what the method is told
    costs : what the fusion policy asks for collectives; None where no policy asks
    shape : the cluster's shape as `RecordedCosts.shape` has it; None where the context may tell it

    Examples
    --------
    >>> recorded = RecordedCosts(MethodContext(2, kernel_s=lambda kernel: 1e-3))
    >>> recorded.context.kernel_s("a kernel"), recorded.context.ranks
    (0.001, 2)
    >>> recorded.answers
    {('kernel', 'a kernel'): 0.001, ('shape', 'ranks'): 2}
    """

    def __init__(
        self,
        context: MethodContext,
        costs: Costs | RecordedCosts | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self._ask: dict[str, Callable[..., Any]] = {
            "shape": partial(getattr, context),
            "collective": context.collective_s,
            "kernel": context.kernel_s,
        }
        if costs is not None:
            self._ask["by_size"] = costs.by_size
        self._context, self._shape = context, shape
        self._compared: dict[tuple[Any, ...], Any] = {}  # asked, but not by method or policy
        self.answers: dict[tuple[Any, ...], Any] = {}

    @property
    def context(self) -> MethodContext:
        """What the method is told, recorded; not kept, so that no cycle outlives the answers."""
        context = object.__new__(_RecordedContext)  # all fields are as they were checked before
        told = object.__getattribute__(context, "__dict__")
        told |= object.__getattribute__(self._context, "__dict__")  # reads that count as nobody's
        told["collective_s"] = partial(self._answer, "collective")
        told["kernel_s"] = partial(self._answer, "kernel")
        told["_note"] = self._answer
        return context

    @property
    def shape(self) -> tuple[int, ...]:
        """The cluster's shape, noted or not."""
        if self._shape is None:
            self._shape = _shape_of(self._context)
        shape: tuple[int, ...] = self._shape
        return shape

    @property
    def asked_cluster(self) -> bool:
        """Whether anything was asked that depends on the cluster: all but times of kernels."""
        return any(what != "kernel" for what, *_ in self.answers)

    @property
    def asked_times(self) -> bool:
        """Whether anything was asked of what collectives take."""
        return not {"kernel", "shape"}.issuperset(what for what, *_ in self.answers)

    @property
    def method_asked(self) -> bool:
        """Whether the method asked what kernels or collectives take."""
        return any(what in ("kernel", "collective") for what, *_ in self.answers)

    def by_size(self, collective: str) -> TimesBySize:
        """Return what tells the fusion policy the time of a collective by its size [s], recorded.

        Each cluster has one for it, which stands for all its answers.
        """
        times: TimesBySize = self._answer("by_size", collective)
        return times

    def _answer(self, what: str, *about: Any) -> Any:
        question = (what, *about)
        answer = self.answers.get(question)
        if answer is None:
            answer = self._compared.get(question)
            answer = self.answers[question] = self._ask[what](*about) if answer is None else answer
        return answer

    def same_answers(self, answers: dict[tuple[Any, ...], Any]) -> bool:
        """Tell whether the same questions have the same answers here."""
        for question, known in answers.items():
            if question not in self._compared:
                what, *about = question
                self._compared[question] = self._ask[what](*about)
            if self._compared[question] != known:
                return False
        return True


def _same_jobs(jobs: list[list[Job]], others: list[list[Job]]) -> bool:
    """Tell whether some jobs, by iteration, are the very same; iterations without any are alike."""
    return len(jobs) == len(others) and all(
        one is other or not (one or other) for one, other in zip(jobs, others, strict=True)
    )


class _KeptGraph(NamedTuple):
    graph: CostedGraph
    jobs: list[list[Job]]


class WorksOfJobs:
    """What the stages of some jobs do, and what their kernels take on one GPU.

    Graphs of the same jobs ask for it one after the other.

    Parameters
    ----------
    before : those of the jobs before, which may have some of the same stages
    """

    def __init__(self, jobs: list[list[Job]], before: WorksOfJobs | None = None) -> None:
        self.jobs = jobs
        self._works = ByIdentity[TaskWork]()
        self._seconds: dict[TaskWork, float] = {}
        self._on: tuple[Device, float] | None = None
        if before is not None and len(before._works) < MAX_WORKS:
            self._works, self._seconds, self._on = before._works, before._seconds, before._on

    def work(self, stage: JobStage) -> TaskWork:
        """Return what a stage does."""
        work = self._works.get(stage)
        return work if work is not None else self._works.keep(stage, task_work(stage))

    def kernels_s(self, costs: Costs) -> Callable[[TaskWork], float]:
        """Return what tells how long the kernels of a work take [s]."""
        on = costs.device, costs.kernel_factor
        if self._on is None or self._on[0] is not on[0] or self._on[1] != on[1]:
            self._on, self._seconds = on, {}
        known = self._seconds

        def kernels_s(work: TaskWork) -> float:
            seconds = known.get(work)
            if seconds is None:
                seconds = known[work] = costs.kernels_s(work)
            return seconds

        return kernels_s


class _Kept(NamedTuple, Generic[T]):
    """What was made, and the answers on which it rests."""

    made: T
    answers: dict[tuple[Any, ...], Any]


class _Latest(Generic[T]):
    """The latest values by key, ``most`` of them, as long as their sizes sum to ``MAX_TASKS``."""

    def __init__(self, most: int = MAX_ROUNDS) -> None:
        self._kept: dict[tuple[Hashable, ...], tuple[T, int]] = {}
        self._size, self._most = 0, most

    def get(self, key: tuple[Hashable, ...]) -> T | None:
        """Return the value of a key, if there is one."""
        kept = self._kept.get(key)
        return kept[0] if kept else None

    def __contains__(self, key: tuple[Hashable, ...]) -> bool:
        """Tell whether a key has a value."""
        return key in self._kept

    def keep(self, key: tuple[Hashable, ...], value: T, size: int) -> None:
        """Keep a value, and drop the oldest where there is too much."""
        _, before = self._kept.pop(key, (None, 0))
        self._kept[key] = (value, size)
        self._size += size - before
        while len(self._kept) > 1 and (self._size > MAX_TASKS or len(self._kept) > self._most):
            _, dropped = self._kept.pop(next(iter(self._kept)))
            self._size -= dropped


def _kept_or_made(
    latest: _Latest[_Kept[list[T]]],
    key: tuple[Hashable, ...],
    recorded: RecordedCosts,
    make: Callable[[], list[T]],
) -> list[T]:
    """Return the jobs or rounds of a key, kept or new, and leave recorded on which they rest."""
    for known in (key, (*key, recorded.shape)):
        kept = latest.get(known)
        if kept is not None and recorded.same_answers(kept.answers):
            recorded.answers = {**kept.answers}
            return kept.made
    recorded.answers = {}
    made = make()
    if recorded.asked_cluster:  # one for each shape, as sweeps of shapes come back to each
        key = (*key, recorded.shape)
    latest.keep(key, _Kept(made, recorded.answers), 1 + len(made))
    return made


class JobCache:
    """The jobs and task graphs of earlier scenarios.

    Jobs are taken over where everything but costs and the cluster's shape is the same (the key),
    and each cost and each part of the shape that was asked for while they were made is the same
    here. Where other costs lead a policy to buckets that it has formed before, their jobs are taken
    over too. A graph of the same jobs, or of jobs of the same structure, is taken over with its
    tasks priced anew.

    Examples
    --------
    >>> cache, slow = JobCache(), lambda kernel: 2e-3
    >>> def made(context):
    ...     recorded = RecordedCosts(context)
    ...     return cache.jobs(
    ...         ("bsp",), recorded, lambda: [recorded.context.kernel_s("a kernel")])
    >>> made(MethodContext(8)) is made(MethodContext(9)), made(MethodContext(8, kernel_s=slow))
    (True, [0.002])
    """

    def __init__(self) -> None:
        self._asked = _Latest[bool]()  # whether times of collectives were asked for
        self._rounds = _Latest[_Kept[list[CostedGraph]]]()
        self._jobs = _Latest[_Kept[list[Job]]]()
        self._jobs_of_buckets = _Latest[_Kept[list[Job]]]()
        self._graphs = _Latest[_KeptGraph]()
        self._structures = _Latest[GraphOfJobs | _KeptGraph]()  # kept, until one is taken over
        self._slowed = _Latest[CostedGraph]()
        self._first = _Latest[_KeptGraph | None]()  # of a key; None once its structure is known
        self._works = WorksOfJobs([])
        self._sent = _Latest[SentGradients](MAX_SENT)
        self._ready = _Latest[ReadyGradients](MAX_SENT)

    def may_know(self, key: tuple[Hashable, ...]) -> bool:
        """Tell whether rounds of a key may be taken over: for others nothing is recorded.

        They are not where none were asked for before, nor where what collectives take was asked
        for while they were made: each cluster has its own answers.
        """
        times_asked = self._asked.get(key)
        if times_asked is None:
            self._asked.keep(key, False, 1)
        return times_asked is False

    def rounds(
        self,
        key: tuple[Hashable, ...],
        recorded: RecordedCosts,
        costs: Costs,
        make: Callable[[], list[CostedGraph]],
    ) -> list[CostedGraph]:
        """Return the rounds of a key of which only times are asked, at what these take here.

        Other costs give the same rounds where everything that was asked for while they were made
        has the same answer.
        """
        kept = _kept_or_made(self._rounds, key, recorded, make)
        if recorded.asked_times:
            self._asked.keep(key, True, 1)
        return [reprice(costed, costs, durations_only=True) for costed in kept]

    def jobs(
        self, key: tuple[Hashable, ...], recorded: RecordedCosts, make: Callable[[], list[Job]]
    ) -> list[Job]:
        """Return the jobs of a key, from the cache or new."""
        return _kept_or_made(self._jobs, key, recorded, make)

    def jobs_of(
        self,
        formed: Callable[[], Hashable],
        key: tuple[Hashable, ...],
        recorded: RecordedCosts,
        make: Callable[[], list[Job]],
    ) -> list[Job]:
        """Return the jobs of buckets that a policy has just formed, from the cache or new.

        At other costs a policy may form the same buckets: ``formed`` tells these from others. The
        key has all else that the jobs depend on, the policy too.
        """
        policy_answers = recorded.answers
        if not policy_answers:  # then these are the buckets of the key
            return make()
        jobs = _kept_or_made(self._jobs_of_buckets, (*key, formed()), recorded, make)
        recorded.answers = policy_answers | recorded.answers
        return jobs

    def sent(
        self, profile: Profile, profile_key: Hashable, method: Method, iteration: int
    ) -> SentGradients:
        """Return the gradients of a profile in ready order, with what a method sends for each."""
        key = (profile_key, method, iteration)
        sent = self._sent.get(key)
        if sent is None:
            message_bytes = partial(method.message_bytes, iteration=iteration)
            ready = self._ready.get((profile_key,))
            if ready is None:
                ready = ReadyGradients(tuple(profile.in_ready_order()))
                self._ready.keep((profile_key,), ready, len(ready.gradients))
            sent = SentGradients(ready.gradients, message_bytes, ready)
            self._sent.keep(key, sent, len(sent.gradients))
        return sent

    def graph(
        self,
        key: tuple[Hashable, ...],
        jobs: list[list[Job]],
        costs: Costs,
        make: Callable[[], CostedGraph],
        *,
        passes_s: PassSeconds | None = None,
        durations_only: bool = False,
    ) -> CostedGraph:
        """Return the task graph of some jobs: from the cache at what tasks cost here, or new.

        ``key`` has all that the order of its tasks depends on besides the jobs, and what passes
        and updates take. ``passes_s`` is that of `structure_of`, ``durations_only`` that of
        `perfsim.schedule.costs.reprice`.
        """
        # Iterations without jobs are alike.
        known = (*key, *(Identity(one) if one else None for one in jobs))
        kept = self._graphs.get(known)
        if kept is not None:
            priced = reprice(kept.graph, costs, durations_only=durations_only)
            # Kept priced for who asks again; a graph of times alone replaces no whole one.
            if not durations_only or kept.graph.durations_s is not None:
                self._graphs.keep(known, kept._replace(graph=priced), len(priced.graph.tasks))
            return priced
        structure = self._structure(key, jobs, passes_s)
        like = self._like(structure, passes_s) if structure else None
        works = self._works_of(jobs)
        taken_over = like.with_jobs(jobs, works.work) if like is not None else None
        if taken_over is not None:
            kernels_s = works.kernels_s(costs)
            graph = reprice(taken_over, costs, durations_only=durations_only, kernels_s=kernels_s)
            self._graphs.keep(known, _KeptGraph(graph, jobs), len(graph.graph.tasks))
            return graph
        graph = make()
        kept = _KeptGraph(graph, jobs)
        self._graphs.keep(known, kept, len(graph.graph.tasks))
        if structure:
            self._structures.keep(structure, kept, len(graph.graph.tasks))
        else:
            self._first.keep(key, kept, len(graph.graph.tasks))
        return graph

    def slowed(self, costed: CostedGraph, slow: Callable[[], CostedGraph]) -> CostedGraph:
        """Return a graph with its passes slowed, once for each graph."""
        key = (Identity(costed),)
        found = self._slowed.get(key)
        if found is None:
            found = slow()
            self._slowed.keep(key, found, len(costed.graph.tasks))
        return found

    def _works_of(self, jobs: list[list[Job]]) -> WorksOfJobs:
        """Return the works of some jobs, kept if they are those of the latest."""
        if not _same_jobs(jobs, self._works.jobs):
            self._works = WorksOfJobs(jobs, self._works)
        return self._works

    def _like(
        self, structure: tuple[Hashable, ...], passes_s: PassSeconds | None
    ) -> GraphOfJobs | None:
        """Return the graph of a structure, prepared once it is asked for; None where there is none.

        Most graphs are never taken over.
        """
        like = self._structures.get(structure)
        if isinstance(like, _KeptGraph):
            like = GraphOfJobs(*like, passes_s)
            self._structures.keep(structure, like, len(like.costed.graph.tasks))
        return like

    def _structure(
        self, key: tuple[Hashable, ...], jobs: list[list[Job]], passes_s: PassSeconds | None
    ) -> tuple[Hashable, ...] | None:
        """Return a key with the structure of some jobs; None where nothing else has the key yet.

        So it is worked out only once there is another graph to compare it with.
        """
        if key not in self._first:
            return None
        first = self._first.get(key)
        if first is not None:
            own = (*key, structure_of(first.jobs, passes_s))
            self._structures.keep(own, first, len(first.graph.graph.tasks))
            self._first.keep(key, None, 0)
        return (*key, structure_of(jobs, passes_s))


class Session(Catalog):
    """A catalog that reads each file once and keeps what is made of it.

    Predictions are those of a plain catalog. ``predict()`` refreshes its session first, so that it
    never answers from a file that has changed, been added or been removed since. Whoever asks for
    many predictions of one state of the files, as a sweep does, refreshes once and then resolves
    with it.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.scenario import make_scenario
    >>> asked, session = make_scenario({"model": "resnet50", "gpus": 16}), Session()
    >>> predict(asked, session).iteration_s == predict(asked).iteration_s
    True
    """

    def __init__(
        self,
        profiles: str | Path | None = None,
        without: Collection[str] = frozenset(),
        without_kernels: Collection[str] = frozenset(),
    ) -> None:
        self._asked = profiles, without, without_kernels
        self._start()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy is made: of the same folders, with nothing read yet."""
        return Session, self._asked

    def _start(self) -> None:
        """Look at the folders, with nothing kept."""
        super().__init__(*self._asked)
        self._kept: dict[tuple[Hashable, ...], Any] = {}
        self._files: dict[str, dict[str, Path]] = {}
        self.jobs = JobCache()
        looked = [
            Path("profiles"),
            *(folder / kind for folder in self.folders for kind in {*FILE_SUFFIXES, *RECORDS}),
        ]
        self._stamps = {str(path): stamp(str(path)) for path in looked}

    def once(self, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
        """Return what ``make`` made the first time that ``key`` was asked for."""
        if key in self._kept:
            kept: Made = self._kept[key]
            return kept
        with noting(self._stamps):
            made = make()
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = made
        return made

    def files(self, kind: str) -> dict[str, Path]:
        """Return file stem -> path for one kind, as it was the first time."""
        if kind not in self._files:
            self._files[kind] = super().files(kind)
        return self._files[kind]

    def outdated(self) -> bool:
        """Tell whether a file that was read, or what a folder holds, has changed."""
        return files_changed(self._stamps)

    def refresh(self) -> None:
        """Drop everything where a file or folder has changed."""
        if self.outdated():
            self._start()


_OF_NETWORKS = frozenset({"platform", "gpu", "baseline", "split", "group"})
"""What follows from networks: platforms, the GPU that one has, baselines on them, models divided
among their ranks and the groups of these."""


class SessionWithNetworks(Session):
    """A view of a session in which some networks are given.

    It keeps to itself what follows from networks. All else is the session's, its jobs too.

    Parameters
    ----------
    session : what it is a view of
    given_network : returns the network to take for a field (net, intra_net) and a name; None where
        the session's own is taken
    """

    def __init__(
        self, session: Session, given_network: Callable[[str, str], Network | None]
    ) -> None:
        self._session, self._given_network = session, given_network
        self._start()

    def _start(self) -> None:
        """Look at the session as it is now, with no platform kept."""
        session = self._session
        self.given, self.folders = session.given, session.folders
        self.record_folders = session.record_folders
        self.without, self.without_kernels = session.without, session.without_kernels
        self.jobs, self._files, self._stamps = session.jobs, session._files, session._stamps
        self._kept = {}

    def once(self, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
        """Return a network that is given, what the view has of its own, or what the session has."""
        if key[0] in _OF_NETWORKS:
            return super().once(key, make)
        if key[0] == "network":
            _, field, name = key
            network: Any = self._given_network(str(field), str(name))
            if network is not None:
                made: Made = network
                return made
        return self._session.once(key, make)

    def refresh(self) -> None:
        """Refresh the session, and drop the platforms of one that has started anew."""
        self._session.refresh()
        if self.jobs is not self._session.jobs:
            self._start()


_OF_FILES = frozenset(
    {
        *("all anchors", "points of kernels", "owners of kernels", "rates"),
        *("profile", "profiles by model", "network", "node", "hardware"),
        *("uncertainties", "shadowed", "own file", "own record"),
    }
)
"""What a session keeps of files as they are, whatever it leaves out."""


class SourceSession(Session):
    """A session that leaves out what some owners published, beside one that leaves out nothing.

    Files are read by the other, once for all such sessions.

    Parameters
    ----------
    whole : the session that leaves out nothing
    without, without_kernels : as those of `Session`
    """

    def __init__(
        self, whole: Session, without: Collection[str], without_kernels: Collection[str] = ()
    ) -> None:
        self._whole = whole
        super().__init__(whole.given, without, without_kernels)

    def _start(self) -> None:
        """Look at the folders, with nothing kept; what either session reads is stamped for both."""
        super()._start()
        self._stamps = self._whole._stamps

    def refresh(self) -> None:
        """Drop everything where a file or folder has changed."""
        self._whole.refresh()
        super().refresh()

    def once(self, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
        """Return what the other session has of files, or what this one has of its own."""
        return self._whole.once(key, make) if key[0] in _OF_FILES else super().once(key, make)

    def files(self, kind: str) -> dict[str, Path]:
        """Return file stem -> path for one kind."""
        return self._whole.files(kind)


class _OfThread(threading.local):
    """The default session of each thread, by working folder and ``PERFSIM_PATH``."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], Session] = {}


_DEFAULT = _OfThread()


def fresh(catalog: Catalog | None) -> Catalog:
    """Return a catalog that has nothing of a file as it was before; None: `default_session`.

    Raises
    ------
    RequestError
        If it is no catalog, such as the name of a folder.
    """
    if catalog is None:
        return default_session()
    if not isinstance(catalog, Catalog):
        why = f"{shown(catalog)} is no catalog; perfsim.session.Session(FOLDER) reads a folder"
        raise RequestError("catalog", f"{why} of your own profiles.", value=catalog)
    if isinstance(catalog, Session):
        catalog.refresh()
    return catalog


def default_session() -> Session:
    """Return the session of this thread, for its working folder and ``PERFSIM_PATH``.

    Each thread has one of its own: what one reads another does not meet half made. It is what
    ``predict()`` takes where it is given no catalog.

    Examples
    --------
    >>> default_session() is default_session()
    True
    """
    here = os.getcwd() if os.path.exists(".") else "", os.environ.get("PERFSIM_PATH", "")
    sessions = _DEFAULT.sessions
    session = sessions.get(here)
    if session is None:
        sessions.clear()
        session = sessions[here] = Session()
    else:
        session.refresh()
    return session


def job_cache(catalog: Catalog) -> JobCache | None:
    """Return the jobs that a session keeps; a plain catalog keeps none."""
    return catalog.jobs if isinstance(catalog, Session) else None
