"""An explanation as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from perfsim.planning.breakeven import BreakEven, Crossing
from perfsim.planning.critical_path import Step
from perfsim.planning.explain import Explanation, Path
from perfsim.planning.exposed import Exposed
from perfsim.planning.sensitivity import Improvement
from perfsim.report.terminal import print_lines, question
from perfsim.units import format_seconds

__all__ = ["break_even_words", "print_explanation", "verdict"]

COLUMNS = 80
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
    print_lines([*question(said), ""], most=COLUMNS)
    print_lines(
        [
            f"iteration {format_seconds(said.iteration_s)}, S-SGD"
            f" {format_seconds(said.baseline_s)} ({said.speedup:.2f}x); held back by"
            f" {said.bottleneck}",
            verdict(found),
        ],
        most=COLUMNS,
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
    method = said.scenario["method"]
    print_lines(["", "Break-even with S-SGD"], most=COLUMNS)
    for one in (found.bandwidth, found.gpus):
        print_lines(break_even_words(one, method), "  - ", "    ", COLUMNS)
    print_lines(["", "Notes"], most=COLUMNS)
    print_lines([*found.notes, *said.notes], "  - ", "    ", COLUMNS)


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


def _path(path: Path, several: bool) -> Iterator[str]:
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
    yield from wrap(line, COLUMNS, initial_indent="  ", subsequent_indent="  ")
    yield f"  {'start':>11}{'end':>12}{'time':>12}  {'stream':14}what"
    runs = [list(group) for _, group in groupby(path.steps, lambda step: (step.stream, step.kind))]
    left = runs if len(runs) <= RUNS else [*runs[: RUNS // 2], [], *runs[-RUNS // 2 :]]
    for run in left:
        yield _run(run) if run else _middle(runs[RUNS // 2 : -RUNS // 2])


def _run(run: list[Step]) -> str:
    first, last = run[0], run[-1]
    what = first.task if len(run) == 1 else f"{first.kind}, {len(run)} tasks"
    if len(run) > 1 and first.kind == "communicate":
        what = f"{first.task} ... {last.task}, {len(run)} messages"
    return _cells(first.start_s, last.end_s, first.stream or "-", what)


def _middle(runs: list[list[Step]]) -> str:
    kinds: dict[str, int] = {}
    for run in runs:
        for step in run:
            kinds[step.kind] = kinds.get(step.kind, 0) + 1
    what = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return _cells(runs[0][0].start_s, runs[-1][-1].end_s, "...", what)


def _cells(start_s: float, end_s: float, stream: str, what: str) -> str:
    times = f"{_ms(start_s):>11}{_ms(end_s):>12}{_ms(end_s - start_s):>12}"
    return f"  {times}  {stream:14}{what}"[:COLUMNS].rstrip()


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
            yield f"  {name:{width}}{times}  {row.collectives}"[:COLUMNS]
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


def _crossed(found: BreakEven, one: Crossing, method: str) -> str:
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
