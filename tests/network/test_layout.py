"""Where groups of ranks stand on nodes: by hand, and laws that hold for every layout."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.network.cluster import Cluster, make_cluster
from perfsim.network.layout import AXES, ParallelLayout, parse_layout
from perfsim.network.link import custom_link

DEGREES = st.sampled_from([1, 2, 3, 4, 8])
LAYOUTS = st.builds(
    ParallelLayout,
    DEGREES,
    DEGREES,
    DEGREES,
    DEGREES,
    DEGREES,
    st.permutations(AXES).map(tuple),
)


def test_megatrons_order_puts_tensor_ranks_on_a_node_and_stages_far_apart() -> None:
    layout = ParallelLayout(tp=8, dp=4, pp=2)
    assert layout.group(("tp",), 8) == ((8,), 1)
    # Data-parallel neighbours are 8 apart: one a node, and eight such rings leave each node.
    assert layout.group(("dp",), 8) == ((1, 1, 1, 1), 8)
    assert layout.neighbours("pp", 8) == ((1, 1), 8)


def test_a_node_with_two_tensor_groups_has_half_of_each_data_ring() -> None:
    layout = ParallelLayout(tp=4, dp=4)
    assert layout.group(("dp",), 8) == ((2, 2), 4)


def test_stages_that_share_a_node_send_inside_it() -> None:
    layout = ParallelLayout(tp=2, dp=1, pp=4)
    assert layout.neighbours("pp", 8) == ((2,), 1)
    # With four GPUs a node the second and the third stage are on different nodes.
    assert layout.neighbours("pp", 4) == ((1, 1), 2)


def test_another_order_moves_the_pipeline_inside_the_node() -> None:
    layout = ParallelLayout(tp=2, dp=8, pp=4, order=parse_layout("tp-pp-dp"))
    assert layout.group(("pp",), 8) == ((4,), 1)
    assert layout.group(("dp",), 8) == ((1,) * 8, 8)


@given(LAYOUTS, st.sampled_from([1, 2, 4, 8, 72]), st.sets(st.sampled_from(AXES)))
@settings(max_examples=50, deadline=None)
def test_a_group_has_all_its_ranks_and_no_node_sends_for_more_groups_than_it_has_gpus(
    layout: ParallelLayout, per_node: int, axes: set[str]
) -> None:
    placement, leaving = layout.group(tuple(axes), per_node)
    size = 1
    for axis in axes:
        size *= layout.degree(axis)
    assert sum(placement) == size
    assert max(placement) <= per_node
    assert 1 <= leaving <= per_node
    assert leaving * max(placement) <= per_node or len(placement) == 1


@given(LAYOUTS)
@settings(max_examples=40, deadline=None)
def test_all_axes_together_are_all_ranks(layout: ParallelLayout) -> None:
    assert sum(layout.group(AXES, 8).placement) == layout.gpus


def _cluster(nics: int = 1) -> Cluster:
    from dataclasses import replace

    wire, bus = custom_link("1GB/s,1ms", "x"), custom_link("10GB/s,1us", "x")
    return replace(Cluster(16, (4,) * 4, wire, bus), nics_per_node=nics)


def test_rings_that_leave_a_node_together_share_its_nic() -> None:
    cluster = _cluster()
    alone = cluster.placed((1, 1, 1, 1)).cost("all_reduce", 1e9, "ring")
    beside = cluster.placed((1, 1, 1, 1), 4).cost("all_reduce", 1e9, "ring")
    # 2 (P-1)/P n bytes of each of four rings over one NIC; the hops are no longer.
    assert alone.seconds == pytest.approx(6 * 1e-3 + 1.5, rel=1e-6)
    assert beside.seconds == pytest.approx(6 * 1e-3 + 4 * 1.5, rel=1e-6)
    assert beside.sent_bytes == pytest.approx(alone.sent_bytes)


def test_with_a_nic_for_each_ring_nothing_is_shared() -> None:
    cluster = _cluster(nics=4)
    alone = cluster.placed((1, 1, 1, 1)).cost("all_reduce", 1e9, "ring")
    beside = cluster.placed((1, 1, 1, 1), 4).cost("all_reduce", 1e9, "ring")
    assert beside.seconds == alone.seconds


def test_a_group_of_a_group_is_as_shared_as_both_say() -> None:
    part = _cluster().placed((2, 2, 2, 2), 2)
    assert part.cluster_of("across").leaving_node == 4
    assert part.cluster_of("node").nodes == 1


def test_the_group_of_all_ranks_costs_what_the_cluster_costs() -> None:
    from perfsim.data.catalog import Catalog
    from perfsim.network.network_file import load_network

    cluster = make_cluster(16, 4, None, load_network("10Gbit/s,50us", Catalog(), "net"))
    placement, leaving = ParallelLayout(dp=16).group(("dp",), 4)
    same = cluster.placed(placement, leaving)
    assert same.cost("all_reduce", 1e7) == cluster.cost("all_reduce", 1e7)


@pytest.mark.parametrize("text", ["tp-xp", "tp-tp-dp", "", "tp,dp"])
def test_a_wrong_layout_is_one_sentence(text: str) -> None:
    with pytest.raises(RequestError, match="nearest first, such as tp-cp-ep-dp-pp"):
        parse_layout(text)
