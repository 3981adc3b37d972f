"""How wrong predictions may be: limits of groups of cases, and what is outside them.

``profiles/measurements/limits.csv``: ``group`` in words, ``ids`` (patterns, spaces between),
``metrics`` (whole iterations, phases, or any), and the greatest ``median`` and ``p90`` of the
absolute relative error. They are targets: never loosened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.validate.measurements.answer import PHASES
from perfsim.validate.score import score

__all__ = ["LIMITS", "GroupLimit", "Miss", "limits_of", "misses", "read_limits"]

SCHEMA = "perfsim/limits/1"
LIMITS = "limits.csv"
COLUMNS = ("group", "ids", "metrics", "median", "p90")
METRICS = ("whole", "phases", "any")


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """What the errors of a group of cases may be."""

    group: str
    ids: tuple[str, ...]
    metrics: str
    median: float
    p90: float

    def holds(self, name: str, metric: str) -> bool:
        """Tell whether a case of this id and metric is in the group."""
        kind = "phases" if metric in PHASES else "whole"
        return self.metrics in (kind, "any") and any(fnmatchcase(name, one) for one in self.ids)


@dataclass(frozen=True, slots=True)
class Miss:
    """A limit that a group is outside of."""

    group: str
    count: int
    figure: str
    found: float
    limit: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return asdict(self)


def read_limits(path: Path) -> list[GroupLimit]:
    """Return the limits of a file.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    found = []
    for row, cells in read_table(path, SCHEMA, COLUMNS):
        check_word(cells["metrics"], METRICS, "metrics", path, row)
        most = [
            cell_number(cells[name], name, path, row, positive=True) for name in ("median", "p90")
        ]
        found.append(
            GroupLimit(cells["group"], tuple(cells["ids"].split()), cells["metrics"], *most)
        )
    return found


def limits_of(catalog: Catalog) -> list[GroupLimit]:
    """Return the limits that the catalog finds; none where there is no file."""
    path = catalog.beside("measurements", "", LIMITS)
    return [] if path is None else read_limits(path)


def misses(limits: Sequence[GroupLimit], errors: Iterable[tuple[str, str, float]]) -> list[Miss]:
    """Return what is outside its limit; ``errors`` are id, metric and absolute relative error."""
    rows = list(errors)
    found = []
    for limit in limits:
        figures = score(error for name, metric, error in rows if limit.holds(name, metric))
        for figure, value, most in (
            ("median", figures.median, limit.median),
            ("p90", figures.p90, limit.p90),
        ):
            if value is not None and value > most:
                found.append(Miss(limit.group, figures.count, figure, value, most))
    return found
