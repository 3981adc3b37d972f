"""A sweep on real ``dask scheduler`` and ``dask worker`` processes, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.errors import PerfsimError
from perfsim.planning.dask import DaskEngine
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import Sweep, serial
from support.paths import ROOT

Client = pytest.importorskip("distributed", reason="a cluster needs perfsim[dask]").Client

GRID = {"gpus": "2..200:2", "net": "1gbe,10gbe"}


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
}


def started(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Give the address of a scheduler, its process, and those of its two workers."""
    file = tmp_path / "scheduler.json"
    plain = ["--scheduler-file", str(file), "--no-dashboard"]
    processes = [started("scheduler", "--host", "127.0.0.1", "--port", "0", *plain)]
    processes += [started("worker", "--no-nanny", "--nthreads", "1", *plain) for _ in range(2)]
    try:
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        with Client(address) as client:
            client.wait_for_workers(2, timeout=60)
        yield address, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_lost_worker_costs_only_its_tasks_and_a_lost_scheduler_is_told(
    cluster: tuple[str, list[subprocess.Popen[bytes]]],
) -> None:
    address, (scheduler, *workers) = cluster
    asked = Sweep(SweepGrid({"model": "resnet50"}, axes_of(GRID)), objects=True)
    parts = DaskEngine(address=address)(asked, asked.chunks())
    found = next(parts)
    workers[0].send_signal(signal.SIGKILL)
    found += [row for part in parts for row in part]
    assert workers[0].wait() == -signal.SIGKILL
    assert found == [row for part in serial(asked, asked.chunks()) for row in part]

    parts = DaskEngine(address=address)(asked, asked.chunks())
    first = next(parts)
    assert first == found[: len(first)]
    scheduler.kill()
    with pytest.raises(PerfsimError, match="scheduler is lost; with out, what is done is kept"):
        list(parts)


@pytest.mark.slow
def test_processes_here_give_the_same_rows_in_order(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    asked = ["sweep", "--model", "resnet50", "--vary", "gpus=2..64:2", "--vary", "method=ssgd,thc"]
    assert code([*asked, "--out", str(out)]) == 0
    spread = tmp_path / "spread.csv"
    told = subprocess.run(
        [sys.executable, "-m", "perfsim", *asked, "--out", str(spread), "--workers", "2"],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
    )
    assert told.stderr == f"wrote {spread}\n".encode()
    assert spread.read_text() == out.read_text()


def test_an_address_without_a_scheduler_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", "--model", "resnet50", "--vary", "gpus=8", "--dask", "nowhere"]
    assert code(asked) == 2
    assert "--dask: 'nowhere' cannot be used" in capsys.readouterr().err


LISTENERS = """
from perfsim.planning.dask import DaskEngine
if __name__ == "__main__":
    with DaskEngine(workers=1)._client() as client:
        told = client.scheduler_info()
        nannies = [one["nanny"] for one in told["workers"].values()]
        print(told["address"], *told["workers"], *nannies)
"""


@pytest.mark.slow
def test_processes_here_listen_on_this_computer_alone(tmp_path: Path) -> None:
    script = tmp_path / "listeners.py"
    script.write_text(LISTENERS)
    done = subprocess.run(
        [sys.executable, script], env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    addresses = done.stdout.split()
    assert len(addresses) == 3
    assert [one for one in addresses if not one.startswith("tcp://127.0.0.1:")] == []
