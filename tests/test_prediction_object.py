"""One schema for a prediction, whoever prints it: predict, compare, sweep as JSON or JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from perfsim.cli.main import code
from perfsim.errors import RequestError
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.rows import flat_row, timing_only_object, whole_object
from perfsim.planning.sweep import MAX_OBJECTS, Sweep, sweep
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session
from support.prediction_object import Failed, Light, Row, Whole, check

ASKED = ["--model", "resnet50", "--gpus", "16", "--net", "1gbe"]
VARIED = ["--vary", "method=ssgd,dgc,spdkfac,localsgd", "--vary", "gpus=1,16"]


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert code([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_predict_prints_the_object_whole(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(["predict", *ASKED, "--method", "dgc", "--straggler", "1:1.5"], capsys)
    check(found, Whole)
    assert next(iter(found)) == "schema"


def test_rows_of_compare_are_objects_without_provenance(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = printed(["compare", *ASKED, "--methods", "ssgd,dgc,localsgd,spdkfac"], capsys)
    assert found["schema"] == "perfsim/compare/1"
    assert len(found["rows"]) == 4
    for row in found["rows"]:
        check(row, Row)


def test_rows_of_a_sweep_are_objects_without_what_takes_more_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["sweep", "--model", "resnet50", *VARIED]
    found = printed(asked, capsys)
    assert found["schema"] == "perfsim/sweep/1"
    assert len(found["rows"]) == 8
    for row in found["rows"]:
        check(row, Light)
    assert code([*asked, "--format", "jsonl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == found["rows"]


def test_rows_of_a_full_sweep_are_those_of_compare(capsys: pytest.CaptureFixture[str]) -> None:
    names = "ssgd,dgc,localsgd,spdkfac"
    rows = printed(["sweep", *ASKED, "--vary", f"method={names}", "--full"], capsys)["rows"]
    for row in rows:
        check(row, Row)
    compared = printed(["compare", *ASKED, "--methods", names], capsys)["rows"]
    by_name = {row["scenario"]["method"]: row for row in compared}
    assert all(row == by_name[row["scenario"]["method"]] for row in rows)


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "dgc", "net": "1gbe", "options": {"density": 0.01}},
        {"method": "ssgd", "fusion": "none", "overlap": False},
        {"method": "ssgd", "bucket": "4MiB"},
        {"method": "ssgd", "jitter": "5%", "straggler": ["1:1.5"]},
        {"method": "localsgd", "background": "30%", "oversubscription": 4},
        {"method": "p3", "single_gpu": "200ms", "overlap_slowdown": 1.2},
        {"gpus": 1},
        {"gpus": 16, "gpu": "v100:8,p100:8"},
        {"model": "resnet20-cifar", "beside": "Zhang2023_ssgd_resnet50_10gbe_32"},
    ],
)
def test_each_key_of_a_row_is_that_of_the_whole_prediction(fields: dict[str, Any]) -> None:
    asked = {"model": "resnet50", "gpus": 16} | fields
    session = Session()
    timing_only_object(asked | {"method": "powersgd", "options": {}}, session)
    found = timing_only_object(asked, session)
    whole = predict(make_scenario(asked)).to_dict()
    whole_only = {"provenance", "memory_usable_bytes", "warnings", "assumptions"}
    left = {"iteration_s_interval", "bottleneck", "notes", *whole_only}
    assert set(whole) - set(found) == left
    assert found == {name: value for name, value in whole.items() if name not in left}
    check(found, Light)
    assert whole_object(asked, session) == {
        name: value for name, value in whole.items() if name not in whole_only
    }


def test_a_row_that_fails_is_what_was_asked_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", *ASKED, "--vary", "method=dgc", "--vary", "precision=fp32,fp8"]
    good, bad = printed(asked, capsys)["rows"]
    check(good, Light)
    assert Failed.model_validate(bad).scenario == {
        "model": "resnet50",
        "gpus": "16",
        "net": "1gbe",
        "method": "dgc",
        "precision": "fp8",
    }
    assert "precision" in bad["error"]
    with pytest.raises(ValidationError):
        check(bad, Light)


def test_tables_of_columns_and_of_objects_say_the_same() -> None:
    vary = {"net": "1Gbit/s..10Gbit/s:log9,20us", "precision": "fp32,fp8"}
    columns = sweep({"model": "resnet50", "gpus": 16}, vary)
    objects = sweep({"model": "resnet50", "gpus": 16}, vary, objects=True)
    assert list(columns.records()) == list(objects.records())
    assert columns.to_dict() == objects.to_dict()


def test_a_full_object_as_columns_has_units_in_their_names() -> None:
    found = whole_object({"model": "resnet50", "gpus": 16, "method": "dgc"}, Session())
    names = ("iteration_s_low", "backward_s", "memory_bytes", "bottleneck", "reason")
    assert flat_row(found, names) == (
        found["iteration_s_interval"][0],
        found["breakdown_s"]["backward"],
        sum(found["memory_bytes"].values()),
        found["bottleneck"],
        "",
    )


def test_more_objects_than_memory_is_meant_for_are_refused_before_any_work() -> None:
    vary = {"seed": f"0..{MAX_OBJECTS}:1"}
    grid = SweepGrid({"model": "resnet50", "gpus": 16}, axes_of(vary))
    assert len(Sweep(grid).grid) == MAX_OBJECTS + 1
    with pytest.raises(RequestError) as refused:
        Sweep(grid, objects=True)
    assert str(refused.value) == (
        "vary: 100,001 rows; at most 100,000 as JSON objects, and 2,000,000 as CSV or Parquet."
        " Give fewer values, or out FILE.csv."
    )
