"""JSON text, and files that are whole or not there."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from perfsim.errors import RequestError

__all__ = ["json_text", "write_json", "write_text"]


def json_text(result: dict[str, Any]) -> str:
    """Return ``result`` as JSON, refusing NaN and infinity."""
    return json.dumps(result, indent=2, allow_nan=False)


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write ``result`` as JSON to ``path``, whole or not at all."""
    write_text(path, json_text(result) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``: to a temporary file beside it first, then renamed.

    Raises
    ------
    RequestError
        If the folder does not exist or cannot be written.
    """
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = file.name
            file.write(text)
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise RequestError(f"--out: {str(path)!r} cannot be written: {error.strerror}.") from None
