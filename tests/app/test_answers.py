"""What the app answers is what perfsim says elsewhere."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from perfsim.app.answers import Answer, Desk, Refusal, Turns
from perfsim.app.comparison import compared_words, differences
from perfsim.app.controls import fields_of
from perfsim.app.sharing import Readable
from perfsim.app.view import answer_view
from perfsim.cli.flags import flag_of
from perfsim.cli.main import code
from perfsim.errors import spelling
from perfsim.prediction import Prediction, predict
from perfsim.report.html.figure import Figure
from perfsim.report.html.pages import answer_of
from perfsim.scenario import make_scenario

TEXTS = {"model": "resnet18", "gpus": "16", "net": "1gbe", "method": "dgc"}


@pytest.fixture(scope="module")
def desk() -> Desk:
    return Desk(Readable(Path.cwd()))


def answered(desk: Desk, **texts: str) -> Answer:
    found = desk.answer({**TEXTS, **texts})
    assert isinstance(found, Answer), found
    return found


def asked(**fields: object) -> Prediction:
    return predict(make_scenario({**fields_of(TEXTS), **fields}))


def test_the_answer_is_the_prediction_in_the_words_of_its_report(desk: Desk) -> None:
    found = answered(desk)
    assert found.prediction.iteration_s == asked().iteration_s
    view, words = answer_view(found), answer_of(found.prediction)
    assert f"{view['seconds']} ({view['known']})" == words["iteration"]
    for name in ("throughput", "against S-SGD", "held back by", "sent by each GPU"):
        assert view["lines"][name] == words[name]
    assert [bar["name"] for bar in view["bars"]["Where the time goes"]][:2] == [
        "forward",
        "backward",
    ]
    sizes = found.prediction.memory_bytes
    assert view["bars"]["Memory of a GPU"][0]["name"] == max(sizes, key=lambda name: sizes[name])


@pytest.mark.parametrize(
    ("texts", "field", "sentence"),
    [
        ({"model": "resnet5O"}, "model", "model: no 'resnet5O'; did you mean 'resnet50'?"),
        ({"gpus": ""}, "gpus", "GPUs is needed: how many GPUs in all"),
        ({"gpus": "many"}, "gpus", "GPUs: 'many' is not allowed: it must be a whole number."),
        ({"gpus_per_node": "7"}, "gpus_per_node", "GPUs a node: 16 GPUs do not divide by 7;"),
        ({"net": "fast"}, "net", "network between nodes: no 'fast'"),
        ({"options.density": "2"}, "options.density", "density: "),
        ({"options.rank": "2"}, "options.rank", "options: method 'dgc' has no 'rank'"),
        ({"method": "auto"}, "method", "method: auto is no method"),
        ({"fusion": "sizes"}, "fusion", "fusion: no 'sizes'; did you mean 'size'?"),
        ({"model": "../no/config.json"}, "model", "model: '../no/config.json' is not below"),
        ({"site": "8,8"}, "site", "site: needs wan, what joins the sites"),
        ({"no such": "1"}, "", "a scenario has no 'no such'"),
    ],
)
def test_a_wrong_text_is_refused_at_its_control(
    desk: Desk, texts: dict[str, str], field: str, sentence: str
) -> None:
    found = desk.answer({**TEXTS, **texts})
    assert isinstance(found, Refusal)
    assert found.field == field and found.sentence.startswith(sentence)
    assert "\n" not in found.sentence and "`" not in found.sentence


def test_sliders_stand_where_the_scenario_is(desk: Desk) -> None:
    typed = answered(desk, net="25Gbit/s,40us", batch="8", **{"options.density": "0.01"})
    assert typed.placed == pytest.approx(
        {"batch": 8, "gpus": 16, "density": 0.01, "rate": 25, "latency": 40}
    )
    node = answered(desk, model="gpt2", node="dgx-h100", net="")
    assert node.placed["rate"] == pytest.approx(400) and "latency" not in node.placed
    nic = answered(desk, model="gpt2", node="dgx-h100", net="", nic="100Gbit/s")
    assert nic.placed["rate"] == pytest.approx(100)


def test_what_is_left_empty_says_what_it_stands_for(desk: Desk) -> None:
    taken = answered(desk, net="").taken
    assert taken["gpu"] == "v100" and taken["net"] == "nd40" and taken["bucket"] == "25MiB"
    assert taken["options.density"] == "0.001"


def test_figures_are_those_of_the_reports(desk: Desk) -> None:
    assert desk.timeline(TEXTS).name == "timeline"
    curves = desk.scaling(TEXTS)
    assert list(curves) == ["ssgd", "dgc"] and list(curves["dgc"]) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert curves["dgc"][64].iteration_s == asked(gpus=64).iteration_s
    assert curves["ssgd"][64].iteration_s == asked(gpus=64, method="ssgd").iteration_s
    assert desk.scaling_figure(TEXTS).name == "scaling"
    crossing = desk.break_even(TEXTS)
    assert isinstance(crossing, Figure) and crossing.name == "crossing-bandwidth"
    itself = desk.break_even({**TEXTS, "method": "ssgd"})
    assert itself == "bandwidth: none; this is S-SGD itself."


@pytest.mark.parametrize("texts", [{"gpu": "v100:8,p100:8"}, {"site": "8,8", "wan": "1Gbit/s,9ms"}])
def test_what_fixes_the_number_of_gpus_is_not_scaled(desk: Desk, texts: dict[str, str]) -> None:
    assert [list(curve) for curve in desk.scaling({**TEXTS, **texts}).values()] == [[16], [16]]


def test_rows_are_the_predictions_records(desk: Desk) -> None:
    rows = desk.rows({"A": TEXTS, "B": {**TEXTS, "method": "ssgd"}})
    assert {(row["scenario"], row["method"]) for row in rows} == {
        ("A", "ssgd"),
        ("A", "dgc"),
        ("B", "ssgd"),
    }
    own = next(row for row in rows if row["method"] == "dgc" and row["gpus"] == 16)
    assert own == {"scenario": "A", **asked().records()[0]}


def test_the_page_and_the_file_are_those_of_predict(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "asked.toml").write_text(desk.toml(TEXTS))
    page = tmp_path / "page.html"
    assert code(["predict", "--scenario", str(tmp_path / "asked.toml"), "--html", str(page)]) == 0
    with spelling(lambda field: flag_of(field, {})):
        assert desk.page(TEXTS) == page.read_text(encoding="utf-8")


def test_an_answer_goes_before_a_figure_and_a_figure_before_preparing() -> None:
    turns, order = Turns(), []

    def work(rank: int) -> None:
        with turns.take(rank):
            order.append(rank)

    with turns.take(Turns.PREPARE):
        threads = [threading.Thread(target=work, args=(rank,)) for rank in (2, 1, 0)]
        for one in threads:
            one.start()
        deadline = time.monotonic() + 10
        while sum(turns._waiting) < len(threads) and time.monotonic() < deadline:
            time.sleep(0.001)
    for one in threads:
        one.join(10)
    assert order == [0, 1, 2]


def test_two_scenarios_in_a_sentence(desk: Desk) -> None:
    first, second = answered(desk).prediction, answered(desk, net="100gbe").prediction
    told = compared_words(first, second)
    ratio = first.iteration_s / second.iteration_s
    assert told.startswith(f"B trains {ratio:.3g} times as fast as A: ")
    assert told.endswith("They differ in network between nodes (1gbe, 100gbe).")
    assert compared_words(first, first).endswith("A and B are the same scenario.")

    wider = answered(desk, gpus="32", method="ssgd", batch="64").prediction
    told = compared_words(first, wider)
    assert "samples/s against" in told and "GPUs (16, 32)" in told
    assert "method (dgc, ssgd)" in told and "density" not in told
    denser = answered(desk, **{"options.density": "0.01"}).prediction
    assert list(differences(first, denser)) == ["density (0.001, 0.01)"]
    smaller = answered(desk, bucket="4MB").prediction
    assert list(differences(first, smaller)) == ["bucket (26.21 MB, 4 MB)"]
    divided = [answered(desk, model="gpt2", gpu="a100", method=name) for name in ("fsdp", "zero")]
    told = list(differences(*(one.prediction for one in divided)))
    assert told == ["method (fsdp, zero)", "fusion (block, zero)"]
    many = answered(desk, gpus="32", batch="64", net="10gbe", overlap="false", bucket="1MiB")
    assert " and 1 more." in compared_words(first, many.prediction)
