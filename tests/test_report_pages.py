"""Pages of compare, explain, tune and sweep: numbers, strings, and what cannot be written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chrome_trace import problems
from test_report_page import HOSTILE, Tables, island

from perfsim.cli.main import code
from perfsim.planning.compare import Comparison, compare
from perfsim.planning.explain import Explanation, explain
from perfsim.planning.scaling import scaling_of
from perfsim.planning.sweep import Table, sweep
from perfsim.planning.tune import Tuning, tune, with_best
from perfsim.report.page.comparison_page import comparison_figures, comparison_page
from perfsim.report.page.explanation_page import explanation_figures, explanation_page
from perfsim.report.page.figure import Figure
from perfsim.report.page.rows import MOST_SERIES, SHOWN, rows_figure
from perfsim.report.page.sweep_page import MOST_ROWS, sweep_figures, sweep_page
from perfsim.report.page.tuning_page import tuning_figures, tuning_page
from perfsim.scenario import Scenario, make_scenario
from perfsim.session import Session

CATALOG = Session()
ASKED = {"model": "resnet18", "gpus": 16, "net": "1gbe"}


def asked(**fields: Any) -> Scenario:
    return make_scenario(ASKED | fields)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(asked(), "ssgd,topk,powersgd,qsgd,localsgd", catalog=CATALOG)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return explain(asked(method="dgc"), CATALOG)


@pytest.fixture(scope="module")
def tuning() -> Tuning:
    return tune(asked(method="dgc"), catalog=CATALOG)


@pytest.fixture(scope="module")
def table() -> Table:
    return sweep(ASKED, {"gpus": "8..64", "method": "ssgd,dgc"})


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {one.name: one for one in figures}


def test_points_of_a_comparison_are_its_predictions_and_every_method_has_one_colour(
    comparison: Comparison,
) -> None:
    figures = by_name(comparison_figures(comparison, scaling_of(comparison, CATALOG)))
    points = [
        pair for one in figures["ranked"].data for pair in zip(one["y"], one["x"], strict=True)
    ]
    times = {name: one.iteration_s * 1e3 for name, one in comparison.ranking.predictions.items()}
    assert (dict(points), len(points)) == (times, len(times))
    for trace in figures["ranked"].data:
        for name, x, more in zip(trace["y"], trace["x"], trace["error_x"]["array"], strict=True):
            high_s = comparison.ranking.predictions[name].iteration_s_interval[1]
            assert x + more == pytest.approx(high_s * 1e3, rel=1e-12)
    groups = {name: one["name"] for one in figures["ranked"].data for name in one["y"]}
    sides = comparison.sides()
    assert {name for name, group in groups.items() if group.startswith("slower")} == {
        *sides["slower"]
    }


def test_shares_of_each_method_sum_to_its_whole_iteration(comparison: Comparison) -> None:
    bars = by_name(comparison_figures(comparison, {}))["breakdown"].data
    for place in range(len(comparison.rows)):
        assert sum(bar["x"][place] for bar in bars) == pytest.approx(100.0, rel=1e-9)


def test_curves_of_a_comparison_are_predictions_at_those_gpus(comparison: Comparison) -> None:
    curves = scaling_of(comparison, CATALOG)
    assert list(curves) == [
        "ssgd",
        comparison.ranking.winner,
        list(comparison.ranking.predictions)[1],
    ]
    at_64 = compare(asked(gpus=64), list(curves), catalog=CATALOG).ranking.predictions
    assert {name: one[64].iteration_s for name, one in curves.items()} == {
        name: at_64[name].iteration_s for name in curves
    }


def test_figures_of_an_explanation_are_its_numbers(explanation: Explanation) -> None:
    figures = by_name(explanation_figures(explanation))
    steps_ms = sum(sum(bar["x"]) for bar in figures["path1"].data)
    assert steps_ms == pytest.approx(explanation.paths[0].length_s * 1e3, rel=1e-9)
    shown_ms = sum(figures["exposed"].data[0]["x"])
    exposed_ms = explanation.prediction.breakdown_s["communication_exposed"] * 1e3
    assert shown_ms == pytest.approx(exposed_ms, rel=1e-9)
    saved = [row.saved * 100 for row in explanation.improvements]
    assert figures["sensitivity"].data[0]["x"] == saved == sorted(saved, reverse=True)
    method, ssgd = figures["crossing-gpus"].data
    at_16 = method["x"].index(16)
    assert method["y"][at_16] == pytest.approx(explanation.prediction.iteration_s * 1e3, rel=1e-12)
    assert ssgd["y"][at_16] == pytest.approx(explanation.prediction.baseline_s * 1e3, rel=1e-12)


def test_a_tuned_curve_marks_what_is_asked_fastest_and_to_take(tuning: Tuning) -> None:
    figure = by_name(tuning_figures(tuning))["tuned-bucket"]
    one = tuning.tuned[0]
    line, *marks = figure.data
    assert list(zip(line["x"], line["y"], strict=True)) == [(v, s * 1e3) for v, s in one.curve]
    places = [(mark["x"][0], mark["y"][0]) for mark in marks]
    ends = (one.asked, one.asked_s), (one.fastest, one.fastest_s), (one.advised, one.advised_s)
    assert places == [(value, seconds * 1e3) for value, seconds in ends]
    assert next(row[2] for row in figure.rows if row[0] == one.asked) == "asked"


def test_the_best_setting_is_predicted_as_it_was_tuned(tuning: Tuning) -> None:
    best = with_best(asked(method="dgc"), tuning, CATALOG)
    assert best.iteration_s == pytest.approx(tuning.best.advised_s, rel=1e-12)
    assert tuning.best.gain == max(one.gain for one in tuning.tuned) > 0


@pytest.mark.parametrize("over", ["bucket", "algorithm", "density"])
def test_each_setting_alone_is_predicted_as_it_was_tuned(over: str) -> None:
    scenario = asked(method="dgc", gpus=8)
    found = tune(scenario, [over], CATALOG)
    one = with_best(scenario, found, CATALOG)
    assert one.iteration_s == pytest.approx(found.best.advised_s, rel=1e-12)


def test_lines_of_a_sweep_are_its_rows(table: Table) -> None:
    figures = by_name(sweep_figures(table))
    assert list(figures) == ["rows-iteration_s", "rows-samples_per_s"]
    for trace, method in zip(figures["rows-iteration_s"].data, ("ssgd", "dgc"), strict=True):
        own = [row for row in table.records() if row["method"] == method]
        assert trace["name"] == f"method {method}"
        assert trace["x"] == [8.0, 16.0, 32.0, 64.0]
        assert trace["y"] == [row["iteration_s"] * 1e3 for row in own]


def test_rows_without_a_prediction_leave_a_gap_and_their_reason(tmp_path: Path) -> None:
    found = sweep(ASKED, {"gpus": "8,12", "method": "ssgd,gtopk"})
    reasons = [row["reason"] for row in found.records() if row["reason"]]
    assert len(reasons) == 1
    drawn = by_name(sweep_figures(found))["rows-iteration_s"].data
    assert [len(trace["x"]) for trace in drawn] == [2, 1]
    if pytest.importorskip("plotly"):
        assert island(sweep_page(found), "sweep") == found.to_dict()


def test_names_are_bars_sizes_are_numbers_and_more_lines_than_can_be_told_are_left_out() -> None:
    rows = [
        {"net": net, "bucket": size, "iteration_s": 0.001 * place}
        for place, (net, size) in enumerate(((n, s) for n in "ab" for s in ("1MiB", "4MiB")), 1)
    ]
    figure = rows_figure(SHOWN[0], {"net": ["a", "b"], "bucket": ["1MiB", "4MiB"]}, rows)
    assert [trace["x"] for trace in figure.data] == [[2.0**20, 2.0**22]] * 2
    names = rows_figure(SHOWN[0], {"net": ["a", "b"]}, rows[:1] + rows[2:3])
    assert [trace["type"] for trace in names.data] == ["bar"]
    many = [str(place) for place in range(30)]
    rows = [{"net": net, "gpus": 8, "iteration_s": 1.0 + place} for place, net in enumerate(many)]
    figure = rows_figure(SHOWN[0], {"gpus": [8], "net": many}, rows)
    assert len(figure.data) == MOST_SERIES
    assert [trace["y"][0] for trace in figure.data] == [1e3 * (1 + x) for x in range(MOST_SERIES)]
    assert figure.notes[0].startswith(f"{MOST_SERIES} of 30 lines are drawn")


def test_pages_hold_the_json_every_row_and_strings_as_text(
    comparison: Comparison, explanation: Explanation, tuning: Tuning, table: Table
) -> None:
    pytest.importorskip("plotly")
    told = replace(
        explanation.prediction, scenario=explanation.prediction.scenario | {"net": HOSTILE}
    )
    hostile = {
        "comparison": (
            replace(comparison, notes=[HOSTILE]),
            lambda one: comparison_page(one, {}),
            lambda one: comparison_figures(one, {}),
        ),
        "explanation": (
            replace(explanation, notes=[HOSTILE], prediction=told),
            explanation_page,
            explanation_figures,
        ),
        "tuning": (
            replace(tuning, notes=[HOSTILE], scenario=tuning.scenario | {"model": HOSTILE}),
            tuning_page,
            tuning_figures,
        ),
    }
    for kind, (found, page_of, figures_of) in hostile.items():
        page = page_of(found)
        assert "<img" not in page
        assert island(page, kind) == json.loads(json.dumps(found.to_dict()))
        tables = Tables(page).found
        for figure in figures_of(found):
            rows = [row for row in tables[f"{figure.name}-table"] if row]
            assert rows == [list(row) for row in figure.rows]
            assert len(figure.words) > 40
    grid = replace(table.sweep.grid, base=ASKED | {"net": HOSTILE})
    page = sweep_page(replace(table, sweep=replace(table.sweep, grid=grid)))
    assert "<img" not in page and len(Tables(page).found["rows-table"]) == 1 + len(table)


def test_the_trace_of_a_comparison_has_each_method_as_its_own_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    command = "compare --model resnet18 --gpus 8 --net 1gbe --methods ssgd,localsgd,p3 --json"
    assert code([*command.split(), "--trace", str(path)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    trace = json.loads(path.read_text())
    assert problems(trace) == []
    told = trace["otherData"]["predictions"]
    assert [(one["method"], one["iteration_s"]) for one in told] == [
        (row["scenario"]["method"], row["iteration_s"]) for row in rows
    ]
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert sum(name.startswith("localsgd, ") for name in names) == 2
    told[0]["iteration_s"] *= 1.01
    assert any("predicted" in problem for problem in problems(trace))
    told[0]["rounds"][0]["pid"] = 77
    assert any("processes" in problem for problem in problems(trace))


@pytest.mark.parametrize("command", ["compare --methods ssgd,dgc", "explain", "tune --over bucket"])
def test_all_files_are_written_at_once_and_the_json_is_what_is_printed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    files = {flag: tmp_path / f"{flag}.txt" for flag in ("out", "html", "trace")}
    flags = [text for flag, path in files.items() for text in (f"--{flag}", str(path))]
    assert code([*command.split(), "--model", "resnet18", "--gpus", "4", "--json", *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    assert json.loads(files["out"].read_text()) == said
    kind = {"compare": "comparison", "explain": "explanation", "tune": "tuning"}[
        command.partition(" ")[0]
    ]
    assert island(files["html"].read_text(encoding="utf-8"), kind) == said
    assert problems(json.loads(files["trace"].read_text())) == []
    assert sorted(tmp_path.iterdir()) == sorted(files.values())


def assert_refused(said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fail unless one sentence was said, and nothing printed or written."""
    captured = capsys.readouterr()
    assert captured.err.startswith(f"perfsim: {said}") and captured.err.count("\n") == 1
    assert (captured.out, list(folder.iterdir())) == ("", [])


@pytest.mark.parametrize(
    "command", ["predict", "compare", "explain", "tune", "sweep --vary gpus=4"]
)
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--html no/a.html", "--html: 'no/a.html' cannot be written: its folder does not exist."),
        ("--png a.csv --html a.csv", "--png: 'a.csv' is the file of --html already."),
        ("--png .", "--png: '.' cannot be written: it is a folder."),
        ("--out a.csv --html no/a.html", "--html: 'no/a.html' cannot be written: its folder"),
    ],
)
def test_what_cannot_be_written_is_one_sentence_before_any_work(
    command: str,
    flags: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    # The scenario is wrong too, which would be said first if any work were done first.
    assert code([*command.split(), "--model", "no-such-model", *flags.split()]) == 2
    assert_refused(said, tmp_path, capsys)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--trace a.json", "--trace: a sweep has no timeline, as its rows are many scenarios;"),
        (f"--vary batch=1..{MOST_ROWS + 1}:1 --html a.html", "--html: 5,001 rows, and it holds at"),
        ("--net nowhere --html a.html", "--net: no 'nowhere'"),
    ],
)
def test_a_sweep_says_what_it_cannot_draw(
    flags: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    command = "sweep --model resnet18 --vary gpus=4"
    assert code([*command.split(), *flags.split()]) == 2
    assert_refused(said, tmp_path, capsys)


def test_what_fails_while_files_are_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    from perfsim.errors import RequestError
    from perfsim.report.page import comparison_page as module

    def fails(*_: object) -> str:
        raise RequestError("--html: no.")

    monkeypatch.setattr(module, "comparison_page", fails)
    command = ["compare", "--model", "resnet18", "--gpus", "4", "--methods", "ssgd,dgc"]
    out, page = tmp_path / "out.json", tmp_path / "page.html"
    assert code([*command, "--out", str(out), "--html", str(page)]) == 2
    assert list(tmp_path.iterdir()) == []
