"""A sweep as CSV, JSON lines, Parquet, or a table in a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsim.errors import RequestError
from perfsim.files import write_text
from perfsim.letters import cell
from perfsim.planning.sweep import Table
from perfsim.records import as_numbers
from perfsim.report.terminal import interval_words, print_lines, print_rows
from perfsim.units import format_bytes, format_seconds

__all__ = ["FORMATS", "check_format", "csv_text", "jsonl_text", "print_sweep", "write_sweep"]

MOST_REASONS = 10
MOST_SHOWN = 60
"""Rows that a terminal is shown; a file has all."""


def csv_text(table: Table) -> str:
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


def jsonl_text(table: Table) -> str:
    """Return the table as JSON lines, a prediction object a row."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in table.objects())


def _parquet(table: Table, path: Path) -> None:
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
        raise RequestError(f"--out: {str(path)!r} cannot be written: {error.strerror}.") from None


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
            "--out: Parquet needs pyarrow: pip install 'perfsim[parquet]', or name a .csv or .jsonl"
            " file."
        ) from None
    return pyarrow, pyarrow.parquet


FORMATS: Mapping[str, Callable[[Table, Path], None]] = {
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
            f"--out: {str(path)!r} ends in no known format; allowed: {', '.join(FORMATS)}."
        )
    if path.suffix.lower() == ".parquet":
        _arrow()


def write_sweep(table: Table, path: Path) -> None:
    """Write the table in the format that the file's name says, whole or not at all."""
    FORMATS[path.suffix.lower()](table, path)


def print_sweep(table: Table, *, rows: bool = True) -> None:
    """Print rows as a person reads them, and which is fastest; only that where not ``rows``.

    At least one row has a prediction (see ``Table.refusal``).
    """
    records = list(table.records())
    fields = [axis.field for axis in table.sweep.grid.axes]
    if rows:
        print_rows([_shown(fields, record) for record in records[:MOST_SHOWN]])
        if len(records) > MOST_SHOWN:
            print_lines([f"... {len(records) - MOST_SHOWN:,} rows more; --out FILE has all."])
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
