"""Models that a config.json of Hugging Face transformers states."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsim.data.files import read_text
from perfsim.errors import MAX_QUOTED, DataError, shown, unknown
from perfsim.models.config_keys import ConfigKeys
from perfsim.models.language import Architecture
from perfsim.models.limits import contradiction
from perfsim.models.model_types import MODEL_TYPES, UNPRICED

__all__ = ["json_table", "read_config"]

_MAX_BYTES = 2**20
"""Bytes of a config.json. No source: chosen, a hundred times a usual one."""


def read_config(path: Path) -> Architecture:
    """Read the numbers of a transformer from a config.json.

    Raises
    ------
    DataError
        If it cannot be read, is of an unknown kind, or its keys are missing or contradict
        each other.
    """
    values = json_table(path)
    kind = values.get("model_type")
    if not isinstance(kind, str):
        known = ", ".join(MODEL_TYPES)
        found = "is needed" if kind is None else f"is {shown(kind)}"
        raise DataError(f"model_type {found}; allowed: {known}", path=path)
    if kind not in MODEL_TYPES:
        raise DataError(f"model_type: {_why_unknown(kind, values)}", path=path)
    config = ConfigKeys(values, path)
    shape = _classifying(MODEL_TYPES[kind](config), config)
    wrong = contradiction(shape)
    if wrong:
        raise DataError(wrong, path=path)
    return shape


_CLASSIFIES = "ForSequenceClassification"
"""What the names of transformers' classes end with that classify texts."""


def _classifying(shape: Architecture, config: ConfigKeys) -> Architecture:
    """Return the shape with the output layer of a class of transformers that classifies texts.

    It has as many classes as the file names, 2 without names as in transformers.
    """
    made = config.words("architectures")
    if not (made and isinstance(made[0], str) and made[0].endswith(_CLASSIFIES)):
        return shape
    if shape.family == "encoder-decoder":
        config.wrong("architectures", f"has {shown(made[0])}: perfsim knows T5 that writes text")
    classes = config.size("id2label") or config.count("num_labels", 2)
    return shape._replace(classes=classes, head_bias=False)


def _why_unknown(kind: str, values: Mapping[str, Any]) -> str:
    """Return why a kind of model is not known, and what to give instead."""
    within = values.get("text_config")
    text = within.get("model_type") if isinstance(within, dict) else None
    text = text if isinstance(text, str) else ""
    if text in MODEL_TYPES:
        return (
            f"{shown(kind)} is of more than texts, which is all that perfsim knows; its table"
            f" text_config in a file of its own is the {text} within"
        )
    layers = UNPRICED.get(kind) or UNPRICED.get(text)
    if layers:
        return f"{shown(kind)} has {layers}: perfsim does not know their cost yet"
    shown_by = "profiles/README.md"
    return unknown("model_type", kind, MODEL_TYPES, shown_by=shown_by).why.rstrip(".")


def json_table(path: Path) -> dict[str, Any]:
    """Return the names and values of a JSON file.

    Raises
    ------
    DataError
        If it cannot be read, is no JSON or no table.
    """
    text = read_text(path, _MAX_BYTES)
    if _depth(text) > _MAX_DEPTH:
        why = "has tables in tables in tables, which no config.json has"
        raise DataError(why, path=path)
    try:
        values = json.loads(text, parse_int=_whole)
    except json.JSONDecodeError as error:
        why = f"is not JSON: {error.msg[0].lower()}{error.msg[1:]} at character {error.colno}"
        raise DataError(why, path=path, row=error.lineno) from None
    if not isinstance(values, dict):
        raise DataError("is not a JSON table such as {...} of a config.json", path=path)
    return values


_MAX_DEPTH = 500
"""Tables within tables that are read. A config.json has 4; `json` stops anywhere from 1,000 to some
100,000, by the Python and its stack."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.?)*+"?|[][{}]', re.DOTALL)
"""Texts in quotes, the last perhaps not closed, and the brackets outside them."""


def _depth(text: str) -> int:
    """Return how many tables and lists of a JSON text stand in one another at most."""
    depth = deepest = 0
    for found in _BRACKETS.finditer(text):
        if found[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in "]}":
            depth -= 1
    return deepest


def _whole(digits: str) -> int:
    """Return a whole number, cut behind more digits than a message repeats."""
    return int(digits[: MAX_QUOTED + 1])
