"""Arrows between files run one way, as the map of the package (perfsim/README.md) draws them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import networkx
import pytest

from support.paths import PACKAGE

FACES = {"perfsim"}
"""Hands on names of others, when they are asked for."""


def modules() -> dict[str, Path]:
    """Return the path of each module by its name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(path: Path, known: set[str]) -> set[str]:
    """Return the modules that one names, also for type checkers only or within functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known
    return found


DRAWS = ("perfsim.display", "perfsim.report.notebook")
"""A result draws itself, for a notebook: the one arrow from what decides to what is seen.

It is followed when a reader asks for a card or a figure, after everything is decided; the test
below holds that nothing else of a report is loaded before.
"""


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str]]:
    known = modules()
    every = {name: imported(path, set(known)) - {name} for name, path in known.items()}
    every[DRAWS[0]].remove(DRAWS[1])
    return every


def part(module: str) -> str:
    """Return the folder or file below perfsim/ that a module is of."""
    return module.split(".")[1] if "." in module else ""


def test_no_files_import_each_other_in_a_circle(arrows: dict[str, set[str]]) -> None:
    graph = networkx.DiGraph(
        [(one, other) for one, others in arrows.items() for other in others - FACES]
    )
    assert [ring for ring in networkx.strongly_connected_components(graph) if len(ring) > 1] == []


def test_results_are_drawn_when_they_are_asked_for_and_not_before(
    arrows: dict[str, set[str]],
) -> None:
    assert arrows[DRAWS[0]] == {"perfsim.data.tables"}
    code = """if True:
        import sys
        from perfsim import Scenario, Target, compare, explain, plan, predict, sweep, tune
        asked = Scenario(model="resnet50", gpus=8, net="10gbe", method="topk")
        prediction = predict(asked)
        compare(asked, ["ssgd"]), explain(asked), tune(asked, ["density"])
        sweep({"model": "resnet50"}, {"gpus": "8"}), plan([asked], Target(samples=1, epochs=1))
        print(*(name for name in sys.modules if name.startswith("perfsim.report")))
        prediction._repr_html_()
        print("perfsim.report.notebook" in sys.modules, "plotly" in sys.modules)
    """
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["", "True False"]


def test_nothing_imports_the_command_line(arrows: dict[str, set[str]]) -> None:
    wrong = {
        one
        for one, others in arrows.items()
        if part(one) not in ("cli", "__main__") and "cli" in map(part, others)
    }
    assert wrong == set()


WORDS = {"perfsim.simulate.task", "perfsim.simulate.sync", "perfsim.methods.base", "perfsim.sums"}
"""What a stage, a task and a group of ranks are, and how floats are added: all may name them."""

FORMULAS = {"errors", "units", "quantity", "note", "by_size"}
"""Numbers with units and sources, notes on them, how they are refused, and times by a size."""

FLOW = (
    {"cli"},
    {"report"},
    {"planning", "validate"},
    {"ranking"},
    {"prediction"},
    {"what_if", "notes"},
    {"schedule", "conditions"},
    {"resolve"},
    {"session", "hardware"},
    {"methods"},
    {"fusion", "network"},
    {"compute", "libraries"},
    {"collectives", "simulate", "data"},
)
"""The way from the question to the answer, the last asked first: a room knows those below it.

Beside it stand the words of a question (scenario), of conditions (conditions.spec) and of errors
on record (interval), which know data only; and calibrate, which makes what data holds.
"""


def rooms_known(folder: str, arrows: dict[str, set[str]]) -> set[str]:
    """Return the rooms that one names, besides words."""
    return {
        part(other)
        for one in arrows
        if part(one) == folder
        for other in arrows[one]
        if other not in WORDS
    } - {folder}


@pytest.mark.parametrize(
    ("folder", "knows"),
    [
        ("simulate", set()),
        ("collectives", {"errors"}),
        ("data", {"errors", "quantity", "units"}),
        ("libraries", {"errors", "collectives", "data", "quantity"}),
        ("models", {"errors", "data"}),
        ("compute", FORMULAS | {"data", "models"}),
        ("fusion", FORMULAS | {"compute"}),
        ("network", FORMULAS | {"data", "collectives", "libraries"}),
        ("interval", {"data", "quantity"}),
    ],
)
def test_formulas_and_engines_know_nothing_above_them(
    folder: str, knows: set[str], arrows: dict[str, set[str]]
) -> None:
    assert rooms_known(folder, arrows) <= knows


@pytest.mark.parametrize(
    ("folders", "never"),
    [
        # A method knows gradients, buckets, kernels and collectives by their interfaces only.
        (
            ("methods",),
            {"network", "libraries", "schedule", "session", "simulate", "resolve", "hardware"},
        ),
        # The simulator's results are read by reports, which price nothing themselves.
        (
            ("report",),
            {
                "network",
                "compute",
                "fusion",
                "collectives",
                "schedule",
                "session",
                "hardware",
            },
        ),
        # What can be seen of a prediction does not decide it.
        (
            (
                "schedule",
                "conditions",
                "hardware",
                "resolve",
                "what_if",
                "notes",
                "prediction",
                "ranking",
            ),
            {"planning", "report", "calibrate"},
        ),
        # Data does not know who asks for it.
        (
            ("network", "compute", "data"),
            {"scenario", "hardware", "resolve", "prediction", "planning"},
        ),
        (("models", "pipeline", "scenario"), {"prediction", "planning", "report", "schedule"}),
    ],
)
def test_no_arrow_runs_backwards(
    folders: tuple[str, ...], never: set[str], arrows: dict[str, set[str]]
) -> None:
    wrong = {
        one: {other for other in others if part(other) in never and other not in WORDS}
        for one, others in arrows.items()
        if part(one) in folders
    }
    assert {one: others for one, others in wrong.items() if others} == {}


EXCEPTIONS = {
    # A setup is made by the session's devices and clusters; the session prices graphs anew.
    ("perfsim.session", "schedule"),
    # The other jobs on the network are scenarios, resolved like the one that is asked about.
    ("perfsim.resolve", "conditions"),
    # How an answer is compared with what was measured is part of what is planned.
    ("perfsim.ranking", "validate"),
    # Which options a scenario has is described by its method.
    ("perfsim.methods.fusion_settings", "scenario"),
}
"""Arrows against the flow that stay, each for its reason; none of them closes a circle."""


def test_the_flow_runs_one_way(arrows: dict[str, set[str]]) -> None:
    level = {room: number for number, rooms in enumerate(FLOW) for room in rooms}
    wrong = {
        (one, other)
        for one, others in arrows.items()
        for other in others - WORDS
        if part(one) in level and level.get(part(other), len(FLOW)) < level[part(one)]
        if (one, part(other)) not in EXCEPTIONS and not other.endswith("conditions.spec")
    }
    assert wrong == set()
