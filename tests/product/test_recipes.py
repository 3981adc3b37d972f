"""The recipes of perfsim/README.md: their own commands, run in a copy of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

TEMPLATES = ROOT / "tests" / "templates"
TEXT = (ROOT / "perfsim" / "README.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### Add an? (.+?)$.*?```sh\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE))
SAYS = {
    "method": ("mymethod (bits 8)", "a template: gradients packed into fewer bits", "8 passed"),
    "collective's algorithm": ("all-reduce linear", "passed"),
    "GPU": ("16 x mygpu",),
    "network": ("mynet: My network (template)", "mynet between nodes"),
    "measurement": ("1 measured values predicted",),
    "scenario": ("topk (density 0.01",),
}
"""What each prints on standard output, in this order."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout, so that a recipe leaves nothing behind here."""
    folder = tmp_path_factory.mktemp("recipes")
    for name in ("perfsim", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in ("profiles", "scenarios"):
        (folder / name).symlink_to(ROOT / name)
    commands = folder / "bin"
    commands.mkdir()
    for name, words in (("perfsim", "-m perfsim"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (commands / name).chmod(0o755)
    return folder


def test_every_recipe_is_held_to_something() -> None:
    assert set(SAYS) == set(RECIPES)


def test_every_template_is_in_a_recipe() -> None:
    named = set(re.findall(r"tests/templates/(\S+)", "".join(RECIPES.values())))
    assert named == {path.name for path in TEMPLATES.iterdir() if path.is_file()}


@pytest.mark.parametrize("thing", SAYS)
def test_a_recipe_runs_as_it_is_written(thing: str, checkout: Path) -> None:
    where = {
        "PATH": f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", RECIPES[thing]],
        cwd=checkout,
        env=os.environ | where,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    places = [done.stdout.find(words) for words in SAYS[thing]]
    assert -1 not in places and places == sorted(places), done.stdout
