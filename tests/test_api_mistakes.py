"""The Python API takes what researchers have at hand, and answers mistakes in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfsim
from perfsim.errors import RequestError
from perfsim.planning.capacity import Target, plan
from perfsim.planning.tune import tune, tune_parallelism, with_best
from perfsim.prediction import predict
from perfsim.scenario import Scenario
from perfsim.session import Session

FIELDS = {"model": "resnet50", "gpus": 16, "net": "1gbe"}
SCENARIO = Scenario(**FIELDS)
TARGET = Target(samples=1000, epochs=1)
NAMES = ["ssgd", "dgc"]

QUESTIONS: Mapping[str, Callable[[Any], Any]] = {
    "predict": perfsim.predict,
    "compare": lambda asked: perfsim.compare(asked, NAMES),
    "explain": perfsim.explain,
    "tune": perfsim.tune,
    "plan": lambda asked: perfsim.plan([asked], TARGET),
    "plan alone": lambda asked: perfsim.plan(asked, TARGET),
    "sweep": lambda asked: perfsim.sweep(asked, {"gpus": [8, 16]}),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_dict_of_fields_is_a_scenario(question: str) -> None:
    ask = QUESTIONS[question]
    assert ask(FIELDS).to_dict() == ask(SCENARIO).to_dict()
    with pytest.raises(RequestError, match="a scenario has no 'gpuz'; did you mean 'gpu'"):
        ask(FIELDS | {"gpuz": 8})


def test_a_sweep_of_a_scenario_keeps_what_it_was_given_alone() -> None:
    """With every field, also those left empty, the node type's network would be given."""
    asked = Scenario(model="resnet50", gpus=16, node="dgx-a100")
    [row] = perfsim.sweep(asked, {"batch": [32]}).records()
    assert row["iteration_s"] == predict(asked.model_copy(update={"batch": 32})).iteration_s
    with_nets = perfsim.sweep(asked, {"node": ["dgx-a100", "dgx-h100"]})
    assert len({row["iteration_s"] for row in with_nets.records()}) == 2


@pytest.mark.parametrize("given", ["resnet50", Path("a.toml"), None, 3, [SCENARIO]], ids=repr)
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_no_scenario_is_said_in_one_sentence(question: str, given: Any) -> None:
    if question == "plan alone" and isinstance(given, list):
        return
    words = r"^(scenarios?|base): .* is no scenario; give Scenario\(model=.* or a dict of its"
    with pytest.raises(RequestError, match=words):
        QUESTIONS[question](given)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: predict(SCENARIO, "mine"), "catalog: 'mine' is no catalog; perfsim.session."),  # type: ignore[arg-type]
        (lambda: plan([], TARGET), "scenarios is empty"),
        (lambda: plan([SCENARIO], {"samples": 1}), "target: {'samples': 1} is no target"),  # type: ignore[arg-type]
        (lambda: plan([SCENARIO], TARGET, "prices.toml"), "prices: 'prices.toml' is no table"),  # type: ignore[arg-type]
        (lambda: plan([SCENARIO], TARGET, global_batch=0), "global_batch: 0 is not allowed"),
        (lambda: perfsim.compare(SCENARIO, [3]), "methods: [3] is not a list of names"),  # type: ignore[list-item]
        (lambda: perfsim.compare(SCENARIO, 3), "methods: 3 is not a list of names"),  # type: ignore[arg-type]
        (lambda: perfsim.compare(SCENARIO, NAMES, sort=None), "sort: no 'None'"),  # type: ignore[arg-type]
        (lambda: perfsim.compare(SCENARIO, NAMES, epochs_of={"dgc": -1}), "epochs_of: -1 of dgc"),
        (lambda: perfsim.compare(SCENARIO, NAMES, epochs_of={"dgc": "2"}), "epochs_of: '2' of"),  # type: ignore[dict-item]
        (lambda: perfsim.compare(SCENARIO, NAMES, epochs_of=1.1), "epochs_of: 1.1 is not a"),  # type: ignore[arg-type]
        (lambda: tune(SCENARIO, 3), "over: 3 is not a list of names; here there are bucket"),  # type: ignore[arg-type]
        (lambda: perfsim.sweep(FIELDS, "gpus"), "vary: 'gpus' is not a table of fields"),  # type: ignore[arg-type]
        (lambda: SCENARIO.model_copy(update={"gpuz": 8}), "a scenario has no 'gpuz'; did you"),
    ],
)
def test_wrong_arguments_are_said_in_one_sentence(ask: Callable[[], Any], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        ask()
    assert str(refused.value).startswith(said)


def test_epochs_of_a_method_are_stated_under_any_name_of_it() -> None:
    stated = [perfsim.compare(SCENARIO, NAMES, epochs_of={name: 1.5}) for name in ("dgc", "DGC")]
    assert stated[0].to_dict() == stated[1].to_dict()
    assert stated[0].ranking.factor("dgc").middle == 1.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": 0},
        {"samples": "1M"},
        {"samples": float("nan")},
        {"epochs": -1},
        {"epochs": float("inf")},
        {"epochs": "90"},
        {"deadline_s": -1},
        {"deadline_s": 0},
        {"deadline_s": "24h"},
        {"budget": -5},
        {"gpu_power_w": 0},
    ],
    ids=str,
)
def test_a_target_that_no_run_has_is_refused(wrong: dict[str, Any]) -> None:
    """A deadline below zero was met by every choice, and so was one of no length."""
    [field] = wrong
    with pytest.raises(RequestError, match=f"^{field}: .* is not allowed: it must be a number ab"):
        Target(**{"samples": 1000, "epochs": 1} | wrong)


@pytest.mark.parametrize(
    "gpus",
    [range(8, 17, 8), np.array([8, 16]), (count for count in (8, 16)), [np.int64(8), np.int32(16)]],
    ids=["range", "array", "generator", "numbers"],
)
def test_a_sweep_takes_any_sequence_of_values(gpus: Any) -> None:
    found = perfsim.sweep(FIELDS, {"gpus": gpus})
    assert found.to_dict() == perfsim.sweep(FIELDS, {"gpus": [8, 16]}).to_dict()


def test_a_sweep_takes_a_column_of_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas (pip install 'perfsim[pandas]')")
    vary = {"options.density": pandas.Series([0.001, 0.01])}
    found = perfsim.sweep(FIELDS | {"method": "dgc"}, vary)
    assert [row["options.density"] for row in found.records()] == [0.001, 0.01]


def test_numbers_of_numpy_are_taken_as_pythons() -> None:
    numbers = {"gpus": np.int64(16), "batch": np.int32(32), "jitter": np.float32(0.0625)}
    options = {"density": np.float32(0.5), "index_bytes": np.int64(4)}
    asked = Scenario(model="resnet50", net="1gbe", method="dgc", **numbers, options=options)
    plain = {"gpus": 16, "batch": 32, "jitter": 0.0625}
    assert asked == Scenario(
        model="resnet50",
        net="1gbe",
        method="dgc",
        **plain,
        options={"density": 0.5, "index_bytes": 4},
    )
    assert eval(repr(asked), {"Scenario": Scenario}) == asked
    assert json.loads(json.dumps(predict(asked).to_dict()))["scenario"]["gpus"] == 16


def test_files_may_be_paths(tmp_path: Path) -> None:
    own = tmp_path / "mynet.toml"
    own.write_text((Path(__file__).parent / "templates" / "mynet.toml").read_text())
    other = tmp_path / "job.toml"
    other.write_text('schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet18"\ngpus = 8\n')
    given = {"model": "resnet50", "gpus": 8, "net": own, "beside": other}
    texts = given | {"net": str(own), "beside": str(other)}
    assert Scenario(**given) == Scenario(**texts)
    assert predict(given).iteration_s == predict(texts).iteration_s


def test_every_question_reads_files_as_they_are_now(tmp_path: Path) -> None:
    """Also where a session that has read them before is asked again."""
    own = tmp_path / "networks" / "mynet.toml"
    own.parent.mkdir()
    text = (Path(__file__).parent / "templates" / "mynet.toml").read_text()
    session = Session(str(tmp_path))
    asked = Scenario(model="resnet50", gpus=16, net="mynet")
    language = Scenario(model="gpt2", gpus=2, gpus_per_node=1, gpu="a100", net="mynet", batch=2)
    ask: list[Callable[[Session], float]] = [
        lambda at: predict(asked, at).iteration_s,
        lambda at: tune(asked, "bucket", at).iteration_s or 0.0,
        lambda at: plan([asked], TARGET, catalog=at).fastest.seconds,
        lambda at: with_best(asked, tune(asked, "bucket", at), at).iteration_s,
        lambda at: tune_parallelism(language, at).iteration_s or 0.0,
    ]
    for question in ask:
        own.write_text(text)
        question(session)
        own.write_text(text.replace("3GB/s", "1GB/s"))
        assert question(session) == question(Session(str(tmp_path)))
