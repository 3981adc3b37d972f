"""The tables that ship, made of a table of cases: own figures, a file a source, with its licence.

``python -m perfsim.validate.measurements.tables --measurements FILE --out profiles/measurements``
is the maintainers' command. ``sources.csv`` says which cases ship: ``table`` (the file), ``ids``
(patterns, spaces between), what the header says of them, and ``licence``.
"""

from __future__ import annotations

import argparse
import csv
import io
from fnmatch import fnmatchcase
from pathlib import Path

from perfsim.data.catalog import Catalog
from perfsim.data.files import named_file, write_text
from perfsim.data.tables import read_table
from perfsim.validate.measurements.ask import ask, singles_of, told_of
from perfsim.validate.measurements.case import COLUMNS, SCHEMA, Case, read_cases
from perfsim.validate.measurements.fields import text_of
from perfsim.validate.measurements.rules import MappingRule, read_rules

__all__ = ["SOURCES", "SOURCE_COLUMNS", "SOURCE_SCHEMA", "table_of"]

SOURCES = "sources.csv"
SOURCE_SCHEMA = "perfsim/measurement-sources/1"
SOURCE_COLUMNS = ("table", "ids", "title", "source", "licence", "framework", "date", "notes")
HEADER = ("title", "source", "licence", "framework", "date", "notes")
SHIPPED = ("id", "role", "reason", "scenario", "provenance", *COLUMNS[1:])


def table_of(told: dict[str, str], cases: list[Case], rules: list[MappingRule]) -> str:
    """Return a table that ships, as text.

    Parameters
    ----------
    told : the source's line of ``sources.csv``
    cases : of the source
    rules : which say what each case is for, and its scenario
    """
    out = io.StringIO()
    out.write(f"# schema: {SCHEMA}\n")
    for key in HEADER:
        if told[key]:
            out.write(f"# {key}: {told[key]}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(SHIPPED)
    singles, catalog = singles_of(cases, rules), Catalog()
    for case in cases:
        asked = ask(case, rules, singles, catalog)
        own = {"role": asked.role, "reason": asked.reason}
        own["scenario"] = text_of(told_of(case, rules).fields) if asked.role == "test" else ""
        own["value"] = f"{case.value:.9g}"
        writer.writerow([own.get(column, getattr(case, column)) for column in SHIPPED])
    return out.getvalue()


def main() -> None:
    """Write every table that ships."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("measurements", type=Path, required=True)
    parser.add_argument("out", type=Path, required=True)
    given = parser.parse_args()
    cases, rules = read_cases(given.measurements), read_rules(given.out / "map.toml")
    for _, told in read_table(given.out / SOURCES, SOURCE_SCHEMA, SOURCE_COLUMNS):
        patterns = told["ids"].split()
        own = [case for case in cases if any(fnmatchcase(case.id, one) for one in patterns)]
        if own:
            write_text(named_file(given.out, told["table"], ".csv"), table_of(told, own, rules))


if __name__ == "__main__":
    main()
