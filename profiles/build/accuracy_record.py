"""Record how wrong predictions are, by method and by group of measurements.

    python profiles/build/accuracy_record.py methods --measurements FILE [FILE ...] \
        --out profiles/methods/accuracy.csv --date DATE
    python profiles/build/accuracy_record.py groups [--measurements FILE ...] \
        --out profiles/measurements/record.csv --date DATE

``methods`` writes the errors of each method, which `perfsim compare` shows: each case asked in the
way that knows most of it. ``groups`` writes those of every way, source, method, network, scale,
generation, evidence and phase: of the tables that ship (record.csv, with which `perfsim validate`
compares), or of the tables given (summary.csv).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.validate.accuracy import ACCURACY_COLUMNS, ACCURACY_SCHEMA, score
from perfsim.validate.cases import shipped_cases
from perfsim.validate.groups import PredictedCase
from perfsim.validate.measurements import MeasurementsReport, joined_reports
from perfsim.validate.record import validation_record_text

__all__ = ["accuracy_text", "main"]


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
    shipped = {case.id for case in shipped_cases(Catalog())}
    methods: dict[str, list[PredictedCase]] = {}
    for row in report.whole:
        methods.setdefault(row.method, []).append(row)
    for method, rows in sorted(methods.items()):
        errors = score(abs(row.error) for row in rows)
        sources = " ".join(sorted({row.case.group for row in rows}))
        ships = sum(row.case.id in shipped for row in rows)
        lines.append(
            f"{method},{errors.count},{ships},{errors.median:.4f},{errors.p90:.4f},{sources}"
        )
    return "\n".join(lines) + "\n"


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
