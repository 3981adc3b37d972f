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
    (folder / "data").mkdir(parents=True)
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
    assert {path.name for path in out.iterdir()} == {"sources.csv", "clusters.csv", "data"}


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


TABLE = """# source: here
# gpu: V100; intra-node: NVLink; inter-node: 10GbE; NCCL: 2.18.3; algo/proto: tuner default
collective,ranks,nodes,gpus_per_node,size_bytes,time_us
all_reduce,2,2,1,1000000,1000
all_reduce,2,2,1,100000000,100000
all_reduce,2,2,1,1000000000,1000000
"""


def add(out: Path, name: str, stem: str, folder: str, source: str = "aws-do-eks") -> None:
    """Add a cluster of one data file, and the file to a folder."""
    path = out / "clusters.csv"
    row = f"{name},made up,{stem},V100,NVLink,10GbE,1,,,tcp,nccl,,{source},\n"
    path.write_text(path.read_text() + row)
    (out / folder).mkdir(exist_ok=True)
    (out / folder / f"{stem}.csv").write_text(TABLE)


def test_data_of_several_folders_and_some_networks_alone(out: Path) -> None:
    add(out, "one", "first", "data")
    add(out, "two", "second", "more")
    both = ["--data", str(out / "more")]
    build(out, [*both, "--only", "two"])
    assert (out / "two.toml").exists() and (out / "two.curves.csv").exists()
    assert not (out / "one.toml").exists() and (out / "gone.curves.csv").exists()
    build(out, both)
    assert (out / "one.toml").exists() and not (out / "gone.curves.csv").exists()
    kept = (out / "one.curves.csv").read_bytes()
    (out / "two.toml").unlink()
    build(out, [*both, "--curves-only"])
    assert (out / "one.curves.csv").read_bytes() == kept
    assert not (out / "two.curves.csv").exists(), "curves without a network are no network"


def test_a_network_that_is_determined_no_longer_is_removed(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(out, "one", "first", "data")
    build(out, [])
    table = out / "data" / "first.csv"
    table.write_text("\n".join(TABLE.splitlines()[:-2]) + "\n")
    build(out, [])
    assert "no file  one: link between nodes:" in capsys.readouterr().out
    assert not list(out.glob("one.*"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--data", "more"], r"'first.csv' is in '.*data' and in '.*more'; keep one"),
        (["--data", "none"], r"'.*none' is no folder"),
        (["--only", "on"], r"no 'on'; did you mean 'one'"),
    ],
)
def test_wrong_requests_are_one_sentence(out: Path, more: list[str], said: str) -> None:
    add(out, "one", "first", "data")
    (out / "more").mkdir()
    (out / "more" / "first.csv").write_text(TABLE)
    with pytest.raises(SystemExit, match=f"^build_networks: .*{said}") as caught:
        build(out, [str(out / word) if word in ("more", "none") else word for word in more])
    assert "\n" not in str(caught.value)


def test_a_file_that_no_folder_has_is_named(out: Path) -> None:
    add(out, "one", "first", "data")
    (out / "data" / "first.csv").unlink()
    with pytest.raises(SystemExit, match=r"one: no first\.csv in the folders of the data"):
        build(out, [])
