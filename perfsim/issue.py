"""Issue order: jobs to tasks on streams, as the host of a worker launches them.

Issue order is part of the model. In an iteration: what the host adds; forward; backward up to
each job's beginning, the job's stages, and so on to the end of the pass; what is left; and the
update, which waits for every job that nothing else waits for. A stage on the compute stream that
needs a collective's result is issued after the backward pass, so that it does not hold it up
(unless the method says that the host waits there); such stages go in waves (every job's first,
then every job's second, ...), as a loop over buckets issues them. A job that holds up the next
forward pass does so at its place there, after the part of the update that belongs to it.

At one place of a pass: what the iteration before left to wait for there and its part of the
update; the jobs that begin there; what this iteration waits for there. So a job that begins where
another of its iteration is waited for does not wait for that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.costs import Costs
from perfsim.course import Course, Late
from perfsim.kernel import Kernel
from perfsim.method import Method
from perfsim.plan import WAIT, Plan
from perfsim.profile import Profile
from perfsim.simulate.graph import COMPUTE, TaskGraph, TaskKind
from perfsim.stage import Job, Send
from perfsim.tasks import Tasks

__all__ = ["issue", "late_launches_s"]

NOTHING = 1e-9
"""Share of the optimizer's step that adding up the others leaves over."""


def issue(
    profile: Profile,
    method: Method,
    costs: Costs,
    jobs: Sequence[Sequence[Job]],
    count: float = 1.0,
    *,
    overlap: bool = True,
    slowdown: float = 1.0,
) -> Plan:
    """Return the plan of a round: the jobs of each of its iterations, in issue order.

    Parameters
    ----------
    count : how many times the round is run in the method's period
    overlap : whether jobs begin before the pass that they belong to is over
    slowdown : factor on backward tasks

    Raises
    ------
    ValueError
        If jobs share a name, wait for each other, or are waited for before they can be issued.
    """
    asked = [[job if overlap else job.in_turn() for job in one] for one in jobs]
    return _Round(profile, method, costs, asked, count, overlap, slowdown).plan


class _Round:
    """The plan of one round while it is made."""

    def __init__(
        self,
        profile: Profile,
        method: Method,
        costs: Costs,
        jobs: list[list[Job]],
        count: float,
        overlap: bool,
        slowdown: float,
    ) -> None:
        self.profile, self.method, self.jobs = profile, method, jobs
        self.overlap, self.slowdown = overlap, slowdown
        self.update_s = profile.optimizer_s * method.kept_share(costs.cluster.gpus)["optimizer"]
        self.launches_s = late_launches_s(profile, method, costs)
        self.graph = TaskGraph(iterations=len(jobs))
        self.plan = Plan(self.graph, count=count, order=method.order)
        self.tasks = Tasks(self.plan, costs)
        self.done: list[dict[str, Course]] = []
        self.backward_end: int | None = None
        self.update_end: int | None = None
        self.end: int | None = None
        for place in range(len(jobs)):
            self.iteration(place)
        self.tasks.close(self.done)

    def iteration(self, place: int) -> None:
        """Issue one iteration. It follows the one before because the compute stream is in order."""
        jobs, other_s = self.jobs[place], self.profile.other_s
        courses = {
            job.name: Course(job, f"{place}.{job.name}", list(job.stages), needs=job.needs)
            for job in jobs
        }
        if len(courses) < len(jobs):
            raise ValueError(f"two jobs of an iteration share a name: {[job.name for job in jobs]}")
        self.done.append(courses)
        self.plan.begins.append(len(self.graph.tasks))
        self.backward_end = self.update_end = None
        if other_s > 0:
            self.compute(f"host {place}", "other", other_s)
        self.forward(place, courses)
        self.backward(place, courses)
        self.backward_end = self.end
        order = list(courses.values())
        if self.method.first_needed_first:
            order.reverse()
        self.waves(order)
        self.update(place)
        self.waves(order)
        left = [course.name for course in order if course.stages]
        if left:
            raise ValueError(f"jobs that wait for each other or for nothing: {', '.join(left)}")

    def forward(self, place: int, courses: dict[str, Course]) -> None:
        """Issue the forward pass, cut where a job begins or is waited for."""
        total_s, done_s, parts = self.profile.forward_s, 0.0, 0
        before = (place - 1) % len(self.jobs)
        held = [job for job in self.jobs[before] if job.holds and job.holds.phase == "next"]
        places = _places(courses, "forward", total_s)
        cuts = {_clip(job.holds.seconds, total_s) for job in held if job.holds} | places.keys()
        for cut_s in sorted(cuts):
            if cut_s > done_s:
                self.pass_over(f"{place}.{parts}", "forward", cut_s - done_s)
                done_s, parts = cut_s, parts + 1
            here = [job for job in held if job.holds and _clip(job.holds.seconds, total_s) == cut_s]
            for job in here:
                self.wait_for(before, job, int(place == 0))
            share = sum(job.updates for job in here)
            if share > 0:
                self.compute(f"update {before}.{here[0].name}", "update", self.update_s * share)
            self.reach(places.get(cut_s, []), total_s)
        if total_s > done_s or not parts:
            name = f"{place}.{parts}" if parts else f"{place}"
            self.pass_over(name, "forward", total_s - done_s)

    def backward(self, place: int, courses: dict[str, Course]) -> None:
        """Issue the backward pass, cut where a job begins or is waited for."""
        total_s, done_s = self.profile.backward_s, 0.0
        places = _places(courses, "backward", total_s)
        for cut_s in sorted(places):
            self.pass_over(places[cut_s][0][0].name, "backward", cut_s - done_s)
            done_s = cut_s
            self.reach(places[cut_s], total_s)
        self.pass_over(f"{place}.end", "backward", total_s - done_s)

    def reach(self, here: Sequence[tuple[Course, bool]], total_s: float) -> None:
        """Issue the jobs that begin at a place of a pass, and wait for those that hold it up."""
        for course, begins in here:
            if begins:
                self.begin(course, course.job.begins.seconds - total_s)
        for course, begins in here:
            if not begins:
                self.wait_for(len(self.done) - 1, course.job)

    def begin(self, course: Course, beyond_s: float) -> None:
        """Let a job begin here, or so long after the end of the pass, and issue what can go."""
        if self.end is None or self.tasks.waits:
            # It begins when computation gets here, which is after what that waits for.
            self.compute("begin", "other", 0.0)
        course.tail = tuple(self.here)
        if course.stages and beyond_s > 0:
            # A policy that works in cycles sends at a tick: computing goes on until then.
            name, stream = f"cycle {course.name}", f"cycle {course.job.name}"
            course.tail = (self.tasks.add(name, stream, "other", beyond_s, self.here, WAIT),)
        if self.overlap or _held_here(course.job):
            self.issue(course)

    def wait_for(self, place: int, job: Job, back: int = 0) -> None:
        """Let what computation does next wait for a job, and run the job's last kernels.

        The job is of iteration ``place`` of the round, ``back`` rounds ago.
        """
        if back:
            self.tasks.waits.append(Late(place, job.name, back))
        else:
            course = self.done[place][job.name]
            if course.stages:
                raise ValueError(
                    f"job {course.name} is waited for before it can be issued: its stages come too"
                    " late, or jobs wait for each other"
                )
            self.tasks.waits += course.ends
        for stage in job.after:
            self.end = self.tasks.compute(f"{place}.{job.name}", stage, self.here)

    def update(self, place: int) -> None:
        """Issue the rest of the update; it waits for the jobs that nothing else waits for."""
        count, delay = len(self.jobs), self.method.delay() if self.overlap else 0
        rest = 1.0 - sum(job.updates for job in self.jobs[place])
        behind, at = divmod(place - delay, count)
        awaited = [job for job in self.jobs[at] if job.holds is None]
        for job in awaited:
            self.wait_for(at, job, -behind)
        if rest > NOTHING or awaited:
            launches_s = self.launches_s if awaited else 0.0
            update_s = max(self.update_s * max(rest, 0.0), launches_s)
            self.compute(f"update {place}", "update", update_s)
        self.update_end = self.graph.last = self.end
        for at, jobs in enumerate(self.jobs):
            for job in jobs:
                if job.holds and job.holds.phase == "update":
                    behind, here = divmod(at + job.holds.later, count)
                    if here == place:
                        self.wait_for(at, job, behind)

    def pass_over(self, name: str, kind: TaskKind, seconds: float) -> None:
        """Issue a part of a pass; none of the backward pass where it has no length."""
        if seconds <= 0 and kind == "backward":
            return
        factor = self.slowdown if kind == "backward" else 1.0
        self.compute(f"{kind} {name}", kind, seconds * factor)

    @property
    def here(self) -> list[int]:
        """The task at whose end computation is where the host has got to."""
        return [] if self.end is None else [self.end]

    def compute(self, name: str, kind: TaskKind, seconds: float) -> None:
        """Issue what computation does next."""
        self.end = self.tasks.add(name, COMPUTE, kind, seconds, self.here)

    def waves(self, courses: list[Course]) -> None:
        """Issue what can go now, each job up to the kernel that needs a result, again and again."""
        left, moved = courses, True
        while moved:
            left, moved = [course for course in left if course.stages], False
            for course in left:
                moved |= self.issue(course)

    def issue(self, course: Course) -> bool:
        """Issue the stages of a job that can go now; the others stay. Tells whether any went."""
        done = self.done[-1]
        for name in course.needs:
            if done[name].stages:
                return False
        others = [done[name] for name in course.needs]
        moved, sent = False, bool(others)
        moments = [end for end in (self.backward_end, self.update_end) if end is not None]
        while course.goes(len(moments), moved=moved, sent=sent):
            stage = course.stages.pop(0)
            if course.needs:
                ends = {end for other in others for end in other.ends}
                course.tail, course.needs = tuple(sorted({*course.tail, *ends})), ()
            after = sorted({*course.tail, *moments})
            if isinstance(stage, Send):
                sent = True
                task = self.tasks.send(course.name, stage, after)
                if stage.awaited:
                    course.tail = (task,)
                else:
                    course.loose.append(task)
            else:
                course.tail = (self.tasks.compute(course.name, stage, after),)
            moved = True
        return moved


def late_launches_s(profile: Profile, method: Method, costs: Costs) -> float:
    """Return the least that an update takes for its launches, where the host has waited [s].

    It issues them when what was exchanged is there: then nothing is queued on the GPU that hides
    them.
    """
    late = method.late_launches() if costs.cluster.gpus > 1 else 0
    launches = late * len(profile.gradients)
    if not launches:
        return 0.0
    return costs.kernel(Kernel("eager_launch", launches, 0.0, launches=launches)).seconds


def _held_here(job: Job) -> bool:
    """Tell whether a pass of the same iteration waits for a job."""
    return job.holds is not None and job.holds.phase in ("forward", "backward")


def _clip(seconds: float, total_s: float) -> float:
    return min(max(seconds, 0.0), total_s)


def _places(
    courses: Mapping[str, Course], phase: str, total_s: float
) -> dict[float, list[tuple[Course, bool]]]:
    """Return where a pass is cut [s]: the jobs that begin there (True) or hold it up there."""
    places: dict[float, list[tuple[Course, bool]]] = {}
    for course in courses.values():
        job = course.job
        if job.begins.phase == phase:
            places.setdefault(_clip(job.begins.seconds, total_s), []).append((course, True))
        if job.holds and job.holds.phase == phase:
            places.setdefault(_clip(job.holds.seconds, total_s), []).append((course, False))
    return places
