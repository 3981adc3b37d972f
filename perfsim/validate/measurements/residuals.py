"""How far measured iterations were from their predictions, and what moved each: what is fitted."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from math import log1p
from pathlib import Path
from typing import NamedTuple

from perfsim.data.tables import read_table
from perfsim.interval import UNCERTAINTY_PARTS, Moves
from perfsim.validate.measurements.case import Case
from perfsim.validate.measurements.report import ComparedCase

__all__ = ["Residual", "read_residuals", "residuals_of", "text_of"]

SCHEMA = "perfsim/residuals/1"
SIDES = ("faster", "slower")
COLUMNS = (
    "id",
    "source",
    "residual",
    *(f"{part}_{side}" for part in UNCERTAINTY_PARTS for side in SIDES),
)

OWNER = re.compile(r"([\w.-]+)/[\w.-]+(?:@| branch )")
"""Who owns the repository that a row's provenance begins with."""


class Residual(NamedTuple):
    """One row: its source, log of measured over predicted time, and what moves the prediction."""

    id: str
    source: str
    log: float
    moves: Moves


def residuals_of(rows: Iterable[ComparedCase]) -> list[Residual]:
    """Return the residuals of rows that are whole iterations."""
    rows = list(rows)
    names = _sources([row.case for row in rows])
    # The error of a time is predicted over measured less 1, that of a rate the same of its time.
    return [
        Residual(row.case.id, names[row.case.origin], -log1p(row.error), row.moves) for row in rows
    ]


def _sources(cases: Sequence[Case]) -> dict[str, str]:
    """Return each origin's source: all origins that share a citation or an owner of repositories.

    The same people measure on the same clusters with the same code, so that one of their papers
    tells of the other's errors.
    """
    shared: dict[str, set[str]] = {}
    for case in cases:
        owner = OWNER.match(case.provenance)
        for key in (case.source or case.origin, owner[1].lower() + "/" if owner else ""):
            if key:
                shared.setdefault(key, set()).add(case.origin)
    groups: list[set[str]] = []
    for origins in shared.values():
        apart = [group for group in groups if not group & origins]
        groups = [*apart, origins.union(*(group for group in groups if group & origins))]
    return {origin: " ".join(sorted(group)) for group in groups for origin in group}


def text_of(residuals: Sequence[Residual], date: str) -> str:
    """Return residuals as the text of a file: what a fit needs, without predicting again."""
    out = io.StringIO()
    out.write(f"# schema: {SCHEMA}\n# date: {date}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in residuals:
        moves = [one.moves.get(part, (0.0, 0.0)) for part in UNCERTAINTY_PARTS]
        cells = [f"{value:.6g}" for move in moves for value in move]
        writer.writerow([one.id, one.source, f"{one.log:.6g}", *cells])
    return out.getvalue()


def read_residuals(path: Path) -> list[Residual]:
    """Return the residuals of a file that `text_of` made.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    return [
        Residual(
            cells["id"],
            cells["source"],
            float(cells["residual"]),
            {
                part: (float(cells[f"{part}_faster"]), float(cells[f"{part}_slower"]))
                for part in UNCERTAINTY_PARTS
            },
        )
        for _, cells in read_table(path, SCHEMA, COLUMNS)
    ]
