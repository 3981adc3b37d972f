"""A tuning as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from textwrap import wrap

from perfsim.conditions.words import named
from perfsim.gpu_names import gpu_words
from perfsim.planning.knob import Value
from perfsim.planning.tune import Tuning
from perfsim.planning.tuned import FLAT, Tuned
from perfsim.report.terminal import print_lines
from perfsim.units import format_seconds

__all__ = ["print_tuning", "sentences"]

COLUMNS = 80
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
            f"{scenario['model']}, {scenario['method']}, {gpu_words(scenario)}"
            f" ({scenario['nodes']} x {scenario['gpus_per_node']}), {scenario['net']}:"
            f" {format_seconds(found.iteration_s)} as asked"
            + (f", {named(scenario)}" if named(scenario) else "")
        ],
        most=COLUMNS,
    )
    for one in found.tuned:
        print_lines(["", NAMES[one.knob.name]], most=COLUMNS)
        print_lines(sentences(one), "  ", "  ", COLUMNS)
        for line in _curve(one):
            print(line)
    print_lines(["", "Notes"], most=COLUMNS)
    print_lines(found.notes, "  - ", "    ", COLUMNS)


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
        found.append(f"Beside it, --fusion {policy} ({BESIDE[policy]}): {format_seconds(time_s)}.")
    return found


def _range(one: Tuned) -> str:
    if one.low is None or one.high is None:
        return f"{', '.join(map(str, one.as_good))} are"
    return f"all values tried from {shown(one, one.low)} to {shown(one, one.high)} are"


def shown(one: Tuned, value: Value) -> str:
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
                COLUMNS,
                initial_indent=" " * (width + 18),
                subsequent_indent=" " * (width + 20),
            )
    for name, why in one.refused.items():
        lead = f"  {name:>{width}}{'-':>13}   "
        yield from wrap(why, COLUMNS, initial_indent=lead, subsequent_indent=" " * len(lead))


def _thinned(one: Tuned) -> list[tuple[Value, float]]:
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
