"""Write a sweep's rows to a file: CSV, JSON lines or Parquet, by the file's name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from perfsim.data.files import cell, write_text, writing
from perfsim.data.tables import as_typed
from perfsim.errors import RequestError
from perfsim.planning.sweep import SweepTable

__all__ = ["TABLE_FORMATS", "check_format", "sweep_csv", "sweep_jsonl", "write_sweep"]


def sweep_csv(table: SweepTable) -> str:
    """Return the table as CSV: a head with units in the column names, then a line a row.

    Examples
    --------
    >>> from perfsim.planning.sweep import sweep
    >>> print(sweep_csv(sweep({"model": "resnet50"}, {"gpus": "1"})).splitlines()[0])
    gpus,iteration_s,samples_per_s,scaling_efficiency,sent_bytes_per_gpu,reason
    """
    text = io.StringIO()
    _write_csv(table, text)
    return text.getvalue()


def _write_csv(table: SweepTable, text: TextIO) -> None:
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(map(cell, line) for line in table.lines())


def _csv(table: SweepTable, path: Path) -> None:
    """Write the table as CSV row by row: the whole text of a million rows would take 100 MB."""
    with writing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        _write_csv(table, text)
        text.detach()


def sweep_jsonl(table: SweepTable) -> str:
    """Return the table as JSON lines, a prediction object a row."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in table.objects())


def _parquet(table: SweepTable, path: Path) -> None:
    """Write the table as Parquet, whole or not at all: numbers and switches as they are."""
    pyarrow, parquet = _arrow()
    arrays = [_array(pyarrow, values) for values in zip(*table.lines(), strict=True)]
    arrow_table = pyarrow.table(arrays, names=list(table.columns))
    with writing(path) as file:
        parquet.write_table(arrow_table, file)


def _array(pyarrow: Any, values: Sequence[Any]) -> Any:
    values = as_typed(values)
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


TABLE_FORMATS: Mapping[str, Callable[[SweepTable, Path], None]] = {
    ".csv": _csv,
    ".jsonl": lambda table, path: write_text(path, sweep_jsonl(table)),
    ".parquet": _parquet,
}
"""What writes a file, by the end of its name."""


def check_format(path: Path) -> None:
    """Check that the name of a file says a format that can be written here.

    Raises
    ------
    RequestError
        If its suffix is unknown, or what it needs is not installed.
    """
    if path.suffix.lower() not in TABLE_FORMATS:
        raise RequestError(
            "out",
            f"{str(path)!r} ends in no known format; allowed: {', '.join(TABLE_FORMATS)}.",
            value=str(path),
        )
    if path.suffix.lower() == ".parquet":
        _arrow()


def write_sweep(table: SweepTable, path: Path) -> None:
    """Write the table in the format that the file's name says, whole or not at all."""
    TABLE_FORMATS[path.suffix.lower()](table, path)
