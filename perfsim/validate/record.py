"""The stored record of errors by group and way, and which groups have become worse since.

``profiles/measurements/record.csv`` is that of the tables that ship: `perfsim validate` compares
with it and exits with 4 where a group has become worse. ``summary.csv`` is that of all collected
tables, from which the READMEs are made.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.validate.accuracy import Score
from perfsim.validate.groups import AlikeErrors, GroupErrors, RankedPairs, WayErrors
from perfsim.validate.mapping import WAYS, Way
from perfsim.validate.measurements import MeasurementsReport

__all__ = [
    "RECORD_COLUMNS",
    "RECORD_FILE",
    "RECORD_SCHEMA",
    "SUMMARY_FILE",
    "RecordedGroup",
    "errors_of_groups",
    "read_validation_record",
    "stored_ways",
    "validation_record_text",
    "worse",
    "worse_than_stored",
]

RECORD_SCHEMA = "perfsim/validation-record/3"
RECORD_FILE, SUMMARY_FILE = "record.csv", "summary.csv"
RECORD_COLUMNS = (
    *("by", "name", "way", "rows", "sources", "median", "p90", "worst", "bias", "coverage"),
    *("half_width", "alike_median", "alike_p90", "alike_bias", "alike_coverage"),
    *("pairs", "ranked_right", "width_rank"),
)
_TOLERANCE = 0.01
"""A group whose median or p90 rises by more than this has become worse."""


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """The recorded errors of one group asked in one way, as fractions."""

    by: str
    name: str
    way: str
    rows: int
    median: float
    p90: float


def errors_of_groups(report: MeasurementsReport) -> list[GroupErrors]:
    """Return the errors of all whole iterations by way, then of every group and way."""
    return [
        *(way.errors for way in report.ways.values()),
        *(one for table in report.group_tables.values() for one in table),
    ]


def validation_record_text(report: MeasurementsReport, date: str) -> str:
    """Return the errors of every group as the text of a record."""
    out = io.StringIO()
    cases = len({row.case.id for row in report.rows})
    out.write(
        f"# schema: {RECORD_SCHEMA}\n"
        "# title: Errors of predictions by group and way of asking, |predicted / measured - 1| of"
        " the time; alike: every source weighs the same\n"
        f"# source: perfsim validate; {cases} values predicted, {len(report.left)} not\n"
        f"# date: {date}\n"
    )
    for notice in report.notices:
        out.write(f"# notice: {notice}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(RECORD_COLUMNS)
    ways = report.ways
    for errors in errors_of_groups(report):
        size, alike = errors.score, errors.alike
        shares = (
            *(size.median, size.p90, size.worst, errors.bias, errors.coverage, errors.half_width),
            *alike,
        )
        cells = ["" if share is None else f"{share:.4f}" for share in shares]
        ranked: Sequence[object] = ("", "", "")
        if errors.by == "way" and errors.way:
            rank = ways[errors.way].width_rank
            ranked = (*ways[errors.way].pairs, "" if rank is None else f"{rank:.4f}")
        writer.writerow(
            [errors.by, errors.name, errors.way, size.count, errors.sources, *cells, *ranked]
        )
    return out.getvalue()


def read_validation_record(path: Path) -> list[RecordedGroup]:
    """Return the groups of a record.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    groups = []
    for row, cells in read_table(path, RECORD_SCHEMA, RECORD_COLUMNS):
        count = int(cell_number(cells["rows"], "rows", path, row, whole=True))
        if count:
            median, p90 = (cell_number(cells[name], name, path, row) for name in ("median", "p90"))
            group = RecordedGroup(cells["by"], cells["name"], cells["way"], count, median, p90)
            groups.append(group)
    return groups


def stored_ways(catalog: Catalog, name: str = SUMMARY_FILE) -> list[WayErrors]:
    """Return the stored errors of all whole iterations by way; none where there is no such file.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    path = catalog.beside("measurements", "", name)
    if path is None:
        return []
    found = []
    for row, cells in read_table(path, RECORD_SCHEMA, RECORD_COLUMNS):
        if cells["by"] != "way":
            continue
        check_word(cells["way"], WAYS, "way", path, row)
        number = partial(_share, cells, path, row)
        counts = [int(number(column) or 0) for column in ("rows", "sources", "pairs")]
        errors = GroupErrors(
            "way",
            cells["name"],
            cast(Way, cells["way"]),
            Score(counts[0], number("median"), number("p90"), number("worst")),
            number("bias"),
            number("coverage"),
            number("half_width"),
            counts[1],
            AlikeErrors(*(number(f"alike_{name}") for name in AlikeErrors._fields)),
        )
        pairs = RankedPairs(counts[2], int(number("ranked_right") or 0))
        found.append(WayErrors(errors, pairs, number("width_rank")))
    return found


def _share(cells: Mapping[str, str], path: Path, row: int, column: str) -> float | None:
    """Return a number of a record, below zero or not; None where the cell is empty."""
    text = cells[column]
    sign, text = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    return sign * cell_number(text, column, path, row) if text else None


def worse_than_stored(report: MeasurementsReport, catalog: Catalog) -> list[str]:
    """Say which groups of what ships are worse than the stored record; none without a record."""
    path = catalog.beside("measurements", "", RECORD_FILE)
    return [] if path is None else worse(report, read_validation_record(path))


def worse(report: MeasurementsReport, recorded: Sequence[RecordedGroup]) -> list[str]:
    """Say which groups have a median or p90 more than a point above what was recorded."""
    groups = errors_of_groups(report)
    now = {(one.by, one.name, str(one.way)): one.score for one in groups}
    messages = []
    for group in recorded:
        name = f"{group.by} {group.name}" + (f" ({group.way})" if group.by != "way" else "")
        errors = now.get((group.by, group.name, group.way))
        if errors is None or errors.count != group.rows:
            count = errors.count if errors else 0
            messages.append(f"{name}: {count} rows, {group.rows} were stored")
            continue
        for figure, value, before in (
            ("median", errors.median, group.median),
            ("p90", errors.p90, group.p90),
        ):
            if value is not None and value > before + _TOLERANCE:
                messages.append(f"{name}: {figure} {value:.1%}, {before:.1%} was stored")
    return messages
