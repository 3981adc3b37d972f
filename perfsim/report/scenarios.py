"""Scenarios as a person reads them in a terminal: what they ask, and what answers it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from perfsim.report.terminal import print_description, print_lines

__all__ = ["command_lines", "print_scenario", "print_scenarios"]

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
        print_lines([row[told]], f"{row['scenario']:{width}}", " " * width, WIDTH)


def print_scenario(description: Mapping[str, Any]) -> None:
    """Print a scenario: first its question and the command as it can be copied, if it has them."""
    rest = dict(description)
    question, command = rest.pop("question", ""), rest.pop("command", "")
    if question:
        print_lines([question], most=WIDTH)
        print("\n" + "\n".join(f"    {line}" for line in command_lines(command, WIDTH - 4)) + "\n")
    print_description(rest)


def command_lines(command: str, width: int = WIDTH) -> list[str]:
    r"""Return a command in lines that a shell joins, each flag on one line with its value.

    Examples
    --------
    >>> print(*command_lines("perfsim sweep mine --vary gpus=8..64 --full", 32), sep="\n")
    perfsim sweep mine \
        --vary gpus=8..64 --full
    """
    first, *flags = re.split(r" (?=--)", command)
    lines = [first]
    for flag in flags:
        if len(lines[-1]) + len(flag) + 3 > width:
            lines.append(f"    {flag}")
        else:
            lines[-1] += f" {flag}"
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
