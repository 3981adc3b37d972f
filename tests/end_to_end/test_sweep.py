"""``perfsim calibrate network`` on emulated hosts: what it writes, and what it says when it fails.

The command runs as a user would start it, one process a rank, with gloo.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfsim.network.cluster import read_network
from support.emulated.hosts import Hosts, Job

pytestmark = [pytest.mark.root, pytest.mark.torch]

CALIBRATE = ("-m", "perfsim", "calibrate", "network", "--out", "ours.toml")
SHORT = (*CALIBRATE, "--max-size", "256KiB", "--budget", "2s")
STEADY = (*CALIBRATE, "--collectives", "all_reduce", "--max-size", "256KiB", "--tolerance", "0.01%")
"""No point gets so tight: each takes its whole share of the time, which leaves time to break it."""

PATCHED = """\
import os
import perfsim
perfsim.__version__ = os.environ.get("FAKE_VERSION", perfsim.__version__)
from perfsim.cli.main import run
run()
"""


def points(folder: Path) -> int:
    """Return how many points a sweep has kept; a point measured twice has two lines."""
    part = folder / "ours.part"
    lines = part.read_text().split("\n")[1:-1] if part.exists() else []
    keys = ("collective", "nodes", "gpus_per_node", "size_bytes")
    found = [json.loads(line) for line in lines]
    return len({tuple(line[key] for key in keys) for line in found if "collective" in line})


def wait_for(count: int, job: Job, folder: Path) -> None:
    """Wait until a sweep has kept ``count`` points."""
    end = time.monotonic() + 40
    while points(folder) < count:
        assert time.monotonic() < end and job.processes[0].poll() is None, job.text()
        time.sleep(0.02)


def perfsim(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfsim", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def last_line(job: Job, rank: int = 0) -> str:
    return job.text(rank).strip().splitlines()[-1]


def nothing_written(folder: Path) -> bool:
    return not list(folder.glob("ours.toml")) and not list(folder.glob(".ours*"))


def test_a_sweep_ends_in_a_network_that_predict_takes(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    hosts = cluster(2)
    # Two retries: what else runs on the machine stretches messages, and then no file is written.
    for hosts.work in (tmp_path / "one", tmp_path / "two", tmp_path / "three"):
        hosts.work.mkdir()
        job = hosts.run(SHORT, ranks_per_host=2)
        codes = job.wait(60)
        if "no network file is written" not in job.text():
            break
    assert codes == [0] * 4, job.text()
    network = read_network(hosts.work / "ours.toml")
    assert network.library == "gloo" and network.gpus_per_node == 2
    assert network.known is not None
    shapes = {(curve.nodes, curve.gpus_per_node) for curve in network.known.curves}
    assert shapes == {(1, 2), (2, 1), (2, 2)}
    assert "on 2 hosts" in network.notes[0]
    assert not (hosts.work / "ours.part").exists()
    # 1 Gbit/s either way: 256 KiB between two hosts take 2.1 ms, less the burst of 128 KiB; twice
    # that where the machine is busy.
    (pair,) = (
        curve
        for curve in network.known.curves
        if curve.collective == "send_recv" and curve.nodes == 2
    )
    assert 1.0e-3 < pair.seconds[-1] < 4.2e-3
    used = re.search(r"now: (perfsim .*)", job.text())
    assert used is not None
    done = perfsim(hosts.work, *used[1].split()[1:])
    assert done.returncode == 0 and "ours" in done.stdout, done.stderr


def test_a_rank_that_is_killed_is_told_at_once_and_the_sweep_goes_on_later(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    hosts = cluster(3)
    job = hosts.run((*STEADY, "--budget", "5s"))
    wait_for(12, job, tmp_path)  # beyond the 9 points of the pair, all three are in
    job.kill(2)
    killed = time.monotonic()
    job.processes[0].wait(10)
    assert time.monotonic() - killed < 5
    kept = points(tmp_path)
    codes = job.wait(10)
    assert codes == [1, 1, -9]
    assert re.search(
        rf"perfsim: calibrate network: .*(198\.18\.0\.\d|rank 2 on host2).*; {kept} points are kept"
        r" in ours\.part, and the same command goes on from there\.",
        last_line(job),
    ), job.text()
    assert nothing_written(tmp_path)
    again = hosts.run((*STEADY, "--budget", "1s"), label="again")
    assert again.wait(30) == [0, 0, 0], again.text()
    assert f"{18 - kept} of {18 - kept}: all_reduce" in again.text()
    network = read_network(tmp_path / "ours.toml")
    assert network.gpus_per_node == 1 and network.known is not None
    shapes = {(curve.nodes, curve.gpus_per_node) for curve in network.known.curves}
    assert shapes == {(2, 1), (3, 1)} and "on 3 hosts" in network.notes[0]
    assert points(tmp_path) == 0


def test_a_frozen_rank_is_named(cluster: Callable[..., Hosts], tmp_path: Path) -> None:
    job = cluster(3).run((*STEADY, "--budget", "5s"))
    wait_for(1, job, tmp_path)
    job.processes[2].send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    job.processes[0].wait(20)
    assert time.monotonic() - frozen < 12
    assert "rank 2 on host2 is gone or frozen" in last_line(job)
    job.processes[1].wait(10)
    assert "rank 2 on host2 is gone or frozen" in last_line(job, 1)
    job.kill()
    assert job.wait(5) == [1, 1, -9]
    assert nothing_written(tmp_path) and points(tmp_path) > 0


@pytest.mark.parametrize(
    ("interface", "said"),
    [
        ("eth9", "GLOO_SOCKET_IFNAME: host1 has no interface 'eth9'; there are lo, eth0."),
        ("lo", "rank 1 on host1 would use the interface 'lo', which reaches no other host"),
    ],
)
def test_a_wrong_interface_is_told_on_rank_0(
    cluster: Callable[..., Hosts], tmp_path: Path, interface: str, said: str
) -> None:
    job = cluster(2).run(SHORT, per_rank={1: {"GLOO_SOCKET_IFNAME": interface}})
    assert job.wait(20) == [2, 2]
    assert said in last_line(job) and job.text().count("\n") == 1
    assert points(tmp_path) == 0 and nothing_written(tmp_path)


def test_hosts_that_cannot_be_reached_are_told(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    job = cluster(2).run((*SHORT, "--patience", "2s"), per_rank={1: {"MASTER_ADDR": "198.18.0.77"}})
    assert job.wait(30) == [2, 2]
    assert "rank 1 of 2 has not come within 2 s" in last_line(job)
    assert "MASTER_ADDR: 198.18.0.77, port 29511, cannot be reached from host1" in last_line(job, 1)


def test_ranks_of_different_versions_are_refused(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    hosts = cluster(2)
    (tmp_path / "patched.py").write_text(PATCHED)
    job = hosts.run(("patched.py", *SHORT[2:]), per_rank={1: {"FAKE_VERSION": "0.0.1"}})
    assert job.wait(20) == [2, 2]
    for rank in (0, 1):
        assert re.search(
            r"rank 0 on host0 has perfsim \S+, rank 1 on host1 has 0\.0\.1; install the"
            r" same everywhere\.",
            last_line(job, rank),
        )


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk of a size on a folder."""
    folder.mkdir()
    options = ("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    tried = subprocess.run(["mount", *options], check=False, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no tmpfs here: {tried.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_and_loses_no_point(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    hosts = cluster(2)
    with disk(tmp_path / "small", "8k") as small:
        command = [*STEADY, "--budget", "1.5s", "--out", "small/ours.toml"]
        job = hosts.run(command)
        assert job.wait(20)[0] == 2
        assert re.search(
            r"perfsim: --out: small/ours\.part cannot be written: No space left on device; what was"
            r" done before stands in it, and the same command goes on from there\.",
            last_line(job),
        ), job.text()
        kept = points(small)
        assert 0 < kept < 9 and nothing_written(small)
        for line in (small / "ours.part").read_text().splitlines()[: kept + 1]:
            json.loads(line)
        subprocess.run(["mount", "-o", "remount,size=1m", str(small)], check=True)
        again = hosts.run(command, label="again")
        assert again.wait(20) == [0, 0], again.text()
        assert f"{9 - kept} of {9 - kept}: all_reduce" in again.text()
        assert (small / "ours.toml").is_file()


def test_an_interrupted_sweep_says_what_it_kept(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    job = cluster(2).run((*STEADY, "--budget", "4s"))
    wait_for(3, job, tmp_path)
    os.kill(job.processes[0].pid, signal.SIGINT)
    codes = job.wait(10)
    assert codes == [130, 1]
    assert re.fullmatch(
        r"perfsim: calibrate network: stopped by SIGINT; \d+ points are kept in ours\.part, and the"
        r" same command goes on from there\.",
        last_line(job),
    )
    assert "rank 0 says what was kept" in last_line(job, 1)
    assert points(tmp_path) >= 3 and nothing_written(tmp_path)


WIDE = (*CALIBRATE, "--collectives", "all_reduce", "--max-size", "4MiB", "--tolerance", "0.01%")


def test_a_rate_that_changes_on_the_way_is_said_by_calibrate_the_file_and_predict(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    hosts = cluster(2, "20mbit")
    job = hosts.run((*WIDE, "--budget", "5s"))
    wait_for(4, job, tmp_path)
    hosts.reshape("200mbit")
    assert job.wait(60) == [0, 0], job.text()
    assert re.search(r"perfsim: warning: all_reduce on 2 ranks .* times as fast", job.text())
    network = read_network(tmp_path / "ours.toml")
    assert [one.what for one in network.noticed] == ["change"]
    done = perfsim(tmp_path, "predict", "--model", "resnet50", "--gpus", "2", "--net", "ours.toml")
    assert "its times changed while it was measured" in " ".join(done.stdout.split())


def test_a_sweep_does_not_go_on_where_the_network_is_another_one(
    cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    hosts = cluster(2, "200mbit")
    job = hosts.run((*WIDE, "--budget", "4s"))
    wait_for(8, job, tmp_path)
    job.kill()
    job.wait(5)
    hosts.first_name = 2
    moved = hosts.run((*WIDE, "--budget", "4s"), label="moved")
    assert moved.wait(60) == [2, 2], moved.text()
    assert "ours.part was begun with host 'host0' at rank 0, now it is 'host2'" in moved.text()
    hosts.first_name = 0
    hosts.reshape("20mbit")
    slower = hosts.run((*WIDE, "--budget", "4s"), label="slower")
    assert slower.wait(60) == [2, 2], slower.text()
    for rank in (0, 1):
        assert re.search(
            r"ours\.part cannot be gone on with: all_reduce on 2 ranks .* took .*, now it takes"
            r" .*; --fresh begins anew\.",
            slower.text(rank),
        )
    assert nothing_written(tmp_path)


def test_the_slow_host_of_three_is_named(cluster: Callable[..., Hosts], tmp_path: Path) -> None:
    hosts = cluster(3, "200mbit")
    hosts.reshape("20mbit", only=1)
    job = hosts.run((*WIDE, "--budget", "5s"))
    assert job.wait(60) == [0, 0, 0], job.text()
    assert "perfsim: warning: host1 is slow: " in job.text()
    assert {one.text.split(":")[0] for one in read_network(tmp_path / "ours.toml").noticed} == {
        "host1 is slow"
    }
