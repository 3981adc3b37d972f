"""The task graph of one round of a method's period, and what each task's duration is made of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from perfsim.compute.device import Device
from perfsim.compute.kernel import Kernel
from perfsim.conditions.spec import Conditions
from perfsim.methods.base import Compute, Send
from perfsim.network.cluster import Cluster
from perfsim.quantity import Grade, Term
from perfsim.schedule.stage_passes import AXIS_WORDS
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.sync import SyncScope
from perfsim.simulate.task import LinkUse

__all__ = [
    "WAIT",
    "WORK",
    "CostedGraph",
    "KindsOfWork",
    "Mixed",
    "PartOfPass",
    "PricedOn",
    "RoundTimes",
    "TaskCost",
    "TaskWork",
    "WorkCost",
    "WorkLayout",
    "WorkTimes",
    "sum_at",
    "term_subject",
    "terms_of",
]


class KindsOfWork(NamedTuple):
    """The works of a graph that cost different things.

    Parameters
    ----------
    works : one of each kind
    tasks : the tasks of each kind; passes and updates do none
    sent : the kind of each task that sends what counts for this rank
    """

    works: list[TaskWork]
    tasks: list[list[int]]
    sent: list[int]


class WorkTimes(NamedTuple):
    """What a work of each kind takes [s], and what a rank sends in it [bytes]."""

    seconds: list[float]
    sent_bytes: list[float]


def sum_at(places: Iterable[int], values: Sequence[float]) -> float:
    """Return the sum of the values at some places, in their order."""
    total = 0.0
    for place in places:
        total += values[place]
    return total


class TaskCost(NamedTuple):
    """What one task's duration is made of, for what-ifs and intervals.

    ``cause`` is compute, network, compression, second_order or waiting. ``latency_s`` is the part
    that no bandwidth shrinks. ``spread`` is the relative 90 % half-width of the duration.
    ``grade`` says whether such a cost was measured, carried or modelled (see ``Cost``). Of
    computation, ``host`` and ``device`` are the shares of the duration that the host's launches
    and the GPU's work would take alone; the later of both is 1.
    """

    cause: str
    latency_s: float = 0.0
    spread: float | None = None
    grade: Grade = "modelled"
    host: float = 0.0
    device: float = 1.0


@dataclass(eq=False, slots=True)
class TaskWork:
    """What a task does of a method: a stage, and how often it runs each of its kernels."""

    stage: Send | Compute
    kernels: tuple[tuple[Kernel, int], ...]


class WorkCost(NamedTuple):
    """What the work of a task costs, and who waits for whom before it.

    Parameters
    ----------
    seconds, charged : its duration, and what that is made of
    sent_bytes : what a rank sends
    scope : of a message, the ranks that one waits for; None: all of them
    """

    seconds: float
    charged: TaskCost
    sent_bytes: float = 0.0
    scope: SyncScope | None = None


class PricedOn(NamedTuple):
    """What the work of a graph was priced on.

    Parameters
    ----------
    device, kernel_factor : the GPU, and the factor on its kernels
    cluster : of the data-parallel ranks
    algorithm, protocol, asked : those of `Costs`, and what else was asked of messages
    """

    device: Device
    kernel_factor: float
    cluster: Cluster
    algorithm: str
    protocol: str
    asked: tuple[Any, ...]

    def same_kernels(self, other: PricedOn | None) -> bool:
        """Tell whether kernels cost the same there."""
        if other is None:
            return False
        return self.device is other.device and self.kernel_factor == other.kernel_factor

    def same(self, other: PricedOn | None) -> bool:
        """Tell whether all costs the same there."""
        if other is None or not self.same_kernels(other):
            return False
        return self.cluster is other.cluster and self[3:] == other[3:]


WORK = TaskCost("compute")
WAIT = TaskCost("waiting")


class PartOfPass(NamedTuple):
    """A task that computes a part of a pass.

    Parameters
    ----------
    task : its number
    kind : which pass
    step : which micro-batch that exchanges, of all iterations of the round
    from_s : where in the pass it begins [s]
    seconds : how long it is [s]
    """

    task: int
    kind: Literal["forward", "backward"]
    step: int
    from_s: float
    seconds: float


@dataclass
class CostedGraph:
    """One round of a method's period: its task graph, the cost of each task, and its weight.

    Parameters
    ----------
    graph : the tasks
    charges : what each task's duration is made of
    sent_bytes, calls : what a GPU sends in the round, and in how many collectives
    gathered_bytes : what all-gathers of the method bring to a GPU
    gathering : how many micro-batches they are in
    count : how many times the round is run in the period, its weight
    order : the order in which streams take their tasks
    begins : the first task of each iteration
    repeats : how many iterations in a row each of these is; () for one each
    conditions : how the ranks differ, None where they do not
    crossings : by task, how a message uses the links between nodes, where other jobs do too
    beside : the rounds of the other jobs on the network
    mixed : the same round on the other types of GPU
    work : what each task does of the method, None for passes and updates
    priced_on : what its work was priced on; None where it was not priced
    durations_s : of the tasks here, where only times were asked and the graph's are others
    fixed_jobs : whether only times were asked, and jobs are the same whatever collectives take
    any_shape : whether only times were asked, and the shape of the cluster has no say in it
    decided_by_costs : whether the method asked what kernels or collectives take, to decide by it
    parts : the tasks that compute parts of passes
    work_times : what its works take, where only times were asked
    """

    graph: TaskGraph
    charges: list[TaskCost] = field(default_factory=list)
    sent_bytes: float = 0.0
    calls: float = 0
    gathered_bytes: float = 0.0
    gathering: int = 0
    count: float = 1.0
    order: Literal["issue", "priority"] = "issue"
    begins: list[int] = field(default_factory=list)
    repeats: tuple[int, ...] = ()
    conditions: Conditions | None = None
    crossings: dict[int, LinkUse] = field(default_factory=dict)
    beside: tuple[CostedGraph, ...] = ()
    mixed: Mixed | None = None
    work: list[TaskWork | None] = field(default_factory=list)
    priced_on: PricedOn | None = None
    durations_s: list[float] | None = None
    fixed_jobs: bool = False
    any_shape: bool = False
    decided_by_costs: bool = False
    parts: list[PartOfPass] = field(default_factory=list, repr=False)
    _terms: dict[Hashable, tuple[float, tuple[Term, ...]]] = field(default_factory=dict, repr=False)
    work_times: WorkTimes | None = field(default=None, init=False, repr=False, compare=False)

    @cached_property
    def kinds_of_work(self) -> KindsOfWork:
        """The works of the tasks that cost different things."""
        kinds = KindsOfWork([], [], [])
        places: dict[TaskWork, int] = {}
        alike: dict[Send, int] = {}
        for index, work in enumerate(self.work):
            if work is None:
                continue
            place = places.get(work)
            if place is None:
                place = len(kinds.works)
                stage = work.stage
                if isinstance(stage, Send):
                    # Urgency says when a message is sent, not what it costs.
                    priced = stage._replace(priority=0) if stage.priority else stage
                    place = alike.setdefault(priced, place)
                if place == len(kinds.works):
                    kinds.works.append(work)
                    kinds.tasks.append([])
                places[work] = place
            kinds.tasks[place].append(index)
            if isinstance(work.stage, Send) and work.stage.counted:
                kinds.sent.append(place)
        return kinds

    @cached_property
    def takes_algorithm(self) -> bool:
        """Whether the algorithm that the user asks for changes what it costs."""
        return any(
            isinstance(work.stage, Send) and work.stage.by_asked_algorithm
            for work in self.kinds_of_work.works
        )

    @cached_property
    def by_cause(self) -> dict[str, list[int]]:
        """The tasks that are charged to each cause."""
        found: dict[str, list[int]] = {}
        for index, charge in enumerate(self.charges):
            found.setdefault(charge.cause, []).append(index)
        return found

    @cached_property
    def task_s(self) -> list[float]:
        """What each task takes [s]."""
        if self.durations_s is not None:
            return self.durations_s
        return [float(task.duration_s) for task in self.graph.tasks]

    @cached_property
    def seconds_by_charge(self) -> dict[tuple[str, Grade], float]:
        """How long the tasks of each cause and grade of evidence take in one run [s]."""
        found: dict[tuple[str, Grade], float] = {}
        for charge, seconds in zip(self.charges, self.task_s, strict=True):
            key = charge.cause, charge.grade
            found[key] = found.get(key, 0.0) + seconds
        return found

    @cached_property
    def host_share(self) -> float:
        """The largest share of a task's duration that the host's launches would take alone."""
        return max(
            (self.charges[index].host for index in self.by_cause.get("compute", ())), default=0.0
        )

    def with_durations(
        self, longer_s: Mapping[int, float], *, durations_only: bool = False
    ) -> CostedGraph:
        """Return the round with some tasks that take another time [s].

        Parameters
        ----------
        durations_only : leave the tasks as they are and return all durations beside them
        """
        if durations_only and not self.graph.contended:
            durations_s = [*self.task_s]
            for index, seconds in longer_s.items():
                durations_s[index] = seconds
            return replace(self, durations_s=durations_s)
        tasks = [*self.graph.tasks]
        for index, seconds in longer_s.items():
            tasks[index] = tasks[index]._replace(duration_s=seconds)
        return replace(self, graph=self.graph.with_tasks(tasks))

    @property
    def layout(self) -> WorkLayout:
        """Where its works are among its tasks; each task by itself where passes may be slowed."""
        tasks, sent = None, list[int]()
        if self.fixed_jobs:  # then passes and updates take what they take in the graph
            tasks, sent = self.kinds_of_work.tasks, self.kinds_of_work.sent
        return WorkLayout(self.graph, self.count, self.iterations, tasks, sent)

    @property
    def times(self) -> RoundTimes:
        """Its times, as they are priced."""
        layout, works_s = self.layout, self.task_s
        if layout.tasks is not None:
            works_s = [works_s[alike[0]] for alike in layout.tasks]
        return RoundTimes(layout, works_s, self.sent_bytes)

    @property
    def iterations(self) -> float:
        """Training iterations of the period that are run by this round."""
        return self.count * self.graph.iterations

    def add_message(self, send: Send, sent_bytes: float) -> None:
        """Add a message, of which a rank sends so many bytes, to the sums of the round."""
        if send.counted:
            self.sent_bytes += sent_bytes
            self.calls += send.repeats
            if send.collective == "all_gather" and send.group not in AXIS_WORDS:
                self.gathered_bytes += send.size_bytes * send.repeats

    def note(self, question: Hashable, size: float, terms: tuple[Term, ...]) -> None:
        """Note the numbers behind a cost: what was priced, its size, and the terms."""
        self._terms[question] = size, terms

    def note_kernels(self, work: TaskWork, other: CostedGraph) -> None:
        """Note the numbers behind the kernels of a task as another graph has them."""
        for kernel, _ in work.kernels:
            self._terms[kernel] = other._terms[kernel]

    def replace_terms(self, terms: Iterable[tuple[float, Term]]) -> None:
        """Note other numbers instead: each with the size of what it prices."""
        self._terms = {index: (size, (term,)) for index, (size, term) in enumerate(terms)}

    @property
    def terms(self) -> Iterator[tuple[float, Term]]:
        """Every number behind a cost, with the size of what it prices."""
        return ((size, term) for size, terms in self._terms.values() for term in terms)


@dataclass(frozen=True, slots=True)
class WorkLayout:
    """Where the works of a round are among its tasks.

    Parameters
    ----------
    graph, count, iterations : those of the `CostedGraph`
    tasks : the tasks of each kind of work, all others take what they take in the graph; None: each
        task is a work of its own
    sent : the kind of each task that sends what counts for this rank
    """

    graph: TaskGraph
    count: float
    iterations: float
    tasks: list[list[int]] | None
    sent: list[int]

    def durations_s(self, works_s: Sequence[Any]) -> list[Any]:
        """Return what each task takes, from what a work of each kind does: floats or arrays [s]."""
        if self.tasks is None:
            return [*works_s]
        durations_s: list[Any] = [float(task.duration_s) for task in self.graph.tasks]
        for seconds, alike in zip(works_s, self.tasks, strict=True):
            for task in alike:
                durations_s[task] = seconds
        return durations_s

    def times(self, works: WorkTimes) -> RoundTimes:
        """Return the times of the round where its works take these."""
        return RoundTimes(self, works.seconds, sum_at(self.sent, works.sent_bytes))


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """How long the works of a round take, and what it sends: what a sweep asks of it.

    Parameters
    ----------
    layout : where the works are
    works_s : of each kind
    sent_bytes : by a GPU in the round
    """

    layout: WorkLayout
    works_s: list[float]
    sent_bytes: float

    @property
    def count(self) -> float:
        """How many times the round is run in the period."""
        return self.layout.count

    @property
    def iterations(self) -> float:
        """Training iterations of the period that are run by the round."""
        return self.layout.iterations

    @property
    def durations_s(self) -> list[float]:
        """What each task takes [s]."""
        return self.layout.durations_s(self.works_s)


@dataclass(frozen=True)
class Mixed:
    """The same round on the other types of GPU of a cluster with several.

    Parameters
    ----------
    rounds : one for each other type
    kinds : the type of each rank; 0 is that of the round itself, the slowest
    spent_s : seconds of their tasks where these were changed, one list a type
    """

    rounds: tuple[CostedGraph, ...]
    kinds: tuple[int, ...]
    spent_s: tuple[list[float], ...] = ()


def term_subject(term: Term) -> str:
    """Return what a term is about, without the size."""
    return term.term.partition(" at ")[0]


def terms_of(rounds: Iterable[CostedGraph]) -> list[Term]:
    """Return the numbers behind the costs of all rounds: each once, at the largest size.

    A term is named "what at size" where its value depends on the size. A use outside its range
    wins over one inside.
    """
    kept: dict[str, tuple[bool, float, Term]] = {}
    for costed in rounds:
        for size, term in costed.terms:
            subject = term_subject(term)
            known = kept.get(subject)
            if known is not None:
                outside, known_size, _ = known
                if term.extrapolated == outside and size <= known_size:
                    continue
                if outside and not term.extrapolated:
                    continue
            kept[subject] = (term.extrapolated, size, term)
    return [term for _, _, term in kept.values()]
