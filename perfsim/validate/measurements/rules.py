"""Rules: what the words of a table of cases mean to perfsim.

A TOML file of ``[[rule]]`` tables, read from top to bottom. ``when`` names columns and the text
(``*`` and ``?`` stand for any) that each must have; every rule that fits applies, later ones
over earlier ones. ``set`` gives fields of the scenario ("options.x" the method's,
"fusion_options.x" the policy's), ``number`` takes one from a column by a pattern with one group,
``exclude`` says why such a case is not predicted, and ``calibrates`` what it was used to fit.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perfsim.data.toml import TomlTable, read_toml
from perfsim.errors import MAX_QUOTED, DataError, nearest, shown
from perfsim.scenario import SCENARIO_FIELDS, is_field
from perfsim.validate.measurements.case import COLUMNS, Case

__all__ = ["SCHEMA", "MappingRule", "read_rules"]

SCHEMA = "perfsim/measurement-map/1"
KEYS = ("when", "set", "number", "exclude", "calibrates")


@dataclass(frozen=True, slots=True)
class MappingRule:
    """What holds for the cases that fit ``when``."""

    when: Mapping[str, str]
    fields: Mapping[str, Any]
    numbers: Mapping[str, tuple[str, re.Pattern[str]]]
    exclude: str
    calibrates: str

    def fits(self, case: Case) -> bool:
        """Tell whether the rule applies to a case."""
        return all(fnmatchcase(getattr(case, column), text) for column, text in self.when.items())

    def apply(self, case: Case, fields: dict[str, Any]) -> None:
        """Put into ``fields`` what the rule says of a case."""
        fields.update(self.fields)
        for field, (column, pattern) in self.numbers.items():
            match = pattern.search(getattr(case, column))
            if match:
                fields[field] = match[1]


def read_rules(path: Path) -> list[MappingRule]:
    """Return the rules of a file.

    Raises
    ------
    DataError
        If the file cannot be read, a key or column is unknown, or a pattern is none.
    """
    table = read_toml(path)
    table.only(("schema", "title", "rule"))
    table.check_schema(SCHEMA)
    return [_rule(one) for one in table.tables("rule")]


def _rule(table: TomlTable) -> MappingRule:
    table.only(KEYS)
    when = _texts(table, "when")
    for column in when:
        if column not in COLUMNS or column == "value":
            raise table.wrong("when", f"no column {shown(column)}; columns: {', '.join(COLUMNS)}")
    numbers = {}
    for field, told in _fields(table, "number").items():
        column, _, text = str(told).partition(":")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                pattern = re.compile(text.strip())
        except (re.error, ArithmeticError, RecursionError, Warning) as error:
            raise table.wrong("number", f"{shown(text)} is no pattern: {error}") from None
        if column not in COLUMNS or pattern.groups != 1:
            raise table.wrong("number", f"{shown(told)} is not 'column: pattern with one group'")
        numbers[field] = (column, pattern)
    words = (str(table.values.get(key, "")) for key in ("exclude", "calibrates"))
    return MappingRule(when, _fields(table, "set"), numbers, *words)


def _fields(table: TomlTable, key: str) -> Mapping[str, Any]:
    """Return fields of a scenario with a value each, those of a group as ``group.name``."""
    found = _values(table, key)
    for name, value in found.items():
        if name != "scenario" and not is_field(name):
            match = nearest(name[:MAX_QUOTED], SCENARIO_FIELDS)
            hint = f"did you mean {match!r}?" if match else 'options are such as "options.density".'
            raise table.wrong(key, f"a scenario has no field {shown(name)}; {hint}")
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, Mapping | list) for part in parts):
            raise table.wrong(f"{key}.{shown(name)[1:-1]}", "is a table, not a value")
    return found


def _values(table: TomlTable, key: str) -> Mapping[str, Any]:
    value = table.values.get(key, {})
    if not isinstance(value, Mapping):
        raise table.wrong(key, "is not a table")
    for name, one in value.items():
        if isinstance(one, float) and not math.isfinite(one):
            raise table.wrong(f"{key}.{shown(name)[1:-1]}", f"found {one}, not a finite number")
    return value


def _texts(table: TomlTable, key: str) -> Mapping[str, str]:
    values = _values(table, key)
    for name, value in values.items():
        if not isinstance(value, str):
            raise DataError(f"{table.place}{key}.{name}: is not a text", path=table.path)
    return values
