"""Measurements: what others measured, to hold predictions against.

``profiles/measurements/<name>.csv``: ``# key: value`` lines, then one row a measured value. Its
``role`` is ``calibration`` (used to fit that cluster or GPU), ``test`` (never used for a fit) or
``excluded`` (the note says why).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfsim.catalog import Catalog
from perfsim.quantity import Kind
from perfsim.table import check_word, kind_of, number, read_table

__all__ = ["Measurement", "load_measurements", "read_measurements"]

SCHEMA = "perfsim/measurements/1"
ROLES = ("calibration", "test", "excluded")
UNITS = ("samples/s", "s")
COLUMNS = (
    "id",
    "role",
    "scenario",
    "model",
    "gpu",
    "gpus",
    "network",
    "batch",
    "metric",
    "value",
    "deviation",
    "unit",
    "kind",
    "note",
)

TEXTS = ("id", "role", "scenario", "model", "gpu", "network", "metric", "unit", "note")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured value of one run; ``deviation`` is its standard deviation where stated.

    ``scenario`` names the shipped scenario that predicts it, empty for a row without one.
    """

    id: str
    role: str
    scenario: str
    model: str
    gpu: str
    gpus: int
    network: str
    batch: int
    metric: str
    value: float
    deviation: float | None
    unit: str
    kind: Kind
    note: str


def read_measurements(path: Path) -> list[Measurement]:
    """Read one file of measurements.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    found = []
    for row, cells in read_table(path, SCHEMA, COLUMNS):
        for column, allowed in (("role", ROLES), ("unit", UNITS)):
            check_word(cells[column], allowed, column, path, row)
        deviation = cells["deviation"]
        found.append(
            Measurement(
                **{name: cells[name] for name in TEXTS},
                gpus=int(number(cells["gpus"], "gpus", path, row, positive=True, whole=True)),
                batch=int(number(cells["batch"], "batch", path, row, positive=True, whole=True)),
                value=number(cells["value"], "value", path, row, positive=True),
                deviation=number(deviation, "deviation", path, row) if deviation else None,
                kind=kind_of(cells["kind"], path, row),
            )
        )
    return found


def load_measurements(catalog: Catalog) -> list[Measurement]:
    """Return the measurements of every file that the catalog finds."""
    return [
        measurement
        for path in catalog.files("measurements").values()
        for measurement in read_measurements(path)
    ]
