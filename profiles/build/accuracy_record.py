"""Record how wrong predictions are, by method and by group of measurements.

    python profiles/build/accuracy_record.py methods --measurements FILE [FILE ...] \
        --out profiles/methods/accuracy.csv --date DATE
    python profiles/build/accuracy_record.py groups [--measurements FILE ...] \
        --out profiles/measurements/record.csv --date DATE

``methods`` writes the errors of each method, which `perfsim compare` shows. ``groups`` writes those
of every source, method, network, scale and phase: of the tables that ship (record.csv, which a test
compares with today's predictions), or of the tables given (summary.csv).
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsim.data.files import write_text
from perfsim.data.tables import cell_number, read_table
from perfsim.validate.accuracy import ACCURACY_COLUMNS, ACCURACY_SCHEMA
from perfsim.validate.measurements import (
    GroupErrors,
    MeasurementsReport,
    group_errors,
    joined_reports,
)

__all__ = [
    "RECORD_FILE",
    "RECORD_SCHEMA",
    "RecordedGroup",
    "accuracy_text",
    "errors_of_groups",
    "main",
    "read_validation_record",
    "validation_record_text",
    "worse",
]

RECORD_SCHEMA = "perfsim/validation-record/1"
RECORD_FILE = "record.csv"
_RECORD_COLUMNS = ("by", "name", "rows", "median", "p90", "worst", "bias", "coverage", "half_width")
_TOLERANCE = 0.01
"""A group whose median or p90 rises by more than this has become worse."""


def accuracy_text(report: MeasurementsReport, date: str) -> str:
    """Return the errors of each method as the text of ``profiles/methods/accuracy.csv``."""
    lines = [
        f"# schema: {ACCURACY_SCHEMA}",
        "# title: Errors of predicted whole iterations by method, |predicted / measured - 1|",
        "# source: published results of many papers and logs; `perfsim validate measurements`",
        f"# date: {date}",
        *(f"# notice: {notice}" for notice in report.notices),
        ",".join(ACCURACY_COLUMNS),
    ]
    for method, rows in sorted(report.groups()["method"].items()):
        errors = group_errors("method", method, rows).score
        sources = " ".join(sorted({row.case.group for row in rows}))
        lines.append(f"{method},{errors.count},{errors.median:.4f},{errors.p90:.4f},{sources}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """The recorded errors of one group, as fractions."""

    by: str
    name: str
    rows: int
    median: float
    p90: float


def errors_of_groups(report: MeasurementsReport) -> list[GroupErrors]:
    """Return the errors of all whole iterations, then of every group of a report."""
    return [report.overall, *(one for table in report.group_tables().values() for one in table)]


def validation_record_text(report: MeasurementsReport, date: str) -> str:
    """Return the errors of every group as the text of a record."""
    pairs, right = report.ranking()
    out = io.StringIO()
    out.write(
        f"# schema: {RECORD_SCHEMA}\n"
        "# title: Errors of predictions by group, |predicted / measured - 1| of the time\n"
        f"# ranking: {right} of {pairs} pairs right\n"
        f"# source: perfsim validate; {len(report.rows)} values predicted, {len(report.left)} not\n"
        f"# date: {date}\n"
    )
    for notice in report.notices:
        out.write(f"# notice: {notice}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_RECORD_COLUMNS)
    for errors in errors_of_groups(report):
        figures = errors.figures()
        shares = (figures[column] for column in _RECORD_COLUMNS[3:])
        cells = ["" if share is None else f"{share:.4f}" for share in shares]
        writer.writerow([errors.by, errors.name, errors.score.count, *cells])
    return out.getvalue()


def read_validation_record(path: Path) -> list[RecordedGroup]:
    """Return the groups of a record.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    groups = []
    for row, cells in read_table(path, RECORD_SCHEMA, _RECORD_COLUMNS):
        count = int(cell_number(cells["rows"], "rows", path, row, whole=True))
        if count:
            median, p90 = (cell_number(cells[name], name, path, row) for name in ("median", "p90"))
            groups.append(RecordedGroup(cells["by"], cells["name"], count, median, p90))
    return groups


def worse(report: MeasurementsReport, recorded: list[RecordedGroup]) -> list[str]:
    """Say which groups have a median or p90 more than a point above what was recorded."""
    now = {(errors.by, errors.name): errors.score for errors in errors_of_groups(report)}
    messages = []
    for group in recorded:
        errors = now.get((group.by, group.name))
        if errors is None or errors.count != group.rows:
            count = errors.count if errors else 0
            messages.append(f"{group.by} {group.name}: {count} rows, {group.rows} were stored")
            continue
        for figure, value, before in (
            ("median", errors.median, group.median),
            ("p90", errors.p90, group.p90),
        ):
            if value is not None and value > before + _TOLERANCE:
                messages.append(
                    f"{group.by} {group.name}: {figure} {value:.1%}, {before:.1%} was stored"
                )
    return messages


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict measured iterations and record the errors by method or by group."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("record", choices=("methods", "groups"), help="what errors are kept by")
    parser.add_argument(
        "--measurements", type=Path, nargs="+", help="tables of cases; for groups: what ships"
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--date", required=True, help="date of the record, such as 2026-11-21")
    given = parser.parse_args(arguments)
    if given.record == "methods" and not given.measurements:
        parser.error("methods needs --measurements: the full tables, of which only some ship")
    text = accuracy_text if given.record == "methods" else validation_record_text
    write_text(given.out, text(joined_reports(given.measurements or [None]), given.date))


if __name__ == "__main__":
    main()
