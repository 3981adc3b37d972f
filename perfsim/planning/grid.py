"""The grid of a sweep: fields of a scenario that vary, and every combination of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, get_args

from perfsim.errors import RequestError, unknown_option
from perfsim.field_names import GROUPS, is_field
from perfsim.limits import LONGEST, shown
from perfsim.planning.ranges import values_of
from perfsim.scenario import FLAGS, Scenario

__all__ = ["MOST_ROWS", "Axis", "Grid", "axes_of", "given"]

MOST_ROWS = 2_000_000
"""Rows are held in memory: about 300 bytes each."""

Value = str | int | float | bool
"""One value of one field, as a flag or a TOML file gives it."""


@dataclass(frozen=True)
class Axis:
    """One field that varies (``gpus``, ``options.density``) and its values in order."""

    field: str
    values: tuple[Value, ...]

    def set(self, fields: dict[str, Any], value: Value) -> None:
        """Put a value of the axis into a scenario's fields, without touching what they share."""
        group, dot, name = self.field.partition(".")
        if dot:
            fields[group] = {**fields.get(group, {}), name: value}
        else:
            fields[self.field] = value


@dataclass(frozen=True)
class Grid:
    """Every combination of the axes' values; the last axis changes fastest.

    ``base`` are the fields that do not vary; ``own`` those of its options that are for its own
    method only (a scenario file's), and are left out where a row takes another.

    Examples
    --------
    >>> grid = Grid({"model": "resnet50"}, axes_of({"gpus": "8..16", "net": "1gbe,10gbe"}))
    >>> [grid.values(row) for row in range(len(grid))]
    [('8', '1gbe'), ('8', '10gbe'), ('16', '1gbe'), ('16', '10gbe')]
    >>> grid.fields(2)
    {'model': 'resnet50', 'gpus': '16', 'net': '1gbe'}
    """

    base: Mapping[str, Any]
    axes: tuple[Axis, ...]
    own: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a grid that nobody waits for."""
        if len(self) > MOST_ROWS:
            raise RequestError(
                f"--vary: {len(self):,} rows; at most {MOST_ROWS:,}. Give fewer values."
            )

    def __len__(self) -> int:
        """Count the rows."""
        return prod(len(axis.values) for axis in self.axes)

    def place(self, row: int) -> tuple[int, ...]:
        """Return which value of each axis a row has."""
        found = []
        for axis in reversed(self.axes):
            row, index = divmod(row, len(axis.values))
            found.append(index)
        return tuple(reversed(found))

    def values(self, row: int) -> tuple[Value, ...]:
        """Return the values of the axes in a row."""
        pairs = zip(self.axes, self.place(row), strict=True)
        return tuple(axis.values[index] for axis, index in pairs)

    def fields(self, row: int) -> dict[str, Any]:
        """Return the scenario of a row, as fields not yet checked."""
        return self.combined(self.values(row))

    def combined(self, values: Iterable[Value]) -> dict[str, Any]:
        """Return the scenario with such values of the axes."""
        fields = dict(self.base)
        for axis, value in zip(self.axes, values, strict=True):
            if axis.field == "method" and value != fields.get("method", "ssgd") and self.own:
                kept = fields.get("options", {})
                fields["options"] = {
                    name: one for name, one in kept.items() if name not in self.own
                }
            axis.set(fields, value)
        return fields


def given(pairs: Sequence[str]) -> dict[str, str]:
    """Return what ``--vary FIELD=VALUES`` says, by field.

    Raises
    ------
    RequestError
        If one is not field=values, or a field is given twice.

    Examples
    --------
    >>> given(["gpus=8..64", "gpus-per-node=4,8"])
    {'gpus': '8..64', 'gpus_per_node': '4,8'}
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise RequestError(f"--vary: {shown(pair)} is not field=values, such as gpus=8..64.")
        head, dot, tail = name.partition(".")
        name = f"{head.lstrip('-').replace('-', '_')}{dot}{tail}"
        if name in found:
            raise RequestError(f"--vary: {shown(name)} is given twice.")
        found[name] = text
    return found


def axes_of(vary: Mapping[str, Any], where: str = "--vary: ") -> tuple[Axis, ...]:
    """Return the axes that a mapping of fields to values describes.

    Values are a text as ``values_of`` reads it, a list of values, or one value; a table
    ``options`` or ``fusion_options`` holds such fields of its own.

    Raises
    ------
    RequestError
        If a field is unknown, or has no value.

    Examples
    --------
    >>> axes_of({"gpus": "8..16", "options": {"density": [0.01, 0.1]}})[1]
    Axis(field='options.density', values=(0.01, 0.1))
    """
    flat: dict[str, Any] = {}
    for name, values in vary.items():
        nested = values if name in GROUPS and isinstance(values, Mapping) else None
        flat.update({name: values} if nested is None else _inside(name, nested))
    return tuple(_axis(name, values, where) for name, values in flat.items())


def _inside(group: str, table: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{group}.{name}": values for name, values in table.items()}


def _axis(name: str, values: Any, where: str) -> Axis:
    if not is_field(name) or len(name.partition(".")[2]) > LONGEST:
        allowed = [field for field in FLAGS if field not in GROUPS]
        raise unknown_option(where, "a scenario", name, [*allowed, "options.NAME"])
    listed = values if isinstance(values, list | tuple) else [values]
    found: list[Value] = []
    for value in listed:
        if isinstance(value, str):
            found += _named(name, value)
        elif isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
            found.append(value)
        elif name == "placement" and isinstance(value, list | tuple):
            found.append(",".join(map(str, value)))
        else:
            raise RequestError(f"{where}{name}: {shown(value)} is no value of a field.")
    if not found:
        raise RequestError(f"{where}{name} has no value.")
    return Axis(name, tuple(dict.fromkeys(found)))


def _named(name: str, text: str) -> list[str]:
    """Return the values of a text; ``method=all`` is every method."""
    if not text.strip():
        raise RequestError(f"--vary {name}: has no value.")
    if name == "method" and text.strip().lower() == "all":
        from perfsim.methods import method_names

        return method_names()
    return values_of(name, text, whole=_whole(name))


def _whole(name: str) -> bool | None:
    field = Scenario.model_fields.get(name)
    if field is None:
        return None
    kinds = {field.annotation, *get_args(field.annotation)}
    return int in kinds
