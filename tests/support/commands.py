"""Commands run in this process: what they print, and what they leave with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perfsim.cli.main import code

__all__ = ["MAIN", "answer", "run"]

MAIN = "predict --model resnet50 --gpus 64 --net 1gbe --method dgc"
"""The first command of README.md."""


def run(text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of one command."""
    left = code(text.split())
    captured = capsys.readouterr()
    return left, captured.out, captured.err


def answer(text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the JSON object of a command that succeeds.

    It says no more than what it wrote, and which files of the user's own it read.
    """
    left, out, err = run(f"{text} --json", capsys)
    said = [line for line in err.splitlines() if not line.startswith("wrote ")]
    assert left == 0 and [line for line in said if " of your own w" not in line] == []
    found: dict[str, Any] = json.loads(out)
    return found
