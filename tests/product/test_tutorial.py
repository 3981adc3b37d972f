"""The tutorial notebook: its cells run in order, show what they say, and store no outputs."""

from __future__ import annotations

import re
from pathlib import Path
from time import process_time

import pytest

import perfsim
from support.notebook import code_of, read_notebook, run_cells
from support.paths import ROOT

PATH = ROOT / "scenarios" / "tutorial.ipynb"
NOTEBOOK = read_notebook(PATH)

LIMIT_S = 15.0
"""Time of the processor that a reader waits for the whole notebook [s]."""


@pytest.fixture(autouse=True)
def beside_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter starts a notebook in its own folder."""
    monkeypatch.chdir(PATH.parent)


def test_every_cell_runs_in_order_and_shows_something() -> None:
    pytest.importorskip("pandas", reason="needs pandas (pip install 'perfsim[pandas]')")
    pytest.importorskip("plotly", reason="needs Plotly (pip install 'perfsim[report]')")
    cells = code_of(NOTEBOOK)
    began_s = process_time()
    shown = list(run_cells(cells))
    assert process_time() - began_s < LIMIT_S
    assert len(shown) == len(cells) >= 10
    for text, value in zip(cells, shown, strict=True):
        if text.splitlines()[-1].startswith("print("):
            assert value is None
        else:
            assert len(value._repr_html_()) > 400, text


def test_a_cell_that_fails_is_told() -> None:
    with pytest.raises(perfsim.RequestError, match="did you mean 'resnet50'"):
        list(
            run_cells(
                ["import perfsim", "perfsim.predict(perfsim.Scenario(model='resnet5', gpus=8))"]
            )
        )


def test_it_asks_each_question_of_the_library() -> None:
    code = "\n".join(code_of(NOTEBOOK))
    asked = {name for name in perfsim.__all__ if re.search(rf"\b{name}\(", code)}
    assert asked == {
        *("Scenario", "Target", "compare", "explain", "plan", "predict", "sweep", "tune")
    }
    assert 'model="our_model.json"' in code and "transformer:" in code and '"site"' in code


def test_it_is_short_stores_no_outputs_and_can_be_opened() -> None:
    cells = NOTEBOOK["cells"]
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert 12 <= len(cells) <= 20 and PATH.stat().st_size < 12_000
    assert len({one["id"] for one in cells}) == len(cells)
    for one in cells:
        if one["cell_type"] == "code":
            assert one["outputs"] == [] and one["execution_count"] is None
        else:
            assert one["cell_type"] == "markdown" and "outputs" not in one


def test_its_links_lead_somewhere() -> None:
    texts = ["".join(one["source"]) for one in NOTEBOOK["cells"] if one["cell_type"] == "markdown"]
    links = re.findall(r"\]\(([^)#]+)", "\n".join(texts))
    assert links and [link for link in links if not Path(link).exists()] == []
