"""profiles/build/build_networks.py as a command: what it refuses and removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_networks import main
from perfsim.data.catalog import shipped

COMMANDS = [["--curves-only"], []]


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


def build(out: Path, more: list[str]) -> None:
    """Run ``python profiles/build/build_networks.py --data ... --out ...``."""
    main(["--data", str(out / "data"), "--out", str(out), *more])


@pytest.mark.parametrize("more", COMMANDS)
def test_curves_of_networks_that_ship_no_more_are_removed(out: Path, more: list[str]) -> None:
    build(out, more)
    assert {path.name for path in out.iterdir()} == {"sources.csv", "clusters.csv"}


@pytest.mark.parametrize("more", COMMANDS)
def test_a_cluster_of_no_source_is_one_sentence_and_removes_nothing(
    out: Path, more: list[str]
) -> None:
    row = next(
        line
        for line in (shipped() / "networks" / "clusters.csv").read_text().splitlines()
        if line.startswith("a100-nvlink3-4,")
    )
    path = out / "clusters.csv"
    path.write_text(path.read_text() + row.replace("perlmutter-ouyang", "nobody") + "\n")
    with pytest.raises(SystemExit) as caught:
        build(out, more)
    said = str(caught.value)
    assert said.startswith("build_networks: ") and "\n" not in said
    assert "a100-nvlink3-4: source 'nobody' is not in sources.csv" in said
    assert (out / "gone.curves.csv").exists()
