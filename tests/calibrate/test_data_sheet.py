"""Imported logs beside the data sheet of their nodes, and collectives that contradict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.network.measured import CollectiveCurve
from perfsim.network.network_file import read_network
from perfsim.network.self_check import contradictions

SIZES = tuple(2.0**power for power in range(10, 31, 2))
HEAD = "collective,ranks,nodes,gpus_per_node,size_bytes,time_us"


def log(path: Path, gpus: int = 8, latency_us: float = 60.0, rate: float = 300e9) -> Path:
    """Write an all-reduce of two nodes at a bus bandwidth [B/s]."""
    ranks = 2 * gpus
    lines = [HEAD]
    for size in SIZES:
        wire_us = 2 * (ranks - 1) / ranks * size / rate * 1e6
        lines.append(f"all_reduce,{ranks},2,{gpus},{size:.0f},{latency_us + wire_us:.3f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    left = code(["calibrate", "import", *map(str, words)])
    out, err = capsys.readouterr()
    return left, out, err


def test_a_log_is_shown_beside_the_data_sheet(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = log(tmp_path / "a.csv")
    flags = ("--name", "ours", "--out", tmp_path, "--node", "dgx-h100")
    left, out, err = run(capsys, made, *flags)
    assert (left, err) == (0, "")
    assert "Beside the data sheet of dgx-h100 (8 x 400 Gbit/s infiniband between nodes" in out
    assert "all_reduce on 16 GPUs (2 x 8)" in out and "(nvls_tree): " in out and " times" in out
    assert "a node's NICs: 3200 Gbit/s, which is 400 GB/s" in out
    network = read_network(tmp_path / "ours.toml")
    assert (network.stated_node, network.nics_per_node) == ("dgx-h100", 8)
    # It is carried to more nodes by the data sheet, which bounds it.
    asked = "predict --model gpt2 --gpus 64 --gpu h100 --json --net"
    left = code([*asked.split(), str(tmp_path / "ours.toml")])
    found = json.loads(capsys.readouterr().out)
    assert left == 0
    assert any("by the data sheet of its nodes" in row["source"] for row in found["provenance"])


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("dgx-h10", "--node: no 'dgx-h10'; did you mean 'dgx-h100'?"),
        ("alps", "--node: alps has 4 GPUs a node, the files say 8."),
    ],
)
def test_nodes_that_cannot_be_are_refused(
    node: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = log(tmp_path / "a.csv")
    left, out, err = run(capsys, made, "--name", "ours", "--out", tmp_path, "--node", node)
    assert (left, out) == (2, "") and said in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv"]


def curve(collective: str, rate: float, nodes: int = 4) -> CollectiveCurve:
    """Return rings at so many bytes a second out of a node; an all-to-all at as many."""
    ranks = 8 * nodes
    share = {
        "all_reduce": 2 * (ranks - 1) / ranks,
        "all_gather": (ranks - 1) / ranks,
        "all_to_all": 8 * (ranks - 8) / ranks,
        "send_recv": 1.0,
    }[collective]
    seconds = tuple(50e-6 + share * size / rate for size in SIZES)
    return CollectiveCurve(collective, ranks, nodes, 8, SIZES, seconds, "measured", "made")


def test_collectives_over_twice_apart_contradict_each_other() -> None:
    [said] = contradictions([curve("all_gather", 90e9), curve("all_to_all", 10e9)])
    assert "all_gather on 32 GPUs (4 x 8) needs 89" in said
    assert "all_to_all reaches 9.9" in said and "contradict each other by 9.0 times" in said


def test_alike_rates_trees_of_two_nodes_and_single_nics_do_not() -> None:
    assert not contradictions([curve("all_gather", 90e9), curve("all_to_all", 50e9)])
    # NVLSTree on two nodes shows twice what the NICs carry.
    assert not contradictions([curve("all_reduce", 700e9, 2), curve("all_gather", 345e9, 2)])
    # One rank of a node crosses.
    assert not contradictions([curve("all_gather", 320e9), curve("send_recv", 40e9)])
