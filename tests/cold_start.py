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
from pathlib import Path
from statistics import median

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


def measure(bin_folder: Path, runs: int = RUNS) -> dict[str, tuple[float, float]]:
    """Return the median CPU seconds and peak memory [bytes] of every command."""
    to_run = commands(bin_folder)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in to_run}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs + 1):
            for name, command in to_run.items():
                taken[name].append(run(command, folder))
    return {
        name: (median(cpu for cpu, _ in used[1:]), max(memory for _, memory in used[1:]))
        for name, used in taken.items()
    }


def ratios(taken: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Return predict over its imports, and help over its import."""
    return {
        "predict": taken["perfsim predict"][0] / taken["import numpy, pydantic, typer"][0],
        "help": taken["perfsim --help"][0] / taken["import typer"][0],
    }


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
