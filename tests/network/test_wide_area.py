"""Collectives among sites: by hand, and by law."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.collectives import algorithms
from perfsim.libraries import library as find_library
from perfsim.network.cluster import Cluster
from perfsim.network.known import MeasuredCollectives
from perfsim.network.link import Link, custom_link
from perfsim.network.measured import CollectiveCurve
from perfsim.network.wide_area import WideArea, group_over_sites, widest_group
from perfsim.network.wide_link import WideLink
from perfsim.prediction import predict
from perfsim.scenario import make_scenario

LAN = custom_link("1000GB/s,0us", "net")
BUS = custom_link("1000GB/s,0us", "intra_net")
FAR = WideLink(1e9, 1e9, 0.1)
PAIRS = [(collective, name) for collective, names in algorithms().items() for name in names]
LIBRARIES = ("nccl", "gloo", "mpi")


def at_sites(
    parts: tuple[tuple[int, ...], ...], *links: WideLink, library: str = "nccl"
) -> Cluster:
    """Return a cluster whose own links take hardly any time."""
    nodes = tuple(gpus for part in parts for gpus in part)
    wide = WideArea(links if len(links) > 1 else links * len(parts), parts)
    return Cluster(sum(nodes), nodes, LAN, BUS, library=library, fitted_on=library, wide=wide)


def seconds(cluster: Cluster, collective: str, size: float, algorithm: str) -> float:
    return cluster.cost(collective, size, algorithm).seconds


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-3)


# By hand


def test_a_ring_of_two_over_a_long_path_waits_for_both_delays() -> None:
    # 1 MB in one loop of chunks of 256 kB on 2 channels: two steps of n/2, 0.5 ms each; the second
    # begins once a slice, half of what the first carries, is there: 2 D + 1.5 x 0.5 ms.
    two = at_sites(((1,), (1,)), FAR)
    assert seconds(two, "all_reduce", 1e6, "ring") == near(0.2 + 1.5 * 0.5e-3)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "reduce"])
def test_nothing_to_send_takes_no_more_than_a_byte(collective: str) -> None:
    two = at_sites(((2,), (2,)), FAR, library="gloo")
    assert 0.0 <= two.seconds(collective, 0.0) <= two.seconds(collective, 1.0)


def test_a_ring_fills_the_wire_where_chunks_take_longer_than_the_delay() -> None:
    # D = 1 ms; a chunk of 2 MiB of both channels takes 4.2 ms, its slice 2.1: the wire is full.
    two = at_sites(((1,), (1,)), FAR._replace(delay_s=1e-3))
    assert seconds(two, "all_reduce", 1e9, "ring") == near(1.0 + 1e-3)


def test_a_ring_over_a_very_long_path_goes_round_for_every_chunk() -> None:
    # 1e9 B are 1e9 / (2 x 2 x 2 MiB) = 119.2 loops of two steps, each 100 ms and a slice of 2.1 ms.
    two = at_sites(((1,), (1,)), FAR)
    loops = 1e9 / (2 * 2 * 2 * 2**20)
    slice_s = 2 * 2**20 / 1e9
    expected = 2 * loops * (0.1 + slice_s) + slice_s
    assert seconds(two, "all_reduce", 1e9, "ring") == near(expected)


def test_a_ring_of_more_ranks_has_more_chunks_on_its_way() -> None:
    # 8 ranks at each of two sites: the loops hold 16 chunks, so that there are 8 times fewer.
    few, many = at_sites(((1,), (1,)), FAR), at_sites(((8,), (8,)), FAR)
    slow, fast = (seconds(one, "all_reduce", 4e9, "ring") for one in (few, many))
    assert fast < 0.3 * slow
    loops = 4e9 / (2 * 16 * 2 * 2**20)
    # A turn's worth of a loop crosses twice; the first loop meets both crossings in both turns.
    waits = 4 * 0.1 + (loops - 1) * (2 * 15 / 16) * 2 * 0.1
    sent_s = 2 * 15 / 16 * 4e9 / 1e9
    assert fast == near(max(sent_s + 0.1, waits + 2 / 16 / 2 * sent_s + 0.5 * sent_s / loops / 30))


def test_a_hierarchical_all_reduce_sends_the_sum_of_a_node_once() -> None:
    # Two sites of one node of 8: each sends n (2 x 1/2 n), where a flat ring sends 15/8 n.
    two = at_sites(((8,), (8,)), FAR._replace(delay_s=0.0))
    assert seconds(two, "all_reduce", 1e9, "hierarchical") == near(1.0)
    assert seconds(two, "all_reduce", 1e9, "ring") == near(15 / 8)


def test_a_tree_goes_up_and_down() -> None:
    two = at_sites(((1,), (1,)), FAR)
    assert seconds(two, "all_reduce", 1e9, "tree") == near(1.0 + 0.2)


def test_a_tree_of_nodes_crosses_where_its_nodes_stand() -> None:
    # Nodes 0 and 1 | 2 and 3. The first tree is 1 -> 2 -> 0 and 3 -> 2: two of its edges lead to
    # the other site, and n/2 goes up and down each of them. The second mirrors it. So a site sends
    # 2 n, and the longest way crosses twice up and twice down.
    two = at_sites(((1, 1), (1, 1)), FAR)
    assert seconds(two, "all_reduce", 1e9, "tree") == near(2.0 + 0.4)


@pytest.mark.parametrize("held", [FAR, FAR._replace(window_bytes=3e6), FAR._replace(per_flow=1e7)])
@pytest.mark.parametrize("parts", [((4,), (4,)), ((4, 4), (4, 4)), ((2,), (2,), (2,))])
def test_the_rings_of_a_hierarchical_all_reduce_have_connections_of_their_own(
    parts: tuple[tuple[int, ...], ...], held: WideLink
) -> None:
    # It is what the ranks with the same place in their nodes do by themselves.
    cluster = at_sites(parts, held)
    part = 4e9 / cluster.gpus_per_node
    by_group = cluster.of("across", "all_reduce", part, "ring").seconds
    assert seconds(cluster, "all_reduce", 4e9, "hierarchical") == near(by_group)


def test_each_rank_that_exchanges_has_a_connection_of_its_own() -> None:
    # Over 2 x 0.1 s a flow with 20 MB in flight carries 0.1 GB/s. By doubling two ranks of a site
    # send n each: 0.2 s on the uplink, 1 s on each connection.
    two = at_sites(((2,), (2,)), FAR._replace(window_bytes=2e7), library="mpi")
    assert seconds(two, "all_reduce", 1e8, "doubling") == near(1.0 + 0.1)
    # n/2 and n/4 blocks by halving: the farthest first, half of n on each connection.
    assert seconds(two, "reduce_scatter", 1e8, "halving") == near(0.5 + 0.1)


def test_neighbours_of_two_sites_exchange_in_every_other_step() -> None:
    two = at_sites(((4,), (4,)), FAR, library="mpi")
    assert seconds(two, "all_gather", 8e8, "neighbor") == near(0.7 + 2 * 0.1)


def test_a_tree_broadcast_sends_the_message_over_every_uplink_it_takes() -> None:
    # Two sites of two nodes: halves of n down both subtrees, and half of n swapped.
    two = at_sites(((1, 1), (1, 1)), FAR._replace(delay_s=0.0), library="mpi")
    assert seconds(two, "broadcast", 1e9, "split_binary") == near(1.5)
    many = at_sites(((1,) * 16, (1,) * 16), FAR._replace(delay_s=0.0), library="mpi")
    assert seconds(many, "broadcast", 1e9, "binomial") == near(1.0)


def test_a_lone_rank_folds_over_the_uplink_and_back() -> None:
    # Ranks 0 | 1, 2: 0 sends n to 1 and gets it back; 1 and 2 are at one site.
    slow = WideLink(1e9, 5e8, 0.1)
    two = at_sites(((1,), (2,)), slow, FAR, library="mpi")
    assert seconds(two, "all_reduce", 1e9, "doubling") == near(1.0 + 2.0 + 0.2)
    assert seconds(two, "all_reduce", 1e9, "halving_doubling") == near(1.0 + 2.0 + 0.2)


def test_an_all_to_all_waits_for_the_slowest_site() -> None:
    # 4 + 4 + 8 GPUs: the third site receives 8 x 8/16 of a buffer over 0.5 GB/s; the pairs come one
    # after another, 8 of them with ranks on other nodes.
    slow = WideLink(1e9, 5e8, 0.02)
    three = at_sites(((4,), (4,), (8,)), FAR, FAR, slow)
    assert seconds(three, "all_to_all", 1e9, "pairwise") == near(4 * 1e9 / 5e8 + 8 * 0.1)


def test_a_message_takes_the_mean_of_both_delays() -> None:
    two = at_sites(((1,), (1,)), FAR, FAR._replace(delay_s=0.02))
    assert seconds(two, "send_recv", 1e9, "direct") == near(1.0 + 0.06)


def test_links_that_were_measured_are_better_evidence_and_take_as_long() -> None:
    known = FAR._replace(measured=True)
    costs = [
        at_sites(((1,), (1,)), *links).cost("send_recv", 1e9)
        for links in ((FAR,), (known,), (known, FAR))
    ]
    assert len({cost.seconds for cost in costs}) == 1
    assert [cost.grade for cost in costs] == ["modelled", "carried", "modelled"]
    # Where a message spends most of its time inside a site, the links there count: a data sheet's
    # here, then a curve's.
    slow = replace(
        at_sites(((2,), (2,)), known._replace(up=1e12, down=1e12, delay_s=1e-4)),
        inter=custom_link("1GB/s,0us", "net"),
        intra=custom_link("1GB/s,0us", "intra_net"),
    )
    assert slow.cost("all_reduce", 1e9, "ring").grade == "modelled"
    curve = CollectiveCurve("all_reduce", 4, 2, 2, (1e3, 1e9), (1e-6, 1.5), "measured", "test")
    curve_known = replace(slow, known=MeasuredCollectives((curve,)))
    assert curve_known.cost("all_reduce", 1e9).grade == "carried"


def test_a_measured_wide_area_narrows_the_interval_and_moves_nothing() -> None:
    asked = {"model": "resnet50", "gpus": 8, "gpu": "v100", "site": (4, 4), "net": "10gbe"}
    plain, measured = (
        predict(make_scenario({**asked, "wan": wan}))
        for wan in ("1Gbit/s,60ms", "1Gbit/s,60ms,measured")
    )
    assert measured.iteration_s == plain.iteration_s
    (low, high), (lowest, highest) = measured.iteration_s_interval, plain.iteration_s_interval
    assert lowest < low < plain.iteration_s < high < highest


def test_gloo_has_two_segments_on_their_way() -> None:
    # Segments of 1 MiB take c = 1.05 ms and a round trip of 200 ms: two in a cycle t with
    # t = 201.05 ms + c c / t; a rank sends 1.5 x 1e9 B, 1430.5 segments.
    four = at_sites(((1,), (1,), (1,), (1,)), FAR, library="gloo")
    segment = 2.0**20
    wire_s = segment / 1e9
    cycle_s = 0.2 + wire_s
    for _ in range(20):
        cycle_s = 0.2 + wire_s + wire_s**2 / cycle_s
    expected = 1.5e9 / segment * cycle_s / 2
    assert seconds(four, "all_reduce", 1e9, "ring") == near(expected)


def test_notices_of_two_ranks_of_gloo_stand_behind_the_segments_of_their_connection() -> None:
    # 8 MiB between two: 8 segments each way, two in RTT + 2 c. Measured on emulated sites of 50
    # Mbit/s and 20 ms (real_training.txt): 1521 ms.
    far = WideLink(6.25e6, 6.25e6, 0.02)
    two = at_sites(((1,), (1,)), far, library="gloo")
    expected = 4 * (0.04 + 2 * 2**20 / 6.25e6)
    assert seconds(two, "all_reduce", 2.0**23, "ring") == near(expected)
    assert seconds(two, "all_reduce", 2.0**23, "ring") == pytest.approx(1.521, rel=0.03)
    # Nothing but delays: reduce-scatter and all-gather, a notice and a message each. 81.6 ms.
    assert seconds(two, "all_reduce", 8.0, "ring") == near(0.08)


def test_a_broadcast_of_gloo_waits_for_the_first_notice() -> None:
    # A notice and a message: 41 ms measured on the same sites. Of two ranks on each site both send
    # over the uplink: 8 MiB twice, 2798 ms measured.
    far = WideLink(6.25e6, 6.25e6, 0.02)
    two = at_sites(((1,), (1,)), far, library="gloo")
    assert seconds(two, "broadcast", 8.0, "binomial") == near(0.04)
    four = at_sites(((1, 1), (1, 1)), far, library="gloo")
    both = seconds(four, "broadcast", 2.0**23, "binomial")
    assert both == near(0.04 + 2 * 2**23 / 6.25e6)
    assert both == pytest.approx(2.798, rel=0.03)


def test_gloo_broadcasts_to_all_children_at_once() -> None:
    # 8 sites, 3 rounds: the root sends 3 messages, its largest child 2, that one's child 1.
    eight = at_sites(((1,),) * 8, FAR._replace(delay_s=0.0), library="gloo")
    assert seconds(eight, "broadcast", 1e9, "binomial") == near(6.0)
    # Where a flow has half of the uplink, the last of them is as long as the one before.
    held = at_sites(((1,),) * 8, FAR._replace(delay_s=0.0, per_flow=5e8), library="gloo")
    assert seconds(held, "broadcast", 1e9, "binomial") == near(3.0 + 2.0 + 2.0)


def test_what_is_inside_counts_where_it_is_slower() -> None:
    slow = custom_link("100MB/s,0us", "net")
    two = replace(at_sites(((1,), (1,)), FAR._replace(delay_s=0.0)), inter=slow)
    assert seconds(two, "all_reduce", 1e9, "ring") == near(10.0)


def test_losses_flows_and_directions_count() -> None:
    lossy = WideLink(1e9, 1e9, 0.1, loss=1e-4)
    flow = lossy.path(lossy).flow_rate
    for flows in (1, 4):
        two = at_sites(((1,), (1,)), lossy._replace(flows=flows))
        assert seconds(two, "send_recv", 1e9, "direct") == near(0.1 + 1e9 / (flows * flow))
    up = at_sites(((1,), (1,)), WideLink(2.5e8, 1e9, 0.0))
    assert seconds(up, "all_reduce", 1e9, "ring") == near(4.0)


def test_background_takes_a_part_of_the_links() -> None:
    half = replace(at_sites(((1,), (1,)), FAR), background=0.5)
    assert seconds(half, "send_recv", 1e9, "direct") == near(2.0 + 0.1)


# Groups


def test_groups_at_one_site_cost_what_they_cost_without_sites() -> None:
    three = at_sites(((4, 4), (8,), (4, 4)), FAR)
    assert three.cluster_of("node").wide is None
    assert three.cluster_of(8).wide is None
    assert three.cluster_of(8).placement == (4, 4)
    inside = replace(three, wide=None, gpus=8, placement=(4, 4))
    assert three.of(8, "all_reduce", 1e6).seconds == inside.cost("all_reduce", 1e6).seconds


def test_a_group_that_one_of_its_kind_takes_over_sites_counts_as_that_one() -> None:
    wide = WideArea((FAR, FAR, FAR), ((8,), (4,), (8,)))
    group = group_over_sites(wide, 8)  # ranks 8 to 15: 4 at the second site and 4 at the third
    assert group.parts == ((4,), (4,))


def test_the_ranks_with_one_place_share_the_uplink_of_their_site() -> None:
    two = at_sites(((4,), (4,)), FAR._replace(delay_s=0.0))
    across = two.of("across", "all_reduce", 1e9, "ring").seconds
    assert across == near(4 * two.of("leaders", "all_reduce", 1e9, "ring").seconds)


def test_sites_take_the_place_of_nodes() -> None:
    two = at_sites(((4, 4), (4, 4)), FAR)
    assert (two.nodes, two.gpus_per_node, two.gpus_of_host) == (4, 4, 0)
    sites = two.by_site()
    assert (sites.nodes, sites.gpus_per_node, sites.gpus_of_host) == (2, 8, 4)
    assert sites.cluster_of("node").placement == (4, 4)
    leaders = sites.cluster_of("leaders")
    assert leaders.wide is not None
    assert leaders.wide.parts == ((1,), (1,))
    across = sites.cluster_of("across")
    assert across.wide is not None
    assert across.wide.leaving_site == 8
    assert sites.cost("all_reduce", 1e8) == two.cost("all_reduce", 1e8)


def test_the_widest_group_has_the_slowest_of_alike() -> None:
    slow = WideLink(1e8, 1e8, 0.1)
    wide = WideArea((FAR, FAR, slow), ((1,), (1,), (1,)))
    assert widest_group(wide, [[0, 1], [1, 2]]).links == (FAR, slow)


# Laws

links = st.builds(
    WideLink,
    st.floats(1e6, 1e11),
    st.floats(1e6, 1e11),
    st.floats(0.0, 0.3),
    st.sampled_from([0.0, 1e-6, 1e-3]),
    st.integers(1, 64),
    st.sampled_from([None, 65536.0, 3e6]),
)
shapes = st.lists(
    st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3).map(tuple), min_size=2, max_size=4
).map(tuple)
kinds = st.sampled_from([(library, pair) for library in LIBRARIES for pair in PAIRS])
SLACK = 1.0 + 1e-9
SLOW_LAN = custom_link("100MB/s,10us", "net")


def usable(kind: tuple[str, tuple[str, str]], parts: tuple[tuple[int, ...], ...]) -> bool:
    """Tell whether a library has an algorithm, and these ranks can use it."""
    library, (collective, name) = kind
    if name not in find_library(library).names(collective):
        return False
    flat = at_sites(parts, FAR, library=library).in_one_place()
    route = flat.route(collective, name)
    return not route.algorithm.refusal(route.base)


@settings(max_examples=50)
@given(
    kinds,
    shapes,
    links,
    st.sampled_from([LAN, SLOW_LAN]),
    st.floats(1.0, 1e10),
    st.floats(1.0, 4.0),
)
def test_a_worse_link_is_never_faster(
    kind: tuple[str, tuple[str, str]],
    parts: tuple[tuple[int, ...], ...],
    link: WideLink,
    lan: Link,
    size: float,
    more: float,
) -> None:
    if not usable(kind, parts):
        return
    library, (collective, name) = kind

    def took(changed: WideLink, size_bytes: float = size) -> float:
        cluster = replace(at_sites(parts, changed, library=library), inter=lan)
        cost = cluster.cost(collective, size_bytes, name)
        assert 0.0 <= cost.latency_s <= cost.seconds * SLACK
        return cost.seconds

    here = took(link)
    assert took(link._replace(delay_s=link.delay_s * more)) * SLACK >= here
    assert took(link._replace(up=link.up / more)) * SLACK >= here
    assert took(link._replace(down=link.down / more)) * SLACK >= here
    assert took(link._replace(loss=min(0.1, link.loss * more))) * SLACK >= here
    assert took(link._replace(flows=link.flows + 3)) <= here * SLACK
    assert took(link, size * more) * SLACK >= here
    flat = replace(at_sites(parts, link, library=library).in_one_place(), inter=lan)
    assert here * SLACK >= flat.cost(collective, size, name).seconds


@settings(max_examples=100)
@given(kinds, shapes, st.lists(st.sampled_from([1e8, 1e9, 3e9]), min_size=8, max_size=8))
def test_no_site_does_without_the_data_of_others(
    kind: tuple[str, tuple[str, str]], parts: tuple[tuple[int, ...], ...], rates: list[float]
) -> None:
    library, (collective, name) = kind
    if name.startswith("collnet") or not usable(kind, parts):
        return
    at = [WideLink(up, down, 0.0) for up, down in zip(rates[::2], rates[1::2], strict=True)][
        : len(parts)
    ]
    took = seconds(at_sites(parts, *at, library=library), collective, 1e9, name)
    ranks = sum(map(sum, parts))
    for site, (link, part) in enumerate(zip(at, parts, strict=True)):
        own, root = sum(part) / ranks, site == 0
        sent, received = {
            "all_reduce": (1.0, 1.0),
            "all_gather": (own, 1.0 - own),
            "reduce_scatter": (1.0 - own, own),
            "broadcast": (float(root), float(not root)),
            "reduce": (float(not root), float(root)),
            "all_to_all": (sum(part) * (1.0 - own),) * 2,
        }.get(collective, (0.0, 0.0))
        assert took * SLACK >= 1e9 * max(sent / link.up, received / link.down)
