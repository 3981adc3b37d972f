"""Rows a second of ``sweep`` over Dask, beside one process and a plain loop over ``predict()``.

``python tests/scripts/dask_rates.py [--rows N] [--workers 1,2]`` prints a line an engine: this
process; ``--workers N``, a cluster of processes, their start included; ``--dask ADDRESS``, real
``dask scheduler`` and ``dask worker`` processes; and the same with one worker killed (SIGKILL) when
the first rows are there. Rates are by the clock, and by the work of cores, of all these processes
together (a busy machine has fewer cores than it seems). Each engine's rows are held against those
of this process: none missing, none twice, in order, the same to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.planning.dask import DaskEngine
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import Engine, Sweep, serial
from perfsim.prediction import predict
from perfsim.scenario import make_scenario

PLAIN = 60
"""Rows of the plain loop, evenly from the grid."""


def question(rows: int) -> Sweep:
    """Return a sweep of about so many rows whose task graphs differ."""
    vary = {
        "model": "resnet50,vgg16,bert-base,inception-v4",
        "net": "1gbe,10gbe,ib100",
        "method": "ssgd,dgc,powersgd,topk,mgwfbp,dear",
        "gpus": f"8..{8 * max(1, rows // 72)}:8",
    }
    return Sweep(SweepGrid({}, axes_of(vary)))


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Give the address of a scheduler on this machine; its workers, when they are there, and it."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        plain = ["--no-dashboard", "--scheduler-file", str(file)]
        processes = [_started("scheduler", "--host", "127.0.0.1", "--port", "0", *plain)]
        processes += [
            _started("worker", "--no-nanny", "--nthreads", "1", *plain) for _ in range(workers)
        ]
        try:
            while not file.exists():
                time.sleep(0.1)
            address = json.loads(file.read_text())["address"]
            with Client(address) as client:
                client.wait_for_workers(workers)
            yield address, processes[1:] + processes[:1]
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _started(*words: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def work_s() -> float:
    """Return the seconds of a core that this process and those it started have worked."""
    import psutil

    found = time.process_time()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            spent = child.cpu_times()
            found += spent.user + spent.system
    return found


Timed = tuple[list[Any], float, float | None]


def timed(sweep: Sweep, engine: Engine, victim: subprocess.Popen[bytes] | None = None) -> Timed:
    """Return the rows, the seconds that they took, and those of a core (not if one is killed)."""
    found: list[Any] = []
    began, worked = time.perf_counter(), work_s()
    spent = 0.0
    for part in engine(sweep, sweep.chunks()):
        if not found and victim is not None:
            victim.send_signal(signal.SIGKILL)
        found += part
        if len(found) == len(sweep.grid):  # before the processes end, and their counts with them
            spent = work_s() - worked
    return found, time.perf_counter() - began, None if victim else spent


def line(name: str, found: Timed, want: list[Any] | None) -> None:
    """Print an engine's rates, and whether its rows are those of one process."""
    rows, seconds, spent = found
    by_core = f"{len(rows) / spent:,.0f}" if spent else "-"
    told = "" if want is None else "the same, in order" if rows == want else "OTHERS"
    print(
        f"{name:36}{len(rows):>7,}{seconds:>8.1f}{len(rows) / seconds:>9,.0f}{by_core:>11}  {told}",
        flush=True,
    )
    assert want is None or rows == want, name


def plain(sweep: Sweep, want: list[Any]) -> Timed:
    """Return a plain loop over some of the rows, held against the sweep's."""
    catalog, began, worked = Catalog(), time.perf_counter(), time.process_time()
    some = range(0, len(want), max(1, len(want) // PLAIN))
    found = [predict(make_scenario(sweep.grid.fields(row)), catalog) for row in some]
    spent = time.process_time() - worked
    assert [one.iteration_s for one in found] == [want[row][0] for row in some]
    return found, time.perf_counter() - began, spent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4608)
    parser.add_argument("--workers", default="1,2", help="numbers of processes")
    asked = parser.parse_args()
    sweep, warm_up = question(asked.rows), question(72)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'engine':36}{'rows':>7}{'[s]':>8}{'[1/s]':>9}{'[1/core s]':>11}  rows are")
    one = timed(sweep, serial)
    line("this process", one, one[0])
    line("plain loop over predict()", plain(sweep, one[0]), None)
    for workers in map(int, asked.workers.split(",")):
        line(f"--workers {workers}", timed(sweep, DaskEngine(workers)), one[0])
        with cluster(workers) as (address, processes):
            engine = DaskEngine(address=address)
            timed(warm_up, engine)
            line(f"--dask, workers: {workers}", timed(sweep, engine), one[0])
            if workers > 1:
                found = timed(sweep, engine, processes[0])
                assert processes[0].wait() == -signal.SIGKILL
                line(f"--dask, workers: {workers}, one killed", found, one[0])


if __name__ == "__main__":
    main()
