"""Results are copied, pickled and sent between processes: what they say stays as it was."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import perfsim
from perfsim.display import Displayed
from perfsim.pipeline import Pipeline, PipelineLink, PipelineStage, predict_pipeline
from perfsim.planning.tune import tune_parallelism
from perfsim.prediction import Prediction, predict
from perfsim.ranking import rank
from perfsim.scenario import Scenario
from perfsim.session import Session

DGC = Scenario(model="resnet50", gpus=16, net="1gbe", method="dgc")
BASE = {"model": "resnet50", "gpus": 16, "net": "1gbe"}
NODES = Scenario(model="llama3-8b", gpus=16, node="dgx-h100", net="dgx-h100")
SITES = Scenario(model="gpt2", site="8,8", wan="1Gbit/s,60ms", method="diloco")

MADE: dict[str, Callable[[], Any]] = {
    "predict": lambda: predict(DGC),
    "predict, several rounds": lambda: predict(Scenario(**BASE, method="localsgd")),
    "predict, divided": lambda: predict(NODES.model_copy(update={"tp": 4, "pp": 2})),
    "predict, draws": lambda: predict(Scenario(**BASE, jitter=0.05)),
    "predict, other jobs": lambda: predict(
        Scenario(**BASE, beside=["Zhang2023_ssgd_resnet50_10gbe_32"])
    ),
    "predict, several types": lambda: predict(Scenario(model="resnet50", gpu="v100:8,p100:8")),
    "predict, sites": lambda: predict(SITES),
    "compare": lambda: perfsim.compare(DGC, ["ssgd", "dgc", "localsgd"]),
    "rank": lambda: rank(Scenario(model="resnet18", gpus=2, net="1gbe")),
    "explain": lambda: perfsim.explain(DGC),
    "explain, sites": lambda: perfsim.explain(SITES),
    "sweep": lambda: perfsim.sweep(BASE, {"gpus": "8,16"}),
    "sweep, full": lambda: perfsim.sweep(BASE, {"gpus": "8,16"}, full=True),
    "sweep, objects": lambda: perfsim.sweep(BASE, {"gpus": "8,16"}, objects=True),
    "tune": lambda: perfsim.tune(DGC),
    "tune, interval": lambda: perfsim.tune(SITES, "interval"),
    "tune, parallelism": lambda: tune_parallelism(
        NODES.model_copy(update={"tp": 4}), global_batch=32
    ),
    "plan": lambda: perfsim.plan(
        [DGC, DGC.model_copy(update={"gpus": 8})],
        perfsim.Target(samples=1_000_000, epochs=1, deadline_s=36_000),
    ),
    "pipeline": lambda: predict_pipeline(
        Pipeline((PipelineStage(0.02, 0.04),) * 2, (PipelineLink(0.02, 8e-8, 2**20),), 8, 100.0)
    ),
}


@cache
def made(which: str) -> Any:
    return MADE[which]()


def said(result: Any) -> tuple[str, ...]:
    """Return all that a result says of itself, as texts."""
    plain = json.dumps(result.to_dict())
    if not isinstance(result, Displayed):
        return (plain,)
    records = json.dumps(list(result.records()))
    return plain, records, repr(result), result._repr_html_()


def test_every_kind_of_result_is_copied_here() -> None:
    kinds = {type(made(which)) for which in MADE}
    assert set(Displayed.__subclasses__()) <= kinds


WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", MADE)
def test_a_copy_says_the_same(which: str, way: str) -> None:
    one = MADE[which]() if way == "pickle" else made(which)  # nothing of it read before
    assert said(WAYS[way](one)) == said(made(which))


def test_a_copy_of_a_prediction_is_equal_and_draws_the_same() -> None:
    again = pickle.loads(pickle.dumps(made("predict")))
    assert again == made("predict") and again.worth == made("predict").worth
    assert again.stating(iteration_s_interval=(1.0, 2.0)).iteration_s_interval == (1.0, 2.0)
    plotly = pytest.importorskip("plotly", reason="needs plotly (pip install 'perfsim[report]')")
    assert plotly
    for kind in ("breakdown", "timeline", "savings"):
        assert again.plot(kind) == made("predict").plot(kind)


REFUSED: list[Callable[[], Any]] = [
    lambda: predict({"model": "no such", "gpus": 1}),
    lambda: predict({"model": "no.csv", "gpus": 1}),
    lambda: predict({"model": "resnet50", "gpus": 8, "net": "no.toml"}),
    lambda: Scenario(model="resnet50", gpus=0),
    lambda: perfsim.tune(Scenario(model="gpt3-175b", gpus=8, node="dgx-h100")),
    lambda: tune_parallelism(Scenario(model="gpt3-13b", gpus=2, node="dgx-h100")),
]


@pytest.mark.parametrize("ask", REFUSED)
def test_a_refusal_comes_back_from_another_process_as_it_was(ask: Callable[[], Any]) -> None:
    """A pool of processes waits for ever for an error that cannot be made again."""
    with pytest.raises(perfsim.PerfsimError) as refused:
        ask()
    for way in WAYS.values():
        again = way(refused.value)
        assert type(again) is refused.type and str(again) == str(refused.value)
        assert vars(again) == vars(refused.value)


def test_a_prediction_takes_no_session_along() -> None:
    """It would be millions of bytes, and what no pickle can hold."""
    assert len(pickle.dumps(made("predict"))) < 50_000


def test_a_session_is_copied_as_the_folders_that_it_reads(tmp_path: Path) -> None:
    (tmp_path / "networks").mkdir()
    asked = Session(str(tmp_path))
    predict(DGC, asked)
    again = pickle.loads(pickle.dumps(asked))
    assert again.folders == asked.folders
    assert predict(DGC, again) == predict(DGC, asked)


def test_other_processes_send_back_what_they_were_asked() -> None:
    target = perfsim.Target(samples=1_000_000, epochs=1)
    asked: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "predict": (perfsim.predict, (DGC,)),
        "compare": (perfsim.compare, (DGC, ["ssgd", "dgc", "localsgd"])),
        "explain": (perfsim.explain, (DGC,)),
        "sweep": (perfsim.sweep, (BASE, {"gpus": "8,16"})),
        "tune": (perfsim.tune, (DGC,)),
    }
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for which, (ask, words) in asked.items():
            assert said(pool.apply(ask, words)) == said(made(which))
        (planned,) = pool.starmap(perfsim.plan, [([DGC], target)])
        assert said(planned) == said(perfsim.plan([DGC], target))
        predictions = pool.map(perfsim.predict, [DGC] * 3)
    assert all(isinstance(one, Prediction) and one == made("predict") for one in predictions)
