"""explain(): why an iteration takes as long as it does, and what would change that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, cast

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.methods import method_class
from perfsim.planning import break_even as breakeven
from perfsim.planning.break_even import BreakEven, BreakEvenPoint
from perfsim.planning.tune import first_bucket
from perfsim.prediction import Prediction, predict
from perfsim.resolve import Setup, resolve
from perfsim.scenario import Scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import run
from perfsim.session import default_session
from perfsim.simulate.task import COMPUTE, Task
from perfsim.simulate.timeline import Timeline
from perfsim.units import parse_bytes
from perfsim.what_if import CostChange, faster, steady_s

__all__ = [
    "EXPLANATION_SCHEMA",
    "IMPROVEMENTS",
    "WAITING",
    "CriticalPath",
    "Explanation",
    "Exposed",
    "Improvement",
    "PathStep",
    "critical_path",
    "explain",
    "exposed",
    "improvements",
    "one_run",
    "periods_shown",
    "with_bucket",
]

WAITING = "waiting"
"""Kind of a stretch in which no task of this worker runs on the path."""

ROUNDING = 1e-12
"""Two moments nearer to each other than this share of the later one are the same."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One task on the critical path, from the start of the iterations that the path covers."""

    task: str
    stream: str
    kind: str
    start_s: float
    end_s: float


def critical_path(timeline: Timeline) -> list[PathStep]:
    """Return what the last steady period waited for, in order; the steps leave no gap.

    From the end of the period back: each task began when the last of what it waits for ended,
    which is a dependency or the task before it on its stream. A run that repeats every q periods
    (or means over q) has the path of all q; one that does not settle that of its last period.
    With ranks it is the path of the rank that ends last, and what no task of that rank explains
    is a step of kind "waiting"; with draws it is that of the last period of one (see ``one_run``).

    Examples
    --------
    >>> from perfsim.simulate.array import simulate
    >>> from perfsim.simulate.graph import TaskGraph
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> reduce = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> _ = graph.add("update", "compute", "update", 1.0, after=[reduce])
    >>> [(step.task, step.start_s, step.end_s) for step in critical_path(simulate(graph))]
    [('backward', 0.0, 3.0), ('all_reduce', 3.0, 5.0), ('update', 5.0, 6.0)]
    """
    cycle = periods_shown(timeline)
    timeline = one_run(timeline)
    before = timeline.periods - cycle - 1
    low = float(cast(float, timeline.closes[before])) if before >= 0 else 0.0
    moment = float(cast(float, timeline.closes[-1]))
    near = ROUNDING * moment
    tasks = timeline.graph.tasks
    ahead = _before_on_stream(timeline)
    place: tuple[int, int] | None = (timeline.periods - 1, timeline.graph.closing)
    steps: list[PathStep] = []

    def add(task: str, stream: str, kind: str, start: float) -> None:
        steps.append(PathStep(task, stream, kind, max(start, low) - low, moment - low))

    while place is not None and moment > low + near:
        period, index = place
        start, end = _moments(timeline, place)
        if end < moment - near:
            add(WAITING, "", WAITING, end)
            moment = end
            continue
        task = tasks[index]
        if moment - start > near:
            add(task.name, task.stream, task.kind, start)
            moment = start
        waits = [(period - back, other) for other, back in task.after if back <= period]
        waits += [ahead[place]] if place in ahead else []
        place = max(waits, key=lambda one: (_moments(timeline, one)[1], one), default=None)
    if moment > low + near:
        add(WAITING, "", WAITING, low)
    return steps[::-1]


def periods_shown(timeline: Timeline) -> int:
    """Return how many periods a critical path covers."""
    return timeline.averaged if timeline.steady and not timeline.shape else 1


def one_run(timeline: Timeline) -> Timeline:
    """Return the run of one worker: the rank that ends last, the draw nearest to the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from perfsim.simulate.array import simulate
    >>> from perfsim.simulate.graph import TaskGraph
    >>> graph = TaskGraph()
    >>> _ = graph.add("backward", "compute", "backward", np.array([1.0, 2.0, 6.0]))
    >>> one_run(simulate(graph)).iteration_s
    2.0
    """
    if not timeline.shape:
        return timeline.select() if timeline.ranks else timeline
    import numpy as np

    lengths = np.broadcast_to(np.asarray(timeline.period_s), timeline.shape)
    nearest = int(np.abs(lengths - lengths.mean()).argmin())
    return timeline.select(tuple(int(at) for at in np.unravel_index(nearest, timeline.shape)))


def _moments(timeline: Timeline, place: tuple[int, int]) -> tuple[float, float]:
    """Return when the task of a period starts and ends [s]."""
    period, index = place
    start, end = timeline.starts[period][index], timeline.ends[period][index]
    return float(cast(float, start)), float(cast(float, end))


def _before_on_stream(timeline: Timeline) -> dict[tuple[int, int], tuple[int, int]]:
    """Return, for the task of a period, what its stream ran before it (in the order of the run)."""
    runs: dict[str, list[tuple[float, float, int, int]]] = {}
    for period in range(len(timeline.starts)):
        for index, task in enumerate(timeline.graph.tasks):
            start, end = _moments(timeline, (period, index))
            runs.setdefault(task.stream, []).append((start, end, period, index))
    found = {}
    for ran in runs.values():
        ran.sort()
        for one, other in pairwise(ran):
            found[other[2:]] = one[2:]
    return found


KERNELS = ("compress", "decompress", "second_order")

ExposedRun = tuple[int, float, int, str]
"""A task that runs: level, start [s], index in the graph, job."""

Mark = tuple[float, int, ExposedRun]
"""When a run starts (1) or ends (0) [s]."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """What one bucket (or other job of a method) takes in an iteration, on average [s].

    ``bucket`` is "iteration.name" as a timeline shows it, ``round`` which of the method's rounds
    it belongs to. ``busy_s`` counts its messages one by one, ``exposed_s`` only instants in which
    nothing is computed; an instant belongs to the message that began first.
    """

    round: int
    bucket: str
    collectives: str
    busy_s: float
    exposed_s: float
    kernels_s: float


def exposed(plans: Sequence[CostedGraph], timelines: Sequence[Timeline]) -> list[Exposed]:
    """Return the buckets in the order in which they are sent.

    ``exposed_s`` of all sums to the prediction's ``communication_exposed``; where ranks vary by
    chance, to that of one draw (see ``one_run``).
    """
    total = sum(plan.iterations for plan in plans)
    found = []
    for number, (plan, timeline) in enumerate(zip(plans, timelines, strict=True)):
        one = one_run(timeline)
        share = plan.iterations / total / (one.averaged * one.graph.iterations)
        for row in _of_round(one, number):
            found.append(
                replace(
                    row,
                    busy_s=row.busy_s * share,
                    exposed_s=row.exposed_s * share,
                    kernels_s=row.kernels_s * share,
                )
            )
    return found


def _of_round(timeline: Timeline, number: int) -> list[Exposed]:
    """Return the rows of a round, summed over the window [s]."""
    tasks = timeline.graph.tasks
    busy: dict[str, float] = {}
    kernels: dict[str, float] = {}
    words: dict[str, list[str]] = {}
    marks: list[Mark] = []
    for index, start, end in timeline.intervals():
        task = tasks[index]
        what, _, job = task.name.partition(" ")
        if task.kind == "communicate":
            busy[job] = busy.get(job, 0.0) + end - start
            words.setdefault(job, []).append(what)
        elif task.kind in KERNELS:
            kernels[job] = kernels.get(job, 0.0) + end - start
        level = _level(task)
        if end > start and level is not None:
            run = (level, start, index, job)
            marks += [(start, 1, run), (end, 0, run)]
    shown = _shown(marks)
    return [
        Exposed(
            number,
            job,
            " + ".join(dict.fromkeys(words[job])),
            busy[job],
            shown.get(job, 0.0),
            kernels.get(job, 0.0),
        )
        for job in busy
    ]


def _level(task: Task) -> int | None:
    """Return which of several tasks that run at once an instant belongs to, the least first.

    As in a prediction's breakdown: computation, then kernels on other streams, then messages. The
    levels of messages are odd.
    """
    if task.stream == COMPUTE:
        return 1 if task.kind == "communicate" else 0
    if task.kind == "communicate":
        return 3
    return 2 if task.kind in KERNELS else None


def _shown(marks: list[Mark]) -> dict[str, float]:
    """Return the time in which an instant belongs to a job's message [s], by job."""
    found: dict[str, float] = {}
    running: set[ExposedRun] = set()
    before = 0.0
    for moment, starts, stretch in sorted(marks):
        if moment > before and running:
            level, _, _, job = min(running)
            if level % 2:
                found[job] = found.get(job, 0.0) + moment - before
        before = moment
        if starts:
            running.add(stretch)
        else:
            running.discard(stretch)
    return found


IMPROVEMENTS: dict[str, tuple[str, ...]] = {
    "bandwidth": ("bandwidth",),
    "latency": ("latency",),
    "gpu": ("compute", "compression", "second_order"),
    "compression": ("compression",),
    "second_order": ("second_order",),
}
"""What can be twice as good, and the causes that it makes twice as fast."""

STEP = 1e-3
"""Elasticities are taken over a change of this share."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """The iteration with one thing twice as good.

    Parameters
    ----------
    what : a name of ``IMPROVEMENTS``, bucket_doubled or bucket_halved
    iteration_s : the iteration then [s]
    saved : share of the iteration that is saved; below 0 where it is longer
    elasticity : per cent of the iteration saved for one per cent faster, None for buckets, whose
        number changes in steps
    """

    what: str
    iteration_s: float
    saved: float
    elasticity: float | None


def improvements(
    resolved: Setup, plans: Sequence[CostedGraph], iteration_s: float, scale: float = 1.0
) -> list[Improvement]:
    """Return what pays, most first.

    Buckets, algorithms and what a method decided stay as they are, but for the two lines on the
    bucket size (where the fusion takes one). ``gpu`` is all that the GPU does, the method's
    kernels too. As the iteration is made of these and of nothing else, the elasticities of
    bandwidth, latency and gpu sum to 1 (less what only waits). ``scale`` is how many times as long
    as the plans' an iteration is, where these stand for it (beside other jobs).
    """
    charged = {charge.cause for plan in plans for charge in plan.charges}
    charged |= {"bandwidth", "latency"} if "network" in charged else set()
    found = []
    for what, causes in IMPROVEMENTS.items():
        if not charged.intersection(causes):
            continue
        then_s = steady_s(plans, faster(2.0, *causes)) * scale
        # Both ways: the iteration is a maximum of sums and may have a corner here.
        ends = [steady_s(plans, _times(causes, factor)) for factor in (1 + STEP, 1 / (1 + STEP))]
        elasticity = math.log(ends[0] / ends[1]) / (2 * math.log(1 + STEP))
        found.append(Improvement(what, then_s, 1.0 - then_s / iteration_s, elasticity))
    for what, factor in (("bucket_doubled", 2.0), ("bucket_halved", 0.5)):
        sized = with_bucket(resolved, factor)
        if sized is None or "network" not in charged:
            continue
        try:
            then_s = steady_s(build_rounds(sized))
        except RequestError:
            continue
        found.append(Improvement(what, then_s, 1.0 - then_s / iteration_s, None))
    return sorted(found, key=lambda one: -one.saved)


def _times(causes: Sequence[str], factor: float) -> CostChange:
    """Return the change that makes causes take ``factor`` times as long."""
    return faster(1.0 / factor, *causes)


def with_bucket(resolved: Setup, factor: float) -> Setup | None:
    """Return the question with buckets ``factor`` times as large; None where fusion sizes its own.

    DDP's first bucket, where no size was asked for, keeps its proportion to the others.
    """
    usual = resolved.policy.LIMIT_BYTES
    if usual is None:
        return None
    options = dict(resolved.scenario.fusion_options)
    first = first_bucket(resolved)
    if "first_bucket" in options:
        first = parse_bytes(options["first_bucket"], "fusion.first_bucket")
    if first is not None:
        options["first_bucket"] = f"{first * factor!r}B"
    scenario = resolved.scenario.model_copy(update={"fusion_options": options})
    limit = (resolved.limit_bytes or usual) * factor
    return replace(resolved, scenario=scenario, limit_bytes=limit)


EXPLANATION_SCHEMA = "perfsim/explain/1"


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path of one of the method's rounds.

    ``count`` is how often the round is run in the method's period, ``iterations`` how many
    iterations the path covers.
    """

    count: float
    iterations: int
    steps: list[PathStep]

    @property
    def length_s(self) -> float:
        """From the start of the first step to the end of the last [s]."""
        return self.steps[-1].end_s if self.steps else 0.0

    def by_kind(self) -> dict[str, float]:
        """Return the seconds of each kind of task on the path, longest first; they sum to it."""
        found: dict[str, float] = {}
        for step in self.steps:
            found[step.kind] = found.get(step.kind, 0.0) + step.end_s - step.start_s
        return dict(sorted(found.items(), key=lambda one: -one[1]))


@dataclass(frozen=True)
class Explanation:
    """What perfsim says of one prediction; `to_dict` is what ``explain --json`` prints.

    ``paths`` has one for each round of the method's period; ``improvements`` come most worth
    first.
    """

    prediction: Prediction
    paths: list[CriticalPath]
    exposed: list[Exposed]
    improvements: list[Improvement]
    bandwidth: BreakEven
    gpus: BreakEven
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, by the contract perfsim/explain/1."""
        said = self.prediction
        return {
            "schema": EXPLANATION_SCHEMA,
            "scenario": said.scenario.to_dict(),
            "iteration_s": said.iteration_s,
            "iteration_s_interval": list(said.iteration_s_interval),
            "baseline": {"method": "ssgd", "iteration_s": said.baseline_s, "speedup": said.speedup},
            "bottleneck": said.bottleneck,
            "breakdown_s": said.breakdown_s,
            "critical_path": [
                {
                    "count": path.count,
                    "iterations": path.iterations,
                    "length_s": path.length_s,
                    "by_kind_s": path.by_kind(),
                    "steps": [asdict(step) for step in path.steps],
                }
                for path in self.paths
            ],
            "exposed": [asdict(one) for one in self.exposed],
            "sensitivity": [asdict(one) for one in self.improvements],
            "break_even": {
                "bandwidth": _break_even(self.bandwidth),
                "gpus": _break_even(self.gpus),
            },
            "notes": [*self.notes, *said.notes],
        }


def _break_even(found: BreakEven) -> dict[str, Any]:
    """Return a break-even as plain data; places are factors of the rate, or GPUs."""
    over = "factor" if found.over == "bandwidth" else "gpus"
    result: dict[str, Any] = {
        "searched": None if found.why_not else [found.low, found.high],
        "method_faster": found.wins,
        "crossings": [_crossing(one, over, found.rate) for one in found.crossings],
        "curve": [
            {over: place, "iteration_s": times[0], "ssgd_s": times[1]}
            for place, times in found.curve
        ],
    }
    if found.over == "bandwidth":
        result["rate_bytes_per_s"] = found.rate
    if found.why_not:
        result["why_not"] = found.why_not
    return result


def _crossing(one: BreakEvenPoint, over: str, rate: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        over: one.at,
        "iteration_s": one.times[0],
        "ssgd_s": one.times[1],
        "method_faster": "above" if one.wins_above else "below",
        f"{over}_before": one.before,
        "iteration_before_s": one.times_before[0],
        "ssgd_before_s": one.times_before[1],
    }
    if rate is not None:
        row["rate_bytes_per_s"] = one.at * rate
    return row


def explain(scenario: Scenario, catalog: Catalog | None = None) -> Explanation:
    """Return why the iteration of one scenario takes as long as it does.

    Raises
    ------
    RequestError
        If the scenario names something that does not exist or cannot be combined.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> found = explain(Scenario(model="resnet50", gpus=64, net="1gbe"))
    >>> found.improvements[0].what
    'bandwidth'
    >>> round(sum(found.paths[0].by_kind().values()) / found.prediction.iteration_s, 9)
    1.0
    """
    catalog = catalog or default_session()
    prediction = predict(scenario, catalog)
    resolved = resolve(scenario, catalog)
    plans = build_rounds(resolved)
    timelines = [run(plan) for plan in plans]
    still, scale = plans, 1.0
    if resolved.beside:
        from perfsim.schedule.run import pin_messages

        still = pin_messages(plans, timelines)
        scale = prediction.iteration_s / steady_s(still)
    along_bandwidth = breakeven.bandwidth(resolved)
    along_gpus = breakeven.gpus(resolved, catalog)
    return Explanation(
        prediction,
        [
            CriticalPath(
                plan.count,
                plan.graph.iterations * periods_shown(timeline),
                critical_path(timeline),
            )
            for plan, timeline in zip(plans, timelines, strict=True)
        ],
        exposed(plans, timelines),
        improvements(resolved, still, prediction.iteration_s, scale),
        along_bandwidth,
        along_gpus,
        _notes(scenario, plans, timelines, along_gpus),
    )


def _notes(
    scenario: Scenario,
    plans: Sequence[CostedGraph],
    timelines: Sequence[Timeline],
    along_gpus: BreakEven,
) -> list[str]:
    notes = [
        "What is twice as good leaves buckets, algorithms and what the method decided as they are;"
        " gpu is the model's computation and the method's kernels together."
    ]
    if method_class(scenario.method).lossy:
        notes.append(
            f"Break-even is of time alone: {scenario.method} changes what is learnt, so that the"
            " iterations to a target may differ."
        )
    if not along_gpus.why_not:
        notes.append(
            "Break-even over GPUs carries the network's costs beyond the ranks on which they were"
            " measured; predict at the number found for what that rests on."
        )
    if scenario.beside:
        notes.append(
            "Beside other jobs the path is that of one iteration of one start, and exposed time"
            " that of one start, nearest to the mean; buckets of another size meet the others anew."
        )
    elif any(timeline.shape for timeline in timelines):
        notes.append(
            "Where GPUs vary by chance, the path is that of one period, and exposed time that of"
            " one draw, nearest to the mean."
        )
    if len(plans) > 1:
        notes.append("The method has rounds of different kinds; each has its own critical path.")
    return notes
