"""Measurements as JSON and CSV of nccl-tests, CSV of PyTorch benchmarks, and text of PARAM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsim.errors import DataError
from support.measured_texts import NCCL_CSV, POINTS, check, read, report


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
