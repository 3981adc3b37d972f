"""Pages of compare, explain, tune and sweep: figures are the numbers, and strings are text."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from perfsim.planning.capacity import Target, parse_samples, plan
from perfsim.planning.compare import Comparison, compare, scaling_of
from perfsim.planning.explain import Explanation, explain
from perfsim.planning.sweep import SweepTable, sweep
from perfsim.planning.tune import Tuning, tune, with_best
from perfsim.report.html.figure import Figure
from perfsim.report.html.pages import (
    MAX_PAGE_ROWS,
    comparison_figures,
    comparison_page,
    explanation_figures,
    explanation_page,
    plan_figures,
    plan_page,
    sweep_figures,
    sweep_page,
    tuning_figures,
    tuning_page,
)
from perfsim.report.html.planning_figures import DRAWN_COLUMNS, MAX_SERIES, rows_figure
from perfsim.report.html.prediction_figures import ranking_figure
from perfsim.report.notebook import card_of
from perfsim.report.terminal import json_text
from perfsim.scenario import Scenario, make_scenario
from perfsim.session import Session
from support.page_content import HOSTILE, Tables, island

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
def table() -> SweepTable:
    return sweep(ASKED, {"gpus": "8..64", "method": "ssgd,dgc"})


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {one.name: one for one in figures}


def test_points_of_a_comparison_are_its_predictions_and_every_method_has_one_colour(
    comparison: Comparison,
) -> None:
    figures = by_name(comparison_figures(comparison, scaling_of(comparison, CATALOG)))
    traces = [one for one in figures["ranked"].data if "error_x" in one]
    points = [pair for one in traces for pair in zip(one["y"], one["x"], strict=True)]
    times = {name: one.iteration_s * 1e3 for name, one in comparison.ranking.predictions.items()}
    assert (dict(points), len(points)) == (times, len(times))
    for trace in traces:
        for name, x, more in zip(trace["y"], trace["x"], trace["error_x"]["array"], strict=True):
            high_s = comparison.ranking.predictions[name].iteration_s_interval[1]
            assert x + more == pytest.approx(high_s * 1e3, rel=1e-12)
    groups = {name: one["name"] for one in traces for name in one["y"]}
    sides = comparison.sides()
    assert {name for name, group in groups.items() if group.startswith("slower")} == {
        *sides["slower"]
    }


@pytest.mark.parametrize(("slowest", "kind"), [(4.0, "linear"), (10.0, "log")])
def test_a_ranking_cuts_intervals_off_only_where_its_axis_begins_at_zero(
    comparison: Comparison, slowest: float, kind: str
) -> None:
    """Times of 1 s, and of one method 4 or 10 s; every interval reaches to 3 times the time."""
    ones = comparison.ranking.predictions
    times = dict.fromkeys(ones, 1.0) | {list(ones)[-1]: slowest}
    made = {
        name: replace(one, iteration_s=times[name]).stating(
            iteration_s_interval=(0.5, 3 * times[name])
        )
        for name, one in ones.items()
    }
    ranking = replace(comparison.ranking, predictions=made)
    baseline = replace(comparison.baseline, iteration_s=1.0)
    drawn = ranking_figure(replace(comparison, ranking=ranking, baseline=baseline))
    arrows = [one for one in drawn.data if "error_x" not in one]
    if kind == "log":
        assert drawn.layout["xaxis"]["type"] == "log" and arrows == []
        assert drawn.layout["xaxis"]["tickvals"][-1] >= 3 * slowest
    else:
        assert drawn.layout["xaxis"]["range"] == [0.0, 1.6 * slowest]
        assert [(one["y"], one["text"]) for one in arrows] == [([list(ones)[-1]], ["up to 12 s"])]


def test_shares_of_each_method_sum_to_its_whole_iteration(comparison: Comparison) -> None:
    bars = by_name(comparison_figures(comparison, {}))["breakdown"].data
    for place in range(len(comparison.rows)):
        assert sum(bar["x"][place] for bar in bars) == pytest.approx(100.0, rel=1e-9)


def test_curves_of_a_comparison_are_predictions_at_those_gpus(comparison: Comparison) -> None:
    curves = scaling_of(comparison, CATALOG)
    others = list(comparison.ranking.predictions)
    assert comparison.ranking.winner == others[0] == "ssgd"
    assert list(curves) == others[:3]
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


def test_lines_of_a_sweep_are_its_rows(table: SweepTable) -> None:
    figures = by_name(sweep_figures(table))
    assert list(figures) == [*("rows-samples_per_s", "rows-scaling_efficiency", "rows-iteration_s")]
    ssgd, dgc, _ideal = figures["rows-iteration_s"].data
    assert figures["rows-iteration_s"].layout["yaxis"]["title"]["text"] == "iteration [ms]"
    for trace, method in ((ssgd, "ssgd"), (dgc, "dgc")):
        own = [row for row in table.records() if row["method"] == method]
        assert trace["name"] == f"method {method}"
        assert trace["x"] == [8.0, 16.0, 32.0, 64.0]
        assert trace["y"] == [row["iteration_s"] * 1e3 for row in own]


def test_rows_without_a_prediction_leave_a_gap_and_their_reason(tmp_path: Path) -> None:
    found = sweep(ASKED, {"gpus": "8,12", "method": "ssgd,gtopk"})
    reasons = [row["reason"] for row in found.records() if row["reason"]]
    assert len(reasons) == 1
    drawn = by_name(sweep_figures(found))["rows-iteration_s"].data
    assert [len(trace["x"]) for trace in drawn if trace["name"] != "ideal"] == [2, 1]
    assert island(sweep_page(found), "sweep") == json.loads(json_text(found.to_dict()))


def test_a_full_sweep_over_gpus_has_bands_the_ideal_and_no_line_of_s_sgd_over_s_sgd() -> None:
    found = sweep(ASKED, {"gpus": "8,16", "method": "ssgd,dgc"}, full=True)
    figures = by_name(sweep_figures(found))
    assert list(figures)[:2] == ["rows-samples_per_s", "rows-scaling_efficiency"]
    *bands, ssgd, dgc, ideal = figures["rows-samples_per_s"].data
    rows = [row for row in found.records() if row["method"] == "dgc"]
    rates = [row["samples_per_s"] * row["iteration_s"] / row["iteration_s_high"] for row in rows]
    assert len(bands) == 2 and bands[1]["y"][2:] == pytest.approx(rates[::-1], rel=1e-12)
    assert ideal["name"] == "ideal" and ideal["y"][1] == pytest.approx(2 * ideal["y"][0])
    assert "90 % from" in figures["rows-samples_per_s"].head
    assert "Rows have no intervals" not in sweep_page(found)
    [speedup] = figures["rows-speedup"].data
    assert (speedup["name"], speedup["line"]) == ("method dgc", dgc["line"])
    assert ssgd["line"] != dgc["line"]


def test_what_does_not_vary_is_no_chart(table: SweepTable) -> None:
    alone = sweep(ASKED, {"gpus": "8,16"}, full=True)
    assert "rows-speedup" not in by_name(sweep_figures(alone))
    assert sweep_figures(sweep(ASKED, {"seed": "1,2"})) == []
    assert "Rows have no intervals;" in sweep_page(table)


def test_a_page_of_the_most_rows_is_light_and_holds_them_all_as_json() -> None:
    sizes = "1MiB..512MiB:log200"
    found = sweep(ASKED, {"gpus": "2..1024", "bucket": sizes}, objects=True)
    assert len(found) == MAX_PAGE_ROWS
    page = sweep_page(found)
    assert len(page) < 1_500_000
    assert len(island(page, "sweep")["rows"]) == MAX_PAGE_ROWS
    shown = Tables(page).found["rows-table"][1:]
    assert [row[0] for row in shown] == [line[0] for line in islice(found.lines(), len(shown))]
    assert f"The first {len(shown):,} of 2,000 rows" in page and len(shown) > 500


def test_a_plan_has_its_choices_as_a_chart_and_a_table() -> None:
    target = Target(parse_samples("imagenet"), 90.0)
    scenarios = [
        make_scenario({"model": "resnet18", "net": "10gbe", "gpus": gpus, "method": method})
        for gpus in (8, 16)
        for method in ("ssgd", "dgc")
    ]
    found = plan(scenarios, target, None, CATALOG)
    page = plan_page(found)
    [figure] = plan_figures(found)
    assert island(page, "plan") == json.loads(json_text(found.to_dict()))
    rows = Tables(page).found["choices-table"][1:]
    assert len(rows) == len(found.choices) == 4
    assert rows[0][:2] == [found.fastest.scenario.method, found.fastest.scenario.gpus]
    assert len(figure.rows) == 4
    assert plan_figures(replace(found, choices=found.choices[:1])) == []


def test_a_front_of_iterations_alone_is_called_so_on_page_figure_and_card() -> None:
    """Where nobody knows how many epochs the methods need, it is no front of times to accuracy."""
    asked = [
        make_scenario({"model": "resnet50", "net": "10gbe", "gpus": gpus, "method": method})
        for gpus in (8, 16)
        for method in ("ssgd", "topk")
    ]
    target = Target(parse_samples("imagenet"), 90.0)
    unknown = plan([one for one in asked if one.method == "topk"], target, None, CATALOG)
    assert not unknown.learning_known
    words = "Pareto front by iteration time only"
    [figure] = plan_figures(unknown)
    assert figure.data[0]["name"] == words and {row[-1] for row in figure.rows} == {words}
    rows = Tables(plan_page(unknown)).found["choices-table"][1:]
    assert {row[-1] for row in rows} == {f"on the {words}"}
    card = card_of(unknown)
    assert card.head[0] == words
    assert list(card.answer) == ["fastest", "least GPU hours"]
    assert all(said.endswith("(its epochs are not known)") for said in card.answer.values())
    known = plan(asked, target, None, CATALOG)
    assert card_of(known).head[0] == plan_figures(known)[0].data[0]["name"] == "Pareto front"


def test_names_are_bars_sizes_are_numbers_and_more_lines_than_can_be_told_are_left_out() -> None:
    rows = [
        {"net": net, "bucket": size, "iteration_s": 0.001 * place}
        for place, (net, size) in enumerate(((n, s) for n in "ab" for s in ("1MiB", "4MiB")), 1)
    ]
    figure = rows_figure(DRAWN_COLUMNS[0], {"net": ["a", "b"], "bucket": ["1MiB", "4MiB"]}, rows)
    assert [trace["x"] for trace in figure.data] == [[2.0**20, 2.0**22]] * 2
    names = rows_figure(DRAWN_COLUMNS[0], {"net": ["a", "b"]}, rows[:1] + rows[2:3])
    assert [trace["type"] for trace in names.data] == ["bar"]
    many = [str(place) for place in range(30)]
    rows = [{"net": net, "gpus": 8, "iteration_s": 1.0 + place} for place, net in enumerate(many)]
    figure = rows_figure(DRAWN_COLUMNS[0], {"gpus": [8], "net": many}, rows)
    assert len(figure.data) == MAX_SERIES
    assert [trace["y"][0] for trace in figure.data] == [1.0 + x for x in range(MAX_SERIES)]
    assert figure.notes[0].startswith(f"{MAX_SERIES} of 30 lines are drawn")


def test_pages_hold_the_json_every_row_and_strings_as_text(
    comparison: Comparison, explanation: Explanation, tuning: Tuning, table: SweepTable
) -> None:
    told = replace(
        explanation.prediction, scenario=explanation.prediction.scenario._replace(net=HOSTILE)
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
            replace(tuning, notes=[HOSTILE], scenario=tuning.scenario._replace(model=HOSTILE)),
            tuning_page,
            tuning_figures,
        ),
    }
    for kind, (found, page_of, figures_of) in hostile.items():
        page = page_of(found)
        assert "<img" not in page
        assert island(page, kind) == json.loads(json_text(found.to_dict()))
        tables = Tables(page).found
        for figure in figures_of(found):
            rows = [row for row in tables[f"{figure.name}-table"] if row]
            assert rows == [list(row) for row in figure.rows]
            assert len(figure.words) > 40
    grid = replace(table.sweep.grid, base=ASKED | {"net": HOSTILE})
    page = sweep_page(replace(table, sweep=replace(table.sweep, grid=grid)))
    assert "<img" not in page and len(Tables(page).found["rows-table"]) == 1 + len(table)
