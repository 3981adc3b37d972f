"""How fast perfsim is, beside what is asked of it.

``python tests/scripts/benchmarks [PART ...]`` prints every figure with its limit; parts are warm,
divided, growth, engines, rates, commands and cold (all by default; ``results.txt`` is what it last
printed). Times are CPU times, the least of several runs. ``cold`` measures the perfsim that this
Python has installed: install a wheel for it. ``--record`` also adds the figures to
``history.jsonl``; ``--history`` measures nothing and prints the last values of each, and which got
worse beyond noise (it then ends with 1). A new command to measure is a line of ``commands.py``.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perfsim.__main__ import COLLECTS_AFTER
from scripts.benchmarks import history
from scripts.benchmarks.row import Row, least_cpu_s

PARTS = ("warm", "divided", "growth", "engines", "rates", "commands", "cold")
HISTORY = Path(__file__).with_name("history.jsonl")
PACKAGES = ("perfsim", "numpy", "pydantic", "typer", "simpy", "networkx")


def main() -> None:
    """Print the parts that are asked for, or the history."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--record", action="store_true", help="add the figures to the history")
    parser.add_argument("--history", action="store_true", help="print the history instead")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if asked.history:
        lines = history.report(history.read(HISTORY))
        print("\n".join(lines))
        sys.exit(not lines[-1].endswith(": none"))
    measure(asked.parts or PARTS, record=asked.record)


def measure(parts: Sequence[str], *, record: bool) -> None:
    """Print the figures of parts; with ``record``, add them to the history."""
    versions = {name: version(name) for name in PACKAGES}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    loop_ms = 1e3 * least_cpu_s(_loop)
    print(f"{datetime.now(UTC):%Y-%m-%d} {_processor()}, Python {platform.python_version()}")
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    print(f"a loop that fills a table 20,000 times: {loop_ms:.2f} ms", end="")
    print(f", beside a load of {load:.1f} on the machine")
    missed, entries = [], []
    loop = Row("a loop that fills a table 20,000 times", loop_ms, "ms")

    def entry(what: str, row: Row) -> history.Entry:
        return history.Entry(
            date=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
            commit=commit(),
            machine=_processor(),
            python=platform.python_version(),
            versions=versions,
            load=round(load, 2),
            what=what,
            value=float(f"{row.measured:.6g}"),
            unit=row.unit,
            least=row.least,
        )

    entries.append(entry(loop.what, loop))
    gc.set_threshold(*COLLECTS_AFTER)  # as every command does
    for part in parts:
        print(f"\n{part}")
        gc.collect()
        gc.freeze()  # what earlier parts left is not looked through for garbage again
        above = ""
        for row in import_module(f"scripts.benchmarks.{part}").rows():
            print(row, flush=True)
            missed += [row.what.strip()] if row.missed else []
            above = above if row.what.startswith(" ") else row.what
            inner = "" if above == row.what else f", {row.what.strip()}"
            entries.append(entry(f"{part}: {above}{inner}", row))
    print(f"\noutside their limits: {'; '.join(missed) or 'none'}")
    if record:
        history.append(HISTORY, entries)
        busy = "" if entries[0].quiet else ", of a busy machine: nothing is compared with them"
        print(f"{len(entries)} figures added to {HISTORY.name}{busy}")


def commit() -> str:
    """Return the commit that is checked out, with "+" if files differ from it; "" without git."""
    words = ("git", "-C", str(Path(__file__).parent))
    try:
        head = subprocess.run(
            [*words, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run([*words, "diff", "--quiet", "HEAD"], check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + "+" * bool(changed)


def _loop() -> None:
    table = {}
    for number in range(20_000):
        table[number & 255] = (number, 2 * number)


def _processor() -> str:
    """Return the processor's name, where Linux tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} CPUs)" if names else platform.machine()


if __name__ == "__main__":
    main()
