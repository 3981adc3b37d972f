"""The wheel: built from the checkout, installed elsewhere, run in an empty folder."""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.installation import run
from support.paths import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DATA = {".csv", ".json", ".toml", ".md", ".txt"}


def test_every_package_is_listed() -> None:
    found = {
        ".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "perfsim").rglob("*.py")
    }
    data = {"perfsim.profiles", "perfsim.scenarios"}
    assert found | data == set(PYPROJECT["tool"]["setuptools"]["packages"])


def test_the_wheel_carries_all_code_and_data_and_nothing_else(wheel: Path) -> None:
    code = {
        path.relative_to(ROOT)
        for path in (ROOT / "perfsim").rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name != "README.md"
    }
    data = {
        Path("perfsim") / path.relative_to(ROOT)
        for folder in ("profiles", "scenarios")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in DATA and ROOT / "profiles" / "build" not in path.parents
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {path.as_posix() for path in code | data}


def test_the_installed_package_finds_its_own_data(installed: Path, tmp_path: Path) -> None:
    code = (
        "import perfsim.data.catalog as c; print(c.__file__);"
        " print(c.shipped()); print(c.shipped('scenarios')); print(*c.Catalog().files('models'))"
    )
    module, profiles, scenarios, models = run(
        installed / "python", "-c", code, folder=tmp_path
    ).splitlines()
    package = Path(module).parents[1]
    assert package.is_relative_to(installed.parent)
    assert (Path(profiles), Path(scenarios)) == (package / "profiles", package / "scenarios")
    own = (path.stem for path in ROOT.glob("profiles/models/*.csv"))
    assert models.split() == sorted(name for name in own if not name.endswith(".positions"))


@pytest.mark.parametrize("command", [["perfsim"], ["python", "-m", "perfsim"]])
def test_the_installed_command_predicts_in_an_empty_folder(
    installed: Path, tmp_path: Path, command: list[str]
) -> None:
    question = "predict --model resnet50 --gpus 64 --net 1gbe --method dgc --json"
    printed = run(installed / command[0], *command[1:], *question.split(), folder=tmp_path)
    prediction = json.loads(printed)
    assert next(iter(prediction)) == "schema"
    assert prediction["schema"] == "perfsim/prediction/1"
    assert prediction["iteration_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_answers_a_question_of_the_gallery(
    installed: Path, tmp_path: Path
) -> None:
    name = "what_if_uneven_nodes"
    found = json.loads(
        run(installed / "perfsim", "show", "scenario", name, "--json", folder=tmp_path)
    )
    printed = run(installed / "perfsim", *found["command"].split()[1:], folder=tmp_path)
    stored = ROOT / "scenarios" / "outputs" / f"{name}.txt"
    assert [line.rstrip() for line in printed.splitlines()] == stored.read_text().splitlines()
    assert list(tmp_path.iterdir()) == []


def test_the_launcher_is_the_command() -> None:
    told = [
        run(sys.executable, *launch, "--help", folder=ROOT)
        for launch in (["cli.py"], ["-m", "perfsim"])
    ]
    assert "predict" in told[0]
    assert told[0].replace("cli.py", "") == told[1].replace("python -m perfsim", "")
