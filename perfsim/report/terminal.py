"""A prediction, a list or a description as a person reads it in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any

from perfsim.conditions.words import named
from perfsim.gpu_names import gpu_words
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.prediction import Prediction
    from perfsim.quantity import Term

__all__ = [
    "cluster_words",
    "interval_words",
    "print_description",
    "print_lines",
    "print_prediction",
    "print_rows",
    "question",
]

BAR = 24
ROUNDING = 1e-12
"""Shares below this are what adding up the others leaves over."""
WIDTH = 110
"""Columns of text that goes to a file or a pipe."""

PAGE = 80
"""Columns of a description."""

NAMES = {
    "forward": "forward",
    "backward": "backward",
    "compression": "compression",
    "second_order": "second order",
    "communication_exposed": "exposed communication",
    "update": "update",
    "other": "other (host, input, waiting)",
}


def print_prediction(prediction: Prediction) -> None:
    """Print the first screen: answer, breakdown, what holds it back, sources and caveats."""
    lines = [*question(prediction), "", *_answer(prediction)]
    if prediction.meeting is not None:
        from perfsim.conditions.beside_words import meeting_lines

        lines += meeting_lines(prediction.scenario, prediction.meeting)
    print_lines([*lines, ""])
    for line in _breakdown(prediction):
        print(line)
    print_lines(["", "Sources"])
    for source, terms in groupby(prediction.terms, lambda term: term.quantity.source):
        values = "; ".join(f"{term.term} {term.quantity} [{_kind(term)}]" for term in terms)
        print_lines([f"{values}: {source}"], "  ", "      ")
    print_lines(["", "Notes"])
    print_lines(prediction.notes, "  - ", "    ")


def _kind(term: Term) -> str:
    return f"{term.quantity.kind}, extrapolated" if term.extrapolated else term.quantity.kind


def print_lines(lines: Sequence[str], first: str = "", rest: str = "  ", most: int = WIDTH) -> None:
    """Print texts folded to the terminal's width; an empty one is an empty line.

    ``most``: columns where the output is no terminal, and at most so many in one if given.
    """
    width = most
    if sys.stdout.isatty():
        columns = get_terminal_size().columns
        width = columns if most == WIDTH else min(columns, most)
    for line in lines:
        print(
            fill(
                line,
                max(width, 40),
                initial_indent=first,
                subsequent_indent=rest,
                break_on_hyphens=False,
            )
        )


def question(prediction: Prediction) -> list[str]:
    """Return in words what was asked: model and method, cluster, options."""
    scenario = prediction.scenario
    given = scenario["options"].items()
    options = ", ".join(f"{name} {value}" for name, value in given if value != "")
    bucket = scenario["bucket_bytes"]
    fusion = scenario["fusion"] + (f" {bucket / 2**20:g} MiB" if bucket else "")
    overlap = "overlap" if scenario["overlap"] else "no overlap"
    conditions = named(scenario)
    return [
        f"{scenario['model']}, {scenario['method']}" + (f" ({options})" if options else ""),
        cluster_words(scenario),
        f"batch {scenario['batch']} a GPU, {scenario['precision']}, fusion {fusion}, {overlap},"
        f" all-reduce {scenario['algorithm']}",
        *([f"conditions: {conditions}"] if conditions else []),
    ]


def cluster_words(scenario: Mapping[str, Any]) -> str:
    """Return the GPUs, their nodes and their networks in words."""
    even = f"{scenario['nodes']} x {scenario['gpus_per_node']}"
    nodes = "+".join(map(str, scenario["placement"])) if scenario["placement"] else even
    return (
        f"{gpu_words(scenario)} ({nodes} GPUs), {scenario['net']} between nodes,"
        f" {scenario['intra_net']} inside"
    )


def interval_words(low: float, high: float) -> str:
    """Return an interval in three digits, the unit once where it is the same.

    Examples
    --------
    >>> interval_words(0.09356, 0.3257), interval_words(0.8072, 1.8)
    ('93.6 to 326 ms', '807 ms to 1.8 s')
    """
    if low >= high:
        return "not known"
    value, unit = format_seconds(low, 3).split()
    upper = format_seconds(high, 3)
    return f"{value} to {upper}" if upper.endswith(f" {unit}") else f"{value} {unit} to {upper}"


def _answer(prediction: Prediction) -> list[str]:
    low, high = prediction.iteration_s_interval
    known = f"90 % interval {format_seconds(low)} to {format_seconds(high)}"
    interval = known if low < high else "90 % interval not known"
    total = prediction.memory_bytes
    sent = prediction.communication
    return [
        f"iteration            {format_seconds(prediction.iteration_s)}   {interval}",
        f"throughput           {prediction.samples_per_s:,.0f} samples/s"
        f"   scaling efficiency {prediction.scaling_efficiency:.1%}",
        f"against S-SGD        {prediction.speedup:.2f}x"
        f"   (S-SGD {format_seconds(prediction.baseline_s)})",
        f"held back by         {prediction.bottleneck}"
        f"   (twice as fast would save {prediction.worth[prediction.bottleneck]:.0%})",
        f"sent by each GPU     {format_bytes(sent['bytes_per_gpu'])} in {sent['calls']:g} calls"
        f"   communication {format_seconds(sent['busy_s'])}, hidden"
        f" {format_seconds(sent['hidden_s'])}",
        f"memory held          {format_bytes(sum(total.values()))} without activations"
        f"   (of it {format_bytes(total['method'])} for the method,"
        f" {format_bytes(total['messages'])} for messages)",
    ]


def _breakdown(prediction: Prediction) -> Iterator[str]:
    width = max(map(len, NAMES.values()))
    yield f"{'where the time goes':{width}}{'time':>12}{'share':>9}"
    for name, seconds in prediction.breakdown_s.items():
        if seconds <= ROUNDING * prediction.iteration_s:
            continue
        share = seconds / prediction.iteration_s
        line = f"{NAMES[name]:{width}} {format_seconds(seconds):>11}{share:9.1%}"
        yield f"{line}  {'#' * round(BAR * share)}".rstrip()
    total_s = sum(prediction.breakdown_s.values())
    yield f"{'total':{width}}{format_seconds(total_s):>12}{1:9.1%}"


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table whose columns are the first row's keys.

    In a terminal cells are folded to its width; elsewhere a row is one line.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        print("none")
        return
    table = Table(box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    console = Console(highlight=False, width=10_000)
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_description(description: Mapping[str, Any]) -> None:
    """Print a description: texts as they are, mappings and rows as tables."""
    from perfsim.report.table import print_table

    for name, value in description.items():
        title = name.replace("_", " ")
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            print_lines(["", title], most=PAGE)
            print_table(value)
        elif isinstance(value, Mapping):
            print_lines(["", title], most=PAGE)
            print_table([{"name": key, "value": entry} for key, entry in value.items()])
        elif isinstance(value, list):
            print_lines(["", title], most=PAGE)
            print_lines([str(entry) for entry in value] or ["none"], "  - ", "    ", PAGE)
        else:
            print_lines([f"{title}: {value}"], most=PAGE)
