"""Read a scenario file: TOML with a ``[scenario]`` table, and what a gallery or a claim adds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from perfsim.data.catalog import shipped
from perfsim.data.files import is_there, reading
from perfsim.data.toml import TomlModel, WrongValue, check_toml, parse_toml
from perfsim.errors import DataError, shown

__all__ = [
    "FILE_ENDINGS",
    "SCENARIO_SCHEMA",
    "ScenarioFile",
    "is_scenario_file",
    "read_fields",
    "read_scenario",
]

SCENARIO_SCHEMA = "perfsim/scenario/1"
"""The version of scenario files that is read."""


_HEAD_BYTES = 4096
"""Bytes of a file among which its schema stands. No source: chosen."""

FILE_ENDINGS = {
    "model": (".json", ".csv"),
    "net": (".toml",),
    "intra_net": (".toml",),
    "node": (".toml",),
}
"""Fields that may name a file, and how its name ends."""


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongValue(f"found {shown(value)}, allowed is a table [scenario]")
    return value


def _words(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValue("is not a text")
    return value


def _own_command(value: str) -> str:
    if not value.startswith("perfsim "):
        raise WrongValue(f"{shown(value)} is not perfsim's")
    return value


def _table_of_words(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise WrongValue("is not a table of rows and ids of measurements")
    return value


class ScenarioFile(TomlModel):
    """The keys of a scenario file.

    A scenario of the gallery has besides what a user asks (``question``), the ``command`` that
    answers, and ``measured``: rows of the answer beside ids of ``perfsim list measurements``.
    """

    SCHEMA = SCENARIO_SCHEMA
    title: Any = None
    source: Any = None
    notes: Any = None
    scenario: Annotated[dict[str, Any], PlainValidator(_table)] = Field(
        description="the table [scenario]"
    )
    claim: Any = None
    sweep: Any = None
    question: Annotated[str, PlainValidator(_words)] | None = None
    command: Annotated[str, PlainValidator(_words), AfterValidator(_own_command)] | None = None
    measured: Annotated[dict[str, str], PlainValidator(_table_of_words)] = Field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _question_and_command(self) -> Self:
        if (self.question is None) != (self.command is None):
            raise WrongValue("needs a question and a command, or neither")
        return self


def read_fields(path: Path) -> dict[str, Any]:
    """Return the fields of a scenario file; files that it names and that lie beside it by path.

    A model may be a config.json or a profile CSV; networks and node types may be TOML files.

    Raises
    ------
    DataError
        If the file is missing, is not TOML, or is of another schema.
    """
    fields = dict(read_scenario(path)["scenario"])
    if path.parent == shipped("scenarios"):  # what ships is known by its name
        return fields
    for field, endings in FILE_ENDINGS.items():
        value = fields.get(field)
        if isinstance(value, str) and value.endswith(endings):
            beside = path.parent / value
            fields[field] = str(beside) if os.path.isfile(beside) else value
    return fields


def is_scenario_file(name: str) -> bool:
    """Tell whether a name is the path of a TOML file that says that it is a scenario.

    Examples
    --------
    >>> is_scenario_file("resnet50")
    False
    """
    if not name.endswith(".toml") or not is_there(name):
        return False
    try:
        with reading(Path(name)) as file:
            head = file.read(_HEAD_BYTES)
    except DataError:
        return False
    return SCENARIO_SCHEMA.rpartition("/")[0].encode() in head


def read_scenario(path: Path) -> dict[str, Any]:
    """Return a scenario file (TOML: ``schema``, ``[scenario]``; title, question, sweep, ...).

    Raises
    ------
    DataError
        If the file is missing, is not TOML, or is of another schema.
    """
    values, text = parse_toml(path)
    check_toml(ScenarioFile, values, path, text=text)
    return values
