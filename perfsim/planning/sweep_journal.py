"""What a sweep has found so far, beside its output: an interrupted run goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfsim import __version__
from perfsim.journal import Record
from perfsim.planning.grid import Axis
from perfsim.planning.sweep import Engine, Sweep, Table

__all__ = ["SCHEMA", "SUFFIX", "finished", "resumed"]

SCHEMA = "perfsim/sweep-journal/1"
SUFFIX = ".journal"
"""What follows the name of the output."""

MOST_NAMED = 8
"""Values of a field that a refusal names."""

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
