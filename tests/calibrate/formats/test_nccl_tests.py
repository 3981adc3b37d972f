"""nccl-tests' text of every version with logs between its lines, its JSON, and PARAM's text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsim.errors import DataError
from support.measured_texts import (
    FIRST_HEAD,
    FOOT,
    OLD_HEAD,
    POINTS,
    STARTING,
    check,
    devices,
    read,
    report,
    row,
    table,
)


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


# Damaged lines


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
        ("400.000", "   nan", "time 'nan' is not allowed"),
        ("400.000", "   inf", "time 'inf' is not allowed"),
        ("400.000", "  0.05", "time '0.05' is not allowed: it must be 0.1 us to 1e9 s"),
        ("400.000", " -3.00", "time '-3.00' is not allowed"),
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
    with pytest.raises(DataError, match="result 2, in_place: time 'nan' is not allowed"):
        read(tmp_path, json.dumps(wrong), "out.json")
    found = read(tmp_path, json.dumps(wrong), "out.json", skip_bad=True)
    assert found.curves[0].seconds[1] == pytest.approx(4e-4) and len(found.skipped) == 1
    launch = report()
    launch["results"][0]["out_of_place"] = {"cpu_time": 3.0}
    with pytest.raises(DataError, match=r"cpu_time \(-C 1\) is the time to launch"):
        read(tmp_path, json.dumps(launch), "out.json")


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
