"""A prediction, a list or a description as a person reads it in a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any

from perfsim.conditions.words import condition_words
from perfsim.data.files import write_text
from perfsim.errors import spelled
from perfsim.scenario import gpu_words
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.prediction import Prediction
    from perfsim.quantity import Term
    from perfsim.resolve import ResolvedScenario

__all__ = [
    "cluster_words",
    "command_lines",
    "interval_words",
    "json_text",
    "print_description",
    "print_lines",
    "print_method",
    "print_prediction",
    "print_rows",
    "print_scenario",
    "print_scenarios",
    "print_table",
    "question",
    "table_lines",
    "write_json",
    "write_text",
]


def json_text(result: dict[str, Any]) -> str:
    """Return ``result`` as JSON, refusing NaN and infinity."""
    return spelled(json.dumps(result, indent=2, allow_nan=False))


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write ``result`` as JSON to ``path``, whole or not at all."""
    write_text(path, json_text(result) + "\n")


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
        from perfsim.conditions.words import meeting_lines

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
                spelled(line),
                max(width, 40),
                initial_indent=first,
                subsequent_indent=rest,
                break_on_hyphens=False,
            )
        )


def question(prediction: Prediction) -> list[str]:
    """Return in words what was asked: model and method, cluster, options."""
    scenario = prediction.scenario
    given = scenario.options.items()
    options = ", ".join(f"{name} {value}" for name, value in given if value != "")
    bucket = scenario.bucket_bytes
    fusion = scenario.fusion + (f" {bucket / 2**20:g} MiB" if bucket else "")
    overlap = "overlap" if scenario.overlap else "no overlap"
    conditions = condition_words(scenario)
    return [
        f"{scenario.model}, {scenario.method}" + (f" ({options})" if options else ""),
        cluster_words(scenario),
        f"batch {scenario.batch} a GPU, {scenario.precision}, fusion {fusion}, {overlap},"
        f" all-reduce {scenario.algorithm}",
        *([f"conditions: {conditions}"] if conditions else []),
    ]


def cluster_words(scenario: ResolvedScenario) -> str:
    """Return the GPUs, their nodes and their networks in words."""
    even = f"{scenario.nodes} x {scenario.gpus_per_node}"
    nodes = "+".join(map(str, scenario.placement)) if scenario.placement else even
    return (
        f"{gpu_words(scenario.gpus, scenario.gpu)} ({nodes} GPUs), {scenario.net} between nodes,"
        f" {scenario.intra_net} inside"
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


COLUMNS = 80
TITLES = {
    "what_is_sent": "what is sent",
    "kernels": "when, by which calls and kernels",
    "bytes_a_rank": "bytes a rank",
    "memory": "memory",
    "left_out": "left out",
    "remarks": "options and implementations",
}


def print_method(found: Mapping[str, Any]) -> None:
    """Print a description by ``perfsim.methods.describe``, section by section."""
    print_lines([f"{found['method']}: {found['summary']}"], most=COLUMNS)
    facts = {
        "family": found["family"],
        "learns as ssgd": "yes" if found["learns_as_ssgd"] else "no",
        "fusion": f"{found['default_fusion']}, unless `fusion` asks for another",
        "needs": found["needs"],
    }
    print_lines([f"{name:16}{fact}" for name, fact in facts.items()], "  ", " " * 18, COLUMNS)
    for name, title in TITLES.items():
        if found[name]:
            _section(title, [found[name]])
        if name == "bytes_a_rank":
            print_lines([f"by default {found['wire_by_default']}"], "  ", "    ", COLUMNS)
            print_lines([f"with {found['wire_symbols']}"], "  ", "    ", COLUMNS)
    print("\noptions (`options` NAME=VALUE)" + ("" if found["options"] else ": none"))
    for option in found["options"]:
        value = "none" if option["default"] in ("", None) else option["default"]
        first = f"{option['option']} = {value}   ({option['allowed']})"
        only = f"only with {option['only_with']}" if option["only_with"] else ""
        print_lines([first], "  ", "      ", COLUMNS)
        print_lines([text for text in (option["what"], only) if text], "      ", "      ", COLUMNS)
    _section("paper and code", found["source"].split("; "))
    _section("accuracy record", [found["accuracy_record"]])


def _section(title: str, lines: list[str]) -> None:
    print(f"\n{title}")
    print_lines(lines, "  ", "    " if len(lines) > 1 else "  ", COLUMNS)


SCENARIOS_WIDTH = 80
LONGEST_NAME = 40


def print_scenarios(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the questions that have a command, then the other settings by their titles."""
    asked = [row for row in rows if row["question"]]
    others = [row for row in rows if not row["question"]]
    print("Questions (`perfsim show scenario NAME` tells the command that answers)\n")
    _print(asked, "question")
    print("\nSettings of papers, and others (perfsim predict --scenario NAME)\n")
    _print(others, "title")


def _print(rows: Sequence[Mapping[str, Any]], told: str) -> None:
    names = [row["scenario"] for row in rows]
    width = min(max(map(len, names), default=0), LONGEST_NAME) + 2
    for row in rows:
        print_lines([row[told]], f"{row['scenario']:{width}}", " " * width, SCENARIOS_WIDTH)


def print_scenario(description: Mapping[str, Any]) -> None:
    """Print a scenario: first its question and the command as it can be copied, if it has them."""
    rest = dict(description)
    question, command = rest.pop("question", ""), rest.pop("command", "")
    if question:
        print_lines([question], most=SCENARIOS_WIDTH)
        print(
            "\n"
            + "\n".join(f"    {line}" for line in command_lines(command, SCENARIOS_WIDTH - 4))
            + "\n"
        )
    print_description(rest)


def command_lines(command: str, width: int = SCENARIOS_WIDTH) -> list[str]:
    r"""Return a command in lines that a shell joins, each flag on one line with its value.

    Examples
    --------
    >>> print(*command_lines("perfsim sweep mine --vary gpus=8..64 --full", 32), sep="\n")
    perfsim sweep mine \
        --vary gpus=8..64 --full
    """
    first, *flags = re.split(r" (?=--)", command)
    lines = [first]
    for flag in flags:
        if len(lines[-1]) + len(flag) + 3 > width:
            lines.append(f"    {flag}")
        else:
            lines[-1] += f" {flag}"
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


TABLE_WIDTH = 80
"""Columns where the output is no terminal."""

ROOM = 30
"""Columns that a text needs to be folded beside others."""

FOLDS = 3
"""Lines that such a text may take there, at its longest."""

SHARED = 30
LOOKED_UP = 100
"""So many texts at most stand once below a table, and of so many rows: one has to look there."""

LONG = 12
"""Texts that stand there are longer than that."""

GAPS = (2, 1)
"""Spaces between columns, and where that makes all fit."""

NOTHING = ("", "-")


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table whose columns are the first row's keys, in the terminal's width."""
    width = max(40, get_terminal_size().columns) if sys.stdout.isatty() else TABLE_WIDTH
    for line in table_lines(rows, width) if rows else ["none"]:
        print(line)


def table_lines(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    r"""Yield the lines of a table at most so many columns wide, if words allow that.

    Examples
    --------
    >>> row = {"network": "10gbe", "kind": "fitted", "source": "a median of many runs"}
    >>> print(*table_lines([row], 80), sep="\n")
    network  kind    source
    10gbe    fitted  a median of many runs
    >>> print(*table_lines([row], 30), sep="\n")
    network  kind
    10gbe    fitted
        source: a median of many
          runs
    """
    table = {name: [str(row[name]) for row in rows] for name in rows[0]}
    notes = {} if _gap(_widths(table), width) else _shared(table)
    for name, long in notes.items():
        marks = {text: f"[{number}]" for number, text in enumerate(long, 1)}
        table[name] = [marks.get(text, text) for text in table[name]]
    beside, moved = _layout(table, width)
    widths, gap = list(beside.values()), " " * (_gap(beside, width) or 1)
    yield from _cells([name.replace("_", " ") for name in beside], widths, gap)
    for place in range(len(rows)):
        yield from _cells([table[name][place] for name in beside], widths, gap)
        told = [(name, table[name][place]) for name in moved if table[name][place] not in NOTHING]
        below = "; ".join(f"{name}: {text}" for name, text in told)
        yield from wrap(below, width, initial_indent=" " * 4, subsequent_indent=" " * 6)
    for name, long in notes.items():
        for number, text in enumerate(long, 1):
            yield from wrap(f"{name} [{number}]: {text}", width, subsequent_indent=" " * 4)


def _shared(table: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the long texts of columns in which many rows share few of them."""
    found: dict[str, list[str]] = {}
    if len(next(iter(table.values()))) > LOOKED_UP:
        return found
    for name, texts in table.items():
        long = [text for text in texts if len(text) > LONG]
        each = list(dict.fromkeys(long))
        if 0 < len(each) <= min(SHARED, len(long) // 2):
            found[name] = each
    return found


def _widths(table: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the columns that each takes; its head may be folded between words."""
    return {
        name: max(map(len, [*texts, *name.replace("_", " ").split()]))
        for name, texts in table.items()
    }


def _gap(widths: Mapping[str, int], width: int) -> int:
    """Return the spaces between columns with which they fit, 0 for none."""
    left = width - sum(widths.values())
    return next((gap for gap in GAPS if gap * (len(widths) - 1) <= left), 0)


def _layout(table: Mapping[str, Sequence[str]], width: int) -> tuple[dict[str, int], list[str]]:
    """Return the widths of the columns that stand side by side, and the others, in order."""
    beside = _widths(table)
    first = next(iter(beside))
    while not _gap(beside, width) and len(beside) > 1:
        widest = max((name for name in beside if name != first), key=lambda name: beside[name])
        others = sum(beside.values()) - beside[widest] + GAPS[0] * (len(beside) - 1)
        if width - others >= ROOM and beside[widest] <= FOLDS * (width - others):
            beside[widest] = width - others
            break
        del beside[widest]
    return beside, [name for name in table if name not in beside]


def _cells(texts: Sequence[str], widths: Sequence[int], gap: str) -> Iterator[str]:
    """Yield one row, each of its cells folded to its width."""
    folded = [wrap(text, width) for text, width in zip(texts, widths, strict=True)]
    for line in range(max(1, *map(len, folded))):
        cells = [cell[line] if line < len(cell) else "" for cell in folded]
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        yield gap.join(padded).rstrip()
