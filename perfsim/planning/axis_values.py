"""Values of a sweep's axes that no row could have: they are refused before any row is predicted.

A name that does not exist, a file that is missing or damaged, or a value that its field never takes
is wrong whatever stands in the other fields. Values that do not go together are left to the rows,
which say why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import isfinite, prod
from operator import itemgetter
from typing import Any

from perfsim.collectives import find_algorithm
from perfsim.data.catalog import Catalog
from perfsim.errors import (
    DataError,
    MissingFileError,
    PerfsimError,
    RequestError,
    UnknownNameError,
)
from perfsim.fusion import policy_names
from perfsim.libraries import AUTO
from perfsim.methods import method_name, method_names
from perfsim.models import MODELS
from perfsim.planning.grid import Axis, GridValue, SweepGrid, number_of
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.session import Session

__all__ = ["check_values", "rows_tried"]

_MAX_CHECKED = 1000
"""Values of a field, numbers aside, that are checked."""

_DECIDING = ("method", "fusion")
"""Fields that say which options there are."""

_KINDS = {"gpu": "devices", "net": "networks", "intra_net": "networks", "node": "nodes"}
"""Fields that name files, and the kind of these."""


def check_values(grid: SweepGrid, profiles: str | None = None) -> None:
    """Refuse a value that no row could have.

    Of numbers the least and the greatest are checked, so that millions of them cost nothing.

    Raises
    ------
    RequestError
        If there is such a value.
    DataError
        If it names a file that is missing or damaged.

    Examples
    --------
    >>> from perfsim.planning.grid import axes_of
    >>> check_values(SweepGrid({"model": "resnet50", "gpus": 16}, axes_of({"method": "dgc,topc"})))
    Traceback (most recent call last):
    ...
    perfsim.errors.UnknownNameError: method: no 'topc'; did you mean 'topk'? ...
    """
    session = Session(profiles)
    _check_options(grid, session)
    for axis in grid.axes:
        if "." in axis.field:
            continue
        known = _known_names(axis.field, session)
        for value in _to_check(axis.values):
            _check_form(grid, axis.field, value)
            if known is not None and value not in known:
                _check_name(grid, axis.field, value, session)


def _row_with(grid: SweepGrid, values: Mapping[str, GridValue]) -> dict[str, Any]:
    """Return the scenario with some fields' values, and the first value of each other axis."""
    return grid.combined(values.get(axis.field, axis.values[0]) for axis in grid.axes)


def rows_tried(grid: SweepGrid, field: str, value: GridValue) -> list[dict[str, Any]]:
    """Return the rows in which a value is tried.

    They are one with the first value of each other axis, and those with the last one of one of
    them.
    """
    rows = [_row_with(grid, {field: value})]
    for axis in grid.axes:
        if axis.field != field:
            rows.append(_row_with(grid, {field: value, axis.field: axis.values[-1]}))
    return rows


def _check_options(grid: SweepGrid, catalog: Catalog) -> None:
    """Refuse a value of an option that no row of the grid could have.

    A value that is also refused without the other options comes first.
    """
    axes = [axis for axis in grid.axes if "." in axis.field]
    found = []
    for axis in axes:
        others = {one.field for one in axes if one is not axis}
        bare = replace(grid, axes=tuple(one for one in grid.axes if one.field not in others))
        for value in _to_check(axis.values):
            error = _option_refusal(grid, axis, value, catalog)
            if error is not None:
                found.append((_option_refusal(bare, axis, value, catalog) is None, error))
    if found:
        raise min(found, key=itemgetter(0))[1]


def _option_refusal(
    grid: SweepGrid, axis: Axis, value: GridValue, catalog: Catalog
) -> RequestError | None:
    """Return the error of an option's value where every row with it is refused for its options.

    Which options there are, and what they may be, depends on the method or fusion policy and on
    other options: the value is tried with all of these that vary. It is None where that are too
    many, and where no row is refused for this option.
    """
    group = axis.field.partition(".")[0]
    deciding = {
        one.field: _to_check(one.values)
        for one in grid.axes
        if one is not axis and (one.field in _DECIDING or one.field.startswith(f"{group}."))
    }
    if prod(map(len, deciding.values())) > _MAX_CHECKED:
        return None
    own = []
    for others in product(*deciding.values()):
        varied = dict(zip(deciding, others, strict=True)) | {axis.field: value}
        error = _resolved(_row_with(grid, varied), catalog)
        if not isinstance(error, RequestError) or error.field.partition(".")[0] != group:
            return None
        if axis.field in (error.field, f"{error.field}.{error.value}"):
            own.append(error)
    # A method that has the option says what is wrong with its value.
    return min(own, key=lambda one: one.field != axis.field, default=None)


def _resolved(fields: Mapping[str, Any], catalog: Catalog) -> PerfsimError | None:
    """Return the error with which a row is refused; None where it can be predicted."""
    try:
        resolve(make_scenario(fields), catalog)
    except PerfsimError as error:
        return error
    return None


def _to_check(values: Sequence[GridValue]) -> list[GridValue]:
    """Return the ends of the numbers among some values, by their units, and the other values."""
    try:
        numbers = list(map(float, values))
    except (ValueError, OverflowError):
        numbers = []
    if numbers and all(map(isfinite, numbers)):
        return [values[numbers.index(end(numbers))] for end in (min, max)]
    ends: dict[str, list[tuple[float, GridValue]]] = {}
    others: list[GridValue] = []
    for value in values:
        size = number_of(value) if isinstance(value, str) else None
        if size is None:
            others.append(value)
            continue
        number, unit = size
        low, high = ends.get(unit, [(number, value)] * 2)
        ends[unit] = [min(low, (number, value)), max(high, (number, value))]
    of_units = [value for pair in list(ends.values())[:_MAX_CHECKED] for _, value in pair]
    return [*others[:_MAX_CHECKED], *dict.fromkeys(of_units)]


def _check_form(grid: SweepGrid, field: str, value: GridValue) -> None:
    """Refuse a value that its field cannot have, whatever stands in the other fields.

    It is refused in the same words by itself and in every row that is tried.
    """
    usual = {name: grid.base[name] for name in ("model", "gpus") if name in grid.base}
    tried = [usual | {field: value}, *rows_tried(grid, field, value)]
    refusals = [_refusal(field, fields) for fields in tried]
    said = {None if one is None else one.why for one in refusals}
    if len(said) == 1 and refusals[0] is not None:
        raise refusals[0]


def _refusal(field: str, fields: Mapping[str, Any]) -> RequestError | None:
    """Return the error of a scenario that is refused for a field; None where it is not."""
    try:
        make_scenario(fields)
    except RequestError as error:
        return error if error.field == field else None
    return None


def _known_names(field: str, catalog: Catalog) -> frozenset[str] | None:
    """Return names that exist for sure; None of a field that names nothing to look up."""
    if field in _KINDS:
        return frozenset(catalog.files(_KINDS[field]))
    if field == "model":
        return frozenset({*catalog.files("models"), *MODELS})
    if field == "method":
        return frozenset(method_names())
    if field == "fusion":
        return frozenset(policy_names())
    return frozenset() if field in ("algorithm", "protocol", "library", "wan", "beside") else None


def _check_name(grid: SweepGrid, field: str, value: GridValue, catalog: Catalog) -> None:
    """Refuse a value that names what does not exist, or a file that is missing or damaged.

    What is wrong with a file is said in the same words in every row that is tried.
    """
    first, *others = rows_tried(grid, field, value)
    try:
        scenario = make_scenario(first)
    except PerfsimError:
        return
    if field == "method":
        method_name(scenario.method)
    if field == "algorithm" and scenario.algorithm != AUTO:
        find_algorithm("all_reduce", scenario.algorithm)
    error = _resolved(first, catalog)
    if isinstance(error, UnknownNameError | MissingFileError) and error.field == field:
        raise error
    if isinstance(error, DataError) and error.path == str(value):
        said = {str(_resolved(fields, catalog)) for fields in others}
        if said <= {str(error)}:
            raise error
