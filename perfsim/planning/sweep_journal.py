"""What a sweep has found so far, beside its output: an interrupted run goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfsim.calibrate.record import Record
from perfsim.planning.light import Row
from perfsim.planning.sweep import Engine, Sweep, Table

__all__ = ["SCHEMA", "SUFFIX", "finished", "resumed"]

SCHEMA = "perfsim/sweep-journal/1"
SUFFIX = ".journal"
"""What follows the name of the output."""

Tell = Callable[[int], None]
"""What is told of progress: how many rows there are now."""


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
    rows: list[Row] = []
    record = _record(out, sweep) if out is not None else None
    if record is not None:
        if record.path.exists() and not fresh:
            record.resume(lambda line: _take(rows, line))
        else:
            record.begin()
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


def _parts(sweep: Sweep, engine: Engine, done: int) -> Iterator[list[Row]]:
    chunks = sweep.chunks(done)
    return engine(sweep, chunks) if chunks else iter(())


def _record(out: Path, sweep: Sweep) -> Record:
    path = out.with_name(out.name + SUFFIX)
    setting = {"grid": sweep.digest(), "rows": len(sweep.grid)}
    return Record(path, SCHEMA, setting, what="a sweep", anew="--fresh begins anew")


def _take(rows: list[Row], line: Mapping[str, Any]) -> None:
    if line["start"] != len(rows):
        raise ValueError("rows are missing")
    rows += line["rows"]
