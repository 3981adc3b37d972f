"""Reads the collected tables: CSV with ``#`` lines on top."""

from __future__ import annotations

from pathlib import Path

from perfsim.data.tables import csv_rows, read_lines

__all__ = ["read_table"]


def read_table(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a table as column -> text.

    Raises
    ------
    DataError
        If the file cannot be read, lacks one of the ``needed`` columns or has a row cut short.
    """
    lines = read_lines(path)
    start = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return [cells for _, cells in csv_rows(lines, start, needed, path)]
