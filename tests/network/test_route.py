"""Links behind fabrics, measured alone or through them: by hand, and as network files say."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import Algorithm, Hops, find_algorithm
from perfsim.errors import RequestError
from perfsim.network.cluster import Cluster, make_cluster
from perfsim.network.fabrics.slowdown import Fabric, NodeFabric
from perfsim.network.link import Latency, Link, NodeExponent, custom_link
from perfsim.network.network_file import Network, load_network, read_network
from perfsim.network.route import (
    LinkPath,
    among_nodes,
    inside_node,
    through_fabric,
)
from perfsim.network.routing import PATTERNS
from perfsim.quantity import Quantity
from support.hops import UNEQUAL
from support.what_ships import SHIPPED

FABRIC = Fabric("leaf-spine", (("nodes_per_leaf", 4), ("oversubscription", 8.0)), 1e-6)
"""Leaves of four nodes whose uplinks are worth half a node."""

MESH = NodeFabric("nvlink-mesh", 4, options=(("links_per_pair", 4),))


def link(ranks: tuple[int, int] | None = None) -> Link:
    """Return a link of 1 GB/s and 20 us, as measured on so many ranks."""
    return replace(custom_link("1GB/s,20us", "net"), ranks=ranks)


def gigabytes(found: Link) -> tuple[float, float]:
    """Return the rate and the tree's rate [GB/s]."""
    return found.rate.value / 1e9, found.tree_rate.value / 1e9


def test_a_link_of_its_own_takes_all_of_the_fabric() -> None:
    """Eight nodes, two leaves: one flow of a ring leaves each, over half a node's rate."""
    found = through_fabric(link((8, 8)), FABRIC, "ring", (1,) * 8, 1)
    assert gigabytes(found) == pytest.approx((0.5, 0.5))
    assert found.ring.at(8.0) == pytest.approx(20e-6 + FABRIC.extra_latency_s("ring", (1,) * 8))
    assert found.rate.kind == "derived" and "leaf-spine" in found.rate.source
    assert through_fabric(link(), FABRIC, "ring", (1,) * 4, 1) == link()  # one leaf alone


def test_what_was_measured_through_the_fabric_is_not_slowed_again() -> None:
    measured = link((8, 8))
    assert through_fabric(measured, FABRIC, "ring", (1,) * 8, 1, True).rate == measured.rate
    assert through_fabric(measured, FABRIC, "ring", (1,) * 8, 1, True).ring == measured.ring
    tree = through_fabric(measured, FABRIC, "tree", (1,) * 8, 1, True)
    assert (tree.tree_rate, tree.tree) == (measured.tree_rate, measured.tree)
    # Four GPUs a node: eight ranks were two nodes of one leaf, which no uplink slows.
    assert gigabytes(through_fabric(measured, FABRIC, "ring", (4,) * 8, 1, True))[
        0
    ] == pytest.approx(0.5)
    # One leaf alone lacks what slowed the ring over two; latency is never taken off.
    less = through_fabric(measured, FABRIC, "ring", (1,) * 4, 1, True)
    assert gigabytes(less)[0] == pytest.approx(2.0)
    assert less.ring == measured.ring


def test_other_flows_are_held_against_the_ring_that_was_measured() -> None:
    """By hand: an all-to-all sends 4 x 4/8 over half a node, 4, and 7/8 a node: 32/7 to the 2."""
    found = through_fabric(link((8, 8)), FABRIC, "all_to_all", (1,) * 8, 1, True)
    assert gigabytes(found)[0] == pytest.approx(2 / (32 / 7))


def test_unknown_ranks_count_as_alone_and_a_full_fabric_bounds_the_nodes() -> None:
    asked = FABRIC, "ring", (1,) * 8, 1
    assert through_fabric(link(), *asked, True) == through_fabric(link(), *asked)
    torus = Fabric("torus", (("dims", (3, 3)),), 1e-6)
    # 72 ranks on 9 nodes were 8 a node: nodes of one are refused as measured, not as asked for.
    found = through_fabric(link((2, 72)), torus, "all_to_all", (1,) * 4, 1, True)
    assert gigabytes(found)[0] > 0
    with pytest.raises(RequestError, match="10 are asked for"):
        through_fabric(link((2, 72)), torus, "all_to_all", (1,) * 10, 1, True)


def falling(exponent: float, error: float, nodes: int) -> Link:
    """Return a link of 1 GB/s whose rate falls with nodes."""
    quantity = Quantity(exponent, "", "derived", "by hand", error / exponent)
    return replace(link(), falls=NodeExponent(quantity, nodes))


def test_a_rate_that_falls_with_nodes_by_hand() -> None:
    found = among_nodes(falling(0.5, 0.25, 2), 8)
    assert gigabytes(found) == pytest.approx((0.5, 0.5))
    assert found.rate.spread == pytest.approx(4.0**0.25 - 1.0)
    assert found.rate.kind == "derived" and "0.5 of it on 8 nodes: by hand" in found.rate.source
    assert found.ring == link().ring  # a hop is as long as it was
    # Up to the nodes that it was measured on the rate stays.
    assert among_nodes(falling(0.5, 0.25, 2), 2).rate == link().rate
    assert among_nodes(link(), 64) == link()


def test_a_ring_over_more_nodes_takes_the_rate_that_is_left() -> None:
    """Of 1 GB/s, 2 (P - 1) / P n bytes: 1.5 s a GB over 4 nodes, half the rate over 8."""
    net = Network("n", "n", "custom", None, 1, {"inter": falling(0.5, 0.0, 2)})
    for nodes, slower in ((2, 1.0), (8, 2.0)):
        cluster = make_cluster(nodes, 1, None, net)
        volume = 2.0 * (nodes - 1) / nodes * 1e9
        seconds = cluster.cost("all_reduce", 1e9, "ring").seconds
        assert seconds == pytest.approx(volume * slower / 1e9, rel=1e-3)


@given(st.floats(0.0, 1.0), st.integers(2, 64), st.integers(1, 512))
def test_a_rate_never_rises_as_nodes_are_added(exponent: float, measured: int, nodes: int) -> None:
    one = NodeExponent(Quantity(exponent, "", "derived", "by law", 0.5), measured)
    assert 1.0 <= one.slower(nodes) <= one.slower(nodes + 1)
    assert 0.0 <= one.spread(nodes) <= one.spread(nodes + 1)
    assert one.slower(measured) == 1.0


def test_presets_of_fast_ethernet_fall_and_those_at_line_rate_do_not() -> None:
    for name, falls in (("10gbe", False), ("1gbe", False), ("25gbe", True), ("100gbe", True)):
        found = load_network(name, SHIPPED, "net").links["inter"]
        assert (found.falls is not None) is falls, name
        if found.falls is not None:
            assert "profiles/build/node_exponent.py" in found.falls.exponent.source


def test_inside_a_node_by_hand() -> None:
    """Of 12 links of a GPU 4 lead to the other one; the tree's rate goes with the ring's."""
    found = inside_node(link((4, 4)), MESH, 2)
    assert gigabytes(found) == pytest.approx((1 / 3, 1 / 3))
    assert found.ring == link().ring
    assert inside_node(link((4, 4)), MESH, 4) == link((4, 4))
    assert inside_node(link(), MESH, 2) == link()


@given(
    st.sampled_from(tuple(PATTERNS)),
    st.integers(2, 12),
    st.integers(2, 12),
    st.sampled_from([1.0, 2.0, 5.0]),
)
def test_measured_through_a_fabric_is_never_slower_than_alone(
    pattern: str, nodes: int, before: int, ratio: float
) -> None:
    options = (("nodes_per_leaf", 3), ("oversubscription", ratio))
    fabric = Fabric("leaf-spine", options, 1e-6)
    alone, through = (
        through_fabric(link((2, before)), fabric, pattern, (1,) * nodes, 1, way)
        for way in (False, True)
    )
    assert through.rate.value >= alone.rate.value
    assert through.ring.at(8.0) <= alone.ring.at(8.0)
    same = through_fabric(link((2, nodes)), fabric, "ring", (1,) * nodes, 1, True)
    assert same.rate == link().rate


# As network files state them

FILE = """
schema = "perfsim/network/1"
name = "rack"
title = "two leaves of four nodes"
transport = "tcp"
gpus_per_node = {gpus}
{table}
"""
LINK = """
[[link]]
class = "{of}"
ranks = [2, {ranks}]
rate = {{ value = "1GB/s", residual = "10%", kind = "fitted", source = "a test" }}
gamma = {{ value = "0s/B", residual = "0%", kind = "derived", source = "a test" }}
alpha = {{ value = "20us", residual = "10%", kind = "fitted", source = "a test" }}
"""
LEAVES = """
[fabric]
kind = "leaf-spine"
nodes_per_leaf = 4
oversubscription = 8
source = "a test"
"""
NODE = """
[node]
fabric = "nvlink-mesh"
gpus = 4
links_per_pair = 4
source = "a test"
"""


def cluster(folder: Path, text: str, gpus: int, each: int, **more: float) -> Cluster:
    path = folder / "rack.toml"
    path.write_text(text, encoding="utf-8")
    return make_cluster(gpus, each, None, read_network(path), **more)


def test_a_file_with_a_fabric_is_held_against_what_it_measured(tmp_path: Path) -> None:
    """By hand: as measured over the nodes that were; four times that as the user narrows it."""
    wire = LINK.format(of="inter", ranks=8)
    text, plain = (FILE.format(gpus=1, table=table) + wire for table in (LEAVES, ""))
    times = [cluster(tmp_path, one, 8, 1).cost("all_reduce", 1e9, "ring") for one in (text, plain)]
    assert times[0].seconds == times[1].seconds
    narrow = cluster(tmp_path, text, 8, 1, oversubscription=4.0).cost("all_reduce", 1e9, "ring")
    assert narrow.seconds == pytest.approx(4 * times[0].seconds, rel=1e-3)
    doubling = cluster(tmp_path, text, 8, 1).cost("all_reduce", 1e9, "doubling")
    alone = cluster(tmp_path, plain, 8, 1).cost("all_reduce", 1e9, "doubling")
    # Rounds of 1, 1 and, over half a node's uplink for four, 8; to the 2 of the measured ring.
    assert doubling.seconds / alone.seconds == pytest.approx(10 / 3 / 2, rel=1e-3)


def test_a_file_with_a_node_slows_two_of_its_four_gpus(tmp_path: Path) -> None:
    text = FILE.format(gpus=4, table=NODE) + LINK.format(of="intra", ranks=4)
    two = cluster(tmp_path, text, 2, 2).cost("all_reduce", 1e9, "ring").seconds
    four = cluster(tmp_path, text, 4, 4).cost("all_reduce", 1e9, "ring").seconds
    # 2 (P-1)/P: 1 and 3/2 buffers, the two at a third of the rate.
    assert two / four == pytest.approx(3 * 1 / 1.5, rel=1e-3)


LINES = [
    find_algorithm(*names)
    for names in (("all_reduce", "ring"), ("all_reduce", "tree"), ("all_gather", "ring"))
]


@st.composite
def curves(draw: st.DrawFn) -> Latency:
    """Draw a latency curve of some knots; latencies rise and fall as they like."""
    knots = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True))
    alphas = [draw(st.floats(0.0, 1e-3)) for _ in knots]
    return Latency(tuple(4.0**knot for knot in sorted(knots)), tuple(alphas), "fitted", "by law")


@given(
    st.sampled_from(LINES),
    st.dictionaries(st.sampled_from(["intra", "inter"]), curves()),
    st.lists(st.one_of(st.integers(0, 12).map(lambda knot: 4.0**knot), st.floats(0.0, 1e9))),
)
def test_a_path_of_a_line_takes_what_its_formula_says(
    algorithm: Algorithm, of_classes: dict[str, Latency], sizes: list[float]
) -> None:
    """By law: at knots, between and beyond them."""
    hops = UNEQUAL._replace(alpha_intra_s=0.0, alpha_inter_s=0.0)
    by_line = LinkPath(algorithm, hops, of_classes)
    by_formula = LinkPath(algorithm._replace(line=None), hops, of_classes)
    for size in sizes:
        by_line_s, by_formula_s = by_line.times.of(size), by_formula.times.of(size)
        assert by_line_s == pytest.approx(by_formula_s, rel=1e-9, abs=1e-15)
        alphas = {f"alpha_{name}_s": curve.at(size) for name, curve in of_classes.items()}
        formula_s = algorithm.formula(size, hops._replace(**alphas)).seconds
        smaller = by_line.knots[: bisect_left(by_line.knots, size)]
        least_s = max([formula_s, *map(by_line.times.of, smaller)])
        assert by_line_s == pytest.approx(least_s, rel=1e-9, abs=1e-15)


def test_a_path_by_hand_where_its_latency_falls() -> None:
    """Two ranks, half of n at 1 GB/s; a hop takes 30 us up to 1 KiB, 10 us from 4 KiB on."""
    falling = Latency((1024.0, 4096.0), (30e-6, 10e-6), "fitted", "by hand")
    hops = Hops.flat(2, alpha_s=0.0, beta_s_per_byte=1e-9)
    path = LinkPath(find_algorithm("all_gather", "ring"), hops, {"inter": falling})
    assert path.times.of(512.0) == pytest.approx(30e-6 + 0.256e-6)
    at_knot_s = 30e-6 + 0.512e-6
    assert path.times.of(1024.0) == pytest.approx(at_knot_s)
    # At 2 KiB 20 + 1.024 us, at 4 KiB 10 + 2.048 us: no less than the smaller message.
    assert path.times.of(2048.0) == path.times.of(4096.0) == pytest.approx(at_knot_s)
    assert path.times.of(1e6) == pytest.approx(10e-6 + 500e-6)
