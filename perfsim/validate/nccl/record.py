"""What carried collectives miss by, as the table that intervals of predictions rest on.

``python -m perfsim.validate.nccl.record --data DIR --out FILE`` asks the questions of the curves
in a folder and writes the 90th percentile of the errors by how far a time was carried.
"""

from __future__ import annotations

from pathlib import Path

from perfsim.data.files import write_text
from perfsim.network.known import GROWTH_ERRORS_COLUMNS, GROWTH_ERRORS_SCHEMA
from perfsim.validate.nccl.report import NcclReport

__all__ = ["growth_table"]

RATIOS = (
    ("in_range", 0),
    ("other_collective", 1),
    ("scale_2x", 2),
    ("scale_4x", 4),
    ("scale_beyond", 1024),
)
"""Question and the largest ratio of ranks that its errors stand for; 0: between sizes."""


def growth_table(report: NcclReport, date: str) -> str:
    """Return the table of errors by ratio as text."""
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
    for question, ratio in RATIOS:
        score = report.score(question)
        if question == "in_range":
            score = report.others(question)["log interpolation"]
        plain = report.plain(question)
        errors = (score.median, score.p90, plain.median, plain.p90)
        told = ",".join(f"{error:.4f}" for error in errors)
        lines.append(f"{question},{ratio},{score.count},{told}")
    return "\n".join(lines) + "\n"


def _main() -> None:
    from argparse import ArgumentParser

    from perfsim.validate.nccl.report import validate_nccl
    from perfsim.validate.nccl.source import from_folder

    parser = ArgumentParser(prog="python -m perfsim.validate.nccl.record", description=__doc__)
    parser.add_argument("data", type=Path, required=True, help="folder of measured curves")
    parser.add_argument("out", type=Path, required=True, help="table to write")
    parser.add_argument("date", required=True, help="date of the measurement, such as 2026-11-21")
    given = parser.parse_args()
    write_text(given.out, growth_table(validate_nccl(from_folder(given.data)[0]), given.date))


if __name__ == "__main__":
    _main()
