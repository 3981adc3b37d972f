"""NCCL's tuner against worked values of its published formula, its threshold of 2.4, and laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.library.nccl_figures import ALGORITHMS, ARCHITECTURES, PROTOCOLS, figures
from perfsim.library.nccl_tables import ALL
from perfsim.library.nccl_threshold import low_latency_bytes, tree_threshold_bytes
from perfsim.library.nccl_tuner import NcclTuner

MIB = 1024 * 1024


def tuner(version, ranks, nodes, gpu, cpu, intra, bus, channels, **more):
    """Return a tuner; bus bandwidth in GB/s."""
    return NcclTuner(version, ranks, nodes, gpu, cpu, intra, bus, channels, **more)


# Worked by hand from src/graph/tuning.cc at each tag: latency in us + bytes / (1000 x GB/s).
WORKED = [
    # 2.6.4, 8 nodes x 4 over PCIe, 1.2 GB/s. Ring LL: 3.6 + 62 x 0.9 = 59.4; 1.2/4 x 32/62.
    (
        tuner("2.6.4", 32, 8, "turing", "intel", "pci", 1.2, 1),
        ("all_reduce", "ring", "ll", 8000),
        59.4 + 8000 / (1000 * 1.2 / 4 * 32 / 62),
    ),
    # Tree LL: 4.4 + 2 (3 x 1.0 + 3 x 5.0) = 40.4; 1.2 x 0.9 / 3 x 0.5 = 0.18; 8 KiB: x 0.7.
    (
        tuner("2.6.4", 32, 8, "turing", "intel", "pci", 1.2, 1),
        ("all_reduce", "tree", "ll", 8192),
        40.4 + 8192 / (1000 * 0.18 * 0.7),
    ),
    # Tree Simple: 0 + 2 (3 x 28 + 3 x 50) = 468; 1.2 x 0.9 x 0.5 = 0.54; 1 MiB: x 0.5.
    (
        tuner("2.6.4", 32, 8, "turing", "intel", "pci", 1.2, 1),
        ("all_reduce", "tree", "simple", MIB),
        468 + 1048576 / (1000 * 0.54 * 0.5),
    ),
    # 2.7.8, 4 x 4 NVLink, 20 GB/s. Ring Simple: 8.4 + 24 x 3.4 + 6 x 9.6 = 147.6, plateau x 1.9
    # from 65536 x 16/16 B on; 20 x 16/30.
    (
        tuner("2.7.8", 16, 4, "volta", "intel", "nvlink", 20.0, 2),
        ("all_reduce", "ring", "simple", 1e6),
        147.6 * 1.9 + 1e6 / (1000 * 20 * 16 / 30),
    ),
    # The same below the plateau.
    (
        tuner("2.7.8", 16, 4, "volta", "intel", "nvlink", 20.0, 2),
        ("all_reduce", "ring", "simple", 65535),
        147.6 + 65535 / (1000 * 20 * 16 / 30),
    ),
    # 2.10.3, 8 A100 on a node, 230 GB/s, 12 channels. Tree LL128: 4.4 + 2 x 7 x 1.25 = 21.9;
    # 230 x 0.92 x 7/9 x 0.5 = 82.29 (caps 288 and 240 not met); 1 MiB: x 0.6.
    (
        tuner("2.10.3", 8, 1, "ampere", "amd", "nvlink", 230.0, 12),
        ("all_reduce", "tree", "ll128", MIB),
        21.9 + 1048576 / (1000 * 230 * 0.92 * 7 / 9 * 0.5 * 0.6),
    ),
    # 2.12.7, 2 x 2 PCIe, 10 GB/s. Ring Simple: 6 steps, 4 of them on the net at 28 us:
    # 8.4 + 2 x 5.7 + 4 x 28 = 131.8, x 1.9; 10 x 4/6.
    (
        tuner("2.12.7", 4, 2, "volta", "intel", "pci", 10.0, 2),
        ("all_reduce", "ring", "simple", 1e6),
        131.8 * 1.9 + 1e6 / (1000 * 10 * 4 / 6),
    ),
    # 2.14.3, 4 x 8 with SHARP, 100 GB/s. CollNet chain: 0 + 2 x 7 x 8.0 = 112; 100 x 0.75 x 0.5.
    (
        tuner("2.14.3", 32, 4, "ampere", "amd", "nvlink", 100.0, 4, in_network=True),
        ("all_reduce", "collnet_chain", "simple", 1e6),
        112 + 1e6 / (1000 * 37.5),
    ),
    # 2.17.1, 8 H100, 360 GB/s. NVLS: 40 + 0; 360 x 0.75 = 270.
    (
        tuner("2.17.1", 8, 1, "hopper", "intel", "nvlink", 360.0, 8, nvswitch=True),
        ("all_reduce", "nvls", "simple", 27e6),
        40 + 100,
    ),
    # 2.18.3, 2 x 8 A100, AMD. Ring LL: the CPU posts each step, 2 us: 6.6 + 26 x 2 + 4 x 2.7 =
    # 69.4; 100/4 = 25 is above the 22.5 of AMD on two nodes, so 22.5 x 16/30 = 12.
    (
        tuner("2.18.3", 16, 2, "ampere", "amd", "nvlink", 100.0, 8),
        ("all_reduce", "ring", "ll", 60e3),
        69.4 + 5,
    ),
    # 2.19.3, 4 x 8 H100, 300 GB/s. NVLSTree: 23 + 2 x 2 x 14 = 79; 300/2 x 5/6 = 125.
    (
        tuner("2.19.3", 32, 4, "hopper", "intel", "nvlink", 300.0, 8, nvswitch=True),
        ("all_reduce", "nvls_tree", "simple", 1.25e6),
        79 + 10,
    ),
    # 2.21.5, 2 x 8 H100, 300 GB/s in 8 channels. Tree Simple: 2 (7 x 28 + 28) = 448;
    # 276 (cap 331.2) x 0.5 = 138; 64 MiB: x 0.8.
    (
        tuner("2.21.5", 16, 2, "hopper", "intel", "nvlink", 300.0, 8),
        ("all_reduce", "tree", "simple", 64 * MIB),
        448 + 67108864 / (1000 * 138 * 0.8),
    ),
    # 2.21.5, 8 GPUs on a node. Ring Simple broadcast: 8.4 + one hop 3.4; 100 x 8/8.
    (
        tuner("2.21.5", 8, 1, "ampere", "amd", "nvlink", 100.0, 8),
        ("broadcast", "ring", "simple", 1e6),
        11.8 + 10,
    ),
    # 2.21.5, 4 x 1. Ring LL128 reduce-scatter: 14 + 3 x 4.0 = 26; 10 x 0.7 x 4/3.
    (
        tuner("2.21.5", 4, 4, "volta", "intel", "nvlink", 10.0, 1),
        ("reduce_scatter", "ring", "ll128", 28e3),
        26 + 3,
    ),
    # 2.23.4, 16 x 1. PAT all-gather: 8 + 4 x 14/3.5 + 16 x 2.8 = 68.8; 10 x 0.85.
    (
        tuner("2.23.4", 16, 16, "ampere", "intel", "pci", 10.0, 1),
        ("all_gather", "pat", "simple", 85e3),
        68.8 + 10,
    ),
    # 2.23.4, 4 x 1. Ring LL takes the tree's hop: 6.6 + 6 x 5.0 = 36.6; 10/2 x 4/6.
    (
        tuner("2.23.4", 4, 4, "ampere", "intel", "pci", 10.0, 1),
        ("all_reduce", "ring", "ll", 10e3),
        36.6 + 3,
    ),
    # 2.30.7, 8 H100, 400 GB/s in 16 channels. NVLS: 25; min(400 x 0.85 x 15/16 x 2, 400) x 8/14.
    (
        tuner("2.30.7", 8, 1, "hopper", "intel", "nvlink", 400.0, 16, nvswitch=True),
        ("all_reduce", "nvls", "simple", 4e6),
        25 + 17.5,
    ),
]


@pytest.mark.parametrize(("of", "call", "expected_us"), WORKED)
def test_time_is_the_published_formula(of, call, expected_us):
    assert of.time(*call) == pytest.approx(expected_us * 1e-6, rel=1e-9)


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
    assert [figures(version).tag for version in ("2.5.7", "2.9.9", "2.16.5", "2.22.3", "2.99")] == [
        "v2.5.6-1",
        "v2.8.3-1",
        "v2.14.3-1",
        "v2.21.5-1",
        "v2.30.7-1",
    ]
    for entry in ALL:
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
    st.sampled_from([".".join(map(str, entry.since)) for entry in ALL]),
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
        for algorithm in ALGORITHMS
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
