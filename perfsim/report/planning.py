"""An explanation as a person reads it in a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from math import log
from pathlib import Path
from textwrap import wrap
from typing import Any

from perfsim.conditions.words import condition_words
from perfsim.data.files import cell, write_text
from perfsim.data.tables import as_numbers
from perfsim.errors import RequestError
from perfsim.methods import method_class
from perfsim.planning.break_even import BreakEven, BreakEvenPoint
from perfsim.planning.capacity import ClusterPlan, ParetoChoice
from perfsim.planning.compare import Comparison
from perfsim.planning.explain import CriticalPath, Explanation, Exposed, Improvement, PathStep
from perfsim.planning.sweep import SweepTable
from perfsim.planning.tune import FLAT, TunableValue, Tuned, Tuning
from perfsim.prediction import Prediction
from perfsim.ranking import CAVEAT, Ranking
from perfsim.report.terminal import cluster_words, interval_words, print_lines, print_rows, question
from perfsim.resolve import ResolvedScenario
from perfsim.scenario import gpu_words
from perfsim.units import format_bytes, format_seconds

__all__ = [
    "FORMATS",
    "break_even_words",
    "check_format",
    "csv_text",
    "jsonl_text",
    "print_comparison",
    "print_explanation",
    "print_plan",
    "print_ranking",
    "print_sweep",
    "print_tuning",
    "sentences",
    "verdict",
    "write_sweep",
]

PLAN_WIDTH = 80
SHOWN_LEFT_OUT = 8


def print_plan(plan: ClusterPlan) -> None:
    """Print what meets the target best, the Pareto front, what is left out, and notes."""
    target = plan.target
    paid = plan.prices.currency if any(one.cost is not None for one in plan.choices) else "GPU h"
    least = "least GPU h" if paid == "GPU h" else "cheapest"
    print_lines(
        [
            f"{target.samples:,} samples, {target.epochs:g} epochs: {len(plan.choices)} clusters"
            f" and methods, {len(plan.meeting)} meet the target",
            "",
            f"{'fastest':{len(least)}} {plan.fastest.words}: {_hours(plan.fastest)},"
            f" {_paid(plan.fastest, paid)}",
            f"{least} {plan.cheapest.words}: {_hours(plan.cheapest)}, {_paid(plan.cheapest, paid)}",
            "",
            "Pareto front: nothing else is both faster and cheaper",
        ],
        most=PLAN_WIDTH,
    )
    energy = "" if target.gpu_power_w is None else f"{'kWh':>8}"
    head = f"{'method':13}{'gpus':>5} {'gpu':10}{'network':11}{'hours':>7}"
    print(f"{head} {'90 % interval':>15}{paid:>8}{energy}")
    for one in plan.front:
        told = one.scenario
        low, high = (end / 3600.0 for end in one.interval_s)
        print(
            f"{told.method:13}{told.gpus:>5} {told.gpu:10}{_network(told)[:10]:11}"
            f"{one.seconds / 3600.0:7.4g} {f'{low:.3g} to {high:.3g}':>15}{one.spent:8.4g}"
            f"{'' if one.energy_kwh is None else f'{one.energy_kwh:8.4g}'}"
            f"{'' if one.excess(target) <= 1.0 else '!'}"
        )
    if len(plan.meeting) < len(plan.choices):
        print("! misses the target")
    if plan.left_out:
        print(f"\nleft out ({len(plan.left_out)})")
        told_lines = [f"{name}: {why}" for name, why in sorted(plan.left_out.items())]
        print_lines(told_lines[:SHOWN_LEFT_OUT], most=PLAN_WIDTH)
        if len(told_lines) > SHOWN_LEFT_OUT:
            print(f"and {len(told_lines) - SHOWN_LEFT_OUT} more (`json` lists all)")
    print("\nNotes")
    print_lines(plan.notes, "  - ", "    ", PLAN_WIDTH)


def _network(told: ResolvedScenario) -> str:
    return "one node" if told.nodes == 1 else str(told.net)


def _hours(one: ParetoChoice) -> str:
    return f"{one.seconds / 3600.0:.4g} h"


def _paid(one: ParetoChoice, unit: str) -> str:
    return f"{one.spent:.4g} {unit}"


COMPARISON_WIDTH = 80

COMPUTE = ("forward", "backward", "update", "other")
KERNELS = ("compression", "second_order")
EXPOSED = ("communication_exposed",)

HEAD = f"{'#':>2} {'method':15}{'iteration':>9} {'90 % interval':>18} {'x S-SGD':>7} {'next':>8}"


def print_comparison(comparison: Comparison) -> None:
    """Print the question, who is fastest, all methods with what their time goes to, and notes."""
    first = comparison.rows[0].scenario
    overlap = "overlap" if first.overlap else "no overlap"
    _print(
        [
            f"{first.model}, {cluster_words(first)}",
            f"batch {first.batch} a GPU, {first.precision}, {overlap}, all-reduce"
            f" {first.algorithm}",
            *([f"conditions: {condition_words(first)}"] if condition_words(first) else []),
            "S-SGD with DDP's buckets and overlap takes"
            f" {format_seconds(comparison.baseline.iteration_s)}",
            "",
            *comparison.verdict(),
            CAVEAT,
            "",
        ]
    )
    print(f"{HEAD} {'comp':>5} {'kern':>4} {'wait':>4}")
    standings = {row["method"]: row for row in comparison.standings()}
    for one in comparison.rows:
        print(_line(one, standings[one.scenario.method]))
    print()
    _print(
        [
            "* learns otherwise than ssgd. next: how much longer the next in rank takes; ~ where"
            " the two cannot be told apart. comp, kern, wait: % of the iteration in computation"
            " (forward, backward, update, other), in the method's kernels (compression, second"
            " order) and in communication that nothing hides.",
            comparison.rule,
        ]
    )
    _print_left_out(comparison)
    print("\nNotes")
    _print(comparison.notes, "  - ", "    ")


def _print(lines: list[str], first: str = "", rest: str = "  ") -> None:
    print_lines(lines, first, rest, COMPARISON_WIDTH)


def _line(one: Prediction, standing: Mapping[str, Any]) -> str:
    name = one.scenario.method + ("" if standing["learns_as_ssgd"] else "*")
    ahead = standing["next_behind_ratio"]
    mark = "" if ahead is None or standing["told_apart"] else "~"
    following = "" if ahead is None else f"{mark}+{ahead:.1%}"
    low, high = one.iteration_s_interval
    shares = [
        sum(one.breakdown_s[part] for part in parts) / one.iteration_s
        for parts in (COMPUTE, KERNELS, EXPOSED)
    ]
    comp, kern, wait = (f"{100 * share:.0f}" for share in shares)
    return (
        f"{standing['rank']:>2} {name:15}{format_seconds(one.iteration_s):>9}"
        f" {interval_words(low, high):>18} {one.speedup:>7.2f} {following:>8}"
        f" {comp:>5} {kern:>4} {wait:>4}"
    ).rstrip()


def _print_left_out(comparison: Comparison) -> None:
    grouped = comparison.ranking.left_out().items()
    if grouped:
        left, ranked = len(comparison.ranking.refused), len(comparison.rows)
        print(f"\nleft out, {left} of {left + ranked}:")
        _print([f"{', '.join(names)}: {why}" for why, names in grouped], "  ", "    ")


EXPLAIN_COLUMNS = 80
RUNS = 24
"""Most lines of a critical path, and most buckets, that are shown; the JSON has all."""

LONGEST = 28
"""Most letters of a bucket's name that are shown."""

WORDS = {
    "bandwidth": "the bandwidth",
    "latency": "half the latency",
    "gpu": "the GPU's speed",
    "compression": "the compression kernels' speed",
    "second_order": "the second-order kernels' speed",
    "bucket_doubled": "the bucket size",
    "bucket_halved": "half the bucket size",
}

PAYS = 0.01
"""Savings below this share are called none."""


def print_explanation(found: Explanation) -> None:
    """Print why: the critical path, exposed buckets, what pays, and break-even."""
    said = found.prediction
    print_lines([*question(said), ""], most=EXPLAIN_COLUMNS)
    print_lines(
        [
            f"iteration {format_seconds(said.iteration_s)}, S-SGD"
            f" {format_seconds(said.baseline_s)} ({said.speedup:.2f}x); held back by"
            f" {said.bottleneck}",
            verdict(found),
        ],
        most=EXPLAIN_COLUMNS,
    )
    for path in found.paths:
        print()
        for line in _path(path, len(found.paths) > 1):
            print(line)
    if found.exposed:
        print()
        for line in _exposed(found.exposed, len(found.paths) > 1):
            print(line)
    print()
    for line in _improvements(found.improvements, said.iteration_s):
        print(line)
    method = said.scenario.method
    print_lines(["", "Break-even with S-SGD"], most=EXPLAIN_COLUMNS)
    for one in (found.bandwidth, found.gpus):
        print_lines(break_even_words(one, method), "  - ", "    ", EXPLAIN_COLUMNS)
    print_lines(["", "Notes"], most=EXPLAIN_COLUMNS)
    print_lines([*found.notes, *said.notes], "  - ", "    ", EXPLAIN_COLUMNS)


def verdict(found: Explanation) -> str:
    """Return in one sentence what pays most."""
    if not found.improvements or found.improvements[0].saved < PAYS:
        return "Nothing that could be twice as good saves 1 % of the iteration."
    first = found.improvements[0]
    what = WORDS[first.what]
    twice = what[0].upper() + what[1:] if what.startswith("half") else f"Twice {what}"
    return (
        f"{twice} pays most: {format_seconds(first.iteration_s)} instead of"
        f" {format_seconds(found.prediction.iteration_s)} (-{first.saved:.0%})."
    )


def _path(path: CriticalPath, several: bool) -> Iterator[str]:
    """Yield the critical path: runs of one kind on one stream in a line each."""
    title = "critical path of the steady iteration"
    if several:
        times = "once" if path.count == 1 else f"{path.count:g} times"
        title += f", round run {times} in a period"
    if path.iterations > 1:
        title += f" ({path.iterations} iterations)"
    yield title
    if not path.steps:
        return
    shares = path.by_kind().items()
    line = ", ".join(f"{kind} {spent_s / path.length_s:.0%}" for kind, spent_s in shares)
    yield from wrap(line, EXPLAIN_COLUMNS, initial_indent="  ", subsequent_indent="  ")
    yield f"  {'start':>11}{'end':>12}{'time':>12}  {'stream':14}what"
    runs = [list(group) for _, group in groupby(path.steps, lambda step: (step.stream, step.kind))]
    left = runs if len(runs) <= RUNS else [*runs[: RUNS // 2], [], *runs[-RUNS // 2 :]]
    for run in left:
        yield _run(run) if run else _middle(runs[RUNS // 2 : -RUNS // 2])


def _run(run: list[PathStep]) -> str:
    first, last = run[0], run[-1]
    what = first.task if len(run) == 1 else f"{first.kind}, {len(run)} tasks"
    if len(run) > 1 and first.kind == "communicate":
        what = f"{first.task} ... {last.task}, {len(run)} messages"
    return _cells(first.start_s, last.end_s, first.stream or "-", what)


def _middle(runs: list[list[PathStep]]) -> str:
    kinds: dict[str, int] = {}
    for run in runs:
        for step in run:
            kinds[step.kind] = kinds.get(step.kind, 0) + 1
    what = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return _cells(runs[0][0].start_s, runs[-1][-1].end_s, "...", what)


def _cells(start_s: float, end_s: float, stream: str, what: str) -> str:
    times = f"{_ms(start_s):>11}{_ms(end_s):>12}{_ms(end_s - start_s):>12}"
    return f"  {times}  {stream:14}{what}"[:EXPLAIN_COLUMNS].rstrip()


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.{3 if seconds < 1.0 else 1}f} ms"


def _exposed(rows: list[Exposed], several: bool) -> Iterator[str]:
    """Yield exposed time by bucket, in the order of sending, those that show."""
    total_s = sum(row.exposed_s for row in rows)
    hidden = [row for row in rows if row.exposed_s <= 0]
    yield f"exposed communication by bucket, mean of an iteration: {format_seconds(total_s)}"
    shown = [row for row in rows if row.exposed_s > 0]
    most = sorted(shown, key=lambda row: -row.exposed_s)[:RUNS]
    names = {id(row): f"round {row.round}: {row.bucket}" if several else row.bucket for row in most}
    width = max((len(name) for name in names.values()), default=0)
    width = min(max(width, len("bucket")), LONGEST)
    if shown:
        yield f"  {'bucket':{width}}{'exposed':>12}{'on the wire':>13}{'kernels':>12}  messages"
    for row in shown:
        if id(row) in names:
            times = f"{_ms(row.exposed_s):>12}{_ms(row.busy_s):>13}{_ms(row.kernels_s):>12}"
            name = names[id(row)][:LONGEST]
            yield f"  {name:{width}}{times}  {row.collectives}"[:EXPLAIN_COLUMNS]
    if len(shown) > RUNS:
        rest_s = sum(row.exposed_s for row in shown if id(row) not in names)
        yield f"  {len(shown) - RUNS} more, {format_seconds(rest_s)} in all"
    if hidden:
        yield f"  {len(hidden)} of {len(rows)} are hidden wholly by computation"


def _improvements(rows: list[Improvement], iteration_s: float) -> Iterator[str]:
    yield f"{'if twice as good':34}{'iteration':>12}{'saved':>9}{'elasticity':>13}"
    for row in rows:
        elasticity = "-" if row.elasticity is None else f"{row.elasticity:.2f}"
        saved = f"{row.saved:.1%}"
        time = format_seconds(row.iteration_s)
        yield f"  {WORDS[row.what]:32}{time:>12}{saved:>9}{elasticity:>13}"
    if not rows:
        yield f"  nothing: {format_seconds(iteration_s)} is made of nothing that can be faster"


def break_even_words(found: BreakEven, method: str) -> list[str]:
    """Return in words where the method beats S-SGD, along bandwidth or GPUs."""
    what = "bandwidth" if found.over == "bandwidth" else "GPUs"
    if found.why_not:
        return [f"{what}: not looked for, as {found.why_not}."]
    low, high = _place(found, found.low), _place(found, found.high)
    if not found.crossings:
        if found.wins is None:
            if method == "ssgd":
                return [f"{what}: none; this is the S-SGD that it would be compared with."]
            return [f"{what}: none; {method} takes as long as S-SGD from {low} to {high}."]
        word = "faster" if found.wins else "slower"
        return [f"{what}: none; {method} is {word} than S-SGD all the way from {low} to {high}."]
    return [f"{what}: {_crossed(found, one, method)}" for one in found.crossings]


def _crossed(found: BreakEven, one: BreakEvenPoint, method: str) -> str:
    times = " against ".join(map(format_seconds, one.times))
    if found.over == "bandwidth":
        side = "above" if one.wins_above else "below"
        return (
            f"{method} beats S-SGD {side} {_place(found, one.at)} ({one.at:.3g} times the"
            f" network's {_bits(found.rate or 0.0)}); there {times}."
        )
    before = " against ".join(map(format_seconds, one.times_before))
    if one.wins_above:
        until = f"at {one.before:g} not yet: {before}"
        return f"{method} beats S-SGD from {one.at:g} on: {times}; {until}."
    return (
        f"{method} beats S-SGD up to {one.before:g}: {before}; from {one.at:g} on no more: {times}."
    )


def _place(found: BreakEven, place: float) -> str:
    return f"{place:g}" if found.over == "gpus" else _bits(place * (found.rate or 0.0))


def _bits(bytes_per_s: float) -> str:
    bits = 8.0 * bytes_per_s
    factor, unit = (1e9, "Gbit/s") if bits >= 1e9 else (1e6, "Mbit/s")
    return f"{bits / factor:.4g} {unit}"


def print_ranking(ranking: Ranking) -> None:
    """Print the caveat, who wins, all methods fastest first, and which are left out and why."""
    print_lines([CAVEAT, ranking.verdict(), *ranking.kept_words(), ""])
    print_rows(
        [
            {
                "method": name,
                "iteration": format_seconds(one.iteration_s),
                "90 % interval": " to ".join(map(format_seconds, one.iteration_s_interval)),
                "times as fast as ssgd": f"{one.speedup:.2f}",
                "fusion": _fusion(one),
                "sent by each GPU": format_bytes(one.communication["bytes_per_gpu"]),
                "learns as ssgd": "no" if method_class(name).lossy else "yes",
                "needs": method_class(name).needs or "-",
            }
            for name, one in ranking.predictions.items()
        ]
    )
    if ranking.refused:
        every = len(ranking.refused) + len(ranking.predictions)
        print(f"\nleft out, {len(ranking.refused)} of {every}:")
        grouped = ranking.left_out().items()
        print_lines([f"{', '.join(names)}: {why}" for why, names in grouped], "  ", "    ")
    print(f"\nThe prediction of {ranking.winner}:\n")


def _fusion(prediction: Prediction) -> str:
    bucket = prediction.scenario.bucket_bytes
    return f"{prediction.scenario.fusion}" + (f" {bucket / 2**20:g} MiB" if bucket else "")


MOST_REASONS = 10
MOST_SHOWN = 60
"""Rows that a terminal is shown; a file has all."""


def csv_text(table: SweepTable) -> str:
    """Return the table as CSV: a head of column names with units, then a line a row.

    Examples
    --------
    >>> from perfsim.planning.sweep import sweep
    >>> print(csv_text(sweep({"model": "resnet50"}, {"gpus": "1"})).splitlines()[0])
    gpus,iteration_s,samples_per_s,scaling_efficiency,sent_bytes_per_gpu,reason
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(map(cell, line) for line in table.lines())
    return text.getvalue()


def jsonl_text(table: SweepTable) -> str:
    """Return the table as JSON lines, a prediction object a row."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in table.objects())


def _parquet(table: SweepTable, path: Path) -> None:
    """Write the table as Parquet, whole or not at all: numbers as numbers, all else as text."""
    pyarrow, parquet = _arrow()
    arrays = [_array(pyarrow, values) for values in zip(*table.lines(), strict=True)]
    found = pyarrow.table(arrays, names=list(table.columns))
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.resolve().parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
        parquet.write_table(found, temporary)
        mask = os.umask(0o077)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path.resolve())
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise RequestError("out", f"{str(path)!r} cannot be written: {error.strerror}.") from None


def _array(pyarrow: Any, values: Sequence[Any]) -> Any:
    values = as_numbers(values)
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return pyarrow.array(values, pyarrow.bool_())
    if known and all(type(value) is int for value in known):
        return pyarrow.array(values, pyarrow.int64())
    if known and all(isinstance(value, int | float) for value in known):
        return pyarrow.array(values, pyarrow.float64())
    return pyarrow.array([None if value is None else str(value) for value in values])


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RequestError(
            "out",
            "Parquet needs pyarrow: pip install 'perfsim[parquet]', or name a .csv or .jsonl file.",
        ) from None
    return pyarrow, pyarrow.parquet


FORMATS: Mapping[str, Callable[[SweepTable, Path], None]] = {
    ".csv": lambda table, path: write_text(path, csv_text(table)),
    ".jsonl": lambda table, path: write_text(path, jsonl_text(table)),
    ".parquet": _parquet,
}
"""How a file is written, by the end of its name."""


def check_format(path: Path) -> None:
    """Refuse a file whose name says no format that can be written here.

    Raises
    ------
    RequestError
        If its suffix is unknown, or what it needs is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise RequestError(
            "out", f"{str(path)!r} ends in no known format; allowed: {', '.join(FORMATS)}."
        )
    if path.suffix.lower() == ".parquet":
        _arrow()


def write_sweep(table: SweepTable, path: Path) -> None:
    """Write the table in the format that the file's name says, whole or not at all."""
    FORMATS[path.suffix.lower()](table, path)


def print_sweep(table: SweepTable, *, rows: bool = True) -> None:
    """Print rows as a person reads them, and which is fastest; only that where not ``rows``.

    At least one row has a prediction (see ``SweepTable.refusal``).
    """
    records = list(table.records())
    fields = [axis.field for axis in table.sweep.grid.axes]
    if rows:
        print_rows([_shown(fields, record) for record in records[:MOST_SHOWN]])
        if len(records) > MOST_SHOWN:
            print_lines([f"... {len(records) - MOST_SHOWN:,} rows more; `out` FILE has all."])
    reasons = Counter(record["reason"] for record in records if record["reason"])
    if reasons:
        print_lines(["", "Without a prediction"])
        print_lines(
            [f"{_rows(count)}: {text}" for text, count in reasons.most_common(MOST_REASONS)]
        )
    if len(reasons) > MOST_REASONS:
        print_lines([f"and {len(reasons) - MOST_REASONS:,} reasons more"])
    done = [record for record in records if not record["reason"]]
    fastest = min(done, key=lambda record: record["iteration_s"])
    most = max(done, key=lambda record: record["samples_per_s"])
    print_lines(
        [
            "",
            f"{_rows(len(records))}, {len(records) - len(done):,} of them without a prediction.",
            f"Shortest iteration: {format_seconds(fastest['iteration_s'])} with"
            f" {_where(fields, fastest)}.",
            f"Most samples a second: {most['samples_per_s']:,.0f} with {_where(fields, most)}.",
        ]
    )


def _where(fields: list[str], record: Mapping[str, Any]) -> str:
    return ", ".join(f"{field} {record[field]}" for field in fields)


def _shown(fields: list[str], record: Mapping[str, Any]) -> dict[str, Any]:
    known = not record["reason"]
    return {
        **{field.removeprefix("options."): record[field] for field in fields},
        "iteration": format_seconds(record["iteration_s"]) if known else "-",
        **({"90 % interval": _interval(record)} if "iteration_s_low" in record else {}),
        "samples/s": f"{record['samples_per_s']:,.0f}" if known else "-",
        "efficiency": f"{record['scaling_efficiency']:.1%}" if known else "-",
        "sent a GPU": format_bytes(record["sent_bytes_per_gpu"]) if known else "-",
    }


def _interval(record: Mapping[str, Any]) -> str:
    if record["reason"]:
        return "-"
    return interval_words(record["iteration_s_low"], record["iteration_s_high"])


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


TUNE_COLUMNS = 80
BAR = 30
LINES = 18
"""Most values of a curve that are shown; the JSON has all."""

NAMES = {
    "bucket": "bucket size",
    "density": "density",
    "rank": "rank",
    "interval": "averaging interval",
    "algorithm": "all-reduce algorithm",
}

BESIDE = {
    "mgwfbp": "MG-WFBP's merging",
    "optimal": "exact where every message is one all-reduce",
}


def print_tuning(found: Tuning) -> None:
    """Print what was asked, then for each thing tuned the verdict and its curve."""
    scenario = found.scenario
    print_lines(
        [
            f"{scenario.model}, {scenario.method}, {gpu_words(scenario.gpus, scenario.gpu)}"
            f" ({scenario.nodes} x {scenario.gpus_per_node}), {scenario.net}:"
            f" {format_seconds(found.iteration_s)} as asked"
            + (f", {condition_words(scenario)}" if condition_words(scenario) else "")
        ],
        most=TUNE_COLUMNS,
    )
    for one in found.tuned:
        print_lines(["", NAMES[one.knob.name]], most=TUNE_COLUMNS)
        print_lines(sentences(one), "  ", "  ", TUNE_COLUMNS)
        for line in _curve(one):
            print(line)
    print_lines(["", "Notes"], most=TUNE_COLUMNS)
    print_lines(found.notes, "  - ", "    ", TUNE_COLUMNS)


def sentences(one: Tuned) -> list[str]:
    """Return the verdict on one thing tuned."""
    name = NAMES[one.knob.name]
    asked = f"asked: {shown(one, one.asked)}, {format_seconds(one.asked_s)}"
    if one.idle:
        return [f"It makes no difference here ({asked})."]
    found = [f"Fastest: {shown(one, one.fastest)}, {format_seconds(one.fastest_s)}; {asked}."]
    for value, seconds in one.faster_elsewhere[:1]:
        found.append(
            f"{shown(one, value)} would take {format_seconds(seconds)}; it needs"
            f" {one.needs[str(value)]}."
        )
    if one.at_end:
        found[0] += " The fastest is the end of what was looked at."
    if one.knob.why:
        found.append(one.knob.why)
    if one.flat:
        found.append(f"Flat optimum: {_range(one)} within 1 % of the fastest.")
    best = f"{shown(one, one.advised)}, {format_seconds(one.advised_s)}"
    if one.knob.gentle:
        side = "Highest" if one.knob.gentle == "high" else "Shortest"
        found.append(f"{side} {name} within 1 % of the fastest: {best}.")
    elif one.gain < FLAT:
        found.append("Nothing to gain over what was asked (less than 1 %).")
    else:
        found.append(f"Take {best}: {one.gain:.1%} less time than as asked.")
    for policy, time_s in one.beside.items():
        found.append(f"Beside it, `fusion` {policy} ({BESIDE[policy]}): {format_seconds(time_s)}.")
    return found


def _range(one: Tuned) -> str:
    if one.low is None or one.high is None:
        return f"{', '.join(map(str, one.as_good))} are"
    return f"all values tried from {shown(one, one.low)} to {shown(one, one.high)} are"


def shown(one: Tuned, value: TunableValue) -> str:
    """Return a value with its unit."""
    if isinstance(value, str):
        return value
    if one.knob.unit == "bytes":
        small = value < 2.0**20
        return f"{value / 2**10:.4g} KiB" if small else f"{value / 2**20:.4g} MiB"
    return f"{value:.3g}" if not one.knob.whole else f"{value:g}"


def _curve(one: Tuned) -> Iterator[str]:
    """Yield value, iteration and a bar; * is within 1 % of the fastest."""
    if one.idle:
        return
    width = max(len(shown(one, value)) for value, _ in one.curve)
    width = max(width, *map(len, one.refused), 5) if one.refused else max(width, 5)
    yield f"  {'value':>{width}}{'iteration':>13} * within 1 %"
    longest_s = max(seconds for _, seconds in one.curve)
    for value, seconds in _thinned(one):
        mark = "*" if value in one.as_good else " "
        line = f"  {shown(one, value):>{width}}{format_seconds(seconds):>13} {mark} "
        line += "#" * max(1, round(BAR * seconds / longest_s))
        needs = one.needs.get(str(value))
        yield line
        if needs:
            yield from wrap(
                f"needs {needs}",
                TUNE_COLUMNS,
                initial_indent=" " * (width + 18),
                subsequent_indent=" " * (width + 20),
            )
    for name, why in one.refused.items():
        lead = f"  {name:>{width}}{'-':>13}   "
        yield from wrap(why, TUNE_COLUMNS, initial_indent=lead, subsequent_indent=" " * len(lead))


def _thinned(one: Tuned) -> list[tuple[TunableValue, float]]:
    """Return values that show the curve: its ends and what matters, others apart from those."""
    if one.low is None or len(one.curve) <= LINES:
        return one.curve
    wanted = {one.fastest, one.advised, one.asked, one.curve[0][0], one.curve[-1][0]}
    logs = [log(float(value)) for value, _ in one.curve]
    apart = (logs[-1] - logs[0]) / LINES
    held = [at for at, (value, _) in enumerate(one.curve) if value in wanted]
    for at, place in enumerate(logs):
        if all(abs(place - logs[other]) >= apart for other in held):
            held.append(at)
    return [one.curve[at] for at in sorted(held)]
