"""The wheel built from the checkout and installed elsewhere, for the tests that need it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.paths import ROOT


def run(*command: object, folder: Path) -> str:
    """Run a command without the settings of whoever runs the tests; return what it printed."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "PERFSIM_PATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX")
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


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build in a copy: setuptools' build folder would keep files that were deleted since."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for name in (".ci", "perfsim", "profiles", "scenarios"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    dist = tmp_path_factory.mktemp("dist")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", dist, source, folder=dist)
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
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
