"""CPU time and memory of cold commands beside bare imports.

``python tests/cold_start.py FOLDER`` measures the perfsim installed in FOLDER, the folder of
commands of an environment (``venv/bin``; default: this Python's own). Each figure is the median
of 10 runs, the commands taken in turn so that a drifting machine touches all of them alike.
Install a wheel for it: an editable install may have to compile its sources at every start.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TypeAlias

Round: TypeAlias = dict[str, tuple[float, float]]
"""CPU seconds and peak memory [bytes] by command."""

RUNS = 10
PREDICT_LIMIT = 1.35
HELP_LIMIT = 1.7
MEMORY_LIMIT_BYTES = 100e6
QUESTION = ("--model", "resnet50", "--gpus", "64", "--net", "1gbe", "--method", "dgc")


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the commands to measure, by name, as installed in ``folder``."""
    python, perfsim = str(folder / "python"), str(folder / "perfsim")
    return {
        "import typer": [python, "-c", "import typer"],
        "perfsim --help": [perfsim, "--help"],
        "perfsim predict --help": [perfsim, "predict", "--help"],
        "import numpy, pydantic, typer": [python, "-c", "import numpy, pydantic, typer"],
        "perfsim predict": [perfsim, "predict", *QUESTION],
        "perfsim predict --json": [perfsim, "predict", *QUESTION, "--json"],
    }


LAUNCHER = """
import os, subprocess, sys
os.environ.pop("PYTHONPYCACHEPREFIX", None)
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""Starts a command and prints its exit code, CPU seconds and peak memory [KiB].

A child's peak counts what its parent held when it was started, so that the parent must be small.
"""


def run(command: list[str], folder: str) -> tuple[float, float]:
    """Return CPU seconds and peak memory [bytes] of one run of ``command`` in ``folder``."""
    told = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    code, cpu_s, memory_kib = told.stdout.split()
    if code != "0":
        raise SystemExit(f"{' '.join(command)} left with {code}")
    return float(cpu_s), float(memory_kib) * 1024.0


def rounds(bin_folder: Path, names: Iterable[str] | None = None) -> Iterator[Round]:
    """Yield CPU seconds and peak memory [bytes] of every command, or of some, run in turn."""
    to_run = commands(bin_folder)
    with tempfile.TemporaryDirectory() as folder:
        while True:
            yield {name: run(to_run[name], folder) for name in names or to_run}


def measure(bin_folder: Path, runs: int = RUNS) -> Round:
    """Return the median CPU seconds and peak memory [bytes] of every command."""
    taken = list(islice(rounds(bin_folder), runs + 1))[1:]
    return {
        name: (median(one[name][0] for one in taken), max(one[name][1] for one in taken))
        for name in taken[0]
    }


def least(taken: Sequence[Round]) -> Round:
    """Return each command's least CPU seconds, and its least peak memory [bytes].

    Whatever else a machine does adds to a run and never takes from it.
    """
    return {
        name: (min(one[name][0] for one in taken), min(one[name][1] for one in taken))
        for name in taken[0]
    }


def ratios(taken: Round) -> dict[str, float]:
    """Return predict over its imports, and help over its import."""
    return {
        "predict": taken["perfsim predict"][0] / taken["import numpy, pydantic, typer"][0],
        "help": taken["perfsim --help"][0] / taken["import typer"][0],
    }


def within(taken: Round) -> bool:
    """Say whether both ratios are within their limits."""
    found = ratios(taken)
    return found["predict"] <= PREDICT_LIMIT and found["help"] <= HELP_LIMIT


def settled(every: Iterator[Round], fewest: int = 4, most: int = 16) -> Round:
    """Return the least of as many rounds as it takes to be within the limits, or of the most."""
    taken: list[Round] = []
    for one in islice(every, most):
        taken.append(one)
        if len(taken) >= fewest and within(least(taken)):
            break
    return least(taken)


def main() -> None:
    """Print every command's median and the two ratios."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(sys.executable).parent
    taken = measure(folder.absolute())
    for name, (cpu_s, memory_bytes) in taken.items():
        print(f"{name:32}{cpu_s * 1e3:8.1f} ms CPU{memory_bytes / 1e6:8.1f} MB")
    found = ratios(taken)
    print(f"predict / imports {found['predict']:.2f} (at most {PREDICT_LIMIT})")
    print(f"--help / import typer {found['help']:.2f} (at most {HELP_LIMIT})")


if __name__ == "__main__":
    main()
