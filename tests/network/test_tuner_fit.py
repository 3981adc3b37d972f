"""NCCL's tuner behind measured curves: what it takes, found again on clusters of known steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.network.measured import CollectiveCurve
from perfsim.network.scaling_laws import (
    TREE_RATE_SHARE,
    ScalingLaw,
    call_seconds,
    simple_call_seconds,
    tree_nic_bytes,
)
from perfsim.network.tuner_fit import (
    Communicator,
    TunedChoice,
    bus_bandwidth,
    communicator,
    fit_tuner,
)
from support.growth_curves import SIZES, counts, curve

# Which communicator, at which rate


@pytest.mark.parametrize(
    ("gpu", "fabric", "version", "expected"),
    [
        ("A100-SXM4-40GB", "NVLink 3 mesh; Slingshot 11", "2.18", ("2.18", "ampere", "nvlink")),
        ("GH200 120GB", "NVLink 4 mesh; Slingshot 11", "2.23.4", ("2.23.4", "hopper", "nvlink")),
        ("H800", "NVSwitch; single node", "", ("2.21.5", "hopper", "nvlink")),
        ("B200", "NVSwitch; RoCE", "v2.27.5", ("v2.27.5", "blackwell", "nvlink")),
        ("RTX PRO 6000 Blackwell", "PCIe 5.0 switches", "2.27.5", ("2.27.5", "blackwell", "pci")),
        ("NVIDIA GeForce RTX 5090", "", "", ("2.21.5", "blackwell", "pci")),
        ("RTX PRO 6000 Blackwell", "", "", ("2.21.5", "blackwell", "pci")),
        ("NVIDIA L20", "", "", ("2.21.5", "ada", "pci")),
        ("RTX 4090", "PCIe 4.0, no peer access", "", ("2.21.5", "ada", "pci")),
        ("NVIDIA RTX 5000 Ada Generation", "", "", ("2.21.5", "ada", "pci")),
        ("GeForce RTX 2080 Ti", "PCIe 3.0 x16; 10GbE", "2.4.7", ("2.4.7", "turing", "pci")),
        ("Tesla V100-PCIE-32GB", "none; 10GbE", "2.3.7", ("2.4.8", "volta", "pci")),
        ("Tesla V100-SXM2-32GB", "none; EFA 100 Gbit/s", "2.6.4", ("2.6.4", "volta", "nvlink")),
        ("Tesla T4", "none; 50 Gbit/s TCP", "", ("2.21.5", "turing", "pci")),
        ("Tesla K80", "PCIe; single node", "", ("2.21.5", "kepler", "pci")),
        ("RTX 3090", "PCIe 4.0; not stated", "", ("2.21.5", "ampere_rtx", "pci")),
        ("A100-PCIE-40GB", "none; InfiniBand", "2.16.5", ("2.16.5", "ampere", "pci")),
        ("not stated", "not stated; 1GbE TCP", "", ("2.21.5", "ampere", "nvlink")),
        ("A10G", "PCIe", "2.12.7", ("2.12.7", "ampere_rtx", "pci")),
        ("L40S", "", "", ("2.21.5", "ada", "pci")),
        ("MI300X", "Infinity Fabric; RoCE", "2.22.3", ("2.22.3", "cdna3", "nvlink")),
        ("AMD Instinct MI250X", "Infinity Fabric", "", ("2.21.5", "cdna2", "nvlink")),
    ],
)
def test_communicator_reads_what_curves_state(
    gpu: str, fabric: str, version: str, expected: tuple[str, str, str]
) -> None:
    one = curve("all_reduce", 8, 2, {8: 10}, gpu=gpu, fabric=fabric, version=version)
    assert communicator(one) == Communicator(*expected)
    assert call_seconds(one) > 0  # every version and generation has figures


def test_one_slow_message_does_not_tell_the_wire() -> None:
    """Bus bandwidth 2 x 3/4 x 1 GB/s from 64 MB on; the largest message took ten times as long."""
    four = curve("all_reduce", 4, 4, {8: 20, 1e6: 1100, 64e6: 64000, 256e6: 2560000})
    assert bus_bandwidth([four], False) == pytest.approx(1.5)


# By law

CHOICES = st.builds(
    TunedChoice,
    st.builds(
        Communicator,
        st.sampled_from(["2.4.8", "2.6.4", "2.12.7", "2.18.3", "2.21.5", "2.27.5"]),
        st.sampled_from(["volta", "ampere", "hopper", "turing"]),
        st.sampled_from(["nvlink", "pci"]),
    ),
    st.floats(0.1, 400.0),
    st.sampled_from([1.0, 2.0]),
    st.booleans(),
    st.booleans(),
)


@given(CHOICES, counts, st.sampled_from([1, 4, 8]), st.floats(8.0, 1e10))
def test_a_label_is_an_algorithm_and_a_kind_of_protocol(
    choice: TunedChoice, nodes: int, gpus: int, size: float
) -> None:
    algorithm, protocol = choice.label(nodes * gpus, nodes, size)
    assert algorithm in {"ring", "tree"} and protocol in {"low_latency", "simple"}


# Clusters made from steps and levels that are known


def made(true: TunedChoice, nodes: int, gpus: int = 4) -> CollectiveCurve:
    """Return the all-reduce of a cluster whose steps and levels cost what this function says.

    A step of n / P takes 3 us and twice the wire (LL) or 9 us and the wire (Simple); a level of a
    tree 8 us + 20 ns sqrt(n) or 30 us + 10 ns sqrt(n); each where NCCL's tuner takes it. A tree's
    call under Simple costs what NCCL's figures say.
    """
    ranks, beta = nodes * gpus, true.seconds_per_byte
    words = {"version": true.of.version, "gpu": "A100", "fabric": "NVLink"}
    if true.of.architecture == "hopper":
        words["gpu"] = "H100"
    bare = CollectiveCurve(
        "all_reduce", ranks, nodes, gpus, (8.0,), (1.0,), "measured", "made", **words
    )
    call_s = call_seconds(bare)
    seconds = []
    for size in SIZES:
        algorithm, protocol = true.label(ranks, nodes, size)
        fast = protocol == "low_latency"
        if algorithm == "ring":
            block = size / ranks
            cost_s = 3e-6 + 2 * beta * block if fast else 9e-6 + beta * block
            seconds.append(call_s + 2 * (ranks - 1) * cost_s)
        else:
            level_s = 8e-6 + 2e-8 * size**0.5 if fast else 30e-6 + 1e-8 * size**0.5
            share = 1.0 if nodes == 2 else TREE_RATE_SHARE
            wire_s = tree_nic_bytes(nodes, size) * beta / share
            more_s = 0.0 if fast else simple_call_seconds(bare)
            seconds.append(call_s + more_s + wire_s + math.log2(nodes) * level_s)
    return replace(bare, size_bytes=SIZES, seconds=tuple(seconds))


def cluster(architecture: str, version: str, two_nodes: float) -> TunedChoice:
    of = Communicator(version, architecture, "nvlink")
    return TunedChoice(of, 20.0, two_nodes, plain_tree=False, near_nic=False)


@pytest.mark.parametrize("version", ["2.18.3", "2.21.5"])
@pytest.mark.parametrize("nodes", [16, 32])
def test_fitted_on_few_nodes_it_predicts_many(version: str, nodes: int) -> None:
    """Where 4 or 8 nodes show the same algorithm: within 5 %."""
    true = cluster("ampere", version, 1.0)
    small = [made(true, count) for count in (4, 8)]
    growth = ScalingLaw(small)

    def shown(label: tuple[str, str], size: float) -> bool:
        """Whether a measured curve shows this step (n / P) or level (n)."""
        sizes = {one: size * one.ranks / (4 * nodes) for one in small}
        return any(
            label == true.label(one.ranks, one.nodes, at if label[0] == "ring" else size)
            for one, at in sizes.items()
        )

    asked = 0
    large = made(true, nodes)
    for size, seconds in zip(SIZES, large.seconds, strict=True):
        label = true.label(4 * nodes, nodes, size)
        if shown(label, size):
            asked += 1
            assert growth.seconds(4 * nodes, nodes, size) == pytest.approx(seconds, rel=0.05), size
    assert asked >= 12


@pytest.mark.parametrize("version", ["2.18.3", "2.21.5"])
@pytest.mark.parametrize("architecture", ["ampere", "hopper"])
@pytest.mark.parametrize("two_nodes", [1.0, 2.0])
def test_the_tuner_that_made_the_curves_is_found(
    version: str, architecture: str, two_nodes: float
) -> None:
    true = cluster(architecture, version, two_nodes)
    found = fit_tuner([made(true, nodes) for nodes in (2, 4, 8)])
    assert found.two_nodes == two_nodes
    assert (found.plain_tree, found.near_nic) == (False, False)
    assert found.bus_bandwidth == pytest.approx(20.0, rel=0.01)
    assert found.of == true.of


@pytest.mark.parametrize(("gpu", "two_nodes", "rate"), [("H100", 2.0, 20.0), ("A100", 1.0, 35.0)])
def test_the_rate_that_two_nodes_alone_tell(gpu: str, two_nodes: float, rate: float) -> None:
    """By hand, 50 ps a byte on 2 x 4: a tree carries n, 20 GB/s; a ring 2 x 7/8 n, 35 GB/s."""
    seconds = tuple(2e-5 + size / 20e9 for size in SIZES)
    words = {"gpu": gpu, "fabric": "NVLink", "version": "2.21.5"}
    found = fit_tuner(
        [CollectiveCurve("all_reduce", 8, 2, 4, SIZES, seconds, "measured", "made", **words)]
    )
    assert found.two_nodes == two_nodes
    assert found.bus_bandwidth == pytest.approx(rate, rel=0.01)


def test_beyond_its_sizes_a_level_grows_with_the_root() -> None:
    """By hand: at 64 KiB a level takes 8 + 5.12 us, so at 128 KiB sqrt 2 times that."""
    true = cluster("ampere", "2.21.5", 1.0)
    whole = made(true, 8)
    small = replace(whole, size_bytes=SIZES[:14], seconds=whole.seconds[:14])
    assert true.label(128, 32, 2.0**17) == ("tree", "low_latency")
    level_s = (8e-6 + 2e-8 * 2**8) * math.sqrt(2)
    wire_s = 2 * 2**17 * true.seconds_per_byte / TREE_RATE_SHARE
    told = ScalingLaw([small], true).seconds(128, 32, 2.0**17)
    assert told == pytest.approx(call_seconds(whole) + wire_s + 5 * level_s, rel=1e-3)
