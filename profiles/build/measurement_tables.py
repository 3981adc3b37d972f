"""Write the tables of measured cases that ship: own figures, one file a source, with its licence.

    python profiles/build/measurement_tables.py --measurements FILE... --out profiles/measurements

``profiles/measurements/sources.csv`` says which cases of the collected tables ship: ``table`` (the
file), ``ids`` (patterns, spaces between), what the file's header says, and ``licence``. Role and
scenario of a case come from the maps of that folder, whatever its row said; so a table that ships
can be read too, such as ``mlperf.csv``, whose cases were collected apart. A table whose cases
accumulate, recompute or split the model has columns for it.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from perfsim.data.files import named_file, write_text
from perfsim.data.tables import read_table
from perfsim.session import Session
from perfsim.validate.cases import CASE_COLUMNS, CASES_SCHEMA, Case, fields_text, read_cases
from perfsim.validate.mapping import (
    RULES_FILE,
    MappingRule,
    SourceCases,
    map_case,
    read_rules,
)

__all__ = [
    "SOURCES_FILE",
    "TABLE_SOURCES_COLUMNS",
    "TABLE_SOURCES_SCHEMA",
    "table_text",
]

SOURCES_FILE = "sources.csv"
TABLE_SOURCES_SCHEMA = "perfsim/measurement-sources/1"
TABLE_SOURCES_COLUMNS = ("table", "ids", "title", "source", "licence", "framework", "date", "notes")
_HEADER_KEYS = ("title", "source", "licence", "framework", "date", "notes")
_SCENARIO_COLUMNS = ("scenario", "rated", "calibrated")
_SHIPPED_COLUMNS = ("id", "role", "reason", *_SCENARIO_COLUMNS, "provenance", *CASE_COLUMNS[1:])
_TRAINING_COLUMNS = ("accumulate", "recompute", "split")
"""Columns of tables of which any case states something there."""


def table_text(source: dict[str, str], cases: list[Case], rules: list[MappingRule]) -> str:
    """Return the text of one table that ships.

    Parameters
    ----------
    source : the source's line of ``sources.csv``
    cases : all cases of the source
    rules : what each case is for, and its scenario
    """
    out = io.StringIO()
    out.write(f"# schema: {CASES_SCHEMA}\n")
    for key in _HEADER_KEYS:
        if source[key]:
            out.write(f"# {key}: {source[key]}\n")
    writer = csv.writer(out, lineterminator="\n")
    stated = (name for name in _TRAINING_COLUMNS if any(getattr(case, name) for case in cases))
    columns = (*_SHIPPED_COLUMNS, *stated)
    writer.writerow(columns)
    judged = SourceCases(cases, rules, Session())
    for case in cases:
        asked = map_case(case, judged)
        own = {"role": asked.role, "reason": asked.reason, "value": f"{case.value:.9g}"}
        own |= dict.fromkeys(_SCENARIO_COLUMNS, "")
        if asked.scenarios:
            role = judged.roles[case.id]
            texts = map(fields_text, (role.fields, role.rated, role.calibrated))
            own |= dict(zip(_SCENARIO_COLUMNS, texts, strict=True))
        writer.writerow([own.get(column, getattr(case, column)) for column in columns])
    return out.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write every table of measured cases that ships."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--measurements", type=Path, nargs="+", required=True, help="collected tables of cases"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder with sources.csv and maps")
    given = parser.parse_args(arguments)
    unsaid = dict.fromkeys((*_SCENARIO_COLUMNS, "role", "reason"), "")
    tables = [read_cases(path) for path in given.measurements]
    cases = [replace(case, **unsaid) for table in tables for case in table]
    maps = sorted(given.out.glob(f"*{RULES_FILE}"))
    rules = [rule for path in maps for rule in read_rules(path)]
    table = read_table(given.out / SOURCES_FILE, TABLE_SOURCES_SCHEMA, TABLE_SOURCES_COLUMNS)
    for _, source in table:
        patterns = source["ids"].split()
        own = [case for case in cases if any(fnmatchcase(case.id, ids) for ids in patterns)]
        if own:
            write_text(
                named_file(given.out, source["table"], ".csv"), table_text(source, own, rules)
            )


if __name__ == "__main__":
    main()
