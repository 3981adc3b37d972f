"""doctor(): what is installed, what could be measured, and which files of the user are read."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from perfsim import doctor as module
from perfsim.cli.main import code
from perfsim.data.catalog import shipped
from perfsim.doctor import Part, doctor


def part(purpose: str) -> Part:
    """Return one part of the diagnosis of this machine."""
    found = doctor()
    return next(one for one in (*found.optional, *found.measuring) if one.purpose == purpose)


def pretend(monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], commands: set[str]) -> None:
    """Make a machine on which only these packages and commands are installed."""

    def version(package: str) -> str:
        if package not in installed:
            raise PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(module, "version", version)
    monkeypatch.setattr(module.shutil, "which", lambda name: name if name in commands else None)


def test_what_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {}, set())
    found = doctor()
    assert [one.there for one in found.optional] == [False] * 6
    assert found.optional[0].mend == "pip install 'perfsim[report]'"
    assert "install PyTorch first" in part("a GPU that PyTorch sees").mend


def test_pictures_need_a_browser_too(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"plotly": "6.1", "kaleido": "1.0"}
    pretend(monkeypatch, packages, set())
    assert part("pictures (--png)").mend.startswith("install Chrome or Chromium")
    pretend(monkeypatch, packages, {"chromium"})
    assert part("pictures (--png)").found == "plotly 6.1, kaleido 1.0, chromium"


def test_mpi_needs_both_its_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    for packages, commands, there in (
        ({"mpi4py": "4.1"}, {"mpirun"}, True),
        ({"mpi4py": "4.1"}, set(), False),
        ({}, {"mpirun"}, False),
    ):
        pretend(monkeypatch, packages, commands)
        assert part("calibrate network --backend mpi").there == there


def test_loopback_is_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, state in (("lo", "unknown"), ("eth0", "down"), ("eth1", "up")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "operstate").write_text(f"{state}\n")
    monkeypatch.setattr(module, "_INTERFACES", tmp_path)
    assert part("a network to other hosts").found.startswith("eth1")
    shutil.rmtree(tmp_path / "eth1")
    assert not part("a network to other hosts").there


def test_a_copy_of_what_ships_is_not_the_users_own(tmp_path: Path) -> None:
    devices = tmp_path / "devices"
    devices.mkdir()
    shutil.copy(shipped() / "devices" / "v100.toml", devices)
    assert doctor(tmp_path).own_files == {}
    with (devices / "v100.toml").open("a") as file:
        file.write("# changed\n")
    shutil.copy(shipped() / "devices" / "a100.toml", devices / "mine.toml")
    own = doctor(tmp_path).own_files
    assert [Path(path).name for path in own["devices"]] == ["mine.toml", "v100.toml"]


def test_the_command_says_it_in_80_columns_and_refuses_a_folder_that_is_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert code(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("perfsim ") and "for measuring here" in out
    assert max(map(len, out.splitlines())) <= 80
    assert code(["doctor", "--profiles", "nowhere"]) == 3
    assert capsys.readouterr().err == "perfsim: --profiles: 'nowhere' is not a folder.\n"
