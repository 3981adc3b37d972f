"""Routing: loads, the busiest link and latency on graphs small enough to work out by hand."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.network.fabrics.base import join, new_graph
from perfsim.network.fabrics.between_nodes import fat_tree, leaf_spine, single_switch, torus
from perfsim.network.routing import (
    PATTERNS,
    Flow,
    Graph,
    Pattern,
    Routed,
    all_to_all_flows,
    flows,
    ring_flows,
    route,
    tree_flows,
)

placements = st.lists(st.integers(1, 4), min_size=2, max_size=12)
patterns = st.sampled_from(tuple(PATTERNS))
graphs = st.sampled_from(
    [
        single_switch(12, 1e9, 1e-6),
        leaf_spine(12, 1e9, 1e-6, nodes_per_leaf=3, spines=2, oversubscription=2.0),
        fat_tree(12, 1e9, 1e-6, k=4, oversubscription=(2.0, 3.0)),
        torus(12, 1e9, 1e-6, dims=(3, 4)),
    ]
)


def routed(graph: Graph, pattern: Pattern, **options: str) -> Routed:
    """Route a pattern over the nodes of a graph in their order."""
    return route(graph, graph.graph["hosts"], pattern, **options)  # type: ignore[arg-type]


def one(source: int, target: int, weight: float = 1.0) -> Pattern:
    """Return a single flow."""
    return Pattern(((Flow(source, target, weight),),), (((source, target),),))


# By hand


def test_only_flows_that_cross_leaves_load_the_uplinks() -> None:
    graph = leaf_spine(4, 1e9, 0.0, nodes_per_leaf=2, oversubscription=2.0)
    (load,) = routed(graph, ring_flows((1,) * 4)).loads
    assert load["leaf 0", "spine 0"] == load["spine 0", "leaf 0"] == 1.0
    assert all(load[f"node {i}", f"leaf {i // 2}"] == 1.0 for i in range(4))
    assert len(load) == 4 * 2 + 2 * 2


def test_equal_cost_paths_share_evenly_or_the_first_takes_all() -> None:
    graph = leaf_spine(2, 1e9, 0.0, nodes_per_leaf=1, spines=4)  # uplinks of 0.25 GB/s
    even = routed(graph, one(0, 1))
    assert [even.loads[0]["leaf 0", f"spine {i}"] for i in range(4)] == [0.25] * 4
    assert even.seconds_per_byte == pytest.approx(1e-9)
    first = routed(graph, one(0, 1), ties="first")
    assert first.seconds_per_byte == pytest.approx(4e-9)
    assert first.busiest == "leaf 0 -> spine 0"


def test_a_switch_shares_over_its_next_hops_not_over_whole_paths() -> None:
    # a -> left -> far, and a -> right -> {x, y} -> far is longer; so only the former is taken.
    graph = new_graph()
    for name in ("h0", "h1"):
        graph.add_node(name, kind="host")
    graph.add_nodes_from(["s", "left", "right", "m1", "m2", "m3", "t"], kind="switch")
    for low, high in [("h0", "s"), ("h1", "t"), ("s", "left"), ("s", "right"), ("left", "m1")]:
        join(graph, low, high, 1.0)
    for low, high in [("right", "m2"), ("right", "m3"), ("m1", "t"), ("m2", "t"), ("m3", "t")]:
        join(graph, low, high, 1.0)
    (load,) = route(graph, ["h0", "h1"], one(0, 1)).loads
    assert load["s", "left"] == load["s", "right"] == 0.5  # three paths, two next hops
    assert load["right", "m2"] == load["right", "m3"] == 0.25


def test_a_ring_on_a_torus_loads_every_link_at_most_once() -> None:
    # 4 x 4, row by row: (i,3) -> (i+1,0) is two hops with two ways, half each. The wrap link
    # (i,3) -> (i,0) carries half of the flow of row i and, on row i, half of that of row i-1.
    graph = torus(16, 1e9, 0.0, dims=(4, 4))
    result = routed(graph, ring_flows((1,) * 16))
    (load,) = result.loads
    assert load["router 1,0", "router 1,1"] == 1.0
    assert load["router 1,3", "router 1,0"] == 1.0
    assert load["router 1,3", "router 2,3"] == load["router 1,0", "router 2,0"] == 0.5
    assert result.seconds_per_byte == pytest.approx(1e-9)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        # 4 : 1 over leaves of 4: an uplink is worth one node. 1, 2, 4 and 4 of 4 flows cross it at
        # distance 1, 2, 4 and 8 round the ring; swaps at distance 1 and 2 stay inside.
        ("halving", (8 + 4 + 4 * 2 + 4 * 1) / 15),
        ("doubling", (1 + 1 + 4 + 4) / 4),
        ("gathering", (1 + 2 + 4 * 4 + 4 * 8) / 15),
        ("bruck", (1 + 2 * 2 + 4 * 4 + 4 * 8) / 15),
        ("bruck_exchange", (1 + 2 + 4 + 4) / 4),
        ("pat", (4 * 1 + 4 * 2 + 2 * 4 + 8) / 15),
    ],
)
def test_rounds_on_four_leaves_of_four_by_hand(pattern: str, expected: float) -> None:
    graph = leaf_spine(16, 1.0, 0.0, nodes_per_leaf=4, oversubscription=4.0)
    asked = flows(pattern, (1,) * 16)
    alone = sum(phase[0].weight for phase in asked.phases)
    found = routed(graph, asked).seconds_per_byte / alone
    assert found == pytest.approx(expected)


def test_the_slow_nic_of_unequal_nodes_is_the_busiest() -> None:
    graph = new_graph()
    graph.add_node("s", kind="switch")
    for index, rate in enumerate((10e9, 10e9, 2.5e9)):
        graph.add_node(f"n{index}", kind="host")
        join(graph, f"n{index}", "s", rate)
    result = route(graph, ["n0", "n1", "n2"], ring_flows((8, 8, 8)))
    assert result.seconds_per_byte == pytest.approx(4e-10)
    assert result.busiest in ("s -> n2", "n2 -> s")


def test_latency_of_a_ring_sums_the_hops_of_a_turn() -> None:
    # 4 nodes on 2 leaves: two hops over 1 switch, two over 3.
    graph = leaf_spine(4, 1e9, 1e-6, nodes_per_leaf=2)
    result = routed(graph, ring_flows((1,) * 4))
    assert result.latency_s == pytest.approx(8e-6)
    assert result.hops == 4


def test_latency_of_a_tree_is_that_of_its_deepest_branch() -> None:
    result = routed(single_switch(14, 1e9, 1e-6), tree_flows((1,) * 14))
    assert result.hops == 4  # 1 -> 2 -> 4 -> 8 -> 0
    assert result.latency_s == pytest.approx(4e-6)


def test_latency_takes_the_slowest_of_the_paths_that_share() -> None:
    graph = leaf_spine(2, 1e9, 1e-6, nodes_per_leaf=1, spines=2)
    graph.edges["leaf 0", "spine 1"]["latency_s"] = 5e-6
    assert routed(graph, one(0, 1)).latency_s == pytest.approx(7e-6)
    assert routed(graph, one(0, 1), ties="first").latency_s == pytest.approx(3e-6)


def test_nodes_do_not_forward_unless_they_are_wired_to_each_other() -> None:
    rails = new_graph()
    for name in ("a", "both", "c"):
        rails.add_node(name, kind="host")
    rails.add_nodes_from(["s", "t"], kind="switch")
    for low, high in [("a", "s"), ("both", "s"), ("both", "t"), ("c", "t")]:
        join(rails, low, high, 1.0)
    with pytest.raises(RequestError, match="'t' cannot be reached from 's'"):
        route(rails, ["a", "c"], one(0, 1))

    line = new_graph()
    line.add_nodes_from(["a", "b", "c"], kind="host")
    join(line, "a", "b", 1.0)
    join(line, "b", "c", 1.0)
    assert route(line, ["a", "c"], one(0, 1)).loads == ({("a", "b"): 1.0, ("b", "c"): 1.0},)


def test_one_node_sends_nothing() -> None:
    graph = single_switch(1, 1e9, 1e-6)
    assert routed(graph, flows("all_to_all", (8,))) == Routed(0.0, "", 0.0, 0, ())


# By law


@given(graphs, patterns, placements, st.sampled_from(["even", "first"]))
def test_bytes_are_conserved_at_every_vertex(
    graph: Graph, name: str, placement: list[int], ties: str
) -> None:
    pattern = flows(name, placement)
    phases = list(pattern.phases) or list(all_to_all_flows(placement).phases)
    for phase, load in zip(phases, routed(graph, pattern, ties=ties).loads, strict=True):
        balance: Counter[str] = Counter()
        for source, target, weight in phase:
            balance[f"node {source}"] += weight
            balance[f"node {target}"] -= weight
        for (tail, head), amount in load.items():
            assert amount > 0
            balance[tail] -= amount
            balance[head] += amount
        assert max(map(abs, balance.values())) < 1e-9


@given(graphs, patterns, placements, st.data())
def test_a_link_twice_as_fast_is_never_slower(
    graph: Graph, name: str, placement: list[int], data: st.DataObject
) -> None:
    edge = data.draw(st.sampled_from(sorted(graph.edges)))
    faster = graph.copy()
    faster.edges[edge]["rate_bytes_per_s"] *= 2
    pattern = flows(name, placement)
    assert routed(faster, pattern).seconds_per_byte <= routed(graph, pattern).seconds_per_byte


@given(graphs, placements, st.sampled_from(["even", "first"]))
def test_all_to_all_without_a_list_is_the_list(
    graph: Graph, placement: list[int], ties: str
) -> None:
    short = routed(graph, flows("all_to_all", placement), ties=ties)
    listed = routed(graph, all_to_all_flows(placement), ties=ties)
    assert short.loads[0].keys() == listed.loads[0].keys()
    for edge, amount in listed.loads[0].items():
        assert short.loads[0][edge] == pytest.approx(amount)
    assert short.seconds_per_byte == pytest.approx(listed.seconds_per_byte)
    assert short.latency_s == pytest.approx(listed.latency_s)


@given(graphs, st.data())
def test_paths_are_as_short_as_networkx_says(graph: Graph, data: st.DataObject) -> None:
    pair = data.draw(st.lists(st.integers(0, 11), min_size=2, max_size=2, unique=True))
    for ties in ("even", "first"):
        (load,) = routed(graph, one(*pair), ties=ties).loads
        hops = nx.shortest_path_length(graph, f"node {pair[0]}", f"node {pair[1]}")
        assert sum(load.values()) == pytest.approx(hops)
