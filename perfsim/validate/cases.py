"""DOC"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_word, csv_rows, read_lines
from perfsim.errors import DataError, RequestError, newer, shown
from perfsim.scenario_file import read_scenario

__all__ = [
    "CASES_SCHEMA",
    "CASE_COLUMNS",
    "_CASE_ROLES",
    "Case",
    "cases_of",
    "fields_text",
    "parse_fields",
    "read_cases",
    "read_header",
    "scenario_fields",
    "shipped_cases",
]

CASES_SCHEMA = "perfsim/measurements/2"
_CASE_ROLES = ("calibration", "test", "excluded")

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
"""What a table of cases must hold. It may hold source and provenance (where a row stands),
seen_or_memory (whether it was seen or only recalled), role and reason (what it is for and why), and
scenario (that predicts it). Other columns are ignored."""

_UNVERIFIED = "not verified by"
"""A source that says so of its figures is quoted wherever they are shown."""


@dataclass(frozen=True, slots=True)
class Case:
    """One published value: the cells of its row as texts, and its value in the metric's unit."""

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

    @property
    def group(self) -> str:
        """The source in short: what stands before the id's last hyphen."""
        return self.id.rpartition("-")[0] or self.id

    @property
    def notice(self) -> str:
        """What is said wherever the row is shown: that its publisher did not verify it, or ""."""
        return self.source.partition(":")[0].strip() if _UNVERIFIED in self.source else ""

    def whole(self, column: str) -> int | None:
        """Return a cell as a whole number above zero, None where it is none."""
        text = getattr(self, column)
        return int(text) if text.isdecimal() and int(text) > 0 else None

    @property
    def origin(self) -> str:
        """The source with all its parts: what stands before the id's first hyphen."""
        return self.id.partition("-")[0]


_TEXT_FIELDS = tuple(field.name for field in fields(Case) if field.name != "value")


def read_cases(path: Path) -> list[Case]:
    """Return the cases of a CSV file; lines that begin with ``#`` before its head are its header.

    Raises
    ------
    DataError
        If the file cannot be read, is of a newer schema, a column lacks, an id stands twice, a
        role is unknown or a value is no number.
    """
    lines = read_lines(path)
    start = next((place for place, line in enumerate(lines) if not line.startswith("#")), 0)
    source = read_header(path, lines[:start]).get("source", "")
    found: list[Case] = []
    seen: dict[str, int] = {}
    for row, cells in csv_rows(lines, start, CASE_COLUMNS, path):
        name = cells["id"]
        if not name or name in seen:
            told = f"{name!r} stands on line {seen[name]} already" if name else "is empty"
            raise DataError(told, path=path, row=row, column="id")
        seen[name] = row
        if cells.get("role"):
            check_word(cells["role"], _CASE_ROLES, "role", path, row)
        value = cell_number(cells["value"], "value", path, row)
        texts = {text: cells.get(text, "") for text in _TEXT_FIELDS}
        texts["source"] = texts["source"] or source
        found.append(Case(**texts, value=value))
    if not found:
        raise DataError("holds no case", path=path)
    return found


def read_header(path: Path, lines: list[str] | None = None) -> dict[str, str]:
    """Return the ``# key: value`` lines before a table's head.

    Raises
    ------
    DataError
        If it states a schema that this perfsim does not read.
    """
    if lines is None:
        lines = read_lines(path)
    told: dict[str, str] = {}
    for row, line in enumerate(lines, 1):
        if not line.startswith("#"):
            break
        key, colon, value = line[1:].partition(":")
        if colon:
            told[key.strip()] = value.strip()
        stated = told.get("schema", "")
        if key.strip() == "schema" and stated != CASES_SCHEMA:
            raise DataError(
                f"schema is {shown(stated)}, this perfsim reads '# schema: {CASES_SCHEMA}'"
                + newer(stated, CASES_SCHEMA),
                path=path,
                row=row,
            )
    return told


def cases_of(path: Path | None, catalog: Catalog) -> list[Case]:
    """Return the cases of a table, or of all that the catalog finds for None.

    Raises
    ------
    DataError
        If a table is damaged, or two tables have a row of the same id.
    """
    return shipped_cases(catalog) if path is None else read_cases(path)


def shipped_cases(catalog: Catalog) -> list[Case]:
    """Return the cases of every table in the catalog's folders of measurements."""
    found: dict[str, Case] = {}
    for path in catalog.files("measurements").values():
        for case in read_cases(path):
            if case.id in found:
                raise DataError(f"{case.id!r} stands in another table too", path=path, column="id")
            found[case.id] = case
    return list(found.values())


def parse_fields(text: str, name: str) -> dict[str, Any]:
    """Return the fields that a cell states, by name; ``name`` is the row's, for the message.

    Raises
    ------
    RequestError
        If a part is not field=value, or a field stands twice.

    Examples
    --------
    >>> parse_fields("method=topk; options.density=0.01", "a-1")
    {'method': 'topk', 'options.density': '0.01'}
    """
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        field, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not field or not value:
            raise RequestError(name, f"scenario: {part!r} is not field=value, as method=topk.")
        if field in found:
            raise RequestError(name, f"scenario: {field!r} stands twice.")
        found[field] = value
    return found


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return fields as a cell states them.

    Examples
    --------
    >>> fields_text({"method": "topk", "overlap": False})
    'method=topk; overlap=false'
    """
    return "; ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in fields.items()
    )


def scenario_fields(fields: Mapping[str, Any], catalog: Catalog) -> dict[str, Any]:
    """Return fields as a scenario has them: ``options.x`` below options, over ``scenario``'s file.

    Raises
    ------
    RequestError
        If the scenario that is named is neither shipped nor a file.
    """
    told = dict(fields)
    made: dict[str, Any] = {}
    if "scenario" in told:
        made = dict(read_scenario(catalog.scenario(str(told.pop("scenario"))))["scenario"])
    for name, value in told.items():
        outer, _, inner = name.partition(".")
        if inner:
            made[outer] = {**made.get(outer, {}), inner: value}
        else:
            made[name] = value
    return made
