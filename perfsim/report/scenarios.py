"""The shipped scenarios as a person reads them in a terminal: questions first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfsim.report.terminal import print_lines

__all__ = ["print_scenarios"]

WIDTH = 80
LONGEST_NAME = 40


def print_scenarios(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the questions that have a command, then the other settings by their titles."""
    asked = [row for row in rows if row["question"]]
    others = [row for row in rows if not row["question"]]
    print("Questions (`perfsim show scenario NAME` tells the command that answers)\n")
    _print(asked, "question")
    print("\nSettings of papers, and others (perfsim predict --scenario NAME)\n")
    _print(others, "title")


def _print(rows: Sequence[Mapping[str, Any]], told: str) -> None:
    names = [row["scenario"] for row in rows]
    width = min(max(map(len, names), default=0), LONGEST_NAME) + 2
    for row in rows:
        lead = f"{row['scenario']:{width}}"
        print_lines([row[told]], lead, " " * width, WIDTH)
