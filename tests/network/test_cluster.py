"""Clusters: what a collective costs there, how GPUs are spread over nodes, what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import algorithms, find_algorithm
from perfsim.errors import RequestError
from perfsim.methods.base import Group
from perfsim.network.cluster import (
    Cluster,
    Latency,
    Link,
    Network,
    custom_link,
    make_cluster,
    node_placement,
)
from perfsim.network.fabrics.slowdown import oversubscribed
from perfsim.network.link import NicSharing
from perfsim.quantity import Quantity

FAST = custom_link("10GB/s,2us", "test")
SLOW = custom_link("1GB/s,50us", "test")


def nodes(count: int, inside: int, nics: int = 1) -> Cluster:
    """Return equal nodes on a slow and a fast link."""
    return Cluster(count * inside, (inside,) * count, SLOW, FAST, nics)


def curved(alphas: list[float], rate: float = 1e9) -> Link:
    """Return a link whose latency takes these values at 1 kB, 10 kB, 100 kB ..."""
    sizes = tuple(10.0 ** (3 + index) for index in range(len(alphas)))
    latency = Latency(sizes, tuple(alphas), "fitted", "test", 0.1, sizes[0], sizes[-1])
    speed = Quantity(rate, "B/s", "fitted", "test", 0.02, sizes[0], sizes[-1])
    return Link("test", speed, speed, Quantity(0.0, "s/B", "derived", "test"), latency, latency)


def test_flat_ring_by_hand() -> None:
    """Two nodes of four GPUs: 2 x (50 + 6 x 2) us and 2 x 7/8 n through one NIC."""
    cost = nodes(2, 4).cost("all_reduce", 1e6, "ring")
    assert cost.latency_s == pytest.approx(2 * (50 + 6 * 2) * 1e-6)
    assert cost.seconds == pytest.approx(cost.latency_s + 1750e-6)
    assert cost.sent_bytes == pytest.approx(1.75e6)
    assert [term.term for term in cost.terms] == [
        "inter rate",
        "inter ring latency at 1 MB",
        "intra ring latency at 1 MB",
    ]


def test_only_the_busiest_link_is_named() -> None:
    """By hand: 1.5 GB/s inside a node is not far above the NIC, and still does not set the pace."""
    cluster = Cluster(8, (4, 4), SLOW, custom_link("1.5GB/s,2us", "test"))
    terms = [term.term for term in cluster.cost("all_reduce", 1e6, "ring").terms]
    assert [term for term in terms if "rate" in term] == ["inter rate"]


def test_hierarchical_rests_on_both_links() -> None:
    cost = nodes(2, 4).cost("all_reduce", 1e6, "hierarchical")
    assert cost.latency_s == pytest.approx(2 * (3 * 2 + 50) * 1e-6)
    assert cost.seconds - cost.latency_s == pytest.approx(150e-6 + 1000e-6)
    assert {term.term for term in cost.terms if "rate" in term.term} == {"inter rate", "intra rate"}


def test_nics_share_the_traffic_until_the_node_is_the_busiest() -> None:
    """By hand: 1 GB/s a NIC, 10 GB/s inside; a GPU drives one NIC, so 4 GPUs at most 4."""
    transfer_s = {
        nics: cost.seconds - cost.latency_s
        for nics in (1, 2, 4, 8)
        for cost in [nodes(2, 4, nics).cost("all_reduce", 1e6, "ring")]
    }
    assert transfer_s == pytest.approx({1: 1750e-6, 2: 875e-6, 4: 437.5e-6, 8: 437.5e-6})
    wide = nodes(2, 16, 16).cost("all_reduce", 1e6, "ring")
    assert wide.seconds - wide.latency_s == pytest.approx(2 * 31 / 32 * 1e6 / 10e9)
    assert "intra rate" in [term.term for term in wide.terms]


def test_one_node_uses_its_own_link_only() -> None:
    cost = nodes(1, 4).cost("all_reduce", 1e6, "ring")
    assert cost.seconds == pytest.approx(6 * 2e-6 + 1.5e6 / 10e9)
    assert all(term.term.startswith("intra") for term in cost.terms)


def test_uneven_nodes_by_hand() -> None:
    """3 + 5 GPUs: the ring has two hops between nodes; the tree's chain is that of five."""
    cluster = Cluster(8, (3, 5), SLOW, FAST)
    assert cluster.cost("all_reduce", 0.0, "ring").seconds == pytest.approx(2 * (50 + 12) * 1e-6)
    assert cluster.cost("all_reduce", 0.0, "tree").seconds == pytest.approx(2 * (50 + 8) * 1e-6)
    assert Cluster(8, (3, 5), SLOW, FAST, 4).nics_in_use == 3


def test_automatic_choice_is_the_smaller_as_nccl_chooses() -> None:
    """A tree has fewer hops, a ring fewer bytes: small messages go by tree, large ones by ring."""
    cluster = nodes(8, 4)
    assert cluster.choice("all_reduce", 1e3) == "tree"
    assert cluster.choice("all_reduce", 1e9) == "ring"
    assert cluster.choice("broadcast", 1.0) == "binomial"
    assert cluster.choice("broadcast", 1e9) == "chain"
    hierarchical = cluster.cost("all_reduce", 1e8, "hierarchical").seconds
    assert hierarchical < cluster.cost("all_reduce", 1e8).seconds, "used only when asked for"


@given(st.integers(1, 9), st.integers(1, 8), st.floats(0, 1e9))
def test_automatic_is_never_beaten_by_what_it_chose_from(
    count: int, inside: int, size_bytes: float
) -> None:
    cluster = nodes(count, inside)
    for collective, names in algorithms().items():
        automatic_s = cluster.cost(collective, size_bytes).seconds
        least_s = min(
            cluster.cost(collective, size_bytes, name).seconds
            for name in names
            if find_algorithm(collective, name).automatic
        )
        assert automatic_s == least_s


@given(
    st.lists(st.floats(0, 1e-3), min_size=1, max_size=6),
    st.integers(2, 64),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
)
def test_a_larger_message_takes_no_less_on_any_curve(
    alphas: list[float], count: int, first: float, second: float
) -> None:
    """By law: even where measured latency falls with size faster than the wire time grows."""
    cluster = Cluster(count, (1,) * count, curved(alphas), None)
    less, more = sorted((first, second))
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "reduce", "send_recv"):
        small, large = (cluster.cost(collective, size) for size in (less, more))
        assert small.seconds <= large.seconds * (1 + 1e-9)
        assert small.latency_s >= 0


@given(st.lists(st.floats(0, 1e-3), min_size=1, max_size=6), st.floats(0, 1e9), st.floats(1, 9))
def test_more_bandwidth_is_never_slower(
    alphas: list[float], size_bytes: float, factor: float
) -> None:
    slow, fast = (Cluster(8, (1,) * 8, curved(alphas, rate), None) for rate in (1e9, factor * 1e9))
    for collective in algorithms():
        assert fast.cost(collective, size_bytes).seconds <= slow.cost(
            collective, size_bytes
        ).seconds * (1 + 1e-9)


@pytest.mark.parametrize(("nics", "all_reduce_us"), [(1, 1875), (2, 937.5), (8, 234.375)])
def test_a_rank_sends_over_one_nic_of_its_node(nics: int, all_reduce_us: float) -> None:
    """By hand: 1 MB at 1 GB/s a NIC takes 1 ms however many NICs a node has; a ring uses all."""
    wire, bus = custom_link("1GB/s,0us", "test"), custom_link("100GB/s,0us", "test")
    sixteen = Cluster(16, (8, 8), wire, bus, nics)
    assert sixteen.cost("send_recv", 1e6).seconds * 1e6 == pytest.approx(1000)
    assert sixteen.cost("all_reduce", 1e6, "ring").seconds * 1e6 == pytest.approx(all_reduce_us)
    inside = Cluster(8, (8,), None, bus, nics)
    assert inside.cost("send_recv", 1e6).seconds * 1e6 == pytest.approx(10)


@pytest.mark.parametrize(
    ("group", "nics", "times"),
    [
        *(("leaders", 4, 1), ("across", 4, 2), ("across", 8, 1), ("across", 1, 8)),
        *(((8, 2), 1, 2), ((8, 2), 2, 1), ((8, 2), 8, 1)),
    ],
)
def test_groups_that_send_share_the_nics_of_a_node(group: Group, nics: int, times: float) -> None:
    """By hand, two nodes of eight: as many ranks of a node send as groups cross, one NIC each."""
    wire, bus = custom_link("1GB/s,0us", "test"), custom_link("100GB/s,0us", "test")
    sixteen = Cluster(16, (8, 8), wire, bus, nics)
    assert sixteen.of(group, "send_recv", 1e6).seconds == pytest.approx(times * 1e-3)


@pytest.mark.parametrize(
    ("group", "nics", "times"),
    [
        *(("leaders", 1, 1), ("leaders", 4, 1)),
        # One NIC of 1 GB/s beside a host of 4/3 GB/s carries 0.8. For four processes the host
        # carries 8/3: 0.936 over one NIC, 1.6 over two, 2.219 over four.
        *(("across", 1, 4 * 0.8 / 0.936), ("across", 2, 4 * 0.8 / 1.6)),
        *(("across", 4, 4 * 0.8 / 2.219),),
    ],
)
def test_nics_that_one_host_feeds(group: Group, nics: int, times: float) -> None:
    """By hand, two nodes of four: one message of 1 MB, alone and beside three others."""
    wire, bus = custom_link("800MB/s,0us", "test"), custom_link("100GB/s,0us", "test")
    held = replace(wire, sharing=NicSharing(ratio=0.75, exponent=0.5))
    cost = Cluster(8, (4, 4), held, bus, nics).of(group, "send_recv", 1e6)
    assert cost.seconds == pytest.approx(times * 1.25e-3, rel=1e-3)


def test_one_rank_meets_a_narrow_uplink_only_where_one_nic_does() -> None:
    """By hand: an uplink of half a node's NICs carries two of four, which is more than one."""
    wire, bus = custom_link("1GB/s,0us", "test"), custom_link("100GB/s,0us", "test")
    for nics, times in ((1, 2.0), (2, 1.0), (4, 1.0)):
        fabric = oversubscribed(2.0)
        cluster = Cluster(8, (4, 4), wire, bus, nics, fabric=fabric, narrowed=True)
        assert cluster.cost("send_recv", 1e6).seconds == pytest.approx(times * 1e-3)


def test_spread_weighs_latency_and_rate_by_their_share() -> None:
    """By hand: 10 % of the latency and 2 % of the transfer."""
    cluster = Cluster(2, (1, 1), curved([1e-3, 1e-3]), None)
    cost = cluster.cost("send_recv", 1e4)
    assert (cost.latency_s, cost.seconds) == pytest.approx((1e-3, 1e-3 + 1e-5))
    assert cost.spread == pytest.approx((0.1 * 1e-3 + 0.02 * 1e-5) / cost.seconds)
    assert nodes(2, 1).cost("send_recv", 1e4).spread is None, "a user's link has no repeats"


def test_extrapolation_by_size_and_by_ranks() -> None:
    link = replace(curved([1e-3, 1e-3]), ranks=(2, 4))

    def left(ranks: int, size_bytes: float) -> list[bool]:
        cost = Cluster(ranks, (1,) * ranks, link, None).cost("all_gather", size_bytes)
        return [term.extrapolated for term in cost.terms]

    assert left(4, 5e3) == [False, False]
    assert left(4, 1e2) == left(4, 1e5) == [True, True]
    assert left(8, 5e3) == [True, True]


def test_longer_rings_read_the_curve_where_a_step_is_as_large() -> None:
    """By hand: fitted on 2 GPUs, so 8 of them meet at 4 MB what those met at 1 MB."""
    link = replace(curved([10e-6, 20e-6, 30e-6, 40e-6, 50e-6]), ranks=(2, 2))
    alpha_s = {
        size: cost.latency_s / 7
        for size in (1e4, 65536.0, 2e5, 4e5, 4e6)
        for cost in [Cluster(8, (1,) * 8, link, None).cost("all_gather", size)]
    }
    middle = link.ring.at(65536)
    expected = {1e4: 20e-6, 65536.0: middle, 2e5: middle, 4e5: 30e-6, 4e6: 40e-6}
    assert alpha_s == pytest.approx(expected)
    whole = Cluster(8, (1,) * 8, link, None).cost("send_recv", 4e6)
    assert whole.latency_s == pytest.approx(link.ring.at(4e6)), "one message is not cut in eight"


def test_groups_that_leave_a_node_shares_the_wire_and_not_the_latency() -> None:
    """By hand: 1, 2 and 3 ms a hop at 1, 10 and 100 kB; four places at once over one NIC a node."""
    link, bus = curved([1e-3, 2e-3, 3e-3]), custom_link("100GB/s,1us", "test")
    eight = Cluster(8, (4, 4), link, bus)
    cost = eight.of("across", "all_gather", 1e4)
    # Two ranks: one hop of 10 kB, and half of 40 kB at 1 GB/s.
    assert cost.latency_s == pytest.approx(2e-3)
    assert cost.seconds == pytest.approx(2e-3 + 20e-6)
    assert cost.sent_bytes == pytest.approx(5e3)
    # Where latency falls with size it is no more than that of the longer message.
    falling = Cluster(8, (4, 4), curved([3e-3, 2e-3, 1e-3]), bus)
    longer = falling.cluster_of("across").cost("all_gather", 4e4)
    assert falling.of("across", "all_gather", 1e4).seconds <= longer.seconds


@given(
    st.lists(st.floats(1e-7, 1e-2), min_size=1, max_size=6),
    st.sampled_from(["all_gather", "all_reduce", "reduce_scatter", "send_recv"]),
    st.tuples(st.floats(1, 1e9), st.floats(1, 1e9)),
)
def test_groups_that_leave_a_node_takes_no_less_for_more(
    alphas: list[float], collective: str, sizes: tuple[float, float]
) -> None:
    """By law, also where latency falls with size."""
    eight = Cluster(8, (4, 4), curved(alphas), custom_link("100GB/s,1us", "test"))
    less, more = sorted(sizes)
    shorter, longer = (eight.of("across", collective, size).seconds for size in (less, more))
    assert shorter <= longer * (1 + 1e-9)


@given(
    st.lists(st.floats(1e-7, 1e-2), min_size=1, max_size=6),
    st.integers(1, 8),
    st.tuples(st.integers(2, 64), st.integers(2, 64)),
    st.floats(0, 1e10),
)
def test_more_gpus_take_no_less_on_any_curve(
    alphas: list[float], most: int, counts: tuple[int, int], size_bytes: float
) -> None:
    """By law, also where latency rises faster than the message size."""
    link = replace(curved(alphas), ranks=(1, most))
    fewer, more = sorted(counts)
    for collective in ("all_reduce", "all_gather", "reduce_scatter"):
        less_s, more_s = (
            Cluster(count, (1,) * count, link, None).cost(collective, size_bytes).seconds
            for count in (fewer, more)
        )
        assert less_s <= more_s * (1 + 1e-9)


def test_one_gpu_costs_nothing() -> None:
    cost = Cluster(1, (1,), None, None).cost("all_reduce", 1e6)
    assert (cost.seconds, cost.sent_bytes) == (0, 0)


def test_unknown_algorithm_is_refused_even_on_one_gpu() -> None:
    for cluster in (nodes(2, 4), Cluster(1, (1,), None, None)):
        with pytest.raises(RequestError, match=r"^algorithm: broadcast has no 'ring'"):
            cluster.cost("broadcast", 1e6, "ring")
        with pytest.raises(RequestError, match=r"^collective: no 'all_rduce'; did you mean"):
            cluster.cost("all_rduce", 1e6)


def test_a_link_that_is_missing_is_asked_for() -> None:
    outside = Network("far", "t", "tcp", None, 1, {"inter": SLOW})
    inside = Network("near", "t", "pcie", None, 1, {"intra": FAST})
    assert make_cluster(8, 4, None, outside, inside).intra is FAST
    assert make_cluster(4, 1, None, outside).intra is None
    with pytest.raises(RequestError, match=r"^intra_net: 'far' says nothing of the link"):
        make_cluster(8, 4, None, outside)
    said = r"^net: 'near' has no link between nodes .*\(that is for intra_net\)"
    with pytest.raises(RequestError, match=said):
        make_cluster(8, 4, None, inside)
    with pytest.raises(RequestError, match=r"^intra_net: 'far' has no link between the GPUs"):
        make_cluster(8, 4, None, outside, outside)


def test_placement_by_hand() -> None:
    assert node_placement(8, 4, None) == (4, 4)
    assert node_placement(6, None, None) == (3, 3)  # 4, cut to a divisor of 6
    assert node_placement(16, None, None, 8) == (8, 8)  # what the network file states
    assert node_placement(8, None, (3, 5), 4) == (3, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, None, None), "gpus: 0 is not allowed: it must be 1 or more."),
        ((8, 0, None), "gpus_per_node: 0 is not allowed: it must be 1 or more."),
        (
            (10, 4, None),
            "gpus_per_node: 10 GPUs do not divide by 4; allowed for 10: 1, 2, 5, 10, or"
            " placement for uneven nodes.",
        ),
        (
            (8, None, (3, 4)),
            "placement: '3,4' places 7 GPUs, gpus says 8; the two must agree.",
        ),
        (
            (8, None, (8, 0)),
            "placement: '8,0' has a node without a GPU; give at least 1 for every node.",
        ),
        (
            (8, 4, (3, 5)),
            "gpus_per_node: 4 contradicts placement '3,5'; give one of the two.",
        ),
    ],
)
def test_placement_that_does_not_fit(
    arguments: tuple[int, int | None, tuple[int, ...] | None], message: str
) -> None:
    with pytest.raises(RequestError) as error:
        node_placement(*arguments)
    assert str(error.value) == message
