"""The Chrome trace of a prediction, and its timeline as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.cli.main import code
from perfsim.prediction import Prediction, predict
from perfsim.report.chrome_trace import trace_of
from perfsim.report.timeline import KIND_LETTERS, TimelineSpan, row, steady_rounds, text_timeline
from perfsim.scenario import make_scenario
from scripts.chrome_trace import problems
from support.what_ships import SHIPPED

METHODS = ["ssgd", "powersgd", "acpsgd", "localsgd", "dear", "byteps", "asc_wfbp", "p3", "spd_kfac"]


def predicted(method: str = "ssgd", **fields: Any) -> Prediction:
    asked = {"model": "resnet50", "gpus": 16, "net": "10gbe", "method": method} | fields
    return predict(make_scenario(asked), SHIPPED)


@pytest.mark.parametrize("method", METHODS)
def test_every_trace_has_the_format_and_adds_up_to_the_prediction(method: str) -> None:
    trace = trace_of(predicted(method))
    assert problems(json.loads(json.dumps(trace))) == []


def test_one_gpu_has_a_trace_without_communication() -> None:
    trace = trace_of(predicted(gpus=1))
    assert problems(trace) == []
    assert "communicate" not in {event.get("cat") for event in trace["traceEvents"]}


def test_messages_carry_their_bytes() -> None:
    """Ssgd's buckets hold every gradient of ResNet-50 once: 25,557,032 fp32 values."""
    events = trace_of(predicted())["traceEvents"]
    sent = [event["args"]["bytes"] for event in events if event.get("cat") == "communicate"]
    assert sum(sent) == 25_557_032 * 4


def test_compute_in_the_trace_is_the_breakdown_of_the_prediction() -> None:
    prediction = predicted("dgc")
    events = trace_of(prediction)["traceEvents"]
    for kind in ("forward", "backward", "update"):
        spent_us = sum(event["dur"] for event in events if event.get("cat") == kind)
        assert spent_us == pytest.approx(prediction.breakdown_s[kind] * 1e6, abs=0.01)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ts": -1.0}, "has ts"),
        ({"dur": None}, "has dur"),
        ({"ph": "B"}, "neither"),
        ({"tid": 77}, "no name"),
        ({"dur": 1e9}, "overlap"),
        ({"ts": 1e9}, "not sorted"),
    ],
)
def test_the_check_finds_what_is_wrong(change: dict[str, Any], said: str) -> None:
    trace = trace_of(predicted())
    first = next(event for event in trace["traceEvents"] if event.get("tid") == 1 and "ts" in event)
    first.update(change)
    assert any(said in problem for problem in problems(trace))


def test_the_mean_of_rounds_is_the_prediction() -> None:
    prediction = predicted("localsgd")
    rounds = steady_rounds(prediction)
    total_s = sum(one.count * one.window_s / len(one.closes_s) for one in rounds)
    iterations = sum(one.count * one.iterations for one in rounds)
    assert len(rounds) == 2
    assert total_s / iterations == pytest.approx(prediction.iteration_s, rel=1e-12)


def test_a_row_by_hand() -> None:
    spans = [
        TimelineSpan("f", "compute", "forward", 0.0, 1.0, 0.0),
        TimelineSpan("b", "compute", "backward", 1.0, 3.0, 0.0),
        TimelineSpan("u", "compute", "update", 5.75, 6.0, 0.0),
    ]
    assert row(spans, 6.0, 6) == "FBB..u"
    assert row(spans, 6.0, 2) == "Bu"


@given(lengths=st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12), cells=st.integers(1, 80))
def test_a_stream_that_is_never_idle_has_a_large_letter_in_every_cell(
    lengths: list[float], cells: int
) -> None:
    spans, at = [], 0.0
    for length in lengths:
        spans.append(TimelineSpan("b", "compute", "backward", at, at + length, 0.0))
        at += length
    assert row(spans, at, cells) == "B" * cells


@pytest.mark.parametrize("method", METHODS)
def test_the_text_timeline_fits_80_columns_and_shows_every_stream(method: str) -> None:
    prediction = predicted(method)
    key, *lines = text_timeline(prediction)
    assert max(map(len, lines)) <= 80
    streams = {stream for one in steady_rounds(prediction) for stream in one.streams}
    assert all(any(line.startswith(stream[:15]) for line in lines) for stream in streams)
    used = {span.kind for one in steady_rounds(prediction) for span in one.spans}
    assert all(f"{KIND_LETTERS[kind]} {kind.replace('_', ' ')}" in key for kind in used)


def test_the_command_prints_the_timeline_and_writes_the_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    asked = "predict --model resnet50 --gpus 64 --net 1gbe --method dgc --timeline"
    assert code([*asked.split(), "--trace", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.splitlines()[-4].startswith("compute       FF")
    assert problems(json.loads(path.read_text())) == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--timeline --json", "--timeline: it is text for a terminal"),
        ("--trace /nowhere/out.json", "--trace: '/nowhere/out.json' cannot be written"),
        ("--trace a.json --out a.json", "--trace: 'a.json' is the file of --out already"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(
    flags: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert code(f"predict --model resnet50 --gpus 4 {flags}".split()) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert (captured.out, list(tmp_path.iterdir())) == ("", [])
