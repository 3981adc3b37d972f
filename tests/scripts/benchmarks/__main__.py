"""How fast perfsim is, beside what is asked of it.

``python tests/scripts/benchmarks [PART ...]`` prints every figure with its limit; parts are warm,
divided, growth, engines, rates and cold (all by default; ``results.txt`` is what it last printed).
Times are CPU times, the least of several runs. ``cold`` measures the perfsim that this Python has
installed: install a wheel for it.
"""

from __future__ import annotations

import gc
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.benchmarks.row import least_cpu_s

PARTS = ("warm", "divided", "growth", "engines", "rates", "cold")
PACKAGES = ("perfsim", "numpy", "pydantic", "typer", "simpy", "networkx")


def main() -> None:
    """Print the parts that are asked for."""
    parts = sys.argv[1:] or PARTS
    print(f"{datetime.now(UTC):%Y-%m-%d} {_processor()}, Python {platform.python_version()}")
    print(", ".join(f"{name} {version(name)}" for name in PACKAGES))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    print(f"a loop that fills a table 20,000 times: {1e3 * least_cpu_s(_loop):.2f} ms", end="")
    print(f", beside a load of {load:.1f} on the machine")
    missed = []
    for part in parts:
        print(f"\n{part}")
        gc.collect()
        gc.freeze()  # what earlier parts left is not looked through for garbage again
        for row in import_module(f"scripts.benchmarks.{part}").rows():
            print(row, flush=True)
            missed += [row.what.strip()] if row.missed else []
    print(f"\noutside their limits: {'; '.join(missed) or 'none'}")


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
