"""Fabrics between nodes: slowdown and extra latency of each pattern, by hand and by law."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.network.fabrics.slowdown import Fabric, oversubscribed
from perfsim.network.routing import PATTERNS

patterns = st.sampled_from(tuple(PATTERNS))
placements = st.lists(st.integers(1, 4), min_size=1, max_size=12).map(tuple)
inter = st.sampled_from(
    [
        Fabric("single-switch", (), 1e-6),
        Fabric("leaf-spine", (("nodes_per_leaf", 4), ("oversubscription", 3.0)), 1e-6),
        Fabric("leaf-spine", (("nodes_per_leaf", 3), ("spines", 2)), 1e-6, spread=True),
        Fabric("fat-tree", (("k", 4), ("oversubscription", (2.0, 3.0))), 1e-6, spread=True),
        Fabric("torus", (("dims", (3, 4)),), 1e-6),
    ]
)


def leaf_spine(ratio: float, *, spread: bool = False, **options: int) -> Fabric:
    """Return a leaf-spine fabric with leaves of four nodes."""
    told = (("nodes_per_leaf", 4), ("oversubscription", ratio), *options.items())
    return Fabric("leaf-spine", told, 0.5e-6, spread=spread)


# By hand


def test_a_ring_in_leaf_order_hides_what_a_spread_one_shows() -> None:
    # Packed: one of a leaf's 4 flows leaves it, over uplinks worth 4/2 nodes. Spread: all 4 do.
    eight = (8,) * 8
    assert leaf_spine(2.0).slowdown("ring", eight, 1) == 1.0
    assert leaf_spine(8.0).slowdown("ring", eight, 1) == pytest.approx(2.0)  # 1 flow on 4/8
    assert leaf_spine(2.0, spread=True).slowdown("ring", eight, 1) == pytest.approx(2.0)
    assert leaf_spine(2.0).busiest("all_to_all", eight).startswith(("leaf", "spine"))


def test_all_to_all_on_two_leaves_by_closed_form() -> None:
    # A leaf of m = 4 of N = 8 equal nodes sends m (N - m) blocks up, a node N - 1.
    expected = 2.0 * (4 * 4 / 4) / 7
    assert leaf_spine(2.0).slowdown("all_to_all", (2,) * 8, 1) == pytest.approx(expected)


def test_fat_tree_levels_multiply() -> None:
    # Spread over pods every flow of a ring crosses both levels: the core is 2 x 3 too narrow.
    fabric = Fabric("fat-tree", (("k", 4), ("oversubscription", (2.0, 3.0))), spread=True)
    assert fabric.slowdown("ring", (1,) * 16, 1) == pytest.approx(6.0)
    packed = Fabric("fat-tree", (("k", 4), ("oversubscription", (2.0, 3.0))))
    # One flow leaves a leaf of two: half of 2; one leaves a pod of four: 6 / 4.
    assert packed.slowdown("ring", (1,) * 16, 1) == pytest.approx(1.5)


def test_every_core_switch_of_a_fat_tree_reaches_every_pod_once() -> None:
    graph = Fabric("fat-tree", (("k", 4),)).graph(16)
    for core in (name for name, level in graph.nodes(data="level") if level == 3):
        pods = sorted(name.split()[1] for name in graph.successors(core))
        assert pods == ["0", "1", "2", "3"]


def test_a_full_fat_tree_and_a_torus_do_not_slow_a_ring() -> None:
    full = Fabric("fat-tree", (("k", 4),), spread=True)
    assert full.slowdown("ring", (1,) * 16, 1) == pytest.approx(1.0)
    assert full.slowdown("all_to_all", (1,) * 16, 1) == pytest.approx(1.0)
    assert Fabric("torus", (("dims", (4, 4)),)).slowdown("ring", (1,) * 16, 1) == 1.0


def test_a_torus_slows_all_to_all_by_its_mean_distance() -> None:
    # 8 in a circle: distances 1,1,2,2,3,3,4 sum to 16; 8 x 16 hops over 16 directed links are 8
    # a link, against 7 out of a node.
    circle = Fabric("torus", (("dims", (8,)),))
    assert circle.slowdown("all_to_all", (1,) * 8, 1) == pytest.approx(8 / 7)


def test_a_node_with_fewer_gpus_than_nics_uses_as_many() -> None:
    # 1 + 8 GPUs with 4 NICs each: the ring goes at one NIC's rate, with or without the fabric;
    # uplinks built for 4 NICs and 2:1 still carry 2.
    assert oversubscribed(2.0).slowdown("ring", (1, 8), 4) == 1.0
    assert oversubscribed(2.0).slowdown("ring", (8, 8), 4) == pytest.approx(2.0)
    assert oversubscribed(8.0).slowdown("ring", (1, 8), 4) == pytest.approx(2.0)


def test_extra_latency_counts_switches_beyond_the_first() -> None:
    # 8 nodes on 2 leaves: 2 of the 8 hops of a ring pass 3 switches, so 2 x 2 / 8 more each.
    assert leaf_spine(1.0).extra_latency_s("ring", (1,) * 8) == pytest.approx(0.25e-6)
    assert leaf_spine(1.0, spread=True).extra_latency_s("ring", (1,) * 8) == pytest.approx(1e-6)
    assert leaf_spine(1.0).extra_latency_s("pairs", (1,) * 8) == 0.0
    assert oversubscribed(4.0).extra_latency_s("ring", (1,) * 8) == 0.0  # none stated
    assert Fabric("single-switch", (), 1e-6).extra_latency_s("tree", (1,) * 8) == 0.0


def test_spread_goes_round_the_stated_leaves() -> None:
    fabric = leaf_spine(2.0, spread=True, leaves=8)
    graph = fabric.graph(4)
    assert [graph.nodes[host]["position"] for host in fabric.hosts(graph, 4)] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
    ]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RequestError) as error:
        Fabric("torus", (("dims", (2, 2)),)).slowdown("ring", (1,) * 5, 1)
    assert str(error.value) == "the network's torus: 2 x 2 has 4 nodes, 5 are asked for."
    with pytest.raises(RequestError, match="2 leaves of 4 nodes hold 8 nodes, 9 are asked for"):
        leaf_spine(1.0, leaves=2).slowdown("ring", (1,) * 9, 1)
    with pytest.raises(RequestError, match="4 pods of 2 leaves of 2 nodes hold 16 nodes"):
        Fabric("fat-tree", (("k", 4),)).slowdown("ring", (1,) * 17, 1)
    with pytest.raises(
        RequestError, match="200000 nodes and 4 links between switches are too many"
    ):
        Fabric("leaf-spine", (("nodes_per_leaf", 50000),)).slowdown("ring", (1,) * 200000, 1)
    with pytest.raises(RequestError, match="no 'rings'; did you mean 'ring'"):
        leaf_spine(1.0).slowdown("rings", (1, 1), 1)
    with pytest.raises(RequestError, match=r"oversubscription: 0\.5 is not a ratio"):
        oversubscribed(0.5)


def test_a_prediction_without_a_fabric_does_not_load_it() -> None:
    code = (
        "import sys\n"
        "from perfsim.data.catalog import Catalog\n"
        "from perfsim.network.cluster import load_network, make_cluster\n"
        "net = load_network('10Gbit/s,50us', Catalog(), 'net')\n"
        "make_cluster(8, 4, None, net).cost('all_reduce', 1e6)\n"
        "names = ('networkx', 'perfsim.network.fabrics', 'perfsim.network.routing')\n"
        "sys.exit([name for name in names if name in sys.modules] or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# By law


@given(inter, patterns, placements, st.integers(1, 4))
def test_slowdown_is_at_least_one_and_latency_not_negative(
    fabric: Fabric, pattern: str, placement: tuple[int, ...], nics: int
) -> None:
    assert fabric.slowdown(pattern, placement, nics) >= 1.0
    assert fabric.extra_latency_s(pattern, placement) >= 0.0


@given(patterns, placements, st.integers(1, 4))
def test_a_single_switch_is_the_reference(
    pattern: str, placement: tuple[int, ...], nics: int
) -> None:
    assert Fabric("single-switch").slowdown(pattern, placement, nics) == 1.0
    routed = leaf_spine(1.0, leaves=3)  # not the short cut, but a non-blocking fabric
    if len(placement) <= 4:  # all on one leaf
        assert routed.slowdown(pattern, placement, nics) == pytest.approx(1.0)


@given(patterns, placements, st.floats(1.0, 8.0), st.floats(1.0, 4.0), st.booleans())
def test_more_oversubscription_is_never_faster(
    pattern: str, placement: tuple[int, ...], ratio: float, more: float, spread: bool
) -> None:
    narrow, wide = (leaf_spine(r, spread=spread) for r in (ratio * more, ratio))
    assert narrow.slowdown(pattern, placement, 1) >= wide.slowdown(pattern, placement, 1) - 1e-12


@given(patterns, st.lists(st.just(4), min_size=2, max_size=12), st.floats(1.0, 16.0))
def test_every_node_its_own_leaf_takes_the_ratio_for_every_pattern(
    pattern: str, placement: list[int], ratio: float
) -> None:
    slowdown = oversubscribed(ratio).slowdown(pattern, tuple(placement), 4)
    assert slowdown == pytest.approx(ratio)


@given(st.permutations(range(4)), st.permutations(range(4)), st.floats(1.0, 8.0))
def test_the_order_of_nodes_in_a_leaf_does_not_matter(
    left: list[int], right: list[int], ratio: float
) -> None:
    gpus = (1, 2, 3, 4)
    placement = tuple(gpus[i] for i in (*left, *right))
    fabric = leaf_spine(ratio)
    for pattern in ("ring", "all_to_all"):
        expected = fabric.slowdown(pattern, gpus * 2, 1)
        assert fabric.slowdown(pattern, placement, 1) == pytest.approx(expected)


@given(inter, patterns, st.integers(2, 12), st.integers(1, 4))
def test_faster_nics_of_equal_nodes_change_nothing_in_ratio(
    fabric: Fabric, pattern: str, nodes: int, nics: int
) -> None:
    one, several = (fabric.slowdown(pattern, (4,) * nodes, count) for count in (1, nics))
    assert several == pytest.approx(one)
