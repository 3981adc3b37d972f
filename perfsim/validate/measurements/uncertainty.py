r"""The record that prediction intervals are made of, fitted on published iterations.

The maintainers' command, to be run again whenever predictions or rows change (the file it writes
is not read for it)::

    python -m perfsim.validate.measurements.uncertainty --measurements FILE [FILE ...] \
        --out profiles/measurements/uncertainty.csv --date DATE [--residuals FILE]

Without ``--measurements`` the tables that ship serve. Every row is predicted once;
``--residuals`` keeps what came of it, and read back (``--from-residuals FILE`` in place of
``--measurements``) the fit alone is made again, in seconds. It prints how many rows of each source
lie in the intervals of which that source had no part.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from itertools import chain
from math import exp
from pathlib import Path
from statistics import mean, median

from perfsim.data.files import write_text
from perfsim.interval import (
    NO_METHOD,
    SIZE,
    UNCERTAINTY_COLUMNS,
    UNCERTAINTY_PARTS,
    UNCERTAINTY_SCHEMA,
    Uncertainty,
)
from perfsim.validate.measurements.report import validate_measurements
from perfsim.validate.measurements.residuals import (
    Residual,
    read_residuals,
    residuals_of,
)
from perfsim.validate.measurements.residuals import text_of as residuals_text
from perfsim.validate.measurements.scales import left_out

__all__ = ["held_out", "text_of"]


def text_of(found: Mapping[str, Uncertainty], date: str) -> str:
    """Return the record as the text of its file."""
    every = found[NO_METHOD]
    out = io.StringIO()
    out.write(
        f"# schema: {UNCERTAINTY_SCHEMA}\n"
        "# title: How far measured iterations lie from predicted ones, by what moves these\n"
        "# unit: natural logarithm of measured over predicted time (0.1: about 10 %), half of the"
        " 90 % interval of an iteration that moves with that part alone\n"
        "# source: python -m perfsim.validate.measurements.uncertainty;"
        f" {every.rows} iterations of {every.sources} sources\n"
        f"# date: {date}\n"
    )
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(UNCERTAINTY_COLUMNS)
    for name, one in found.items():
        sizes = [f"{one.sizes[part]:.4f}" for part in UNCERTAINTY_PARTS]
        writer.writerow([name, one.rows, one.sources, *sizes])
    return out.getvalue()


def held_out(
    residuals: Sequence[Residual], found: Mapping[str, Uncertainty]
) -> list[dict[str, str]]:
    """Return, by source, the share of rows inside the intervals fitted without it."""
    inside: dict[str, list[float]] = {}
    widths: dict[str, list[float]] = {}
    for one in residuals:
        low, high = found[one.source].interval(one.moves, 1.0)
        inside.setdefault(one.source, []).append(float(low <= exp(one.log) <= high))
        widths.setdefault(one.source, []).append((high - low) / 2.0)
    lines = {
        "all rows": ([*chain(*inside.values())], [*chain(*widths.values())]),
        "sources alike": ([mean(one) for one in inside.values()], [*map(median, widths.values())]),
        **{name: (inside[name], widths[name]) for name in sorted(inside)},
    }
    return [
        {
            "source": name,
            "count": str(len(held)),
            "coverage": f"{mean(held):.1%}",
            "half width": f"{median(wide):.1%}",
        }
        for name, (held, wide) in lines.items()
    ]


def main() -> None:
    """Predict, fit and write the record."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("measurements", type=Path, nargs="+")
    parser.add_argument("from_residuals", type=Path)
    parser.add_argument("residuals", type=Path)
    parser.add_argument("out", type=Path, required=True)
    parser.add_argument("date", required=True)
    given = parser.parse_args()
    if given.from_residuals:
        residuals = read_residuals(given.from_residuals)
    else:
        tables = [validate_measurements(path) for path in given.measurements or [None]]
        rows = {row.case.id: row for report in reversed(tables) for row in report.whole}
        residuals = residuals_of(rows.values())
    if given.residuals:
        write_text(given.residuals, residuals_text(residuals, given.date))
    found = left_out(residuals)
    for name, one in found.items():
        part = max(one.sizes, key=one.sizes.__getitem__)
        if not SIZE.holds(one.sizes[part]):
            parser.error(
                f"without {name} {part!r} has a size of {one.sizes[part]:.3g}, allowed is"
                f" {SIZE.words}: rows are off by more than any cluster is; is a unit wrong?"
            )
    write_text(given.out, text_of(found, given.date))
    for row in held_out(residuals, found):
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
