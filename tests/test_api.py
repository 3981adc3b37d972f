"""The Python API: names of the package, loaded when they are used."""

from __future__ import annotations

import doctest
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import perfsim

HEAVY = ("numpy", "pydantic", "networkx", "simpy", "rich", "pandas", "typer")


def test_importing_perfsim_loads_nothing_heavy() -> None:
    code = "import sys, perfsim; perfsim.__version__; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = told.stdout.split()
    assert "perfsim" in loaded and not set(HEAVY) & set(loaded)
    assert not [name for name in loaded if name.startswith("perfsim.")]


def test_the_command_line_looks_for_no_garbage_while_it_imports() -> None:
    """What it imports stays. The library itself leaves the collector as it is."""
    code = (
        "import gc, sys; sys.argv[1:] = ['--version'];"
        " gc.set_threshold = lambda most, *_: print(most > 10**6, 'typer' in sys.modules);"
        " from perfsim.__main__ import run; run()"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[0] == "True False"


def test_the_names_are_those_of_the_library() -> None:
    from perfsim.planning.compare import compare
    from perfsim.prediction import predict
    from perfsim.scenario import Scenario

    assert perfsim.Scenario is Scenario
    assert perfsim.predict is predict and perfsim.compare is compare


def test_sweep_is_looked_for_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("perfsim.planning.sweep")
    module.sweep = print  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "perfsim.planning.sweep", module)
    assert perfsim.sweep is print


@pytest.mark.parametrize(
    "name", ["Scenario", "predict", "compare", "sweep", "explain", "tune", "plan"]
)
def test_each_name_has_an_example_as_a_user_would_begin(name: str) -> None:
    """It is run with the other examples."""
    examples = doctest.DocTestParser().get_examples(getattr(perfsim, name).__doc__)
    begin, *rest = [example.source for example in examples]
    assert begin.startswith("from perfsim import ") and name in begin
    assert any(f"{name}(" in line for line in rest)
    assert any(example.want for example in examples)


def test_tables_of_pandas_have_numbers_where_there_are_numbers() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas (pip install 'perfsim[pandas]')")
    vary = {"gpus": "8..32", "precision": "fp32,fp8", "options.density": "0.001,0.01"}
    table = perfsim.sweep({"model": "resnet50", "method": "dgc"}, vary)
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and tuple(frame.columns) == table.columns
    kinds = {name: frame[name].dtype.kind for name in ("gpus", "options.density", "iteration_s")}
    assert kinds == {"gpus": "i", "options.density": "f", "iteration_s": "f"}
    assert frame["iteration_s"].isna().tolist() == [bool(reason) for reason in frame["reason"]]
    shortest_s = frame[frame["precision"] == "fp32"].groupby("gpus")["iteration_s"].min()
    assert list(shortest_s.index) == [8, 16, 32]
    # Inside one node messages are quick and slow computation more: as long to a thousandth.
    assert shortest_s.round(3).is_monotonic_increasing


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'perfsim' has no attribute 'forecast'"):
        perfsim.forecast  # noqa: B018


def test_dir_shows_the_names_that_can_be_imported_and_no_others() -> None:
    assert dir(perfsim) == sorted(perfsim.__all__)
    for name in perfsim.__all__:
        assert getattr(perfsim, name) is not None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "resnet50", "gpus": 0}, "gpus: 0 is not allowed: it must be 1 or more."),
        (
            {"model": "resnet50", "gpus": "x"},
            "gpus: 'x' is not allowed: it must be a whole number.",
        ),
        ({"gpus": 8}, "model is needed: a name such as resnet50"),
        ({"model": "resnet50", "gpuz": 8}, "a scenario has no 'gpuz'; did you mean 'gpu'?"),
        ({"model": "resnet5", "gpus": 8}, "model: no 'resnet5'; did you mean 'resnet50'?"),
        ({"model": "resnet50", "gpus": 8, "net": "1"}, "net: '1' is not a rate"),
        (
            {"model": "resnet50", "gpus": 8, "options": {"densty": 1}},
            "method 'ssgd' has no 'densty'",
        ),
    ],
)
def test_all_that_is_wrong_is_one_kind_of_error(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(perfsim.RequestError) as caught:
        perfsim.predict(perfsim.Scenario(**fields))
    assert said in str(caught.value)
    assert isinstance(caught.value, perfsim.PerfsimError)


def test_a_scenario_prints_what_was_asked() -> None:
    asked = perfsim.Scenario(model="resnet50", gpus=8, method="dgc", options={"density": 0.01})
    assert repr(asked) == (
        "Scenario(model='resnet50', gpus=8, method='dgc', options={'density': 0.01})"
    )
    assert eval(f"perfsim.{asked!r}") == asked


def test_a_prediction_prints_its_answer_on_one_line() -> None:
    text = repr(
        perfsim.predict(perfsim.Scenario(model="resnet50", gpus=64, net="1gbe", method="dgc"))
    )
    assert text.startswith("<Prediction resnet50, dgc, 64 x v100, 1gbe: ")
    assert text.endswith("x S-SGD>") and len(text) < 120 and "\n" not in text
