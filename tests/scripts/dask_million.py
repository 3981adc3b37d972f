"""A million rows over Dask with a worker killed half way: what is lost, and how memory goes.

``python tests/scripts/dask_million.py [--rows N] [--sample N]`` starts a scheduler and two workers
(``dask worker``, one thread each, with no nanny, so that none is started in place of the one
killed). It runs ``perfsim sweep --dask --out`` to a CSV file, kills one worker (SIGKILL) when half
of the rows are kept, and prints the resident memory of each process over time (from ``/proc``),
rows a second, and whether the file has every row once and a sample equals the answers of this
process (``dask_million.txt``: what it last printed).
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfsim.planning.grid import SweepGrid, axes_of, parse_vary
from perfsim.planning.sweep import Sweep, SweepRows, journal_of
from scripts.dask_rates import cluster

STRUCTURES = (
    "model=resnet50,vgg16,bert-base",
    "method=ssgd,dgc,powersgd,topk",
    "gpus=8,16,32,64",
    "bucket=5MiB,25MiB,100MiB",
)
"""What makes other task graphs: 144 of them."""

BASE = {"net": "10gbe"}
EVERY_S = 20.0
"""Time between two lines [s]; memory is looked at five times a second."""


def numbers(rows: int) -> tuple[str, ...]:
    """Return the axes of numbers that bring the grid to about so many rows."""
    each = max(1, round(rows / 144))
    speeds = max(1, round(each**0.5))
    return (
        f"single_gpu=100ms..1s:log{speeds}",
        f"overlap_slowdown=1..2:lin{max(1, round(each / speeds))}",
    )


def resident_bytes(process: int) -> int:
    """Return the resident memory of a process; 0 where it has ended."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def kept_rows(journal: Path, offset: int) -> tuple[int, int]:
    """Return the rows that lines of a journal from a place on hold, and the place behind them."""
    if not journal.exists():
        return 0, offset
    found = 0
    with journal.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            found += len(json.loads(line).get("rows", "")) if b'"start"' in line[:20] else 0
    return found, offset


def lines(file: Path) -> Iterator[list[str]]:
    """Yield the lines of a CSV file."""
    with file.open(newline="", encoding="utf-8") as text:
        yield from csv.reader(text)


def checked(file: Path, sweep: Sweep, sample: int) -> str:
    """Hold a file's rows against the grid, and some of them against this process's answers."""
    count, own = len(sweep.grid), SweepRows(sweep)
    step = max(1, count // sample)
    read = lines(file)
    assert tuple(next(read)) == sweep.columns
    axes = len(sweep.grid.axes)
    alike = 0
    found = 0
    for row in read:
        values = tuple(map(str, sweep.grid.values(found)))
        assert tuple(row[:axes]) == values, f"row {found}: {row[:axes]}, not {values}"
        if found % step == 0:
            (want,) = own.chunk(found, found + 1)
            texts = ["" if value is None else str(value) for value in want]
            assert row[axes:] == texts, f"row {found}: {row[axes:]}, not {texts}"
            alike += 1
        found += 1
    assert found == count, f"{found} rows, not {count}"
    return (
        f"{found:,} rows, each once and in order;"
        f" {alike:,} of them are what this process says, to the letter"
    )


def main() -> None:
    """Print memory over time, then the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sample", type=int, default=1000)
    asked = parser.parse_args()
    vary = (*STRUCTURES, *numbers(asked.rows))
    sweep = Sweep(SweepGrid(BASE, axes_of(parse_vary(list(vary)))))
    count = len(sweep.grid)
    print(f"{count:,} rows: {' x '.join(vary)}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; resident memory in MB")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address, (*workers, scheduler) = stack.enter_context(cluster(2))
        out = folder / "million.csv"
        words = itertools.chain.from_iterable(("--vary", one) for one in vary)
        began = time.monotonic()
        client = subprocess.Popen(
            [
                *(sys.executable, "-m", "perfsim", "sweep", "--net", BASE["net"], *words),
                *("--dask", address, "--out", str(out)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(client.kill)
        names = ("client", "scheduler", "worker 1", "worker 2")
        processes = (client.pid, scheduler.pid, *(one.pid for one in workers))
        peaks = [0] * len(names)
        journal, offset, kept, killed_s, shown = (
            journal_of(out),
            0,
            0,
            None,
            0.0,
        )
        print(f"{'[s]':>6}{'rows kept':>12}" + "".join(f"{name:>11}" for name in names))
        while client.poll() is None:
            time.sleep(0.2)
            more, offset = kept_rows(journal, offset)
            kept += more
            now = [resident_bytes(process) for process in processes]
            peaks = [max(pair) for pair in zip(peaks, now, strict=True)]
            took_s = time.monotonic() - began
            if killed_s is None and kept >= count / 2:
                workers[0].send_signal(signal.SIGKILL)
                workers[0].wait()
                killed_s = took_s
                print(
                    f"{took_s:6.0f}{kept:12,}  worker 1 is killed (SIGKILL); none is started for it"
                )
            if took_s - shown >= EVERY_S:
                shown = took_s
                print(
                    f"{took_s:6.0f}{kept:12,}" + "".join(f"{one / 1e6:11.0f}" for one in now),
                    flush=True,
                )
        took_s = time.monotonic() - began
        assert client.returncode == 0, f"perfsim sweep: exit {client.returncode}"
        assert killed_s is not None, "it ended before a worker was killed; give more --rows"
        print(f"{'peak':>6}{'':12}" + "".join(f"{one / 1e6:11.0f}" for one in peaks))
        print(
            f"{took_s:.0f} s: {count / took_s:,.0f} rows a second;"
            f" two workers {count / 2 / killed_s:,.0f}, one {count / 2 / (took_s - killed_s):,.0f}"
        )
        assert not journal.exists()
        print(checked(out, sweep, asked.sample))


if __name__ == "__main__":
    main()
