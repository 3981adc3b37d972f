"""CPU time and memory of cold commands beside bare imports.

``python tests/scripts/cold_start.py FOLDER`` measures the perfsim installed in FOLDER, the folder
of commands of an environment (``venv/bin``; default: this Python's own). Each figure is the median
of 10 runs, the commands taken in turn so that a drifting machine touches all of them alike. Install
a wheel for it: an editable install may have to compile its sources at every start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias


class Cost(NamedTuple):
    """What one run of a command took: CPU time [s], peak memory [bytes], time on the clock [s]."""

    cpu_s: float
    memory_bytes: float
    clock_s: float


Round: TypeAlias = dict[str, Cost]
"""The cost of each command, run once in turn."""

RUNS = 10
PREDICT_LIMIT = 1.1
ONE_THREAD_LIMIT = 1.6
"""Where numpy's import starts no threads: on an idle machine these spin on another core, which is
nearly half of the import's CPU time, and on a busy one they do not."""
HELP_LIMIT = 1.7
MEMORY_LIMIT_BYTES = 100e6
DISTURBED = 1.3
"""Time on the clock over CPU time beyond which other work took the CPU."""
LIBRARIES = "numpy, pydantic, typer"
"""What perfsim is built on. Of pydantic a bare import brings next to nothing: the rest comes with
the first type that is checked, as Typer checks its options with it (0.29 does)."""
QUESTION = ("--model", "resnet50", "--gpus", "64", "--net", "1gbe", "--method", "dgc")


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the commands to measure, by name, as installed in ``folder``."""
    python, perfsim = str(folder / "python"), str(folder / "perfsim")
    return {
        "import typer": [python, "-c", "import typer"],
        "perfsim --help": [perfsim, "--help"],
        "perfsim predict --help": [perfsim, "predict", "--help"],
        LIBRARIES: [python, "-c", f"import {LIBRARIES}; pydantic.TypeAdapter(int)"],
        "perfsim predict": [perfsim, "predict", *QUESTION],
        "perfsim predict --json": [perfsim, "predict", *QUESTION, "--json"],
    }


LAUNCHER = """
import os, subprocess, sys, time
os.environ.pop("PYTHONPYCACHEPREFIX", None)
begun = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
clock_s = time.perf_counter() - begun
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss, clock_s)
"""
"""Starts a command and prints its exit code, CPU seconds, peak memory [KiB] and seconds.

A child's peak counts what its parent held when it was started, so that the parent must be small.
"""


def run(command: list[str], folder: str, one_thread: bool = False) -> Cost:
    """Return the cost of one run of ``command`` in ``folder``."""
    threads = {"OPENBLAS_NUM_THREADS": "1"} if one_thread else {}
    told = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=os.environ | threads,
    )
    code, cpu_s, memory_kib, clock_s = told.stdout.split()
    if code != "0":
        raise SystemExit(f"{' '.join(command)} left with {code}")
    return Cost(float(cpu_s), float(memory_kib) * 1024.0, float(clock_s))


def rounds(
    bin_folder: Path, names: Iterable[str] | None = None, *, one_thread: bool = False
) -> Iterator[Round]:
    """Yield the costs of every command, or of some, run in turn, again and again."""
    to_run = commands(bin_folder)
    with tempfile.TemporaryDirectory() as folder:
        while True:
            yield {name: run(to_run[name], folder, one_thread) for name in names or to_run}


def measure(bin_folder: Path, runs: int = RUNS) -> Round:
    """Return the median of every command's costs."""
    return merged(list(islice(rounds(bin_folder), runs + 1))[1:], median)


def merged(taken: Sequence[Round], by: Callable[[list[float]], float]) -> Round:
    """Return one round made of many, each figure by itself."""
    return {
        name: Cost(*(by([one[name][place] for one in taken]) for place in range(3)))
        for name in taken[0]
    }


def ratios(taken: Round) -> dict[str, float]:
    """Return predict over its imports, and help over its import."""
    return {
        "predict": taken["perfsim predict"].cpu_s / taken[LIBRARIES].cpu_s,
        "help": taken["perfsim --help"].cpu_s / taken["import typer"].cpu_s,
    }


def within(taken: Round, limit: float = PREDICT_LIMIT) -> bool:
    """Say whether both ratios are within their limits, predict's ``limit``."""
    found = ratios(taken)
    return found["predict"] <= limit and found["help"] <= HELP_LIMIT


def calm(one: Round) -> bool:
    """Say whether the machine had nothing else to do: CPUs that are shared stretch CPU time too."""
    used_s = sum(cost.cpu_s for cost in one.values())
    return sum(cost.clock_s for cost in one.values()) <= DISTURBED * used_s


def settled(
    every: Iterator[Round], limit: float = PREDICT_LIMIT, fewest: int = 3, most: int = 12
) -> Round | None:
    """Return the least of as many rounds as it takes to be within the limits.

    Whatever else a machine does adds to a run and never takes from it. If the rounds do not get
    there, only calm ones are held against the limits; None where there were too few of these.
    """
    taken: list[Round] = []
    for one in islice(every, most):
        taken.append(one)
        if len(taken) >= fewest and within(merged(taken, min), limit):
            return merged(taken, min)
    quiet = [one for one in taken if calm(one)]
    return merged(quiet, min) if len(quiet) >= fewest else None


def main() -> None:
    """Print every command's median and the two ratios."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(sys.executable).parent
    taken = measure(folder.absolute())
    for name, cost in taken.items():
        print(f"{name:32}{cost.cpu_s * 1e3:8.1f} ms CPU{cost.memory_bytes / 1e6:8.1f} MB")
    found = ratios(taken)
    print(f"predict / imports {found['predict']:.2f} (at most {PREDICT_LIMIT})")
    print(f"--help / import typer {found['help']:.2f} (at most {HELP_LIMIT})")


if __name__ == "__main__":
    main()
