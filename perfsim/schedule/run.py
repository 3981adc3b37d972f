"""Plans run beside other jobs that send over the same links between nodes (event engine)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfsim.conditions.ranks import slowed
from perfsim.errors import RequestError
from perfsim.schedule.plan import CostedGraph
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    from perfsim.simulate.several_jobs import ConcurrentJob

__all__ = [
    "ContentionResult",
    "JobSlowdown",
    "alone",
    "contention_result",
    "mean_s",
    "most_frequent",
    "pin_messages",
    "run",
    "run_alone",
    "together",
]


def run_alone(
    plan: CostedGraph, durations: list[float] | None = None, *, brief: bool = False
) -> Timeline:
    """Return the timeline of a plan by itself, with other durations if given [s].

    Arguments and result as ``run``'s.
    """
    if plan.mixed is not None:
        from perfsim.conditions.mixed_gpus import run_mixed

        return run_mixed(plan, durations)
    if plan.conditions is not None:
        from perfsim.conditions.ranks import drawn, slowed

        if plan.conditions.varies:
            return drawn(plan, durations, brief=brief)
        durations = slowed(plan, durations)
    if plan.graph.contended:
        from perfsim.simulate.events import simulate_events

        return simulate_events(plan.graph, durations, order=plan.order)
    if plan.order == "priority":
        from perfsim.simulate.priority import simulate_priority

        return simulate_priority(plan.graph, durations)
    from perfsim.simulate.array import simulate

    return simulate(plan.graph, durations, brief=brief)


def mean_s(plans: Sequence[CostedGraph], timelines: Sequence[Timeline]) -> float:
    """Return the mean iteration of all rounds [s], from the timeline of each."""
    total_s = sum(
        plan.count * timeline.mean_period_s for plan, timeline in zip(plans, timelines, strict=True)
    )
    return total_s / sum(plan.iterations for plan in plans)


@dataclass(frozen=True)
class JobSlowdown:
    """How one of the jobs fares: its mean iteration beside the others and alone [s].

    ``low_s`` and ``high_s`` are those of the luckiest and the unluckiest start.
    """

    iteration_s: float
    alone_s: float
    low_s: float
    high_s: float

    @property
    def slowdown(self) -> float:
        """How many times longer an iteration takes beside the others."""
        return self.iteration_s / self.alone_s

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "iteration_s": self.iteration_s,
            "alone_s": self.alone_s,
            "slowdown": self.slowdown,
            "iteration_s_range": [self.low_s, self.high_s],
        }


@dataclass(frozen=True)
class ContentionResult:
    """What happens where jobs meet: this one, the others in their order, and how much was run.

    Examples
    --------
    >>> from perfsim import Scenario, predict
    >>> other = ("Zhang2023_ssgd_resnet50_10gbe_32",)
    >>> met = predict(Scenario(model="resnet18", gpus=16, net="10gbe", beside=other)).meeting
    >>> met.own.slowdown > 1, met.others[0].slowdown > 1
    (True, True)
    """

    own: JobSlowdown
    others: tuple[JobSlowdown, ...]
    starts: int
    iterations: int


def alone(plans: Sequence[CostedGraph]) -> list[CostedGraph]:
    """Return plans without the other jobs."""
    return [replace(plan, beside=()) for plan in plans]


def most_frequent(plans: Sequence[CostedGraph]) -> CostedGraph:
    """Return the plan of the iterations that another job runs most of."""
    return max(plans, key=lambda plan: plan.iterations)


def together(
    plan: CostedGraph, durations: Sequence[float] | None = None, *, brief: bool = False
) -> list[Timeline]:
    """Return the timelines of a plan and of those beside it, with an axis of starts.

    ``durations`` [s] stand in the place of this job's own.

    Raises
    ------
    RequestError
        If it would take too long to follow them.
    """
    from perfsim.simulate.several_jobs import amount, simulate_together

    jobs = [_job(plan, durations), *(_job(other) for other in plan.beside)]
    much = amount(jobs)
    if much is None:
        raise RequestError(
            "beside",
            "the iterations of these jobs are too many, or too different in length, to be"
            " followed; take larger buckets, or `background` for the share that the other takes.",
        )
    return simulate_together(jobs, much, brief=brief)


def _job(plan: CostedGraph, durations: Sequence[float] | None = None) -> ConcurrentJob:
    from perfsim.simulate.several_jobs import ConcurrentJob

    (by_itself,) = alone([plan])
    alone_s = run_alone(by_itself, None if durations is None else list(durations), brief=True)
    spent_s = slowed(plan, durations)
    return ConcurrentJob(plan.graph, spent_s, plan.crossings, alone_s.mean_period_s, plan.order)


def pin_messages(plans: Sequence[CostedGraph], timelines: Sequence[Timeline]) -> list[CostedGraph]:
    """Return plans by themselves whose messages take as long as they did beside other jobs.

    For small questions (what if one cause were twice as fast): each message keeps the part of the
    link that it got.
    """
    return [_held(plan, timeline) for plan, timeline in zip(plans, timelines, strict=True)]


def _held(plan: CostedGraph, timeline: Timeline) -> CostedGraph:
    import numpy as np

    tasks = list(plan.graph.tasks)
    rows = range(plan.graph.depth + 1, plan.graph.depth + 1 + timeline.averaged)
    for index in plan.crossings:
        spent = [
            np.asarray(timeline.ends[row][index]) - timeline.starts[row][index] for row in rows
        ]
        seconds = float(np.mean(spent))
        tasks[index] = tasks[index]._replace(duration_s=seconds, shares=None, latency_s=0.0)
    return replace(plan, graph=replace(plan.graph, tasks=tasks), crossings={}, beside=())


def contention_result(
    plans: Sequence[CostedGraph], runs: Sequence[Sequence[Timeline]]
) -> ContentionResult:
    """Return how this job and the others fare.

    Parameters
    ----------
    plans : of all rounds of this job's period
    runs : of each round, what ``together`` tells
    """
    each = [run_[0] for run_ in runs]
    total = sum(plan.iterations for plan in plans)
    spent_s = [
        plan.count * timeline.mean_period_s for plan, timeline in zip(plans, each, strict=True)
    ]
    lows, highs = zip(*map(_range, each), strict=True)
    own_s = sum(spent_s) / total
    weights = [plan.iterations / total for plan in plans]
    own = JobSlowdown(
        own_s,
        _alone_s(plans),
        sum(weight * low for weight, low in zip(weights, lows, strict=True)),
        sum(weight * high for weight, high in zip(weights, highs, strict=True)),
    )
    others = []
    for number, other in enumerate(plans[0].beside, start=1):
        found = [run_[number] for run_ in runs]
        # As many iterations as it gets done while this job is in each of its rounds.
        done = sum(
            share / (one.mean_period_s / other.graph.iterations)
            for share, one in zip(spent_s, found, strict=True)
        )
        lows, highs = zip(*map(_range, found), strict=True)
        others.append(JobSlowdown(sum(spent_s) / done, _alone_s([other]), min(lows), max(highs)))
    counted = [one.averaged * one.graph.iterations for one in each]
    return ContentionResult(own, tuple(others), min(one.shape[0] for one in each), min(counted))


def _alone_s(plans: Sequence[CostedGraph]) -> float:
    """Return the mean iteration without the other jobs [s]."""
    by_themselves = alone(plans)
    return mean_s(by_themselves, [run_alone(plan, brief=True) for plan in by_themselves])


def _range(timeline: Timeline) -> tuple[float, float]:
    """Return the mean iteration of the luckiest and of the unluckiest start [s]."""
    import numpy as np

    found = np.asarray(timeline.iteration_s)
    return float(found.min()), float(found.max())


def run(
    plan: CostedGraph, durations: list[float] | None = None, *, brief: bool = False
) -> Timeline:
    """Return the timeline of a plan, with other durations if given [s].

    Durations are those of a GPU as it should be; the plan's conditions slow them down. Where
    ranks vary by chance the timeline has an axis of draws, and where ``brief`` is enough only the
    length of its periods; beside other jobs it has an axis of starts. Of several types of GPU it
    is that of the one that ends last.
    """
    if plan.beside:
        return together(plan, durations, brief=brief)[0]
    return run_alone(plan, durations, brief=brief)
