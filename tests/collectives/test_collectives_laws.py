"""Collectives by law and by closed form: what holds for any size on any links."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perfsim.collectives import COLLECTIVES, Algorithm, Hops
from perfsim.collectives.all_gather import all_gather_neighbor, all_gather_ring
from perfsim.collectives.all_reduce import (
    all_reduce_halving_doubling,
    all_reduce_hierarchical,
    all_reduce_ring,
)
from perfsim.collectives.parameter_server import (
    pull_one_way,
    pull_sharded,
    push_one_way,
    push_sharded,
    server_loads,
)
from perfsim.collectives.reduce_scatter import reduce_scatter_ring
from perfsim.collectives.rooted import broadcast_chain
from perfsim.libraries import libraries, library
from support.hops import EVERY, UNEQUAL, any_algorithm, named, sizes, some_hops

NUMBERS = [name for name in Hops._fields if name.startswith(("alpha", "beta"))]
NUMBERS += ["tree_beta_s_per_byte", "gamma_s_per_byte"]


LINES = [
    one
    for used in map(library, libraries())
    for collective in COLLECTIVES
    for one in (used.algorithm(collective, name) for name in used.names(collective))
    if one.line is not None
]
"""Algorithms, as each library runs them, whose time is told by a line over the size."""


def test_the_rings_and_the_tree_are_lines() -> None:
    found = {f"{one.collective} {one.name}" for one in LINES}
    assert found == {"all_reduce ring", "all_reduce tree", "all_gather ring", "reduce_scatter ring"}


@given(st.sampled_from(LINES), some_hops(), sizes, st.floats(0, 1e-2))
def test_a_line_is_the_formula_to_the_last_digit(
    one: Algorithm, hops: Hops, size_bytes: float, alpha_s: float
) -> None:
    """By law, of all libraries: what is worked out of a line is what the formula says."""
    assume(hops.ranks > 1)
    assert one.line is not None
    line = one.line(hops)
    assert line.parts(size_bytes, hops) == one.formula(size_bytes, hops)
    assert line == one.line(hops._replace(alpha_intra_s=alpha_s, alpha_inter_s=2 * alpha_s))


@given(some_hops(), sizes)
def test_push_and_pull_move_what_a_hierarchical_all_reduce_moves(
    hops: Hops, size_bytes: float
) -> None:
    """By closed form: with a server on each node BytePS is as good as all-reduce."""
    both = [formula(size_bytes, hops) for formula in (push_sharded, pull_sharded)]
    whole = all_reduce_hierarchical(size_bytes, hops)
    moved_s = sum(part.transfer_s for part in both)
    assert moved_s == pytest.approx(whole.transfer_s, rel=1e-12)


@given(st.integers(2, 40), st.integers(0, 60))
def test_extra_servers_take_the_load_that_evens_out_all_nics(nodes: int, extra: int) -> None:
    """By closed form: no other split of the shards lets the busiest NIC finish earlier."""
    hops = Hops.flat(nodes, 0.0, 1.0)
    both = push_sharded(1.0, hops, extra).seconds + pull_sharded(1.0, hops, extra).seconds
    used = min(extra, nodes)

    def busiest(own: float) -> float:
        """Return bytes one way of the busiest NIC where each extra server keeps ``own``."""
        node = (1.0 - used * own) / nodes
        return max(1.0 + (nodes - 2) * node, nodes * own)

    assert both == pytest.approx(busiest(2 * (nodes - 1) / denominator(nodes, used)))
    if used:
        for share in (0.0, 0.2, 0.5, 0.9, 1.0):
            assert both <= busiest(share / used) * (1 + 1e-12)


@pytest.mark.parametrize("extra", [0, 1, 3, 8, 20])
def test_a_push_alone_takes_what_its_busiest_nic_takes(extra: int) -> None:
    """By hand, on 8 nodes: what a node sends, and what a server of its own machine receives."""
    hops = Hops.flat(8, 0.0, 1.0)
    on_node, on_own = server_loads(hops, extra)
    busiest = max(1.0 - on_node, 7 * on_node, 8 * on_own)
    assert push_one_way(1.0, hops, extra).seconds == pytest.approx(busiest)
    assert pull_one_way(1.0, hops, extra).seconds == pytest.approx(busiest)
    assert push_sharded(1.0, hops, extra).seconds <= busiest * (1 + 1e-12)


def denominator(nodes: int, extra: int) -> int:
    """Return n^2 + k n - 2 k of Jiang et al."""
    return nodes * nodes + extra * nodes - 2 * extra


@given(st.integers(0, 4), st.integers(0, 3), sizes)
def test_halving_doubling_on_powers_of_two_moves_what_hierarchical_moves(
    nodes: int, inside: int, size_bytes: float
) -> None:
    """By closed form: nearest partners first means inside the node first."""
    hops = UNEQUAL._replace(ranks=2 ** (nodes + inside), nodes=2**nodes, gpus_per_node=2**inside)
    one, other = (
        formula(size_bytes, hops)
        for formula in (all_reduce_halving_doubling, all_reduce_hierarchical)
    )
    assert one.transfer_s == pytest.approx(other.transfer_s, rel=1e-12)


@given(st.integers(1, 64), sizes, st.floats(0, 1e-2), st.floats(0, 1e-6))
def test_the_bandwidth_bound_of_equal_hops(
    ranks: int, size_bytes: float, alpha_s: float, beta: float
) -> None:
    """By law: without switches that add, a GPU sends 2 (P-1)/P n, or (P-1)/P n for half of it."""
    hops = Hops.flat(ranks, alpha_s, beta)
    share_s = (ranks - 1) / ranks * size_bytes * beta * (1 - 1e-9) - 1e-15
    for one in EVERY:
        if one.name.startswith(("nvls", "collnet")) or one.refusal(hops):
            continue
        times = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
        bound_s = times.get(one.collective, 0.0) * share_s
        assert one.formula(size_bytes, hops).transfer_s >= bound_s, one


@given(st.integers(1, 9), st.integers(1, 8))
def test_neighbours_exchange_in_turn(nodes: int, inside: int) -> None:
    """By walking: a rank goes on when it and the neighbour of this step have met."""
    ranks = nodes * inside
    assume(ranks % 2 == 0)
    hops = Hops(ranks, nodes, inside, 2.0, 50.0, 0.0, 0.0, 0.0, 0.0)
    free = [0.0] * ranks
    for step in range(ranks // 2):
        pairs = [(rank, (rank + 1) % ranks) for rank in range(step % 2, ranks, 2)]
        for one, other in pairs:
            hop_s = 2.0 if one // inside == other // inside else 50.0
            free[one] = free[other] = max(free[one], free[other]) + hop_s
    assert all_gather_neighbor(1.0, hops).latency_s == pytest.approx(max(free))


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 7), sizes)
def test_a_node_sends_and_receives_at_least_what_its_ranks_need(
    nodes: int, inside: int, missing: int, size_bytes: float
) -> None:
    """By law: with fewer GPUs on the last node too, no node does without the others' data."""
    last = max(1, inside - missing)
    ranks = (nodes - 1) * inside + last
    hops = Hops(ranks, nodes, inside, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0)
    smallest = min(inside, last) if nodes > 1 else ranks
    needed = {
        "all_reduce": 1.0 if nodes > 1 else 0.0,
        "all_gather": (ranks - smallest) / ranks,
        "reduce_scatter": (ranks - smallest) / ranks,
    }
    for one in EVERY:
        if one.collective in needed and not one.refusal(hops) and "collnet" not in one.name:
            bound_s = needed[one.collective] * size_bytes * (1 - 1e-9)
            assert one.formula(size_bytes, hops).transfer_s >= bound_s, one


@given(st.integers(1, 9), st.integers(1, 8))
def test_bruck_counts_what_crosses(nodes: int, inside: int) -> None:
    """By counting: who sends to another node in each round, and how many blocks."""
    ranks = nodes * inside
    hops = Hops(ranks, nodes, inside, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    most, distance = 0, 1
    while distance < ranks:
        senders = [rank // inside for rank in range(ranks)]
        targets = [(rank - distance) % ranks // inside for rank in range(ranks)]
        out = [
            sum(a == node != b for a, b in zip(senders, targets, strict=True))
            for node in range(nodes)
        ]
        most += max(out) * min(distance, ranks - distance)
        distance *= 2
    expected = most / ranks
    assert named("all_gather_bruck").formula(1.0, hops).transfer_s == pytest.approx(expected)


@given(st.integers(2, 64), st.floats(1e-7, 1e-3), st.floats(1e-12, 1e-8), st.floats(1, 1e9))
def test_chain_takes_the_best_number_of_chunks(
    ranks: int, alpha_s: float, beta: float, size_bytes: float
) -> None:
    """By closed form: no number of chunks does better, and the best real number does as well."""
    hops = Hops.flat(ranks, alpha_s, beta)
    best_s = broadcast_chain(size_bytes, hops).seconds
    chunks = max(1.0, math.sqrt((ranks - 2) * size_bytes * beta / alpha_s))
    assert best_s == pytest.approx(broadcast_chain(size_bytes, hops, chunks).seconds, rel=1e-9)
    for other in (1, 2, 3, 10, 100, 1000):
        assert best_s <= broadcast_chain(size_bytes, hops, other).seconds * (1 + 1e-9)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 12))
def test_chunks_walk_down_a_chain(nodes: int, inside: int, chunks: int) -> None:
    """By walking: a rank sends a chunk on once it has it and has sent the one before."""
    hops = Hops(nodes * inside, nodes, inside, 2.0, 50.0, 3.0, 0.0, 0.5, 3.0)
    hops = hops._replace(beta_s_per_byte=3.0 if nodes > 1 else 0.5)
    assume(hops.ranks > 1)
    has = [0.0] * chunks
    for rank in range(hops.ranks - 1):
        near = rank // inside == (rank + 1) // inside
        hop_s = (2.0 + 0.5 * 100 / chunks) if near else (50.0 + 3.0 * 100 / chunks)
        sent = 0.0
        for chunk, ready in enumerate(has):
            sent = has[chunk] = max(ready, sent) + hop_s
    assert broadcast_chain(100.0, hops, chunks).seconds == pytest.approx(has[-1])


@given(any_algorithm, some_hops(), sizes, sizes)
def test_a_larger_message_takes_no_less(
    one: Algorithm, hops: Hops, first: float, second: float
) -> None:
    less, more = sorted((first, second))
    at_less, at_more = one.formula(less, hops), one.formula(more, hops)
    assert at_less.seconds <= at_more.seconds * (1 + 1e-9) + 1e-15
    assert one.sent_bytes(less, hops) <= one.sent_bytes(more, hops)
    assert min(*at_less, *at_more) >= -1e-12


@given(any_algorithm, some_hops(), sizes, st.sampled_from(NUMBERS), st.floats(1, 10))
def test_a_slower_link_is_never_faster(
    one: Algorithm, hops: Hops, size_bytes: float, number: str, factor: float
) -> None:
    slower = hops._replace(**{number: getattr(hops, number) * factor})
    fast_s, slow_s = (one.formula(size_bytes, h).seconds for h in (hops, slower))
    assert fast_s <= slow_s * (1 + 1e-9) + 1e-15


@given(any_algorithm, some_hops(), sizes, st.floats(0, 1e-2))
def test_what_a_rank_sends_depends_on_no_latency(
    one: Algorithm, hops: Hops, size_bytes: float, alpha_s: float
) -> None:
    other = hops._replace(alpha_intra_s=alpha_s, alpha_inter_s=2 * alpha_s)
    assert one.sent_bytes(size_bytes, other) == one.sent_bytes(size_bytes, hops)


@given(any_algorithm, sizes, st.floats(0, 1e-2), st.floats(0, 1e-6))
def test_one_rank_costs_nothing(
    one: Algorithm, size_bytes: float, alpha_s: float, beta: float
) -> None:
    hops = Hops.flat(1, alpha_s, beta, beta)
    assert one.formula(size_bytes, hops).seconds == 0
    assert one.sent_bytes(size_bytes, hops) == 0


@given(some_hops(), sizes)
def test_all_reduce_is_reduce_scatter_then_all_gather(hops: Hops, size_bytes: float) -> None:
    both = [formula(size_bytes, hops) for formula in (reduce_scatter_ring, all_gather_ring)]
    whole = all_reduce_ring(size_bytes, hops)
    assert whole.latency_s == pytest.approx(sum(part.latency_s for part in both), rel=1e-12)
    assert whole.transfer_s == pytest.approx(sum(part.transfer_s for part in both), rel=1e-12)


@given(some_hops(), sizes)
def test_hierarchical_on_one_node_is_the_ring_inside_it(hops: Hops, size_bytes: float) -> None:
    node = hops._replace(
        ranks=hops.gpus_per_node, nodes=1, beta_s_per_byte=hops.beta_intra_s_per_byte
    )
    one, other = (f(size_bytes, node) for f in (all_reduce_hierarchical, all_reduce_ring))
    assert one.seconds == pytest.approx(other.seconds, rel=1e-12)


@given(any_algorithm, some_hops())
def test_arrays_give_what_floats_give(one: Algorithm, hops: Hops) -> None:
    """A sweep over sizes in one call is the same as one size after the other."""
    swept = np.array([0.0, 1.0, 3e3, 4e7])
    latency_s, transfer_s = one.formula(swept, hops)  # type: ignore[arg-type]
    together = np.broadcast_to(latency_s, swept.shape) + transfer_s
    apart = [one.formula(float(size), hops).seconds for size in swept]
    assert together.tolist() == pytest.approx(apart, rel=1e-12)
