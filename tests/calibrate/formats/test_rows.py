"""Which collective was measured on how many ranks: what a file says, shows, or is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.formats.rows import busbw_factor
from perfsim.collectives import COLLECTIVES
from perfsim.errors import DataError, RequestError
from support.measured_texts import FOOT, POINTS, STARTING, check, devices, read, table


def test_what_the_file_leaves_open_must_be_said(tmp_path: Path) -> None:
    gather = table(factor=0.875, lead="  none      -1")
    with pytest.raises(
        DataError, match="does not say which collective it measured; give collective"
    ):
        read(tmp_path, devices(2, 4) + gather)
    check(read(tmp_path, devices(2, 4) + gather, collective="all_gather").curves[0], "all_gather")
    check(read(tmp_path, devices(2, 4) + gather, "allgather-8.txt").curves[0], "all_gather")
    with pytest.raises(DataError, match="number of ranks and nodes; give ranks and nodes"):
        read(tmp_path, STARTING + table())
    with pytest.raises(DataError, match="number of nodes; give nodes"):
        read(tmp_path, STARTING + table(), ranks=8)
    check(read(tmp_path, STARTING + table(), ranks=8, gpus_per_node=4).curves[0])
    check(read(tmp_path, STARTING + table(), nodes=2, gpus_per_node=4).curves[0])
    with pytest.raises(DataError, match="says ranks 8, but ranks is 16"):
        read(tmp_path, STARTING + devices(2, 4) + table(), ranks=16)
    with pytest.raises(DataError, match="says collective all_reduce, but collective is reduce"):
        read(tmp_path, STARTING + devices(2, 4) + table(), collective="reduce")
    with pytest.raises(DataError, match="did you mean 'all_reduce'"):
        read(tmp_path, STARTING + table(), collective="all_redoos")


def test_counts_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for name in ("ranks", "nodes", "gpus_per_node"):
        with pytest.raises(
            RequestError, match=f"{name}: 0 is not allowed: it must be 1 to 999,999,999"
        ):
            read(tmp_path, STARTING + table(), **{name: 0})


@pytest.mark.parametrize(
    ("lead", "factor", "ranks", "collective"),
    [
        ("   sum      -1", 1.75, 8, "all_reduce"),
        ("   sum      -1", 0.875, 8, "reduce_scatter"),
        ("   sum      -1", 1.0, 8, "send_recv"),
        ("   sum       0", 1.0, 8, "reduce"),
        ("  none       0", 1.0, 8, "broadcast"),
    ],
)
def test_columns_show_the_collective(
    tmp_path: Path, lead: str, factor: float, ranks: int, collective: str
) -> None:
    check(read(tmp_path, devices(2, 4) + table(POINTS, factor, lead)).curves[0], collective)


def test_a_number_of_ranks_that_the_bandwidths_contradict_is_doubted(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bus bandwidths are not those of all_reduce on 2 ranks"):
        read(tmp_path, STARTING + table(), ranks=2, nodes=1)


def test_processes_that_measured_alone_are_refused(tmp_path: Path) -> None:
    twice = devices(1, 1) + devices(1, 1).splitlines()[-2] + "\n"
    with pytest.raises(DataError, match=r"rank 0 stands 2 times .* built without MPI=1"):
        read(tmp_path, STARTING + twice + table())


def test_a_collective_that_is_unknown_is_refused_or_left_out(tmp_path: Path) -> None:
    text = STARTING.replace("all_reduce", "hypercube") + devices(2, 4) + table() + FOOT
    with pytest.raises(DataError, match="no collective 'hypercube'"):
        read(tmp_path, text)
    found = read(tmp_path, text + STARTING + devices(2, 4) + table() + FOOT, skip_bad=True)
    assert len(found.curves) == 1 and "hypercube_perf" in found.skipped[0]


@pytest.mark.parametrize("collective", COLLECTIVES)
@given(st.integers(2, 4096))
def test_bus_bandwidth_is_that_of_the_busiest_link(collective: str, ranks: int) -> None:
    # A ring moves 2 (P - 1) / P of an all-reduce's bytes over a link, half of it for a gather.
    factor = busbw_factor(collective, ranks)
    assert 0.5 <= factor <= 2
    if collective == "all_reduce":
        assert factor == pytest.approx(2 * busbw_factor("all_gather", ranks))
