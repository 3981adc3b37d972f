"""The errors of groups of cases as last stored, and which of them have become worse.

``python -m perfsim.validate.measurements.stored --out FILE --date DATE [--measurements FILE ...]``
is the maintainers' command: without a table it stores what ships (profiles/measurements/record.csv,
which a test compares), with one the errors of that table (summary.csv).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from perfsim.data.files import write_text
from perfsim.data.tables import cell_number, read_table
from perfsim.validate.measurements.report import MeasurementsReport, figures, joined

__all__ = ["RECORD", "Stored", "read_stored", "text_of", "worse"]

SCHEMA = "perfsim/validation-record/1"
RECORD = "record.csv"
COLUMNS = ("by", "name", "rows", "median", "p90", "worst", "bias", "coverage", "half_width")
POINT = 0.01
"""A group that is worse by more than this has become worse."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The errors of one group, as fractions."""

    by: str
    name: str
    rows: int
    median: float
    p90: float


def lines_of(report: MeasurementsReport) -> list[tuple[str, str, dict[str, float | int | None]]]:
    """Return every group of a report: what it is grouped by, its name and figures."""
    groups = report.groups().items()
    return [
        ("all", "whole iterations", figures(report.whole)),
        *(
            (by, name, figures(rows))
            for by, named in groups
            for name, rows in sorted(named.items())
        ),
    ]


def text_of(report: MeasurementsReport, date: str) -> str:
    """Return the record of a report as the text of its file."""
    pairs, right = report.ranking()
    lines = [
        f"# schema: {SCHEMA}",
        "# title: Errors of predictions by group, |predicted / measured - 1| of the time",
        f"# ranking: {right} of {pairs} pairs right",
        f"# source: perfsim validate; {len(report.rows)} values predicted, {len(report.left)} not",
        f"# date: {date}",
        *(f"# notice: {notice}" for notice in report.notices),
        ",".join(COLUMNS),
    ]
    for by, name, found in lines_of(report):
        shares = (found[one] for one in COLUMNS[3:])
        told = ["" if share is None else f"{share:.4f}" for share in shares]
        word = f'"{name}"' if "," in name else name
        lines.append(",".join([by, word, str(found["count"]), *told]))
    return "\n".join(lines) + "\n"


def read_stored(path: Path) -> list[Stored]:
    """Return the groups of a stored record.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    found = []
    for row, cells in read_table(path, SCHEMA, COLUMNS):
        count = int(cell_number(cells["rows"], "rows", path, row, whole=True))
        if count:
            median, p90 = (cell_number(cells[one], one, path, row) for one in ("median", "p90"))
            found.append(Stored(cells["by"], cells["name"], count, median, p90))
    return found


def worse(report: MeasurementsReport, stored: list[Stored]) -> list[str]:
    """Return, in words, every group whose median or p90 is over a point above what was stored."""
    now = {(by, name): found for by, name, found in lines_of(report)}
    told = []
    for one in stored:
        found = now.get((one.by, one.name))
        if found is None or found["count"] != one.rows:
            count = found["count"] if found else 0
            told.append(f"{one.by} {one.name}: {count} rows, {one.rows} were stored")
            continue
        for name, before in (("median", one.median), ("p90", one.p90)):
            value = found[name]
            if value is not None and value > before + POINT:
                told.append(f"{one.by} {one.name}: {name} {value:.1%}, {before:.1%} was stored")
    return told


def main() -> None:
    """Predict, and write the record."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("measurements", type=Path, nargs="+")
    parser.add_argument("out", type=Path, required=True)
    parser.add_argument("date", required=True)
    given = parser.parse_args()
    write_text(given.out, text_of(joined(given.measurements or [None]), given.date))


if __name__ == "__main__":
    main()
