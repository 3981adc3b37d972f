"""The words of conditions: which they are, what was assumed, and how other jobs fare."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, sqrt
from typing import TYPE_CHECKING, Any

from perfsim.conditions.draws import OTHER_RANK, sample
from perfsim.conditions.ranks import MAX_APART
from perfsim.conditions.spec import Conditions, label, parse_straggler
from perfsim.note import warning
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.simulate.array import meets_all
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.conditions.measured import MeasuredJitter
    from perfsim.resolve import ResolvedScenario, Setup
    from perfsim.scenario import Scenario
    from perfsim.schedule.run import ContentionResult, JobSlowdown

__all__ = [
    "condition_notes",
    "condition_words",
    "contention_block",
    "contention_lines",
    "contention_notes",
]

_SAME = 1e-9
"""Relative difference that counts as none."""


def contention_block(scenario: ResolvedScenario, result: ContentionResult) -> dict[str, Any]:
    """Return how this job and the others fare, as plain data."""
    pairs = zip(scenario.beside, result.others, strict=True)
    return {
        **result.own.to_dict(),
        "starts": result.starts,
        "iterations": result.iterations,
        "jobs": [{"scenario": name, **other.to_dict()} for name, other in pairs],
    }


def contention_lines(scenario: ResolvedScenario, result: ContentionResult) -> list[str]:
    """Say how much each job is slowed down, a line a job."""
    lines = [f"beside other jobs    {_fares(result.own)}"]
    for name, other in zip(scenario.beside, result.others, strict=True):
        lines.append(f"  {label(name):18} {_fares(other)}")
    return lines


def _fares(job: JobSlowdown) -> str:
    return (
        f"{job.slowdown:.2f}x as long as alone   ({format_seconds(job.iteration_s)}, alone"
        f" {format_seconds(job.alone_s)})"
    )


def contention_notes(
    setup: Setup, rounds: Sequence[CostedGraph], result: ContentionResult
) -> list[str]:
    """Say what was assumed of the other jobs, and how much depends on when they began."""
    names = [label(name) for name in setup.scenario.beside]
    others = rounds[0].beside
    if not any(costed.crossings for costed in rounds):
        return [warning("`beside` has no effect: this job sends nothing between nodes.")]
    quiet = [name for name, other in zip(names, others, strict=True) if not other.crossings]
    notes = [f"{name} sends nothing between nodes, so it slows nobody down." for name in quiet]
    if len(quiet) == len(names):
        return notes
    notes += [_sharing_note(names, result), _start_note(result)]
    for name, other, one in zip(names, others, setup.beside, strict=True):
        if len(one.method.rounds()) > 1 and other.iterations < _period(one):
            notes.append(
                f"Not all iterations of {name} are alike: only those that it runs most of are"
                " simulated."
            )
    notes.append(
        "Not modelled beside other jobs: unfair shares (other round-trip times or numbers of"
        " connections), bursts that overflow a switch (incast), and jobs that share only some of"
        " the links: all of each job's traffic between nodes is on the links that are shared."
        " What-ifs and the interval leave each message the part of the link that it got."
    )
    return notes


def _period(setup: Setup) -> float:
    return sum_in_order(one.count * len(one.iterations) for one in setup.method.rounds())


def _sharing_note(names: Sequence[str], result: ContentionResult) -> str:
    own, others = result.own, zip(names, result.others, strict=True)
    slowed = "; ".join(
        f"{name} takes {format_seconds(other.iteration_s)} an iteration, {other.slowdown:.2f} times"
        f" as long as alone ({format_seconds(other.alone_s)})"
        for name, other in others
    )
    return (
        f"Beside {' and '.join(names)} this job takes {own.slowdown:.2f} times as long as alone"
        f" ({format_seconds(own.alone_s)}); {slowed}. Messages that are between nodes at once get"
        " equal parts of the link, job by job, none more than it needs (max-min fair, as TCP flows"
        " of one round-trip time come near: Bertsekas & Gallager 1992, 6.5.2; Velho et al. 2013);"
        " latency is not shared. The S-SGD baseline runs beside the same jobs."
    )


def _start_note(result: ContentionResult) -> str:
    own = result.own
    many = f"{result.starts} starts of the jobs" if result.starts > 1 else "one start of the jobs"
    mean = (
        f"The mean over {many}, spread evenly over the longest iteration, and {result.iterations}"
        " iterations of each."
    )
    if own.high_s - own.low_s <= _SAME * own.high_s:
        return f"{mean} Every start gives the same."
    return (
        f"{mean} It depends on when each job began: {format_seconds(own.low_s)} with the luckiest"
        f" start, {format_seconds(own.high_s)} with the unluckiest. Under fair sharing equal jobs"
        " keep the offset with which they began. Rajasekaran et al. (HotNets 2022; CASSINI, NSDI"
        " 2024) show that unfair shares separate jobs that collide."
    )


def condition_words(scenario: ResolvedScenario | Scenario) -> str:
    """Say the conditions of a scenario in short; "" where there are none.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> few = {"straggler": ("1:1.5",), "jitter": 0.05, "background": 0.3}
    >>> condition_words(Scenario(model="resnet50", gpus=8, **few))
    '1 GPU 1.5x slower, computation varies by 5%, other traffic takes 30% between nodes'
    """
    parts = []
    for count, factor in map(parse_straggler, scenario.straggler):
        parts.append(f"{_gpus(count)} {factor:g}x slower")
    if isinstance(scenario.jitter, str):
        from perfsim.conditions.measured import measured_jitter

        spread = _spread(measured_jitter(scenario.jitter))
        parts.append(f"passes vary by {scenario.jitter} ({spread})")
    elif scenario.jitter:
        parts.append(f"computation varies by {_share(scenario.jitter)}")
    if scenario.background:
        parts.append(f"other traffic takes {_share(scenario.background)} between nodes")
    parts += [f"beside {label(name)}" for name in scenario.beside]
    return ", ".join(parts)


def condition_notes(
    conditions: Conditions | None,
    background: float,
    seed: int,
    nodes: int,
    rounds: Sequence[CostedGraph],
    timelines: Sequence[Timeline],
) -> list[str]:
    """Say what was assumed of the conditions of a prediction."""
    notes = []
    if conditions is not None:
        notes += _straggler_notes(conditions, rounds)
        if conditions.jitter:
            notes += _jitter_notes(conditions, rounds, timelines)
        if any(
            task.stream.startswith(OTHER_RANK) for costed in rounds for task in costed.graph.tasks
        ):
            notes.append(
                "The method divides work among the GPUs: each is taken to have as much as the one"
                " that has most, so that a slow GPU delays the others by at most as much."
            )
    if background:
        notes.append(
            f"Other traffic takes {_share(background)} of every link between nodes all the time: a"
            f" byte takes {1 / (1 - background):.3g} times as long there; latency and the choice of"
            " algorithm stay."
            if nodes > 1
            else warning("`background` has no effect: all GPUs stand on one node.")
        )
    if seed and not (conditions and conditions.jitter):
        notes.append(warning("`seed` has no effect without `jitter`."))
    if notes:
        notes.append(
            "The S-SGD baseline runs under the same conditions; scaling efficiency is over one GPU"
            " at normal speed; the interval does not include errors of the conditions themselves."
        )
    return notes


def _straggler_notes(conditions: Conditions, rounds: Sequence[CostedGraph]) -> list[str]:
    if not conditions.stragglers:
        return []
    slow = " and ".join(
        f"{_gpus(count)} {factor:g} times" for count, factor in conditions.stragglers
    )
    slower = f"Slower in all that they compute: {slow} (passes, update and kernels of the method)."
    if conditions.varies or any(meets_all(costed.graph, conditions.ranks) for costed in rounds):
        return [slower]
    return [
        f"{slower} No GPU waits for all the others, but in the long run all go at the pace of the"
        " slowest."
    ]


def _jitter_notes(
    conditions: Conditions, rounds: Sequence[CostedGraph], timelines: Sequence[Timeline]
) -> list[str]:
    if not conditions.varies:
        alone = "GPU" if conditions.measured is None else "replica of the model"
        return [warning(f"`jitter` has no effect on the mean iteration of one {alone}.")]
    counted = [draws * periods for draws, _, periods in map(sample, rounds)]
    error_s = _error_s(rounds, timelines)
    notes = [
        f"{_variation(conditions)} The mean of {min(counted):,} drawn periods, seed"
        f" {conditions.seed}; its standard error is {format_seconds(error_s, 3)}."
    ]
    if any(count > 1 for costed in rounds for count in costed.repeats):
        notes.append(
            "Local iterations are drawn together with the exchange after them: what is waited for"
            " is the slowest GPU's sum."
        )
    some = [
        costed
        for costed in rounds
        if costed.calls and not meets_all(costed.graph, conditions.ranks)
    ]
    if some and any(len(costed.begins) > MAX_APART for costed in rounds):
        notes.append(
            f"Of the iterations between two exchanges {MAX_APART} are drawn together with the"
            " exchange after them, the others at their mean: what is waited for at an exchange"
            " grows with the root of their number, and comes out that much too short."
        )
    elif some:
        warm_up = sample(some[0]).warm_up
        notes.append(
            "A GPU waits for those that it exchanges with only: the mean over all GPUs, after"
            f" {warm_up} periods from a common start."
        )
    return notes


def _variation(conditions: Conditions) -> str:
    """Say how computation varies, and from where that is known."""
    measured = conditions.measured
    if measured is None:
        return (
            f"Each GPU's computation varies by {_share(conditions.jitter)} (one standard deviation;"
            " normal, being the sum of many kernels (see Giladi et al. 2023, arXiv 2306.10598),"
            " alike for all of an iteration, independent among GPUs and iterations; rare long"
            " stalls are not in it)."
        )
    from perfsim.conditions.measured import traces

    found = traces(measured.name)
    steps = " and ".join(
        f"{one.steps} steps of {one.replicas} replicas with {one.micro_batches} micro-batches each"
        f" (trace {one.trace})"
        for one in found
    )
    times = "as" if measured.scale == 1.0 else f"{measured.scale:g} times what was"
    return (
        f"Each replica's passes vary by {_spread(measured)} (one standard deviation),"
        f" {times} measured in {steps} of {found[0].repository}: {measured.name}, from"
        f" {min(measured.factors):.3g} to {max(measured.factors):.3g} times the mean. It is alike"
        " for all GPUs of a replica and all of an iteration, independent among replicas and"
        " iterations; GPUs that are always slower are not in it (`straggler`)."
    )


def _spread(measured: MeasuredJitter) -> str:
    return f"{100 * measured.spread:.2g}%"


def _error_s(rounds: Sequence[CostedGraph], timelines: Sequence[Timeline]) -> float:
    """Return the standard error of the mean iteration over draws [s]."""
    import numpy as np

    total = sum_in_order(costed.iterations for costed in rounds)
    errors = (
        costed.count / total * float(np.std(timeline.period_s, ddof=1)) / sqrt(timeline.shape[0])
        for costed, timeline in zip(rounds, timelines, strict=True)
    )
    return hypot(*errors)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _share(share: float) -> str:
    return f"{100 * share:.4g}%"
