"""Collectives: the formulas by hand, by law, and the folder that lists itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import Algorithm, Hops, algorithm, algorithms
from perfsim.collectives.all_gather_ring import all_gather_ring
from perfsim.collectives.all_reduce_halving_doubling import all_reduce_halving_doubling
from perfsim.collectives.all_reduce_hierarchical import all_reduce_hierarchical
from perfsim.collectives.all_reduce_ring import all_reduce_ring
from perfsim.collectives.all_reduce_tree import all_reduce_tree
from perfsim.collectives.broadcast_binomial import broadcast_binomial
from perfsim.collectives.broadcast_chain import broadcast_chain
from perfsim.collectives.pull_sharded import pull_sharded
from perfsim.collectives.push_sharded import push_sharded
from perfsim.collectives.reduce_binomial import reduce_binomial
from perfsim.collectives.reduce_chain import reduce_chain
from perfsim.collectives.reduce_scatter_ring import reduce_scatter_ring
from perfsim.collectives.send_recv_direct import send_recv_direct
from perfsim.errors import RequestError

EVERY = [
    algorithm(collective, name) for collective, names in algorithms().items() for name in names
]
NUMBERS = [name for name in Hops._fields if name.startswith(("alpha", "beta"))]
NUMBERS += ["tree_beta_s_per_byte", "gamma_s_per_byte"]

# Eight nodes of four GPUs at 2 and 50 us, 10 GB/s inside a node and 1 GB/s through its NIC.
UNEQUAL = Hops(32, 8, 4, 2e-6, 50e-6, 1e-9, 2e-9, 1e-10, 1e-9, 1e-11)


@st.composite
def some_hops(draw: st.DrawFn) -> Hops:
    """Draw nodes of equal size on any links."""
    nodes, inside = draw(st.integers(1, 9)), draw(st.integers(1, 8))
    alphas = [draw(st.floats(0, 1e-2)) for _ in range(2)]
    betas = [draw(st.floats(0, 1e-6)) for _ in range(5)]
    return Hops(nodes * inside, nodes, inside, *alphas, *betas)


def named(name: str) -> Algorithm:
    """Return an algorithm by the name of its file."""
    return next(one for one in EVERY if f"{one.collective}_{one.name}" == name)


sizes = st.floats(0, 1e9)
any_algorithm = st.sampled_from(EVERY)


def test_the_files_are_the_list() -> None:
    """By hand: what stands in the folder is found, and each under the right collective."""
    assert algorithms() == {
        "all_reduce": (
            "collnet_chain",
            "collnet_direct",
            "doubling",
            "halving_doubling",
            "hierarchical",
            "nvls",
            "nvls_tree",
            "ring",
            "torus2d",
            "tree",
        ),
        "reduce_scatter": ("halving", "pat", "ring"),
        "all_gather": ("bruck", "doubling", "neighbor", "pat", "ring"),
        "broadcast": ("binomial", "chain", "split_binary"),
        "reduce": ("binomial", "chain", "ring_gather"),
        "all_to_all": ("bruck", "pairwise"),
        "send_recv": ("direct",),
        "push": ("sharded",),
        "pull": ("sharded",),
    }


def test_what_nccl_considers() -> None:
    """By hand: the others are used only when named, or by the library that has them."""
    considered = {(one.collective, one.name): one.automatic for one in EVERY if one.automatic}
    assert sorted(considered) == [
        ("all_gather", "ring"),
        ("all_reduce", "ring"),
        ("all_reduce", "tree"),
        ("all_to_all", "pairwise"),
        ("broadcast", "binomial"),
        ("broadcast", "chain"),
        ("pull", "sharded"),
        ("push", "sharded"),
        ("reduce", "binomial"),
        ("reduce", "chain"),
        ("reduce_scatter", "ring"),
        ("send_recv", "direct"),
    ]


def test_equal_hops_by_hand() -> None:
    """P = 4, n = 1 MB, alpha 10 us, beta 1 ns/B, gamma 0.1 ns/B."""
    hops = Hops.flat(4, 10e-6, 1e-9, 1e-10)
    seconds = {
        all_reduce_ring: 60e-6 + 1500e-6 + 75e-6,
        reduce_scatter_ring: 30e-6 + 750e-6 + 75e-6,
        all_gather_ring: 30e-6 + 750e-6,
        all_reduce_tree: 40e-6 + 2000e-6 + 100e-6,
        all_reduce_hierarchical: 60e-6 + 1500e-6 + 75e-6,
        broadcast_binomial: 20e-6 + 2000e-6,
        reduce_binomial: 20e-6 + 2000e-6 + 200e-6,
        send_recv_direct: 10e-6 + 1000e-6,
        push_sharded: 10e-6 + 750e-6 + 75e-6,
        pull_sharded: 10e-6 + 750e-6,
    }
    for formula, expected_s in seconds.items():
        assert formula(1e6, hops).seconds == pytest.approx(expected_s, rel=1e-12), formula


@pytest.mark.parametrize(
    ("name", "ranks", "latency_us", "transfer_us"),
    [
        # alpha 10 us, n beta = 1000 us, n gamma = 100 us
        ("all_reduce_halving_doubling", 8, 60, 2 * 875 + 87.5),
        # four ranks, and the fifth folds in and out: 2 alpha + 2 n beta + n gamma
        ("all_reduce_halving_doubling", 5, 40 + 20, 2 * 750 + 75 + 2000 + 100),
        ("all_reduce_doubling", 8, 30, 3 * 1100),
        ("all_reduce_doubling", 5, 20 + 20, 2 * 1100 + 2000 + 100),
        ("reduce_scatter_halving", 8, 30, 875 + 87.5),
        ("reduce_scatter_halving", 5, 20 + 20, 750 + 75 + 1000 + 100 + 200),
        ("reduce_scatter_pat", 8, 30, 875 + 87.5),
        ("all_gather_pat", 9, 40, 8 / 9 * 1000),
        ("all_gather_bruck", 8, 30, 875),
        ("all_gather_bruck", 5, 30, 800),
        ("all_gather_doubling", 8, 30, 875),
        ("all_gather_neighbor", 8, 40, 875),
        ("all_to_all_pairwise", 8, 70, 875),
        ("all_to_all_bruck", 5, 30, 1500),
        ("reduce_ring_gather", 5, 50, 1600 + 80),
    ],
)
def test_other_algorithms_on_equal_hops_by_hand(
    name: str, ranks: int, latency_us: float, transfer_us: float
) -> None:
    one = named(name)
    latency_s, transfer_s = one.formula(1e6, Hops.flat(ranks, 10e-6, 1e-9, 1e-10))
    assert (latency_s * 1e6, transfer_s * 1e6) == pytest.approx((latency_us, transfer_us))


@pytest.mark.parametrize(
    ("name", "latency_us", "transfer_us"),
    [
        # 14 of the 62 steps cross nodes: 14 x 50 + 48 x 2, and not 62 x 50.
        ("all_reduce_ring", 796, 2 * 31 / 32 * 1000 + 31 / 32 * 10),
        ("reduce_scatter_ring", 398, 31 / 32 * 1010),
        ("all_gather_ring", 398, 31 / 32 * 1000),
        # up and down: three hops inside a node, log2 8 = 3 between nodes.
        ("all_reduce_tree", 2 * (3 * 2 + 3 * 50), 4000 + 10),
        # two rings: 3/4 n inside at 0.1 ns/B, 7/8 n through the NIC that 4 shards share.
        (
            "all_reduce_hierarchical",
            2 * (3 * 2 + 7 * 50),
            150 + 1750 + (0.75 + 0.875 / 4) * 10,
        ),
        ("broadcast_binomial", 3 * 50 + 2 * 2, 3 * 1000 + 2 * 100),
        ("reduce_binomial", 3 * 50 + 2 * 2, 3 * 1000 + 2 * 100 + 5 * 10),
        ("send_recv_direct", 50, 1000),
        # two rounds inside: 3/4 n at 0.1 ns/B; then four GPUs share the NIC for n/8 + n/16 + n/32.
        (
            "all_reduce_halving_doubling",
            2 * (2 * 2 + 3 * 50),
            2 * (75 + 4 * 218.75) + 31 / 32 * 10,
        ),
        ("reduce_scatter_halving", 2 * 2 + 3 * 50, 75 + 4 * 218.75 + 31 / 32 * 10),
        # two rounds of n inside, three in which a node's four GPUs send 4 n through the NIC.
        ("all_reduce_doubling", 2 * 2 + 3 * 50, 2 * 100 + 3 * 4000 + 5 * 10),
        # 3/32 n inside; then four times 4, 8 and 16 blocks of n/32.
        ("all_gather_doubling", 2 * 2 + 3 * 50, 3 / 32 * 100 + 4 * 28 / 32 * 1000),
        # 1, 2, 4, 8 and 16 blocks; 1, 2, 4, 4 and 4 GPUs of a node send them out of it.
        ("all_gather_bruck", 5 * 50, (1 + 4 + 16 + 32 + 64) / 32 * 1000),
        ("all_gather_neighbor", 398 * 16 / 31, 31 / 32 * 1000),
        # 28 of 31 partners stand elsewhere, and four GPUs share the NIC.
        ("all_to_all_pairwise", 28 * 50 + 3 * 2, 4 * 28 / 32 * 1000 + 3 / 32 * 100),
        ("all_to_all_bruck", 5 * 50, (1 + 2 + 4 + 4 + 4) / 2 * 1000),
        # the NVSwitch adds at 5/4 n, meanwhile 2 n go through the NIC; a GPU adds n/4.
        ("all_reduce_nvls_tree", 2 * 2 + 2 * 3 * 50, 2000 + 2.5),
        ("all_reduce_collnet_direct", 2 * 2 + 50, 1000 + 7.5),
        ("all_reduce_collnet_chain", 2 * 3 * 2 + 50, 1000 + 10),
        ("push_sharded", 3 * 2 + 50, 75 + 875 + (0.75 + 0.875 / 4) * 10),
        ("pull_sharded", 3 * 2 + 50, 75 + 875),
        ("reduce_ring_gather", 398 + 50, 31 / 32 * (2000 + 10)),
    ],
)
def test_unequal_hops_by_hand(name: str, latency_us: float, transfer_us: float) -> None:
    latency_s, transfer_s = named(name).formula(1e6, UNEQUAL)
    assert (latency_s * 1e6, transfer_s * 1e6) == pytest.approx((latency_us, transfer_us))


def test_chain_broadcast_on_unequal_hops_by_hand() -> None:
    """Filling crosses 7 x 50 + 24 x 2 us; nine more chunks follow at 50 us and 100 us each."""
    parts = broadcast_chain(1e6, UNEQUAL, chunks=10)
    assert parts.latency_s == pytest.approx((7 * 50 + 24 * 2 + 9 * 50) * 1e-6)
    assert parts.transfer_s == pytest.approx((30 + 10) * 100e-6)


def test_nvls_on_one_node_by_hand() -> None:
    """Eight GPUs: n to the switch and n/8 of sums back to it, at two hops; none adds itself.

    Two hops of 20 us are 40 us; two of 2 us are below the 25 us that NCCL gives such a call.
    """
    node = Hops(8, 1, 8, 20e-6, 0.0, 1e-10, 1e-10, 1e-10, 0.0, 1e-11)
    assert named("all_reduce_nvls").formula(1e6, node) == pytest.approx((40e-6, 112.5e-6))
    quick = node._replace(alpha_intra_s=2e-6)
    assert named("all_reduce_nvls").formula(1e6, quick).latency_s == pytest.approx(25e-6)
    slow_out = UNEQUAL._replace(beta_nic_s_per_byte=0.0)
    inside = named("all_reduce_collnet_direct").formula(1e6, slow_out)
    assert inside.transfer_s == pytest.approx((1.5 * 100 + 7.5) * 1e-6), "2 (g-1)/g n, g = 4"


def test_who_can_use_what() -> None:
    """By hand: 8 nodes of 4, one node of 8, eight nodes of one, and five ranks."""
    node = UNEQUAL._replace(ranks=8, nodes=1, gpus_per_node=8)
    able = {
        hops: {f"{one.collective}_{one.name}" for one in EVERY if not one.refusal(hops)}
        for hops in (UNEQUAL, node, Hops.flat(8, 0.0, 0.0), Hops.flat(5, 0.0, 0.0))
    }
    every = {f"{one.collective}_{one.name}" for one in EVERY}
    pat = {"all_gather_pat", "reduce_scatter_pat"}
    collnet = {"all_reduce_collnet_chain", "all_reduce_collnet_direct"}
    assert [every - names for names in able.values()] == [
        {"all_reduce_nvls", *pat},
        {"all_reduce_nvls_tree", *collnet, *pat},
        {"all_reduce_nvls", "all_reduce_nvls_tree"},
        {"all_reduce_nvls", "all_reduce_nvls_tree", "all_gather_doubling", "all_gather_neighbor"},
    ]
    assert all(not one.refusal(UNEQUAL) for one in EVERY if one.automatic)


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
        if one.name.startswith(("nvls", "collnet")):
            continue
        times = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
        bound_s = times.get(one.collective, 0.0) * share_s
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


def test_reduce_chain_is_the_broadcast_with_sums_by_hand() -> None:
    """Six ranks, ten chunks: 14 (10 + 100 + 10) us."""
    hops = Hops.flat(6, 10e-6, 1e-9, 1e-10)
    assert reduce_chain(1e6, hops, chunks=10).seconds == pytest.approx(14 * 120e-6)


def test_split_binary_by_hand() -> None:
    """Seven ranks, two levels: (1 + c)(10 + 1000/c) us at c = 10, then 10 + 500 us."""
    parts = named("broadcast_split_binary").formula(1e6, Hops.flat(7, 10e-6, 1e-9))
    assert parts.seconds == pytest.approx(11 * 110e-6 + 510e-6)


def test_tree_over_nodes_that_are_no_power_of_two() -> None:
    """By hand: nine nodes need four rounds."""
    assert all_reduce_tree(0.0, Hops.flat(9, 1e-5, 0.0)).latency_s == pytest.approx(8e-5)


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


@given(any_algorithm, some_hops(), sizes, sizes)
def test_a_larger_message_takes_no_less(
    one: Algorithm, hops: Hops, first: float, second: float
) -> None:
    less, more = sorted((first, second))
    at_less, at_more = one.formula(less, hops), one.formula(more, hops)
    assert at_less.seconds <= at_more.seconds * (1 + 1e-9) + 1e-15
    assert one.sent(less, hops) <= one.sent(more, hops)
    assert min(*at_less, *at_more) >= -1e-12


@given(any_algorithm, some_hops(), sizes, st.sampled_from(NUMBERS), st.floats(1, 10))
def test_a_slower_link_is_never_faster(
    one: Algorithm, hops: Hops, size_bytes: float, number: str, factor: float
) -> None:
    slower = hops._replace(**{number: getattr(hops, number) * factor})
    fast_s, slow_s = (one.formula(size_bytes, h).seconds for h in (hops, slower))
    assert fast_s <= slow_s * (1 + 1e-9) + 1e-15


@given(any_algorithm, sizes, st.floats(0, 1e-2), st.floats(0, 1e-6))
def test_one_rank_costs_nothing(
    one: Algorithm, size_bytes: float, alpha_s: float, beta: float
) -> None:
    hops = Hops.flat(1, alpha_s, beta, beta)
    assert one.formula(size_bytes, hops).seconds == 0
    assert one.sent(size_bytes, hops) == 0


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


def test_every_file_holds_what_the_folder_promises() -> None:
    """By documentation: each names its curve, its bytes, and shows a value."""
    for one in EVERY:
        assert one.latency in ("ring", "tree")
        text = one.formula.__doc__ or ""
        assert "Examples" in text, one
        assert "References" in text, one


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(RequestError) as error:
        algorithm("all_reduce", "rign")
    assert str(error.value) == (
        "all_reduce, --algorithm: no 'rign'; did you mean 'ring'?"
        " Allowed: auto, collnet_chain, collnet_direct, doubling, halving_doubling, hierarchical,"
        " nvls, nvls_tree, ring, torus2d, tree."
    )
    with pytest.raises(RequestError) as error:
        algorithm("allreduce", "ring")
    assert str(error.value).startswith("collective: no 'allreduce'; did you mean 'all_reduce'?")
