"""Methods over parameter servers: P3's slices, BytePS through hosts and servers, by hand."""

from __future__ import annotations

import pytest

from perfsim import fusion
from perfsim.methods import load_method
from perfsim.methods.base import Compute, MethodContext, Send
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from support.layered import context, milliseconds, model, names, plan, start_ms


def test_p3_sends_slices_both_ways() -> None:
    # 40000 values: 160 kB, 1 + 0.12 ms a way; the first layer's slice of 20000: 1 + 0.06 ms.
    found = plan(load_method("p3", {}), model([60_000, 80_000], [5.0, 5.0]))
    assert found.calls == 8
    assert names(found, "pu")[:4] == ["push 0.0", "pull 0.0", "push 0.0", "pull 0.0"]
    assert milliseconds(found) == pytest.approx(42 + 2 * 1.12 + 2 * 1.06)
    assert plan(load_method("p3", {"slice": 20_000})).calls == 2 * 2 * 13


@pytest.mark.parametrize(
    ("servers", "way_ms", "sum_us"), [(0, 1.75, 1.0), (2, 1.6, 1.2), (4, 1.5, 1.0), (9, 1.5, 1.0)]
)
@pytest.mark.parametrize("name", ["byteps", "p3"])
def test_servers_of_their_own_shorten_the_way(
    name: str, servers: int, way_ms: float, sum_us: float
) -> None:
    # Half of 2 N (N-1)/D: 12/16, 12/20 and, for k = N or more, 12/24 of 1 MB. Here, without
    # measured points, BytePS copies and adds up at 1 TB/s: 11 us a copy, and 1 us for each MB
    # that comes in at the busiest server, which has 3/10 of 4 MB where there are two more.
    options = {"servers": servers} | ({"slice": 250_000} if name == "p3" else {})
    host_ms = (2 * 11 + sum_us) / 1000 if name == "byteps" else 0.0
    found = milliseconds(plan(load_method(name, options)))
    assert found == pytest.approx(42 + 2 * way_ms + host_ms)


@pytest.mark.parametrize(("switch", "copied_us"), [(1, 0.5), (2, 1.0), (8, 1.0)])
def test_byteps_adds_up_inside_the_nodes(switch: int, copied_us: float) -> None:
    # 2 nodes of 2 GPUs, one NIC each. Inside 1 us + 0.05 ms a half; between nodes both places
    # share the NIC: 1 ms + half of 1 MB. The first layer's are exposed. Each GPU copies a half,
    # or both behind one link, in 10 us more; 1 MB of sums at either server.
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    method = load_method("byteps", {"switch": switch})
    found = plan(method, cluster=Cluster(4, (2, 2), wire, bus))
    host_ms = (2 * (10 + copied_us) + 1) / 1000
    assert milliseconds(found) == pytest.approx(42 + 2 * 0.051 + 2 * 1.5 + host_ms)
    # Of 2 MB: half inside twice, a quarter out twice.
    assert found.sent_bytes == pytest.approx(2e6 * (0.5 + 0.25 + 0.25 + 0.5))


def test_byteps_on_one_node_has_no_servers() -> None:
    bus = custom_link("10GB/s,1us", "test")
    found = plan(load_method("byteps", {}), cluster=Cluster(4, (4,), None, bus))
    assert {task.name.split()[0] for task in found.graph.tasks if task.collective} == {
        "reduce_scatter",
        "all_gather",
    }
    assert not names(found, "compress") and not names(found, "decompress")


def test_byteps_goes_through_the_host_and_the_servers() -> None:
    # A part of 4 MB on 2 nodes of 4: a million values at each server, a quarter a copy.
    stages = load_method("byteps", {}).way(4e6, MethodContext(8, 2, 4))
    kernels = [stage.kernels[0] for stage in stages if isinstance(stage, Compute)]
    assert [(kernel.name, kernel.elements) for kernel in kernels] == [
        ("copy_to_host", 250_000),
        ("cpu_sum", 1_000_000),
        ("copy_to_gpu", 250_000),
    ]
    order = ["send" if isinstance(stage, Send) else stage.stream for stage in stages]
    assert order == ["send", "to host", "send", "servers", "send", "to GPU", "send"]


def test_byteps_over_tcp_takes_messages_off_zeromq_one_by_one() -> None:
    # At either server the half that each of 2 nodes sends it; at a worker all of the sum.
    stages = load_method("byteps", {"van": "zmq"}).way(4e6, MethodContext(8, 2, 4))
    found = [
        (stage.stream, stage.kernels[0].elements)
        for stage in stages
        if isinstance(stage, Compute) and stage.kernels[0].name == "zmq_receive"
    ]
    assert found == [("received by servers", 1_000_000), ("received by worker", 1_000_000)]
    order = [stage.collective if isinstance(stage, Send) else stage.stream for stage in stages]
    assert order[2:7] == [
        "push",
        "received by servers",
        "servers",
        "pull",
        "received by worker",
    ]


def test_byteps_sums_inside_go_before_gathers() -> None:
    # 1 s a hop inside, hardly any between: when the second layer's sum ends, the first one's gather
    # could go, but the third one's sum, ready after 3 ms, goes before it on the same stream.
    wire, bus = custom_link("1000GB/s,1us", "test"), custom_link("1000GB/s,1s", "test")
    cluster = Cluster(6, (2, 2, 2), wire, bus)
    found = plan(load_method("byteps", {}), model([2, 2, 2], [5.0] * 3, 1.0), cluster)
    ordered = sorted(
        (start_ms(found, task.name), task.name.split()[0])
        for task in found.graph.tasks
        if task.stream == "NCCL"
    )
    assert [name for _, name in ordered] == ["reduce_scatter"] * 3 + ["all_gather"] * 3


def test_byteps_cuts_at_whole_pages_for_each_gpu() -> None:
    method = load_method("byteps", {})
    of = model([1_025_000], [5.0])
    [bucket] = fusion.load_policy("none").fuse(of.in_ready_order(), context(None))

    def parts(gpus: int) -> int:
        return len(method.jobs([bucket], MethodContext(gpus * 2, 2, gpus, profile=of), 0))

    # 4.1 MB is more than 1000 pages, but less than the 1002 that 3 GPUs share evenly.
    assert (parts(1), parts(3)) == (2, 1)


def test_byteps_across_the_barrier_waits_layer_by_layer() -> None:
    across = load_method("byteps", {"cross_barrier": True})
    found = plan(across, model([250_000] * 2, [5.0, 5.0]))
    # In backward order the first layer comes last, so that nothing is gained: 3.5 exposed.
    assert names(found, "update") == ["update 0.1.0", "update 0.0.0"]
    # With two copies of 11 us and 1 us of sums.
    assert milliseconds(found) == pytest.approx(42 + 3.5 + 0.023)
