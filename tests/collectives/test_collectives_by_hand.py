"""Collectives on paper: time and bytes of every algorithm on the smallest clusters that differ.

The costs below are those of n = 1 MB in microseconds: ring 1000, tree 2000, inside a node 100, all
NICs of a node 3000, sums 10; a hop takes 2 inside a node and 50 between nodes.
"""

from __future__ import annotations

import pytest

from perfsim.collectives import Hops, algorithms, find_algorithm
from perfsim.collectives.all_reduce import all_reduce_torus2d, torus_grid
from perfsim.collectives.hops import _exchange_round, exchange_pairs, exchanged
from perfsim.collectives.parameter_server import pull_sharded, server_loads
from perfsim.collectives.rooted import broadcast_chain, broadcast_split_binary, reduce_chain
from support.hops import named

NUMBERS = (2e-6, 50e-6, 1e-9, 2e-9, 1e-10, 3e-9, 1e-11)
PAIRS = Hops(4, 2, 2, *NUMBERS)
NODE = Hops(2, 1, 2, *NUMBERS)
APART = Hops(2, 2, 1, *NUMBERS)
THREE = Hops(3, 1, 3, *NUMBERS)
ALONE = Hops(1, 1, 1, *NUMBERS)

# (latency, transfer) in us on two nodes of two GPUs, on one node of two, on two nodes of one.
TIMES = {
    "all_gather_bruck": ((100, 750 + 3000), (2, 50), (50, 1500)),
    "all_gather_doubling": ((52, 25 + 3000), (2, 50), (50, 1500)),
    "all_gather_neighbor": ((52, 750), (2, 500), (50, 500)),
    "all_gather_pat": ((52, 750), (2, 500), (50, 500)),
    "all_gather_ring": ((54, 750), (2, 500), (50, 500)),
    "all_reduce_collnet_chain": ((54, 3010), (30, 210), (50, 3000)),
    "all_reduce_collnet_direct": ((54, 3005), (31, 105), (50, 3000)),
    "all_reduce_doubling": ((52, 100 + 6000 + 20), (2, 110), (50, 3010)),
    "all_reduce_halving_doubling": ((104, 2 * (50 + 1500) + 7.5), (4, 105), (100, 3005)),
    "all_reduce_hierarchical": ((104, 2 * (50 + 1500) + 7.5), (4, 105), (100, 3005)),
    "all_reduce_nvls_tree": ((104, 6005), (25, 150), (100, 6010)),
    "all_reduce_ring": ((108, 0.75 * 2010), (4, 0.5 * 2010), (100, 0.5 * 2010)),
    "all_reduce_torus2d": ((104, 2 * (50 + 1500) + 7.5), (4, 105), (100, 3005)),
    "all_reduce_tree": ((104, 4010), (4, 4010), (100, 4010)),
    "all_to_all_bruck": ((100, 1500 + 3000), (2, 50), (50, 1500)),
    "all_to_all_pairwise": ((102, 3000 + 25), (2, 50), (50, 1500)),
    "broadcast_binomial": ((52, 3100), (2, 100), (50, 3000)),
    "pull_one_way": ((52, 50 + 1500), (2, 50), (50, 1500)),
    "pull_sharded": ((52, 50 + 1500), (2, 50), (50, 1500)),
    "push_one_way": ((52, 50 + 1500 + 7.5), (2, 55), (50, 1505)),
    "push_sharded": ((52, 50 + 1500 + 7.5), (2, 55), (50, 1505)),
    "reduce_binomial": ((52, 3120), (2, 110), (50, 3010)),
    "reduce_ring_gather": ((104, 0.75 * 2010), (4, 0.5 * 2010), (100, 0.5 * 2010)),
    "reduce_scatter_halving": ((52, 3000 + 25 + 7.5), (2, 55), (50, 1505)),
    "reduce_scatter_pat": ((52, 0.75 * 1010), (2, 0.5 * 1010), (50, 0.5 * 1010)),
    "reduce_scatter_ring": ((54, 0.75 * 1010), (2, 0.5 * 1010), (50, 0.5 * 1010)),
    "send_recv_direct": ((50, 3000), (2, 100), (50, 3000)),
}

# On one node, where they run: NVSwitches add n of each GPU and send back its part of the sum.
ONLY_INSIDE = {"all_reduce_nvls": (25, 150)}


def formula(name: str, hops: Hops, size_bytes: float = 1e6) -> tuple[float, float]:
    """Return latency and transfer of 1 MB [us]."""
    parts = named(name).formula(size_bytes, hops)
    return parts.latency_s * 1e6, parts.transfer_s * 1e6


@pytest.mark.parametrize("name", TIMES)
def test_smallest_clusters(name: str) -> None:
    found = [formula(name, hops) for hops in (PAIRS, NODE, APART)]
    assert found == [pytest.approx(one, rel=1e-12) for one in TIMES[name]]


@pytest.mark.parametrize("name", ONLY_INSIDE)
def test_inside_a_node(name: str) -> None:
    assert formula(name, NODE) == pytest.approx(ONLY_INSIDE[name])


def test_three_ranks_fold_the_third_over_the_nodes_own_link() -> None:
    """Two ranks do one round; the third gives n and takes n, or its block of n/3, back.

    Of three blocks two go to the rank that the third folds into.
    """
    assert formula("all_reduce_halving_doubling", THREE) == pytest.approx((8, 105 + 210))
    assert formula("all_reduce_doubling", THREE) == pytest.approx((6, 110 + 210))
    assert formula("reduce_scatter_halving", THREE) == pytest.approx(
        (6, 2 / 3 * 110 + 400 / 3 + 10)
    )


def test_six_ranks_on_three_nodes_fold_inside_the_nodes() -> None:
    """Ranks 0 and 2 fold at 2 us and 100 us twice; 1, 3, 4 and 5 do two rounds.

    In the first 1 and 3 send n/2 to another node, in the second the last node twice n/4.
    """
    three_pairs = PAIRS._replace(ranks=6, nodes=3)
    whole = (2 * 100 + 2 * 2, 2 * (1500 + 1500) + 7.5 + 2 * 100 + 10)
    assert formula("all_reduce_halving_doubling", three_pairs) == pytest.approx(whole)


def test_nodes_of_unequal_size_exchange_across() -> None:
    """Of nodes of 4 and 2 ranks 0 and 2 fold; 1, 3 | 4, 5 do a round inside and one across.

    There two ranks of a node send at once: twice n by doubling, twice n/4 by halving, and twice
    4 blocks of n/6 in a reduce-scatter, which begins with the farthest (then 2 blocks inside).
    """
    uneven = Hops(6, 2, 4, *NUMBERS)
    doubled = (52 + 2 * 2, 100 + 6000 + 20 + 2 * 100 + 10)
    assert formula("all_reduce_doubling", uneven) == pytest.approx(doubled)
    halved = (2 * 52 + 2 * 2, 2 * (50 + 1500) + 7.5 + 2 * 100 + 10)
    assert formula("all_reduce_halving_doubling", uneven) == pytest.approx(halved)
    scattered = (52 + 2 * 2, 2 * 4 / 6 * 3000 + 2 / 6 * 100 + 10 + 100 * (1 + 1 / 6) + 10)
    assert formula("reduce_scatter_halving", uneven) == pytest.approx(scattered)
    eight = Hops(8, 2, 7, *NUMBERS)  # the last rank is alone: one sends in each round
    assert formula("all_gather_doubling", eight) == pytest.approx((150, 7 / 8 * 3000))


def test_chains_of_ten_chunks() -> None:
    """Filling, then nine chunks more at the slowest hop: 54 + 9 x 50 and 2 + 9 x 2 us.

    Of the pairs' three hops two are inside a node: the first chunk takes 100 + 2 x 10 us on wires.
    """
    pair, node = (broadcast_chain(1e6, hops, 10) for hops in (PAIRS, NODE))
    assert pair == pytest.approx((504e-6, 1020e-6))
    assert node == pytest.approx((20e-6, 1000e-6))
    assert reduce_chain(1e6, PAIRS, 10) == pytest.approx((504e-6, 1032e-6))


def test_chains_of_the_best_number_of_chunks() -> None:
    """Of c = sqrt(2 x 100 / 50): 54 + (c-1) 50 and 1000 + 200/c us."""
    found = broadcast_chain(1e6, PAIRS)
    assert found == pytest.approx((104e-6, 1100e-6))
    small = broadcast_chain(1e3, PAIRS)
    assert small == pytest.approx((54e-6, 1.2e-6)), "0.2 us are behind a chunk: one"


def test_a_split_binary_tree_of_few_ranks() -> None:
    """Four ranks hang two levels deep: (1 + c)(50 + 500/c) at its best c, and a swap of n/2."""
    even = (50 * 1000) ** 0.5
    found = broadcast_split_binary(1e6, PAIRS)
    assert found == pytest.approx(((52 + even) * 1e-6, (1500 + even) * 1e-6))
    assert broadcast_split_binary(1e6, NODE) == pytest.approx((4e-6, 1500e-6))
    assert broadcast_split_binary(1e6, APART) == pytest.approx((100e-6, 1500e-6))


def test_a_torus_is_as_square_as_the_nodes_allow() -> None:
    """Rows are whole nodes: 8 of 1 give 2 x 4, 8 of 4 give 4 x 8, 4 of 2 give 2 x 4, 3 of 2 2 x 3.

    Eight nodes of one GPU, rows of two nodes: the ring's wire along a row, half of the NIC's time
    down a column, since two columns of a row share n.
    """
    grids = {
        (8, 1): (2, 4),
        (8, 4): (4, 8),
        (4, 2): (2, 4),
        (3, 2): (2, 3),
        (1, 8): (8, 1),
        (9, 1): (3, 3),
        (6, 1): (2, 3),
    }
    assert {sizes: torus_grid(*sizes) for sizes in grids} == grids
    latency_s, transfer_s = all_reduce_torus2d(1e6, APART._replace(ranks=8, nodes=8))
    assert latency_s == pytest.approx(2 * (50 + 3 * 50) * 1e-6)
    sums = (1 / 2 + 3 / 4 / 2) * 10
    assert transfer_s == pytest.approx((2 * (500 + 3 / 8 * 3000) + sums) * 1e-6)


EIGHT_BY_FOUR = Hops(32, 8, 4, *NUMBERS)
EIGHT = Hops(8, 1, 8, *NUMBERS)
FIVE = Hops(5, 5, 1, *NUMBERS)
SHARE = 3100
"""31/32 of 3200 bytes: what a rank of 32 keeps nothing of."""

# Bytes that a GPU sends of 3200: on 8 nodes of 4, on one of 8, on five of 1, on two of 2 (None:
# cannot run).
SENT: dict[str, tuple[float | None, float | None, float | None, float | None]] = {
    "all_gather_bruck": (SHARE, 2800, 2560, 2400),
    "all_gather_doubling": (SHARE, 2800, None, 2400),
    "all_gather_neighbor": (SHARE, 2800, None, 2400),
    "all_gather_pat": (SHARE, 2800, 2560, 2400),
    "all_gather_ring": (SHARE, 2800, 2560, 2400),
    "all_reduce_collnet_chain": (4800 + 800, 5600, 3200, 3200 + 1600),
    "all_reduce_collnet_direct": (4800 + 800, None, 3200, 3200 + 1600),
    "all_reduce_doubling": (5 * 3200, 3 * 3200, (4 * 2 + 2) * 3200 / 5, 2 * 3200),
    "all_reduce_halving_doubling": (2 * SHARE, 5600, (4 * 4800 + 2 * 3200) / 5, 4800),
    "all_reduce_hierarchical": (2 * (2400 + 700), 5600, 5120, 4800),
    "all_reduce_nvls": (None, 3600, None, None),
    "all_reduce_nvls_tree": (4000 + 2 * 700, 3600, 2 * 2560, 4800 + 1600),
    "all_reduce_ring": (2 * SHARE, 5600, 5120, 4800),
    "all_reduce_torus2d": (2 * SHARE, 5600, 5120, 4800),
    "all_reduce_tree": (2 * SHARE, 5600, 5120, 4800),
    "all_to_all_bruck": (5 * 1600, 3 * 1600, 3 * 1600, 3200),
    "all_to_all_pairwise": (SHARE, 2800, 2560, 2400),
    "broadcast_binomial": (SHARE, 2800, 2560, 2400),
    "broadcast_chain": (SHARE, 2800, 2560, 2400),
    "broadcast_split_binary": (SHARE, 2800, 2560, 2400),
    **dict.fromkeys(("pull_one_way", "push_one_way"), (2400 + 700, 2800, 2560, 1600 + 800)),
    "pull_sharded": (2400 + 700, 2800, 2560, 1600 + 800),
    "push_sharded": (2400 + 700, 2800, 2560, 1600 + 800),
    "reduce_binomial": (SHARE, 2800, 2560, 2400),
    "reduce_chain": (SHARE, 2800, 2560, 2400),
    "reduce_ring_gather": (SHARE + SHARE / 32, 2800 + 350, 2560 + 512, 2400 + 600),
    "reduce_scatter_halving": (SHARE, 2800, (4 * 2400 + 3200 + 640) / 5, 2400),
    "reduce_scatter_pat": (SHARE, 2800, 2560, 2400),
    "reduce_scatter_ring": (SHARE, 2800, 2560, 2400),
    "send_recv_direct": (3200, 3200, 3200, 3200),
}


def test_every_algorithm_stands_in_the_tables() -> None:
    every = {f"{one}_{name}" for one, names in algorithms().items() for name in names}
    by_chunks = {"broadcast_chain", "reduce_chain", "broadcast_split_binary"}
    assert set(SENT) == every
    assert {*TIMES, *ONLY_INSIDE, *by_chunks} == every


@pytest.mark.parametrize("name", SENT)
def test_bytes_sent(name: str) -> None:
    sent = named(name).sent_bytes
    for hops, expected in zip((EIGHT_BY_FOUR, EIGHT, FIVE, PAIRS), SENT[name], strict=True):
        if expected is not None:
            assert sent(3200.0, hops) == pytest.approx(expected, rel=1e-12), hops
    assert sent(3200.0, ALONE) == sent(0.0, ALONE) == 0.0


def test_two_ranks_send_one_message() -> None:
    assert find_algorithm("send_recv", "direct").sent_bytes(3200.0, NODE) == 3200.0


@pytest.mark.parametrize("name", SENT)
def test_one_rank_takes_no_time(name: str) -> None:
    assert formula(name, ALONE) == formula(name, ALONE, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize("name", SENT)
def test_nothing_to_send_takes_no_time_on_the_wires(name: str) -> None:
    """Nor where an algorithm would be refused: no formula divides by the bytes."""
    for hops in (PAIRS, NODE, APART):
        assert formula(name, hops, 0.0)[1] == 0.0


@pytest.mark.parametrize("name", SENT)
def test_links_that_nobody_uses_have_no_say(name: str) -> None:
    """Inside nodes of one GPU, and between nodes where there is one."""
    for ranks in (2, 3, 5, 8):
        apart = APART._replace(ranks=ranks, nodes=ranks)
        node = NODE._replace(ranks=ranks, gpus_per_node=ranks)
        slow_in = apart._replace(alpha_intra_s=9.0, beta_intra_s_per_byte=9.0)
        slow_out = node._replace(alpha_inter_s=9.0, beta_nic_s_per_byte=9.0)
        if name != "all_reduce_nvls":  # it runs on one node only
            assert formula(name, slow_in) == formula(name, apart)
        assert formula(name, slow_out) == formula(name, node)


def test_bytes_sent_to_servers_of_their_own() -> None:
    """Four servers beside eight nodes: D = 64 + 32 - 8 = 88, so a node keeps 4/88 of n."""
    served = EIGHT_BY_FOUR._replace(servers=4)
    assert server_loads(served) == pytest.approx((4 / 88, (1 - 8 * 4 / 88) / 4))
    assert server_loads(EIGHT_BY_FOUR, 4) == server_loads(served) == server_loads(served, 1)
    assert server_loads(EIGHT_BY_FOUR, 8) == server_loads(EIGHT_BY_FOUR, 9) == (0.0, 1 / 8)
    assert server_loads(EIGHT, 3) == (1.0, 0.0)
    push, pull = (
        find_algorithm(one, "sharded").sent_bytes(3200.0, served) for one in ("push", "pull")
    )
    assert push == pytest.approx(2400 + 800 * 84 / 88)
    assert pull == pytest.approx(2400 + 800 * 7 * 4 / 88)


REFUSED = {
    ("all_gather", "doubling"): ((FIVE, "needs a power of two; take bruck"),),
    ("all_gather", "neighbor"): ((FIVE, "needs an even number of ranks; take ring"),),
    ("all_gather", "pat"): ((PAIRS, "is NCCL's for one GPU a node; take ring"),),
    ("reduce_scatter", "pat"): ((NODE, "is NCCL's for one GPU a node; take ring"),),
    ("all_reduce", "collnet_direct"): (
        (NODE, "adds in switches between nodes, and there is one node"),
    ),
    ("all_reduce", "nvls"): (
        (NODE, "adds inside NVSwitches, for more than 2 GPUs a node"),
        (EIGHT_BY_FOUR, "runs inside one node; across nodes take nvls_tree"),
    ),
    ("all_reduce", "nvls_tree"): (
        (PAIRS, "adds inside NVSwitches, for more than 2 GPUs a node"),
        (EIGHT, "joins nodes, and there is one; take nvls"),
    ),
    **dict.fromkeys(
        (("all_reduce", "hierarchical"), ("all_reduce", "torus2d")),
        ((PAIRS._replace(ranks=3), "needs as many GPUs on every node; take ring"),),
    ),
}
ABLE = {
    ("all_gather", "doubling"): (ALONE, PAIRS, EIGHT_BY_FOUR),
    ("all_gather", "neighbor"): (NODE, FIVE._replace(ranks=6)),
    ("all_gather", "pat"): (FIVE, APART),
    ("reduce_scatter", "pat"): (FIVE, APART),
    ("all_reduce", "collnet_direct"): (PAIRS, APART),
    ("all_reduce", "nvls"): (THREE, EIGHT),
    ("all_reduce", "nvls_tree"): (PAIRS._replace(ranks=6, gpus_per_node=3), EIGHT_BY_FOUR),
    ("all_reduce", "hierarchical"): (PAIRS, NODE, FIVE),
    ("all_reduce", "torus2d"): (PAIRS, NODE, FIVE),
}


@pytest.mark.parametrize("one", REFUSED)
def test_who_is_refused_and_in_which_words(one: tuple[str, str]) -> None:
    refusal = find_algorithm(*one).refusal
    assert [refusal(hops) for hops, _ in REFUSED[one]] == [words for _, words in REFUSED[one]]
    assert [refusal(hops) for hops in ABLE[one]] == [""] * len(ABLE[one])


def test_who_exchanges_with_whom_on_seven_ranks() -> None:
    """Three of them fold into the next ones; of four that are left each meets two."""
    pairs = exchange_pairs([0, 0, 0, 1, 1, 1, 2])
    assert pairs.folds == [(0, 0), (0, 1), (1, 1)]
    assert pairs.home == [0, 1, 1, 2]
    assert pairs.rounds == [[(0, 1), (1, 0), (1, 2), (2, 1)], [(0, 1), (1, 2), (1, 0), (2, 1)]]


def test_who_takes_part_on_six_and_on_eight_ranks() -> None:
    """Two of six fold into the next ones; of eight all take part, in three rounds."""
    six, eight = exchange_pairs([0, 1, 2, 3, 4, 5]), exchange_pairs(range(8))
    assert (six.folds, six.home) == ([(0, 1), (2, 3)], [1, 3, 4, 5])
    assert (eight.folds, eight.home) == ([], [0, 1, 2, 3, 4, 5, 6, 7])
    assert [one[0] for one in eight.rounds] == [(0, 1), (0, 2), (0, 4)]


def test_each_round_of_an_exchange_has_a_share() -> None:
    with pytest.raises(ValueError, match="longer"):
        exchanged(1e6, [0.5, 0.25], Hops.flat(8, 1e-5, 1e-9))


def test_a_node_by_itself_keeps_what_servers_elsewhere_would_do() -> None:
    node = Hops(4, 1, 4, 1e-6, 0.0, 1e-10, 1e-10, 1e-10, 0.0)
    assert pull_sharded(1e6, node, 1) == pull_sharded(1e6, node) == pytest.approx((3e-6, 75e-6))


@pytest.mark.parametrize(
    ("pairs", "inside", "senders"),
    [
        ([(0, 1), (1, 0), (1, 2), (2, 1)], False, 2),
        ([(0, 0), (1, 1)], True, 0),
        ([(0, 0), (0, 1)], True, 1),
        ([], False, 0),
    ],
)
def test_a_round_is_inside_nodes_out_of_them_or_both(
    pairs: list[tuple[int, int]], inside: bool, senders: int
) -> None:
    assert _exchange_round(pairs) == (inside, senders)
