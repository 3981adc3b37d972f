"""All-reduces inside and between nodes, or along rows and columns, by hand and by law."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives.all_reduce import (
    all_reduce_torus2d,
    torus2d_sent_bytes,
    torus_grid,
    uneven_refusal,
)
from perfsim.collectives.hops import Hops
from perfsim.errors import RequestError
from perfsim.methods.base import Send
from perfsim.methods.building.two_level import in_rows_and_columns
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from support.dense import SLOW, planned, took_ms


def two_nodes(gpus: int = 2, bus: str = "10GB/s,1us") -> Cluster:
    """Return two nodes of so many GPUs, 1 GB/s and 1 ms between them."""
    return Cluster(2 * gpus, (gpus, gpus), custom_link(SLOW, "test"), custom_link(bus, "test"))


@pytest.mark.parametrize(
    ("name", "options", "calls"),
    [
        ("hierarchical", {}, 3),
        ("hierarchical", {"across": "split"}, 4),
        ("torus2d", {"grid": "node"}, 3),
        ("torus2d", {}, 3),
    ],
)
def test_two_levels_by_hand(name: str, options: dict[str, str], calls: int) -> None:
    """Two nodes of 2, 2 MB: 1 us + 0.1 ms each way in the node; between, 1 MB on two places.

    These share the NIC as 2 MB would: 2 x (1 ms + 1/2 x 2 ms).
    """
    plan = planned(name, options, fused="whole", cluster=two_nodes())
    assert plan.calls == calls
    assert plan.sent_bytes == pytest.approx(2e6 + 1e6)
    assert took_ms(plan) == pytest.approx(10 + 30 + 2 * 0.101 + 4 + 2)


def test_a_square_grid_of_nodes_takes_fewer_steps_than_a_ring() -> None:
    """Four nodes of one: rows of 2 (1 + 1 ms each way), columns of 2 with 1 MB (2 + 1 ms)."""
    plan = planned("torus2d", fused="whole")
    assert took_ms(plan) == pytest.approx(10 + 30 + 2 + 3 + 2 + 2)
    assert plan.sent_bytes == pytest.approx(2 * 3 / 4 * 2e6)
    ring = planned("torus2d", {"grid": "node"}, fused="whole")
    assert took_ms(ring) == pytest.approx(10 + 30 + 9 + 2)


@pytest.mark.parametrize("name", ["hierarchical", "torus2d"])
def test_one_node_is_one_all_reduce(name: str) -> None:
    bus = Cluster(4, (4,), None, custom_link(SLOW, "test"))
    plan = planned(name, fused="whole", cluster=bus)
    assert plan.calls == 1
    assert took_ms(plan) == pytest.approx(10 + 30 + 9 + 2)


@pytest.mark.parametrize("name", ["hierarchical", "torus2d"])
def test_uneven_nodes_are_refused(name: str) -> None:
    link = custom_link(SLOW, "test")
    with pytest.raises(
        RequestError, match=f"method: {name} needs as many GPUs on every node, not 3 on 2 nodes"
    ):
        planned(name, cluster=Cluster(3, (2, 1), link, link))


def test_longer_rows_of_the_torus_send_more() -> None:
    """4 nodes of 4: rows of one, 2 x 3/4 n out of it. 16 nodes: rows of 2, 2 x (7/8 + 7/16) n."""

    def wires_ms(nodes: int) -> float:
        hops = Hops(4 * nodes, nodes, 4, 0.0, 0.0, 1e-9, 1e-9, 0.0, 1e-9)
        return all_reduce_torus2d(1e6, hops).transfer_s * 1e3

    assert (wires_ms(4), wires_ms(16)) == pytest.approx((1.5, 2.625))


def test_the_torus_on_unequal_hops_by_hand() -> None:
    """16 nodes of 4: rows of 8 on two nodes, columns of 8. n beta 1000 us, n gamma 10 us.

    2 x (1 x 50 + 6 x 2 + 7 x 50) us; 7/8 n along and 7/8 n/2 down, twice; 7/8 + 7/64 n summed.
    """
    hops = Hops(64, 16, 4, 2e-6, 50e-6, 1e-9, 2e-9, 1e-10, 1e-9, 1e-11)
    latency_s, transfer_s = all_reduce_torus2d(1e6, hops)
    assert latency_s == pytest.approx(824e-6)
    assert transfer_s == pytest.approx(1750e-6 + 875e-6 + 9.84375e-6)
    assert torus2d_sent_bytes(1e6, hops) == pytest.approx(2 * 63 / 64 * 1e6)


@given(st.integers(1, 40), st.integers(1, 9))
def test_a_grid_holds_all_ranks_in_whole_nodes(nodes: int, gpus: int) -> None:
    row, column = torus_grid(nodes, gpus)
    assert row * column == nodes * gpus and row % gpus == 0
    for many in range(1, nodes + 1):
        if nodes % many == 0:
            other = gpus * many, nodes // many
            assert max(row, column) / min(row, column) <= max(other) / min(other)


@given(st.integers(1, 12), st.integers(1, 4), st.floats(1, 1e9))
def test_the_torus_costs_what_its_calls_cost(nodes: int, gpus: int, size_bytes: float) -> None:
    intra = custom_link("10GB/s,3us", "test") if gpus > 1 else None
    inter = custom_link("1GB/s,50us", "test") if nodes > 1 else None
    cluster = Cluster(nodes * gpus, (gpus,) * nodes, inter, intra)
    calls = [
        cluster.of(one.group, one.collective, one.size_bytes, "ring")
        for one in in_rows_and_columns(size_bytes, *torus_grid(nodes, gpus), algorithm="ring")
        if isinstance(one, Send)
    ]
    whole = cluster.cost("all_reduce", size_bytes, "torus2d")
    assert sum(call.seconds for call in calls) == pytest.approx(whole.seconds, rel=1e-9)
    assert sum(call.sent_bytes for call in calls) == pytest.approx(whole.sent_bytes, rel=1e-9)


def test_the_torus_needs_even_nodes() -> None:
    hops = Hops(3, 2, 2, 1e-6, 1e-5, 1e-9, 1e-9, 1e-10, 1e-9)
    assert uneven_refusal(hops) == "needs as many GPUs on every node; take ring"
    assert uneven_refusal(Hops.flat(3, 1e-5, 1e-9)) == ""
