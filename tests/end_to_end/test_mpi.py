"""``perfsim calibrate network --backend mpi`` under a real mpirun, on emulated hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfsim.network.cluster import read_network
from scripts.end_to_end.mpi import beside, measure
from support.emulated.hosts import Hosts
from support.emulated.mpirun import mpirun, no_mpi

pytestmark = [
    pytest.mark.root,
    pytest.mark.mpi,
    pytest.mark.skipif(bool(no_mpi()), reason=no_mpi() or "Open MPI is there"),
]

SWEEP = ("-m", "perfsim", "calibrate", "network", "--backend", "mpi", "--out", "ours.toml")


def test_all_collectives_of_open_mpi_make_a_network(
    bare_cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    # Beside what else runs here the fit may miss its times, and would not be written.
    sweep = (*SWEEP, "--max-size", "256KiB", "--budget", "3s", "--force")
    done = mpirun(bare_cluster(2), sweep, seconds=60)
    assert done.returncode == 0, done.stderr
    network = read_network(tmp_path / "ours.toml")
    assert network.library == "mpi" and network.known is not None
    assert {curve.collective for curve in network.known.curves} == {
        *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"),
        *("all_to_all", "send_recv"),
    }
    assert all(curve.version.startswith("Open MPI v") for curve in network.known.curves)


def test_a_forced_algorithm_is_named_and_its_large_messages_foretell_other_hosts(
    bare_cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    hosts = bare_cluster(4)
    # One retry: what else runs on the machine stretches real messages.
    for folder in (tmp_path / "one", tmp_path / "two"):
        hosts.work = folder
        folder.mkdir()
        curves = measure(hosts, "ring", most="8MiB", budget="5s")
        assert {ranks: one.algorithm for ranks, one in curves.items()} == {2: "ring", 4: "ring"}
        last = beside([curves[2]], curves[4], folder)[-1]
        # Only bytes are foretold from two hosts: a step's latency is the CPU's, shared by all.
        if abs(last.error) < 0.25:
            return
    wire_s = 2 * 3 / 4 * last.size_bytes / 125e6
    if last.measured_s > 1.5 * wire_s:
        pytest.skip(f"the machine is too busy: {last.measured_s:.2f} s, the wire {wire_s:.2f} s")
    pytest.fail(str(last))


def test_a_slow_host_is_named(bare_cluster: Callable[..., Hosts]) -> None:
    hosts = bare_cluster(3, "200mbit")
    hosts.reshape("20mbit", only=1)
    sweep = (*SWEEP, "--collectives", "all_reduce,send_recv", "--max-size", "256KiB")
    done = mpirun(hosts, (*sweep, "--budget", "3s"), seconds=60)
    # Beside what else runs here the fit may miss its times: then the refusal names the host.
    written = "no network file is written" not in done.stderr
    assert (done.returncode, (hosts.work / "ours.toml").exists()) == (
        (0, True) if written else (3, False)
    )
    assert "host1 is slow" in done.stderr


def test_an_error_on_rank_0_ends_the_job(
    bare_cluster: Callable[..., Hosts], tmp_path: Path
) -> None:
    (tmp_path / "ours.toml").write_text("")
    done = mpirun(bare_cluster(2), SWEEP, seconds=30)
    assert done.returncode == 2
    assert "--out: 'ours.toml' is there already; --force replaces it." in done.stderr
