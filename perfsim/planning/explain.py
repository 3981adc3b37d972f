"""explain(): why an iteration takes as long as it does, and what would change that.

Three views of one prediction: the critical path of tasks, the time in which each bucket's messages
are exposed, and what the iteration would be if one thing were twice as good. Break-even with S-SGD
comes from break_even.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perfsim.data.catalog import Catalog
from perfsim.data.tables import to_frame
from perfsim.display import Displayed
from perfsim.errors import RequestError, unknown
from perfsim.methods import method_class, method_name
from perfsim.note import warning
from perfsim.planning import break_even as breakeven
from perfsim.planning.break_even import BreakEven, BreakEvenPoint
from perfsim.planning.exchange_interval import ExchangeCost, exchange_cost
from perfsim.prediction import Prediction, predict, predict_iteration
from perfsim.resolve import Setup, resolve
from perfsim.scenario import Scenario, as_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import run
from perfsim.schedule.stage_passes import AXIS_WORDS
from perfsim.session import JobCache, fresh, job_cache
from perfsim.simulate.task import COMPUTE, Task
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order
from perfsim.units import format_seconds, parse_bytes
from perfsim.what_if import CostChange, faster, steady_s

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

__all__ = [
    "EXPLANATION_SCHEMA",
    "IMPROVEMENTS",
    "WAITING",
    "CriticalPath",
    "Explanation",
    "Exposed",
    "Improvement",
    "PathStep",
    "WaitingTime",
    "critical_path",
    "explain",
    "exposed",
    "improvements",
    "one_run",
    "periods_shown",
    "unfit_notes",
    "waiting_times",
    "with_bucket",
]

EXPLANATION_SCHEMA = "perfsim/explain/1"

WAITING = "waiting"
"""Kind of a step in which no task of this worker runs."""

IMPROVEMENTS: dict[str, tuple[str, ...]] = {
    "bandwidth": ("bandwidth",),
    "latency": ("latency",),
    "gpu": ("compute", "compression", "second_order"),
    "host": ("host",),
    "compression": ("compression",),
    "second_order": ("second_order",),
}
"""What can be twice as good, and the causes of cost that become twice as fast with it."""

_ELASTICITY_STEP = 1e-3
"""Relative change over which an elasticity is taken."""

_METHOD_KERNELS = ("compress", "decompress", "second_order")
"""Kinds of the tasks that a method adds to computation."""

_SAME_MOMENT = 1e-12
"""Two moments that differ by less than this share of the later one are the same."""

_Run = tuple[int, float, int, str]
"""A task that runs: level (see ``_level``), start [s], index in the graph, job."""

_Mark = tuple[float, int, _Run]
"""When a run starts (1) or ends (0) [s]."""

_TaskRun = tuple[int, int]
"""Period and index of a task that ran."""


class PathStep(NamedTuple):
    """One task on the critical path, from the start of the iterations that the path covers."""

    task: str
    stream: str
    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path of one of the method's rounds.

    ``count`` is how often the round runs in the method's period, ``iterations`` how many
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
        times: dict[str, float] = {}
        for step in self.steps:
            times[step.kind] = times.get(step.kind, 0.0) + step.end_s - step.start_s
        return dict(sorted(times.items(), key=lambda one: -one[1]))


@dataclass(frozen=True, slots=True)
class Exposed:
    """The time of one bucket, or other job of a method, in an iteration, on average.

    Parameters
    ----------
    round : index of the method's round that it belongs to
    bucket : "iteration.name", as a timeline shows it
    collectives : its collectives, joined by " + "
    busy_s : sum over its messages [s]
    exposed_s : time in which nothing is computed; it belongs to the message that began first [s]
    kernels_s : time of its kernels [s]
    """

    round: int
    bucket: str
    collectives: str
    busy_s: float
    exposed_s: float
    kernels_s: float


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


@dataclass(frozen=True, slots=True)
class WaitingTime:
    """Time of an iteration that dividing or sharding the model costs: what for, how long [s]."""

    what: str
    seconds: float


@dataclass(frozen=True, repr=False)
class Explanation(Displayed):
    """Why one prediction is as it is; `to_dict` has it as plain data, `plot` draws it.

    ``paths`` has one for each round of the method's period; ``improvements`` are by saving, the
    largest first; ``waits`` is what dividing or sharding the model costs, in the order of an
    iteration; ``apart`` is what exchanging every so many iterations costs, None where every
    iteration exchanges.
    """

    prediction: Prediction
    paths: list[CriticalPath]
    exposed: list[Exposed]
    improvements: list[Improvement]
    bandwidth: BreakEven
    gpus: BreakEven
    notes: list[str]
    waits: list[WaitingTime] = field(default_factory=list)
    apart: ExchangeCost | None = None

    def __repr__(self) -> str:
        """Return the question and the answer on one line."""
        prediction, pays = self.prediction, ""
        if self.improvements:
            first = self.improvements[0]
            pays = f"; twice as good, {first.what} saves {first.saved:.0%}"
        return (
            f"<Explanation {prediction.scenario.words}: {format_seconds(prediction.iteration_s)} an"
            f" iteration, held back by {prediction.bottleneck}{pays}>"
        )

    def records(
        self,
        kind: Literal[
            "improvements", "path", "exposed", "waits", "bandwidth", "gpus"
        ] = "improvements",
    ) -> list[dict[str, Any]]:
        """Return one of its tables as flat records, units in the names.

        Parameters
        ----------
        kind : "improvements": a row for each thing twice as good, and the share of the iteration
            that it saves; "path": for each step of the critical path; "exposed": for each bucket;
            "waits": for each thing that dividing the model costs; "bandwidth" or "gpus": for each
            point of the break-even with S-SGD

        Raises
        ------
        RequestError
            If there is no such kind.
        """
        tables: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "improvements": self._improvement_records,
            "path": self._path_records,
            "exposed": lambda: [asdict(one) for one in self.exposed],
            "waits": lambda: [{"what": one.what, "time_s": one.seconds} for one in self.waits],
            "bandwidth": lambda: _break_even_records(self.bandwidth),
            "gpus": lambda: _break_even_records(self.gpus),
        }
        if kind not in tables:
            raise unknown("kind", str(kind), tables)
        return tables[kind]()

    def _improvement_records(self) -> list[dict[str, Any]]:
        return [
            {
                "what": one.what,
                "iteration_s": one.iteration_s,
                "saved_ratio": one.saved,
                "elasticity_ratio": one.elasticity,
            }
            for one in self.improvements
        ]

    def _path_records(self) -> list[dict[str, Any]]:
        return [
            {"round": number, **step._asdict()}
            for number, path in enumerate(self.paths)
            for step in path.steps
        ]

    def to_pandas(
        self,
        kind: Literal[
            "improvements", "path", "exposed", "waits", "bandwidth", "gpus"
        ] = "improvements",
    ) -> pandas.DataFrame:
        """Return one of its tables (see `records`) as a pandas table.

        Raises
        ------
        RequestError
            If there is no such kind.
        PerfsimError
            If pandas is not installed.
        """
        return to_frame(self.records(kind))

    def plot(
        self,
        kind: Literal["improvements", "path", "exposed", "bandwidth", "gpus"] = "improvements",
    ) -> Figure:
        """Draw one of its views with Plotly; times are in s, ms or us, by their size.

        Parameters
        ----------
        kind : "improvements": what pays, in per cent of the iteration saved; "path": the critical
            path of the method's first round; "exposed": communication that nothing hides, by
            bucket; "bandwidth" or "gpus": break-even with S-SGD

        Raises
        ------
        RequestError
            If Plotly is not installed, or there is nothing of that kind.

        Examples
        --------
        >>> from perfsim import Scenario, explain
        >>> figure = explain(Scenario(model="resnet50", gpus=64, net="1gbe")).plot()
        >>> figure.layout.xaxis.title.text
        'iteration saved [%]'
        """
        return self._plotted(kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, by the contract perfsim/explain/1."""
        prediction = self.prediction
        return {
            "schema": EXPLANATION_SCHEMA,
            "scenario": prediction.scenario.to_dict(),
            "iteration_s": prediction.iteration_s,
            "iteration_s_interval": list(prediction.iteration_s_interval),
            "baseline": prediction.baseline.to_dict(prediction.iteration_s),
            "bottleneck": prediction.bottleneck,
            "breakdown_s": prediction.breakdown_s,
            "critical_path": [
                {
                    "count": path.count,
                    "iterations": path.iterations,
                    "length_s": path.length_s,
                    "by_kind_s": path.by_kind(),
                    "steps": [step._asdict() for step in path.steps],
                }
                for path in self.paths
            ],
            "exposed": [asdict(bucket) for bucket in self.exposed],
            **({"waits": [asdict(one) for one in self.waits]} if self.waits else {}),
            **self._apart(),
            "sensitivity": [asdict(one) for one in self.improvements],
            "break_even": {
                "bandwidth": _break_even(self.bandwidth),
                "gpus": _break_even(self.gpus),
            },
            "notes": [*self.notes, *prediction.notes],
        }

    def _apart(self) -> dict[str, Any]:
        """Return what exchanging every so many iterations costs and keeps; {} where none is so."""
        if self.apart is None:
            return {}
        state = self.prediction.outer_state
        kept = {} if state is None else {"outer_state": state.to_dict()}
        return {"exchange_interval": self.apart.to_dict() | kept}


def _break_even(search: BreakEven) -> dict[str, Any]:
    """Return a break-even as plain data; points are factors of the rate, or GPUs."""
    over = "factor" if search.over == "bandwidth" else "gpus"
    result: dict[str, Any] = {
        "searched": None if search.why_not else [search.low, search.high],
        "method_faster": search.wins,
        "crossings": [_crossing(one, over, search.rate) for one in search.crossings],
        "curve": [
            {over: point, "iteration_s": times[0], "ssgd_s": times[1]}
            for point, times in search.curve
        ],
    }
    if search.over == "bandwidth":
        result["rate_bytes_per_s"] = search.rate
    if search.why_not:
        result["why_not"] = search.why_not
    return result


def _break_even_records(search: BreakEven) -> list[dict[str, Any]]:
    """Return the points of a break-even as flat records."""
    by_rate = search.over == "bandwidth"
    rate = search.rate
    return [
        {
            **(
                {"rate_bytes_per_s": None if rate is None else point * rate, "rate_ratio": point}
                if by_rate
                else {"gpus": point}
            ),
            "iteration_s": times[0],
            "ssgd_iteration_s": times[1],
        }
        for point, times in search.curve
    ]


def _crossing(crossing: BreakEvenPoint, over: str, rate: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        over: crossing.at,
        "iteration_s": crossing.times[0],
        "ssgd_s": crossing.times[1],
        "method_faster": "above" if crossing.wins_above else "below",
        f"{over}_before": crossing.before,
        "iteration_before_s": crossing.times_before[0],
        "ssgd_before_s": crossing.times_before[1],
    }
    if rate is not None:
        row["rate_bytes_per_s"] = crossing.at * rate
    return row


def explain(scenario: Scenario | Mapping[str, Any], catalog: Catalog | None = None) -> Explanation:
    """Explain why the iteration of one scenario takes as long as it does.

    A dict of a scenario's fields is one too.

    Raises
    ------
    RequestError
        If the scenario names something that does not exist or cannot be combined.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim import Scenario, explain
    >>> found = explain(Scenario(model="resnet50", gpus=64, net="1gbe"))
    >>> found.improvements[0].what
    'bandwidth'
    >>> round(sum(found.paths[0].by_kind().values()) / found.prediction.iteration_s, 9)
    1.0
    """
    scenario, catalog = as_scenario(scenario), fresh(catalog)
    prediction = predict(scenario, catalog)
    setup, jobs = resolve(scenario, catalog), job_cache(catalog) or JobCache()
    plans = build_rounds(setup, jobs)
    timelines = [run(plan) for plan in plans]
    still, scale = plans, 1.0
    if setup.beside:
        from perfsim.schedule.run import pin_messages

        still = pin_messages(plans, timelines)
        scale = prediction.iteration_s / steady_s(still)
    by_bucket = exposed(plans, timelines)
    along_bandwidth = breakeven.bandwidth_break_even(setup, jobs)
    along_gpus = breakeven.gpu_break_even(setup, catalog, jobs)
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
        by_bucket,
        improvements(setup, still, prediction.iteration_s, scale),
        along_bandwidth,
        along_gpus,
        _notes(setup, plans, timelines, along_gpus),
        waiting_times(setup, prediction, by_bucket, catalog, still, scale),
        exchange_cost(setup, prediction.iteration_s, prediction.baseline_s),
    )


_GATHERS = "all_gather"


def waiting_times(
    setup: Setup,
    prediction: Prediction,
    buckets: Sequence[Exposed],
    catalog: Catalog,
    plans: Sequence[CostedGraph],
    scale: float,
) -> list[WaitingTime]:
    """Return what dividing or sharding a model costs in an iteration; [] where it is neither.

    Exposed communication is divided by what it is for. Imbalance is what the iteration would save
    with as many tokens for each rank of experts, host what it would save if its launches were free
    (and its CPUs' update, where they run one).

    Parameters
    ----------
    buckets : exposed communication, as `exposed` returns it
    plans, scale : as of `improvements`
    """
    parallel, scenario = prediction.parallel, setup.scenario
    if parallel is None and not setup.method.gathers_units():
        return []
    axes = set(AXIS_WORDS.values())
    found = [("pipeline bubble", parallel.bubble_s if parallel else 0.0)]
    for words in AXIS_WORDS.values():
        found.append((words, sum_in_order(one.exposed_s for one in buckets if one.bucket == words)))
    data = [one for one in buckets if one.bucket not in axes]
    for words, gathers in (("exposed gathers", True), ("exposed reductions of gradients", False)):
        some = [one.exposed_s for one in data if one.collectives.startswith(_GATHERS) == gathers]
        found.append((words, sum_in_order(some)))
    if parallel is None:
        free_s = steady_s(plans, faster(math.inf, "host")) * scale
        words = "update by the CPUs" if setup.profile.host_sharing else "launches of the host"
        found.append((words, prediction.iteration_s - free_s))
    if scenario.imbalance > 1.0:
        even = predict_iteration(scenario.model_copy(update={"imbalance": 1.0}), catalog)
        found.append(("imbalance of experts", prediction.iteration_s - even.iteration_s))
    return [WaitingTime(words, seconds) for words, seconds in found if seconds > 0]


def _notes(
    setup: Setup,
    plans: Sequence[CostedGraph],
    timelines: Sequence[Timeline],
    along_gpus: BreakEven,
) -> list[str]:
    scenario = setup.scenario
    notes = [
        "With something twice as good, buckets, algorithms and the method's decisions stay as they"
        " are; gpu is the model's computation and the method's kernels together."
    ]
    if setup.policy.timed:
        named = f"`fusion` {setup.policy.name}"
        notes.append(
            warning(
                f"{named} makes its buckets by how long passes and messages take, and with"
                " something twice as good it would make others: predict that to see.",
                f"{named} would make other buckets with something twice as good; predict that",
            )
        )
    if any(plan.decided_by_costs for plan in plans):
        notes.append(
            warning(
                f"{scenario.method} decides by how long kernels and messages take, and with"
                " something twice as good it may decide otherwise: predict that to see.",
                f"{scenario.method} may decide otherwise with something twice as good: predict it",
            )
        )
    if method_class(scenario.method).lossy:
        notes.append(
            f"Break-even compares time per iteration only: {scenario.method} changes what is"
            " learnt, so it may need more iterations."
        )
    if not along_gpus.why_not:
        notes.append(
            "Break-even over GPUs extrapolates the network's costs beyond the ranks that were"
            " measured; `perfsim predict` with that number of GPUs shows the sources."
        )
    notes += unfit_notes(scenario, along_gpus)
    if scenario.beside:
        notes.append(
            "With other jobs on the network, path and exposed time are those of one start, the one"
            " nearest to the mean; other bucket sizes are simulated with the other jobs anew."
        )
    elif any(timeline.shape for timeline in timelines):
        notes.append(
            "As GPUs vary by chance, the path is that of one period, and exposed time that of the"
            " draw nearest to the mean."
        )
    if len(plans) > 1:
        notes.append("The method has rounds of different kinds; each has its own critical path.")
    return notes


def unfit_notes(scenario: Scenario, along_gpus: BreakEven) -> list[str]:
    """Say where break-even over GPUs has a time of what would not fit into memory."""
    tried = len(along_gpus.curve)
    name = method_name(scenario.method)
    sides = {name: along_gpus.unfit, "S-SGD": along_gpus.ssgd_unfit}
    if name == "ssgd":
        del sides[name]
    notes: list[str] = []
    for side, unfit in sides.items():
        where = f"at {', '.join(map(str, unfit))} GPUs" if len(unfit) < tried else "anywhere"
        if unfit:
            brief = f"Break-even over GPUs: {side} would not fit into memory {where}"
            notes.append(warning(f"{brief}; its time is what it would take if it did.", brief))
    return notes


def critical_path(timeline: Timeline) -> list[PathStep]:
    """Return the tasks that the end of the last steady period waited for; they leave no gap.

    The path is followed back from the end. A task starts when the last task ends that it waits
    for: a dependency, or the task before it on its stream. A run that repeats every q periods
    has the path of all q; one that does not settle has that of its last period. With ranks it is
    the path of the rank that ends last, and time in which no task of that rank runs is a step of
    kind "waiting". With draws it is that of the last period of one draw (see ``one_run``).

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
    low = float(timeline.closes[before]) if before >= 0 else 0.0
    moment = float(timeline.closes[-1])
    near = _SAME_MOMENT * moment
    tasks = timeline.graph.tasks
    ahead = _before_on_stream(timeline)
    latest: _TaskRun | None = (timeline.periods - 1, timeline.graph.closing)
    steps: list[PathStep] = []

    def add(task: str, stream: str, kind: str, start: float) -> None:
        steps.append(PathStep(task, stream, kind, max(start, low) - low, moment - low))

    while latest is not None and moment > low + near:
        period, index = latest
        start, end = _moments(timeline, latest)
        if end < moment - near:
            add(WAITING, "", WAITING, end)
            moment = end
            continue
        task = tasks[index]
        if moment - start > near:
            add(task.name, task.stream, task.kind, start)
            moment = start
        waits = [(period - back, other) for other, back in task.after if back <= period]
        waits += [ahead[latest]] if latest in ahead else []
        latest = max(waits, key=lambda one: (_moments(timeline, one)[1], one), default=None)
    if moment > low + near:
        add(WAITING, "", WAITING, low)
    return steps[::-1]


def periods_shown(timeline: Timeline) -> int:
    """Return the number of periods that a critical path covers."""
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
    if timeline.shown:
        return one_run(timeline.shown[0])
    if not timeline.shape:
        return timeline.select() if timeline.ranks else timeline
    import numpy as np

    lengths = np.broadcast_to(np.asarray(timeline.period_s), timeline.shape)
    nearest = int(np.abs(lengths - lengths.mean()).argmin())
    return timeline.select(tuple(int(at) for at in np.unravel_index(nearest, timeline.shape)))


def _moments(timeline: Timeline, run: _TaskRun) -> tuple[float, float]:
    """Return when a task of a period starts and ends [s]."""
    period, index = run
    return float(timeline.starts[period][index]), float(timeline.ends[period][index])


def _before_on_stream(timeline: Timeline) -> dict[_TaskRun, _TaskRun]:
    """Return the task that each task follows on its stream, in the order of the run."""
    runs: dict[str, list[tuple[float, float, int, int]]] = {}
    streams = [task.stream for task in timeline.graph.tasks]
    for period, moments in enumerate(zip(timeline.starts, timeline.ends, strict=True)):
        for index, (stream, start, end) in enumerate(zip(streams, *moments, strict=True)):
            runs.setdefault(stream, []).append((float(start), float(end), period, index))
    before: dict[_TaskRun, _TaskRun] = {}
    for stream_runs in runs.values():
        stream_runs.sort()
        for first, second in pairwise(stream_runs):
            before[second[2:]] = first[2:]
    return before


def exposed(plans: Sequence[CostedGraph], timelines: Sequence[Timeline]) -> list[Exposed]:
    """Return the buckets in the order in which they are sent.

    ``exposed_s`` of all sums to the prediction's ``communication_exposed``; if ranks vary by
    chance, to that of one draw (see ``one_run``).
    """
    total = sum_in_order(plan.iterations for plan in plans)
    result = []
    for number, (plan, timeline) in enumerate(zip(plans, timelines, strict=True)):
        one = one_run(timeline)
        share = plan.iterations / total / (one.averaged * one.graph.iterations)
        for row in _of_round(one, number):
            result.append(
                replace(
                    row,
                    busy_s=row.busy_s * share,
                    exposed_s=row.exposed_s * share,
                    kernels_s=row.kernels_s * share,
                )
            )
    return result


def _of_round(timeline: Timeline, number: int) -> list[Exposed]:
    """Return the buckets of one round, with times summed over the window [s]."""
    tasks = timeline.graph.tasks
    busy: dict[str, float] = {}
    kernels: dict[str, float] = {}
    collectives: dict[str, list[str]] = {}
    marks: list[_Mark] = []
    for index, start, end in timeline.intervals():
        task = tasks[index]
        what, _, job = task.name.partition(" ")
        job = AXIS_WORDS.get(str(task.group), job)
        if task.kind == "communicate":
            busy[job] = busy.get(job, 0.0) + end - start
            collectives.setdefault(job, []).append(what)
        elif task.kind in _METHOD_KERNELS:
            kernels[job] = kernels.get(job, 0.0) + end - start
        level = _level(task)
        if end > start and level is not None:
            run = (level, start, index, job)
            marks += [(start, 1, run), (end, 0, run)]
    exposed_s = _exposed_s(marks)
    return [
        Exposed(
            number,
            job,
            " + ".join(dict.fromkeys(collectives[job])),
            busy[job],
            exposed_s.get(job, 0.0),
            kernels.get(job, 0.0),
        )
        for job in busy
    ]


def _level(task: Task) -> int | None:
    """Return the rank of a task among tasks that run at once; an instant belongs to the lowest.

    As in a prediction's breakdown: computation, then kernels on other streams, then messages. The
    levels of messages are odd.
    """
    if task.stream == COMPUTE:
        return 1 if task.kind == "communicate" else 0
    if task.kind == "communicate":
        return 3
    return 2 if task.kind in _METHOD_KERNELS else None


def _exposed_s(marks: list[_Mark]) -> dict[str, float]:
    """Return, by job, the time that belongs to its messages [s]."""
    times: dict[str, float] = {}
    running: set[_Run] = set()
    before = 0.0
    for moment, starts, task_run in sorted(marks):
        if moment > before and running:
            level, _, _, job = min(running)
            if level % 2:
                times[job] = times.get(job, 0.0) + moment - before
        before = moment
        if starts:
            running.add(task_run)
        else:
            running.discard(task_run)
    return times


def improvements(
    setup: Setup, plans: Sequence[CostedGraph], iteration_s: float, scale: float = 1.0
) -> list[Improvement]:
    """Return what the iteration would be with one thing twice as good, most saving first.

    Buckets, algorithms and the method's decisions stay as they are, except in the two lines on
    the bucket size (if the fusion takes one). ``gpu`` is all that the GPU computes, with the
    method's kernels; ``host`` its launches, where they bind. The iteration consists of bandwidth,
    latency, gpu and host, so their elasticities sum to 1, less the share that only waits. ``scale``
    is the ratio of the iteration to that of ``plans``, which differ beside other jobs.
    """
    charged = {charge.cause for plan in plans for charge in plan.charges}
    charged |= {"bandwidth", "latency"} if "network" in charged else set()
    if any(charge.host >= 1.0 for plan in plans for charge in plan.charges):
        charged.add("host")
    result = []
    for what, causes in IMPROVEMENTS.items():
        if not charged.intersection(causes):
            continue
        then_s = steady_s(plans, faster(2.0, *causes)) * scale
        # To both sides: the iteration is a maximum of sums and may have a corner here.
        ends = [
            steady_s(plans, _times(causes, factor))
            for factor in (1 + _ELASTICITY_STEP, 1 / (1 + _ELASTICITY_STEP))
        ]
        elasticity = math.log(ends[0] / ends[1]) / (2 * math.log(1 + _ELASTICITY_STEP))
        result.append(Improvement(what, then_s, 1.0 - then_s / iteration_s, elasticity))
    for what, factor in (("bucket_doubled", 2.0), ("bucket_halved", 0.5)):
        sized = with_bucket(setup, factor)
        if sized is None or "network" not in charged:
            continue
        try:
            then_s = steady_s(build_rounds(sized, timing_only=True))
        except RequestError:
            continue
        result.append(Improvement(what, then_s, 1.0 - then_s / iteration_s, None))
    return sorted(result, key=lambda one: -one.saved)


def _times(causes: Sequence[str], factor: float) -> CostChange:
    """Return the change by which causes take ``factor`` times as long."""
    return faster(1.0 / factor, *causes)


def with_bucket(setup: Setup, factor: float) -> Setup | None:
    """Return the setup with buckets ``factor`` times as large; None if fusion sizes its own.

    DDP's first bucket keeps its proportion to the others if no size was asked for.
    """
    usual = setup.policy.limit_bytes
    if usual is None:
        return None
    options = dict(setup.scenario.fusion_options)
    first = setup.first_bucket_bytes
    if "first_bucket" in options:
        first = parse_bytes(options["first_bucket"], "fusion_options.first_bucket")
    if first is not None:
        options["first_bucket"] = f"{first * factor!r}B"
    scenario = setup.scenario.model_copy(update={"fusion_options": options})
    limit = (setup.limit_bytes or usual) * factor
    return replace(setup, scenario=scenario, limit_bytes=limit)
