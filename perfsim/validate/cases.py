"""Cases: published results as tables of measurements state them, in the tables' own words.

A table is CSV with ``# key: value`` lines before its head. Its ``scenario`` column may state the
scenario that predicts a row in one cell: ``net=10gbe; method=topk; options.density=0.01``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.data.tables import (
    MAX_COMMAS,
    cell_number,
    check_word,
    csv_rows,
    leave_out,
    read_lines,
)
from perfsim.errors import DataError, RequestError, newer, shown
from perfsim.scenario_file import read_scenario
from perfsim.validate.low_communication import (
    is_low_communication_table,
    read_low_communication_rows,
)
from perfsim.validate.training import is_training_table, read_training_rows

__all__ = [
    "CASES_SCHEMA",
    "CASE_COLUMNS",
    "_CASE_ROLES",
    "Case",
    "cases_of",
    "fields_text",
    "nested_fields",
    "parse_fields",
    "read_cases",
    "read_header",
    "same_source",
    "shipped_cases",
]

CASES_SCHEMA = "perfsim/measurements/2"
_CASE_ROLES = ("calibration", "test", "excluded", "missing")

CASE_COLUMNS = (
    "id",
    "system",
    "model",
    "gpu",
    "gpus",
    "gpus_per_node",
    "network",
    "batch_per_gpu",
    "fusion",
    "rank_or_density",
    "metric",
    "value",
    "notes",
)
"""Columns that a table of cases must hold. It may also hold source and provenance (where the row is
published), seen_or_memory (whether it was seen or only recalled), role and reason (what it is for,
and why), scenario (that predicts it), rated and calibrated (fields that these ways of asking add).
Other columns are ignored."""

_OWNER = re.compile(r"([\w.-]+)/[\w.-]+ ?(?:@| branch )")
"""A repository at a commit or branch: ``owner/name@commit``."""

_UNVERIFIED = "not verified by"
"""Part of a notice: a source that has it is quoted wherever its figures are shown."""


@dataclass(frozen=True, slots=True)
class Case:
    """One published value: the cells of its row as texts, and its value in the metric's unit.

    ``rated`` and ``calibrated`` are what these ways of asking know besides ``scenario``;
    ``missing`` is what perfsim lacks to predict it, such as "tensor parallelism". ``accumulate``
    are micro-batches of an iteration (``batch_per_gpu`` is then that of one), ``recompute`` what
    the backward pass computes again, ``split`` how the model is split, as a scenario cell states
    it: ``tp=8; pp=4``. With a split ``batch_per_gpu`` is that of one replica.
    """

    id: str
    system: str
    model: str
    gpu: str
    gpus: str
    gpus_per_node: str
    network: str
    batch_per_gpu: str
    fusion: str
    rank_or_density: str
    metric: str
    value: float
    notes: str
    source: str = ""
    provenance: str = ""
    seen_or_memory: str = ""
    role: str = ""
    reason: str = ""
    scenario: str = ""
    rated: str = ""
    calibrated: str = ""
    publisher: str = ""
    missing: str = ""
    accumulate: str = ""
    recompute: str = ""
    split: str = ""

    @property
    def group(self) -> str:
        """The source in short: the row's publisher, else its id up to the last hyphen."""
        return self.publisher or self.id.rpartition("-")[0] or self.id

    @property
    def notice(self) -> str:
        """The notice to show with the row: that its publisher did not verify it; else ""."""
        return self.source.partition(":")[0].strip() if _UNVERIFIED in self.source else ""

    def whole(self, column: str) -> int | None:
        """Return a cell as a whole number above zero, else None."""
        text = getattr(self, column)
        return int(text) if text.isdecimal() and int(text) > 0 else None

    @property
    def owner(self) -> str:
        """The owner of the repository with which its provenance begins, in small letters, or ""."""
        match = _OWNER.match(self.provenance)
        return match[1].lower() if match else ""

    @property
    def origin(self) -> str:
        """The source with all its parts: the publisher, or the id, up to its first hyphen."""
        return (self.publisher or self.id).partition("-")[0]


_TEXT_FIELDS = tuple(field.name for field in fields(Case) if field.name != "value")


def read_cases(path: Path, bad: list[DataError] | None = None) -> list[Case]:
    """Return the cases of a table; ``#`` lines before its head are its header.

    A table of training runs (`perfsim.validate.training`) and one of runs that communicate less
    (`perfsim.validate.low_communication`) are told by their columns.

    Parameters
    ----------
    path : the table
    bad : takes rows that cannot be read, which are then left out; None refuses the whole table

    Raises
    ------
    DataError
        If the file cannot be read, is of a newer schema, lacks a column or holds no case; without
        ``bad`` also if an id stands twice, a role is unknown or a value is no number.
    """
    lines = read_lines(path)
    start = next((index for index, line in enumerate(lines) if not line.startswith("#")), 0)
    head = lines[start].replace('"', "").split(",", MAX_COMMAS) if lines else []
    if is_low_communication_table(head):
        return [Case(**fields) for fields in read_low_communication_rows(path, lines, start, bad)]
    if is_training_table(head):
        return [Case(**fields) for fields in read_training_rows(path, lines, start, bad)]
    source = read_header(path, lines[:start]).get("source", "")
    cases: list[Case] = []
    seen: dict[str, int] = {}
    for row, cells in csv_rows(lines, start, CASE_COLUMNS, path, bad):
        try:
            case = _case(cells, source, seen, path, row)
        except DataError as error:
            leave_out(error, bad)
            continue
        seen[case.id] = row
        cases.append(case)
    if not cases:
        raise DataError("holds no case", path=path)
    return cases


def _case(
    cells: Mapping[str, str], source: str, seen: Mapping[str, int], path: Path, row: int
) -> Case:
    """Return the case of a row; ``seen`` are the ids before it, with their lines."""
    name = cells["id"]
    if not name or name in seen:
        wrong = f"{name!r} stands on line {seen[name]} already" if name else "is empty"
        raise DataError(wrong, path=path, row=row, column="id")
    if cells.get("role"):
        check_word(cells["role"], _CASE_ROLES, "role", path, row)
    value = cell_number(cells["value"], "value", path, row)
    texts = {text: cells.get(text, "") for text in _TEXT_FIELDS}
    texts["source"] = texts["source"] or source
    return Case(**texts, value=value)


def same_source(cases: Sequence[Case]) -> dict[str, str]:
    """Return each origin's source: all origins that share a citation or an owner of repositories.

    The same people measure on the same clusters with the same code, so that the errors of their
    papers are not independent.
    """
    shared: dict[str, set[str]] = {}
    for case in cases:
        for key in (case.source or case.origin, case.owner and f"{case.owner}/"):
            if key:
                shared.setdefault(key, set()).add(case.origin)
    groups: list[set[str]] = []
    for origins in shared.values():
        apart = [group for group in groups if not group & origins]
        groups = [*apart, origins.union(*(group for group in groups if group & origins))]
    return {origin: " ".join(sorted(group)) for group in groups for origin in group}


def read_header(path: Path, lines: list[str] | None = None) -> dict[str, str]:
    """Return the ``# key: value`` lines before a table's head.

    Raises
    ------
    DataError
        If it states a schema that this perfsim does not read.
    """
    if lines is None:
        lines = read_lines(path)
    header: dict[str, str] = {}
    for row, line in enumerate(lines, 1):
        if not line.startswith("#"):
            break
        key, colon, value = line[1:].partition(":")
        if colon:
            header[key.strip()] = value.strip()
        stated = header.get("schema", "")
        if key.strip() == "schema" and stated != CASES_SCHEMA:
            raise DataError(
                f"schema is {shown(stated)}, this perfsim reads '# schema: {CASES_SCHEMA}'"
                + newer(stated, CASES_SCHEMA),
                path=path,
                row=row,
            )
    return header


def cases_of(path: Path | None, catalog: Catalog, bad: list[DataError] | None = None) -> list[Case]:
    """Return the cases of a table, or for None those of every table that the catalog finds.

    ``bad`` takes rows that cannot be read.

    Raises
    ------
    DataError
        If a table is damaged, or two tables have a row of the same id.
    """
    return shipped_cases(catalog, bad) if path is None else read_cases(path, bad)


def shipped_cases(catalog: Catalog, bad: list[DataError] | None = None) -> list[Case]:
    """Return the cases of every table in the catalog's folders of measurements."""
    cases: dict[str, Case] = {}
    for path in catalog.files("measurements").values():
        for case in read_cases(path, bad):
            if case.id in cases:
                raise DataError(f"{case.id!r} stands in another table too", path=path, column="id")
            cases[case.id] = case
    return list(cases.values())


def parse_fields(text: str, name: str, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Return the fields that a scenario cell states; ``name`` is the row's id, for messages.

    With ``may_be_empty``, a field without a value is "".

    Raises
    ------
    RequestError
        If a part is not field=value, or a field stands twice.

    Examples
    --------
    >>> parse_fields("method=topk; options.density=0.01", "a-1")
    {'method': 'topk', 'options.density': '0.01'}
    """
    fields: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        field, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not field or not (value or may_be_empty):
            raise RequestError(
                "scenario", f"{part!r} is not field=value, as method=topk.", source=name
            )
        if field in fields:
            raise RequestError("scenario", f"{field!r} stands twice.", source=name)
        fields[field] = value
    return fields


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return fields as a scenario cell states them.

    Examples
    --------
    >>> fields_text({"method": "topk", "overlap": False})
    'method=topk; overlap=false'
    """
    return "; ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in fields.items()
    )


def nested_fields(fields: Mapping[str, Any], catalog: Catalog) -> dict[str, Any]:
    """Return fields as a scenario has them: ``options.x`` below ``options``.

    A field ``scenario`` names a scenario file, which the other fields override.

    Raises
    ------
    RequestError
        If the scenario that is named is neither shipped nor a file.
    """
    flat = dict(fields)
    result: dict[str, Any] = {}
    if "scenario" in flat:
        result = dict(read_scenario(catalog.scenario(str(flat.pop("scenario"))))["scenario"])
    for name, value in flat.items():
        outer, _, inner = name.partition(".")
        if inner:
            result[outer] = {**result.get(outer, {}), inner: value}
        else:
            result[name] = value
    return result
