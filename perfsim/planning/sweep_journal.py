"""Check the rows of a sweep's journal before a stopped run goes on from them.

A journal lies where anyone may have written into it. A row that a prediction cannot have made is
refused, with what was found: another number of columns, a figure that is no number or out of its
range, a refusal of another scenario.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perfsim.data.files import forbidden
from perfsim.data.journal import WrongLineError
from perfsim.errors import shown
from perfsim.planning.grid import SweepGrid
from perfsim.planning.rows import FULL_SWEEP_COLUMNS, SWEEP_COLUMNS, SweepRow
from perfsim.prediction import PREDICTION_SCHEMA

__all__ = ["journal_rows"]

_ABOVE_ZERO = (
    *("iteration_s", "iteration_s_low", "iteration_s_high", "samples_per_s"),
    *("scaling_efficiency", "ssgd_iteration_s", "speedup"),
)
_TEXTS = ("bottleneck", "reason")
_TRUTHS = ("fits",)
_PARTS = {
    "breakdown_s": {
        *("forward", "backward", "compression", "second_order"),
        *("communication_exposed", "update", "other"),
    },
    "communication": {"bytes_per_gpu", "calls", "busy_s", "hidden_s"},
    "memory_bytes": set[str](),
}
"""Tables of numbers in a prediction object, and what each must have."""
_LARGEST = sys.float_info.max
_BELOW_ZERO = 1e-9
"""Share of an iteration by which a part of it may be below zero: parts are differences."""


def journal_rows(
    grid: SweepGrid, line: Mapping[str, Any], done: int, *, full: bool, objects: bool
) -> list[Any]:
    """Return the rows of one line of the journal, which must follow ``done`` rows.

    ``full`` and ``objects`` are those of the sweep.

    Raises
    ------
    WrongLineError
        If they are not the next rows of the grid, or one cannot have been predicted.
    """
    if not isinstance(line, dict) or line.keys() != {"start", "rows"}:
        raise WrongLineError("is not a table of `start` and `rows`")
    start, rows = line["start"], line["rows"]
    if any(map(forbidden, _texts_in(rows))):
        raise WrongLineError("holds a control character")
    if type(start) is not int or start != done:
        raise WrongLineError(f"begins with row {shown(start)}, where row {done} is next")
    if not isinstance(rows, list) or not rows:
        raise WrongLineError(f"holds {shown(rows)} in place of a list of rows")
    count = len(grid)
    if done + len(rows) > count:
        raise WrongLineError(f"holds row {done + len(rows) - 1}, the grid has {count:,} rows")
    if objects:
        return [_object(grid, done + index, row, full) for index, row in enumerate(rows)]
    columns = FULL_SWEEP_COLUMNS if full else SWEEP_COLUMNS
    return [_columns(columns, done + index, row) for index, row in enumerate(rows)]


def _columns(names: tuple[str, ...], number: int, row: object) -> SweepRow:
    """Return a row of columns, checked."""
    if not isinstance(row, list) or len(row) != len(names):
        raise WrongLineError(f"row {number} is {shown(row)}, not {len(names)} columns")
    reason = row[-1]
    if isinstance(reason, str) and reason:
        if any(value is not None for value in row[:-1]):
            raise WrongLineError(f"row {number} has figures and a reason for having none")
        return tuple(row)
    iteration_s = row[0]
    for name, value in zip(names, row, strict=True):
        if name in _TEXTS or name in _TRUTHS:
            kind = str if name in _TEXTS else bool
            if not isinstance(value, kind):
                wanted = "a text" if name in _TEXTS else "true or false"
                raise WrongLineError(f"row {number}: {name} is {shown(value)}, not {wanted}")
        else:
            _number(name, value, f"row {number}", iteration_s)
    return tuple(row)


def _number(name: str, value: object, where: str, iteration_s: object) -> None:
    """Refuse what is no number, or is out of its range."""
    # An integer of 400 digits is no float.
    number = type(value) in (int, float) and abs(value) <= _LARGEST  # type: ignore[arg-type]
    if name in _ABOVE_ZERO:
        if not number or value <= 0:  # type: ignore[operator]
            raise WrongLineError(f"{where}: {name} is {shown(value)}, not a number above 0")
    elif not number or value < -_BELOW_ZERO * iteration_s:  # type: ignore[operator]
        raise WrongLineError(f"{where}: {name} is {shown(value)}, not a number, 0 or more")


def _object(grid: SweepGrid, number: int, row: object, full: bool) -> dict[str, Any]:
    """Return a row that is a prediction object, or a scenario with its error, checked."""
    where = f"row {number}"
    if not isinstance(row, dict):
        raise WrongLineError(f"{where} is {shown(row)}, not a prediction")
    if "error" in row:
        fields = json.loads(json.dumps(grid.fields(number)))
        if row != {"scenario": fields, "error": row["error"]} or not _text(row["error"]):
            raise WrongLineError(f"{where} is of another scenario")
        return row
    if row.get("schema") != PREDICTION_SCHEMA or not isinstance(row.get("scenario"), dict):
        raise WrongLineError(f"{where} is no prediction of schema {PREDICTION_SCHEMA!r}")
    iteration_s, baseline = row.get("iteration_s"), row.get("baseline")
    for name in ("iteration_s", "samples_per_s", "scaling_efficiency"):
        _number(name, row.get(name), where, iteration_s)
    if not isinstance(baseline, dict) or not _text(baseline.get("method")):
        raise WrongLineError(f"{where}: baseline is {shown(baseline)}, not a table")
    for name in ("iteration_s", "speedup"):
        _number(name, baseline.get(name), f"{where}: baseline", iteration_s)
    for part, names in _PARTS.items():
        values = row.get(part)
        if not isinstance(values, dict) or not values or not values.keys() >= names:
            raise WrongLineError(f"{where}: {part} is {shown(values)}, not a table of numbers")
        for name, value in values.items():
            _number(name, value, f"{where}: {part}", iteration_s)
    if full:
        _whole(row, where, iteration_s)
    return row


def _whole(row: Mapping[str, Any], where: str, iteration_s: object) -> None:
    """Refuse what only whole predictions have, where it is wrong."""
    interval, notes = row.get("iteration_s_interval"), row.get("notes")
    if not isinstance(interval, list) or len(interval) != 2:
        raise WrongLineError(f"{where}: the interval is {shown(interval)}, not two numbers")
    for value in interval:
        _number("iteration_s", value, f"{where}: interval", iteration_s)
    if not _text(row.get("bottleneck")):
        found = shown(row.get("bottleneck"))
        raise WrongLineError(f"{where}: bottleneck is {found}, not a text")
    if not isinstance(notes, list) or not _texts(notes):
        raise WrongLineError(f"{where}: notes are {shown(notes)}, not texts")


def _texts_in(values: object) -> Iterator[str]:
    """Yield all keys and texts of a line."""
    left = [values]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
            left += value.values()
        elif isinstance(value, list):
            left += value


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)
