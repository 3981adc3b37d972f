"""Tables of training runs, as a user would give them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from perfsim.validate.training import TRAINING_COLUMNS

__all__ = ["table_of_runs"]


def table_of_runs(folder: Path, *runs: Mapping[str, str]) -> Path:
    """Write a table of runs, numbered from 1 where they have no id, and return its file."""
    path = folder / "runs.csv"
    head = dict.fromkeys((*TRAINING_COLUMNS, *(name for run in runs for name in run)))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, head)
        writer.writeheader()
        for index, run in enumerate(runs, 1):
            writer.writerow({"id": str(index), **run})
    return path
