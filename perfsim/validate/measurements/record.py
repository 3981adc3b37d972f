"""The accuracy record: how wrong predictions of each method have been, written and read.

``python -m perfsim.validate.measurements.record --measurements FILE --out profiles/methods/
accuracy.csv --date DATE`` is the maintainers' command.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from perfsim.data.files import write_text
from perfsim.data.tables import cell_number, read_table
from perfsim.validate.measurements.report import MeasurementsReport, figures, joined

__all__ = ["COLUMNS", "RECORD", "RecordLine", "read_record", "text_of"]

SCHEMA = "perfsim/accuracy-record/1"
RECORD = "accuracy.csv"
COLUMNS = ("method", "rows", "median_error", "p90_error", "sources")


@dataclass(frozen=True, slots=True)
class RecordLine:
    """What is recorded of one method: rows tested, and their absolute errors as fractions."""

    method: str
    rows: int
    median_error: float
    p90_error: float
    sources: str

    def words(self) -> str:
        """Return the line in words."""
        return (
            f"{self.rows} rows, median {self.median_error:.0%}, p90 {self.p90_error:.0%}"
            f" ({self.sources})"
        )


def read_record(path: Path) -> list[RecordLine]:
    """Return the lines of a record.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    return [
        RecordLine(
            cells["method"],
            int(cell_number(cells["rows"], "rows", path, row, positive=True, whole=True)),
            cell_number(cells["median_error"], "median_error", path, row),
            cell_number(cells["p90_error"], "p90_error", path, row),
            cells["sources"],
        )
        for row, cells in read_table(path, SCHEMA, COLUMNS)
    ]


def text_of(report: MeasurementsReport, date: str) -> str:
    """Return the record of a report as the text of its file."""
    lines = [
        f"# schema: {SCHEMA}",
        "# title: Errors of predicted whole iterations by method, |predicted / measured - 1|",
        "# source: published results of many papers and logs; `perfsim validate measurements`",
        f"# date: {date}",
        *(f"# notice: {notice}" for notice in report.notices),
        ",".join(COLUMNS),
    ]
    for method, rows in sorted(report.groups()["method"].items()):
        found = figures(rows)
        sources = " ".join(sorted({row.case.group for row in rows}))
        lines.append(
            f"{method},{found['count']},{found['median']:.4f},{found['p90']:.4f},{sources}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Predict a table of measurements and write the record."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("measurements", type=Path, nargs="+", required=True)
    parser.add_argument("out", type=Path, required=True)
    parser.add_argument("date", required=True)
    given = parser.parse_args()
    write_text(given.out, text_of(joined(given.measurements), given.date))


if __name__ == "__main__":
    main()
