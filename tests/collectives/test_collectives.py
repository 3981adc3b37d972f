"""Collectives: the folder that lists itself, and its formulas by hand on equal and unequal hops."""

from __future__ import annotations

import pytest

from perfsim.collectives import Hops, algorithms, find_algorithm
from perfsim.collectives.all_gather import all_gather_ring
from perfsim.collectives.all_reduce import all_reduce_hierarchical, all_reduce_ring, all_reduce_tree
from perfsim.collectives.parameter_server import pull_sharded, push_sharded
from perfsim.collectives.point_to_point import send_recv_direct
from perfsim.collectives.reduce_scatter import reduce_scatter_ring
from perfsim.collectives.rooted import (
    broadcast_binomial,
    broadcast_chain,
    reduce_binomial,
    reduce_chain,
)
from perfsim.errors import RequestError
from support.hops import EVERY, UNEQUAL, named


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
        "push": ("one_way", "sharded"),
        "pull": ("one_way", "sharded"),
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
        # of 5 blocks 3 are sent, then the 2 of the rank that the fifth folds into
        ("reduce_scatter_halving", 5, 20 + 20, 1000 + 100 + 1000 + 100 + 200),
        # of 7 blocks 2 are sent, then 4; three ranks fold into the next ones
        ("reduce_scatter_halving", 7, 20 + 20, 6 / 7 * 1100 + 1000 + 100 + 1000 / 7),
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
        # four times n/2 + n/4 + n/8 through the NIC; then n/16 + n/32 inside.
        ("reduce_scatter_halving", 2 * 2 + 3 * 50, 4 * 875 + 3 / 32 * 100 + 31 / 32 * 10),
        # two rounds of n inside, three in which a node's four GPUs send 4 n through the NIC.
        ("all_reduce_doubling", 2 * 2 + 3 * 50, 2 * 100 + 3 * 4000 + 5 * 10),
        # 3/32 n inside; then four times 4, 8 and 16 blocks of n/32.
        ("all_gather_doubling", 2 * 2 + 3 * 50, 3 / 32 * 100 + 4 * 28 / 32 * 1000),
        # 1, 2, 4, 8 and 16 blocks; 1, 2, 4, 4 and 4 GPUs of a node send them out of it.
        ("all_gather_bruck", 5 * 50, (1 + 4 + 16 + 32 + 64) / 32 * 1000),
        # the ends of a node exchange with another node in every other of 16 steps.
        ("all_gather_neighbor", 8 * 50 + 8 * 2, 31 / 32 * 1000),
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
    """Filling crosses 7 x 50 + 24 x 2 us; nine more chunks follow at 50 us and 100 us each.

    On the wires the first takes 7 x 100 us between nodes and 24 x 10 us inside them.
    """
    parts = broadcast_chain(1e6, UNEQUAL, chunks=10)
    assert parts.latency_s == pytest.approx((7 * 50 + 24 * 2 + 9 * 50) * 1e-6)
    assert parts.transfer_s == pytest.approx((7 * 100 + 24 * 10 + 9 * 100) * 1e-6)


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


def test_every_file_holds_what_the_folder_promises() -> None:
    """By documentation: each names its curve, its bytes, and shows a value."""
    for one in EVERY:
        assert one.latency in ("ring", "tree")
        text = one.formula.__doc__ or ""
        assert "Examples" in text, one
        assert "References" in text, one


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(RequestError) as error:
        find_algorithm("all_reduce", "rign")
    assert str(error.value) == (
        "algorithm: all_reduce has no 'rign'; did you mean 'ring'?"
        " Allowed: auto, collnet_chain, collnet_direct, doubling, halving_doubling, hierarchical,"
        " nvls, nvls_tree, ring, torus2d, tree."
    )
    with pytest.raises(RequestError) as error:
        find_algorithm("allreduce", "ring")
    assert str(error.value).startswith("collective: no 'allreduce'; did you mean 'all_reduce'?")
