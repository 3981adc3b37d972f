"""Arrows between files run one way, as the map of the package (perfsim/README.md) draws them."""

from __future__ import annotations

import ast
from collections import defaultdict
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


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str]]:
    known = modules()
    return {name: imported(path, set(known)) - {name} for name, path in known.items()}


def part(module: str) -> str:
    """Return the folder or file below perfsim/ that a module is of."""
    return module.split(".")[1] if "." in module else ""


def test_no_files_import_each_other_in_a_circle(arrows: dict[str, set[str]]) -> None:
    graph = networkx.DiGraph(
        [(one, other) for one, others in arrows.items() for other in others - FACES]
    )
    assert [ring for ring in networkx.strongly_connected_components(graph) if len(ring) > 1] == []


def test_nothing_imports_the_command_line(arrows: dict[str, set[str]]) -> None:
    wrong = {
        one
        for one, others in arrows.items()
        if part(one) not in ("cli", "__main__") and "cli" in map(part, others)
    }
    assert wrong == set()


@pytest.mark.parametrize(
    ("folder", "knows"),
    [
        ("simulate", set()),
        ("collectives", {"errors"}),
        ("fusion", {"profile", "units", "errors", "limits"}),
    ],
)
def test_formulas_and_engines_know_nothing_above_them(
    folder: str, knows: set[str], arrows: dict[str, set[str]]
) -> None:
    found = {part(other) for one in arrows if part(one) == folder for other in arrows[one]}
    assert found - {folder} <= knows


@pytest.mark.parametrize(
    ("folders", "never"),
    [
        # A method knows gradients, buckets, kernels and collectives by their interfaces only.
        (("methods", "kfac"), {"cluster", "device", "costs", "plan", "simulate", "library"}),
        # Reports know timelines and predictions only.
        (("report",), {"cluster", "device", "profile", "fusion", "collectives", "plan", "costs"}),
        # Data does not know who asks for it.
        (("cluster", "device", "profile"), {"scenario", "resolve", "prediction", "planning"}),
    ],
)
def test_no_arrow_runs_backwards(
    folders: tuple[str, ...], never: set[str], arrows: dict[str, set[str]]
) -> None:
    found = defaultdict(set)
    for one, others in arrows.items():
        if part(one) in folders:
            found[one] = {other for other in others if part(other) in never}
    assert {one: others for one, others in found.items() if others} == {}
