"""Scenario files (TOML): a question as it is kept, with what it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsim.errors import DataError, newer
from perfsim.limits import shown
from perfsim.toml_file import read_toml

__all__ = ["SCHEMA", "read_file"]

SCHEMA = "perfsim/scenario/1"
KEYS = ("schema", "title", "source", "notes", "scenario", "claim", "sweep")
ASKED = ("question", "command")
"""What a scenario of the gallery has besides: what a user asks, and the command that answers; and
``measured``, rows of the answer beside ids of ``perfsim list measurements``."""


def read_file(path: Path) -> dict[str, Any]:
    """Return a scenario file (TOML: ``schema``, ``[scenario]``; title, question, sweep, ...).

    Raises
    ------
    DataError
        If the file is missing, is not TOML, or is of another schema.
    """
    data = dict(read_toml(path).values)
    if data.get("schema") != SCHEMA:
        found = data.get("schema")
        told = f"schema is {shown(found)}, this perfsim reads {SCHEMA!r}{newer(found, SCHEMA)}"
        raise DataError(told, path=path)
    if not isinstance(data.get("scenario"), dict):
        raise DataError("has no [scenario] table", path=path)
    allowed = (*KEYS, *ASKED, "measured")
    for key in data:
        if key not in allowed:
            told = f"has unknown key {shown(key)}; allowed: {', '.join(allowed)}"
            raise DataError(told, path=path)
    _check_asked(data, path)
    return data


def _check_asked(data: Mapping[str, Any], path: Path) -> None:
    for key in ASKED:
        if key in data and not isinstance(data[key], str):
            raise DataError(f"{key} is not a text", path=path)
    if ("question" in data) != ("command" in data):
        raise DataError("needs a question and a command, or neither", path=path)
    if not data.get("command", "perfsim ").startswith("perfsim "):
        raise DataError(f"command {shown(data['command'])} is not perfsim's", path=path)
    measured = data.get("measured", {})
    if not isinstance(measured, dict) or not all(isinstance(i, str) for i in measured.values()):
        raise DataError("measured is not a table of rows and ids of measurements", path=path)
