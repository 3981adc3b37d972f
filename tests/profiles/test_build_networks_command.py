"""The maintainers' commands that make networks of collected curves: what they refuse and remove."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from perfsim.calibrate import assemble, condense
from perfsim.data.catalog import shipped

COMMANDS = [condense, assemble]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a folder with the shipped sources, no cluster, and curves of one that was."""
    folder, ship = tmp_path / "networks", shipped() / "networks"
    folder.mkdir()
    (folder / "sources.csv").write_bytes((ship / "sources.csv").read_bytes())
    lines = (ship / "clusters.csv").read_text().splitlines()
    head = [line for line in lines if line.startswith(("#", "network,"))]
    (folder / "clusters.csv").write_text("\n".join(head) + "\n")
    (folder / "gone.curves.csv").write_text("curves of a network that ships no more\n")
    return folder


def ask(monkeypatch: pytest.MonkeyPatch, command: ModuleType, out: Path) -> None:
    """Run ``python -m COMMAND --data ... --out ...``."""
    monkeypatch.setattr(sys, "argv", ["command", "--data", str(out / "data"), "--out", str(out)])
    command._main()


@pytest.mark.parametrize("command", COMMANDS)
def test_curves_of_networks_that_ship_no_more_are_removed(
    monkeypatch: pytest.MonkeyPatch, out: Path, command: ModuleType
) -> None:
    ask(monkeypatch, command, out)
    assert {path.name for path in out.iterdir()} == {"sources.csv", "clusters.csv"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_of_no_source_is_one_sentence_and_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, out: Path, command: ModuleType
) -> None:
    row = next(
        line
        for line in (shipped() / "networks" / "clusters.csv").read_text().splitlines()
        if line.startswith("a100-nvlink3-4,")
    )
    path = out / "clusters.csv"
    path.write_text(path.read_text() + row.replace("perlmutter-ouyang", "nobody") + "\n")
    with pytest.raises(SystemExit) as caught:
        ask(monkeypatch, command, out)
    name = command.__name__.rpartition(".")[2]
    said = str(caught.value)
    assert said.startswith(f"{name}: ") and "\n" not in said
    assert "a100-nvlink3-4: source 'nobody' is not in sources.csv" in said
    assert (out / "gone.curves.csv").exists()
