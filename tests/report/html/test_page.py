"""The HTML report: its figures are the predictions, its strings are text, and it is whole."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfsim.cli.main import code
from perfsim.planning.neighbours import ReportContext, measured_like, report_context
from perfsim.prediction import Prediction, predict
from perfsim.report.html import render
from perfsim.report.html.figure import Figure, time_unit, varies
from perfsim.report.html.pages import prediction_figures, prediction_page
from perfsim.report.html.prediction_figures import breakdown_figure, scaling_figure
from perfsim.report.terminal import json_text
from perfsim.scenario import Scenario, make_scenario
from perfsim.units import format_seconds
from support.page_content import HOSTILE, Tables, island
from support.paths import ROOT
from support.what_ships import SHIPPED

PLOTLY = Path(render.__file__).parent / "assets" / "plotly" / "plotly-basic.min.js"

ASKED = {"model": "resnet50", "gpus": 16, "net": "25gbe", "method": "horovod", "batch": 64}


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return make_scenario(ASKED | {"intra_net": "nvlink-v100"})


@pytest.fixture(scope="module")
def prediction(scenario: Scenario) -> Prediction:
    return predict(scenario, SHIPPED)


@pytest.fixture(scope="module")
def near(scenario: Scenario, prediction: Prediction) -> ReportContext:
    return report_context(scenario, prediction, SHIPPED, ["powersgd"])


@pytest.fixture(scope="module")
def figures(prediction: Prediction, near: ReportContext) -> dict[str, Figure]:
    return {one.name: one for one in prediction_figures(prediction, near)}


@pytest.fixture(scope="module")
def page(prediction: Prediction, near: ReportContext) -> str:
    return prediction_page(prediction, near)


def test_the_page_holds_the_prediction_and_every_figure(
    page: str, prediction: Prediction, figures: dict[str, Figure]
) -> None:
    assert island(page, "prediction") == json.loads(json_text(prediction.to_dict()))
    drawn = {one["name"]: one["data"] for one in island(page, "figures")}
    assert list(drawn) == [
        *("timeline", "breakdown", "scaling", "efficiency", "breakeven", "worth")
    ]
    assert drawn == {name: json.loads(json.dumps(one.data)) for name, one in figures.items()}


def test_tables_hold_every_row_of_their_figure(page: str, figures: dict[str, Figure]) -> None:
    tables = Tables(page).found
    for name, figure in figures.items():
        rows = [row for row in tables[f"{name}-table"] if row]
        assert rows == [list(row) for row in figure.rows]


def test_bars_of_the_breakdown_are_the_predictions(
    figures: dict[str, Figure], near: ReportContext
) -> None:
    bars = [one for one in figures["breakdown"].data if one["type"] == "bar"]
    [totals] = [one for one in figures["breakdown"].data if "error_x" in one]
    for place, (name, one) in enumerate(near.methods.items()):
        stacked_ms = sum(bar["x"][place] for bar in bars)
        assert bars[0]["y"][place] == name
        assert stacked_ms == pytest.approx(one.iteration_s * 1e3, rel=1e-9)
        assert totals["x"][place] == one.iteration_s * 1e3
        high_ms = totals["x"][place] + totals["error_x"]["array"][place]
        assert high_ms == pytest.approx(one.iteration_s_interval[1] * 1e3, rel=1e-12)


def test_the_axis_follows_the_predictions_and_an_arrow_says_how_far_an_interval_goes(
    prediction: Prediction,
) -> None:
    def ending(times: float) -> Prediction:
        one_s = prediction.iteration_s
        return prediction.stating(iteration_s_interval=(one_s / 2, one_s * times))

    drawn = breakdown_figure({"near": ending(1.5), "far": ending(3.0)}, {})
    edge_ms = pytest.approx(1.6e3 * prediction.iteration_s)
    assert drawn.layout["xaxis"]["range"] == [0.0, edge_ms]
    arrows = drawn.data[-1]
    assert (arrows["y"], arrows["x"]) == (["far"], [edge_ms])
    assert arrows["text"] == [f"up to {format_seconds(3 * prediction.iteration_s)}"]
    assert "An arrow at the edge" in " ".join(drawn.notes)
    whole = breakdown_figure({"near": ending(1.5)}, {})
    assert whole.layout["xaxis"]["rangemode"] == "tozero" and "range" not in whole.layout["xaxis"]
    assert "error_x" in whole.data[-1] and "arrow" not in " ".join(whole.notes)
    # Shares have no interval.
    shares = breakdown_figure({"far": ending(3.0)}, {}, shares=True)
    assert shares.layout["xaxis"]["range"] == [0, 100] and "arrow" not in " ".join(shares.notes)


def test_bars_of_the_timeline_are_its_tasks(
    figures: dict[str, Figure], prediction: Prediction
) -> None:
    bars = {bar["name"]: bar for bar in figures["timeline"].data}
    for kind in ("forward", "backward"):
        assert sum(bars[kind]["x"]) == pytest.approx(prediction.breakdown_s[kind] * 1e3, rel=1e-9)
    sent_ms = prediction.communication["busy_s"] * 1e3
    assert sum(bars["communicate"]["x"]) == pytest.approx(sent_ms, rel=1e-9)


def test_curves_are_predictions_of_the_scenario_at_those_gpus(
    near: ReportContext, scenario: Scenario
) -> None:
    assert list(near.scaling)[:2] == ["ssgd", "horovod"]
    for gpus in (1, 16, 64):
        asked = scenario.model_copy(update={"gpus": gpus})
        assert near.scaling["horovod"][gpus].iteration_s == predict(asked, SHIPPED).iteration_s


def test_measured_points_are_those_of_the_tables(
    figures: dict[str, Figure], near: ReportContext
) -> None:
    """Ying et al. 2021, Horovod with ResNet-50 at batch 64 on p3.16xlarge (bluefog.csv)."""
    told = {(one.gpus, one.samples_per_s) for one in near.measured}
    assert {(8, 2493.0), (64, 17127.0), (128, 29919.0)} <= told
    last = figures["scaling"].data[-1]
    assert set(zip(last["x"], last["y"], strict=True)) == told


def test_another_batch_has_its_own_measured_points_or_none(
    prediction: Prediction, near: ReportContext
) -> None:
    def ids(batch: int) -> set[str]:
        return {one.id for one in measured_like(prediction.scenario._replace(batch=batch), SHIPPED)}

    assert ids(32) and not ids(32) & {one.id for one in near.measured}
    assert not ids(48)


@pytest.mark.parametrize("trained", [{"accumulate": 2}, {"recompute": "full"}])
def test_what_was_trained_otherwise_is_not_compared(
    prediction: Prediction, trained: dict[str, Any]
) -> None:
    scenario = prediction.scenario
    other = scenario._replace(further={**scenario.further, **trained})
    assert measured_like(scenario, SHIPPED) and not measured_like(other, SHIPPED)


def test_cells_of_the_map_are_won_by_the_least_time(near: ReportContext) -> None:
    assert len(near.cells) >= 9
    for cell in near.cells:
        times = {name: one.iteration_s for name, one in cell.ranking.predictions.items()}
        assert cell.ranking.winner == min(times, key=lambda name: times[name])
    first = near.cells[0].gpus
    column = [cell for cell in near.cells if cell.gpus == first]
    times_s = [cell.ranking.predictions["ssgd"].iteration_s for cell in column]
    assert times_s == sorted(times_s, reverse=True)


def test_the_map_of_a_node_type_changes_the_rate_of_its_nics() -> None:
    fields = {"model": "resnet18", "gpus": 16, "node": "eth-1g", "method": "topk"}
    prediction = predict(make_scenario(fields), SHIPPED)
    near = report_context(make_scenario(fields), prediction, SHIPPED, ["topk"])
    (own,) = (one for one in near.cells if (one.gpus, one.rate_bytes_per_s) == (16, 125e6))
    assert own.ranking.predictions["topk"].iteration_s == prediction.iteration_s
    assert any(
        "a NIC of eth-1g by its data sheet; each node has one NIC" in one for one in near.notes
    )


def test_the_map_of_a_job_on_sites_changes_the_rate_between_them() -> None:
    fields = {"model": "resnet18", "net": "10gbe", "site": "4,8", "method": "topk"}
    asked = make_scenario(fields | {"wan": "2Gbit/s,30ms;1Gbit/s,30ms"})
    prediction = predict(asked, SHIPPED)
    near = report_context(asked, prediction, SHIPPED, ["topk"])
    assert near.between == "sites"
    (own,) = (one for one in near.cells if (one.gpus, one.rate_bytes_per_s) == (12, 125e6))
    assert own.ranking.predictions["topk"].iteration_s == prediction.iteration_s
    faster = fields | {"site": "8,16", "wan": "5Gbit/s,30ms;2.5Gbit/s,30ms"}
    (cell,) = (one for one in near.cells if (one.gpus, one.rate_bytes_per_s) == (24, 312.5e6))
    times_s = {name: one.iteration_s for name, one in cell.ranking.predictions.items()}
    for name in ("ssgd", "topk"):
        one = predict(make_scenario(faster | {"method": name}), SHIPPED)
        assert times_s[name] == pytest.approx(one.iteration_s, rel=1e-12)
    (figure,) = (
        one for one in prediction_figures(prediction, near) if one.title == "Break-even map"
    )
    assert figure.layout["yaxis"]["title"]["text"] == "bandwidth between sites"
    assert "bandwidth between sites" in figure.words
    assert any("the slowest site's link" in note for note in near.notes)
    assert not any("NIC" in note for note in near.notes)


def test_sites_of_a_map_keep_their_proportions() -> None:
    fields = {"model": "resnet18", "net": "10gbe", "gpus_per_node": 1, "method": "topk"}
    asked = make_scenario(fields | {"site": "6,10", "wan": "1Gbit/s,30ms"})
    near = report_context(asked, predict(asked, SHIPPED), SHIPPED, ["topk"])
    counts = {cell.gpus for cell in near.cells}
    assert 8 in counts and not [count for count in counts if count % 8]  # 3 and 5 once or more


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": 8, "gpu": "v100:4,p100:4"},  # no other number of GPUs has these types
        {"gpus": 8, "placement": "3,5"},
        {"site": "4,4", "wan": "1Gbit/s,30ms"},
    ],
)
def test_a_page_is_drawn_where_parts_of_the_map_are_refused(fields: dict[str, Any]) -> None:
    asked = make_scenario({"model": "resnet18", "net": "10gbe"} | fields)
    near = report_context(asked, predict(asked, SHIPPED), SHIPPED, [])
    assert not any("NICs" in note for note in near.notes)


def test_bars_of_what_would_help_are_the_worth(
    figures: dict[str, Figure], prediction: Prediction
) -> None:
    assert figures["worth"].data[0]["x"] == sorted(
        (share * 100 for share in prediction.worth.values()), reverse=True
    )


def test_strings_are_text_wherever_they_stand(prediction: Prediction, near: ReportContext) -> None:
    named = prediction.scenario._replace(model=HOSTILE, net=HOSTILE)
    told = replace(prediction, scenario=named, notes=[HOSTILE])
    hostile = replace(near, methods={HOSTILE: told}, refused={HOSTILE: HOSTILE}, notes=[HOSTILE])
    page = prediction_page(told, hostile)
    assert "<img" not in page
    assert island(page, "prediction")["scenario"]["model"] == HOSTILE
    labels = json.dumps([one["data"] for one in island(page, "figures")])
    assert "<img" not in labels and "&lt;img" in labels


def test_the_page_is_whole(page: str) -> None:
    found = re.search(
        '<script type="application/gzip" id="plotly">([A-Za-z0-9+/=]+)</script>', page
    )
    assert found and gzip.decompress(base64.b64decode(found[1])) == PLOTLY.read_bytes()
    own = page.replace(found[1], "")
    assert not re.findall(r'(?:src|href)="(?!#|data:)', own)
    assert "default-src 'none'" in own


def test_the_bundle_is_the_published_one() -> None:
    """Of the npm package plotly.js-basic-dist-min 4.1.1; NOTICE says the same."""
    data = PLOTLY.read_bytes()
    assert b"plotly.js (basic - minified) v4.1.1" in data[:200]
    assert hashlib.sha256(data).hexdigest() in (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert "MIT" in (PLOTLY.parent / "LICENSE").read_text(encoding="utf-8")


def test_cells_of_the_map_are_bars_at_their_place(
    figures: dict[str, Figure], near: ReportContext
) -> None:
    drawn = figures["breakeven"]
    counts = [int(text) for text in drawn.layout["xaxis"]["ticktext"]]
    found = {
        (rate, counts[round(base + width / 2)]): bars["name"]
        for bars in drawn.data
        for rate, base, width in zip(bars["y"], bars["base"], bars["x"], strict=True)
    }
    won = {
        (f"{cell.rate_bytes_per_s * 8 / 1e9:g} Gbit/s", cell.gpus): cell.ranking.winner
        for cell in near.cells
    }
    assert found == won and len({*won.values()}) > 1


def test_times_have_the_unit_that_suits_them_and_constants_are_no_chart() -> None:
    assert [time_unit([one, 2 * one]).name for one in (2.0, 0.3, 1e-3, 2e-5, 1e-9)] == [
        *("s", "ms", "ms", "µs", "µs")
    ]
    assert time_unit([0.25]).of(0.25) == 250.0
    assert not varies([0.0, 0.0]) and varies([0.0, 1e-6])


def test_efficiency_is_that_of_the_predictions_with_their_intervals(
    figures: dict[str, Figure], near: ReportContext
) -> None:
    lines = [one for one in figures["efficiency"].data if one.get("mode") == "lines+markers"]
    assert [one["name"] for one in lines] == list(near.scaling)
    for line, curve in zip(lines, near.scaling.values(), strict=True):
        assert line["x"] == list(curve)
        for share, ends, one in zip(line["y"], line["customdata"], curve.values(), strict=True):
            assert share == one.scaling_efficiency * 100
            low_s, high_s = one.iteration_s_interval
            times = one.iteration_s / high_s, one.iteration_s / low_s
            assert ends == pytest.approx([share * part for part in times], rel=1e-12)
    assert set(figures["efficiency"].data[-1]["y"]) == {100.0}


def test_every_figure_is_told_in_words_and_can_be_reached_by_key(
    page: str, figures: dict[str, Figure]
) -> None:
    for name, figure in figures.items():
        found = re.search(rf'<div class="plot" id="{name}"([^>]*)>', page)
        assert found and 'role="group"' in found[1] and 'tabindex="0"' in found[1]
        assert len(figure.words) > 40
        assert "aria-label=" in found[1]


def test_curves_without_measurements_say_so(near: ReportContext) -> None:
    assert scaling_figure(near.scaling, [], "horovod").notes == (
        "No measured value of this model, GPU, batch, network and method is stored.",
    )


@pytest.mark.parametrize(
    ("flag", "module", "said"),
    [
        ("--png", "plotly", "--png: Plotly is not installed; pip install 'perfsim[png]'"),
        ("--png", "kaleido", "--png: Kaleido is not installed; pip install 'perfsim[png]'"),
    ],
)
def test_a_missing_extra_is_one_sentence(
    flag: str,
    module: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if module == "kaleido":
        pytest.importorskip("plotly")
    monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "report"
    assert code(["predict", "--model", "resnet50", "--gpus", "4", flag, str(path)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert (captured.out, path.exists()) == ("", False)


def test_a_browser_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    import plotly.io

    def fails(*_: object, **__: object) -> bytes:
        raise RuntimeError("Kaleido requires Google Chrome\nto be installed.")

    # Plotly keeps the Kaleido that it finds when to_image is first looked at.
    monkeypatch.setattr(plotly.io, "to_image", fails)
    monkeypatch.setitem(sys.modules, "kaleido", ModuleType("kaleido"))
    path = tmp_path / "timeline.png"
    assert code(["predict", "--model", "resnet50", "--gpus", "4", "--png", str(path)]) == 2
    captured = capsys.readouterr()
    assert "(Kaleido requires Google Chrome to be installed.)" in captured.err
    assert captured.err.count("\n") == 1
    assert (captured.out, path.exists()) == ("", False)


def test_the_command_writes_the_page_without_plotly_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    path, out = tmp_path / "report.html", tmp_path / "out.json"
    asked = "predict --model resnet18 --gpus 2 --json"
    assert code([*asked.split(), "--html", str(path), "--out", str(out)]) == 0
    printed, said = capsys.readouterr()
    told = json.loads(printed)
    assert said.splitlines() == [f"wrote {out}", f"wrote {path}"]
    assert (
        island(path.read_text(encoding="utf-8"), "prediction")
        == told
        == json.loads(out.read_text())
    )


def test_another_exchange_than_was_measured_has_no_measured_points() -> None:
    """QSGD of 6 bits, all-reduced, on AWS p3 nodes (vineeths.csv); 2 bits send as many bytes."""
    catalog = SHIPPED
    asked = {"model": "resnet50-cifar", "gpus": 4, "net": "10gbe", "method": "qsgd", "batch": 128}
    asked["intra_net"] = "pcie3"

    def points(**options: str | int) -> dict[str, dict[str, Any]]:
        one = predict(make_scenario(asked | {"options": options}), catalog)
        return {point.id: dict(point.options) for point in measured_like(one.scenario, catalog)}

    assert points(exchange="all_reduce", bits=6)["vin-684"] == {}
    assert points(exchange="all_reduce", bits=2)["vin-684"] == {"bits": 6}
    assert points(bits=6) == {}
