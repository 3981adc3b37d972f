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
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from perfsim.data.toml import Tables, TomlModel, WrongValue, read_toml
from perfsim.errors import LONGEST, nearest, shown
from perfsim.scenario import FIELDS, is_field
from perfsim.validate.measurements.case import COLUMNS, Case

__all__ = ["SCHEMA", "MappingRule", "read_rules"]

SCHEMA = "perfsim/measurement-map/1"


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
    return [
        MappingRule(rule.when, rule.set, rule.number, rule.exclude, rule.calibrates)
        for rule in read_toml(path, RulesFile).rule
    ]


def _columns(when: object) -> dict[str, str]:
    """Check the texts that columns must fit."""
    values = _plain_values(when)
    for column, text in values.items():
        if not isinstance(text, str):
            raise WrongValue("is not a text", column)
        if column not in COLUMNS or column == "value":
            raise WrongValue(f"no column {shown(column)}; columns: {', '.join(COLUMNS)}")
    return values


def _fields(value: object) -> dict[str, Any]:
    """Check fields of a scenario with a value each, those of a group as ``group.name``."""
    values = _plain_values(value)
    for name, one in values.items():
        if name != "scenario" and not is_field(name):
            match = nearest(name[:LONGEST], FIELDS)
            hint = f"did you mean {match!r}?" if match else 'options are such as "options.density".'
            raise WrongValue(f"a scenario has no field {shown(name)}; {hint}")
        parts = one if isinstance(one, list) else [one]
        if any(isinstance(part, Mapping | list) for part in parts):
            raise WrongValue("is a table, not a value", name)
    return values


def _patterns(value: object) -> dict[str, tuple[str, re.Pattern[str]]]:
    r"""Check fields whose value a pattern finds in a column, such as "setting: (\d+) GPUs"."""
    numbers = {}
    for field, stated in _fields(value).items():
        column, _, text = str(stated).partition(":")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                pattern = re.compile(text.strip())
        except (re.error, ArithmeticError, RecursionError, Warning) as error:
            raise WrongValue(f"{shown(text)} is no pattern: {error}") from None
        if column not in COLUMNS or pattern.groups != 1:
            raise WrongValue(f"{shown(stated)} is not 'column: pattern with one group'")
        numbers[field] = (column, pattern)
    return numbers


def _plain_values(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongValue("is not a table")
    for name, one in value.items():
        if isinstance(one, float) and not math.isfinite(one):
            raise WrongValue(f"found {one}, not a finite number", name)
    return value


class RuleTable(TomlModel):
    """A ``[[rule]]``: which cases it is for, and what it says of them."""

    when: Annotated[dict[str, str], PlainValidator(_columns)] = Field(default_factory=dict)
    set: Annotated[dict[str, Any], PlainValidator(_fields)] = Field(default_factory=dict)
    number: Annotated[dict[str, tuple[str, re.Pattern[str]]], PlainValidator(_patterns)] = Field(
        default_factory=dict
    )
    exclude: Annotated[str, PlainValidator(str)] = ""
    calibrates: Annotated[str, PlainValidator(str)] = ""


class RulesFile(TomlModel):
    """The keys of a file of rules."""

    SCHEMA = SCHEMA
    title: Any = ""
    rule: Tables[RuleTable]
