"""Methods that exchange with neighbours, D-PSGD and SGP: the time of an iteration by hand."""

from __future__ import annotations

import pytest

from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext, Send
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from support.averaged import FAST, SLOW, mean_ms, pairs, plans, times
from support.builders import bucket, gradient, ring_cluster


def test_neighbours_on_a_ring_exchange_beside_backward() -> None:
    # One buffer: copied in 24 us, 2 messages of 2 MB share the wire, 5 ms; after backward 12
    # passes 24 us and 10 launches.
    (plan,) = plans("dpsgd", {})
    assert plan.calls == 1 and plan.sent_bytes == pytest.approx(4e6)
    assert mean_ms([plan]) == pytest.approx(42.124)
    # 1 + 4 MB at 20 MB/s, from the end of the forward pass.
    assert mean_ms(plans("dpsgd", {}, SLOW)) == pytest.approx(10 + 0.024 + 201 + 0.124 + 2)


def test_neighbours_take_buffers_of_what_is_sent_and_received() -> None:
    # 3 MB a tensor, its own and two received.
    assert plans("dpsgd", {"buffer_mib": 4})[0].calls == 2
    assert plans("dpsgd", {"buffer_mib": 4, "topology": "one_peer"})[0].calls == 1


@pytest.mark.parametrize(
    ("topology", "ranks", "values"),
    # Two peers' values are received beside parameters that live where two peers' were before.
    [("ring", 8, 2 + 1), ("ring", 2, 1), ("one_peer", 8, 1), ("hierarchical", 8, 1)],
)
def test_dpsgd_holds_what_neighbours_send(topology: str, ranks: int, values: int) -> None:
    method = load_method("dpsgd", {"topology": topology, "buffer_mib": 4})
    held = method.memory_bytes([gradient(1000), gradient(500)], ranks)
    assert held == 4 * 2**20 + values * 4 * 1500


def test_dpsgd_launches_late_only_the_update_that_waits() -> None:
    # Two tensors, 500 launches of 10 us each, where the profile's update takes 2 ms.
    apart, late = (
        dict(times(plans("dpsgd", {"interval": 4, "update_launches": count}))) for count in (0, 500)
    )
    assert late[3] == apart[3]
    assert late[1] == pytest.approx(apart[1] + 10 - 2)


@pytest.mark.parametrize(
    ("topology", "milliseconds", "calls", "sent"),
    [
        # 7 passes 14 us and 6 launches.
        ("one_peer", 42 + 0.074, 1, 2e6),
        # The own sum copied back and a division more: 11 passes 22 us and 10 launches.
        # Sent: n by a ring of 2 in the node, a message n, n/2 a rank by a broadcast to one other.
        ("hierarchical", 42 + 0.122, 3, 2e6 + 2e6 + 1e6),
        # After backward a copy, 4 us and a launch, and 1 us + 2 MB at 10 GB/s.
        ("all", 42 + 0.014 + 0.201, 3, 1e6 + 2e6 + 1e6),
    ],
)
def test_neighbours_by_topology(
    topology: str, milliseconds: float, calls: int, sent: float
) -> None:
    cluster = FAST if topology == "one_peer" else pairs()
    (plan,) = plans("dpsgd", {"topology": topology}, cluster)
    assert (plan.calls, plan.sent_bytes) == (calls, pytest.approx(sent))
    assert mean_ms([plan]) == pytest.approx(milliseconds)


@pytest.mark.parametrize(
    ("topology", "cluster", "why"),
    [
        ("hierarchical", ring_cluster(4, FAST), "several nodes of several GPUs"),
        ("one_peer", pairs(), "one GPU a node or more than two"),
    ],
)
def test_patterns_that_are_not_defined_are_refused(
    topology: str, cluster: Cluster, why: str
) -> None:
    with pytest.raises(RequestError, match=f"method: dpsgd .*{why}"):
        plans("dpsgd", {"topology": topology}, cluster)


def test_sgp_waits_for_its_peer_before_the_next_forward_pass() -> None:
    # Copy and flatten 8 us and 3 launches; 1 + 2; out, add and scale 14 us and 6 launches.
    assert mean_ms(plans("sgp", {})) == pytest.approx(42 + 0.038 + 3 + 0.074)


def test_overlapped_sgp_waits_an_iteration_later() -> None:
    # Before forward 18 us and 8 launches, after backward 4 us and 2.
    assert mean_ms(plans("sgp", {"overlapped": True})) == pytest.approx(42 + 0.098 + 0.024)
    # Else flatten (4 us, a launch), 1 + 100, copy out (4 us, 2 launches).
    slow = mean_ms(plans("sgp", {"overlapped": True}, SLOW))
    assert slow == pytest.approx(0.098 + 0.014 + 101 + 0.024)


def test_sgp_keeps_a_nodes_ranks_together() -> None:
    # Gradients: 8 us, 3 launches, 0.202; broadcast: 4 us, a launch, 0.201; push as before.
    (plan,) = plans("sgp", {}, pairs())
    assert plan.calls == 3
    assert mean_ms([plan]) == pytest.approx(45.112 + 0.038 + 0.202 + 0.014 + 0.201)
    whole = bucket(gradient(1000))
    both = [
        (stage.collective, stage.group)
        for job in load_method("sgp", {"overlapped": True}).jobs(
            [whole], MethodContext(4, gpus_per_node=2), 0
        )
        for stage in job.stages
        if isinstance(stage, Send)
    ]
    assert sorted(both) == [("all_reduce", "node"), ("broadcast", "node"), ("send_recv", "leaders")]


def test_sgp_needs_another_node() -> None:
    one = Cluster(4, (4,), None, custom_link("10GB/s,1us", "test"))
    with pytest.raises(RequestError, match="method: sgp needs several nodes"):
        plans("sgp", {}, one)
