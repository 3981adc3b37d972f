"""CPU time and memory of whole commands, each in a process of its own: a figure is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from scripts.benchmarks.row import Row

JITTER = "compare --model resnet50 --net 10gbe --jitter 5%"


class Figure(NamedTuple):
    """A command, the most CPU time [s] and resident memory [MB] that it may take."""

    what: str
    command: str
    most_s: float | None = None
    most_mb: float | None = None


FIGURES = (
    Figure("compare, jitter, 1,024 GPUs", f"{JITTER} --gpus 1024", 5, 300),
    Figure("compare, jitter, 16,384 GPUs", f"{JITTER} --gpus 16384", 8),
    Figure("compare, resnet50", "compare --model resnet50 --gpus 64 --net 10gbe", 0.5),
    Figure("compare, bert-large", "compare --model bert-large --gpus 64 --net 10gbe", 1.5),
    Figure("explain, wfbp", "explain --model bert-large --gpus 64 --net 10gbe --method wfbp", 1.5),
    Figure("explain, p3", "explain --model bert-large --gpus 64 --net 10gbe --method p3", 1.5),
    Figure(
        "explain, byteps", "explain --model bert-large --gpus 64 --net 10gbe --method byteps", 1.5
    ),
    Figure("validate", "validate", 5),
)
"""Times and memory include the start of Python."""


def rows() -> Iterator[Row]:
    """Yield the time and the memory of each command."""
    for figure in FIGURES:
        spent_s, held_mb, code = _run(figure.command)
        note = "" if code in (0, 4) else f"exit {code}"
        yield Row(figure.what, spent_s, "s", figure.most_s, note=note)
        yield Row("    its memory", held_mb, "MB", figure.most_mb)


_WATCH = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
spent_s = used.ru_utime + used.ru_stime
print(spent_s, used.ru_maxrss * 1024 / 1e6, os.waitstatus_to_exitcode(status))
"""
"""Runs a command. By itself, as Linux counts what a process was forked from as its memory."""


def _run(command: str) -> tuple[float, float, int]:
    """Return the CPU seconds, the most resident memory [MB] and the exit code of a command."""
    # Installed code has its bytecode beside it; a shell that forbids writing it would not.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    watch = [sys.executable, "-I", "-S", "-c", _WATCH]
    line = [*watch, sys.executable, "-m", "perfsim", *command.split()]
    said = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    spent_s, held_mb, code = said.stdout.split()
    return float(spent_s), float(held_mb), int(code)
