"""Run rounds: task graphs to timelines, on the engine that each needs.

Most graphs take one pass of `perfsim.simulate.array`. Streams that share a link, or that choose by
priority, take an event engine. Ranks that vary by chance, several types of GPU and other jobs on
the network have runs of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.conditions.ranks import drawn, slowed
from perfsim.errors import RequestError
from perfsim.schedule.costed_graph import CostedGraph, RoundTimes
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.simulate.several_jobs import ConcurrentJob

__all__ = [
    "ContentionResult",
    "JobSlowdown",
    "in_one_pass",
    "mean_s",
    "most_frequent",
    "pin_messages",
    "run",
    "run_all",
    "varies_by_chance",
]


def run_all(
    rounds: list[CostedGraph],
) -> tuple[list[Timeline], list[CostedGraph], ContentionResult | None]:
    """Run the rounds of a period.

    Returns
    -------
    timelines : one a round
    rounds : the rounds for what-ifs; beside other jobs each message takes as long as it did there
    contention : how this job and the others fare, None where there are no others
    """
    if not rounds[0].beside:
        return [run(costed) for costed in rounds], rounds, None
    runs = [_run_together(costed) for costed in rounds]
    timelines = [own for own, *_ in runs]
    return timelines, pin_messages(rounds, timelines), contention_result(rounds, runs)


def run(
    costed: CostedGraph, durations: list[float] | None = None, *, brief: bool = False
) -> Timeline:
    """Run one round, with other durations of its tasks if given [s].

    Durations are those of a GPU at its normal speed; the round's conditions slow them down.

    Parameters
    ----------
    brief : only the length of periods will be asked for; the rest of the timeline may be missing

    Returns
    -------
    Timeline
        With an axis of draws where ranks vary by chance, and an axis of starts beside other jobs.
        Of several types of GPU it is the timeline of the one that ends last.
    """
    if durations is None:
        durations = costed.durations_s
    if costed.beside:
        return _run_together(costed, durations, brief=brief)[0]
    if costed.mixed is not None:
        from perfsim.conditions.mixed_gpus import run_mixed

        return run_mixed(costed, durations)
    if varies_by_chance(costed):
        return drawn(costed, durations, brief=brief)
    if costed.conditions is not None:
        durations = slowed(costed, durations)
    if costed.graph.contended:
        from perfsim.simulate.events import simulate_events

        return simulate_events(costed.graph, durations, order=costed.order)
    if costed.order == "priority":
        from perfsim.simulate.priority import simulate_priority

        return simulate_priority(costed.graph, durations, brief=brief)
    from perfsim.simulate.array import simulate

    return simulate(costed.graph, durations, brief=brief)


def in_one_pass(costed: CostedGraph) -> bool:
    """Tell whether one pass of `perfsim.simulate.array` over its tasks' own times runs a round."""
    alone = costed.conditions is None and costed.mixed is None and not costed.beside
    return alone and costed.order == "issue" and not costed.graph.contended


def varies_by_chance(costed: CostedGraph) -> bool:
    """Tell whether a round is run over draws, as chance decides which rank is waited for."""
    conditions = costed.conditions
    plain = not costed.beside and costed.mixed is None
    return plain and conditions is not None and conditions.varies


def mean_s(
    rounds: Sequence[CostedGraph] | Sequence[RoundTimes], timelines: Sequence[Timeline]
) -> float:
    """Return the mean iteration of all rounds [s], from the timeline of each."""
    counts = [costed.count for costed in rounds]
    total_s = sum_in_order(
        count * timeline.mean_period_s for count, timeline in zip(counts, timelines, strict=True)
    )
    return total_s / sum_in_order(costed.iterations for costed in rounds)


class JobSlowdown(NamedTuple):
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


class ContentionResult(NamedTuple):
    """How this job and the others fare on one network, over how many starts and iterations.

    Examples
    --------
    >>> from perfsim import Scenario, predict
    >>> other = ("Zhang2023_ssgd_resnet50_10gbe_32",)
    >>> found = predict(Scenario(model="resnet18", gpus=16, net="10gbe", beside=other)).contention
    >>> found.own.slowdown > 1, found.others[0].slowdown > 1
    (True, True)
    """

    own: JobSlowdown
    others: tuple[JobSlowdown, ...]
    starts: int
    iterations: int


def pin_messages(rounds: Sequence[CostedGraph], timelines: Sequence[Timeline]) -> list[CostedGraph]:
    """Return the rounds without other jobs, each message as long as it took beside them.

    What-ifs (one cause twice as fast) are asked of these: each message keeps the part of the link
    that it got.
    """
    return [_pin(costed, timeline) for costed, timeline in zip(rounds, timelines, strict=True)]


def _pin(costed: CostedGraph, timeline: Timeline) -> CostedGraph:
    import numpy as np

    tasks = list(costed.graph.tasks)
    rows = range(costed.graph.depth + 1, costed.graph.depth + 1 + timeline.averaged)
    for index in costed.crossings:
        spent = [
            np.asarray(timeline.ends[row][index]) - timeline.starts[row][index] for row in rows
        ]
        seconds = float(np.mean(spent))
        tasks[index] = tasks[index]._replace(duration_s=seconds, shares=None, latency_s=0.0)
    return replace(costed, graph=replace(costed.graph, tasks=tasks), crossings={}, beside=())


def contention_result(
    rounds: Sequence[CostedGraph], runs: Sequence[Sequence[Timeline]]
) -> ContentionResult:
    """Return how this job and the others fare.

    Parameters
    ----------
    rounds : of this job's period
    runs : for each round, its timelines as `_run_together` returns them
    """
    each = [own for own, *_ in runs]
    total = sum_in_order(costed.iterations for costed in rounds)
    spent_s = [
        costed.count * timeline.mean_period_s for costed, timeline in zip(rounds, each, strict=True)
    ]
    lows, highs = zip(*map(_range, each), strict=True)
    own_s = sum_in_order(spent_s) / total
    weights = [costed.iterations / total for costed in rounds]
    own = JobSlowdown(
        own_s,
        _alone_s(rounds),
        sum_in_order(weight * low for weight, low in zip(weights, lows, strict=True)),
        sum_in_order(weight * high for weight, high in zip(weights, highs, strict=True)),
    )
    others = []
    for number, other in enumerate(rounds[0].beside, start=1):
        its = [timelines[number] for timelines in runs]
        # As many iterations as it gets done while this job is in each of its rounds.
        done = sum_in_order(
            share / (one.mean_period_s / other.graph.iterations)
            for share, one in zip(spent_s, its, strict=True)
        )
        lows, highs = zip(*map(_range, its), strict=True)
        others.append(
            JobSlowdown(sum_in_order(spent_s) / done, _alone_s([other]), min(lows), max(highs))
        )
    counted = [one.averaged * one.graph.iterations for one in each]
    return ContentionResult(own, tuple(others), min(one.shape[0] for one in each), min(counted))


def _alone_s(rounds: Sequence[CostedGraph]) -> float:
    """Return the mean iteration without the other jobs [s]."""
    by_themselves = _without_others(rounds)
    return mean_s(by_themselves, [run(costed, brief=True) for costed in by_themselves])


def _range(timeline: Timeline) -> tuple[float, float]:
    """Return the mean iteration of the luckiest and of the unluckiest start [s]."""
    import numpy as np

    iteration_s = np.asarray(timeline.iteration_s)
    return float(iteration_s.min()), float(iteration_s.max())


def most_frequent(rounds: Sequence[CostedGraph]) -> CostedGraph:
    """Return the round that most of a job's iterations are run by."""
    return max(rounds, key=lambda costed: costed.iterations)


def _without_others(rounds: Sequence[CostedGraph]) -> list[CostedGraph]:
    """Return the rounds without the other jobs."""
    return [replace(costed, beside=()) for costed in rounds]


def _run_together(
    costed: CostedGraph, durations: Sequence[float] | None = None, *, brief: bool = False
) -> list[Timeline]:
    """Run a round beside those of the other jobs; return the timeline of each job, this one first.

    Timelines have an axis of starts. ``durations`` [s] are taken in place of this job's own.

    Raises
    ------
    RequestError
        If it would take too long to simulate them.
    """
    from perfsim.simulate.several_jobs import simulate_together, simulation_effort

    jobs = [_concurrent_job(costed, durations), *map(_concurrent_job, costed.beside)]
    effort = simulation_effort(jobs)
    if effort is None:
        raise RequestError(
            "beside",
            "the iterations of these jobs are too many, or too different in length, to be"
            " followed; take larger buckets, or `background` for the share that the other takes.",
        )
    return simulate_together(jobs, effort, brief=brief)


def _concurrent_job(costed: CostedGraph, durations: Sequence[float] | None = None) -> ConcurrentJob:
    from perfsim.simulate.several_jobs import ConcurrentJob

    (by_itself,) = _without_others([costed])
    alone = run(by_itself, None if durations is None else list(durations), brief=True)
    spent_s = slowed(costed, durations)
    return ConcurrentJob(costed.graph, spent_s, costed.crossings, alone.mean_period_s, costed.order)
