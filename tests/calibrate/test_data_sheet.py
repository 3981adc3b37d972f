"""Imported logs beside the data sheet of their nodes, and collectives that contradict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsim.calibrate.data_sheet import era_lines, rate_findings
from perfsim.cli.main import code
from perfsim.hardware.nodes import node_facts
from perfsim.network.measured import CollectiveCurve
from perfsim.network.network_file import read_network
from perfsim.network.node_type import load_node_type
from perfsim.network.self_check import contradictions
from support.what_ships import SHIPPED

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
    assert left == 0 and all(line.startswith("wrote ") for line in err.splitlines())
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


# What the largest messages speak for


def at_rate(
    collective: str,
    bus: float,
    nodes: int = 2,
    gpus: int = 8,
    algorithm: str = "",
    version: str = "",
) -> CollectiveCurve:
    """Return a curve whose largest message, 1 GiB, has a bus bandwidth [B/s], as nccl-tests has."""
    ranks = nodes * gpus
    factor = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
    share = (ranks - 1) / ranks * factor[collective] if collective in factor else 1.0
    seconds = tuple(50e-6 + share * size / bus for size in SIZES[:-1])
    largest = share * SIZES[-1] / bus
    return CollectiveCurve(
        collective,
        ranks,
        nodes,
        gpus,
        SIZES,
        (*seconds, largest),
        "measured",
        "made",
        algorithm=algorithm,
        version=version,
    )


@pytest.mark.parametrize(
    ("made", "of", "share", "algorithm", "nics"),
    [
        # Inside: a GPU's links carry 450 GB/s; more is what switches that add show.
        (at_rate("all_reduce", 480e9, 1), "links", 480 / 450, "nvls", None),
        (at_rate("all_reduce", 345e9, 1), "links", 345 / 450, "ring", None),
        (at_rate("all_gather", 340e9, 1), "links", 340 / 450, "ring", None),
        (at_rate("all_gather", 500e9, 1), "links", 500 / 450, "more links than stated", None),
        # Two nodes, 8 NICs of 50 GB/s: 450 GB/s is no ring. A tree sends 450 x 16 / 30 = 240 GB/s.
        (at_rate("all_reduce", 450e9), "NICs", 450 / 400, "nvls_tree", 240 / 50),
        (at_rate("all_reduce", 900e9), "NICs", 900 / 400, "more NICs than stated", 900 / 50),
        # Four nodes: nothing is faster than the NICs.
        (at_rate("all_reduce", 450e9, 4), "NICs", 450 / 400, "more NICs than stated", 9.0),
        (at_rate("all_reduce", 30e9, 16), "NICs", 30 / 400, "none, slower", 0.6),
        (at_rate("all_gather", 320e9, 4), "NICs", 320 / 400, "ring", 6.4),
        (at_rate("broadcast", 300e9, 4), "NICs", 300 / 400, "chain", 6.0),
        # An all-to-all of 16 ranks at 40 GB/s: 8 of 15 blocks leave, of 8 GPUs.
        (at_rate("all_to_all", 40e9), "NICs", 40 * 64 / 15 / 400, "pairwise", 40 * 64 / 15 / 50),
        # One rank of a node sends, over one NIC.
        (at_rate("send_recv", 45e9), "a GPU's NICs", 45 / 50, "direct", 0.9),
        # As NCCL_ALGO held it; on four of a node's GPUs, which own four NICs.
        (at_rate("all_reduce", 300e9, 2, 8, "ring"), "NICs", 300 / 400, "ring (held)", 6.0),
        (at_rate("all_gather", 150e9, 2, 4), "NICs", 150 / 200, "ring", 3.0),
    ],
)
def test_largest_messages_by_hand(
    made: CollectiveCurve, of: str, share: float, algorithm: str, nics: float | None
) -> None:
    """By hand on dgx-h100: NVSwitch and 450 GB/s a GPU, 8 NICs of 400 Gbit/s."""
    node = load_node_type("dgx-h100", SHIPPED, "node")
    [found] = rate_findings(node, [made], SHIPPED)
    assert (found.of, found.algorithm) == (of, algorithm)
    assert found.share == pytest.approx(share)
    assert found.nics == (nics if nics is None else pytest.approx(nics))
    assert found.size_bytes == SIZES[-1]


@pytest.mark.parametrize(
    ("made", "nics"),
    [
        (at_rate("send_recv", 45e9), "1 of 1"),
        (at_rate("all_gather", 320e9, 4), "7 of 8"),
        (at_rate("all_gather", 201e9, 4), "4 of 8"),
        (at_rate("all_gather", 320e9, 1), "-"),
    ],
)
def test_whole_nics_by_hand(made: CollectiveCurve, nics: str) -> None:
    node = load_node_type("dgx-h100", SHIPPED, "node")
    [found] = rate_findings(node, [made], SHIPPED)
    assert found.cells()[6] == nics


def test_a_gpu_of_four_nics_sends_over_all_of_them() -> None:
    """By hand: p5 has 32 NICs of 12.5 GB/s for 8 GPUs."""
    [found] = rate_findings(
        load_node_type("p5", SHIPPED, "node"), [at_rate("send_recv", 25e9)], SHIPPED
    )
    assert (found.nics, found.nics_stated, found.share) == pytest.approx((2.0, 4.0, 0.5))


def test_switches_add_from_the_version_on_that_has_it() -> None:
    node = load_node_type("dgx-h100", SHIPPED, "node")
    made = [at_rate("all_reduce", 345e9, 1, version=version) for version in ("2.12.12", "2.21.5")]
    assert [one.algorithm for one in rate_findings(node, made, SHIPPED)] == ["ring", "ring"]
    made = [at_rate("all_reduce", 470e9, 1, version=version) for version in ("2.12.12", "2.21.5")]
    assert [one.algorithm for one in rate_findings(node, made, SHIPPED)] == [
        *("more links than stated", "nvls"),
    ]


@pytest.mark.parametrize(
    ("node", "library", "version", "said", "count"),
    [
        ("dgx-h100", "nccl", "2.21.5+cuda12.4", "lacks PAT", 7),
        ("dgx-h100", "nccl", "2.16.2", "lacks NVLS: the NVSwitches of a node add (since 2.17", 7),
        ("dgx-a100", "nccl", "2.21.5", "no switch of these nodes adds", 7),
        ("geforce-pcie4-8", "nccl", "2.4.8", "lacks LL128, and a choice by predicted times", 7),
        ("geforce-pcie4-8", "nccl", "2.21.5", "LL128 is for NVLink, which these nodes lack", 7),
        ("dgx-h100", "nccl", "", "the files state no version", 1),
        ("mi300x-8", "rccl", "2.20.5", "rccl 2.20.5; NCCL's eras do not apply", 1),
    ],
)
def test_the_era_of_a_library(node: str, library: str, version: str, said: str, count: int) -> None:
    facts = node_facts(load_node_type(node, SHIPPED, "node"), SHIPPED)
    lines = era_lines(facts, library, version)
    assert said in "\n".join(lines) and len(lines) == count


def test_the_table_and_the_era_of_a_log_of_nccl_tests(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A log with NCCL's version in its head, 2 nodes of 8 GPUs."""
    lines = ["# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 4(factor)"]
    lines += ["# Using devices"]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid 1 on node{rank // 8} device  {rank % 8} [0x1b] NVIDIA H100"
        for rank in range(16)
    ]
    lines += ["NCCL version 2.21.5+cuda12.4"]
    lines += [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    ]
    for size in SIZES:
        time_us = 60 + 1.875 * size / 350e3
        algbw = size / time_us / 1e3
        lines.append(
            f"{size:12.0f} {size / 4:12.0f} float sum -1 {time_us:.2f} {algbw:.2f}"
            f" {algbw * 1.875:.2f} 0"
        )
    made = tmp_path / "log.txt"
    made.write_text("\n".join(lines) + "\n")
    flags = ("--collective", "all_reduce", "--name", "ours", "--out", tmp_path)
    left, out, err = run(capsys, made, *flags, "--node", "dgx-h100")
    assert left == 0 and all(line.startswith("wrote ") for line in err.splitlines())
    assert "What its largest messages speak for" in out
    row = next(
        line.split() for line in out.split("\n") if line.split()[:3] == ["all_reduce", "2", "x"]
    )
    assert row[4:6] == ["1.07", "GB"] and "of NICs" in " ".join(row)
    assert "Library: nccl 2.21.5" in out and "has NVLSTree between nodes" in out
    left, out, err = run(capsys, made, *flags, "--node", "dgx-h100", "--force", "--json")
    [found] = json.loads(out)["data_sheet"]
    assert left == 0 and (found["collective"], found["nodes"], found["ranks"]) == (
        "all_reduce",
        2,
        16,
    )
    assert found["nics_stated"] == 8 and 0.5 < found["share"] < 1
