"""The wheel: built from the checkout, installed elsewhere, run in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
DATA = {".csv", ".toml", ".md"}


def run(*command: object, folder: Path) -> str:
    """Run a command without the settings of whoever runs the tests; return what it printed."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "PERFSIM_PATH", "PYTHONHOME")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build in a copy: setuptools' build folder would keep files that were deleted since."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    for name in ("perfsim", "profiles", "scenarios"):
        shutil.copytree(
            CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    dist = tmp_path_factory.mktemp("dist")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", dist, source, folder=dist)
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of commands of a fresh environment that holds the wheel alone.

    The dependencies are those of the running environment, added behind its own packages, which
    saves downloading them again; a .pth file found that way is not read, so that an editable
    perfsim there stays out of sight.
    """
    root = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", root, folder=root)
    place = {"base": str(root), "platbase": str(root)}
    commands = Path(sysconfig.get_path("scripts", "venv", place))
    packages = Path(sysconfig.get_path("purelib", "venv", place))
    pip = (sys.executable, "-m", "pip", "--python", commands / "python", "install")
    run(*pip, "--no-deps", "--no-index", wheel, folder=root)
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(here)))
    return commands


def test_every_package_is_listed() -> None:
    found = {
        ".".join(path.parent.relative_to(CHECKOUT).parts)
        for path in (CHECKOUT / "perfsim").rglob("*.py")
    }
    data = {"perfsim.profiles", "perfsim.scenarios"}
    assert found | data == set(PYPROJECT["tool"]["setuptools"]["packages"])


def test_the_wheel_carries_all_code_and_data_and_nothing_else(wheel: Path) -> None:
    code = {
        path.relative_to(CHECKOUT)
        for path in (CHECKOUT / "perfsim").rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name != "README.md"
    }
    data = {
        Path("perfsim") / path.relative_to(CHECKOUT)
        for folder in ("profiles", "scenarios")
        for path in (CHECKOUT / folder).rglob("*")
        if path.suffix in DATA
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {path.as_posix() for path in code | data}


def test_the_installed_package_finds_its_own_data(installed: Path, tmp_path: Path) -> None:
    code = (
        "import perfsim.catalog as c; print(c.__file__);"
        " print(c.shipped()); print(c.shipped('scenarios')); print(*c.Catalog().files('models'))"
    )
    module, profiles, scenarios, models = run(
        installed / "python", "-c", code, folder=tmp_path
    ).splitlines()
    package = Path(module).parent
    assert package.is_relative_to(installed.parent)
    assert (Path(profiles), Path(scenarios)) == (package / "profiles", package / "scenarios")
    assert models.split() == sorted(path.stem for path in CHECKOUT.glob("profiles/models/*.csv"))


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


def test_the_launcher_is_the_command() -> None:
    told = [
        run(sys.executable, *launch, "--help", folder=CHECKOUT)
        for launch in (["cli.py"], ["-m", "perfsim"])
    ]
    assert "predict" in told[0]
    assert told[0].replace("cli.py", "") == told[1].replace("python -m perfsim", "")
