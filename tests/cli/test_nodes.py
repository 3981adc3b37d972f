"""Node types at the command line: listed, shown, asked for, and refused."""

from __future__ import annotations

import json

import pytest

from perfsim.cli.main import code
from perfsim.data.catalog import Catalog


def run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    left = code(command.split())
    out, err = capsys.readouterr()
    return left, out, err


def test_all_node_types_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, _ = run("list nodes --json", capsys)
    rows = json.loads(out)["rows"]
    assert left == 0 and [row["node"] for row in rows] == list(Catalog().files("nodes"))
    p5 = next(row for row in rows if row["node"] == "p5")
    assert (p5["gpu"], p5["gpus"], p5["nics"]) == ("h100", 8, "32 x 100 Gbit/s")


@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72", "eth-10g", "geforce-pcie4-8", "alps"])
def test_a_node_type_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    left, out, _ = run(f"show node {name} --json", capsys)
    shown = json.loads(out)
    assert left == 0 and shown["node"] == name and shown["sources"]
    assert {row["nodes"] for row in shown["rates"]} >= ({2, 16} if "nics" in shown else {1})
    left, out, _ = run(f"show node {name}", capsys)
    assert left == 0 and "sources" in out
    assert run(f"show net {name}", capsys)[0] == 0


def test_an_answer_says_that_collectives_are_derived(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, _ = run("predict --model gpt2 --gpus 32 --node dgx-h100 -v", capsys)
    assert left == 0
    assert "32 x h100 (4 x 8 GPUs), dgx-h100 between nodes and inside" in out
    assert "collectives on dgx-h100 are derived" in " ".join(out.split())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--node dgx-h100 --gpus-per-node 16", "--gpus-per-node: dgx-h100 has 8 GPUs a node"),
        ("--node dgx-h100 --gpu a100", "--gpu: dgx-h100 has h100, found 'a100'"),
        ("--node dgx-h10", "--node: no 'dgx-h10'; did you mean 'dgx-h100'?"),
        ("--node none.toml", "--node: there is no file 'none.toml'; give"),
        ("--nic 400Gbit/s", "--nic: needs --node, whose NICs it is the rate of"),
        ("--node p5 --nic 400", "--nic: '400' is not a rate (a bare number has no unit)"),
        ("--node p5 --nics-per-node 0", "--nics-per-node: '0' is not allowed"),
    ],
)
def test_a_wrong_node_is_one_sentence(
    flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = run(f"predict --model gpt2 --gpus 32 {flags}", capsys)
    missing = "there is no file" in said
    assert (left, out) == (3 if missing else 2, "") and said in err and err.count("\n") == 1


def test_a_sweep_compares_node_types(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, _ = run(
        "sweep --model gpt2 --gpus 64 --vary node=dgx-a100,dgx-h100,p5 --json", capsys
    )
    rows = json.loads(out)["rows"]
    assert left == 0 and [row["scenario"]["net"] for row in rows] == ["dgx-a100", "dgx-h100", "p5"]
    assert len({row["scenario"]["gpu"] for row in rows}) == 2
