"""How wrong predictions have been: many errors in a few numbers, and what is recorded by method."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

from perfsim.data.tables import cell_number, read_table

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog

__all__ = [
    "ACCURACY_COLUMNS",
    "ACCURACY_FILE",
    "ACCURACY_SCHEMA",
    "MethodAccuracy",
    "Score",
    "read_accuracy",
    "recorded_accuracy",
    "score",
]

ACCURACY_SCHEMA = "perfsim/accuracy-record/2"
ACCURACY_FILE = "accuracy.csv"
"""The record of all methods, ``profiles/methods/accuracy.csv``."""
ACCURACY_COLUMNS = ("method", "rows", "shipped", "median_error", "p90_error", "sources")


@dataclass(frozen=True, slots=True)
class Score:
    """How many predictions, and their absolute relative errors as fractions."""

    count: int
    median: float | None
    p90: float | None
    worst: float | None

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the four numbers by name."""
        return {
            "count": self.count,
            "median": self.median,
            "p90": self.p90,
            "worst": self.worst,
        }


def score(errors: Iterable[float]) -> Score:
    """Return count, median, 90th percentile (linear between ranks) and worst of errors.

    Examples
    --------
    >>> score([0.1, 0.3, 0.2])
    Score(count=3, median=0.2, p90=0.28, worst=0.3)
    """
    values = list(errors)
    if not values:
        return Score(0, None, None, None)
    # One value is all of its quantiles, but `quantiles` asks for two.
    p90 = quantiles(values * 2 if len(values) == 1 else values, n=10, method="inclusive")[-1]
    return Score(len(values), round(median(values), 12), round(p90, 12), max(values))


class MethodAccuracy(NamedTuple):
    """Recorded errors of one method: rows tested, and their absolute errors as fractions.

    ``shipped`` are those of the rows that come with perfsim; the licences of the others' sources do
    not allow it.
    """

    method: str
    rows: int
    shipped: int
    median_error: float
    p90_error: float
    sources: str

    def words(self) -> str:
        """Return the line in words."""
        ships = "all" if self.shipped == self.rows else self.shipped or "none"
        return (
            f"{self.rows} row{'s' * (self.rows != 1)} ({ships} of them shipped), median"
            f" {self.median_error:.0%}, p90 {self.p90_error:.0%} ({self.sources})"
        )


def read_accuracy(path: Path) -> list[MethodAccuracy]:
    """Return the recorded errors of each method.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    return [
        MethodAccuracy(
            cells["method"],
            int(cell_number(cells["rows"], "rows", path, row, positive=True, whole=True)),
            int(cell_number(cells["shipped"], "shipped", path, row, whole=True)),
            cell_number(cells["median_error"], "median_error", path, row),
            cell_number(cells["p90_error"], "p90_error", path, row),
            cells["sources"],
        )
        for row, cells in read_table(path, ACCURACY_SCHEMA, ACCURACY_COLUMNS)
    ]


def recorded_accuracy(catalog: Catalog) -> dict[str, MethodAccuracy]:
    """Return the recorded errors by method, as a catalog has them; none where it has no record.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.

    Examples
    --------
    >>> from perfsim.data.catalog import Catalog
    >>> recorded_accuracy(Catalog())["ssgd"].method
    'ssgd'
    """
    path = catalog.beside("methods", "", ACCURACY_FILE)
    return {line.method: line for line in read_accuracy(path)} if path else {}
