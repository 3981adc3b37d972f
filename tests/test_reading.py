"""Reading what people have measured: every form, damaged lines, and our own table both ways.

The texts have the forms that nccl-tests, its wrappers and PARAM print (sources in the readers'
docstrings); the numbers in them are made up, busbw = factor x size / time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.cells import busbw_factor
from perfsim.calibrate.reading import Reading, read_file, read_folder
from perfsim.calibrate.writing import as_csv, write_csv
from perfsim.cluster.measured import Curve, merge
from perfsim.collectives import COLLECTIVES
from perfsim.errors import DataError, RequestError

COLLECTED = Path(__file__).resolve().parents[2] / "shared" / "data" / "nccl"

NEW_HEAD = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""  # noqa: E501
OLD_HEAD = """\
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""  # noqa: E501
FIRST_HEAD = """\
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
"""  # noqa: E501
POINTS = ((1024, 20.0, 21.0), (1048576, 400.0, 410.0), (16777216, 4000.0, 4100.0))


def devices(nodes: int, gpus: int, form: str = "new") -> str:
    told = (
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 16777216 step: 4(factor)\n#\n# Using devices\n"
    )
    for rank in range(nodes * gpus):
        group = "Group  0 " if form == "new" else ""
        bus = "[0000:1b:00]" if form == "new" else "[0x1b]"
        told += (
            f"#  Rank {rank:2d} {group}Pid  {4000 + rank} on    node{rank // gpus} device "
            f" {rank % gpus} {bus} NVIDIA Test GPU\n"
        )
    return told + "#\n"


def row(size: int, times: tuple[float, ...], lead: str, factor: float, unit: float = 1.0) -> str:
    told = f"{size:12d}  {size // 4:12d}     float {lead}"
    for time in times:
        rate = size / time / 1e3
        told += f"  {time * unit:7.3f}  {rate:6.2f}  {rate * factor:6.2f}      0"
    return told + "\n"


def table(
    points: tuple[tuple[int, float, float], ...] = POINTS,
    factor: float = 1.75,
    lead: str = "   sum      -1",
) -> str:
    return NEW_HEAD + "".join(row(size, times, lead, factor) for size, *times in points)  # type: ignore[misc]


FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 4.2\n#\n"
STARTING = "# Collective test starting: all_reduce_perf\n"


def read(tmp_path: Path, text: str, name: str = "job.log", **given: Any) -> Reading:
    path = tmp_path / name
    path.write_text(text)
    return read_file(path, **given)


def check(curve: Curve, collective: str = "all_reduce", place: tuple[int, ...] = (8, 2, 4)) -> None:
    assert curve.collective == collective
    assert (curve.ranks, curve.nodes, curve.gpus_per_node) == place
    assert curve.size_bytes == tuple(float(size) for size, *_ in POINTS)
    middle = [(one + other) / 2e6 for _, one, other in POINTS]
    assert curve.seconds == pytest.approx(middle)
    assert curve.spread == pytest.approx(5 / 405)  # half of 10 us over the middle of the middle row


def test_a_run_of_today(tmp_path: Path) -> None:
    text = (
        "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n"
        + STARTING + devices(2, 4) + table() + FOOT
    )  # fmt: skip
    found = read(tmp_path, text)
    (curve,) = found.curves
    check(curve)
    assert (curve.version, curve.gpu, found.format) == ("2.28.7", "NVIDIA Test GPU", "nccl_text")
    assert curve.kind == "measured" and "job.log" in curve.source and found.skipped == ()


def test_a_run_of_version_2_0(tmp_path: Path) -> None:
    text = devices(2, 4, "old") + OLD_HEAD
    text += "".join(row(size, (a, b), "  sum", 1.75) for size, a, b in POINTS) + FOOT
    check(read(tmp_path, text).curves[0])  # redop without a root, bus over algorithm 1.75


def test_a_run_of_version_1_has_milliseconds(tmp_path: Path) -> None:
    text = "# Using devices\n"
    text += "".join(f"#   Rank {i:2d} on   node0 device {i:2d} [0x0{i}] Tesla\n" for i in range(4))
    text += FIRST_HEAD
    text += "".join(row(size, (a, b), "  sum", 1.5, 1e-3) for size, a, b in POINTS)
    check(read(tmp_path, text).curves[0], place=(4, 1, 4))


def test_per_iteration_columns_and_timestamps_are_passed_over(tmp_path: Path) -> None:
    names = "time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    text = STARTING + devices(2, 4) + f"# size count type redop root {names} {names} timestamp\n"
    for size, *times in POINTS:
        text += f" {size} {size // 4} float sum -1 "
        for time in times:
            rate = size / time / 1e3
            text += f"{time} {rate:.2f} {rate * 1.75:.2f} 0 1.0 99.0 98.0 3.0 "
        text += "2026-01-31 12:00:00\n"
    check(read(tmp_path, text).curves[0])


def test_labels_colours_carriage_returns_and_logs_between(tmp_path: Path) -> None:
    text = (STARTING + devices(2, 4) + table() + FOOT).splitlines()
    text.insert(4, "node0:77:99 [0] NCCL INFO NCCL_ALGO set by environment to ring")
    text.insert(5, "node0:77:99 [0] NCCL INFO NCCL_PROTO set by environment to Simple")
    text.insert(6, "NCCL version 2.18.3+cuda12.2")
    text.insert(7, "node1:12:13 [2] NCCL INFO Using network Socket")
    for label in ("[1,0]<stdout>:", "0: ", "[0] ", "\x1b[32m"):
        end = "\x1b[0m\r\n" if label[0] == "\x1b" else "\r\n"
        (curve,) = read(tmp_path, "".join(label + line + end for line in text)).curves
        check(curve)
        assert (curve.algorithm, curve.protocol) == ("ring", "simple")
        assert (curve.version, curve.fabric) == ("2.18.3", "network Socket")


def test_a_row_that_the_log_of_nccl_cuts_in_two_is_joined(tmp_path: Path) -> None:
    lines = table().splitlines()
    cut = lines[4].index("-1") + 2
    lines[4:5] = [
        lines[4][:cut] + "node0:5:6 [0] NCCL INFO Channel 00/0 : 7[3] -> 0[0] via NET/IB/2",
        "node1:5:6 [0] NCCL INFO Connected all trees",
        lines[4][cut:],
    ]
    check(read(tmp_path, STARTING + devices(2, 4) + "\n".join(lines) + "\n" + FOOT).curves[0])


def test_several_runs_in_a_file_keep_their_own_facts(tmp_path: Path) -> None:
    gather = table(factor=0.875, lead="  none      -1")
    text = (
        "+ mpirun -np 8 -x NCCL_ALGO=Tree ./build/all_reduce_perf -b 1K -e 16M\n"
        + devices(2, 4) + table() + FOOT
        + "+ mpirun -np 8 ./build/all_gather_perf -b 1K -e 16M\n" + devices(2, 4) + gather + FOOT
        + "+ mpirun -np 4 ./build/all_reduce_perf -b 1K -e 16M\n"
        + devices(1, 4) + table(factor=1.5) + FOOT
    )  # fmt: skip
    first, second, third = read(tmp_path, text).curves
    check(first)
    check(second, "all_gather")
    check(third, place=(4, 1, 4))
    assert [one.algorithm for one in (first, second, third)] == ["tree", "", ""]


def test_a_build_that_prints_no_times_in_place(tmp_path: Path) -> None:
    text = STARTING + devices(2, 4) + OLD_HEAD
    text += "".join(row(size, (a,), "  sum", 1.75) for size, a, _ in POINTS) + FOOT
    (curve,) = read(tmp_path, text).curves
    assert curve.seconds == pytest.approx([time / 1e6 for _, time, _ in POINTS])
    assert curve.spread is None


def test_two_equal_runs_are_repeats(tmp_path: Path) -> None:
    slow = tuple((size, 1.2 * one, 1.2 * other) for size, one, other in POINTS)
    once = STARTING + devices(2, 4) + table() + FOOT
    (curve,) = read(tmp_path, once + STARTING + devices(2, 4) + table(slow) + FOOT).curves
    # 20, 21, 24 and 25.2 us: the median is 22.5; of 400, 410, 480 and 492 us it is 445, half
    # the range 46, and of 4000, 4100, 4800 and 4920 us the spread is the same.
    assert curve.seconds[0] == pytest.approx(22.5e-6)
    assert curve.spread == pytest.approx(46 / 445)


def test_an_aborted_run_gives_what_it_had(tmp_path: Path) -> None:
    text = STARTING + devices(2, 4) + "\n".join(table().splitlines()[:5])
    text += "\nnode0: Test NCCL failure common.cu:958 'unhandled system error / '\n"
    text += " .. node0 pid 77: Test failure common.cu:1161\n"
    (curve,) = read(tmp_path, text).curves
    assert curve.size_bytes == (1024.0, 1048576.0)


def test_a_row_whose_result_was_wrong_is_damaged(tmp_path: Path) -> None:
    """nccl-tests checks what it summed: a time of a wrong sum tells nothing."""
    text = STARTING + devices(2, 4) + table() + FOOT
    line = next(one for one in text.splitlines() if " 1048576 " in one)
    assert line.endswith("      0")
    broken = text.replace(line, line[:-1] + "17")
    with pytest.raises(DataError, match="#wrong is 17: the result was wrong"):
        read(tmp_path, broken)
    found = read(tmp_path, broken, skip_bad=True)
    assert found.curves[0].size_bytes == (1024.0, 16777216.0)


def test_a_cut_last_line_is_damaged(tmp_path: Path) -> None:
    text = STARTING + devices(2, 4) + table()
    text = text[: len(text) - 40]
    with pytest.raises(DataError) as error:
        read(tmp_path, text)
    last = len(text.splitlines())
    assert f"job.log, line {last}: " in str(error.value)
    assert "cells, the head has 13 columns" in str(error.value)
    found = read(tmp_path, text, skip_bad=True)
    assert found.curves[0].size_bytes == (1024.0, 1048576.0)
    assert found.skipped[0].startswith(f"{tmp_path}/job.log:{last}: ")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("400.000", "   nan", "time 'nan' cannot be"),
        ("400.000", "   inf", "time 'inf' cannot be"),
        ("400.000", "  0.05", "time '0.05' cannot be: it is finite and at least 0.1 us"),
        ("400.000", " -3.00", "time '-3.00' cannot be"),
        ("400.000", "  4O0.", "time '4O0.' is not a number"),
        ("400.000", "800.000", "bus bandwidth 4.59 GB/s, but 1.04858e+06 B in 800 us are 2.294"),
        ("262144     float", "262144          ", "12 cells, the head has 13 columns"),
    ],
)
def test_damaged_lines_are_named_or_left_out(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = STARTING + devices(2, 4) + table() + FOOT
    place = next(i for i, line in enumerate(text.splitlines(), 1) if " 1048576 " in line)
    assert text.count(old) == 1
    text = text.replace(old, new)
    with pytest.raises(DataError) as error:
        read(tmp_path, text)
    assert f"job.log, line {place}: " in str(error.value) and told in str(error.value)
    found = read(tmp_path, text, skip_bad=True)
    assert len(found.skipped) == 1 and told in found.skipped[0]
    assert f"job.log:{place}: " in found.skipped[0]


def test_sizes_without_elements_and_one_rank_in_place_are_no_damage(tmp_path: Path) -> None:
    zero = "           0             0     float    none      -1     0.13    0.00    0.00      0     0.11    0.00    0.00      0\n"  # noqa: E501
    gather = table(factor=0.875, lead="  none      -1").splitlines(keepends=True)
    text = "".join([*gather[:3], zero, *gather[3:]])
    start = "# Collective test starting: all_gather_perf\n"
    check(read(tmp_path, start + devices(2, 4) + text).curves[0], "all_gather")
    alone = tuple((size, one, 0.02) for size, one, _ in POINTS)
    (curve,) = read(tmp_path, STARTING + devices(1, 1) + table(alone, 0.0)).curves
    assert curve.ranks == 1 and curve.seconds[0] == 2e-05


def test_a_repeat_ten_times_off_contradicts(tmp_path: Path) -> None:
    again = (*POINTS, (1024, 1000.0, 21.0))
    text = STARTING + devices(2, 4) + table(again)
    first = next(i for i, line in enumerate(text.splitlines(), 1) if "  1024  " in line)
    with pytest.raises(DataError, match=f"1024 B in 1000 us, but line {first} says 20 us"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "number", ["1e99999", "1e-99999", "9" * 5000, "1_0", "٣", "1e999999999999"]
)
def test_absurd_numbers_are_damaged_lines(tmp_path: Path, number: str) -> None:
    text = STARTING + devices(2, 4) + table()
    wrong = json.dumps(report()).replace('"time": 400.0', f'"time": "{number}"')
    for bad, name in (
        (text.replace("400.000", number), "job.log"),
        (text.replace("4.59", number), "job.log"),
        (OWN.replace(",30,", f",{number},"), "ours.csv"),
        (OWN.replace("0.119467", number), "ours.csv"),
        (wrong, "out.json"),
    ):
        if number in ("٣", "1_0") and "4.59" not in bad and "job" in name:
            continue
        found = read(tmp_path, bad, name, skip_bad=True)
        assert len(found.curves) == 1
    with pytest.raises(DataError):
        read(tmp_path, json.dumps(report()).replace("400.0", "9" * 5000), "out.json")


def test_counts_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for name in ("ranks", "nodes", "gpus_per_node"):
        with pytest.raises(RequestError, match=f"--{name.replace('_', '-')}: 0 is not a count"):
            read(tmp_path, STARTING + table(), **{name: 0})


def test_what_the_file_leaves_open_must_be_said(tmp_path: Path) -> None:
    gather = table(factor=0.875, lead="  none      -1")
    with pytest.raises(DataError, match="does not say which collective it measured: --collective"):
        read(tmp_path, devices(2, 4) + gather)
    check(read(tmp_path, devices(2, 4) + gather, collective="all_gather").curves[0], "all_gather")
    check(read(tmp_path, devices(2, 4) + gather, "allgather-8.txt").curves[0], "all_gather")
    with pytest.raises(DataError, match="number of ranks and nodes: --ranks and --nodes"):
        read(tmp_path, STARTING + table())
    with pytest.raises(DataError, match="number of nodes: --nodes"):
        read(tmp_path, STARTING + table(), ranks=8)
    check(read(tmp_path, STARTING + table(), ranks=8, gpus_per_node=4).curves[0])
    check(read(tmp_path, STARTING + table(), nodes=2, gpus_per_node=4).curves[0])
    with pytest.raises(DataError, match="says ranks 8, --ranks says 16"):
        read(tmp_path, STARTING + devices(2, 4) + table(), ranks=16)
    with pytest.raises(DataError, match="says collective all_reduce, --collective says reduce"):
        read(tmp_path, STARTING + devices(2, 4) + table(), collective="reduce")
    with pytest.raises(DataError, match="did you mean 'all_reduce'"):
        read(tmp_path, STARTING + table(), collective="all_redoos")


def test_a_number_of_ranks_that_the_bandwidths_contradict_is_doubted(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bus bandwidths are not those of all_reduce on 2 ranks"):
        read(tmp_path, STARTING + table(), ranks=2, nodes=1)


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


def report(**change: Any) -> dict[str, Any]:
    """Return what nccl-tests -J writes: two processes of two GPUs each on two nodes."""
    results = [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1"}
        | {
            name: {
                "time": time,
                "alg_bw": size / time / 1e3,
                "bus_bw": size / time / 1e3 * 1.5,
                "nwrong": 0.0,
            }
            for name, time in zip(("out_of_place", "in_place"), times, strict=True)
        }
        for size, *times in POINTS
    ]
    processes = [
        {"rank": 2 * i, "group": 0, "pid": 7, "hostname": f"node{i}", "device": 0}
        | {"device_hex": "0000:1b:00", "device_info": "NVIDIA Test GPU"}
        for i in range(2)
    ]
    return {
        "version": 3,
        "start_time": "2026-01-31 12:00:00",
        "args": ["./build/all_reduce_perf", "-g", "2", "-J", "out.json"],
        "env": ["PATH=/bin", "NCCL_ALGO=NVLSTree", "NCCL_PROTO=LL,Simple"],
        "nccl_version": 22703,
        "config": {"nthreads": 1, "ngpus": 2, "devices": processes},
        "results": results,
        "end_time": "2026-01-31 12:01:00",
    } | change


def test_the_json_of_nccl_tests(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(report()), "out.json")
    (curve,) = found.curves
    check(curve, place=(4, 2, 2))
    assert (curve.version, curve.algorithm, curve.protocol) == ("2.27.3", "nvls_tree", "")
    assert found.format == "nccl_json"


def test_damaged_json(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no whole JSON object"):
        read(tmp_path, json.dumps(report())[:-100], "out.json")
    with pytest.raises(DataError, match="the run ended before its table"):
        read(tmp_path, json.dumps(report(results=None)), "out.json")
    wrong = report()
    wrong["results"][1]["in_place"]["time"] = "nan"
    with pytest.raises(DataError, match="result 2, in_place: time 'nan' cannot be"):
        read(tmp_path, json.dumps(wrong), "out.json")
    found = read(tmp_path, json.dumps(wrong), "out.json", skip_bad=True)
    assert found.curves[0].seconds[1] == pytest.approx(4e-4) and len(found.skipped) == 1
    launch = report()
    launch["results"][0]["out_of_place"] = {"cpu_time": 3.0}
    with pytest.raises(DataError, match=r"cpu_time \(-C 1\) is the time to launch"):
        read(tmp_path, json.dumps(launch), "out.json")


RATES = [[size / one / 1e3 for one in times] for size, *times in POINTS]
LEAD = "size,count,type,redop,root,"
NCCL_CSV = {
    "as printed": LEAD + "time,algbw,busbw,#wrong,time,algbw,busbw,#wrong\n"
    + "".join(
        f"{size},{size // 4},float,sum,-1,{a},{x:.2f},{x * 1.75:.2f},0,{b},{y:.2f},"
        f"{y * 1.75:.2f},0\n"
        for (size, a, b), (x, y) in zip(POINTS, RATES, strict=True)
    ),
    "pairs": LEAD + "oop-time,oop-algbw,oop-busbw,oop-error,ip-time,ip-algbw,ip-busbw,ip-error\n"
    + "".join(
        f"{size},{size // 4},float,sum,-1,{a},{x:.2f},{x * 1.75:.2f},0,{b},{y:.2f},"
        f"{y * 1.75:.2f},0\n"
        for (size, a, b), (x, y) in zip(POINTS, RATES, strict=True)
    ),
    "test": "Test,Size(Bytes),Count(Elements),Type,OutPlaceTime(us),OutPlaceAlgBW(GB/s),"
    "OutPlaceBusBW(GB/s),InPlaceTime(us),InPlaceAlgBW(GB/s),InPlaceBusBW(GB/s)\n"
    + "".join(
        f"AllReduce,{size},{size // 4},float,{a},{x:.2f},{x * 1.75:.2f},{b},{y:.2f},"
        f"{y * 1.75:.2f}\n"
        for (size, a, b), (x, y) in zip(POINTS, RATES, strict=True)
    ),
    "rccl": "numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,"
    "time,algbw,busbw,#wrong\n"
    + "".join(
        f"1,AllReduce,2,8,4,1,{size},float,sum,{place},{time},{rate},{rate * 1.75},0\n"
        for (size, *times), rates in zip(POINTS, RATES, strict=True)
        for place, (time, rate) in enumerate(zip(times, rates, strict=True))
    ),
    "nccl 1": "B,N,type,op,oop_time,oop_algbw,oop_busbw,oop_res,ip_time,ip_algbw,ip_busbw,ip_res\n"
    + "".join(
        f"{size},{size // 4},float,sum,{a / 1e3:f},{x:f},{x * 1.75:f},0e+00,{b / 1e3:f},{y:f},"
        f"{y * 1.75:f},0e+00\n"
        for (size, a, b), (x, y) in zip(POINTS, RATES, strict=True)
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", NCCL_CSV)
def test_tables_of_nccl_tests_as_csv(tmp_path: Path, form: str) -> None:
    place = {} if form == "rccl" else {"ranks": 8, "nodes": 2}
    name = {} if form in ("rccl", "test") else {"collective": "all_reduce"}
    found = read(tmp_path, NCCL_CSV[form], "table.csv", **place, **name)
    assert found.format == "nccl_csv"
    check(found.curves[0])


PYTORCH = {
    "size_bytes,latency_us,busbw_gbps\n": "{size},{us},0.0\n",
    "op,msg_bytes,lat_ms,algBW_GBps,busBW_GBps\n": "allreduce,{size},{ms},0.0,{busbw}\n",
    "kind,size_bytes,world,sec_per_iter,algbw_GBps,busbw_GBps,extra\n": (
        "all_reduce,{size},8,{s},0.0,{busbw},\n"
    ),
    "benchmark,num_gcds,run,size_bytes,latency_us\n": "allreduce,8,1,{size},{us}\n",
    "world_size,bytes,latency_min_us,latency_mean_us,latency_p50_us\n": "8,{size},1.0,9.0,{us}\n",
}


@pytest.mark.parametrize("head", PYTORCH)
def test_csv_of_pytorch_benchmarks(tmp_path: Path, head: str) -> None:
    text = head
    for size, time, _ in POINTS:
        busbw = size / time / 1e3 * 1.75
        told = {"us": time, "ms": time / 1e3, "s": time / 1e6, "busbw": busbw}
        text += PYTORCH[head].format(size=size, **told)
    given: dict[str, Any] = {} if "8" in PYTORCH[head] else {"ranks": 8}
    given |= {} if "reduce" in PYTORCH[head] else {"collective": "all_reduce"}
    found = read(tmp_path, text, "bench.csv", gpus_per_node=4, **given)
    assert found.format == "pytorch_csv"
    (curve,) = found.curves
    assert curve.seconds == pytest.approx([time / 1e6 for _, time, _ in POINTS])
    assert (curve.collective, curve.ranks, curve.nodes) == ("all_reduce", 8, 2)


def test_of_the_ranks_of_a_row_the_last_one_counts(tmp_path: Path) -> None:
    text = "collective,world_size,rank,message_bytes,latency_us,effective_gbps\n"
    text += "".join(
        f"all_reduce,2,{rank},{size},{time},0\n"
        for size, *times in POINTS
        for rank, time in enumerate(times)
    )
    (curve,) = read(tmp_path, text, "ranks.csv", nodes=1).curves
    assert curve.seconds == pytest.approx([time / 1e6 for *_, time in POINTS])
    assert curve.spread is None


def test_a_time_without_unit_and_a_size_in_mb_are_no_known_form(tmp_path: Path) -> None:
    for head in ("collective,size_bytes,latency\n", "backend,world_size,tensor_size_mb,time_ms\n"):
        with pytest.raises(DataError, match="no measurements in a form that is known"):
            read(tmp_path, head + "all_reduce,8,1\n", "bench.csv")


def test_the_text_of_param(tmp_path: Path) -> None:
    text = "[Rank   0] allSizes: [1024] element_size: 4 local_rank: 0, num_pg 1, groupSize 8\n"
    text += "\n\tCOMMS-RES  total-size (B)  nElementsPerRank  Latency(us):p50\n"
    for size, time, _ in POINTS:
        rate = size / time / 1e3
        text += (
            f"\tCOMMS-RES-all_reduce-float32{size:>18}{size // 4:>18}{time:>12.1f}{time + 1:>12}"
        )
        text += f"{time + 2:>12.1f}{time - 1:>12.1f}{time + 3:>12.1f}{rate:>15.3f}"
        text += f"{rate * 1.75:>12.3f}\n"
    found = read(tmp_path, text, "param.txt", nodes=2)
    assert found.format == "param_text"
    assert found.curves[0].seconds == pytest.approx([time / 1e6 for _, time, _ in POINTS])
    assert found.curves[0].ranks == 8


OWN = """\
# source: a cluster of ours
# gpu: Test GPU (8; all alike); intra-node: NVLink; inter-node: 10GbE TCP; NCCL: 2.6.4+cuda10.1; \
algo/proto: Ring (NCCL_TREE_THRESHOLD=0); tool: nccl-tests
# scaling series: ours_10gbe
collective,ranks,nodes,gpus_per_node,size_bytes,time_us,algbw_GBps,busbw_GBps,inplace
alltoall,8,2,4,1024,20,0.0512,0.0448,0
alltoall,8,2,4,1024,21,0.048762,0.0426667,1
alltoall,8,2,4,4096,30,0.136533,0.119467,0
"""


def test_our_own_table_with_a_composite_gpu(tmp_path: Path) -> None:
    (curve,) = read(tmp_path, OWN, "ours.csv").curves
    assert curve.collective == "all_to_all" and curve.seconds == pytest.approx((20.5e-6, 30e-6))
    assert curve.spread == pytest.approx(0.5 / 20.5)
    assert (curve.gpu, curve.version) == ("Test GPU (8; all alike)", "2.6.4")
    assert curve.fabric == "intra-node: NVLink; inter-node: 10GbE TCP"
    assert (curve.algorithm, curve.protocol, curve.library) == ("ring", "", "nccl")
    assert (curve.series, curve.source, curve.kind) == (
        "ours_10gbe", "a cluster of ours", "measured")  # fmt: skip


def test_a_fabric_that_is_named_and_left_empty_is_not_stated(tmp_path: Path) -> None:
    text = OWN.replace("10GbE TCP", "")
    (curve,) = read(tmp_path, text, "ours.csv").curves
    assert curve.fabric == "intra-node: NVLink; inter-node: not stated"


def test_a_table_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="schema is 'perfsim/curves/9', this perfsim reads"):
        read(tmp_path, "# schema: perfsim/curves/9\n" + OWN, "ours.csv")


@pytest.mark.parametrize(
    ("stated", "tool", "library", "version", "algorithm"),
    [
        ("Open MPI 4.0.1 (OSU v5.7)", "OSU osu_allreduce", "mpi", "4.0.1", ""),
        ("gloo commit 1d9e62aff9d7", "gloo benchmark allreduce_ring", "gloo", "", "ring"),
        ("not stated (about 2.12-2.18)", "nccl-tests", "nccl", "", ""),
    ],
)
def test_the_library_is_read_from_its_words(
    tmp_path: Path, stated: str, tool: str, library: str, version: str, algorithm: str
) -> None:
    text = OWN.replace("2.6.4+cuda10.1", stated).replace("tool: nccl-tests", f"tool: {tool}")
    text = text.replace("Ring (NCCL_TREE_THRESHOLD=0)", "default")
    (curve,) = read(tmp_path, text, "ours.csv").curves
    assert (curve.library, curve.version, curve.algorithm) == (library, version, algorithm)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (",30,", ",3x0,", "time '3x0' is not a number"),
        (",30,", ",60,", "bus bandwidth 0.119467 GB/s, but 4096 B in 60 us are 0.05973"),
        (",30,", ",30,1,", "10 cells, the head has 9"),
        ("2,4,4096", "9,4,4096", "8 ranks do not fit on 9 nodes of 4 GPUs"),
        ("2,4,4096", "2,-4,4096", "gpus_per_node '-4' is not a count"),
        ("2,4,4096", "2,4,-1", "size '-1' is not within"),
        ("alltoall,8,2,4,4096", "alltwo,8,2,4,4096", "no collective 'alltwo'"),
    ],
)
def test_damaged_rows_of_our_own_table(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = OWN.replace(old, new)
    with pytest.raises(DataError) as error:
        read(tmp_path, text, "ours.csv")
    assert "ours.csv, line 7: " in str(error.value) and told in str(error.value)
    found = read(tmp_path, text, "ours.csv", skip_bad=True)
    assert found.curves[0].size_bytes == (1024.0,) and "ours.csv:7: " in found.skipped[0]


words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=12)
ascending = st.lists(
    st.tuples(st.integers(1, 2**45) | st.floats(1, 1e12), st.floats(1e-7, 1e4)),
    min_size=1,
    max_size=8,
    unique_by=lambda point: float(point[0]),
).map(lambda found: sorted((float(size), time) for size, time in found))


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    nodes, each = draw(st.integers(1, 64)), draw(st.integers(1, 16))
    sizes, times = zip(*draw(ascending), strict=True)
    return Curve(
        draw(st.sampled_from(COLLECTIVES)),
        draw(st.integers(nodes, nodes * each)),
        nodes,
        each,
        sizes,
        times,
        draw(st.sampled_from(("measured", "published"))),
        draw(words.filter(bool)),
        draw(st.none() | st.floats(0, 2)),
        draw(words.filter(bool)),
        draw(words),
        draw(words),
        draw(st.sampled_from(("nccl", "gloo", "mpi"))),
        draw(words),
        draw(words),
        draw(words),
    )


@given(st.lists(curves(), min_size=1, max_size=4, unique_by=lambda one: (one.series, one.source)))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, some: list[Curve]
) -> None:
    some = merge(some)
    path = tmp_path_factory.getbasetemp() / "own.csv"
    write_csv(some, path)
    found = read_file(path)
    assert list(found.curves) == some and found.format == "own_csv" and found.skipped == ()


def test_a_text_with_a_line_break_and_an_empty_list_are_not_written(tmp_path: Path) -> None:
    curve = Curve("reduce", 2, 2, 1, (8.0,), (1e-5,), "measured", "two\nlines")
    with pytest.raises(DataError, match="a text with a line break has no cell"):
        as_csv([curve])
    with pytest.raises(DataError, match="no curve to write"):
        as_csv([])
    with pytest.raises(RequestError, match="cannot be written"):
        write_csv([Curve("reduce", 2, 2, 1, (8.0,), (1e-5,), "measured", "x")], tmp_path / "a/b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "hello\n", "\0\1\2", "{}", "a,b,c\n1,2,3\n", "[1]"])
def test_what_is_no_measurement_is_refused_with_what_is_known(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, text)
    assert "nccl-tests' text output" in str(error.value) and "perfsim's own table" in str(
        error.value
    )


def test_a_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_file(tmp_path / "none.log")
    with pytest.raises(DataError, match="is not a folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(DataError, match="holds no file with measurements"):
        read_folder(tmp_path)


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "ours.csv").write_text(OWN)
    (tmp_path / "job.log").write_text(STARTING + devices(2, 4) + table())
    (tmp_path / "notes.txt").write_text("nothing")
    found = read_folder(tmp_path)
    assert {path.name: len(one.curves) for path, one in found.items()} == {
        "ours.csv": 1, "job.log": 1}  # fmt: skip


@given(st.data())
def test_no_damage_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = data.draw(
        st.sampled_from(
            [
                STARTING + devices(2, 4) + table() + FOOT,
                OWN,
                json.dumps(report()),
                *NCCL_CSV.values(),
            ]
        )
    )
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.text(max_size=6)) + text[end:]
    path = tmp_path_factory.getbasetemp() / "damaged.log"
    path.write_text(text, encoding="utf-8", errors="replace")
    for skip_bad in (False, True):
        try:
            read_file(path, ranks=8, nodes=2, collective="all_reduce", skip_bad=skip_bad)
        except DataError as error:
            assert str(path) in str(error)


@pytest.mark.parametrize("collective", COLLECTIVES)
@given(st.integers(2, 4096))
def test_bus_bandwidth_is_that_of_the_busiest_link(collective: str, ranks: int) -> None:
    # A ring moves 2 (P - 1) / P of an all-reduce's bytes over a link, half of it for a gather.
    factor = busbw_factor(collective, ranks)
    assert 0.5 <= factor <= 2
    if collective == "all_reduce":
        assert factor == pytest.approx(2 * busbw_factor("all_gather", ranks))


@pytest.mark.skipif(not COLLECTED.is_dir(), reason="the collected measurements are not here")
def test_all_collected_curves_read_without_a_damaged_line() -> None:
    found = read_folder(COLLECTED)
    assert len(found) == len(list(COLLECTED.glob("*.csv"))) == 130
    rows = sum(
        1
        for path in found
        for line in path.read_text().splitlines()
        if line and line[0] != "#" and not line.startswith("collective")
    )
    points = {
        (path, curve.collective, curve.ranks, size)
        for path, one in found.items()
        for curve in one.curves
        for size in curve.size_bytes
    }
    assert all(one.skipped == () for one in found.values())
    assert rows / 2 <= len(points) <= rows
