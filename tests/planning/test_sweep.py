"""A sweep's rows are predict()'s, whatever is shared or taken together."""

from __future__ import annotations

import csv
import gc
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.data.catalog import Catalog
from perfsim.data.tables import to_csv
from perfsim.errors import PerfsimError, RequestError
from perfsim.methods import method_names
from perfsim.planning.compare import compare
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import Sweep, SweepRows, serial, sweep
from perfsim.planning.vectorise import BranchTrace, NotVectorisableError, VectorisedRows
from perfsim.prediction import predict
from perfsim.report.planning import print_sweep
from perfsim.report.sweep_files import sweep_csv
from perfsim.scenario import make_scenario
from perfsim.session import Session

BASE = {"model": "resnet50", "gpus": 16}


@pytest.fixture(autouse=True, scope="module")
def _arrays_from_four_rows_on() -> Iterator[None]:
    """Let the few rows of a test run as arrays, which pay for more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfsim.planning.shared_rows._MIN_TOGETHER", 4)
        yield


def rows(base: dict[str, Any], vary: dict[str, Any]) -> tuple[SweepGrid, list[tuple[Any, ...]]]:
    asked = Sweep(SweepGrid(base, axes_of(vary)))
    return asked.grid, SweepRows(asked).chunk(0, len(asked.grid))


def test_rows_are_the_predictions_to_the_last_bit() -> None:
    grid, found = rows(
        {"model": "resnet50"},
        {"gpus": "8,64", "net": "10gbe,ib100", "method": "ssgd,dgc,powersgd,mgwfbp,p3"},
    )
    catalog = Catalog()
    for index, row in list(enumerate(found))[::3]:
        want = predict(make_scenario(grid.fields(index)), catalog)
        sent = want.communication["bytes_per_gpu"]
        assert row == (want.iteration_s, want.samples_per_s, want.scaling_efficiency, sent, "")


some_axes = st.fixed_dictionaries(
    {
        "gpus": st.lists(st.sampled_from([2, 4, 6, 8, 16, 48, 96]), min_size=2, max_size=3),
        "net": st.lists(
            st.sampled_from(["1gbe", "10gbe", "ib100", "25gbe", "1Gbit/s,20us"]),
            min_size=2,
            max_size=3,
        ),
        "method": st.lists(
            st.sampled_from(["mgwfbp", "dear", "asc_wfbp", "dgc", "topk", "ssgd", "omgs"]),
            min_size=2,
            max_size=3,
        ),
        "overlap": st.sampled_from([[True], [True, False]]),
        "algorithm": st.sampled_from([["auto"], ["auto", "tree"]]),
    }
)


@settings(max_examples=12, deadline=None)
@given(some_axes, st.data())
def test_rows_of_any_grid_are_those_of_a_loop(axes: dict[str, Any], data: st.DataObject) -> None:
    """Structures differ: what rows share is worked out once, and each is as it is alone."""
    grid, found = rows({"model": "resnet20-cifar"}, axes)
    for index in data.draw(st.lists(st.integers(0, len(grid) - 1), min_size=4, max_size=4)):
        want = predict(make_scenario(grid.fields(index)), Catalog())
        sent = want.communication["bytes_per_gpu"]
        figures = want.iteration_s, want.samples_per_s, want.scaling_efficiency, sent
        assert found[index] == (*figures, "")


CHANGES = {
    "background": 0.3,
    "straggler": ["1:1.5"],
    "jitter": 0.05,
    "oversubscription": 2.0,
    "intra_net": "pcie4",
    "net": "25gbe",
    "gpus_per_node": 8,
    "batch": 64,
    "precision": "amp-fp16",
    "gpu": "v100-pcie",
    "single_gpu": "200ms",
    "single_gpu_kernels": "50ms",
    "bucket": "5MiB",
    "fusion": "none",
    "overlap": False,
    "overlap_slowdown": 1.2,
    "options": {"density": 0.01},
    "method": "dgc",
}
"""A field of a scenario to a value that changes its iteration."""


def test_what_a_session_keeps_is_not_kept_past_a_change() -> None:
    """Each field changed after the same question without it: as a fresh catalog answers."""
    base = {"model": "resnet50", "gpus": 16, "net": "10gbe", "method": "topk"}
    session = Session()
    before_s = predict(make_scenario(base), session).iteration_s
    for field, value in CHANGES.items():
        changed = make_scenario(base | {field: value})
        found_s = predict(changed, session).iteration_s
        assert found_s == predict(changed, Catalog()).iteration_s, field
        assert found_s != before_s, field


def test_every_method_costs_the_same_with_a_session() -> None:
    grid, found = rows(BASE | {"net": "10gbe"}, {"method": "all"})
    assert len(grid) == len(method_names())
    plain = Session()
    for index in range(0, len(grid), 6):
        if not found[index][-1]:
            assert found[index][0] == predict(make_scenario(grid.fields(index)), plain).iteration_s


def test_rows_whose_messages_slow_computation_are_those_taken_one_by_one() -> None:
    """In a node of NVLinks passes depend on what messages take, so that graphs are not kept."""
    varied = {"method": "ssgd,fsdp,dear,mgwfbp", "gpus": "4,8", "batch": "32,64"}
    grid, found = rows({"model": "resnet50", "node": "dgx-a100"}, varied)
    for index in range(len(grid)):
        assert found[index][0] == predict(make_scenario(grid.fields(index))).iteration_s


LINKS = {"net": "1Gbit/s..100Gbit/s:log6,5us..100us:log4"}


@pytest.mark.parametrize(
    ("base", "vary"),
    [
        (BASE, LINKS | {"method": "ssgd,dgc,dear"}),
        (BASE | {"net": "10gbe"}, {"intra_net": "1GB/s..100GB/s:log6,1us..20us:log3"}),
        (BASE, {"single_gpu": "100ms..1s:log8", "overlap_slowdown": "1..2:lin4"}),
        (BASE | {"library": "gloo"}, LINKS),
        (BASE | {"method": "powersgd", "overlap": False}, LINKS),
        (
            {"model": "bert-large", "gpus": 8, "node": "dgx-a100", "method": "fsdp"},
            {"intra_net": "10GB/s..600GB/s:log9,1us..20us:log4"},
        ),
    ],
)
def test_rows_taken_together_are_those_taken_one_by_one(
    base: dict[str, Any], vary: dict[str, Any]
) -> None:
    grid = SweepGrid(base, axes_of(vary))
    together = 0
    session = Session()
    for places, columns in VectorisedRows(grid, session).columns(0, len(grid)):
        for place, row in list(zip(places.tolist(), zip(*columns, strict=True), strict=True))[::7]:
            want = predict(make_scenario(grid.fields(place)), session)
            assert row[:3] == (want.iteration_s, want.samples_per_s, want.scaling_efficiency)
        together += len(places)
    assert together > len(grid) / 2, "arrays took hardly any row"


@pytest.mark.parametrize(
    "vary",
    [
        {"oversubscription": "1,2", "net": "1Gbit/s..100Gbit/s:log9,20us"},
        {"single_gpu": "100ms..1s:log9"},
        {"net": "10gbe,1gbe", "single_gpu": "100ms..1s:log9"},
    ],
    ids="-".join,
)
@pytest.mark.parametrize(
    "more",
    [
        {"straggler": ["1:1.5"]},
        {"jitter": "5%"},
        {"straggler": ["1:1.5"], "method": "localsgd"},
        {"method": "p3"},
        {"method": "asc_wfbp"},
        {"background": 0.2},
        {"method": "dear"},
        {"model": "gpt2", "batch": 4},
        {"model": "gpt2", "batch": 4, "tp": 2},
        {"model": "gpt2", "batch": 4, "pp": 2, "accumulate": 4},
    ],
    ids=lambda more: "-".join(map(str, more.values())),
)
def test_rows_of_numbers_are_predictions_whatever_a_run_takes(
    more: dict[str, Any], vary: dict[str, Any]
) -> None:
    """Slow GPUs, ranks that vary, priorities and shared links take more than one pass.

    Divided models are divided by the times of their layers, and groups of ranks are on the network.
    """
    grid, found = rows(BASE | {"net": "10gbe"} | more, vary)
    plain = Session()
    for index in range(1, len(grid), 5):
        want = predict(make_scenario(grid.fields(index)), plain)
        assert found[index][:3] == (want.iteration_s, want.samples_per_s, want.scaling_efficiency)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 10.0), min_size=3, max_size=9),
    st.lists(st.floats(0.0, 10.0), min_size=9, max_size=9),
)
def test_a_pass_holds_where_comparisons_agree(first: list[float], second: list[float]) -> None:
    def made(a: Any, b: Any) -> Any:
        return max(a, b) * 2.0 - min(a, 3.0) / 7.0 + sum(sorted({a, b, 0.0})[:2])

    trace = BranchTrace(len(first), len(first) // 2)
    found = made(trace.number(np.array(first)), trace.number(np.array(second[: len(first)])))
    agreed = trace.agreed()
    assert agreed[len(first) // 2]
    values = np.broadcast_to(getattr(found, "values", found), agreed.shape)
    for place in np.flatnonzero(agreed):
        assert values[place] == made(first[place], second[place])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=4),
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=4),
    st.data(),
)
def test_a_pass_holds_for_numbers_that_follow_axes(
    first: list[float], second: list[float], data: st.DataObject
) -> None:
    def made(a: Any, b: Any) -> Any:
        alone = max(a * 2.0, a + 1.0)  # follows the first axis alone
        return alone - b / 7.0 + abs(-b) * (alone if b < alone else 1.0)

    rows = data.draw(
        st.lists(st.tuples(*(st.sampled_from(range(len(one))) for one in (first, second)))).filter(
            bool
        )
    )
    trace = BranchTrace(len(rows), len(rows) // 2)
    places = [np.array([row[axis] for row in rows]) for axis in (0, 1)]
    found = made(
        trace.number(np.array(first), places[0]), trace.number(np.array(second), places[1])
    )
    agreed = trace.agreed()
    assert agreed[len(rows) // 2]
    for place in np.flatnonzero(agreed):
        one, other = rows[place]
        assert found.by_scenario[place] == made(first[one], second[other])


def test_what_arrays_cannot_follow_is_refused() -> None:
    import math

    lane = BranchTrace(2).number(np.array([1.5, 2.5]))
    for asked in (math.log, int, float, round, math.ceil):
        with pytest.raises(NotVectorisableError):
            asked(lane)


def test_a_row_without_a_prediction_has_its_reason() -> None:
    table = sweep(BASE, {"method": "ssgd,adpsgd", "precision": ["fp32", "fp8"]})
    reasons = [row["reason"] for row in table.records()]
    assert not reasons[0]
    assert "precision: v100 has no 'fp8' rate" in reasons[1]
    results = list(table.results())
    assert [result.reason for result in results] == reasons
    assert results[1].values == {"method": "ssgd", "precision": "fp8"}
    assert np.isnan(results[1].iteration_s) and results[0].iteration_s > 0
    with pytest.raises(RequestError, match=r"^model: no"):
        sweep({"model": "resnet5"}, {"gpus": "8,16"})


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ({"method": "ssgd,nope"}, "^method: no 'nope'"),
        ({"method": "auto,ssgd"}, "^method: auto is no method"),
        ({"gpus": "8,16", "precision": "fp32,fp99"}, "^precision: no 'fp99'"),
        ({"net": "10gbe,10Tbe"}, "^net: no '10Tbe'"),
        ({"net": "10gbe,10Gbps"}, "^net: no '10Gbps'; did you mean '10gbe'"),
        ({"net": "10gbe,nvlink"}, "^net: no 'nvlink' between nodes"),
        ({"gpu": "v100,foo"}, "^gpu: no 'foo'"),
        ({"algorithm": "ring,foo"}, "^algorithm: no 'foo'"),
        ({"batch": "32,x"}, "^batch: 'x' is not allowed"),
        ({"batch": "0..10000:1"}, "^batch: '0' is not allowed"),
        ({"bucket": "1MiB,zz"}, "^bucket: 'zz' is not a size"),
        ({"method": "ssgd,topk", "options.density": "0.01,x"}, r"^options\.density: 'x' is not"),
        ({"method": "dgc", "options.densty": "1%,2%"}, "^options: method 'dgc' has no 'densty'"),
        ({"placement": "8,8;x"}, "^placement: 'x' is not a list"),
        (
            {"method": "dgc", "options.density": "1%,2%", "options.foo": "1,2"},
            "^options: method 'dgc' has no 'foo'",
        ),
        (
            {"method": "dgc,ssgd", "options.density": "1%,2%", "options.foo": "1,2"},
            "^options: method 'dgc' has no 'foo'",
        ),
        (
            {"method": "dgc", "options.density": "0.01,2", "options.warmup_epochs": "1,2"},
            r"^options\.density: '2' is not allowed for method 'dgc': it must be 1.0 or less",
        ),
        (
            {"method": "dgc,powersgd", "options.density": "1%,2%", "options.rank": "1,2"},
            "^options: method 'powersgd' has no 'density'",
        ),
        ({"fusion_options.foo": "1,2"}, "^fusion_options: fusion policy 'size' has no 'foo'"),
    ],
    ids=str,
)
def test_a_value_that_no_row_could_have_is_refused_first(vary: dict[str, str], said: str) -> None:
    def none(*_: object) -> Iterator[list[object]]:
        raise AssertionError("rows were predicted")

    with pytest.raises(RequestError, match=said):
        sweep(BASE, vary, engine=none)


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ({"model": "none.csv,resnet50"}, "^none.csv: there is no such file"),
        ({"model": "resnet50,none.json"}, "^none.json: there is no such file"),
        ({"model": "resnet50,words.csv", "batch": "16,32"}, "^words.csv: is no profile"),
        ({"model": "resnet50,folder"}, "^model: 'folder' is a folder"),
        ({"net": "10gbe,none.toml"}, "^net: there is no file 'none.toml'"),
        ({"net": "10gbe,words.toml"}, "^words.toml: is not TOML"),
        ({"node": "words.toml,dgx-1"}, "^words.toml: is not TOML"),
        ({"beside": "none.toml,words.toml"}, "^beside: there is no file 'none.toml'"),
    ],
    ids=str,
)
def test_a_file_that_no_row_could_read_is_refused_first(
    vary: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> Iterator[list[object]]:
        raise AssertionError("rows were predicted")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("words.csv", "words.toml"):
        (tmp_path / name).write_text("words\n")
    with pytest.raises(PerfsimError, match=said):
        sweep(BASE, vary, engine=none)


@pytest.mark.parametrize(
    ("base", "vary", "predicted"),
    [
        ({"wan": "1Gbit/s,60ms"}, {"gpus": "16,32", "site": "8,8;16,16"}, 2),
        ({}, {"gpus": "16,32", "gpu": "v100:16;v100:16+p100:16"}, 2),
        ({}, {"gpus": "4,32", "straggler": "8:1.5,4:2"}, 3),
        ({"gpus": 16}, {"method": "ssgd,dgc", "options.density": "1%,2%"}, 2),
    ],
)
def test_what_does_not_go_together_is_a_row_with_its_reason(
    base: dict[str, str], vary: dict[str, str], predicted: int
) -> None:
    rows = list(sweep({"model": "resnet18"} | base, vary).results())
    assert len(rows) == 4 and sum(not row.reason for row in rows) == predicted


def test_full_rows_are_whole_predictions() -> None:
    table = sweep(BASE, {"method": "dgc"}, full=True)
    (row,), (result,) = table.records(), table.results()
    want = predict(make_scenario({**BASE, "method": "dgc"}))
    assert (result.iteration_s_low, result.iteration_s_high) == want.iteration_s_interval
    assert result.sent_bytes_per_gpu == want.communication["bytes_per_gpu"]
    assert (row["iteration_s_low"], row["iteration_s_high"]) == want.iteration_s_interval
    assert (row["speedup"], row["bottleneck"]) == (want.speedup, want.bottleneck)
    assert sum(row[f"{part}_s"] for part in want.breakdown_s) == pytest.approx(want.iteration_s)


def test_advice_of_rows_that_were_not_held_against_memory_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = {"model": "llama3-8b", "gpu": "h100", "gpus": 8, "seq": 2048, "recompute": "full"}
    print_sweep(sweep(base | {"method": "ssgd"}, {"batch": "1,2,4"}))
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("! batch ") == 2 and "! batch 1 needs " in said and "! batch 4 needs " in said
    assert "more than the GPU has; full marks every row" in said
    print_sweep(sweep(base | {"method": "fsdp"}, {"batch": "1,2"}))
    assert "! " not in capsys.readouterr().out


def test_tables_write_true_and_false_alike() -> None:
    base = {"model": "llama3-8b", "gpu": "h100", "gpus": 16, "seq": 4096}
    table = sweep(base, {"method": "ssgd,fsdp", "overlap": [True]}, full=True)
    swept = list(csv.DictReader(io.StringIO(sweep_csv(table))))
    assert [row["fits"] for row in swept] == ["false", "true"]
    assert {row["overlap"] for row in swept} == {"true"}
    assert {result.words.split(", ")[1] for result in table.results()} == {"overlap true"}
    found = compare(make_scenario(base), ["ssgd", "fsdp", "powersgd"])
    compared = to_csv(found.records())
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(compared))}
    assert (rows["ssgd"]["fits"], rows["fsdp"]["fits"]) == ("false", "true")
    assert "warm_start=true" in rows["powersgd"]["options"].split()
    assert not {"True", "False"} & {cell for row in rows.values() for cell in row.values()}


def test_rows_that_do_not_fit_are_marked_and_not_advised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = {"model": "llama3-8b", "gpu": "h100", "gpus": 16, "seq": 4096}
    table = sweep(base, {"method": "ssgd,fsdp"}, full=True)
    large, small = table.results()
    assert not large.fits and small.fits and large.memory_bytes > small.memory_bytes
    assert [row["fits"] for row in table.records()] == [False, True]
    print_sweep(table)
    printed = capsys.readouterr().out
    assert "! 1 row of a model that does not fit into the GPU's memory, left out below." in printed
    assert printed.count("with method fsdp") == 2 and " GB !" in printed


@pytest.mark.parametrize(
    ("own", "during"), [((700, 10, 10), 500_000), ((0, 10, 10), 0), ((10**6, 20, 20), 10**6)]
)
def test_garbage_is_looked_for_seldom_while_rows_are_made(
    own: tuple[int, int, int], during: int
) -> None:
    """And as before afterwards, also where whoever reads the rows stops early."""
    before = gc.get_threshold()
    gc.set_threshold(*own)
    try:
        asked = Sweep(SweepGrid(BASE, axes_of({"net": "1gbe,10gbe,ib100"})))
        made = serial(asked, [(0, 1), (1, 2), (2, 3)])
        next(made)
        assert gc.get_threshold()[0] == during
        made.close()
        assert gc.get_threshold() == own
        assert len([*serial(asked, [(0, 1), (1, 3)])]) == 2
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)


def test_a_sweep_drops_what_it_keeps_before_garbage_is_looked_for_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, dropped = gc.get_threshold(), []

    class Rows(SweepRows):
        def __del__(self) -> None:
            dropped.append(gc.get_threshold()[0])

    monkeypatch.setattr("perfsim.planning.sweep.SweepRows", Rows)
    gc.set_threshold(700, 10, 10)
    try:
        asked = Sweep(SweepGrid(BASE, axes_of({"net": "1gbe,10gbe"})))
        assert len([*serial(asked, [(0, 2)])]) == 1
        assert dropped == [500_000]
    finally:
        gc.set_threshold(*before)
