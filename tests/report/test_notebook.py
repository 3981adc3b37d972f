"""What a notebook shows of each result: one line, a card, figures, and a table of pandas."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perfsim import RequestError, Scenario, Target, compare, explain, plan, predict, sweep, tune
from perfsim.note import warning
from perfsim.planning.capacity import ClusterPlan, Price, Prices
from perfsim.planning.compare import Comparison
from perfsim.planning.explain import Explanation
from perfsim.planning.sweep import SweepTable
from perfsim.planning.tune import Tuning, tune_parallelism
from perfsim.prediction import Prediction
from perfsim.report.notebook import card_html, card_of, figures_of
from perfsim.session import Session
from support.page_content import HOSTILE

CARD_BYTES = 3072
"""A card is small: a notebook keeps each one that it shows."""


ELEMENTS = {"div", "style", "p", "b", "i", "br", "small", "table", "tr", "th", "td"}


class Elements(HTMLParser):
    """Collects what stands in HTML: elements, attributes, and whether all are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that begins."""
        self.names.append(tag)
        self.attributes += attrs
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note an element that ends."""
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return predict(Scenario(model="resnet50", gpus=64, net="1gbe", method="dgc"))


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(Scenario(model="resnet50", gpus=16, net="1gbe"), ["ssgd", "topk", "dgc"])


@pytest.fixture(scope="module")
def table() -> SweepTable:
    return sweep({"model": "resnet50"}, {"gpus": "8..32", "net": "1gbe,10gbe"}, full=True)


@pytest.fixture(scope="module")
def tuning() -> Tuning:
    return tune(Scenario(model="resnet50", gpus=16, net="1gbe", method="dgc"))


@pytest.fixture(scope="module")
def parallelism() -> Tuning:
    asked = Scenario(model="llama3-8b", gpus=16, node="dgx-h100", net="dgx-h100", tp=8)
    return tune_parallelism(asked, global_batch=32)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return explain(Scenario(model="resnet50", gpus=64, net="1gbe", method="dgc"))


@pytest.fixture(scope="module")
def cluster_plan() -> ClusterPlan:
    asked = [
        Scenario(model="resnet50", gpus=gpus, net="ib100", method=method)
        for gpus in (8, 32)
        for method in ("ssgd", "topk")
    ]
    return plan(asked, Target(samples=1_281_167, epochs=90, deadline_s=10 * 3600))


RESULTS = (
    "prediction",
    "comparison",
    "table",
    "tuning",
    "parallelism",
    "explanation",
    "cluster_plan",
)


@pytest.fixture(params=RESULTS)
def result(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


# One line


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (
            "comparison",
            r"<Comparison resnet50, 16 x v100, 1gbe: dgc is first of 3 methods, 1\d\d\.?\d* ms an"
            r" iteration \(.+ to .+\), 1\d\.\d\dx S-SGD>",
        ),
        (
            "table",
            r"<SweepTable resnet50 over gpus, net: 6 rows; shortest \d+ ms with gpus 8, net 10gbe>",
        ),
        (
            "tuning",
            r"<Tuning resnet50, dgc, 16 x v100, 1gbe: .+ ms as asked; bucket .+ MiB takes .+ ms"
            r" \(-\d+\.\d%\)>",
        ),
        ("parallelism", r"<Tuning llama3-8b, 16 x h100, dgx-h100: .*tp 8, .+: .+ s>"),
        (
            "explanation",
            r"<Explanation resnet50, dgc, 64 x v100, 1gbe: .+ ms an iteration, held back by"
            r" bandwidth; twice as good, bandwidth saves \d\d%>",
        ),
        (
            "cluster_plan",
            r"<ClusterPlan 1,281,167 samples, 90 epochs: 1 of 4 choices meet the target; fastest"
            r" ssgd on 32 v100 over ib100: \S+ h, \S+ GPU h; cheapest ssgd on 32 .+>",
        ),
    ],
)
def test_a_result_prints_question_and_answer_on_one_line(
    name: str, pattern: str, request: pytest.FixtureRequest
) -> None:
    text = repr(request.getfixturevalue(name))
    assert re.fullmatch(pattern, text) and len(text) < 220, text


def test_a_value_that_changes_convergence_says_so(tuning: Tuning) -> None:
    (density,) = (one for one in tuning.tuned if one.tunable.name == "density")
    kept = replace(density, advised=density.asked, advised_s=density.asked_s)
    assert repr(replace(tuning, tuned=[kept])).endswith("; no value saves 1 %>")
    low = replace(density, advised=1e-4, advised_s=0.5 * density.asked_s)
    assert repr(replace(tuning, tuned=[low])).endswith("(-50.0%, and changes convergence)>")


def test_a_table_of_many_rows_prints_at_once(table: SweepTable) -> None:
    many = replace(table, rows=table.rows * 5000)
    assert repr(many) == "<SweepTable resnet50 over gpus, net: 30,000 rows>"


def test_sites_are_part_of_the_question() -> None:
    asked = {"node": "dgx-h100", "site": [8, 8], "wan": "1Gbit/s,40ms", "precision": "bf16"}
    found = predict(Scenario(model="gpt3-1.3b", batch=8, **asked))
    assert repr(found).startswith("<Prediction gpt3-1.3b, ssgd, 16 x h100, dgx-h100, 2 sites: ")


# Cards


def test_a_card_is_small_well_formed_and_needs_nothing_else(result: Any) -> None:
    text = result._repr_html_()
    assert len(text.encode()) <= CARD_BYTES
    found = Elements(text)
    assert found.open == [] and found.names[0] == "div"
    assert set(found.names) <= ELEMENTS
    assert {name for name, _ in found.attributes} <= {"class", "style"}
    assert "url(" not in text and "@import" not in text


def test_a_card_takes_its_colours_from_the_notebook(result: Any) -> None:
    style = re.search(r"<style>(.*?)</style>", result._repr_html_(), re.DOTALL)
    assert style is not None
    assert set(re.findall(r"(?<![-\w])(?:color|background):([^;}]+)", style[1])) <= {
        *("inherit", "none")
    }


def test_the_card_of_a_prediction_has_answer_interval_bars_and_warnings(
    prediction: Prediction,
) -> None:
    card, text = card_of(prediction), card_html(prediction)
    assert "90 % interval" in card.answer["iteration"] and card.answer["iteration"] in text
    widest = max(prediction.breakdown_s.values())
    shown = [seconds for seconds in prediction.breakdown_s.values() if seconds > 0]
    assert [bar.width for bar in card.bars] == pytest.approx([16 * one / widest for one in shown])
    assert text.count("&#9888;") == len(prediction.warnings) > 0


def test_more_warnings_than_fit_are_counted(prediction: Prediction) -> None:
    many = replace(prediction, notes=[warning(f"Reason {number}.") for number in range(7)])
    assert card_of(many).warnings == (
        [f"Reason {number}." for number in range(4)] + ["and 3 more warnings"]
    )


def test_more_rows_than_fit_are_counted_and_rows_without_a_prediction_are_told() -> None:
    card = card_of(sweep({"model": "resnet50", "method": "gtopk"}, {"gpus": "2..12:2"}))
    assert len(card.rows) == 6
    assert card.warnings[0].startswith("3 rows without a prediction: ")
    table = sweep({"model": "resnet50"}, {"gpus": "1..12:1"})
    assert len(card_of(table).rows) == 8 and card_of(table).more.startswith("8 of 12 rows; ")


def test_text_of_the_user_is_escaped(
    prediction: Prediction,
    comparison: Comparison,
    table: SweepTable,
    explanation: Explanation,
    tuning: Tuning,
    cluster_plan: ClusterPlan,
) -> None:
    asked = prediction.scenario._replace(model=HOSTILE, net=HOSTILE)
    told = replace(prediction, scenario=asked, notes=[warning(HOSTILE)])
    grid = replace(table.sweep.grid, base={"model": HOSTILE})
    one = replace(cluster_plan.choices[2], prediction=told)
    for hostile in (
        told,
        replace(comparison, rows=[told], notes=[warning(HOSTILE)]),
        replace(table, sweep=replace(table.sweep, grid=grid)),
        replace(explanation, prediction=told),
        replace(tuning, scenario=asked, notes=[warning(HOSTILE)]),
        replace(cluster_plan, choices=[one]),
    ):
        text = hostile._repr_html_()
        assert "<img" not in text and "&lt;img" in text
        assert Elements(text).open == []


def test_a_model_written_in_thousands_of_characters_keeps_the_card_small(
    prediction: Prediction,
) -> None:
    long = replace(prediction, scenario=prediction.scenario._replace(model="m" * 20_000))
    assert len(long._repr_html_()) <= 2 * CARD_BYTES
    assert len(card_of(long).subject) < 250


def test_what_is_no_result_has_no_card() -> None:
    with pytest.raises(TypeError, match="int is no result of perfsim"):
        card_of(1)
    with pytest.raises(TypeError, match="int is no result of perfsim"):
        figures_of(1)


# Figures


def test_every_figure_of_a_result_is_drawn(result: Any) -> None:
    plotly = pytest.importorskip("plotly.graph_objects")
    kinds = [kind for kind in figures_of(result) if (type(result), kind) != (Comparison, "scaling")]
    for kind in kinds:
        figure = result.plot(kind)
        assert isinstance(figure, plotly.Figure) and len(figure.data) > 0
        assert figure.layout.title.text.endswith(card_of(result).subject)
        assert '"ink"' not in figure.to_json()
    assert result.plot().to_json() == result.plot(kinds[0]).to_json()


def test_completion_and_help_name_what_can_be_drawn(result: Any) -> None:
    for name in ("plot", "records", "to_dict", "to_pandas"):
        assert name in dir(result) and getattr(result, name).__doc__
    said = inspect.signature(result.plot).parameters["kind"].annotation
    named = set(re.findall(r"[\"'](\w+)[\"']", str(said)))
    for kind in figures_of(result):
        assert kind in named or isinstance(result, Tuning)
        assert f'"{kind}"' in result.plot.__doc__ or isinstance(result, Tuning)


def test_a_kind_that_is_not_there_is_told_with_what_is(result: Any) -> None:
    pytest.importorskip("plotly")
    with pytest.raises(RequestError) as caught:
        result.plot("pie")
    assert str(caught.value).startswith("kind: no 'pie'")
    assert all(kind in str(caught.value) for kind in figures_of(result))


def test_without_plotly_the_command_that_installs_it_is_told(
    result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(RequestError, match=r"plot: Plotly is not installed; pip install '.+'"):
        result.plot()
    assert result._repr_html_()


def test_the_curves_of_a_comparison_are_predicted(comparison: Comparison) -> None:
    pytest.importorskip("plotly")
    lines = {line.name: line for line in comparison.plot("scaling").data if line.name}
    at_16 = lines["dgc"].x.index(16)
    assert lines["dgc"].y[at_16] == comparison.ranking.predictions["dgc"].samples_per_s


def test_the_curves_of_a_comparison_are_of_the_folders_that_it_asked(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    (tmp_path / "networks").mkdir()
    own = Path(__file__).parents[1] / "templates" / "mynet.toml"
    shutil.copy(own, tmp_path / "networks" / "mynet.toml")
    asked = Scenario(model="resnet18", gpus=2, net="mynet")
    found = compare(asked, ["ssgd", "dgc"], catalog=Session(str(tmp_path)))
    lines = {line.name: line for line in found.plot("scaling").data if line.name}
    assert lines["dgc"].y[lines["dgc"].x.index(2)] == found.ranking.predictions["dgc"].samples_per_s


def of_net(table: SweepTable, net: str) -> list[dict[str, Any]]:
    return [row for row in table.records() if row["net"] == net]


@pytest.mark.parametrize(
    ("kind", "value", "low", "high", "ideal"),
    [
        (
            "throughput",
            lambda row: row["samples_per_s"],
            lambda row: row["samples_per_s"] * row["iteration_s"] / row["iteration_s_high"],
            lambda row: row["samples_per_s"] * row["iteration_s"] / row["iteration_s_low"],
            lambda row: row["samples_per_s"] / row["scaling_efficiency"],
        ),
        (
            "iteration",
            lambda row: row["iteration_s"] * 1e3,
            lambda row: row["iteration_s_low"] * 1e3,
            lambda row: row["iteration_s_high"] * 1e3,
            lambda row: row["iteration_s"] * row["scaling_efficiency"] * 1e3,
        ),
        (
            "efficiency",
            lambda row: row["scaling_efficiency"] * 100,
            lambda row: (
                row["scaling_efficiency"] * 100 * row["iteration_s"] / row["iteration_s_high"]
            ),
            lambda row: (
                row["scaling_efficiency"] * 100 * row["iteration_s"] / row["iteration_s_low"]
            ),
            lambda row: 100.0,
        ),
    ],
)
def test_lines_of_a_sweep_have_their_intervals_and_what_would_be_without_loss(
    table: SweepTable, kind: Any, value: Any, low: Any, high: Any, ideal: Any
) -> None:
    pytest.importorskip("plotly")
    *bands, slow, fast, free = table.plot(kind).data
    for line, band, net in zip((slow, fast), bands, ("1gbe", "10gbe"), strict=True):
        rows = of_net(table, net)
        assert (line.name, line.x) == (f"network {net}", (8.0, 16.0, 32.0))
        assert line.y == tuple(map(value, rows))
        assert band.x == (8.0, 16.0, 32.0, 32.0, 16.0, 8.0) and band.fillcolor == line.line.color
        ends = [*map(high, rows), *map(low, rows[::-1])]
        assert band.y == pytest.approx(ends, rel=1e-12)
    assert free.name == "ideal"
    assert free.y == pytest.approx(list(map(ideal, of_net(table, "1gbe"))), rel=1e-12)


def test_scaling_without_loss_is_straight(table: SweepTable) -> None:
    pytest.importorskip("plotly")
    free = table.plot("throughput").data[-1]
    rates = [rate / gpus for gpus, rate in zip(free.x, free.y, strict=True)]
    assert rates == pytest.approx([rates[0]] * 3, rel=1e-9)
    alone = predict(Scenario(model="resnet50", gpus=1)).samples_per_s
    assert rates[0] == pytest.approx(alone, rel=1e-9)


def test_lines_without_loss_that_differ_are_told_apart() -> None:
    pytest.importorskip("plotly")
    table = sweep({"model": "resnet50", "net": "10gbe"}, {"gpus": "8,16", "batch": "16,32"})
    names = [line.name for line in table.plot().data]
    assert names == [*("batch 16", "batch 32", "ideal, batch 16", "ideal, batch 32")]


def test_what_runs_along_the_axis_can_be_chosen(table: SweepTable) -> None:
    pytest.importorskip("plotly")
    assert [bars.name for bars in table.plot("iteration", over="net").data] == [
        *("8 GPUs", "16 GPUs", "32 GPUs")
    ]
    with pytest.raises(RequestError, match="over: no 'batch'"):
        table.plot(over="batch")
    rows = sweep({"model": "resnet50", "net": "10gbe"}, {"gpus": "8", "bucket": "1MiB,25MiB"})
    assert rows.plot(over="bucket").layout.xaxis.title.text == "bucket"


def test_a_sweep_of_iterations_has_no_speed_up_to_draw() -> None:
    pytest.importorskip("plotly")
    table = sweep({"model": "resnet50"}, {"gpus": "8,16"})
    with pytest.raises(RequestError, match="kind: no 'speedup'"):
        table.plot("speedup")


def test_a_plan_is_drawn_with_its_front_and_its_limits(cluster_plan: ClusterPlan) -> None:
    pytest.importorskip("plotly")
    figure = cluster_plan.plot()
    front = figure.data[0]
    assert front.name == "Pareto front"
    assert front.y == tuple(one.seconds / 3600 for one in cluster_plan.front)
    assert front.x == tuple(one.gpu_hours for one in cluster_plan.front)
    assert [(line.y0, line.y1, line.xref) for line in figure.layout.shapes] == [(10, 10, "paper")]
    apart = next(trace for trace in figure.data if trace.name == "by iteration time only")
    assert len(apart.x) == len(cluster_plan.by_iteration_only) == 2
    priced = replace(
        cluster_plan,
        prices=Prices(
            "usd", (Price("v100", "", 2.0, "by hand", "2026"),), cluster_plan.prices.path
        ),
        choices=[replace(one, cost=2.0 * one.gpu_hours) for one in cluster_plan.choices],
        target=replace(cluster_plan.target, budget=500.0, currency="usd"),
    )
    figure = priced.plot()
    assert figure.layout.xaxis.title.text == "cost of the run [usd]"
    assert figure.data[0].x == tuple(2.0 * one.gpu_hours for one in priced.front)
    assert [line.x0 for line in figure.layout.shapes] == [0, 500]


# Tables


UNITS = re.compile(
    r"_(s|s_low|s_high|bytes|ratio|kwh|usd|h|unit|per_s|per_s_\w+|per_million_samples)$"
)
COUNTS = re.compile(
    r"^(gpus|\w*per_node|nodes|batch|seq|accumulate|calls|rank|round|seed|epochs|gpu_hours"
    r"|samples|tp|pp|cp|ep|dp|virtual_stages|value|site|further|imbalance|scaling_efficiency)$"
)


def framed(result: Any) -> Any:
    pytest.importorskip("pandas", reason="needs pandas (pip install 'perfsim[pandas]')")
    return result.to_pandas()


def test_every_result_is_a_table_with_units_in_the_names_of_its_numbers(result: Any) -> None:
    frame = framed(result)
    assert len(frame) > 0
    if isinstance(result, Prediction | Comparison | SweepTable):
        return  # tests/data/test_tables.py and the contract of sweeps hold their columns
    numbers = [name for name in frame.columns if frame[name].dtype.kind in "if"]
    assert numbers
    assert [name for name in numbers if not UNITS.search(name) and not COUNTS.match(name)] == []


def test_the_table_of_a_tuning_has_every_value_tried(tuning: Tuning) -> None:
    frame = framed(tuning)
    assert len(frame) == sum(len(one.curve) for one in tuning.tuned)
    bucket = frame[frame["tuned"] == "bucket"]
    assert set(bucket["value_unit"]) == {"bytes"}
    best = bucket.loc[bucket["iteration_s"].idxmin()]
    assert best["fastest"] and best["value"] == tuning.tuned[0].fastest
    asked = bucket[bucket["asked"]]
    assert list(asked["saved_ratio"]) == [0.0] and list(asked["value"]) == [25 * 2**20]


def test_the_table_of_a_search_has_the_best_and_the_front(parallelism: Tuning) -> None:
    frame, search = framed(parallelism), parallelism.parallelism
    assert search is not None
    assert list(frame["rank"].dropna()) == list(range(1, len(search.ranked) + 1))
    assert frame["on_front"].sum() == len(search.front)
    assert frame["iteration_s"][0] == search.best.tried.iteration_s


def test_the_tables_of_an_explanation_are_its_views(explanation: Explanation) -> None:
    frame = framed(explanation)
    assert list(frame["saved_ratio"]) == [one.saved for one in explanation.improvements]
    steps = explanation.to_pandas("path")
    assert all(
        end == start
        for (_, end), (start, _) in pairwise(zip(steps["start_s"], steps["end_s"], strict=True))
    )
    exposed_s = explanation.to_pandas("exposed")["exposed_s"].sum()
    assert exposed_s == pytest.approx(explanation.prediction.breakdown_s["communication_exposed"])
    rates = explanation.to_pandas("bandwidth")
    assert explanation.bandwidth.rate is not None
    assert list(rates["rate_bytes_per_s"]) == [
        point * explanation.bandwidth.rate for point, _ in explanation.bandwidth.curve
    ]
    assert 64 in list(explanation.to_pandas("gpus")["gpus"])
    assert explanation.records("waits") == []
    with pytest.raises(RequestError, match=r"kind: no 'paths'; did you mean 'path'\?"):
        explanation.to_pandas("paths")  # type: ignore[arg-type]


def test_the_table_of_a_plan_has_every_choice(cluster_plan: ClusterPlan) -> None:
    frame = framed(cluster_plan)
    assert list(frame["gpus"]) == [8, 8, 32, 32]
    assert list(frame["time_s"]) == [one.seconds for one in cluster_plan.choices]
    assert frame["on_front"].sum() == len(cluster_plan.front)
    assert list(frame["iteration_time_only"]) == [False, True, False, True]
    assert not [name for name in frame.columns if name.startswith("cost")]
