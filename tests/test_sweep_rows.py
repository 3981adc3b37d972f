"""A sweep's rows are predict()'s, whatever is shared, resumed or spread."""

from __future__ import annotations

import csv
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.catalog import Catalog
from perfsim.cli.main import code
from perfsim.errors import RequestError
from perfsim.methods import method_names
from perfsim.planning.grid import Grid, axes_of
from perfsim.planning.lane import EscapedError, Trace
from perfsim.planning.lanes import Lanes
from perfsim.planning.sweep import Rows, Sweep, sweep
from perfsim.planning.sweep_journal import resumed
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session

BASE = {"model": "resnet50", "gpus": 16}


def rows(base: dict[str, Any], vary: dict[str, Any]) -> tuple[Grid, list[list[Any]]]:
    asked = Sweep(Grid(base, axes_of(vary)))
    return asked.grid, Rows(asked).chunk(0, len(asked.grid))


def test_rows_are_the_predictions_to_the_last_bit() -> None:
    grid, found = rows(
        {"model": "resnet50"},
        {"gpus": "8,64", "net": "10gbe,ib100", "method": "ssgd,dgc,powersgd,mgwfbp,p3"},
    )
    catalog = Catalog()
    for index, row in list(enumerate(found))[::3]:
        want = predict(make_scenario(grid.fields(index)), catalog)
        sent = want.communication["bytes_per_gpu"]
        assert row == [want.iteration_s, want.samples_per_s, want.scaling_efficiency, sent, ""]


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


LINKS = {"net": "1Gbit/s..100Gbit/s:log6,5us..100us:log4"}


@pytest.mark.parametrize(
    ("base", "vary"),
    [
        (BASE, LINKS | {"method": "ssgd,dgc,dear"}),
        (BASE | {"net": "10gbe"}, {"intra_net": "1GB/s..100GB/s:log6,1us..20us:log3"}),
        (BASE, {"single_gpu": "100ms..1s:log8", "overlap_slowdown": "1..2:lin4"}),
        (BASE | {"library": "gloo"}, LINKS),
        (BASE | {"method": "powersgd", "overlap": False}, LINKS),
    ],
)
def test_rows_taken_together_are_those_taken_one_by_one(
    base: dict[str, Any], vary: dict[str, Any]
) -> None:
    grid = Grid(base, axes_of(vary))
    together = 0
    session = Session()
    for places, columns in Lanes(grid, session).columns(0, len(grid)):
        for place, row in list(zip(places.tolist(), zip(*columns, strict=True), strict=True))[::7]:
            want = predict(make_scenario(grid.fields(place)), session)
            assert row[:3] == (want.iteration_s, want.samples_per_s, want.scaling_efficiency)
        together += len(places)
    assert together > len(grid) / 2, "arrays took hardly any row"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 10.0), min_size=3, max_size=9),
    st.lists(st.floats(0.0, 10.0), min_size=9, max_size=9),
)
def test_a_pass_holds_where_comparisons_agree(first: list[float], second: list[float]) -> None:
    def made(a: Any, b: Any) -> Any:
        return max(a, b) * 2.0 - min(a, 3.0) / 7.0 + sum(sorted({a, b, 0.0})[:2])

    trace = Trace(len(first), len(first) // 2)
    found = made(trace.lane(np.array(first)), trace.lane(np.array(second[: len(first)])))
    agreed = trace.agreed()
    assert agreed[len(first) // 2]
    values = np.broadcast_to(getattr(found, "values", found), agreed.shape)
    for place in np.flatnonzero(agreed):
        assert values[place] == made(first[place], second[place])


def test_what_arrays_cannot_follow_is_refused() -> None:
    import math

    lane = Trace(2).lane(np.array([1.5, 2.5]))
    for asked in (math.log, int, float, round, math.ceil):
        with pytest.raises(EscapedError):
            asked(lane)


def test_a_row_without_a_prediction_has_its_reason() -> None:
    table = sweep(BASE, {"method": "ssgd,nope", "precision": ["fp32", "fp7"]})
    reasons = [row["reason"] for row in table.records()]
    assert not reasons[0]
    assert "--precision: no 'fp7'" in reasons[1]
    assert "--method: no 'nope'" in reasons[2]
    with pytest.raises(RequestError, match="--model"):
        sweep({"model": "resnet5"}, {"gpus": "8,16"})


def test_full_rows_are_whole_predictions() -> None:
    (row,) = sweep(BASE, {"method": "dgc"}, full=True).records()
    want = predict(make_scenario({**BASE, "method": "dgc"}))
    assert (row["iteration_s_low"], row["iteration_s_high"]) == want.iteration_s_interval
    assert (row["speedup"], row["bottleneck"]) == (want.speedup, want.bottleneck)
    assert sum(row[f"{part}_s"] for part in want.breakdown_s) == pytest.approx(want.iteration_s)


def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsim.planning.sweep.APART", 16)
    asked = Sweep(Grid({"model": "resnet50"}, axes_of({"gpus": "1..40:1"})))
    out = tmp_path / "rows.csv"
    seen: list[int] = []

    def broken(one: Sweep, chunks: Any) -> Any:
        yield Rows(one).chunk(*chunks[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resumed(asked, broken, out, seen.append)
    journal = tmp_path / "rows.csv.journal"
    with journal.open("a") as file:
        file.write('{"start": 16, "ro')  # a line that was cut short

    def rest(one: Sweep, chunks: Any) -> Any:
        assert chunks[0][0] == seen[-1] > 0
        return (Rows(one).chunk(*chunk) for chunk in chunks)

    table = resumed(asked, rest, out, seen.append)
    assert table.rows == Rows(asked).chunk(0, 40)
    other = Sweep(Grid({"model": "vgg16"}, asked.grid.axes))
    said = "begun with scenario model=resnet50, now it is model=vgg16; --fresh begins anew"
    with pytest.raises(RequestError, match=said):
        resumed(other, rest, out, seen.append)


def test_the_command_writes_what_it_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ["sweep", "--model", "resnet50", "--vary", "gpus=8,16", "--vary", "net=1gbe"]
    assert code(plain) == 0
    text = capsys.readouterr().out
    lines = list(csv.DictReader(text.splitlines()))
    assert [line["gpus"] for line in lines] == ["8", "16"]
    assert code([*plain, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "perfsim/sweep/1"
    assert found["vary"] == {"gpus": ["8", "16"], "net": ["1gbe"]}
    assert [row["iteration_s"] for row in found["rows"]] == [
        float(line["iteration_s"]) for line in lines
    ]
    out = tmp_path / "rows.jsonl"
    assert code([*plain, "--out", str(out)]) == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == found["rows"]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    assert "Shortest iteration" in capsys.readouterr().out


def test_a_scenario_file_says_what_varies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet50"\ngpus = 16\nmethod = "dgc"\n'
        '[sweep]\nnet = ["1gbe", "10gbe"]\noptions.density = "0.001..0.1:log3"\n'
    )
    assert code(["sweep", str(file), "--vary", "net=ib100"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(line["net"], line["options.density"]) for line in lines] == [
        ("ib100", "0.001"),
        ("ib100", "0.01"),
        ("ib100", "0.1"),
    ]
    assert code(["predict", "--scenario", str(file), "--json"]) == 0
    capsys.readouterr()
    assert code(["sweep", str(file), "--scenario", str(file)]) == 2
    assert "is given already" in capsys.readouterr().err


def test_the_sweep_is_a_function_of_the_package() -> None:
    import perfsim

    assert perfsim.sweep is sweep


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "--vary: nothing varies"),
        (["--vary", "gpuss=8"], "did you mean 'gpus'"),
        (["--vary", "gpus=16..8"], "is empty"),
        (["--vary", "gpus=8", "--out", "nowhere/rows.csv"], "cannot be written"),
        (["--vary", "gpus=8", "--out", "rows.xlsx"], "ends in no known format"),
        (["--vary", "gpus=8", "--workers", "1", "--dask", "x"], "--workers: not beside --dask"),
        (["--vary", "gpus=0"], "at least 1 is needed"),
        (["--vary", "gpus=0,abc"], "none of 2 rows can be predicted; the first: --gpus: '0' is"),
        (["--vary", "gpus=0,abc", "--json"], "none of 2 rows can be predicted; the first: --gpus"),
        (["--vary", "bucket=1..32"], "'1..32' has no unit where it begins; write such as 1MiB.."),
        (["--vary", "net=1..10"], "has no unit where it begins; write such as 1Gbit/s..100Gbit/s"),
        (
            ["--vary", "gpus=1..1000:1", "--vary", "batch=1..1000:1", "--vary", "seed=0..999:1"],
            "--vary: 1,000,000,000 rows; at most 2,000,000. Give fewer values.",
        ),
        (
            ["--vary", "gpus=1..1000:1", "--vary", "batch=1..101:1", "--json"],
            "--vary: 101,000 rows; at most 100,000 as JSON objects",
        ),
    ],
)
def test_a_wrong_request_is_one_sentence(
    flags: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert code(["sweep", "--model", "resnet50", *flags]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not list(tmp_path.iterdir())


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsim.planning.sweep.APART", 16)
    asked = ["sweep", "--model", "resnet50", "--vary", "gpus=1..40:1"]
    out = tmp_path / "rows.csv"
    whole = Rows.chunk

    def pressed(self: Rows, start: int, stop: int) -> Any:
        if start:
            raise KeyboardInterrupt
        return whole(self, start, stop)

    monkeypatch.setattr(Rows, "chunk", pressed)
    assert code([*asked, "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"perfsim: stopped; what is done stands in {out}.journal, and the same command goes on from"
        " there.\n"
    )
    assert code(asked) == 1
    assert capsys.readouterr().err.startswith("perfsim: stopped; with --out, ")
    begun: list[int] = []

    def counted(self: Rows, start: int, stop: int) -> Any:
        begun.append(start)
        return whole(self, start, stop)

    monkeypatch.setattr(Rows, "chunk", counted)
    assert code([*asked, "--out", str(out)]) == 0
    assert begun == [16, 32]
    assert len(out.read_text().splitlines()) == 41
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_disk_that_is_full_at_the_end_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["sweep", "--model", "resnet50", "--vary", "gpus=8", "--out", str(tmp_path / "x.csv")]

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    assert code(asked) == 2
    said = capsys.readouterr().err
    assert "cannot be written: No space left on device; all rows stand in" in said
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv.journal"]
    monkeypatch.undo()
    assert code(asked) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_a_journal_that_cannot_be_begun_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "x.csv"
    assert code(["sweep", "--model", "resnet50", "--vary", "gpus=8", "--out", str(out)]) == 2
    said = f"perfsim: --out: {out}.journal cannot be written: No space left on device.\n"
    assert capsys.readouterr().err == said
    assert not list(tmp_path.iterdir())


def test_parquet_needs_its_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    asked = [
        "sweep",
        "--model",
        "resnet50",
        "--vary",
        "gpus=8",
        "--out",
        str(tmp_path / "x.parquet"),
    ]
    assert code(asked) == 2
    assert "pip install 'perfsim[parquet]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_parquet_holds_the_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    out = tmp_path / "rows.parquet"
    assert code(["sweep", "--model", "resnet50", "--vary", "gpus=8,16", "--out", str(out)]) == 0
    found = parquet.read_table(out).to_pydict()
    assert found["gpus"] == [8, 16]
    table = sweep({"model": "resnet50"}, {"gpus": "8,16"})
    assert found["iteration_s"] == [row["iteration_s"] for row in table.records()]


def test_dask_is_asked_for_where_it_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert code(["sweep", "--model", "resnet50", "--vary", "gpus=8", "--workers", "2"]) == 2
    assert "pip install 'perfsim[dask]'" in capsys.readouterr().err
