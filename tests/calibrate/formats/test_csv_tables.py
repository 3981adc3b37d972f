"""CSV tables: our own (read, refused row by row, written), nccl-tests' and PyTorch-style ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.formats import read_log
from perfsim.calibrate.formats.csv_tables import own_csv_text, write_own_csv
from perfsim.collectives import COLLECTIVES
from perfsim.errors import DataError, RequestError
from perfsim.network.measured import CollectiveCurve, merge
from support.measured_texts import NCCL_CSV, OWN, POINTS, check, read


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
        ("2,4,4096", "2,4,-1", "size '-1' is not allowed: it must be 1 B"),
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
def curves(draw: st.DrawFn) -> CollectiveCurve:
    nodes, each = draw(st.integers(1, 64)), draw(st.integers(1, 16))
    sizes, times = zip(*draw(ascending), strict=True)
    return CollectiveCurve(
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
    tmp_path_factory: pytest.TempPathFactory, some: list[CollectiveCurve]
) -> None:
    some = merge(some)
    path = tmp_path_factory.getbasetemp() / "own.csv"
    write_own_csv(some, path)
    found = read_log(path)
    assert list(found.curves) == some and found.format == "own_csv" and found.skipped == ()


def test_a_text_with_a_line_break_and_an_empty_list_are_not_written(tmp_path: Path) -> None:
    curve = CollectiveCurve("reduce", 2, 2, 1, (8.0,), (1e-5,), "measured", "two\nlines")
    with pytest.raises(DataError, match="a text with a line break has no cell"):
        own_csv_text([curve])
    with pytest.raises(DataError, match="no curve to write"):
        own_csv_text([])
    with pytest.raises(RequestError, match="cannot be written"):
        write_own_csv(
            [CollectiveCurve("reduce", 2, 2, 1, (8.0,), (1e-5,), "measured", "x")], tmp_path / "a/b"
        )
    assert list(tmp_path.iterdir()) == []


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
