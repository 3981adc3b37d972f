"""JSON text, and files of it that are whole or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfsim.files import write_text

__all__ = ["json_text", "write_json", "write_text"]


def json_text(result: dict[str, Any]) -> str:
    """Return ``result`` as JSON, refusing NaN and infinity."""
    return json.dumps(result, indent=2, allow_nan=False)


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write ``result`` as JSON to ``path``, whole or not at all."""
    write_text(path, json_text(result) + "\n")
