"""Cases: published results as a table states them, in its own words."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from perfsim.data.tables import cell_number, check_word, csv_rows, read_lines
from perfsim.errors import DataError, newer, shown

__all__ = ["COLUMNS", "ROLES", "SCHEMA", "Case", "read_cases", "read_header"]

SCHEMA = "perfsim/measurements/2"
ROLES = ("calibration", "test", "excluded")

COLUMNS = (
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

UNVERIFIED = "not verified by"
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
        return self.source.partition(":")[0].strip() if UNVERIFIED in self.source else ""

    def whole(self, column: str) -> int | None:
        """Return a cell as a whole number above zero, None where it is none."""
        text = getattr(self, column)
        return int(text) if text.isdecimal() and int(text) > 0 else None

    @property
    def origin(self) -> str:
        """The source with all its parts: what stands before the id's first hyphen."""
        return self.id.partition("-")[0]


TEXTS = tuple(field.name for field in fields(Case) if field.name != "value")


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
    for row, cells in csv_rows(lines, start, COLUMNS, path):
        name = cells["id"]
        if not name or name in seen:
            told = f"{name!r} stands on line {seen[name]} already" if name else "is empty"
            raise DataError(told, path=path, row=row, column="id")
        seen[name] = row
        if cells.get("role"):
            check_word(cells["role"], ROLES, "role", path, row)
        value = cell_number(cells["value"], "value", path, row)
        texts = {text: cells.get(text, "") for text in TEXTS}
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
        if key.strip() == "schema" and stated != SCHEMA:
            raise DataError(
                f"schema is {shown(stated)}, this perfsim reads '# schema: {SCHEMA}'"
                + newer(stated, SCHEMA),
                path=path,
                row=row,
            )
    return told
