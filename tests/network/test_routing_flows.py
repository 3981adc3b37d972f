"""Flows of a collective between nodes: who sends how much in each round, by hand and by law."""

from __future__ import annotations

import math
from collections import Counter

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import algorithms, find_algorithm
from perfsim.network.routing import (
    PATTERNS,
    Flow,
    Pattern,
    all_to_all_flows,
    bruck_exchange_flows,
    bruck_flows,
    doubling_flows,
    gathering_flows,
    halving_flows,
    pair_flows,
    pat_flows,
    ring_flows,
    tree_flows,
    tree_parents,
)


def test_a_ring_passes_each_node_once_whatever_its_gpus() -> None:
    assert ring_flows((3, 5)) == ring_flows((1, 1))
    assert ring_flows((4,)) == Pattern((), ())


def test_first_tree_of_14_nodes_is_the_published_one() -> None:
    # The drawing in NCCL's src/graph/trees.cc: 0-8; 8-4, 8-12; 4-2, 4-6; 12-10, 12-13; ...
    first, _ = tree_parents(14)
    drawn = {8: 0, 4: 8, 12: 8, 2: 4, 6: 4, 10: 12, 13: 12, 1: 2, 3: 2, 5: 6, 7: 6, 9: 10, 11: 10}
    assert first == drawn


def test_second_tree_is_the_mirror_or_the_shift() -> None:
    first, second = tree_parents(12)  # drawn there: 3-11; 1, 7 below 3; 0, 2 below 1; ...
    assert second[3] == 11 and second[1] == second[7] == 3 and second[0] == second[2] == 1
    first, second = tree_parents(13)  # drawn there: 1-9; 5, 0 below 9; 3, 7 below 5; 12 below 11
    assert second[9] == 1 and second[5] == second[0] == 9 and second[12] == second[10] == 11
    assert len(first) == len(second) == 12


@given(st.integers(2, 200))
def test_both_trees_span_all_nodes_at_logarithmic_depth(nodes: int) -> None:
    for parents in tree_parents(nodes):
        tree = nx.Graph(parents.items())
        assert nx.is_tree(tree) and len(tree) == nodes
        (root,) = set(range(nodes)) - set(parents)
        depth = max(nx.single_source_shortest_path_length(tree, root).values())
        assert depth <= math.ceil(math.log2(nodes)) + 1
        assert max(Counter(parents.values()).values()) <= 2


@given(st.integers(1, 100).map(lambda half: 2 * half))
def test_a_node_inside_one_tree_is_a_leaf_of_the_other(nodes: int) -> None:
    inside = [set(parents.values()) for parents in tree_parents(nodes)]
    roots = [set(range(nodes)) - set(parents) for parents in tree_parents(nodes)]
    assert not (inside[0] - roots[0]) & (inside[1] - roots[1])


def test_two_nodes_exchange_a_whole_buffer_in_the_trees() -> None:
    # Two trees of one edge, half the buffer up and half down each: 1 each way.
    assert sorted(tree_flows((8, 8)).phases[0]) == [Flow(0, 1, 1.0), Flow(1, 0, 1.0)]


def test_all_to_all_of_uneven_nodes_by_hand() -> None:
    # 3 + 5 ranks: 3 x 5 pairs cross each way, each 1/8 of a buffer.
    assert all_to_all_flows((3, 5)).phases == ((Flow(0, 1, 15 / 8), Flow(1, 0, 15 / 8)),)


def test_pairs_leave_the_odd_one_out() -> None:
    assert pair_flows((1, 1, 1)).phases == ((Flow(0, 1, 1.0), Flow(1, 0, 1.0)),)
    assert pair_flows((8,)).phases == ()


def test_halving_of_3_and_5_ranks_by_hand() -> None:
    # Ranks 0-2 on node 0, 3-7 on node 1. Distance 1: 2 with 3. Distance 2: 0-2, 1-3, so 1 with 3.
    # Distance 4: 0-4, 1-5, 2-6 cross, 3-7 does not.
    phases = [sorted(phase) for phase in halving_flows((3, 5)).phases]
    assert [[flow.weight for flow in phase] for phase in phases] == [
        [0.5, 0.5],
        [0.25, 0.25],
        [0.375, 0.375],
    ]


def test_halving_folds_what_is_past_a_power_of_two() -> None:
    # 3 nodes of 1: rank 0 hands all to rank 1, which then exchanges halves with rank 2.
    phases = halving_flows((1, 1, 1)).phases
    assert phases == ((Flow(0, 1, 1.0),), (Flow(1, 2, 0.5), Flow(2, 1, 0.5)))


def test_doubling_sends_all_each_round_and_hands_over_before_and_after() -> None:
    # 3 nodes of 1: rank 0 to rank 1, 1 and 2 swap, rank 0 gets the result.
    swap = (Flow(1, 2, 1.0), Flow(2, 1, 1.0))
    expected = ((Flow(0, 1, 1.0),), swap, (Flow(1, 0, 1.0),))
    assert doubling_flows((1, 1, 1)).phases == expected


def test_a_chain_begins_with_the_rank_that_folds() -> None:
    # 3 nodes of 1: by halving 0 to 1 to 2; by doubling back to 0 after 1 has heard of 2.
    assert ((0, 1), (1, 2)) in halving_flows((1, 1, 1)).chains
    for pattern in (doubling_flows((1, 1, 1)), gathering_flows((1, 1, 1))):
        assert ((0, 1), (1, 2), (1, 0)) in pattern.chains


def test_a_rank_into_which_another_folds_gathers_two_blocks() -> None:
    # 3 nodes of 1: rank 1 sends the blocks of 0 and 1 and gets that of 2; rank 0 gets all.
    expected = ((0, 1, 1), (1, 2, 2), (2, 1, 1), (1, 0, 3))
    flows = [flow for phase in gathering_flows((1, 1, 1)).phases for flow in phase]
    assert [(*flow[:2], round(3 * flow.weight, 9)) for flow in flows] == [*expected]


def weights(pattern: Pattern) -> list[set[float]]:
    """Return the weights of each phase, times the nodes."""
    return [{round(flow.weight * 6, 9) for flow in phase} for phase in pattern.phases]


def test_blocks_of_bruck_and_pat_on_six_ranks_by_hand() -> None:
    # Bruck: 1 and 2 blocks of 6, then the 2 that miss, to the rank 1, 2 and 4 before.
    bruck, pat = bruck_flows((1,) * 6), pat_flows((1,) * 6)
    assert weights(bruck) == [{1}, {2}, {2}]
    assert [phase[0][:2] for phase in bruck.phases] == [(0, 5), (0, 4), (0, 2)]
    # PAT: its own to the rank 4 after; its own to 2 after, as block 4 would go round to itself;
    # then blocks 0, 2, 4 to the next.
    assert weights(pat) == [{1}, {1}, {3}]
    assert [phase[0][:2] for phase in pat.phases] == [(0, 4), (0, 2), (0, 1)]
    assert weights(bruck_exchange_flows((1,) * 6)) == [{3}] * 3


@given(st.integers(1, 40))
def test_who_gathers_gets_every_block_but_its_own(ranks: int) -> None:
    whole = (1,) * ranks
    gathering = [bruck_flows, pat_flows] + [gathering_flows] * (ranks & (ranks - 1) == 0)
    for made in gathering:
        got = Counter[int]()
        for flow in (flow for phase in made(whole).phases for flow in phase):
            got[flow.target] += round(flow.weight * ranks)
        assert all(got[rank] == ranks - 1 for rank in range(ranks)), made


def test_every_collective_names_a_pattern_and_every_pattern_is_named() -> None:
    named = {
        find_algorithm(collective, name).flows
        for collective, names in algorithms().items()
        for name in names
    }
    assert named == set(PATTERNS)
