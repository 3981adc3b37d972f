"""Build a round's task graph: jobs become tasks on streams, as the host of a worker launches them.

Issue order is part of the model. In an iteration it is:

1. what the host adds; the forward pass, and behind it what a stage waits for the others;
2. the backward pass up to each job's beginning, the job's stages, and so on to the end of the pass;
3. what is left of the jobs;
4. the update, which waits for every job that nothing else waits for.

A stage on the compute stream that needs a collective's result is issued after the backward pass,
so that it does not hold it up (unless the method says that the host waits there). Such stages go in
waves (every job's first, then every job's second, ...), as a loop over buckets issues them. A job
that holds up the next forward pass does so at its place there, after the part of the update that
belongs to it.

At one place of a pass the order is: what the iteration before left to wait for there and its part
of the update; the jobs that begin there; what this iteration waits for there; the jobs that begin
behind that. So a job that begins where another of its iteration is waited for does not wait for
that one, unless it begins behind it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

from perfsim.compute.kernel import Kernel
from perfsim.compute.profile import Profile
from perfsim.errors import RequestError
from perfsim.methods.base import (
    Compute,
    Group,
    Job,
    JobStage,
    Method,
    MethodContext,
    Moment,
    PassPoint,
    Send,
)
from perfsim.schedule.beside_messages import (
    UNSLOWED,
    SlowedPass,
    slowed_backward,
    slowed_forward,
    slowing_messages,
)
from perfsim.schedule.costed_graph import (
    WAIT,
    WORK,
    CostedGraph,
    PartOfPass,
    TaskCost,
    TaskWork,
    WorkCost,
)
from perfsim.schedule.costs import Costs, likeness, price, task_work
from perfsim.schedule.stage_passes import BUBBLE, WHOLE_MODEL, StagePasses
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.sync import SyncScope
from perfsim.simulate.task import COMPUTE, Credit, Shared, Task, TaskKind
from perfsim.sums import sum_in_order

__all__ = ["issue", "late_launches_s", "optimizer_share", "slowed_by_messages"]

_MOMENTS: dict[Moment, int] = {moment: at for at, moment in enumerate(get_args(Moment))}
"""The earliest moments of stages, numbered in the order in which they come."""

_NEGLIGIBLE_SHARE = 1e-9
"""Share of the optimizer's step that may be left by rounding when parts of it are added up."""


@dataclass(slots=True)
class JobProgress:
    """A job under way: stages left, tasks that the next one waits for, sends not awaited."""

    job: Job
    name: str
    stages: list[JobStage]
    tail: tuple[int, ...] = ()
    loose: list[int] = field(default_factory=list)
    needs: tuple[str, ...] = ()

    @property
    def ends(self) -> list[int]:
        """The tasks with which the job ends."""
        return sorted({*self.tail, *self.loose})


def _would_hold_up(stage: JobStage) -> bool:
    """Tell whether a stage that needs a result is kept out of the backward pass's way."""
    return isinstance(stage, Compute) and stage.stream == COMPUTE and not stage.blocks


def _in_this_period(tasks: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return pairs (task, periods back) of some tasks."""
    if len(tasks) == 1:  # most wait for one
        return ((tasks[0], 0),)
    return tuple([(task, 0) for task in tasks])


class DeferredDependency(NamedTuple):
    """A job that is waited for and may not be issued yet: its iteration, name, and rounds back."""

    iteration: int
    job: str
    back: int


class _Tasks:
    """Adds tasks to a round's graph and prices them.

    ``waits`` is what the next task on the compute stream waits for besides its own dependencies:
    the ends of jobs that hold computation up.
    """

    def __init__(self, costed: CostedGraph, costs: Costs) -> None:
        self.costed, self.graph, self.costs = costed, costed.graph, costs
        self.charges, self.work = costed.charges, costed.work
        self.waits: list[int | DeferredDependency] = []
        self._late: list[tuple[int, DeferredDependency]] = []
        self._computed: list[int] = []
        # Buckets of the same shapes have the same stages.
        self._priced: dict[int, tuple[JobStage, tuple[TaskWork, WorkCost]]] = {}  # by identity
        self._alike: dict[Hashable, tuple[TaskWork, WorkCost]] = {}

    def add(
        self,
        name: str,
        stream: str,
        kind: TaskKind,
        seconds: float,
        after: Sequence[int],
        cost: TaskCost = WORK,
        priority: int = 0,
        shares: Shared | None = None,
        credit: Credit | None = None,
        scope: SyncScope | None = None,
        size_bytes: float = 0.0,
        group: Group = "all",
        work: TaskWork | None = None,
    ) -> int:
        """Add a task and return its index. One on the compute stream also waits for ``waits``."""
        index = len(self.charges)
        if stream == COMPUTE:
            if self.waits:
                after = self._awaited(index, after)
            if self.costed.order == "priority":
                # Messages overtake each other; kernels stay in the order in which they are issued.
                after = sorted({*after, *self._computed[-1:]})
            self._computed.append(index)
        self.charges.append(cost)
        self.work.append(work)
        # They are checked together, when the graph is first run.
        self.graph.tasks.append(
            Task(
                name,
                stream,
                kind,
                seconds,
                _in_this_period(after),
                kind == "communicate",
                priority,
                shares,
                cost.latency_s if shares else 0.0,
                credit,
                scope,
                size_bytes,
                group,
            )
        )
        return index

    def _awaited(self, index: int, after: Sequence[int]) -> list[int]:
        """Return what a task waits for with ``waits``, which it takes; what comes late is noted."""
        waits, self.waits = self.waits, []
        self._late += [(index, wait) for wait in waits if isinstance(wait, DeferredDependency)]
        return sorted({*after, *[wait for wait in waits if isinstance(wait, int)]})

    def send(self, name: str, stage: Send, after: Sequence[int]) -> int:
        """Add a collective."""
        work, cost = self._price(stage)
        self.costed.add_message(stage, cost.sent_bytes)
        ahead = stage.credit_bytes
        crossing = self.costs.link_use(stage) if self.costs.shared else None
        if crossing is not None:
            self.costed.crossings[len(self.graph.tasks)] = crossing
        return self.add(
            f"{stage.collective} {name}",
            stage.stream,
            "communicate",
            cost.seconds,
            after,
            cost.charged,
            stage.priority,
            stage.shares,
            Credit(stage.size_bytes, ahead) if ahead else None,
            cost.scope,
            stage.size_bytes,
            stage.group,
            work,
        )

    def compute(self, name: str, stage: Compute, after: Sequence[int]) -> int:
        """Add the kernels of a stage as one task."""
        kind, (work, cost) = stage.kind, self._price(stage)
        return self.add(
            f"{kind} {name}", stage.stream, kind, cost.seconds, after, cost.charged, work=work
        )

    def _price(self, stage: JobStage) -> tuple[TaskWork, WorkCost]:
        """Return what a stage does and what that costs, the same for stages alike."""
        known = self._priced.get(id(stage))
        if known is not None:
            return known[1]
        alike = likeness(stage)
        priced = self._alike.get(alike)
        if priced is None:
            work = task_work(stage)
            priced = self._alike[alike] = work, price(work, self.costed, self.costs)
        self._priced[id(stage)] = stage, priced
        return priced

    def close(self, done: Sequence[Mapping[str, JobProgress]]) -> None:
        """Link what waits for jobs that were issued later, and the round to the one before."""
        if self.costed.order == "priority":
            self.graph.link(self._computed[0], self._computed[-1], 1)
        links: dict[int, list[tuple[int, int]]] = {}
        for task, wait in self._late:
            ends = done[wait.iteration][wait.job].ends
            links.setdefault(task, []).extend([(other, wait.back) for other in ends])
        self.graph.link_all(links)


def issue(
    profile: Profile,
    method: Method,
    costs: Costs,
    jobs: Sequence[Sequence[Job]],
    count: float = 1.0,
    *,
    overlap: bool = True,
    slowdown: float = 1.0,
    micro_batches: int = 1,
    exchange_each: bool = False,
    stage: StagePasses = WHOLE_MODEL,
) -> CostedGraph:
    """Issue the jobs of each iteration of a round, and return its task graph.

    Parameters
    ----------
    count : how many times the round is run in the method's period
    overlap : whether jobs begin before the pass that they belong to is over
    slowdown : how many times longer the backward pass computes while messages are under way
    micro_batches : of an iteration, whose gradients are added up before the update
    exchange_each : whether gradients are exchanged after each of them, or after the last alone;
        jobs that say so (``Job.repeats``) run in the others too
    stage : what a rank of a divided model does in its passes besides computing

    Raises
    ------
    RequestError
        If the method cannot exchange after each micro-batch.
    ValueError
        If jobs share a name, wait for each other, or are waited for before they can be issued.
    """
    repeated, steps = _in_steps(method, jobs, overlap, micro_batches, exchange_each)
    builder = _RoundBuilder(
        profile, method, costs, repeated, count, overlap, slowdown, micro_batches, steps, stage
    )
    for index in range(len(repeated)):
        builder.iteration(index)
    builder.tasks.close(builder.done)
    return builder.costed


def _in_steps(
    method: Method,
    jobs: Sequence[Sequence[Job]],
    overlap: bool,
    micro_batches: int,
    exchange_each: bool,
) -> tuple[list[list[Job]], int]:
    """Return the jobs of each step of some iterations, and the steps of an iteration.

    A step is a micro-batch, or several that only compute and are issued together. The parameters
    and errors are those of `issue`.
    """
    asked = [[job if overlap else job.in_turn() for job in one] for one in jobs]
    steps = 1
    if exchange_each:
        steps = micro_batches
        if steps > 1:
            before = [[job for job in one if not _follows_update(job)] for one in asked]
            _check_each(asked, before, method)
    elif micro_batches > 1 and any(job.repeats != "exchange" for one in asked for job in one):
        # Micro-batches between the first and the last that only compute are issued together.
        between = any(job.repeats in ("every", "later") for one in asked for job in one)
        steps = micro_batches if between else 2
    if steps == 1:  # it is the first and the last
        return [[job for job in one if job.repeats != "later"] for one in asked], 1
    repeated = [
        [job for job in one if _runs_in(job, number, steps, each=exchange_each)]
        for one in asked
        for number in range(steps)
    ]
    return repeated, steps


def _runs_in(job: Job, number: int, micro_batches: int, *, each: bool) -> bool:
    """Tell whether a job runs in a micro-batch of an iteration.

    ``each`` says whether gradients are exchanged in each of them, or in the last alone.
    """
    first, last = number == 0, number == micro_batches - 1
    if job.repeats in ("once", "later"):
        return first == (job.repeats == "once")
    if each:
        return last or not _follows_update(job)
    return {"every": True, "first": first, "exchange": last}[job.repeats]


def _follows_update(job: Job) -> bool:
    """Tell whether a job is of the weights, which are new once an iteration, not of gradients."""
    return bool(job.stages) and job.stages[0].earliest == "update"


_ONCE_AN_ITERATION = ("second order", "fewer exchanges", "beyond one cluster")
"""Families that precondition gradients or average weights: not after each micro-batch."""


def _check_each(
    jobs: Sequence[Sequence[Job]], each: Sequence[Sequence[Job]], method: Method
) -> None:
    """Refuse to exchange after each micro-batch where computation goes on without the result.

    ``each`` are the jobs of an iteration that do not wait for its update.

    Raises
    ------
    RequestError
        If the method is such a one.
    """
    nothing = any(jobs) and not any(each)
    later = any(job.holds and job.holds.phase in ("next", "update") for one in each for job in one)
    if nothing or later or method.delay():
        raise RequestError(
            "exchange_each",
            f"{method_words(method)} uses a result after the update that it belongs to; it"
            " exchanges after the last micro-batch (leave `exchange_each` out).",
        )
    if method.family in _ONCE_AN_ITERATION:
        raise RequestError(
            "exchange_each",
            f"{method_words(method)} ({method.family}) does its work once an iteration; it"
            " exchanges after the last micro-batch (leave `exchange_each` out).",
        )


def method_words(method: Method) -> str:
    """Return the name of a method's file."""
    return type(method).__module__.rpartition(".")[2]


class _RoundBuilder:
    """Issues the iterations of one round, one after the other.

    ``jobs`` and ``done`` have, by micro-batch that exchanges, its jobs and those under way; there
    are ``steps`` of them in an iteration of ``micro_batches``. ``end`` is the task at whose end
    computation is where the host has got to.
    """

    def __init__(
        self,
        profile: Profile,
        method: Method,
        costs: Costs,
        jobs: list[list[Job]],
        count: float,
        overlap: bool,
        slowdown: float,
        micro_batches: int,
        steps: int,
        stage: StagePasses,
    ) -> None:
        self.stage = stage
        # What a pass sends beside its computation, and what this waits for.
        self.sends_of = {
            kind: (stage.beside.of(kind), stage.exposed.of(kind))
            for kind in ("forward", "backward")
        }
        self.shares = stage.shares(profile.layers)
        self.profile, self.method, self.jobs = profile, method, jobs
        self.overlap = overlap
        self.slowed = [self.slowed_in(one, costs, slowdown) for one in jobs]
        self.steps, self.before = steps, micro_batches - steps
        self.update_s = profile.optimizer_s * optimizer_share(profile, method, costs, self.stage)
        self.update_s *= profile.host_sharing or 1.0
        self.launches_s = late_launches_s(profile, method, costs)
        self.graph = TaskGraph(iterations=len(jobs) // steps)
        self.costed = CostedGraph(
            self.graph, count=count, order=method.order, priced_on=costs.priced_on
        )
        self.tasks = _Tasks(self.costed, costs)
        self.passes = WORK._replace(host=profile.host_share, device=profile.device_share)
        self.done: list[dict[str, JobProgress]] = []
        # The last tasks of the backward pass and of the update, as soon as these are issued.
        self.moments: list[int] = []
        self.end: int | None = None

    def slowed_in(self, jobs: list[Job], costs: Costs, slowdown: float) -> SlowedPass:
        """Return how messages slow the backward pass of an iteration (or of a micro-batch)."""
        if isinstance(slowdown, float) and slowdown == 1.0:
            return UNSLOWED
        if self.stage.beside.of("backward"):
            return SlowedPass(0.0, slowdown)  # these are under way all the time
        jobs = _from_the_forward_pass(jobs, self.method)
        return slowed_backward(jobs, self.profile.backward_s, costs, slowdown)

    def iteration(self, index: int) -> None:
        """Issue one iteration. It follows the one before, as the compute stream runs in order."""
        jobs, other_s = self.jobs[index], self.profile.other_s
        jobs_under_way = {
            job.name: JobProgress(job, f"{index}.{job.name}", list(job.stages), needs=job.needs)
            for job in jobs
        }
        if len(jobs_under_way) < len(jobs):
            raise ValueError(f"two jobs of an iteration share a name: {[job.name for job in jobs]}")
        self.done.append(jobs_under_way)
        first, last = index % self.steps == 0, (index + 1) % self.steps == 0
        if first:
            self.costed.begins.append(len(self.graph.tasks))
        self.moments, gathered_bytes = [], self.costed.gathered_bytes
        if first and other_s > 0:
            self.compute(f"host {index}", "other", other_s)
        held = _held(self.jobs, index)
        if self.before and last:
            self.passes_before(index, held)
            held = []
        self.forward(index, jobs_under_way, held)
        if first:
            self.bubble(index)
        self.backward(index, jobs_under_way)
        self.moments += self.here
        order = list(jobs_under_way.values())
        if self.method.first_needed_first:
            order.reverse()
        self.waves(order)
        if last:
            self.update(index)
            self.waves(order)
        else:
            for job in jobs:
                if job.holds is None:
                    self.wait_for(index, job)
        self.costed.gathering += self.costed.gathered_bytes > gathered_bytes
        left = [progress.name for progress in order if progress.stages]
        if left:
            raise ValueError(f"jobs that wait for each other or for nothing: {', '.join(left)}")

    def passes_before(self, index: int, held: Sequence[Job]) -> None:
        """Issue the micro-batches that exchange nothing, together.

        The first of them is issued by itself where jobs of the iteration before hold it up.
        """
        forward_s, backward_s, left = self.profile.forward_s, self.profile.backward_s, self.before
        if held:
            self.forward(index, {}, held, f"{index} first")
            self.part_of_pass(f"{index} first", "backward", backward_s)
            left -= 1
        if left:
            self.part_of_pass(f"{index} before", "forward", left * forward_s, left)
            self.part_of_pass(f"{index} before", "backward", left * backward_s, left)

    def bubble(self, index: int) -> None:
        """Issue the time of an iteration in which the stage waits for other stages.

        What holds up the first forward pass holds up the pipeline: it hides in no such wait.
        """
        if self.stage.idle_s > 0:
            self.compute(f"{BUBBLE} {index}", "other", self.stage.idle_s)
        self.sends(f"pipeline {index}", self.stage.idle_sends)

    def sends(self, words: str, sends: Iterable[Send]) -> None:
        """Issue collectives that computation waits for here."""
        for send in sends:
            self.end = self.tasks.send(f"{send.group} {words}", send, self.here)

    def part_of_pass(
        self,
        words: str,
        kind: Literal["forward", "backward"],
        seconds: float,
        share: float = 1.0,
        span_s: tuple[float, float] | None = None,
    ) -> int:
        """Issue a part of a pass: what runs beside it, its computation, what that waits for.

        ``share`` is how many passes over the stage it is; a part of one is between two moments.
        Returns the task of its computation.
        """
        beside, exposed = self.sends_of[kind]
        if beside:
            self.get_here()
        for send in self.sent_in(beside, kind, share, span_s):
            self.tasks.send(f"{send.group} {words}", send, self.here)
        words = f"{kind} {words}"
        task = self.compute(words, kind, seconds)
        self.sends(words, self.sent_in(exposed, kind, share, span_s))
        return task

    def sent_in(
        self, sends: Iterable[Send], kind: str, share: float, span_s: tuple[float, float] | None
    ) -> Iterator[Send]:
        """Yield how often collectives of a pass are sent in a part of it (see `part_of_pass`)."""
        for send in sends:
            part, shares = share, self.shares.get((str(send.group), kind))
            if span_s is not None and shares is not None:
                part = shares.between(*span_s)
            if part > 0.0:
                yield send._replace(repeats=send.repeats * part)

    def forward(
        self,
        index: int,
        jobs_under_way: dict[str, JobProgress],
        held: Sequence[Job],
        words: str = "",
    ) -> None:
        """Issue a forward pass, cut where a job begins or is waited for.

        ``held`` are those that hold it up; ``words`` names it in place of the iteration's number.
        """
        total_s, done_s, parts, words = self.profile.forward_s, 0.0, 0, words or str(index)
        before = (index - 1) % len(self.jobs)
        cuts_at = _cuts(jobs_under_way, "forward", total_s)
        held_at: dict[float, list[Job]] = {}
        for job in held:
            if job.holds:
                held_at.setdefault(_clip(job.holds.seconds, total_s), []).append(job)
        for cut_s in sorted(held_at.keys() | cuts_at.keys()):
            if cut_s > done_s:
                self.pass_over(f"{words}.{parts}", "forward", index, done_s, cut_s)
                done_s, parts = cut_s, parts + 1
            here = held_at.get(cut_s, [])
            for job in here:
                self.wait_for(before, job, int(index == 0))
            share = sum_in_order(job.updates for job in here)
            if share > 0:
                self.compute(f"update {before}.{here[0].name}", "update", self.update_s * share)
            self.jobs_at(cuts_at.get(cut_s, []), total_s)
        if total_s > done_s or not parts:
            name = f"{words}.{parts}" if parts else words
            self.pass_over(name, "forward", index, done_s, total_s)

    def backward(self, index: int, jobs_under_way: dict[str, JobProgress]) -> None:
        """Issue the backward pass, cut where a job begins or is waited for."""
        total_s, done_s = self.profile.backward_s, 0.0
        cuts_at = _cuts(jobs_under_way, "backward", total_s)
        for cut_s in sorted(cuts_at):
            self.pass_over(cuts_at[cut_s][0][0].name, "backward", index, done_s, cut_s)
            done_s = cut_s
            self.jobs_at(cuts_at[cut_s], total_s)
        self.pass_over(f"{index}.end", "backward", index, done_s, total_s)

    def jobs_at(self, here: Sequence[tuple[JobProgress, bool]], total_s: float) -> None:
        """Issue the jobs that begin at a place of a pass, and wait for those that hold it up."""
        if len(here) == 1 and here[0][1]:  # most begin where nothing is waited for
            (progress, _), *_ = here
            self.begin(progress, progress.job.begins.seconds - total_s)
            return
        held = [progress.job for progress, begins in here if not begins]
        names = {job.name for job in held}
        behind: list[JobProgress] = []
        for progress, begins in here:
            if begins and progress.job.begins.behind and progress.job.name not in names:
                behind.append(progress)
            elif begins:
                self.begin(progress, progress.job.begins.seconds - total_s)
        for job in held:
            self.wait_for(len(self.done) - 1, job)
        for progress in behind:
            self.begin(progress, progress.job.begins.seconds - total_s)

    def begin(self, progress: JobProgress, beyond_s: float) -> None:
        """Begin a job here, or ``beyond_s`` after the end of the pass, and issue what can go."""
        self.get_here()
        progress.tail = tuple(self.here)
        if progress.stages and beyond_s > 0:
            # A policy that works in cycles sends at a tick: computing goes on until then.
            name, stream = f"cycle {progress.name}", f"cycle {progress.job.name}"
            progress.tail = (self.tasks.add(name, stream, "other", beyond_s, self.here, WAIT),)
        if self.overlap or _holds_same_iteration(progress.job):
            self.issue(progress)

    def wait_for(self, index: int, job: Job, back: int = 0) -> None:
        """Let what computation does next wait for a job, and run the job's last kernels.

        The job is of iteration ``index`` of the round, ``back`` rounds ago.
        """
        if back:
            self.tasks.waits.append(DeferredDependency(index, job.name, back))
        else:
            progress = self.done[index][job.name]
            if progress.stages:
                raise ValueError(
                    f"job {progress.name} is waited for before it can be issued: its stages come"
                    " too late, or jobs wait for each other"
                )
            self.tasks.waits += progress.ends
        for stage in job.after:
            self.end = self.tasks.compute(f"{index}.{job.name}", stage, self.here)

    def update(self, index: int) -> None:
        """Issue the rest of the update; it waits for the jobs that nothing else waits for."""
        count, delay = len(self.jobs), self.method.delay() if self.overlap else 0
        rest = 1.0 - sum_in_order(job.updates for job in self.jobs[index])
        behind, at = divmod(index - delay * self.steps, count)
        awaited = [job for job in self.jobs[at] if job.holds is None]
        for job in awaited:
            self.wait_for(at, job, -behind)
        self.sends(f"update {index}", self.stage.last)
        if rest > _NEGLIGIBLE_SHARE or awaited:
            gpu_s, launches_s = self.update_s * max(rest, 0.0), self.launches_s if awaited else 0.0
            if self.profile.host_sharing:
                gpu_s, launches_s = 0.0, max(gpu_s, launches_s)
            charged, update_s = self.passes, max(gpu_s, launches_s)
            if launches_s > gpu_s * charged.host:
                device = charged.device * gpu_s / update_s
                charged = charged._replace(host=launches_s / update_s, device=device)
            self.compute(f"update {index}", "update", update_s, charged)
        self.graph.last = self.end
        self.moments += self.here
        for at, jobs in enumerate(self.jobs):
            for job in jobs:
                if job.holds and job.holds.phase == "update":
                    # Whole iterations: each has its update in the last of its micro-batches.
                    iteration = at // self.steps + job.holds.later
                    behind, here = divmod(iteration, count // self.steps)
                    if here == index // self.steps:
                        self.wait_for(at, job, behind)

    def pass_over(
        self,
        name: str,
        kind: Literal["forward", "backward"],
        index: int,
        from_s: float,
        until_s: float,
    ) -> None:
        """Issue the part of a pass between two moments, which takes longer beside messages.

        A part of the backward pass without length is left out.
        """
        seconds = until_s - from_s
        if seconds <= 0 and kind == "backward":
            return
        backward = kind == "backward"
        whole_s = self.profile.backward_s if backward else self.profile.forward_s
        factor = self.slowed[index].factor_at(from_s) if backward else 1.0
        share = seconds / whole_s if whole_s else 1.0
        task = self.part_of_pass(name, kind, seconds * factor, share, (from_s, until_s))
        self.costed.parts.append(PartOfPass(task, kind, index, from_s, seconds))

    @property
    def here(self) -> list[int]:
        """The task at whose end computation is where the host has got to."""
        return [] if self.end is None else [self.end]

    def get_here(self) -> None:
        """Let what begins beside computation here wait for all that computation waits for."""
        if self.end is None or self.tasks.waits:
            self.compute("begin", "other", 0.0)

    def compute(
        self, name: str, kind: TaskKind, seconds: float, charged: TaskCost | None = None
    ) -> int:
        """Issue what computation does next, charged as the passes unless told; return the task."""
        charged = charged or self.passes
        self.end = task = self.tasks.add(name, COMPUTE, kind, seconds, self.here, charged)
        return task

    def waves(self, jobs_under_way: list[JobProgress]) -> None:
        """Issue all that can go now, turn by turn: each job up to a kernel that needs a result.

        A job that needs another is looked at again when that one has no stages left: later in the
        same turn where it comes behind it, else in the next.
        """
        waiting: dict[int, list[int]] = {}  # places of jobs, by the one that they need
        turn, moved = list(range(len(jobs_under_way))), True
        while turn and moved:
            following: list[int] = []
            moved = False
            for place in turn:  # it grows behind the place
                progress = jobs_under_way[place]
                if not progress.stages:
                    continue
                if progress.needs and (needed := self.unfinished(progress)):
                    waiting.setdefault(id(needed), []).append(place)
                    continue
                moved |= self.issue(progress)
                if progress.stages:
                    following.append(place)
                    continue
                for released in waiting.pop(id(progress), ()):
                    insort(turn if released > place else following, released)
            turn = following

    def unfinished(self, progress: JobProgress) -> JobProgress | None:
        """Return the first job with stages left of those that a job needs, or None."""
        for name in progress.needs:
            if (needed := self.done[-1][name]).stages:
                return needed
        return None

    def issue(self, progress: JobProgress) -> bool:
        """Issue the stages of a job that can go now, and tell whether there were any."""
        others = []
        if progress.needs:
            if self.unfinished(progress):
                return False
            others = [self.done[-1][name] for name in progress.needs]
        moved, sent = False, bool(others)
        moments = self.moments
        while progress.stages:
            stage = progress.stages[0]
            # What needs a result goes after the backward pass, and one such stage in a turn.
            held_back = sent and (moved or not moments) and _would_hold_up(stage)
            if held_back or len(moments) < _MOMENTS[stage.earliest]:
                break
            progress.stages.pop(0)
            if progress.needs:
                ends = {end for other in others for end in other.ends}
                progress.tail, progress.needs = tuple(sorted({*progress.tail, *ends})), ()
            after = sorted({*progress.tail, *moments}) if moments else progress.tail
            if isinstance(stage, Send):
                sent = True
                task = self.tasks.send(progress.name, stage, after)
                if stage.awaited:
                    progress.tail = (task,)
                else:
                    progress.loose.append(task)
            else:
                progress.tail = (self.tasks.compute(progress.name, stage, after),)
            moved = True
        return moved


def _held(jobs: Sequence[Sequence[Job]], index: int) -> list[Job]:
    """Return the jobs of the step before one that hold up its forward pass."""
    before = jobs[(index - 1) % len(jobs)]
    return [job for job in before if job.holds and job.holds.phase == "next"]


def _from_the_forward_pass(jobs: list[Job], method: Method) -> list[Job]:
    """Return jobs of which nothing is waited for in their iteration as beginning with it."""
    if not method.delay():
        return jobs
    return [replace(job, begins=PassPoint("forward")) for job in jobs]


def slowed_by_messages(
    costed: CostedGraph,
    profile: Profile,
    method: Method,
    costs: Costs,
    jobs: Sequence[Sequence[Job]],
    *,
    micro_batches: int,
    exchange_each: bool,
    durations_only: bool = False,
) -> CostedGraph:
    """Return a round whose passes take as much longer as its messages take from computation.

    Messages of these costs take something (`slows_computation`).

    Parameters
    ----------
    costed : the round as `issue` returns it without a slowdown
    durations_only : leave its tasks as they are and return their durations beside them
    """
    slowdown = slowing_messages(costs, registered=method.registers_buffers(costs.device.software))
    steps, _ = _in_steps(method, jobs, True, micro_batches, exchange_each)
    shares = profile.host_share, profile.device_share
    slowed: dict[tuple[str, int], SlowedPass] = {}
    for index, one in enumerate(steps):
        forward = slowed_forward(one, _held(steps, index), profile.forward_s, costs, slowdown)
        early = _from_the_forward_pass(one, method)
        backward = slowed_backward(early, profile.backward_s, costs, slowdown)
        slowed["forward", index] = forward.behind_host(*shares)
        slowed["backward", index] = backward.behind_host(*shares)
    if all(one is UNSLOWED for one in slowed.values()):
        return costed
    longer_s = {
        part.task: part.seconds * slowed[part.kind, part.step].factor_at(part.from_s)
        for part in costed.parts
    }
    return costed.with_durations(longer_s, durations_only=durations_only)


def optimizer_share(
    profile: Profile,
    method: Method,
    costs: Costs,
    stage: StagePasses = WHOLE_MODEL,
    world: MethodContext | None = None,
) -> float:
    """Return the share of a rank's weights that it updates itself.

    Experts are shared by those ranks alone that have the same. ``world`` is what the method is
    told of all ranks, where somebody has it.
    """
    share = method.update_share(world or costs.context(profile))
    if not stage.experts or "experts" not in costs.axes:
        return share
    among = replace(costs, cluster=costs.axes["experts"])
    own = method.update_share(among.context(profile))
    experts = sum(one.elements for one in profile.gradients if one.name in stage.experts)
    return share + (own - share) * experts / profile.elements


def late_launches_s(profile: Profile, method: Method, costs: Costs) -> float:
    """Return the least that an update takes for its launches, where the host has waited [s].

    The host launches them when the exchanged gradients are there. Nothing is queued on the GPU
    then that would hide them.
    """
    late = method.late_launches(profile.optimizer) if costs.cluster.gpus > 1 else 0
    launches = late * len(profile.gradients)
    if not launches:
        return 0.0
    # The optimizer's launches, not the method's kernels: `single_gpu_kernels` does not scale them.
    return costs.device.seconds(Kernel("eager_launch", launches, 0.0, launches=launches))


def _holds_same_iteration(job: Job) -> bool:
    """Tell whether a pass of the same iteration waits for a job."""
    return job.holds is not None and job.holds.phase in ("forward", "backward")


def _clip(seconds: float, total_s: float) -> float:
    return min(max(seconds, 0.0), total_s)


def _cuts(
    jobs_under_way: Mapping[str, JobProgress], phase: str, total_s: float
) -> dict[float, list[tuple[JobProgress, bool]]]:
    """Return where a pass is cut [s]: the jobs that begin there (True) or hold it up there."""
    cuts_at: dict[float, list[tuple[JobProgress, bool]]] = {}
    for progress in jobs_under_way.values():
        job = progress.job
        for point, begins in ((job.begins, True), (job.holds, False)):
            if point and point.phase == phase:
                cut_s = _clip(point.seconds, total_s)
                cuts_at.setdefault(cut_s, []).append((progress, begins))
    return cuts_at
