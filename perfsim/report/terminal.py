"""Print lists and descriptions in a terminal, tables among them, in words that reports share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any

from perfsim.data.files import as_written, write_text
from perfsim.errors import spelled
from perfsim.note import briefs
from perfsim.report.plain import is_plain
from perfsim.scenario import gpu_words
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.inventory import MethodDescription, ScenarioDescription, ScenarioRow
    from perfsim.memory import OuterState
    from perfsim.resolve import ResolvedScenario

__all__ = [
    "ALL_COLUMNS",
    "LABEL_COLUMNS",
    "MIN_COLUMNS",
    "PAGE_COLUMNS",
    "PART_NAMES",
    "SHORT_PART_NAMES",
    "batch_words",
    "bucket_size_words",
    "cluster_words",
    "coloured",
    "command_lines",
    "interval_words",
    "json_text",
    "labelled",
    "network_name",
    "network_words",
    "number_lines",
    "outer_state_words",
    "page_columns",
    "plain_rows",
    "print_description",
    "print_lines",
    "print_method",
    "print_next",
    "print_notes",
    "print_scenario",
    "print_scenarios",
    "print_table",
    "rate_words",
    "table_lines",
    "write_json",
]


LABEL_COLUMNS = 16
"""Columns of a label that words stand beside."""

PAGE_COLUMNS = 80
"""Columns of what is written for a page of 80 columns, such as a description or a comparison."""

_PIPE_COLUMNS = 110
"""Columns of other text where the output is a file or a pipe."""

MIN_COLUMNS = 40
"""A narrower terminal is written to as if it had this many columns."""

ALL_COLUMNS = 10_000
"""Columns of what is not folded."""


PART_NAMES = {
    "forward": "forward",
    "backward": "backward",
    "compression": "compression",
    "second_order": "second order",
    "communication_exposed": "exposed communication",
    "update": "update",
    "other": "other (host, input, waiting)",
}
"""The parts of an iteration, as a reader knows them."""

SHORT_PART_NAMES = {part: words.partition(" (")[0] for part, words in PART_NAMES.items()}
"""The same without examples, for narrow columns."""

_MAX_NAME = 40
"""Columns that a scenario's name may take."""

_MIN_FOLDED_COLUMNS = 30
"""Columns that a text needs to be folded beside other columns."""

_MAX_FOLDED_LINES = 3
"""Lines that the longest text of such a column may take."""

_MAX_TABLE_NOTES = 30
"""Texts that may stand below a table, numbered."""

_MAX_ROWS_WITH_NOTES = 100
"""A longer table has no notes below it: the reader would have to scroll."""

_LONG_TEXT = 12
"""Only longer texts become notes."""

_GAPS = (2, 1)
"""Spaces between columns; the second where only that makes all fit."""

_EMPTY_CELLS = ("", "-")


def json_text(result: dict[str, Any]) -> str:
    """Return ``result`` as JSON, refusing NaN and infinity."""
    import json

    return spelled(json.dumps(result, indent=2, allow_nan=False))


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write ``result`` as JSON to ``path``, whole or not at all."""
    write_text(path, json_text(result) + "\n")


_MAX_WARNINGS = 4
"""Warnings that are printed where not everything was asked for."""


def page_columns() -> int:
    """Return the columns of a screen: those of the terminal, 40 to 80; 80 where it is none."""
    columns = get_terminal_size().columns if sys.stdout.isatty() else PAGE_COLUMNS
    return max(MIN_COLUMNS, min(columns, PAGE_COLUMNS))


def print_notes(notes: Sequence[str], *, verbose: bool, more: str = "") -> None:
    """Print the first warnings among notes, and assumptions, in brief; if asked, all in full.

    ``more``: what ``-v`` shows besides notes and warnings.
    """
    if verbose:
        print_lines(["", "Notes"], most=PAGE_COLUMNS)
        print_lines(notes, "  - ", "    ", PAGE_COLUMNS)
        return
    print()
    columns, taken = page_columns(), ", ".join(briefs(notes, "assumption"))
    warnings = briefs(notes, "warning")
    left = len(warnings) - _MAX_WARNINGS
    rest = [more] if more else []
    rest += [f"{left} more warning{'s' * (left > 1)}"] if left > 0 else []
    first = (labelled("warning", text, columns) for text in warnings[:_MAX_WARNINGS])
    lines = [
        *(line for entry in first for line in entry),
        *(labelled("assumed", taken, columns) if taken else ()),
        *labelled("next", f"-v: {', '.join([*rest, f'{len(notes)} notes'])}", columns),
    ]
    for line in lines:
        print(coloured(spelled(line)))


def print_next(more: str) -> None:
    """Print what ``-v`` shows besides."""
    print()
    for line in labelled("next", f"-v: {more}", page_columns()):
        print(line)


def labelled(label: str, words: str, columns: int) -> Iterator[str]:
    """Yield words beside their label, folded."""
    if is_plain():
        told = re.sub(r" {2,}", "; ", words)
        yield f"{label}: {told}" if label else told
        return
    indent = " " * LABEL_COLUMNS
    gap = "  " * (len(label) >= LABEL_COLUMNS)
    first = f"{label:{LABEL_COLUMNS}}{gap}" if label else ""
    rest = indent if label else "  "
    yield from wrap(
        words, columns, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def coloured(line: str) -> str:
    """Return a line with its warning in yellow on a terminal, unless NO_COLOR says otherwise."""
    plain = os.environ.get("NO_COLOR") or is_plain() or not sys.stdout.isatty()
    if plain or not line.startswith(_WARNING):
        return line
    return f"\x1b[33m{_WARNING}\x1b[0m{line.removeprefix(_WARNING)}"


_WARNING = "warning"


def print_lines(
    lines: Sequence[str], first: str = "", rest: str = "  ", most: int = _PIPE_COLUMNS
) -> None:
    """Print texts folded to the terminal's width; an empty one is an empty line.

    ``most``: columns where the output is no terminal, and at most so many in one if given.
    """
    width = ALL_COLUMNS if is_plain() else most
    if sys.stdout.isatty() and not is_plain():
        columns = get_terminal_size().columns
        width = columns if most == _PIPE_COLUMNS else min(columns, most)
    for line in lines:
        print(
            fill(
                spelled(line),
                max(width, MIN_COLUMNS),
                initial_indent=first,
                subsequent_indent=rest,
                break_on_hyphens=False,
            )
        )


def batch_words(scenario: ResolvedScenario) -> str:
    """Say what a GPU trains in an iteration, and how, where that was asked for.

    Examples
    --------
    >>> from perfsim import Scenario, predict
    >>> asked = Scenario(model="gpt2", gpus=4, seq=512, accumulate=8, recompute="full")
    >>> batch_words(predict(asked).scenario)
    'batch 4 a GPU, 512 tokens a sample, 8 micro-batches, recompute full'
    """
    asked = scenario.further
    divided = any(axis in asked for axis in ("tp", "pp", "cp"))
    words = [f"batch {scenario.batch} a {'replica' if divided else 'GPU'}"]
    words += [f"{asked['seq']} tokens a sample"] if asked["seq"] else []
    words += [f"documents of {asked['document_tokens']}"] if "document_tokens" in asked else []
    words += [f"{asked['accumulate']} micro-batches"] if asked["accumulate"] > 1 else []
    words += [f"recompute {asked['recompute']}"] if asked["recompute"] != "none" else []
    words += [asked["optimizer"]] if asked["optimizer"] else []
    words += ["no fp32 master weights"] if "master_weights" in asked else []
    words += ["chunked loss"] if "chunked_loss" in asked else []
    words += [f"{asked['offload']} on the host"] if "offload" in asked else []
    if "lora" in asked:
        which = f" ({asked['lora_layers']})" if "lora_layers" in asked else ""
        base = f" beside {asked['lora_base']}" if "lora_base" in asked else ""
        words.append(f"adapters of rank {asked['lora']}{which}{base}")
        words += ["adapters in fp32"] if "lora_dtype" in asked else []
        words += ["dropout before adapters"] if "lora_dropout" in asked else []
        words += ["values between layers in fp32"] if "residual_dtype" in asked else []
    words += [f"gradients in {asked['reduce_dtype']}"] if asked["reduce_dtype"] != "fp32" else []
    return ", ".join(words)


def cluster_words(scenario: ResolvedScenario) -> str:
    """Say how many GPUs there are on which nodes, and their networks."""
    even = f"{scenario.nodes} x {scenario.gpus_per_node}"
    nodes = "+".join(map(str, scenario.placement)) if scenario.placement else even
    gpus = gpu_words(scenario.gpus, scenario.gpu)
    if scenario.gpus == 1:
        return gpus
    words = f"{gpus} ({nodes} GPUs), {network_words(scenario)}"
    site, wan = scenario.further.get("site"), str(scenario.further.get("wan"))
    if not site:
        return words
    links = "links of their own" if ";" in wan else wan
    return f"{words}; {len(site)} site{'s' * (len(site) > 1)} over {links}"


def network_name(scenario: ResolvedScenario) -> str:
    """Name the network between nodes; where there is one node, that inside it."""
    return f"{scenario.intra_net} inside" if scenario.nodes == 1 else scenario.net


def network_words(scenario: ResolvedScenario) -> str:
    """Say which networks join the nodes, if there are several, and the GPUs of one."""
    if scenario.nodes == 1:
        return network_name(scenario)
    if scenario.net == scenario.intra_net:
        return f"{scenario.net} between nodes and inside"
    return f"{scenario.net} between nodes, {scenario.intra_net} inside"


def bucket_size_words(size_bytes: float) -> str:
    """Write a bucket in MiB, or in MB where that is what it is a whole number of.

    Examples
    --------
    >>> bucket_size_words(25 * 2**20), bucket_size_words(25e6), bucket_size_words(45_686_000)
    ('25 MiB', '25 MB', '43.57 MiB')
    """
    if size_bytes % 2**20 and not size_bytes % 10**6:
        return f"{size_bytes / 10**6:,.0f} MB"
    size = size_bytes / 2**20
    return f"{size:.4g} MiB" if size < 1e4 else f"{size:,.0f} MiB"


def interval_words(low: float, high: float) -> str:
    """Write an interval in three digits, with the unit once where both ends share it.

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


def outer_state_words(state: OuterState) -> list[str]:
    """Say what is kept from one exchange to the next on the GPU, and what in host memory."""
    lines = []
    for where, held in (
        ("on the GPU", {part.what: part.gpu_bytes for part in state.parts}),
        ("in host memory", {part.what: part.host_bytes for part in state.parts}),
    ):
        kept = [f"{what} {format_bytes(size, 3)}" for what, size in held.items() if size]
        total = f" {format_bytes(sum_in_order(held.values()), 3)}" if len(kept) > 1 else ""
        if kept:
            lines.append(f"{where}{total}: {', '.join(kept)}")
    if state.host_bytes:
        lines[-1] += f" ({format_bytes(state.host_bytes_per_node, 3)} a node)"
    return lines


_WHOLE = 100.0
"""A count a second from which it is written without decimals."""


def rate_words(number: float) -> str:
    """Write a count a second.

    Examples
    --------
    >>> rate_words(7579.2), rate_words(8.2718)
    ('7,579', '8.27')
    """
    return f"{number:,.0f}" if number >= _WHOLE else f"{number:.3g}"


def print_description(description: Mapping[str, Any]) -> None:
    """Print a description: texts as they are, mappings and rows as tables."""
    for name, value in description.items():
        title = name.replace("_", " ")
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            print_lines(["", title], most=PAGE_COLUMNS)
            print_table(value)
        elif isinstance(value, Mapping):
            print_lines(["", title], most=PAGE_COLUMNS)
            print_table([{"name": key, "value": entry} for key, entry in value.items()])
        elif isinstance(value, list):
            print_lines(["", title], most=PAGE_COLUMNS)
            print_lines([str(entry) for entry in value] or ["none"], "  - ", "    ", PAGE_COLUMNS)
        else:
            print_lines([f"{title}: {value}"], most=PAGE_COLUMNS)


def print_method(method: MethodDescription) -> None:
    """Print the description of a method, section by section."""
    print_lines([f"{method.method}: {method.summary}"], most=PAGE_COLUMNS)
    facts = {
        "family": method.family,
        "learns as ssgd": "yes" if method.learns_as_ssgd else "no",
        "fusion": f"{method.default_fusion}, unless `fusion` asks for another",
        "by default": method.fidelity,
        "also called": ", ".join(method.also_called),
        "runs in": f"{method.code_base}; the update is {method.update}",
        "needs": method.needs,
    }
    facts = {name: fact for name, fact in facts.items() if fact}
    print_lines([f"{name:16}{fact}" for name, fact in facts.items()], "  ", " " * 18, PAGE_COLUMNS)
    _section("what is sent", method.what_is_sent)
    _section("inside a node and across nodes", f"{method.levels[:1].upper()}{method.levels[1:]}.")
    _section("when, by which calls and kernels", method.kernels)
    _section("bytes a rank", method.bytes_a_rank)
    print_lines([f"by default {method.wire_by_default}"], "  ", "    ", PAGE_COLUMNS)
    print_lines([f"with {method.wire_symbols}"], "  ", "    ", PAGE_COLUMNS)
    _section("memory", method.memory)
    _section("left out", method.left_out)
    _section("options and implementations", method.remarks)
    print(spelled("\noptions (`options` NAME=VALUE)") + ("" if method.options else ": none"))
    for option in method.options:
        value = "none" if option.default in ("", None) else as_written(option.default)
        only = f"only with {option.only_with}" if option.only_with else ""
        first = f"{option.option} = {value}   ({option.allowed})"
        print_lines([first], "  ", "      ", PAGE_COLUMNS)
        print_lines(
            [text for text in (option.what, only) if text], "      ", "      ", PAGE_COLUMNS
        )
    _section("paper and code", *method.source.split("; "))
    if method.learning or not method.learns_as_ssgd:
        _section("what is known of its learning", *(method.learning or ["nothing is collected"]))
    _section("accuracy record", method.accuracy_record)


def _section(title: str, *texts: str) -> None:
    """Print texts below a title; nothing where there is none."""
    lines = [text for text in texts if text]
    if lines:
        print(f"\n{title}")
        print_lines(lines, "  ", "    " if len(lines) > 1 else "  ", PAGE_COLUMNS)


def print_scenarios(rows: Sequence[ScenarioRow]) -> None:
    """Print the questions with their scenarios, then the other settings by their titles."""
    print("Questions (`perfsim show scenario NAME` prints the command that answers one)\n")
    _print_names({row.scenario: row.question for row in rows if row.question})
    print("\nSettings of papers, and others (perfsim predict --scenario NAME)\n")
    _print_names({row.scenario: row.title for row in rows if not row.question})


def _print_names(texts: Mapping[str, str]) -> None:
    width = min(max(map(len, texts), default=0), _MAX_NAME) + 2
    for name, text in texts.items():
        print_lines([text], f"{name:{width}}", " " * width, PAGE_COLUMNS)


def print_scenario(scenario: ScenarioDescription) -> None:
    """Print a scenario; its question and the command that answers it come first."""
    if scenario.question and scenario.command:
        print_lines([scenario.question], most=PAGE_COLUMNS)
        lines = command_lines(scenario.command, PAGE_COLUMNS - 4)
        print("\n" + "\n".join(f"    {line}" for line in lines) + "\n")
    print_description(replace(scenario, question=None, command=None).to_dict())


def command_lines(command: str, width: int = PAGE_COLUMNS) -> list[str]:
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


def print_table(rows: Sequence[Mapping[str, Any]], *, wide: bool = False) -> None:
    """Print rows as a table whose columns are the first row's keys, folded to the terminal.

    Where the output is no terminal, lines have at most 80 columns; with ``wide`` each row is one
    line there, however long.
    """
    if is_plain():
        for line in plain_rows(rows):
            print(line)
        return
    width = ALL_COLUMNS if wide else PAGE_COLUMNS
    if sys.stdout.isatty():
        width = max(MIN_COLUMNS, get_terminal_size().columns)
    for line in table_lines(rows, width) if rows else ["none"]:
        print(line)


def number_lines(
    rows: Sequence[Mapping[str, str]], columns: int, *, left: str = "", drop: Sequence[str] = ()
) -> list[str]:
    r"""Return the head and the rows of a table of numbers, each column as wide as its widest cell.

    Parameters
    ----------
    rows : cells by head; all rows have the same heads
    columns : columns that a line may have
    left : heads of the columns of words, which are aligned to the left, with commas between
    drop : heads of columns that are left out, in this order, until the rest fits; the first column
        of words is folded where nothing else helps

    Examples
    --------
    >>> rows = [{"what": "half the latency", "iteration": "264 ms", "saved": "2.7%"}]
    >>> print(*number_lines(rows, 80, left="what"), sep="\n")
    what              iteration  saved
    half the latency     264 ms   2.7%
    >>> print(*number_lines(rows, 20, left="what", drop=["iteration"]), sep="\n")
    what           saved
    half the        2.7%
    latency
    """
    if not rows:
        return []
    if is_plain():
        return list(plain_rows(rows))
    words = left.split(",")
    heads = list(rows[0])
    widths = {head: max(len(head), *(len(row[head]) for row in rows)) for head in heads}
    for one in drop:
        if _line_width(widths) <= columns:
            break
        widths.pop(one, None)
    first = next((head for head in widths if head in words), "")
    if first and (over := _line_width(widths) - columns) > 0:
        widths[first] = max(widths[first] - over, _MIN_WORDS)
    lines = []
    for row in [dict(zip(heads, heads, strict=True)), *rows]:
        folded = wrap(row[first], widths[first]) if first else []
        cells = {head: row[head] for head in widths} | ({first: folded[0]} if folded else {})
        aligned = (
            cells[head].ljust(width) if head in words else cells[head].rjust(width)
            for head, width in widths.items()
        )
        lines.append("  ".join(aligned).rstrip())
        indent = " " * sum(width + 2 for width in _before(widths, first))
        lines += [f"{indent}{more}" for more in folded[1:]]
    return lines


_MIN_WORDS = 12
"""Columns that a folded column of words has at least."""


def _line_width(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _before(widths: Mapping[str, int], name: str) -> list[int]:
    """Return the widths of the columns before one."""
    names = list(widths)
    return [widths[one] for one in names[: names.index(name)]] if name in widths else []


def plain_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each row that names each cell; empty cells are left out.

    Examples
    --------
    >>> list(plain_rows([{"method": "ssgd", "time": "2 s", "needs": ""}]))
    ['method: ssgd; time: 2 s']
    """
    for row in rows:
        cells = {name.replace("_", " "): str(cell) for name, cell in row.items()}
        yield "; ".join(f"{name}: {cell}" for name, cell in cells.items() if cell.strip())


def table_lines(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    r"""Yield the lines of a table, at most ``width`` columns wide if its words allow that.

    Where the columns do not fit, texts that many rows share become notes below the table; then
    the widest columns are folded or go below their row. (No library of tables does that.)

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
    columns = {
        name: ["-" if row[name] is None else str(row[name]) for row in rows] for name in rows[0]
    }
    notes = {} if _gap(_widths(columns), width) else _shared(columns)
    for name, long in notes.items():
        marks = {text: f"[{number}]" for number, text in enumerate(long, 1)}
        columns[name] = [marks.get(text, text) for text in columns[name]]
    beside, below = _layout(columns, width)
    if width >= ALL_COLUMNS:  # heads on one line too
        beside = {name: max(map(len, (name, *columns[name]))) for name in columns}
    widths, gap = list(beside.values()), " " * (_gap(beside, width) or 1)
    yield from _cells([name.replace("_", " ") for name in beside], widths, gap)
    for index in range(len(rows)):
        yield from _cells([columns[name][index] for name in beside], widths, gap)
        texts = [(name, columns[name][index]) for name in below]
        rest = "; ".join(f"{name}: {text}" for name, text in texts if text not in _EMPTY_CELLS)
        yield from wrap(rest, width, initial_indent=" " * 4, subsequent_indent=" " * 6)
    for name, long in notes.items():
        for number, text in enumerate(long, 1):
            yield from wrap(f"{name} [{number}]: {text}", width, subsequent_indent=" " * 4)


def _shared(table: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the long texts of the columns in which many rows share a few texts."""
    result: dict[str, list[str]] = {}
    if len(next(iter(table.values()))) > _MAX_ROWS_WITH_NOTES:
        return result
    for name, texts in table.items():
        long = [text for text in texts if len(text) > _LONG_TEXT]
        each = list(dict.fromkeys(long))
        if 0 < len(each) <= min(_MAX_TABLE_NOTES, len(long) // 2):
            result[name] = each
    return result


def _widths(table: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the width of each column; its head may be folded between words."""
    return {
        name: max(map(len, [*texts, *name.replace("_", " ").split()]))
        for name, texts in table.items()
    }


def _gap(widths: Mapping[str, int], width: int) -> int:
    """Return the spaces between columns with which all fit; 0 if they do not."""
    left = width - sum(widths.values())
    return next((gap for gap in _GAPS if gap * (len(widths) - 1) <= left), 0)


def _layout(table: Mapping[str, Sequence[str]], width: int) -> tuple[dict[str, int], list[str]]:
    """Return the widths of the columns side by side, and the names of those below each row."""
    beside = _widths(table)
    first = next(iter(beside))
    while not _gap(beside, width) and len(beside) > 1:
        widest = max((name for name in beside if name != first), key=lambda name: beside[name])
        others = sum(beside.values()) - beside[widest] + _GAPS[0] * (len(beside) - 1)
        if width - others >= _MIN_FOLDED_COLUMNS and beside[widest] <= _MAX_FOLDED_LINES * (
            width - others
        ):
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
