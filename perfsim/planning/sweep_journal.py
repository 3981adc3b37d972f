"""What a sweep has found so far, beside its output: an interrupted run goes on from there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfsim import __version__
from perfsim.calibrate.record import Record
from perfsim.errors import RequestError
from perfsim.planning.grid import Axis
from perfsim.planning.sweep import Engine, Sweep, Table

__all__ = ["SCHEMA", "SUFFIX", "check_output", "resumed"]

SCHEMA = "perfsim/sweep-journal/1"
SUFFIX = ".journal"
"""What follows the name of the output."""

MOST_NAMED = 8
"""Values of a field that a refusal names."""

Tell = Callable[[int], None]
"""What is told of progress: how many rows there are now."""


def check_output(path: Path) -> None:
    """Refuse an output that could not be written, before any work.

    Raises
    ------
    RequestError
        If its folder does not exist or may not be written, or it is a folder.
    """
    folder = path.resolve().parent
    reason = ""
    if path.is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = "its folder does not exist"
    elif not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        reason = "permission denied"
    if reason:
        raise RequestError(f"--out: {str(path)!r} cannot be written: {reason}.")


def resumed(
    sweep: Sweep, engine: Engine, out: Path | None, tell: Tell, *, fresh: bool = False
) -> Table:
    """Return the table of a sweep; with ``out``, each chunk is kept as soon as it is there.

    The journal, beside ``out``, is for whoever has written ``out`` to remove (``finished``).

    Raises
    ------
    RequestError
        If a journal is there that another grid, or other data, began.
    """
    rows: list[Any] = []
    record = _record(out, sweep) if out is not None else None
    if record is not None:
        record.open(lambda line: _take(rows, line), fresh=fresh)
    tell(len(rows))
    for part in _parts(sweep, engine, len(rows)):
        if record is not None:
            record.add({"start": len(rows), "rows": part})
        rows += part
        tell(len(rows))
    return Table(sweep, rows)


def finished(out: Path) -> None:
    """Remove the journal of an output that is written."""
    out.with_name(out.name + SUFFIX).unlink(missing_ok=True)


def _parts(sweep: Sweep, engine: Engine, done: int) -> Iterator[list[Any]]:
    chunks = sweep.chunks(done)
    return engine(sweep, chunks) if chunks else iter(())


def _record(out: Path, sweep: Sweep) -> Record:
    path = out.with_name(out.name + SUFFIX)
    return Record(path, SCHEMA, _setting(sweep), what="a sweep", anew="--fresh begins anew")


def _setting(sweep: Sweep) -> dict[str, Any]:
    """Return what must agree for rows to belong together: in words, then by a hash of it all."""
    whole = "whole predictions" if sweep.full else "iterations"
    return {
        "version": __version__,
        "scenario": " ".join(f"{name}={value}" for name, value in sweep.grid.base.items()),
        "vary": " ".join(_span(axis) for axis in sweep.grid.axes),
        "rows": f"{len(sweep.grid):,} {whole} as {'objects' if sweep.objects else 'columns'}",
        "grid and data": sweep.digest(),
    }


def _span(axis: Axis) -> str:
    values = list(map(str, axis.values))
    if len(values) > MOST_NAMED:
        values = [*values[: MOST_NAMED - 1], "...", values[-1]]
    return f"{axis.field}={','.join(values)}"


def _take(rows: list[Any], line: Mapping[str, Any]) -> None:
    if line["start"] != len(rows):
        raise ValueError("rows are missing")
    rows += line["rows"]
