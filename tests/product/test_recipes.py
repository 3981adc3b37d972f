"""The recipes of perfsim/README.md: their own commands, run in a copy of the checkout."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

TEMPLATES = ROOT / "tests" / "templates"
TEXT = (ROOT / "perfsim" / "README.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### Add an? (.+?)$.*?```sh\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE))
SAYS = {
    "method": ("mymethod (bits 8)", "a template: gradients packed into fewer bits", "15 passed"),
    "collective's algorithm": ("all-reduce linear", "passed"),
    "language model": ("parameters: ", "our_model.json, ssgd", "tokens/s"),
    "model_type of config.json": ("parameters: ", "passed"),
    "GPU": ("16 x mygpu",),
    "network": ("mynet: My network (template)", "mynet between"),
    "measurement": ("1 measured values predicted",),
    "scenario": ("topk (density 0.01",),
    "field of a scenario": ("--contention FACTOR", "resnet50, ssgd", "\ncontention,"),
}
"""What each prints on standard output, in this order."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout, so that a recipe leaves nothing behind here."""
    return copied(tmp_path_factory.mktemp("recipes"))


def copied(folder: Path) -> Path:
    """Copy what recipes change into a folder, and link the rest."""
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
    done = shell(RECIPES[thing], checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    places = [done.stdout.find(words) for words in SAYS[thing]]
    assert -1 not in places and places == sorted(places), done.stdout


ASKED = "perfsim predict --model resnet50 --gpus 16 --net ib100"


def test_a_new_field_needs_its_entry_and_its_physics_only(tmp_path: Path) -> None:
    """The flag, the TOML key, JSON, the CSV column and the refusals follow from the entry."""
    checkout = copied(tmp_path)
    assert shell("python tests/templates/myfield.py", checkout).returncode == 0
    listed, physics = sorted(changed(checkout), key=lambda file: file.name != "scenario.py")
    assert listed == Path("perfsim/scenario.py")
    assert physics.parent == Path("perfsim/schedule")

    plain, slow = (answer(f"{ASKED} {more}", checkout) for more in ("", "--contention 2"))
    assert (plain["scenario"]["contention"], slow["scenario"]["contention"]) == (1.0, 2.0)
    assert slow["iteration_s"] > plain["iteration_s"]

    table = 'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet50"\ngpus = 16\n'
    (checkout / "slow.toml").write_text(f'{table}net = "ib100"\ncontention = 2\n')
    assert answer("perfsim predict --scenario slow.toml", checkout) == slow

    swept = shell(f"{ASKED.replace('predict', 'sweep')} --vary contention=1,2", checkout)
    rows = list(csv.DictReader(swept.stdout.splitlines()))
    assert [row["contention"] for row in rows] == ["1", "2"]
    assert float(rows[1]["iteration_s"]) == pytest.approx(slow["iteration_s"])

    compared = "perfsim compare --scenario slow.toml --methods ssgd,topk --csv rows.csv"
    assert shell(compared, checkout).returncode == 0
    columns = (checkout / "rows.csv").read_text().splitlines()[0].split(",")
    assert "contention" in columns

    refused = shell(f"{ASKED} --contention 11", checkout)
    assert refused.returncode == 2
    assert (
        refused.stderr == "perfsim: --contention: '11' is not allowed: it must be 10.0 or less.\n"
    )


def shell(commands: str, checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run commands in the copy of the checkout, with the byte code that was copied with it."""
    where = {
        "PATH": f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout),
        "PYTHONPYCACHEPREFIX": "",
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=checkout,
        env=os.environ | where,
        capture_output=True,
        text=True,
        check=False,
    )


def answer(command: str, checkout: Path) -> dict[str, Any]:
    """Return what a command answers as JSON, without its notes."""
    done = shell(f"{command} --json", checkout)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    del found["notes"]
    return found


def changed(checkout: Path) -> set[Path]:
    """Return the files of the package that differ from those of the checkout itself."""
    files = {path.relative_to(ROOT) for path in (ROOT / "perfsim").rglob("*.py")}
    return {file for file in files if (ROOT / file).read_bytes() != (checkout / file).read_bytes()}
