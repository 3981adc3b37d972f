"""Record how far carried collectives are off, which the intervals of predictions use.

    python profiles/build/growth_errors.py --data DIR --out profiles/networks/growth_errors.csv \
        --date DATE

It asks the questions of `perfsim validate nccl` of the measured curves in a folder, and writes the
median and 90th percentile of the errors by how many times the ranks of the measurement grow.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perfsim.data.files import write_text
from perfsim.network.known import GROWTH_ERRORS_COLUMNS, GROWTH_ERRORS_SCHEMA
from perfsim.validate.nccl.report import NcclReport, curves_in_folder, validate_nccl

__all__ = ["growth_table", "main"]

_RATIOS = (
    ("in_range", 0),
    ("other_collective", 1),
    ("scale_2x", 2),
    ("scale_4x", 4),
    ("scale_beyond", 1024),
)
"""Question, and the largest ratio of ranks to which its errors apply; 0: between sizes."""


def growth_table(report: NcclReport, date: str) -> str:
    """Return the errors by ratio of ranks as the text of the table."""
    clusters = len({cluster for cluster, _ in report.curves})
    lines = [
        f"# schema: {GROWTH_ERRORS_SCHEMA}",
        "# title: Relative errors of collectives carried to other ranks than were measured",
        f"# date: {date}",
        "# kind: measured (absolute relative errors against measured curves; fractions)",
        f"# source: perfsim validate nccl, {len(report.curves)} curves of {clusters} clusters;"
        " in_range is log interpolation; plain a two-parameter alpha-beta ring fit on these rows",
        ",".join(GROWTH_ERRORS_COLUMNS),
    ]
    for question, ratio in _RATIOS:
        score = report.score(question)
        if question == "in_range":
            score = report.others(question)["log interpolation"]
        plain = report.plain(question)
        errors = (score.median, score.p90, plain.median, plain.p90)
        cells = ",".join(f"{error:.4f}" for error in errors)
        lines.append(f"{question},{ratio},{score.count},{cells}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict measured collectives and write the table of their errors."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of measured curves")
    parser.add_argument("--out", type=Path, required=True, help="table to write")
    parser.add_argument("--date", required=True, help="date of the record, such as 2026-11-21")
    given = parser.parse_args(arguments)
    report = validate_nccl(curves_in_folder(given.data)[0])
    write_text(given.out, growth_table(report, given.date))


if __name__ == "__main__":
    main()
