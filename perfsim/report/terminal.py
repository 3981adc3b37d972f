"""A prediction, a list or a description as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from perfsim.prediction import Prediction
    from perfsim.quantity import Term

__all__ = ["print_description", "print_prediction", "print_rows"]

BAR = 24
NAMES = {
    "forward": "forward",
    "backward": "backward",
    "compression": "compression",
    "second_order": "second order",
    "communication_exposed": "exposed communication",
    "update": "update",
    "other": "other (host, input, waiting)",
}


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    return console


def print_prediction(prediction: Prediction) -> None:
    """Print the first screen: answer, breakdown, what holds it back, sources and caveats."""
    console = _console()
    _print_lines(console, [*_question(prediction), "", *_answer(prediction), ""])
    console.print(_breakdown(prediction))
    _print_lines(console, ["", "Sources"])
    for source, terms in groupby(prediction.terms, lambda term: term.quantity.source):
        values = "; ".join(f"{term.term} {term.quantity} [{_kind(term)}]" for term in terms)
        _print_lines(console, [f"{values}: {source}"], "  ", "      ")
    _print_lines(console, ["", "Notes"])
    _print_lines(console, prediction.notes, "  - ", "    ")


def _kind(term: Term) -> str:
    return f"{term.quantity.kind}, extrapolated" if term.extrapolated else term.quantity.kind


def _print_lines(console: Console, lines: Sequence[str], first: str = "", rest: str = "  ") -> None:
    from textwrap import fill

    for line in lines:
        text = fill(
            line,
            console.width - 1,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
        )
        console.out(text, highlight=False)


def _question(prediction: Prediction) -> list[str]:
    scenario = prediction.scenario
    options = ", ".join(f"{name} {value}" for name, value in scenario["options"].items())
    placement = scenario["placement"]
    nodes = (
        f"{len(placement)} x {placement[0]}"
        if len(set(placement)) == 1
        else "+".join(map(str, placement))
    )
    bucket = scenario["bucket_bytes"]
    fusion = scenario["fusion"] + (f" {format_bytes(bucket)}" if bucket else "")
    overlap = "overlap" if scenario["overlap"] else "no overlap"
    return [
        f"{scenario['model']}, {scenario['method']}" + (f" ({options})" if options else ""),
        f"{scenario['gpus']} x {scenario['gpu']} ({nodes} GPUs), {scenario['net']} between nodes,"
        f" {scenario['intra_net']} inside",
        f"batch {scenario['batch']} a GPU, {scenario['precision']}, fusion {fusion}, {overlap},"
        f" all-reduce {scenario['algorithm']}",
    ]


def _answer(prediction: Prediction) -> list[str]:
    low, high = prediction.iteration_s_interval
    total = prediction.memory_bytes
    sent = prediction.communication
    return [
        f"iteration            {format_seconds(prediction.iteration_s)}"
        f"   90 % interval {format_seconds(low)} to {format_seconds(high)}",
        f"throughput           {prediction.samples_per_s:,.0f} samples/s"
        f"   scaling efficiency {prediction.scaling_efficiency:.1%}",
        f"against S-SGD        {prediction.speedup:.2f}x"
        f"   (S-SGD {format_seconds(prediction.baseline_s)})",
        f"held back by         {prediction.bottleneck}"
        f"   (twice as fast would save {prediction.worth[prediction.bottleneck]:.0%})",
        f"sent by each GPU     {format_bytes(sent['bytes_per_gpu'])} in {sent['calls']:g} calls"
        f"   communication {format_seconds(sent['busy_s'])}, hidden"
        f" {format_seconds(sent['hidden_s'])}",
        f"memory kept          {format_bytes(sum(total.values()))} without activations"
        f"   (of it {format_bytes(total['method'])} for the method)",
    ]


def _breakdown(prediction: Prediction) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=True)
    table.add_column("where the time goes")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    for name, seconds in prediction.breakdown_s.items():
        if seconds == 0:
            continue
        share = seconds / prediction.iteration_s
        bar = "#" * round(BAR * share)
        table.add_row(NAMES[name], format_seconds(seconds), f"{share:.1%}", bar)
    table.add_row("total", format_seconds(sum(prediction.breakdown_s.values())), "100.0%", "")
    return table


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table whose columns are the first row's keys."""
    from rich.table import Table
    from rich.text import Text

    if not rows:
        _console().print("nothing")
        return
    table = Table(box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    _console().print(table)


def print_description(description: Mapping[str, Any]) -> None:
    """Print a description: texts as they are, mappings and rows as tables."""
    console = _console()
    for name, value in description.items():
        if name == "schema":
            continue
        title = name.replace("_", " ")
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            _print_lines(console, ["", title])
            print_rows(value)
        elif isinstance(value, Mapping):
            _print_lines(console, ["", title])
            print_rows([{"name": key, "value": entry} for key, entry in value.items()])
        elif isinstance(value, list):
            _print_lines(console, ["", title])
            entries = [str(entry) for entry in value] or ["none"]
            _print_lines(console, entries, "  - ", "    ")
        else:
            _print_lines(console, [f"{title}: {value}"])
