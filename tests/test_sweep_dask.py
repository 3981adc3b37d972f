"""A sweep on real ``dask scheduler`` and ``dask worker`` processes, one of which is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.planning.grid import Grid, axes_of
from perfsim.planning.sweep import Sweep, serial

pytest.importorskip("distributed", reason="a Dask cluster needs perfsim[dask]")

GRID = {"gpus": "2..400:2", "net": "1gbe,10gbe"}
ROOT = Path(__file__).resolve().parent.parent


def started(*words: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    file = tmp_path / "scheduler.json"
    plain = ["--scheduler-file", str(file)]
    processes = [started("scheduler", "--port", "0", "--no-dashboard", *plain)]
    workers = [
        started("worker", "--no-nanny", "--no-dashboard", "--nthreads", "1", *plain)
        for _ in range(2)
    ]
    try:
        from distributed import Client

        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        with Client(scheduler_file=str(file)) as client:
            client.wait_for_workers(2, timeout=60)
            address = client.scheduler.address
        yield address, workers
    finally:
        for process in [*workers, *processes]:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_lost_worker_costs_only_its_tasks(
    cluster: tuple[str, list[subprocess.Popen[bytes]]],
) -> None:
    from perfsim.planning.spread import Spread

    address, workers = cluster
    asked = Sweep(Grid({"model": "resnet50"}, axes_of(GRID)))
    found = []
    for part in Spread(address=address)(asked, asked.chunks()):
        if not found:
            os.kill(workers[0].pid, signal.SIGKILL)
        found += part
    assert found == [row for part in serial(asked, asked.chunks()) for row in part]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_processes_here_give_the_same_rows_in_order(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    asked = [sys.executable, "-m", "perfsim", "sweep", "--model", "resnet50", "--out"]
    vary = ["--vary", "gpus=2..64:2", "--vary", "net=1gbe,nope"]
    assert code([*asked[3:], str(out), *vary]) == 0
    spread = tmp_path / "spread.csv"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [*asked, str(spread), *vary, "--workers", "2"],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
    )
    assert spread.read_text() == out.read_text()


def test_an_address_without_a_scheduler_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", "--model", "resnet50", "--vary", "gpus=8", "--dask", "nowhere"]
    assert code(asked) == 2
    assert "--dask: 'nowhere' cannot be used" in capsys.readouterr().err
