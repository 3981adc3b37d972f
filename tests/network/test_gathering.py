"""all_gather and reduce_scatter from all_reduce: by hand, by closed form and against the law."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import HALVES
from perfsim.hardware.nodes import node_facts
from perfsim.network.gathering import (
    Gathering,
    NodeSheet,
    gathering_floor,
    growing_share,
    keep_and_share,
    with_own_floor,
)
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import node_law
from perfsim.network.node_type import load_node_type
from perfsim.network.scaling_laws import ScalingLaw
from support.what_ships import SHIPPED

SIZES = tuple(2.0**power for power in range(3, 33))
ANY_SIZE = st.floats(SIZES[0], SIZES[-1])


def curve(nodes: int, gpus: int, times, sizes=SIZES, **more) -> CollectiveCurve:
    """Return an all_reduce whose times are those of a function of the size [s]."""
    seconds = tuple(times(size) for size in sizes)
    words = {"gpu": "A100", "fabric": "NVLink; inter-node InfiniBand"} | more
    return CollectiveCurve(
        "all_reduce", nodes * gpus, nodes, gpus, sizes, seconds, "measured", "made up", **words
    )


def sheet_of(node: str) -> NodeSheet:
    """Return the data sheet of a node type that ships, with the law's shipped numbers."""
    return NodeSheet(node_facts(load_node_type(node, SHIPPED, "node"), SHIPPED), node_law())


def by_law(node: str, nodes: int, gpus: int, collective: str):
    """Return the law's time as a function of the size [s]."""
    facts, law = sheet_of(node)

    def seconds(size: float) -> float:
        call = law.call(facts, collective, nodes * gpus, nodes, size)
        assert call is not None
        return call.seconds

    return seconds


def test_parts_by_hand() -> None:
    """A line a + b n where b n is a: half of it grows, and the slope over 4 in logs says so."""
    assert growing_share(lambda size: 1e-5 + 1e-11 * size, 1e6) == pytest.approx(0.5)
    assert growing_share(lambda size: 1.0 / size, 1e6) == 0.0  # a time that falls does not grow
    assert growing_share(lambda size: size**2, 1e6) == 1.0
    assert keep_and_share(10.0, 0.5, 0.6, 0.5) == pytest.approx(3.0 + 2.5)
    assert with_own_floor(10.0, 2.0, 3.0) == 7.0
    assert with_own_floor(1.0, 2.0, 3.0) == 3.0


def test_gathering_floor_by_hand() -> None:
    """Call 10 us, 60 us over 2 log2 8 hops: 10 us each; 7 between nodes, 24 inside at a tenth."""
    assert gathering_floor(70e-6, 32, 8, 10e-6, 0.1) * 1e6 == pytest.approx(10 + 70 + 24)
    assert gathering_floor(70e-6, 4, 1, 10e-6, 0.1) == 70e-6


@given(ANY_SIZE, st.floats(0.4, 1.5))
def test_on_one_node_what_stays_stays_and_what_grows_halves(size: float, ratio: float) -> None:
    """By closed form: T = a + b n gives a L / F + b n / 2, but for the slope's width of 4."""
    start_s, beta = 3e-5, 5e-12
    whole = ScalingLaw([curve(1, 8, lambda n: start_s + beta * n)])
    half = Gathering(whole, "all_gather", 8, 1, latency_s=ratio * start_s)
    exact_s = start_s * ratio + beta * size / 2.0
    assert half.seconds(size) == pytest.approx(exact_s, rel=0.05)


def test_on_one_node_the_start_of_another_protocol_stays() -> None:
    """By hand: from 512 KiB on a call starts 20 us later and sends eight times as fast."""

    def two_lines(size: float) -> float:
        return min(2e-5 + 4e-11 * size, 4e-5 + 5e-12 * size)

    whole = ScalingLaw([curve(1, 8, two_lines)])
    half = Gathering(whole, "all_gather", 8, 1)
    size = 2.0**23  # 40 us and 42 us
    assert half.seconds(size) == pytest.approx(4e-5 + 5e-12 * size / 2.0, rel=0.02)
    assert with_own_floor(two_lines(size), 2e-5, 2e-5) < 0.9 * half.seconds(size)


def test_without_small_messages_no_floor_is_told() -> None:
    def line(size: float) -> float:
        return 5e-12 * size

    for nodes, gpus in ((1, 8), (2, 4)):
        whole = ScalingLaw([curve(nodes, gpus, line, SIZES[20:])])
        half = Gathering(whole, "all_gather", 8, nodes)
        assert half.seconds(2.0**30) == pytest.approx(line(2.0**29))


def test_between_nodes_without_a_data_sheet_half_with_its_own_floor() -> None:
    whole = ScalingLaw([curve(2, 4, lambda size: 2e-5 + 1e-10 * size)])
    half = Gathering(whole, "all_gather", 8, 2, latency_s=7e-5)
    assert half.seconds(1e8) == pytest.approx(7e-5 + 5e-3, rel=1e-3)
    assert half.seconds(8.0) == pytest.approx(7e-5, rel=1e-3)


def test_no_ring_is_faster_than_the_nics_though_a_tree_between_two_nodes_is() -> None:
    """Two p4d of four NICs of 100 Gbit/s each: 15/16 n at 50 GB/s; the tree has 80 GB/s."""
    whole = ScalingLaw([curve(2, 8, lambda size: 3e-5 + 15 / 8 * size / 80e9)])
    half = Gathering(whole, "all_gather", 16, 2, sheet_of("p4d"))
    assert half.seconds(2.0**32) == pytest.approx(15 / 16 * 2.0**32 / 50e9, rel=1e-6)
    assert Gathering(whole, "all_gather", 16, 2).seconds(2.0**32) < 0.7 * half.seconds(2.0**32)
    large = ScalingLaw([curve(2, 8, lambda size: 15 / 8 * size / 80e9, SIZES[20:])])
    half = Gathering(large, "all_gather", 16, 2, sheet_of("p4d"))
    assert half.seconds(2.0**32) == pytest.approx(15 / 16 * 2.0**32 / 50e9, rel=1e-6)


@given(ANY_SIZE, st.floats(1e-5, 5e-4), st.floats(1e-11, 1e-9), st.sampled_from([2, 8, 600]))
def test_between_nodes_at_least_half_and_at_least_a_small_message(
    size: float, start_s: float, beta: float, nodes: int
) -> None:
    """NCCL takes a tree because it beats a ring: a ring's half takes half of it or more."""
    whole = ScalingLaw([curve(nodes, 8, lambda n: start_s + beta * n)])
    half = Gathering(whole, "reduce_scatter", 8 * nodes, nodes, sheet_of("p4d"), 2.0 * start_s)
    least_s = max(2.0 * start_s, whole.seconds(8 * nodes, nodes, size) / 2.0)
    assert half.seconds(size) >= least_s * (1.0 - 1e-9)


@pytest.mark.parametrize("node", ["p4d", "dgx-a100"])
@pytest.mark.parametrize("nodes", [2, 4, 16])
@pytest.mark.parametrize("collective", HALVES)
def test_between_nodes_of_a_cluster_that_is_the_law(node: str, nodes: int, collective: str) -> None:
    """All-reduces by the law give its small messages exactly, and its large ones nearly."""
    whole = ScalingLaw([curve(nodes, 8, by_law(node, nodes, 8, "all_reduce"))])
    half = Gathering(whole, collective, 8 * nodes, nodes, sheet_of(node))
    own = by_law(node, nodes, 8, collective)
    assert half.latency_s == pytest.approx(own(8.0), rel=0.15)  # F is the median to 1 KiB
    assert half.seconds(2.0**32) == pytest.approx(own(2.0**32), rel=0.15)
    for size in SIZES:  # half way from its bound, which is below the law
        assert 0.5 * own(size) < half.seconds(size) < 1.15 * own(size)


@pytest.mark.parametrize("nodes", [1, 2])
def test_where_switches_add_the_half_is_not_half(nodes: int) -> None:
    """An all_reduce under NVLS is quicker than two rings, and the all_gather is one ring."""
    whole = ScalingLaw([curve(nodes, 8, by_law("dgx-h100", nodes, 8, "all_reduce"), gpu="H100")])
    own_s = by_law("dgx-h100", nodes, 8, "all_gather")(2.0**31)
    half = Gathering(whole, "all_gather", 8 * nodes, nodes, sheet_of("dgx-h100"))
    assert half.seconds(2.0**31) == pytest.approx(own_s, rel=0.05)
    without = Gathering(whole, "all_gather", 8 * nodes, nodes)
    assert without.seconds(2.0**31) < 0.85 * own_s


@pytest.mark.parametrize("node", ["dgx-a100", "dgx-h100"])
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_below_a_curve_of_large_messages_the_law_tells_the_latency(
    node: str, factor: float
) -> None:
    """Small messages take what the law says, large ones what is measured; time grows with size."""
    large = by_law(node, 4, 8, "all_reduce")
    whole = ScalingLaw([curve(4, 8, lambda size: factor * large(size), SIZES[27:])])
    half = Gathering(whole, "all_gather", 32, 4, sheet_of(node))
    own = by_law(node, 4, 8, "all_gather")
    assert half.seconds(8.0) == pytest.approx(own(8.0))
    assert half.seconds(2.0**29) == pytest.approx(factor * own(2.0**29), rel=0.1)
    times = [half.seconds(size) for size in SIZES]
    assert times == sorted(times)


@pytest.mark.parametrize("sizes", [SIZES, SIZES[20:]])
def test_held_to_switches_between_nodes_both_are_summed_there(sizes: tuple[float, ...]) -> None:
    """Under SHARP the all_gather crosses the switches too, as fast as the law says."""
    facts, law = sheet_of("dgx-h100")
    both = ("all_reduce", "all_gather")
    seconds = [
        [law.call(facts, name, 32, 4, size, "collnet_direct").seconds for size in sizes]
        for name in both
    ]
    words = {"gpu": "H100", "algorithm": "sharp"}
    made = curve(4, 8, dict(zip(sizes, seconds[0], strict=True)).__getitem__, sizes, **words)
    half = Gathering(ScalingLaw([made]), "all_gather", 32, 4, NodeSheet(facts, law))
    assert half.seconds(2.0**31) == pytest.approx(
        dict(zip(sizes, seconds[1], strict=True))[2.0**31], rel=0.05
    )


@pytest.mark.parametrize("library", ["gloo", "mpi"])
def test_the_law_of_nccl_serves_no_other_library(library: str) -> None:
    whole = ScalingLaw([curve(2, 8, lambda size: 2e-5 + 1e-10 * size, library=library)])
    half = Gathering(whole, "all_gather", 16, 2, sheet_of("p4d"))
    without = Gathering(whole, "all_gather", 16, 2)
    assert [half.seconds(n) for n in SIZES] == [without.seconds(n) for n in SIZES]


def test_ranks_that_were_not_measured_take_the_all_reduce_carried_there() -> None:
    whole = ScalingLaw([curve(nodes, 8, by_law("p4d", nodes, 8, "all_reduce")) for nodes in (2, 4)])
    half = Gathering(whole, "all_gather", 128, 16, sheet_of("p4d"))
    assert (half.measured, half.nearest.nodes) == (False, 4)
    assert half.seconds(2.0**32) >= whole.seconds(128, 16, 2.0**32) / 2.0
