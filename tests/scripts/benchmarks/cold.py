"""Cold commands beside bare imports (see ``cold_start.py``), of what this Python has installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from scripts import cold_start
from scripts.benchmarks.row import Row


def rows() -> Iterator[Row]:
    """Yield the CPU time of each command, the ratios that are asked, and the peak of memory."""
    folder = Path(sys.executable).absolute().parent
    if not (folder / "perfsim").exists():
        print(f"(cold commands are left out: no perfsim is installed in {folder})")
        return
    taken = cold_start.measure(folder)
    for name, cost in taken.items():
        yield Row(name, 1e3 * cost.cpu_s, "ms CPU")
    found = cold_start.ratios(taken)
    yield Row("    predict over its imports", found["predict"], "times", cold_start.PREDICT_LIMIT)
    yield Row("    --help over import typer", found["help"], "times", cold_start.HELP_LIMIT)
    most = cold_start.MEMORY_LIMIT_BYTES / 1e6
    yield Row("memory of predict", taken["perfsim predict"].memory_bytes / 1e6, "MB", most)
