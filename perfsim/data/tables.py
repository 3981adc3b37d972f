"""Data tables: CSV files read cell by cell with their line numbers, and records written as CSV.

A data file begins with lines ``# key: value``; below its head each row has a cell for every column.
Every refusal names file, line and column.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsim.data.files import cell, check_lines, forbidden, read_text
from perfsim.errors import DataError, PerfsimError, newer, shown
from perfsim.quantity import KINDS, Kind, NumberLimit
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    import pandas

__all__ = [
    "MAX_COMMAS",
    "as_typed",
    "cell_number",
    "check_kind",
    "check_word",
    "csv_rows",
    "flat_record",
    "is_too_wide",
    "leave_out",
    "options_cell",
    "read_lines",
    "read_table",
    "repeat_spread",
    "to_csv",
    "to_frame",
]


# Reading: CSV with ``# key: value`` lines before the head


def read_table(
    path: Path, schema: str, columns: tuple[str, ...], gpus: tuple[str, ...] = ()
) -> list[tuple[int, dict[str, str]]]:
    """Read a CSV with ``# key: value`` lines before its head: line number and cells by column.

    Parameters
    ----------
    path, schema, columns : the file, what its line ``# schema:`` must say, its columns
    gpus : what its line ``# gpu:`` may say; it needs none where they are empty

    Raises
    ------
    DataError
        If the file cannot be read, its schema or GPU differs, a column lacks or a row is cut
        short.
    """
    lines = read_lines(path)
    start = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    pairs = [line[1:].partition(":") for line in lines[:start]]
    head = [(key.strip(), value.strip(), row) for row, (key, _, value) in enumerate(pairs, 1)]
    schemas = [(value, row) for key, value, row in head if key == "schema"]
    if [value for value, _ in schemas] != [schema]:
        wrong, row = next((stated for stated in schemas if stated[0] != schema), (schema, 1))
        shape = shown(wrong) if len(schemas) == 1 else "missing" if not schemas else "there twice"
        raise DataError(
            f"schema is {shape}, this perfsim reads '# schema: {schema}'{newer(wrong, schema)}",
            path=path,
            row=row,
        )
    named = [(value, row) for key, value, row in head if key == "gpu"]
    if gpus and (len(named) != 1 or named[0][0] not in gpus):
        allowed = " or ".join(f"'# gpu: {gpu}'" for gpu in gpus)
        shape = f"is {shown(named[0][0])}" if named else "is missing"
        raise DataError(
            f"the header's gpu {shape if len(named) < 2 else 'is there twice'}, the file's name"
            f" asks for {allowed}",
            path=path,
            row=named[-1][1] if named else 1,
        )
    return list(csv_rows(lines, start, columns, path))


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file; refuse one that is no text or holds control characters."""
    text = read_text(path)
    check_lines(text, path)
    control = forbidden(text)
    if control:
        raise DataError(
            f"holds the control character {control[0]!a}, which no data file may",
            path=path,
            row=text.count("\n", 0, control.start()) + 1,
        )
    return text.splitlines()


def leave_out(error: DataError, bad: list[DataError] | None) -> None:
    """Note the error of a row that is left out.

    Raises
    ------
    DataError
        The error itself, where ``bad`` is None: the whole table is then refused.
    """
    if bad is None:
        raise error
    bad.append(error)


def csv_rows(
    lines: list[str],
    start: int,
    columns: tuple[str, ...],
    path: Path,
    bad: list[DataError] | None = None,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows below the head at line index ``start``: line number, cells by column.

    ``bad`` takes the errors of rows that are cut short, which are then left out.

    Raises
    ------
    DataError
        If one of ``columns`` lacks, a row is cut short or the text is not CSV.
    """
    reader = csv.reader(_narrow(lines, start, path))
    try:
        head = next(reader, [])
        for column in columns:
            if column not in head:
                raise DataError(
                    f"missing column; the columns are {', '.join(columns)}",
                    path=path,
                    row=start + 1,
                    column=column,
                )
            if head.count(column) > 1:
                raise DataError("stands twice", path=path, row=start + 1, column=column)
        before = reader.line_num
        for cells in reader:
            row, before = start + before + 1, reader.line_num
            if not cells:
                continue
            if len(cells) != len(head):
                why = f"{len(cells)} cells, the head has {len(head)}"
                leave_out(DataError(why, path=path, row=row), bad)
                continue
            yield row, dict(zip(head, map(str.strip, cells), strict=True))
    except csv.Error as error:
        row = start + reader.line_num
        raise DataError(f"is not CSV: {error}", path=path, row=row) from None


MAX_COMMAS = 10_000
"""Commas of one line of a table: a line of nothing else makes 50 bytes of each. The widest line
that ships has under 100."""


def is_too_wide(line: str) -> bool:
    """Tell whether a line has more commas than a row of any table."""
    return len(line) > MAX_COMMAS and line.count(",") > MAX_COMMAS


def _narrow(lines: list[str], start: int, path: Path) -> Iterator[str]:
    """Yield the lines from index ``start`` on, and refuse one with more commas than a row has."""
    for row, line in enumerate(lines[start:], start + 1):
        if is_too_wide(line):
            raise DataError(f"has more than {MAX_COMMAS:,} commas", path=path, row=row)
        yield line


def cell_number(
    text: str,
    column: str,
    path: Path,
    row: int,
    *,
    positive: bool = False,
    whole: bool = False,
    within: NumberLimit | None = None,
    unit: float = 1.0,
) -> float:
    """Return a cell's number; refuse one that is not finite, below zero or out of its limits.

    Parameters
    ----------
    text, column, path, row : the cell and its place, for the message
    positive, whole : whether it must be above zero, and a whole number
    within : its limits in SI units; zero is allowed below the lowest, unless ``positive``
    unit : the column's unit in SI units
    """
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        wrong = "is not a number;"
    elif whole and not value.is_integer():
        wrong = "is not a whole number;"
    elif (
        value < 0
        or (value == 0 and positive)
        or (value and within and not within.holds(value * unit))
    ):
        wrong = "is not allowed:"
    else:
        return value
    if within:
        allowed = within.words if positive or within.holds(0.0) else f"0, or {within.words}"
    elif positive:
        allowed = "1 or more" if whole else "above 0"
    else:
        allowed = "0 or more"
    raise DataError(
        f"{shown(text)} {wrong} it must be {allowed}", path=path, row=row, column=column
    )


def check_word(text: str, allowed: Sequence[str], column: str, path: Path, row: int) -> None:
    """Refuse a cell that is none of the words allowed."""
    if text not in allowed:
        raise DataError(
            f"{shown(text)}; allowed: {', '.join(allowed)}", path=path, row=row, column=column
        )


def check_kind(text: str, path: Path, row: int) -> Kind:
    """Return a cell's kind of number; refuse a word that is none."""
    if text not in KINDS:
        raise DataError(
            f"{shown(text)} is no kind; allowed: {', '.join(KINDS)}",
            path=path,
            row=row,
            column="kind",
        )
    return text


_Z90 = 1.645
"""Half-width of a normal distribution's 90 % interval, in standard deviations."""


def repeat_spread(values: list[float]) -> float | None:
    """Return the relative 90 % half-width that repeats show, None for a lone value."""
    if len(values) < 2:
        return None
    logs = [math.log(value) for value in values]
    mean = sum_in_order(logs) / len(logs)
    return _Z90 * math.sqrt(sum_in_order((log - mean) ** 2 for log in logs) / (len(logs) - 1))


# Writing: records as CSV or as a pandas table


_PLAIN_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def flat_record(
    prediction: Mapping[str, Any], columns: Sequence[str], usable: float | None = None
) -> dict[str, Any]:
    """Return the ``to_dict`` of a prediction as one flat record.

    It begins with those ``columns`` of the scenario (see `perfsim.scenario.table_columns`).

    Columns that a sweep's file has too have its names (`perfsim.planning.rows.FULL_SWEEP_COLUMNS`).
    A column's name holds its unit: ``_s`` for seconds, ``_bytes``, ``_per_s``, ``_ratio`` for a
    fraction or a multiple. One without a unit is a count, a fraction, a multiple or a word. Times
    and bytes are those of one iteration of one GPU.

    Parameters
    ----------
    usable : the bytes that a GPU has for all that is held; None where that is not known
    """
    scenario, sent = prediction["scenario"], prediction["communication"]
    memory = prediction["memory_bytes"]
    held = sum_in_order(memory.values())
    low, high = prediction["iteration_s_interval"]
    question = {field: scenario[field] for field in columns}
    question["options"] = options_cell(scenario["options"])
    return {
        **question,
        "iteration_s": prediction["iteration_s"],
        "iteration_s_low": low,
        "iteration_s_high": high,
        "samples_per_s": prediction["samples_per_s"],
        "scaling_efficiency": prediction["scaling_efficiency"],
        "ssgd_iteration_s": prediction["baseline"]["iteration_s"],
        "speedup": prediction["baseline"]["speedup"],
        **{f"{part}_s": seconds for part, seconds in prediction["breakdown_s"].items()},
        "sent_bytes_per_gpu": sent["bytes_per_gpu"],
        "calls": sent["calls"],
        "communication_busy_s": sent["busy_s"],
        "communication_hidden_s": sent["hidden_s"],
        "memory_bytes": held,
        **{f"memory_{what}_bytes": size for what, size in memory.items()},
        "fits": usable is None or held <= usable,
        "bottleneck": prediction["bottleneck"],
    }


def options_cell(options: Mapping[str, Any]) -> str:
    """Return options as one cell of a table.

    Examples
    --------
    >>> options_cell({"density": 0.01, "kernel": "new", "warm_start": True})
    'density=0.01 kernel=new warm_start=true'
    """
    return " ".join(f"{name}={cell(value)}" for name, value in options.items())


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as CSV: a head, then a line for each. None becomes an empty cell.

    Examples
    --------
    >>> print(to_csv([{"method": "dgc", "iteration_s": 0.25, "lossy": True, "next_s": None}]))
    method,iteration_s,lossy,next_s
    dgc,0.25,true,
    <BLANKLINE>
    """
    text = io.StringIO()
    if records:
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: cell(value) for name, value in row.items()} for row in records)
    return text.getvalue()


def to_frame(records: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return records as a pandas table.

    Raises
    ------
    PerfsimError
        If pandas cannot be imported.
    """
    try:
        import pandas
    except ImportError as error:
        why = str(error).splitlines()[0]
        raise PerfsimError(
            f"pandas cannot be imported ({why}); pip install 'perfsim[pandas]' brings it."
        ) from None
    return pandas.DataFrame([dict(row) for row in records])


def as_typed(values: Sequence[Any]) -> Sequence[Any]:
    """Return a column of texts as numbers, or as true and false, where all are; else as it is.

    Examples
    --------
    >>> as_typed(["8", "16"]), as_typed(["0.001", "1"]), as_typed(["8", "1gbe"])
    ([8, 16], [0.001, 1.0], ['8', '1gbe'])
    >>> as_typed(["true", "false"])
    [True, False]
    """
    if values and all(value in ("true", "false") for value in values):
        return [value == "true" for value in values]
    if not all(isinstance(value, str) and _PLAIN_NUMBER.fullmatch(value) for value in values):
        return values
    if all(value.isdecimal() for value in values):
        return [int(value) for value in values]
    return [float(value) for value in values]
