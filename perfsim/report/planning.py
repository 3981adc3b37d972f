"""Print plans, explanations, sweeps and tunings in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from math import isfinite, log
from textwrap import wrap

from perfsim.conditions.words import condition_words
from perfsim.memory import OuterState
from perfsim.planning.break_even import BreakEven, BreakEvenPoint
from perfsim.planning.capacity import HOUR_S, ClusterPlan, ParetoChoice, Target
from perfsim.planning.exchange_interval import (
    ExchangeCost,
    IntervalBreakEven,
    IntervalChoice,
    RateBreakEven,
)
from perfsim.planning.explain import (
    CriticalPath,
    Explanation,
    Exposed,
    PathStep,
    WaitingTime,
)
from perfsim.planning.sweep import SweepResult, SweepTable
from perfsim.planning.tune import FLAT_SHARE, TunableValue, TunedValue, Tuning, value_words
from perfsim.report.parallelism import print_parallelism
from perfsim.report.plain import is_plain
from perfsim.report.prediction_screen import question
from perfsim.report.task_names import (
    METHOD_KERNELS,
    bucket_words,
    compresses,
    kind_words,
    task_words,
)
from perfsim.report.terminal import (
    PAGE_COLUMNS,
    interval_words,
    network_name,
    number_lines,
    outer_state_words,
    page_columns,
    print_lines,
    print_notes,
    print_table,
    rate_words,
)
from perfsim.scenario import gpu_words
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes, format_seconds

__all__ = [
    "FUSION_WORDS",
    "TUNABLE_NAMES",
    "break_even_words",
    "choice_words",
    "exchange_summary",
    "exchange_words",
    "explanation_verdict",
    "improvement_words",
    "print_explanation",
    "print_plan",
    "print_sweep",
    "print_tuning",
    "sweep_cells",
    "tuned_verdict",
]

_MAX_APART = 5
"""Lines of a plan's choices by iteration time only; the JSON has all."""

_MAX_LEFT_OUT = 8
"""Lines of what a plan leaves out; the JSON has all."""

_MAX_PATH_LINES = 24
"""Lines of a critical path, and buckets, that are printed; the JSON has all."""

_MAX_BUCKETS = 5
"""Buckets that are printed where not everything was asked for."""

_MIN_PART = 0.005
"""Smaller shares of a critical path would be written as 0 %."""

_MAX_BUCKET_NAME = 40
"""Columns of a bucket's name."""

_MAX_LEARNING = 1
"""Sentences on learning that are printed for an interval; the JSON has all."""

_TENFOLD = 10.0
"""A share from which on it is written without decimals."""

_MIN_SAVING = 0.01
"""Smaller savings, as a share of the iteration, count as none."""

_MAX_REASONS = 10
"""Reasons for missing predictions that a sweep prints."""

_MAX_ROWS = 60
"""Rows of a sweep that are printed; a file has all."""

_TIMES_EPOCHS = "x epochs"
"""The head of what epochs are multiplied by."""

_WHOLE = 1e4
"""Hours and what is spent are written in whole numbers from here on."""
_BIT_UNITS = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"))
_THOUSAND = 1e3
_BAR_COLUMNS = 30
_MAX_BRIEF_LINES = 8
_MAX_CURVE_LINES = 18
"""Values of a tuned curve that are printed; the JSON has all."""

_IMPROVEMENT_WORDS = {
    "bandwidth": "the bandwidth",
    "latency": "half the latency",
    "gpu": "the GPU's speed",
    "host": "the host's speed",
    "compression": "the compression kernels' speed",
    "second_order": "the second-order kernels' speed",
    "bucket_doubled": "the bucket size",
    "bucket_halved": "half the bucket size",
}
"""What `explain` improves, as a reader knows it; see `improvement_words`."""

TUNABLE_NAMES = {
    "bucket": "bucket size",
    "density": "density",
    "rank": "rank",
    "interval": "averaging interval",
    "algorithm": "all-reduce algorithm",
}

FUSION_WORDS = {
    "mgwfbp": "MG-WFBP's merging",
    "optimal": "exact where every message is one all-reduce",
}
"""Fusion policies that size buckets by themselves, in words."""


def print_plan(plan: ClusterPlan, *, verbose: bool = False) -> None:
    """Print what meets the target best, the Pareto front, what is left out, and notes."""
    target = plan.target
    priced = any(one.cost is not None for one in plan.choices)
    unit = plan.prices.currency if priced else "GPU h"
    least = "cheapest" if priced else "least GPU h"
    compared = "time to S-SGD's accuracy"
    if not plan.learning_known:
        compared = "iteration time only, as if with S-SGD's epochs"
    print_lines(
        [
            f"{target.words}: {_counted_choices(plan)}",
            "",
            f"{'fastest':{len(least)}} {choice_words(plan.fastest, unit)}",
            f"{least} {choice_words(plan.cheapest, unit)}",
            "",
            f"Pareto front: nothing else is both faster and cheaper ({compared})",
        ],
        most=PAGE_COLUMNS,
    )
    _print_choices(plan.front, target, unit)
    apart = plan.by_iteration_only
    if apart:
        print(f"\nIteration time only, as if with S-SGD's epochs: {len(apart)}")
        _print_choices(apart[:_MAX_APART], target, unit)
        if len(apart) > _MAX_APART:
            print_lines([f"and {len(apart) - _MAX_APART} more (`json` lists all)"])
    if any(one.excess(target) > 1.0 for one in [*plan.front, *apart[:_MAX_APART]]):
        print("! misses the target")
    print_lines(["", _epochs_legend(plan)], rest="", most=PAGE_COLUMNS)
    if plan.left_out:
        print(f"\nleft out ({len(plan.left_out)})")
        reasons = _left_out_words(plan.left_out)
        print_lines(reasons[:_MAX_LEFT_OUT], most=PAGE_COLUMNS)
        if len(reasons) > _MAX_LEFT_OUT:
            print_lines([f"and {len(reasons) - _MAX_LEFT_OUT} more (`json` lists all)"])
    print_notes(plan.notes, verbose=verbose)


def _counted_choices(plan: ClusterPlan) -> str:
    """Say how many clusters and methods there are, and how many meet limits that there are."""
    count, kept = len(plan.choices), len(plan.within_target)
    words = f"{count} clusters and methods" if count != 1 else "1 cluster and method"
    if not plan.target.limited:
        return words
    return f"{words}, {kept} {'meets' if kept == 1 else 'meet'} the target"


def _epochs_legend(plan: ClusterPlan) -> str:
    """Say what epochs are multiplied by, and what the words in place of a number mean."""
    seen = {one.learning.words for one in plan.choices}
    marks = {
        "?": "? not known.",
        "short": "short: half or more of the published results fell short.",
    }
    words = [said for mark, said in marks.items() if mark in seen]
    return " ".join([f"{_TIMES_EPOCHS}: that it needs, as a multiple of S-SGD's.", *words])


def _left_out_words(left_out: Mapping[str, str]) -> list[str]:
    """Say why clusters and methods are left out; each reason once, with what it is the reason of.

    Of more than two names the others are counted.
    """
    named: dict[str, list[str]] = {}
    for name, why in sorted(left_out.items()):
        named.setdefault(why, []).append(name)
    return [
        f"{', '.join(names[:2])}{f' and {len(names) - 2} more' if names[2:] else ''}: {why}"
        for why, names in named.items()
    ]


def _print_choices(choices: Sequence[ParetoChoice], target: Target, unit: str) -> None:
    """Print clusters and methods as a table, with how each divides the model below it."""
    rows = [_choice_cells(one, target, unit) for one in choices]
    alike = [name for name in ("network", "gpu") if len({row[name] for row in rows}) == 1]
    lines = number_lines(
        rows,
        page_columns(),
        left="method,gpu,network",
        drop=(*alike, _TIMES_EPOCHS, "90 % interval", "network", "gpu"),
    )
    divided = {
        len(lines) - len(choices) + index: one.divided.division.words
        for index, one in enumerate(choices)
        if one.divided is not None
    }
    for index, line in enumerate(lines):
        print(line)
        if index in divided:
            print_lines([divided[index]], "  ", "    ", PAGE_COLUMNS)


def _choice_cells(one: ParetoChoice, target: Target, unit: str) -> dict[str, str]:
    """Return the cells of a choice by their heads; `!` marks what misses the target."""
    cluster = one.scenario
    low, high = (end / HOUR_S for end in one.interval_s)
    missed = "" if one.excess(target) <= 1.0 else "!"
    return {
        "method": cluster.method,
        "gpus": str(cluster.gpus),
        "gpu": cluster.gpu,
        "network": "one node" if cluster.nodes == 1 else cluster.net,
        _TIMES_EPOCHS: one.learning.words,
        "hours": _spent(one.seconds / HOUR_S),
        "90 % interval": f"{_end(low)} to {_end(high)}"
        if isfinite(high)
        else f"{_end(low)} and more",
        unit: f"{_spent(one.spent)}{missed}",
        **({} if one.energy_kwh is None else {"kWh": f"{one.energy_kwh:.4g}"}),
    }


def _spent(value: float) -> str:
    return f"{value:.4g}" if value < _WHOLE else f"{value:,.0f}"


def _end(hours: float) -> str:
    """Write an end of an interval, in whole hours where three digits would need an exponent."""
    return f"{hours:.3g}" if hours < _THOUSAND else f"{hours:,.0f}"


def choice_words(choice: ParetoChoice, unit: str) -> str:
    """Return a choice of a plan with its time and its cost in ``unit``."""
    text = f"{choice.words}: {_spent(choice.seconds / HOUR_S)} h, {_spent(choice.spent)} {unit}"
    return text if choice.learning.known else f"{text} (its epochs are not known)"


def print_explanation(explanation: Explanation, *, verbose: bool = False) -> None:
    """Print the critical path, exposed buckets, what pays, and break-even."""
    prediction = explanation.prediction
    print_lines([*question(prediction), ""], most=PAGE_COLUMNS)
    print_lines(
        [
            f"iteration {format_seconds(prediction.iteration_s)}, S-SGD"
            f" {format_seconds(prediction.baseline_s)}"
            f" ({prediction.speedup:.2f}x){prediction.baseline.unfit_words('S-SGD ')}",
            explanation_verdict(explanation),
        ],
        most=PAGE_COLUMNS,
    )
    method = prediction.scenario.method
    rounds = _rounds(explanation)
    for line in _costs(explanation):
        print(line)
    for path, (title, _) in zip(explanation.paths, rounds, strict=True):
        print()
        for line in _path(path, title, method, whole=verbose):
            print(line)
    if explanation.exposed:
        print()
        buckets = _MAX_PATH_LINES if verbose else _MAX_BUCKETS
        for line in _exposed(explanation.exposed, [short for _, short in rounds], buckets):
            print(line)
    if prediction.parallel is not None and prediction.parallel.run is not None and not is_plain():
        from perfsim.report.pipeline_drawing import draw_pipeline

        print("\nmicro-batches over the stages, one iteration")
        for line in draw_pipeline(prediction.parallel.run, PAGE_COLUMNS - 2):
            print(f"  {line}")
    print_lines(["", "Break-even with S-SGD"], most=PAGE_COLUMNS)
    for one in (explanation.bandwidth, explanation.gpus):
        print_lines(break_even_words(one, method), "  - ", "    ", PAGE_COLUMNS)
    print_notes([*explanation.notes, *prediction.notes], verbose=verbose)


def _costs(explanation: Explanation) -> Iterator[str]:
    """Yield what exchanges far apart and a divided model cost, if any, and what would help."""
    prediction = explanation.prediction
    if explanation.apart is not None:
        yield ""
        yield from _apart(explanation.apart, prediction.outer_state)
    if explanation.waits:
        yield ""
        yield from _waits(explanation.waits, prediction.iteration_s)
    yield ""
    yield from _improvements(explanation)


def improvement_words(what: str, method: str) -> str:
    """Say what is twice as good; the kernels of a method that compresses nothing are its own.

    Examples
    --------
    >>> improvement_words("compression", "dgc"), improvement_words("compression", "fsdp")
    ("the compression kernels' speed", "the speed of the method's kernels")
    """
    if what == "compression" and not compresses(method):
        return f"the speed of the {METHOD_KERNELS}"
    return _IMPROVEMENT_WORDS[what]


def explanation_verdict(explanation: Explanation) -> str:
    """Say in one sentence what pays most."""
    if not explanation.improvements or explanation.improvements[0].saved < _MIN_SAVING:
        return "No single improvement by a factor of two saves 1 % of the iteration."
    first = explanation.improvements[0]
    what = improvement_words(first.what, explanation.prediction.scenario.method)
    twice = what[0].upper() + what[1:] if what.startswith("half") else f"Twice {what}"
    return (
        f"{twice} pays most: {format_seconds(first.iteration_s)} instead of"
        f" {format_seconds(explanation.prediction.iteration_s)} (-{first.saved:.0%})."
    )


def _rounds(explanation: Explanation) -> list[tuple[str, str]]:
    """Return what the iterations of each round are, in a title's words and in a line's."""
    paths, apart = explanation.paths, explanation.apart
    if len(paths) == 1:
        return [("the steady iteration", "")]
    whole = sum(path.count for path in paths)
    if len(paths) == 2 and apart is not None and whole == apart.interval.asked:
        local, exchanging = (f"{path.count:g} of {whole:g}" for path in paths)
        return [
            (f"the local iterations ({local})", "local"),
            (f"the iteration that exchanges ({exchanging})", "exchange"),
        ]
    result = []
    for number, path in enumerate(paths, 1):
        times = "once" if path.count == 1 else f"{path.count:g} times"
        title = f"the steady iteration, kind {number} of {len(paths)}, {times} in a period"
        result.append((title, f"kind {number}"))
    return result


def _path(path: CriticalPath, title: str, method: str, *, whole: bool) -> Iterator[str]:
    """Yield the shares of a critical path and, if asked, each run of tasks of one kind on it."""
    title = f"critical path of {title}"
    if path.iterations > 1:
        title += f" ({path.iterations} iterations)"
    yield from wrap(title, page_columns(), subsequent_indent="  ")
    if not path.steps:
        return
    parts: dict[str, float] = {}
    for kind, spent_s in path.by_kind().items():
        words = kind_words(kind, method)
        parts[words] = parts.get(words, 0.0) + spent_s / path.length_s
    line = ", ".join(f"{kind} {part:.0%}" for kind, part in parts.items() if part >= _MIN_PART)
    yield from wrap(line, page_columns(), initial_indent="  ", subsequent_indent="  ")
    if not whole:
        return
    yield f"  {'start':>11}{'end':>12}{'time':>12}  {'stream':14}what"
    runs = [list(group) for _, group in groupby(path.steps, lambda step: (step.stream, step.kind))]
    left = (
        runs
        if len(runs) <= _MAX_PATH_LINES
        else [*runs[: _MAX_PATH_LINES // 2], [], *runs[-_MAX_PATH_LINES // 2 :]]
    )
    for run in left:
        if run:
            yield _run(run, method)
        else:
            yield _middle(runs[_MAX_PATH_LINES // 2 : -_MAX_PATH_LINES // 2])


def _run(run: list[PathStep], method: str) -> str:
    first, last = run[0], run[-1]
    what = task_words(first, method)
    if len(run) > 1:
        kind = "message" if first.kind == "communicate" else kind_words(first.kind, method)
        what = f"{len(run)} messages" if kind == "message" else f"{kind}, {len(run)} tasks"
    return _cells(first.start_s, last.end_s, first.stream or "-", what)


def _middle(runs: list[list[PathStep]]) -> str:
    tasks = sum(map(len, runs))
    return _cells(runs[0][0].start_s, runs[-1][-1].end_s, "...", f"{tasks} tasks more")


def _cells(start_s: float, end_s: float, stream: str, what: str) -> str:
    times = f"{_ms(start_s):>11}{_ms(end_s):>12}{_ms(end_s - start_s):>12}"
    return f"  {times}  {stream:14}{what}"[:PAGE_COLUMNS].rstrip()


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.{3 if seconds < 1.0 else 1}f} ms"


def _exposed(buckets: list[Exposed], rounds: Sequence[str], limit: int) -> Iterator[str]:
    """Yield the exposed time of the ``limit`` buckets with most of it, in the order of sending.

    ``rounds`` are the words of each of the method's rounds, "" where there is one.
    """
    total_s = sum_in_order(one.exposed_s for one in buckets)
    title = f"exposed communication by bucket, mean of an iteration: {format_seconds(total_s)}"
    yield from wrap(title, page_columns())
    shown = [one for one in buckets if one.exposed_s > 0]
    most = sorted(range(len(shown)), key=lambda index: -shown[index].exposed_s)
    printed, rest = sorted(most[:limit]), most[limit:]
    several = len({one.bucket.partition(".")[0] for one in shown if one.bucket[:1].isdigit()}) > 1
    names = [bucket_words(one, several=several) for one in shown]
    names = [
        f"{rounds[one.round]}: {name}" if rounds[one.round] else name
        for one, name in zip(shown, names, strict=True)
    ]
    told = [
        {
            "bucket": names[index][:_MAX_BUCKET_NAME],
            "exposed": _ms(shown[index].exposed_s),
            "on the wire": _ms(shown[index].busy_s),
            "kernels": _ms(shown[index].kernels_s),
            "messages": shown[index].collectives,
        }
        for index in printed
    ]
    yield from number_lines(
        told, page_columns(), left="bucket,messages", drop=("messages", "kernels", "on the wire")
    )
    if rest:
        rest_s = sum_in_order(shown[index].exposed_s for index in rest)
        yield f"{len(rest)} more, {format_seconds(rest_s)} in all"
    if len(shown) < len(buckets):
        hidden = len(buckets) - len(shown)
        words = f"{hidden} of {len(buckets)} are wholly hidden by computation"
        yield from wrap(words, page_columns())


def _waits(waits: list[WaitingTime], iteration_s: float) -> Iterator[str]:
    """Yield what dividing or sharding the model costs."""
    told = [
        {
            "what the division of the model costs": one.what,
            "time": format_seconds(one.seconds),
            "share": f"{one.seconds / iteration_s:.1%}",
        }
        for one in waits
    ]
    yield from number_lines(told, page_columns(), left="what the division of the model costs")


def _apart(cost: ExchangeCost, state: OuterState | None) -> Iterator[str]:
    """Yield what exchanges take that come once in many iterations, and which interval is enough."""
    period, time = cost.period, cost.time
    asked = f"{cost.interval.option} {cost.interval.asked:,}"
    if period is None or time is None:
        unknown = f"exchange every H iterations ({asked}): not known, as {cost.why_not}."
        yield from wrap(unknown, page_columns(), subsequent_indent="  ")
        return
    mean = (
        "" if period.iterations == cost.interval.asked else f", {period.iterations:.3g} on average"
    )
    yield from wrap(f"exchange every H iterations ({asked}{mean})", page_columns())
    count = (
        "one exchange" if cost.exchanges == 1 else f"all {cost.exchanges} exchanges of an interval"
    )
    rows = {
        "copies between GPU and host": time.copies_s,
        "kernels, and work of the host's CPUs": time.kernels_s,
        "exchange on the network": time.network_s,
        "outer optimizer": time.optimizer_s,
        "hidden": -cost.hidden_s,
        "exposed": period.exposed_s,
    }
    told = [
        {
            count: what,
            "time": _signed_s(seconds),
            "an iteration": _signed_s(seconds * cost.per_iteration),
            "share": f"{seconds * cost.per_iteration / cost.iteration_s:.1%}",
        }
        for what, seconds in rows.items()
        if seconds or what == "exposed"
    ]
    yield from number_lines(told, page_columns(), left=count, drop=("share", "an iteration"))
    yield ""
    least = "smallest interval at which"
    goals = [
        {
            least: goal,
            "interval": interval,
            "an iteration": format_seconds(iteration_s),
            "added": _added(added),
        }
        for goal, interval, iteration_s, added in _intervals(cost)
    ]
    yield from number_lines(goals, page_columns(), left=least, drop=("an iteration", "added"))
    words = exchange_words(cost)
    words += [f"kept {kept}" for kept in (outer_state_words(state) if state else ())]
    for one in words:
        yield from wrap(one, page_columns(), initial_indent="  - ", subsequent_indent="    ")


def _added(share: float) -> str:
    """Write a share in per cent; one of ten times and more without decimals."""
    return f"{100 * share:,.0f}%" if share >= _TENFOLD else f"{share:.1%}"


def _signed_s(seconds: float) -> str:
    return f"-{format_seconds(-seconds)}" if seconds < 0 else format_seconds(seconds)


def _intervals(cost: ExchangeCost) -> Iterator[tuple[str, str, float, float]]:
    """Yield each goal, the interval that reaches it, the iteration then [s], and what is added."""
    assert cost.period is not None
    for one in cost.break_even:
        goal = f"it is as fast as S-SGD ({format_seconds(cost.baseline_s)})"
        if one.limit is not None:
            goal = f"exposed exchanges add at most {one.limit:.0%}"
        interval = "none" if one.interval is None else f"{one.interval:,}"
        yield goal, interval, one.iteration_s, one.added
    yield "as asked", f"{cost.interval.asked:,}", cost.iteration_s, cost.period.added


def exchange_words(cost: ExchangeCost) -> list[str]:
    """Say what is meant by added, how intervals were found, and which network would be enough."""
    if cost.period is None:
        return []
    words = [
        "added: by exposed exchanges, to the iterations between them"
        f" ({format_seconds(cost.period.inner_s)} each)."
    ]
    if any(one.interval is None for one in cost.break_even):
        longest = f"{cost.interval.option} {cost.interval.longest:,}"
        words[0] += f" none: not even at {longest}, the longest, which the line shows."
    if cost.rate is not None and cost.rate.rate is not None:
        words.append(_rate_words(cost.rate, f"{cost.interval.option} {cost.interval.asked:,}"))
    by_formula = all(one.by_formula for one in cost.break_even)
    tried = sum(one.predictions for one in cost.break_even)
    how = "by" if by_formula else "starting from"
    checked = "checked" if by_formula else "searched"
    words.append(
        f"Intervals {how} H x an iteration between exchanges + what is exposed of one exchange,"
        f" {checked} on the simulator ({_predictions(tried)})."
    )
    return words


def exchange_summary(cost: ExchangeCost) -> str:
    """Say in a few sentences what exchanges cost and which interval is enough."""
    asked = f"{cost.interval.option} {cost.interval.asked:,}"
    if cost.period is None or cost.time is None:
        return f"{asked}: not known, as {cost.why_not}."
    reached = "; ".join(f"{goal}: {interval}" for goal, interval, *_ in _intervals(cost))
    return (
        f"An exchange takes {format_seconds(cost.time.busy_s)}, of which"
        f" {format_seconds(cost.period.exposed_s)} are exposed: {cost.share:.1%} of an iteration at"
        f" {asked}. Smallest interval at which {reached}. {' '.join(exchange_words(cost))}"
    )


def _predictions(count: int) -> str:
    return f"{count} prediction{'' if count == 1 else 's'}"


def _rate_words(found: RateBreakEven, asked: str) -> str:
    """Say from which bandwidth on exposed exchanges add at most a share."""
    assert found.rate is not None
    goal = f"exposed exchanges add at most {found.limit:.0%} at {asked}"
    low, high = _bits(found.low * found.rate), _bits(found.high * found.rate)
    searched = f" ({_predictions(found.predictions)})"
    if found.factor is None:
        left = "latency, kernels or copies are left"
        return f"At no bandwidth {found.link} up to {high} {goal}: {left}{searched}."
    if found.factor == found.low:
        return f"From the least bandwidth {found.link} searched, {low}, on {goal}{searched}."
    return (
        f"From {_bits(found.factor * found.rate)} {found.link} on, {found.factor:.3g} times the"
        f" network's {_bits(found.rate)}, {goal}{searched}."
    )


def _improvements(explanation: Explanation) -> Iterator[str]:
    rows, prediction = explanation.improvements, explanation.prediction
    if not rows:
        yield f"nothing: no part of {format_seconds(prediction.iteration_s)} can be made faster"
        return
    told = [
        {
            "if twice as good": improvement_words(row.what, prediction.scenario.method),
            "iteration": format_seconds(row.iteration_s),
            "saved": f"{row.saved:.1%}",
            "elasticity": "-" if row.elasticity is None else f"{row.elasticity:.2f}",
        }
        for row in rows
    ]
    yield from number_lines(
        told, page_columns(), left="if twice as good", drop=("elasticity", "iteration")
    )
    words = "saved: until something else holds it back. elasticity: % saved per % better, at first."
    yield from wrap(words, page_columns())


def break_even_words(search: BreakEven, method: str) -> list[str]:
    """Say where the method beats S-SGD, over bandwidth or over GPUs."""
    what = "bandwidth" if search.over == "bandwidth" else "GPUs"
    if search.why_not:
        return [f"{what}: not searched, as {search.why_not}."]
    low, high = _point_words(search, search.low), _point_words(search, search.high)
    if not search.crossings:
        if search.wins is None:
            if method == "ssgd":
                return [f"{what}: none; this is S-SGD itself."]
            return [f"{what}: none; {method} takes as long as S-SGD from {low} to {high}."]
        word = "faster" if search.wins else "slower"
        return [f"{what}: none; {method} is {word} than S-SGD all the way from {low} to {high}."]
    return [f"{what}: {_crossed(search, one, method)}" for one in search.crossings]


def _crossed(search: BreakEven, crossing: BreakEvenPoint, method: str) -> str:
    times = " against ".join(map(format_seconds, crossing.times))
    if search.over == "bandwidth":
        side = "above" if crossing.wins_above else "below"
        return (
            f"{method} beats S-SGD {side} {_point_words(search, crossing.at)} ({crossing.at:.3g}"
            f" times the network's {_bits(search.rate or 0.0)}), where it takes {times}."
        )
    before = " against ".join(map(format_seconds, crossing.times_before))
    if crossing.wins_above:
        return (
            f"{method} beats S-SGD from {crossing.at:g} GPUs on ({times});"
            f" at {crossing.before:g} it does not yet ({before})."
        )
    return (
        f"{method} beats S-SGD up to {crossing.before:g} GPUs ({before});"
        f" from {crossing.at:g} on it does not ({times})."
    )


def _point_words(search: BreakEven, point: float) -> str:
    return f"{point:g}" if search.over == "gpus" else _bits(point * (search.rate or 0.0))


def _bits(bytes_per_s: float) -> str:
    """Write a rate in bits with four digits.

    Examples
    --------
    >>> _bits(2.5e6), _bits(1.25e9), _bits(5.12e13)
    ('20 Mbit/s', '10 Gbit/s', '409.6 Tbit/s')
    """
    bits = 8.0 * bytes_per_s
    factor, unit = next(one for one in _BIT_UNITS if bits >= one[0] or one is _BIT_UNITS[-1])
    value = bits / factor
    return f"{value:.4g} {unit}" if value < _WHOLE else f"{value:,.0f} {unit}"


@dataclass
class _Best:
    """How many rows there are, and the first of those with the best figures, with their places."""

    rows: int = 0
    shortest: SweepResult | None = None
    most: SweepResult | None = None
    shortest_at: int = 0
    most_at: int = 0

    def take(self, row: SweepResult, place: int) -> None:
        """Count a row, and keep it and its place if its figures are better."""
        self.rows += 1
        if self.shortest is None or row.iteration_s < self.shortest.iteration_s:
            self.shortest, self.shortest_at = row, place
        if self.most is None or row.samples_per_s > self.most.samples_per_s:
            self.most, self.most_at = row, place


def print_sweep(table: SweepTable, *, rows: bool = True) -> None:
    """Print rows as a person reads them, and which is fastest; only that where not ``rows``.

    At least one row has a prediction (see ``SweepTable.refusal``).
    """
    if rows:
        first = islice(table.results(), _MAX_ROWS)
        print_table([sweep_cells(result, full=table.sweep.full) for result in first], wide=True)
        if len(table) > _MAX_ROWS:
            print_lines([f"... {len(table) - _MAX_ROWS:,} rows more; `out` FILE has all."])
    reasons: Counter[str] = Counter()
    fitting, others = _Best(), _Best()
    for place, result in enumerate(table.results()):  # one at a time: there may be millions
        if result.reason:
            reasons[result.reason] += 1
        else:
            (fitting if result.fits else others).take(result, place)
    if reasons:
        print_lines(["", "Without a prediction"])
        print_lines(
            [f"{_rows(count)}: {text}" for text, count in reasons.most_common(_MAX_REASONS)]
        )
    if len(reasons) > _MAX_REASONS:
        print_lines([f"and {len(reasons) - _MAX_REASONS:,} reasons more"])
    large, missing = others.rows, reasons.total()
    without = f", {missing:,} of them without a prediction" if missing else ""
    best = fitting if fitting.rows else others
    fastest, most = best.shortest, best.most
    assert fastest is not None and most is not None
    unfit = f"! {_rows(large)} of a model that does not fit into the GPU's memory"
    print_lines(
        [
            "",
            f"{_rows(len(table))}{without}.",
            *([f"{unfit}{', left out below' if fitting.rows else ''}."] if large else []),
            f"Shortest iteration: {format_seconds(fastest.iteration_s)} with {fastest.words}.",
            f"Most samples a second: {rate_words(most.samples_per_s)} with {most.words}.",
            *([] if table.sweep.full else _too_large(table, best)),
        ]
    )


def _too_large(table: SweepTable, best: _Best) -> Iterator[str]:
    """Yield which of the best rows do not fit into memory, where no row was held against it."""
    named = {best.shortest_at: best.shortest, best.most_at: best.most}
    for place, result in named.items():
        held_bytes, fits = table.memory(place)
        if result is not None and not fits:
            yield (
                f"! {result.words} needs {format_bytes(held_bytes, 3)} of memory, more than the GPU"
                " has; `full` marks every row that does not fit."
            )


def sweep_cells(result: SweepResult, *, full: bool) -> dict[str, str]:
    """Return a row of a sweep in words, by column; whole predictions have more of them."""
    known = not result.reason
    interval = interval_words(result.iteration_s_low, result.iteration_s_high) if known else "-"
    memory = format_bytes(result.memory_bytes, 3) + " !" * (not result.fits) if known else "-"
    return {
        **{name.removeprefix("options."): text for name, text in result.texts.items()},
        "iteration": format_seconds(result.iteration_s) if known else "-",
        **({"90 % interval": interval} if full else {}),
        "samples/s": rate_words(result.samples_per_s) if known else "-",
        "efficiency": f"{result.scaling_efficiency:.1%}" if known else "-",
        "sent a GPU": format_bytes(result.sent_bytes_per_gpu) if known else "-",
        **({"memory": memory} if full else {}),
    }


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def print_tuning(tuning: Tuning, command: str = "", *, verbose: bool = False) -> None:
    """Print what was asked, then the verdict and the curve of each thing that was tuned.

    ``command`` predicts the best way to divide training, where that was searched.
    """
    if tuning.parallelism is not None:
        print_parallelism(
            tuning.parallelism, tuning.iteration_s, tuning.notes, command, verbose=verbose
        )
        return
    scenario = tuning.scenario
    assert tuning.iteration_s is not None
    print_lines(
        [
            f"{scenario.model}, {scenario.method}, {gpu_words(scenario.gpus, scenario.gpu)}"
            f" ({scenario.nodes} x {scenario.gpus_per_node}), {network_name(scenario)}:"
            f" {format_seconds(tuning.iteration_s)} as asked"
            + (f", {condition_words(scenario)}" if condition_words(scenario) else "")
        ],
        most=PAGE_COLUMNS,
    )
    for one in tuning.tuned:
        print_lines(["", TUNABLE_NAMES[one.tunable.name]], most=PAGE_COLUMNS)
        print_lines(tuned_verdict(one, brief=not verbose), "  ", "  ", PAGE_COLUMNS)
        for line in _interval_table(one) if one.intervals else _curve(one, brief=not verbose):
            print(line)
    print_notes(tuning.notes, verbose=verbose, more="all values, and why")


def tuned_verdict(tuned: TunedValue, *, brief: bool = False) -> list[str]:
    """Say which value of one thing to take, and why; the first and the last word if ``brief``."""
    name = TUNABLE_NAMES[tuned.tunable.name]
    asked = f"asked: {value_words(tuned, tuned.asked)}, {format_seconds(tuned.asked_s)}"
    if tuned.idle:
        return [f"It makes no difference here ({asked})."]
    if tuned.enough is not None:
        return _interval_verdict(tuned, tuned.enough)
    result = [
        f"Fastest: {value_words(tuned, tuned.fastest)}, {format_seconds(tuned.fastest_s)}; {asked}."
    ]
    if tuned.at_end:
        result[0] += " It is the end of the range that was searched."
    if brief:
        return [result[0], _advice(tuned, name)]
    for value, seconds in tuned.faster_elsewhere[:1]:
        result.append(
            f"{value_words(tuned, value)} would take {format_seconds(seconds)}; it needs"
            f" {tuned.needs[str(value)]}."
        )
    if tuned.tunable.why:
        result.append(tuned.tunable.why)
    if tuned.flat:
        result.append(f"Flat optimum: {_range(tuned)} within 1 % of the fastest.")
    result.append(_advice(tuned, name))
    for policy, time_s in tuned.other_fusion.items():
        result.append(
            f"For comparison, `fusion` {policy} ({FUSION_WORDS[policy]}) takes"
            f" {format_seconds(time_s)}."
        )
    return result


def _advice(tuned: TunedValue, name: str) -> str:
    """Say which value to take."""
    best = f"{value_words(tuned, tuned.advised)}, {format_seconds(tuned.advised_s)}"
    if tuned.tunable.gentle:
        side = "Highest" if tuned.tunable.gentle == "high" else "Shortest"
        return f"{side} {name} within 1 % of the fastest: {best}."
    if tuned.gain < FLAT_SHARE:
        return "Keep what was asked: no value saves 1 %."
    advice = f"Take {best}: {tuned.gain:.1%} less time than as asked."
    if not tuned.beside:
        return advice
    size = value_words(tuned, tuned.advised).replace(" ", "")
    return f"{advice} Set `bucket` {size} and `options` {tuned.beside}."


def _interval_verdict(tuned: TunedValue, enough: IntervalBreakEven) -> list[str]:
    """Say which interval is enough, or kept, and where its learning is known."""
    rule = f"exposed exchanges add at most {enough.limit:.0%} to the iterations between them"
    least = f"{enough.interval:,}, {format_seconds(enough.iteration_s)}" if enough.interval else ""
    asked = f"{tuned.asked:,.0f}, {format_seconds(tuned.asked_s)}"
    if not least:
        longest = f"{tuned.intervals[-1].interval:,}"
        result = [f"At no interval up to {longest} {rule}; kept as asked: {asked}."]
    elif tuned.fixed:
        result = [f"Kept as asked: {asked}. The smallest interval at which {rule}: {least}."]
    else:
        lead = "By time alone" if tuned.by_time_alone else "Advised"
        result = [f"{lead}: {least}, the smallest at which {rule}; asked: {asked}."]
    known = [one.interval for one in tuned.intervals if one.evidence]
    where = f"{', '.join(f'{one:,}' for one in known)} only" if known else "no interval"
    result += [tuned.tunable.why, f"Its learning is on record at {where}."]
    advised = next((one for one in tuned.intervals if one.interval == enough.interval), None)
    if advised is not None:
        known_there = advised.epochs
        if known_there.fell_short:
            result.append(_fell_short_words(tuned, known_there.sentence))
        else:
            result.append(f"With {advised.interval:,}: {known_there.sentence}.")
            result += (
                _sooner_words(tuned, advised) if known_there.known else [f"{_known_words(tuned)}."]
            )
        result += [f"Against it: {told}." for told in known_there.against]
    return result


def _fell_short_words(tuned: TunedValue, results: str) -> str:
    """Say which interval is known to learn well enough, and from which on results fell short.

    What fell short at an interval counts for longer ones, so that the shortest has the record.
    """
    return f"{_known_words(tuned)}; from {tuned.short[0].interval:,} on, {results}."


def _known_words(tuned: TunedValue) -> str:
    """Say which interval is the fastest of those whose epochs are known."""
    learnt = [one for one in tuned.intervals if one.epochs.known]
    if not learnt:
        return "No interval is known to learn as well as S-SGD"
    best = min(learnt, key=lambda one: one.iteration_s)
    return (
        f"The fastest with known epochs is {best.interval:,},"
        f" {format_seconds(best.iteration_s)} and {best.epochs.words} times those of S-SGD"
    )


def _sooner_words(tuned: TunedValue, advised: IntervalChoice) -> list[str]:
    """Say which interval reaches S-SGD's quality sooner than the advised one, by what is known."""
    learnt = [
        (one.iteration_s * one.epochs.middle, one)
        for one in tuned.intervals
        if one.epochs.middle is not None
    ]
    least_s, best = min(learnt, key=lambda one: one[0])
    assert advised.epochs.middle is not None
    if least_s >= (1.0 - FLAT_SHARE) * advised.iteration_s * advised.epochs.middle:
        return []
    return [
        f"By what is known, {best.interval:,} is the soonest at S-SGD's quality:"
        f" {format_seconds(best.iteration_s)} and {best.epochs.words} times its epochs."
    ]


def _interval_table(tuned: TunedValue) -> Iterator[str]:
    """Yield what intervals cost, who uses them and what is known of their learning."""
    assert tuned.enough is not None
    told = [one for one in tuned.intervals if _shown_interval(one, tuned)]
    rows = []
    for one in told:
        marks = list(one.used_by)
        marks += ["asked"] * (one.interval == tuned.asked and "default" not in marks)
        if one.interval == tuned.advised and not tuned.fixed:
            marks.append("by time alone" if tuned.by_time_alone else "advised")
        marks += [f"{one.evidence} row{'s' * (one.evidence > 1)}"] * bool(one.evidence)
        rows.append(
            {
                "interval": f"{one.interval:,}",
                "iteration": format_seconds(one.iteration_s),
                "added": _added(one.added),
                "epochs": one.epochs.words,
                "used by or on record": ", ".join(marks),
            }
        )
    yield from number_lines(
        rows, page_columns(), left="used by or on record", drop=("added", "epochs")
    )
    if len(told) < len(tuned.intervals):
        yield f"  {len(tuned.intervals) - len(told)} more in the JSON"
    for one in tuned.intervals:
        for words in one.learning[:_MAX_LEARNING]:
            lead = f"  {one.interval:>9,}  "
            yield from wrap(
                words, page_columns(), initial_indent=lead, subsequent_indent=" " * len(lead)
            )
        if len(one.learning) > _MAX_LEARNING:
            yield f"{'':13}and {len(one.learning) - _MAX_LEARNING} more in the JSON"


def _shown_interval(one: IntervalChoice, tuned: TunedValue) -> bool:
    """Tell whether a terminal shows an interval: those in use, and until little more is gained."""
    named = one.used_by or one.evidence or one.interval in (tuned.asked, tuned.advised)
    return bool(named) or one.added > _MIN_SAVING or one is tuned.intervals[-1]


def _range(tuned: TunedValue) -> str:
    if tuned.low is None or tuned.high is None:
        return f"{', '.join(map(str, tuned.as_good))} are"
    low, high = value_words(tuned, tuned.low), value_words(tuned, tuned.high)
    return f"all values tried from {low} to {high} are"


def _curve(tuned: TunedValue, *, brief: bool) -> Iterator[str]:
    """Yield value, iteration and a bar; * marks what is within 1 % of the fastest.

    ``brief``: only some values that need nothing else.
    """
    if tuned.idle:
        return
    shown = _thinned(tuned, _MAX_BRIEF_LINES if brief else _MAX_CURVE_LINES)
    if brief:
        shown = [(value, seconds) for value, seconds in shown if str(value) not in tuned.needs]
    refused = {} if brief else tuned.refused
    width = max(5, *(len(value_words(tuned, value)) for value, _ in shown), *map(len, refused))
    yield f"  {'value':>{width}}{'iteration':>13} * within 1 %"
    longest_s = max(seconds for _, seconds in shown)
    for value, seconds in shown:
        mark = "*" if value in tuned.as_good else " "
        line = f"  {value_words(tuned, value):>{width}}{format_seconds(seconds):>13} {mark} "
        if not is_plain():
            room = max(min(_BAR_COLUMNS, page_columns() - width - 18), 1)
            line += "#" * max(1, round(room * seconds / longest_s))
        needs = tuned.needs.get(str(value))
        yield line
        if needs:
            yield from wrap(
                f"needs {needs}",
                page_columns(),
                initial_indent=" " * (width + 18),
                subsequent_indent=" " * (width + 20),
            )
    for name, why in refused.items():
        lead = f"  {name:>{width}}{'-':>13}   "
        yield from wrap(why, page_columns(), initial_indent=lead, subsequent_indent=" " * len(lead))


def _thinned(tuned: TunedValue, most: int) -> list[tuple[TunableValue, float]]:
    """Return values that show the curve: its ends, those that matter, others evenly apart."""
    if tuned.low is None or len(tuned.curve) <= most:
        return tuned.curve
    wanted = {tuned.fastest, tuned.advised, tuned.asked, tuned.curve[0][0], tuned.curve[-1][0]}
    logs = [log(float(value)) for value, _ in tuned.curve]
    apart = (logs[-1] - logs[0]) / most
    held = [at for at, (value, _) in enumerate(tuned.curve) if value in wanted]
    for at, log_value in enumerate(logs):
        if all(abs(log_value - logs[other]) >= apart for other in held):
            held.append(at)
    return [tuned.curve[at] for at in sorted(held)]
