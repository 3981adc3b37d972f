"""NCCL's tuner: its threshold of 2.4, what it may choose and chooses, its figures, and laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.libraries.nccl import NcclTuner, low_latency_bytes, tree_threshold_bytes
from perfsim.libraries.nccl_versions import (
    ARCHITECTURES,
    PROTOCOLS,
    TUNED_ALGORITHMS,
    all_figures,
    version_figures,
)
from support.builders import tuner


def test_threshold_of_2_4_by_hand():
    # PCIe, 8 x 4: R = 5000, T = 3333.3 B/us, so 10000; 6 x 31 - (15 x 3 + 4 x 3) = 129.
    assert tree_threshold_bytes(32, 8, nvlink=False, channels=4) == pytest.approx(1.29e6)
    # NVLink, 4 x 8, 12 channels: R = 60000, T = 45000, 180000; 6 x 31 - (15 x 2 + 4 x 7) = 128.
    assert tree_threshold_bytes(32, 4, nvlink=True, channels=12) == pytest.approx(180000 * 128)
    # Two nodes with NVLink: T is above R. One node: no tree.
    assert tree_threshold_bytes(16, 2, nvlink=True, channels=12) == math.inf
    assert tree_threshold_bytes(8, 1, nvlink=True, channels=12) == 0


def test_choice_of_2_4_changes_at_the_threshold():
    of = tuner("2.4.7", 32, 8, "turing", "intel", "pci", 1.2, 1)
    assert of.choose("all_reduce", 1.28e6)[0] == "tree"
    assert of.choose("all_reduce", 1.30e6)[0] == "ring"
    assert of.choose("all_reduce", 1e3, algorithm="ring")[0] == "ring"
    assert of.choose("all_gather", 1e3) == ("ring", "ll", None)
    at, before = of.time("all_reduce", "tree", "ll", 1.29e6), of.time("all_reduce", "ring", "ll", 0)
    assert at == pytest.approx(of.time("all_reduce", "ring", "ll", 1.29e6))
    assert before == pytest.approx(186e-6)


def test_ll_of_2_4_by_hand():
    # Two channels, full: 2 x 256 threads x 8 chunks x 128 B; one small message: 64 threads.
    assert low_latency_bytes("ring", 4e6, 8, 2, 2, 70) == 2 * 256 * 8 * 128
    assert low_latency_bytes("ring", 100, 8, 2, 2, 70) == 64 * 8 * 128
    assert low_latency_bytes("tree", 4e6, 8, 1, 2, 61) == 2 * 256 * 1 * 32 * 4


@pytest.mark.parametrize("version", ["2.6.4", "2.10.3", "2.18.3", "2.21.5", "2.30.7"])
def test_choice_goes_from_tree_to_ring_and_from_ll_to_simple(version):
    of = tuner(version, 64, 16, "turing", "intel", "pci", 1.2, 1)
    small, large = of.choose("all_reduce", 1e3), of.choose("all_reduce", 1e9)
    assert small[:2] == ("tree", "ll")
    assert large[:2] == ("ring", "simple")


def test_restricted_as_nccl_algo_and_nccl_proto_do():
    of = tuner("2.21.5", 32, 8, "turing", "intel", "pci", 1.2, 1)
    assert of.choose("all_reduce", 1e9, algorithm="tree")[:2] == ("tree", "simple")
    assert of.choose("all_reduce", 1e3, algorithm="ring")[0] == "ring"
    assert of.choose("all_reduce", 1e9, protocol="ll")[1] == "ll"
    # PCIe: LL128 is off by itself, on when asked for.
    assert of.time("all_reduce", "ring", "ll128", 1e6) is None
    assert of.choose("all_reduce", 1e6, protocol="ll128")[1] == "ll128"
    # NCCL_ALGO=tree still gathers over rings.
    assert of.choose("all_gather", 1e6, algorithm="tree")[0] == "ring"


def test_what_a_cluster_or_version_lacks_is_left_out():
    hopper = ("hopper", "intel", "nvlink", 300.0, 8)
    node = tuner("2.21.5", 8, 1, *hopper, nvswitch=True)
    assert node.time("all_reduce", "nvls", "simple", 1e6) is not None
    assert node.time("all_reduce", "nvls", "ll", 1e6) is None
    assert node.time("all_reduce", "nvls_tree", "simple", 1e6) is None  # one node
    assert node.time("all_gather", "tree", "ll", 1e6) is None
    assert tuner("2.21.5", 8, 1, *hopper).time("all_reduce", "nvls", "simple", 1e6) is None
    ampere = tuner("2.21.5", 8, 1, "ampere", "amd", "nvlink", 230.0, 12, nvswitch=True)
    assert ampere.time("all_reduce", "nvls", "simple", 1e6) is None
    pair = tuner("2.21.5", 2, 1, *hopper, nvswitch=True)
    assert pair.time("all_reduce", "nvls", "simple", 1e6) is None
    many = tuner("2.21.5", 16, 2, *hopper, nvswitch=True)
    assert many.time("all_reduce", "nvls", "simple", 1e6) is None  # needs CollNet
    assert many.time("all_reduce", "nvls_tree", "simple", 1e6) is not None
    assert many.time("all_reduce", "collnet_direct", "simple", 1e6) is None
    for version, gpus in (("2.21.5", 8), ("2.23.4", 8)):
        with_pat = tuner(version, gpus, 8, "ampere", "intel", "pci", 10.0, 1)
        assert (with_pat.time("all_gather", "pat", "simple", 1e3) is None) == (version == "2.21.5")
    two = tuner("2.23.4", 16, 8, "ampere", "intel", "pci", 10.0, 1)
    assert two.time("all_gather", "pat", "simple", 1e3) is None


@pytest.mark.parametrize(
    ("version", "gpu", "on"),
    [
        ("2.6.4", "volta", True),
        ("2.6.4", "ampere", False),
        ("2.14.3", "ampere", True),
        ("2.14.3", "hopper", False),
        ("2.15.5", "hopper", True),
        ("2.24.3", "blackwell", False),
        ("2.25.1", "blackwell", True),
        ("2.26.2", "ada", False),
        ("2.27.3", "ada", True),
    ],
)
def test_ll128_by_version_and_gpu(version, gpu, on):
    of = tuner(version, 8, 1, gpu, "intel", "nvlink", 100.0, 8)
    assert (of.time("all_reduce", "ring", "ll128", 1e6) is not None) == on


def test_ll128_between_nodes_needs_near_nics():
    args = ("2.21.5", 16, 2, "ampere", "amd", "nvlink", 100.0, 8)
    assert tuner(*args).time("all_reduce", "ring", "ll128", 1e6) is not None
    assert tuner(*args, near_nic=False).time("all_reduce", "ring", "ll128", 1e6) is None


def test_figures_are_those_of_the_last_tag_that_changed_them():
    assert [
        version_figures(version).tag for version in ("2.5.7", "2.9.9", "2.16.5", "2.22.3", "2.99")
    ] == [
        "v2.5.6-1",
        "v2.8.3-1",
        "v2.14.3-1",
        "v2.21.5-1",
        "v2.30.7-1",
    ]
    for entry in all_figures():
        assert all(len(row) >= 22 for row in entry.tree_factor)
        assert set(entry.base_us) <= set(entry.hop_us["net"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpu_architecture": "hoper"}, "did you mean 'hopper'"),
        ({"cpu": "epyc"}, "Allowed: amd, arm, intel, power"),
        ({"intra": "nvlnk"}, "did you mean 'nvlink'"),
        ({"version": "2.3.7"}, "no tuning model"),
        ({"version": "new"}, "not a version of NCCL"),
        ({"nodes": 9}, "at least 1 node"),
        ({"bus_bandwidth": 0.0}, "rate above"),
    ],
)
def test_wrong_arguments_are_named(change, words):
    arguments = {
        "version": "2.21.5",
        "ranks": 8,
        "nodes": 1,
        "gpu_architecture": "ampere",
        "cpu": "amd",
        "intra": "nvlink",
        "bus_bandwidth": 100.0,
        "channels": 8,
    }
    with pytest.raises(RequestError, match=words):
        NcclTuner(**{**arguments, **change})


def test_wrong_names_of_a_call_are_named():
    of = tuner("2.21.5", 8, 1, "ampere", "amd", "nvlink", 100.0, 8)
    with pytest.raises(RequestError, match="did you mean 'all_reduce'"):
        of.choose("allreduce", 1e6)
    with pytest.raises(RequestError, match="did you mean 'simple'"):
        of.time("all_reduce", "ring", "simpel", 1e6)
    with pytest.raises(RequestError, match="did you mean 'ring'"):
        of.time("all_reduce", "rings", "simple", 1e6)


TUNERS = st.builds(
    lambda version, nodes, each, gpu, cpu, intra, bus, channels, flags: tuner(
        version, nodes * each, nodes, gpu, cpu, intra, bus, channels, **flags
    ),
    st.sampled_from([".".join(map(str, entry.since)) for entry in all_figures()]),
    st.integers(1, 40),
    st.integers(1, 16),
    st.sampled_from(sorted(ARCHITECTURES)),
    st.sampled_from(["intel", "amd", "arm", "power"]),
    st.sampled_from(["nvlink", "pci"]),
    st.floats(0.1, 500.0),
    st.integers(1, 32),
    st.fixed_dictionaries({"nvswitch": st.booleans(), "in_network": st.booleans()}),
)


@given(
    TUNERS,
    st.sampled_from(["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"]),
    st.floats(0, 1e10),
)
def test_the_choice_is_the_fastest_pair(of, collective, size_bytes):
    choice = of.choose(collective, size_bytes)
    times = {
        (algorithm, protocol): of.time(collective, algorithm, protocol, size_bytes)
        for algorithm in TUNED_ALGORITHMS
        for protocol in PROTOCOLS
    }
    known = {pair: seconds for pair, seconds in times.items() if seconds is not None}
    assert all(math.isfinite(seconds) and seconds >= 0 for seconds in known.values())
    assert choice.seconds == min(known.values())
    assert known[choice.algorithm, choice.protocol] == choice.seconds
    for algorithm in ("ring", "tree"):
        assert of.choose(collective, size_bytes, algorithm).seconds >= choice.seconds


@given(TUNERS, st.floats(1, 1e9), st.sampled_from(["ll", "simple"]))
def test_a_ring_takes_longer_for_more_and_respects_its_bandwidth(of, size_bytes, protocol):
    shape = of.shape
    if shape.ranks == 1:
        assert of.choose("all_reduce", size_bytes).seconds == 0
        return
    one = of.time("all_reduce", "ring", protocol, size_bytes)
    two = of.time("all_reduce", "ring", protocol, 2 * size_bytes)
    assert one < two
    bound = 2 * (shape.ranks - 1) / shape.ranks * size_bytes / (shape.bus_bandwidth * 1e9)
    assert one >= bound * (1 - 1e-12)
