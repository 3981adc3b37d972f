"""The grid of a sweep: fields of a scenario that vary, and every combination of their values.

Values are written as texts: lists such as ``8,16`` and ranges such as ``8..64``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from math import isfinite, prod
from typing import Any, get_args

from perfsim.errors import MAX_QUOTED, RequestError, shown, unknown_option
from perfsim.models.specification import GENERIC, TRANSFORMER
from perfsim.quantity import NumberLimit
from perfsim.scenario import (
    OPTION_GROUPS,
    SCENARIO_FIELDS,
    SHOWS_FIELDS,
    Scenario,
    is_field,
    python_value,
)
from perfsim.units import RATE_UNITS, SAMPLE_RATE_UNITS, SIZE_UNITS, TIME_UNITS

__all__ = [
    "MAX_AXIS_VALUES",
    "MAX_GRID_ROWS",
    "Axis",
    "GridValue",
    "SweepGrid",
    "axes_of",
    "expand",
    "number_of",
    "parse_vary",
    "sweep_grid",
    "values_of",
]

MAX_GRID_ROWS = 2_000_000
"""Rows are kept in memory: about 300 bytes each."""

MAX_AXIS_VALUES = 1_000_000
"""Values of one field."""

_MAX_SPREAD = 100_000
"""Values between two ends: decimals are slow to raise to a power."""

_LINK_FIELDS = ("net", "intra_net")
_FILE_FIELDS = (*_LINK_FIELDS, "model", "node", "gpu", "beside")
"""Fields that may name files, whose paths may have two points: ../mine.toml."""
_LIST_FIELDS = ("placement", "site", "stage_layers", "wan")
"""Fields of which one value is itself a list with commas: semicolons stand between values."""
_RANGE_EXAMPLES = {
    "net": "1Gbit/s..100Gbit/s",
    "intra_net": "4GB/s..32GB/s",
    "bucket": "1MiB..32MiB",
    "single_gpu": "100ms..400ms",
    "single_gpu_kernels": "1ms..8ms",
}
"""Fields whose numbers need a unit, and a range of each as an example."""

_DIGITS = 12
"""Significant digits of a value between the ends of a range."""

_RANGE_ENDS = NumberLimit(1e-30, 1e30, "1e-30 to 1e30")
"""Limits of the numbers in a range."""

_RANGE_FORMS = "A..B doubles, A..B:S steps by S, A..B:linN and A..B:logN are N values"

_NUMBER = re.compile(
    r"\s*+([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)\s*+([^\d\s.]\S*+)?\s*+"
)
_UNITS: Sequence[Mapping[str, float]] = (
    TIME_UNITS,
    SIZE_UNITS,
    RATE_UNITS,
    SAMPLE_RATE_UNITS,
    {"%": 1.0},
    {"": 1.0},
)

GridValue = str | int | float | bool
"""One value of one field, as a flag or a TOML file gives it."""


@dataclass(frozen=True)
class Axis:
    """One field that varies (``gpus``, ``options.density``) and its values in order."""

    field: str
    values: tuple[GridValue, ...]

    def set(self, fields: dict[str, Any], value: GridValue) -> None:
        """Put a value of the axis into a scenario's fields, without touching what they share."""
        group, dot, name = self.field.partition(".")
        if dot:
            fields[group] = {**fields.get(group, {}), name: value}
        else:
            fields[self.field] = value


@dataclass(frozen=True)
class SweepGrid:
    """Every combination of the axes' values; the last axis changes fastest.

    ``base`` has the fields that do not vary. ``own`` names those of its options that are for its
    own method only (those of a scenario file); rows of other methods leave them out. An option
    ``METHOD.NAME`` is for the rows of one method, as in `compare`; see `sweep_grid`.

    Examples
    --------
    >>> grid = SweepGrid({"model": "resnet50"}, axes_of({"gpus": "8..16", "net": "1gbe,10gbe"}))
    >>> [grid.values(row) for row in range(len(grid))]
    [('8', '1gbe'), ('8', '10gbe'), ('16', '1gbe'), ('16', '10gbe')]
    >>> grid.fields(2)
    {'model': 'resnet50', 'gpus': '16', 'net': '1gbe'}
    """

    base: Mapping[str, Any]
    axes: tuple[Axis, ...]
    own: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a grid that is too large."""
        if len(self) > MAX_GRID_ROWS:
            raise RequestError(
                "vary", f"{len(self):,} rows; at most {MAX_GRID_ROWS:,}. Give fewer values."
            )

    def __len__(self) -> int:
        """Count the rows."""
        return prod(len(axis.values) for axis in self.axes)

    @cached_property
    def _steps(self) -> list[tuple[int, int]]:
        """For each axis: the rows from one of its values to the next, and how many it has."""
        counts = [len(axis.values) for axis in self.axes]
        return [(prod(counts[at + 1 :]), count) for at, count in enumerate(counts)]

    def indices(self, row: int) -> tuple[int, ...]:
        """Return the index of each axis's value in a row."""
        return tuple([row // step % count for step, count in self._steps])

    def values(self, row: int) -> tuple[GridValue, ...]:
        """Return the values of the axes in a row."""
        pairs = zip(self.axes, self.indices(row), strict=True)
        return tuple(axis.values[index] for axis, index in pairs)

    def fields(self, row: int) -> dict[str, Any]:
        """Return the scenario of a row, as fields not yet checked."""
        return self.combined(self.values(row))

    def combined(self, values: Iterable[GridValue]) -> dict[str, Any]:
        """Return the scenario with these values of the axes."""
        fields = dict(self.base)
        for axis, value in zip(self.axes, values, strict=True):
            if axis.field == "method" and value != fields.get("method", "ssgd") and self.own:
                kept = fields.get("options", {})
                fields["options"] = {
                    name: option for name, option in kept.items() if name not in self.own
                }
            axis.set(fields, value)
        if self._by_method:
            named = _named_method(fields.get("method", _METHOD))
            fields["options"] = _of_method(fields["options"], named)
        return fields

    @cached_property
    def _by_method(self) -> bool:
        """Whether some option is for the rows of one method."""
        return any("." in name for name in self.base.get("options") or {})


def sweep_grid(
    base: Mapping[str, Any], axes: Sequence[Axis], own: tuple[str, ...] = ()
) -> SweepGrid:
    """Build a grid in which an option may be one method's: ``options.METHOD.NAME``.

    Where a sweep has one method alone, it is that method's option ``NAME``.

    Raises
    ------
    RequestError
        If the sweep has no such method, the option varies under both of its names, or that of one
        of several methods varies: rows of the others would be the same.

    Examples
    --------
    >>> given = {"model": "resnet50", "options": {"topk.density": "1%"}}
    >>> grid = sweep_grid(given, axes_of({"method": "topk,ssgd"}))
    >>> [grid.fields(row)["options"] for row in range(len(grid))]
    [{'density': '1%'}, {}]
    """
    varied = {axis.field: axis.values for axis in axes}
    methods = {_named_method(one) for one in varied.get("method", [base.get("method", _METHOD)])}
    given = base.get("options")
    options = given if isinstance(given, Mapping) else {}
    owned = [name for name in options if "." in name]
    for name in owned:
        _check_swept(name, methods, f"options.{name}")
    if owned and len(methods) == 1:
        base = {**base, "options": _of_method(options, *methods)}
    found: dict[str, Axis] = {}
    for axis in axes:
        plain = _plain_axis(axis, methods)
        if plain.field in found:
            name = axis.field.removeprefix("options.")
            raise RequestError(
                f"vary.{name}", f"{plain.field} varies already; give one of the two."
            )
        found[plain.field] = plain
    return SweepGrid(base, tuple(found.values()), own)


def _plain_axis(axis: Axis, methods: set[str]) -> Axis:
    """Return an axis of an option of the one method of a sweep under the option's own name."""
    group, _, name = axis.field.partition(".")
    if group != "options" or "." not in name:
        return axis
    owner = _check_swept(name, methods, f"vary.{name}")
    option = name.partition(".")[2]
    if len(methods) > 1:
        why = (
            f"rows of other methods would be alike for each value; sweep {owner} by itself, or vary"
            f" options.{option} for all that have it."
        )
        raise RequestError(f"vary.{name}", why)
    return replace(axis, field=f"options.{option}")


def _check_swept(name: str, methods: set[str], field: str) -> str:
    """Return the method of an option METHOD.NAME; refuse one that is not swept."""
    owner = _named_method(name.partition(".")[0])
    if owner not in methods:
        why = f"{owner} is not among the methods of the sweep: {', '.join(sorted(methods))}."
        raise RequestError(field, why)
    return owner


def _of_method(options: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return the options of a method: those for all, then those that are for it alone."""
    plain = {name: value for name, value in options.items() if "." not in name}
    parts = [(name.partition("."), value) for name, value in options.items() if "." in name]
    own = {name: value for (owner, _, name), value in parts if _named_method(owner) == method}
    return plain | own


def _named_method(text: Any) -> str:
    """Return a method's own name; a text that is none as it is, which its row is refused for."""
    from perfsim.methods import method_name

    try:
        return method_name(str(text))
    except RequestError:
        return str(text)


_METHOD = Scenario.model_fields["method"].default
"""The method of a scenario that names none."""


def parse_vary(pairs: Sequence[str]) -> dict[str, str]:
    """Read texts such as ``gpus=8..64`` into values by field.

    Raises
    ------
    RequestError
        If one is not field=values, or a field is given twice.

    Examples
    --------
    >>> parse_vary(["gpus=8..64", "gpus-per-node=4,8"])
    {'gpus': '8..64', 'gpus_per_node': '4,8'}
    """
    fields: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise RequestError("vary", f"{shown(pair)} is not field=values, such as gpus=8..64.")
        head, dot, tail = name.partition(".")
        name = f"{head.lstrip('-').replace('-', '_')}{dot}{tail}"
        if name in fields:
            raise RequestError("vary", f"{shown(name)} is given twice.")
        fields[name] = text
    return fields


def axes_of(vary: Mapping[str, Any], source: str = "") -> tuple[Axis, ...]:
    """Build the axes from a mapping of fields to values.

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
    if not isinstance(vary, Mapping):
        why = f"{shown(vary)} is not a table of fields and their values."
        raise RequestError("vary", why, value=vary, source=source)
    flat: dict[str, Any] = {}
    for name, values in vary.items():
        nested = values if name in OPTION_GROUPS and isinstance(values, Mapping) else None
        flat.update({name: values} if nested is None else _inside(name, nested))
    return tuple(_axis(name, values, source) for name, values in flat.items())


def _inside(group: str, table: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{group}.{name}": values for name, values in table.items()}


def _axis(name: str, given: Any, source: str) -> Axis:
    name = _with_group(name)
    if not is_field(name) or len(name.partition(".")[2]) > MAX_QUOTED:
        allowed = [field for field in SCENARIO_FIELDS if field not in OPTION_GROUPS]
        raise unknown_option(
            "a scenario",
            name,
            [*allowed, "options.NAME"],
            field="vary",
            source=source,
            shown_by=SHOWS_FIELDS,
        )
    alone = isinstance(given, str | Mapping) or not isinstance(given, Iterable)
    listed = [given] if alone else list(given)
    values: list[GridValue] = []
    for value in map(python_value, listed):
        if isinstance(value, str) and not alone and _is_whole(name, value):
            values.append(value)
        elif isinstance(value, str):
            values += _named(name, value)
        elif isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
            values.append(value)
        elif name in _LIST_FIELDS and isinstance(value, list | tuple):
            values.append(",".join(map(str, value)))
        else:
            raise RequestError(
                f"vary.{name}", f"{shown(value)} is no value of a field.", source=source
            )
    if not values:
        raise RequestError(f"vary.{name}", "has no value.", source=source)
    return Axis(name, tuple(dict.fromkeys(values)))


def _with_group(name: str) -> str:
    """Return a field; an option that is named after its method (topk.density) as options.it."""
    group, dot, _ = name.partition(".")
    if not dot or group in OPTION_GROUPS:
        return name
    from perfsim.methods import method_names

    return f"options.{name}" if _named_method(group) in method_names() else name


def _is_whole(name: str, text: str) -> bool:
    """Tell whether a text of a list is one value: links of sites, or several types of GPU."""
    return name == "wan" or (name == "gpu" and ":" in text)


def _named(name: str, text: str) -> list[str]:
    """Return the values of a text; ``method=all`` is every method."""
    if not text.strip():
        raise RequestError(f"vary.{name}", "has no value.")
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


def values_of(field: str, text: str, *, whole: bool | None = None) -> list[str]:
    """Return the values that ``text`` lists for a field, each as a user would write it.

    Parts are separated by commas, or by semicolons where a value itself has commas (placement,
    site). In a network, a latency belongs to the rate before it; in a model, NAME=VALUE to the
    numbers before it.

    Parameters
    ----------
    whole : the field takes whole numbers; None if that follows from the ends of a range

    Raises
    ------
    RequestError
        If there is no value, or a range is empty or cannot be read.

    Examples
    --------
    >>> values_of("gpus", "8..32,48")
    ['8', '16', '32', '48']
    >>> values_of("net", "1gbe,1Gbit/s..100Gbit/s:log3,50us")
    ['1gbe', '1Gbit/s,50us', '10Gbit/s,50us', '100Gbit/s,50us']
    >>> values_of("placement", "3,5;4,4"), values_of("gpu", "v100:8+p100:8,v100:16")
    (['3,5', '4,4'], ['v100:8+p100:8', 'v100:16'])
    """
    several = field in _LIST_FIELDS
    separator = ";" if ";" in text or several else ","
    parts = [part.strip() for part in text.split(separator)]
    if not all(parts):
        raise RequestError(f"vary.{field}", f"{shown(text)} has an empty value.")
    if field in _LINK_FIELDS:
        parts = _links(parts)
    if field == "model":
        parts = _stated_models(parts)
    values: list[str] = []
    for part in parts:
        if several:
            values.append(part)
        elif field in _LINK_FIELDS and "," in part:
            rate, latency = part.split(",", 1)
            latencies = expand(field, latency.strip())
            values += [
                f"{each},{other}" for each in expand(field, rate.strip()) for other in latencies
            ]
        else:
            values += expand(field, part, whole=whole)
        if len(values) > MAX_AXIS_VALUES:
            raise RequestError(f"vary.{field}", f"more than {MAX_AXIS_VALUES:,} values.")
    return list(dict.fromkeys(values))


def _links(parts: Sequence[str]) -> list[str]:
    """Return parts with each latency joined to the rate before it."""
    values: list[str] = []
    for part in parts:
        match = _NUMBER.fullmatch(part.partition("..")[0])
        if values and match and match[2] in TIME_UNITS:
            values[-1] = f"{values[-1]},{part}"
        else:
            values.append(part)
    return values


def _stated_models(parts: Sequence[str]) -> list[str]:
    """Return parts with each NAME=VALUE joined to the model that is stated by numbers before it."""
    values: list[str] = []
    for part in parts:
        stated = bool(values) and values[-1].startswith((TRANSFORMER, GENERIC))
        if stated and "=" in part and ":" not in part:
            values[-1] = f"{values[-1]},{part}"
        else:
            values.append(part)
    return values


def number_of(text: str) -> tuple[float, str] | None:
    """Return the number and the unit of a text; None where it is no number with a unit.

    Examples
    --------
    >>> number_of("25 MiB"), number_of("10Gbit/s,50us"), number_of("10gbe")
    ((25.0, 'MiB'), (10.0, 'Gbit/s,50us'), None)
    """
    first, comma, rest = text.partition(",")
    match = _NUMBER.fullmatch(first)
    if match is None or not any((match[2] or "") in units for units in _UNITS):
        return None
    return float(match[1]), f"{match[2] or ''}{comma}{rest}"


def expand(field: str, text: str, *, whole: bool | None = None) -> list[str]:
    """Return the values of a range, or the text itself where it is none.

    Raises
    ------
    RequestError
        If the range is empty, or its ends or step cannot be read.

    Examples
    --------
    >>> expand("bucket", "1MiB..8MiB")
    ['1MiB', '2MiB', '4MiB', '8MiB']
    >>> expand("gpus", "8..24:8"), expand("gpus", "8..64:log3", whole=True)
    (['8', '16', '24'], ['8', '23', '64'])
    >>> expand("options.density", "0.001..0.1:log3")
    ['0.001', '0.01', '0.1']
    """
    if ".." not in text or (
        field in _FILE_FIELDS and not _NUMBER.fullmatch(text.partition("..")[0])
    ):
        return [text]
    ends, _, step = text.partition(":")
    first, unit = _end(field, text, ends.partition("..")[0])
    last, other = _end(field, text, ends.partition("..")[2])
    if field in _RANGE_EXAMPLES and not unit:
        raise RequestError(
            f"vary.{field}",
            f"{shown(text)} has no unit where it begins; write it like {_RANGE_EXAMPLES[field]}.",
        )
    last *= _ratio(field, text, other or unit, unit)
    if last < first:
        raise RequestError(
            f"vary.{field}", f"{shown(text)} is empty: it ends below where it begins."
        )
    if whole is None:
        whole = not unit and first == int(first) and last == int(last)
    numbers = _between(field, text, first, last, step.strip(), unit)
    if whole and step.strip().startswith(("lin", "log")):
        numbers = [Decimal(round(number)) for number in numbers]
    return list(dict.fromkeys(f"{_plain(number)}{unit}" for number in numbers))


def _between(
    field: str, text: str, first: Decimal, last: Decimal, step: str, unit: str
) -> list[Decimal]:
    if not step:
        if first <= 0:
            raise RequestError(
                f"vary.{field}",
                f"the first value of {shown(text)} is not allowed: to be doubled it must be"
                " above 0.",
            )
        return _until(field, first, last, lambda number: number * 2)
    if step.startswith(("lin", "log")):
        return _spread(field, text, first, last, step)
    by, own = _end(field, text, step)
    by *= _ratio(field, text, own or unit, unit)
    if by <= 0:
        raise RequestError(
            f"vary.{field}", f"the step of {shown(text)} is not allowed: it must be above 0."
        )
    return _until(field, first, last, lambda number: number + by)


def _until(
    field: str, first: Decimal, last: Decimal, following: Callable[[Decimal], Decimal]
) -> list[Decimal]:
    numbers = [first]
    while (number := following(numbers[-1])) <= last:
        numbers.append(number)
        if len(numbers) > MAX_AXIS_VALUES:
            raise RequestError(f"vary.{field}", f"more than {MAX_AXIS_VALUES:,} values.")
    return numbers


def _spread(field: str, text: str, first: Decimal, last: Decimal, step: str) -> list[Decimal]:
    """Return values from end to end: ``linN`` evenly apart, ``logN`` by equal factors."""
    even, count = step[:3], step[3:]
    if not count.isdecimal() or len(count) > MAX_QUOTED or not 2 <= int(count) <= _MAX_SPREAD:
        raise RequestError(
            f"vary.{field}",
            f"{shown(text)} asks for {count[:MAX_QUOTED] or 'no'} values; write how"
            f" many, from 2 to {_MAX_SPREAD:,}, such as {even}5.",
        )
    if even == "log" and first <= 0:
        raise RequestError(f"vary.{field}", f"{shown(text)} has no logarithm at its beginning.")
    parts = [Decimal(index) / (int(count) - 1) for index in range(1, int(count) - 1)]
    if even == "log":
        inner = [first * (last / first) ** part for part in parts]
    else:
        inner = [first + (last - first) * part for part in parts]
    return [first, *(Decimal(f"{number:.{_DIGITS - 1}e}") for number in inner), last]


def _end(field: str, text: str, part: str) -> tuple[Decimal, str]:
    match = _NUMBER.fullmatch(part)
    if match is None or not any((match[2] or "") in units for units in _UNITS):
        raise RequestError(
            f"vary.{field}",
            f"{shown(part.strip())} in {shown(text)} is no number, with a unit"
            f" where the field has one; {_RANGE_FORMS}.",
        )
    if float(match[1]) and not _RANGE_ENDS.holds(abs(float(match[1]))):
        raise RequestError(
            f"vary.{field}",
            f"{shown(part.strip())} in {shown(text)} is not allowed: it must be"
            f" {_RANGE_ENDS.words}.",
        )
    return Decimal(match[1] if float(match[1]) else 0), match[2] or ""


def _ratio(field: str, text: str, unit: str, to: str) -> Decimal:
    """Return how many of unit ``to`` one ``unit`` is."""
    if unit == to:
        return Decimal(1)
    for units in _UNITS:
        if unit in units and to in units:
            return Decimal(repr(units[unit])) / Decimal(repr(units[to]))
    raise RequestError(
        f"vary.{field}", f"{shown(text)} mixes {unit or 'no unit'!r} with {to or 'no unit'!r}."
    )


def _plain(number: Decimal) -> str:
    """Return a number without exponent or zeros at the end."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
