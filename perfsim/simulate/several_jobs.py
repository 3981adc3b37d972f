"""Several jobs at once on one clock: each runs its own periodic graph, and they share a link.

Which messages collide depends on when the jobs begin. It stays so where their periods are equal:
of two equal jobs with one message each, the one that begins d later also ends d later under fair
sharing. (Rajasekaran et al. show that unfair shares can separate jobs that collide.) Nobody knows
how much later one job began, so they are run from several starts, spread evenly over an iteration,
and means are over all starts.

References
----------
Rajasekaran, Ghobadi, Kumar & Akella 2022, Congestion control in machine learning clusters, HotNets.
Rajasekaran, Ghobadi & Akella 2024, CASSINI: network-aware job scheduling in machine learning
clusters, NSDI, arXiv 2308.00852.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.task import Duration, LinkUse
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.simulate.events import EventLog, QueueOrder

__all__ = ["ConcurrentJob", "SimulationEffort", "simulate_together", "simulation_effort"]

_STARTS = 8
_COUNTED = (24, 12, 4)
"""Periods of the slowest job that are counted: the first number that there is time for."""

_CYCLES = 12
"""Means are over a multiple of this many periods where there are enough: a job alone repeats after
1, 2, 3 or 4."""

_MAX_TASKS = 20_000
"""Task runs in all (some 0.4 s) above which fewer periods and starts are run."""

_MAX_TASKS_AT_ALL = 1_000_000
"""Task runs (some 20 s) above which the question is refused."""

_STRETCH = 1.5
"""How many times as long as alone jobs are expected to take, to estimate how many tasks run."""


@dataclass(frozen=True)
class ConcurrentJob:
    """One of several jobs: its graph, the seconds of its tasks, and how they use the shared link.

    ``alone_s`` is the length of its period without the other jobs.
    """

    graph: TaskGraph
    spent_s: Sequence[float]
    crossings: Mapping[int, LinkUse]
    alone_s: float
    order: QueueOrder = "issue"


@dataclass(frozen=True, slots=True)
class SimulationEffort:
    """How many starts are run, and how many periods of the slowest job count in each."""

    starts: int
    counted: int

    @property
    def warm_up(self) -> int:
        """Periods of each job before those that count."""
        return max(4, self.counted // 2)


def simulation_effort(jobs: Sequence[ConcurrentJob]) -> SimulationEffort | None:
    """Return how many starts and periods to run; None where even the fewest take too long."""
    longest_s = max(job.alone_s for job in jobs)
    each = sum_in_order(len(job.graph.tasks) * longest_s / job.alone_s for job in jobs) * _STRETCH
    efforts = [
        SimulationEffort(starts, counted) for starts in (_STARTS, 4, 2) for counted in _COUNTED
    ]
    for effort in efforts:
        tasks = effort.starts * (effort.warm_up + effort.counted) * each
        if tasks <= _MAX_TASKS:
            return effort
    return effort if tasks <= _MAX_TASKS_AT_ALL else None


def simulate_together(
    jobs: Sequence[ConcurrentJob],
    effort: SimulationEffort,
    *,
    brief: bool = False,
) -> list[Timeline]:
    """Run jobs at once on one link and return the timeline of each, with an axis of starts.

    Parameters
    ----------
    effort : how many starts and periods
    brief : keep no starts and ends of tasks; else the first job's timeline has them

    Examples
    --------
    Two jobs that do nothing but send:

    >>> graph = TaskGraph()
    >>> _ = graph.add("all_reduce", "communication", "communicate", 2.0)
    >>> one = ConcurrentJob(graph, [2.0], {0: LinkUse(0.5)}, 2.0)
    >>> run, _ = simulate_together([one, one], SimulationEffort(1, 12), brief=True)
    >>> float(run.mean_period_s)  # both are latent, then both send
    3.5
    """
    runs = [_Run(jobs, start / effort.starts, effort) for start in range(effort.starts)]
    return [
        _timeline(job, [run.kept[number] for run in runs], brief=brief or number > 0)
        for number, job in enumerate(jobs)
    ]


@dataclass
class _JobRun:
    """A job's run: the last period before those that count, and the last of them.

    ``starts`` and ``ends`` have all periods from the first.
    """

    first: int
    last: int
    starts: list[list[Duration]] = field(default_factory=list)
    ends: list[list[Duration]] = field(default_factory=list)


class _Run:
    """All jobs from one start, until each has done the periods that count."""

    def __init__(
        self, jobs: Sequence[ConcurrentJob], turn: float, effort: SimulationEffort
    ) -> None:
        from simpy import Environment

        from perfsim.simulate.shared_link import CrossedLink

        self.jobs, self.env = jobs, Environment()
        link = CrossedLink(self.env)
        self.logs = [self._begin(number, turn, link, effort) for number in range(len(jobs))]
        for log in self.logs:
            log.run_period(effort.warm_up + log.graph.depth - 1)
        begins = [self._done(log) for log in self.logs]
        for log, begin in zip(self.logs, begins, strict=True):
            log.run_period(begin + effort.counted)
        lasts = [self._done(log) for log in self.logs]
        for log, last in zip(self.logs, lasts, strict=True):
            log.run_period(last + log.graph.depth + 1)
        self.kept = [
            _JobRun(
                begin,
                last,
                log.rows(log.starts, len(log.starts)),
                log.rows(log.ends, len(log.ends)),
            )
            for log, begin, last in zip(self.logs, begins, lasts, strict=True)
        ]

    def _begin(self, number: int, turn: float, link: Any, effort: SimulationEffort) -> EventLog:
        from perfsim.simulate.events import EventLog, start_by_priority, start_in_issue_order

        job = self.jobs[number]
        longest_s = max(one.alone_s for one in self.jobs)
        periods = (effort.warm_up + effort.counted + 4) * (1 + len(self.jobs)) * longest_s
        horizon = int(periods / job.alone_s) + 4 * (job.graph.depth + 2)
        spent = [[seconds] for seconds in job.spent_s]
        log = EventLog(job.graph, spent, 1, horizon, env=self.env)
        log.cross(job.crossings, link, number)
        start = start_in_issue_order if job.order == "issue" else start_by_priority
        # A lattice: with two other jobs or more, each meets every position of each.
        offset_s = (turn * (2 * number - 1)) % 1.0 * longest_s if number else 0.0

        def later() -> Generator[Any, Any, None]:
            yield self.env.timeout(offset_s)
            start(log)

        self.env.process(later())
        return log

    def _done(self, log: EventLog) -> int:
        """Return the last period that has closed."""
        closing = log.graph.closing
        period = 0
        while period + 1 < len(log.ends) and log.ends[period + 1][closing][0] <= self.env.now:
            period += 1
        return period


def _timeline(job: ConcurrentJob, runs: Sequence[_JobRun], *, brief: bool) -> Timeline:
    """Return the timeline of a job, all starts side by side over the same number of periods."""
    import numpy as np

    counted = min(run.last - run.first for run in runs)
    if counted >= _CYCLES:
        counted -= counted % _CYCLES
    lead = job.graph.depth
    closing = job.graph.closing

    def side_by_side(moments: Sequence[list[list[Duration]]], after: int, task: int) -> Duration:
        values = (
            rows[run.last - counted - lead + after][task]
            for rows, run in zip(moments, runs, strict=True)
        )
        return cast("Duration", np.array(list(values)))

    starts, ends = [run.starts for run in runs], [run.ends for run in runs]
    rows = 0 if brief else counted + 2 * lead + 2
    tasks = range(len(job.graph.tasks))
    return Timeline(
        graph=job.graph,
        starts=[[side_by_side(starts, row, task) for task in tasks] for row in range(rows)],
        ends=[[side_by_side(ends, row, task) for task in tasks] for row in range(rows)],
        closes=[side_by_side(ends, row, closing) for row in range(counted + lead + 1)],
        averaged=counted,
        steady=True,
        shape=(len(runs),),
    )
