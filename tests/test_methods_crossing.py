"""Methods that cross the end of the iteration or shard the model, by hand and by law."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import gradient, hand_device, profile, ring_cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from test_every_method import by_formula, mean, one_matrix

from perfsim import fusion
from perfsim.cluster.cluster import Cluster
from perfsim.cluster.link import custom_link
from perfsim.errors import RequestError
from perfsim.fusion.block import block
from perfsim.fusion.bucket import FusionContext
from perfsim.method import Method
from perfsim.methods import load_method
from perfsim.plan import Plan
from perfsim.profile import Gradient, Layer, Profile
from perfsim.run import run
from perfsim.schedule import schedule
from perfsim.stage import Compute, Send
from perfsim.world import World

MS = 1e-3


def model(sizes: list[int], forward_ms: list[float], backward_ms: float = 15.0) -> Profile:
    """Return a model of layers with one gradient each, sizes in forward order; update 2 ms."""
    count = len(sizes)
    layers = tuple(
        Layer(f"l{place}", "linear", each * MS, backward_ms * MS)
        for place, each in enumerate(forward_ms)
    )
    gradients = tuple(
        Gradient(f"l{place}.weight", (size,), (count - place) * backward_ms * MS, place)
        for place, size in enumerate(sizes)
    )
    passes_s = sum(layer.forward_s + layer.backward_s for layer in layers)
    made = profile([1], [1.0], optimizer_s=2 * MS)
    return replace(made, layers=layers, gradients=gradients, iteration_s=passes_s + 2 * MS)


def plan(
    method: Method,
    of: Profile | None = None,
    cluster: Cluster | None = None,
    policy: str = "none",
    limit_bytes: float | None = None,
    *,
    overlap: bool = True,
) -> Plan:
    """Return the plan, on 4 GPUs at 1 GB/s and 1 ms a hop, of two layers with 1 MB each.

    There an all-reduce of 1 MB takes 6 + 1.5 ms, each of its halves 3.75, a push or pull 1.75;
    each layer takes 5 ms forward and 15 ms backward.
    """
    [found] = schedule(
        of or model([250_000] * 2, [5.0, 5.0]),
        method,
        fusion.load(policy).fuse,
        hand_device(),
        cluster or ring_cluster(4, "1GB/s,1ms"),
        algorithm="ring",
        limit_bytes=limit_bytes,
        overlap=overlap,
    )
    return found


def milliseconds(found: Plan) -> float:
    return float(run(found).period_s) / MS


def names(found: Plan, start: str) -> list[str]:
    return [task.name for task in found.graph.tasks if task.name.startswith(start)]


def start_ms(found: Plan, name: str) -> float:
    place = [task.name for task in found.graph.tasks].index(name)
    return float(run(found).starts[0][place]) / MS


def test_dear_hides_the_gathers_behind_the_next_forward_pass() -> None:
    found = plan(load_method("dear", {}))
    assert names(found, "all_gather") == ["all_gather 0.1", "all_gather 0.0"]
    # After backward (30): the first layer's halves (7.5), its update and forward (1 + 5), behind
    # which the other gather hides; then 1 + 5.
    assert milliseconds(found) == pytest.approx(30 + 7.5 + 6 + 6)
    assert found.calls == 4


def test_dear_without_overlap_adds_everything_up() -> None:
    found = plan(load_method("dear", {}), overlap=False)
    assert milliseconds(found) == pytest.approx(42 + 4 * 3.75)


def context(limit_bytes: float | None) -> FusionContext:
    return FusionContext(limit_bytes, 1.0, lambda one: one.size_bytes, lambda size: size)


@pytest.mark.parametrize(
    ("limit_bytes", "groups"),
    # 8 bytes a tensor; the middle layer has two, which stay together.
    [(17.0, ["d", "cb", "a"]), (25.0, ["d", "cba"]), (24.0, ["d", "cb", "a"]), (1e9, ["dcba"])],
)
def test_dear_fills_groups_of_whole_layers_from_the_front(
    limit_bytes: float, groups: list[str]
) -> None:
    tensors = [
        Gradient(name, (2,), ready_s, layer)
        for name, ready_s, layer in (("d", 1.0, 2), ("c", 2.0, 1), ("b", 3.0, 1), ("a", 4.0, 0))
    ]
    found = fusion.load("dear").fuse(tensors, context(limit_bytes))
    assert ["".join(one.name for one in each.gradients) for each in found] == groups


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    ranks=st.integers(2, 16),
    name=st.sampled_from(["dear", "bytescheduler"]),
)
@settings(max_examples=30)
def test_what_crosses_sends_what_ssgd_sends_and_never_waits_idle(
    sizes: list[int], ranks: int, name: str
) -> None:
    of, cluster = model(sizes, [2.0] * len(sizes), 3.0), ring_cluster(ranks, "1GB/s,20us")
    dense = plan(load_method("ssgd", {}), of, cluster)
    found = plan(load_method(name, {}), of, cluster)
    assert found.sent_bytes == pytest.approx(dense.sent_bytes)
    # Computing or sending goes on all the time, so no more than all of it one after the other.
    total_s = sum(float(task.duration_s) for task in found.graph.tasks)
    assert run(found).period_s <= total_s * (1 + 1e-9)
    assert run(found).period_s >= of.iteration_s * (1 - 1e-9)


def test_bytescheduler_lets_the_first_layer_overtake() -> None:
    # 0.5 MB and 2 MB in parts of 0.5 MB, 6 + 0.75 ms each. The last layer's go at 15, 21.75 and
    # 28.5; the first layer's, ready at 30, goes before the fourth: 35.25 to 42, then to 48.75.
    # Forward: update 0.4 and 5 from 42 on; the second layer waits for 48.75, then 1.6 and 5.
    options = {"partition": 125_000, "credit": 0}
    of = model([125_000, 500_000], [5.0, 5.0])
    found = plan(load_method("bytescheduler", options), of)
    assert found.calls == 5
    assert milliseconds(found) == pytest.approx(48.75 + 6.6)
    # With credit for all, the last layer's four are handed over before: 42, then 48.75; forward
    # from there: 0.4 and 5, 1.6 and 5.
    handed = plan(load_method("bytescheduler", {"partition": 125_000}), of)
    assert milliseconds(handed) == pytest.approx(48.75 + 12.0)


def test_bytescheduler_over_servers_pushes_and_pulls_each_part() -> None:
    method = load_method("bytescheduler", {"partition": 125_000, "transport": "ps"})
    found = plan(method)
    # Parts of 0.5 MB: a push or a pull takes 1 + 0.375; two parts of the first layer are exposed.
    assert found.calls == 8
    assert milliseconds(found) == pytest.approx(42 + 4 * 1.375)


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
    stages = load_method("byteps", {}).way(4e6, World(8, 2, 4))
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
    stages = load_method("byteps", {"van": "zmq"}).way(4e6, World(8, 2, 4))
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
    [bucket] = fusion.load("none").fuse(of.in_ready_order(), context(None))

    def parts(gpus: int) -> int:
        return len(method.jobs([bucket], World(gpus * 2, 2, gpus, profile=of), 0))

    # 4.1 MB is more than 1000 pages, but less than the 1002 that 3 GPUs share evenly.
    assert (parts(1), parts(3)) == (2, 1)


def test_byteps_across_the_barrier_waits_layer_by_layer() -> None:
    across = load_method("byteps", {"cross_barrier": True})
    found = plan(across, model([250_000] * 2, [5.0, 5.0]))
    # In backward order the first layer comes last, so that nothing is gained: 3.5 exposed.
    assert names(found, "update") == ["update 0.1.0", "update 0.0.0"]
    # With two copies of 11 us and 1 us of sums.
    assert milliseconds(found) == pytest.approx(42 + 3.5 + 0.023)


@pytest.mark.parametrize(
    ("options", "extra_ms"),
    # Copy 12 us, divide and flatten 12 us each, then all-reduce of 1 MB, the owned part 10.5 us.
    [
        ({}, 0.036 + 7.5 + 0.0105),
        ({"stage": 2}, 0.036 + 7.5 + 0.0105),
        ({"reduction": "reduce_scatter"}, 0.036 + 3.75 + 0.0105),
    ],
)
def test_zero_updates_a_share_and_gathers(options: dict[str, object], extra_ms: float) -> None:
    found = plan(load_method("zero", options), model([250_000], [10.0], 30.0), policy="zero")
    # A quarter of the update, then the gather.
    assert milliseconds(found) == pytest.approx(40 + extra_ms + 0.5 + 3.75)


def test_zero_reduces_to_each_owner_in_turn() -> None:
    cluster = ring_cluster(4, "1GB/s,1ms")
    one_s = cluster.cost("reduce", 250_000.0).seconds
    found = plan(load_method("zero", {"reduction": "reduce"}), model([250_000], [10.0], 30.0))
    assert names(found, "reduce") == ["reduce 0.0"] * 4
    assert milliseconds(found) == pytest.approx(40 + 0.036 + 4 * one_s / MS + 0.0105 + 0.5 + 3.75)


@pytest.mark.parametrize(
    ("overlap", "expected_ms"),
    # With overlap both buckets' kernels in the backward pass (0.072), then the second all-reduce
    # and copy; without it all in a row. Update 0.5, gather of 2 MB 4.5.
    [(True, 40 + 0.072 + 7.5 + 0.0105 + 5), (False, 40 + 2 * (0.036 + 7.5 + 0.0105) + 5)],
)
def test_zero_overlaps_buckets_when_asked(overlap: bool, expected_ms: float) -> None:
    found = plan(load_method("zero", {"overlap_comm": overlap}), policy="zero", limit_bytes=1e6)
    assert milliseconds(found) == pytest.approx(expected_ms)


def test_zero_shards_what_its_stage_says() -> None:
    one, two = (load_method("zero", {"stage": stage}).kept_share(4) for stage in (1, 2))
    assert one == {"parameters": 1.0, "gradients": 1.0, "optimizer": 0.25}
    assert two == {"parameters": 1.0, "gradients": 0.25, "optimizer": 0.25}
    both = [load_method("zero", {"overlap_comm": each}) for each in (False, True)]
    memory = [method.memory_bytes([gradient(4000)], 4) for method in both]
    assert memory == [4 * (5e8 + 1000), 4 * (1e9 + 1000)]


@pytest.mark.parametrize(
    ("options", "expected_ms"),
    # Forward: gathers to 3.75 and 7.5, layers to 8.75 and 13.75. Backward of the last layer after
    # its gather: 17.5 to 32.5. Sums: 12 us, 3.75 ms, 10.5 us; a quarter of the update.
    [
        # The other gather went before: 32.5 to 47.5.
        ({}, 47.5 + 0.012 + 3.75 + 0.0105 + 0.5),
        # It goes at 32.5, before the sum: 36.25 to 51.25.
        ({"prefetch": "post"}, 51.25 + 0.012 + 3.75 + 0.0105 + 0.5),
        # It goes after the sum: 32.512, 36.262, 40.012 to 55.012.
        ({"prefetch": "none"}, 55.012 + 0.012 + 3.75 + 0.0105 + 0.5),
        # Nothing is gathered again: 13.75 to 43.75.
        ({"sharding": "shard_grad_op"}, 43.75 + 0.012 + 3.75 + 0.0105 + 0.5),
    ],
)
def test_fsdp_gathers_units_around_both_passes(
    options: dict[str, object], expected_ms: float
) -> None:
    assert milliseconds(plan(load_method("fsdp", options))) == pytest.approx(expected_ms)


def test_fsdp_holds_two_units_at_a_time() -> None:
    # The third gather has the link at 7.5 but waits for the first layer's end, 3.75 + 10.
    found = plan(load_method("fsdp", {}), model([250_000] * 3, [10.0, 1.0, 1.0]))
    assert start_ms(found, "all_gather 0.unit 1") == pytest.approx(3.75)
    assert start_ms(found, "all_gather 0.unit 2") == pytest.approx(13.75)


@pytest.mark.parametrize(("sharding", "times"), [("full_shard", 1.5), ("shard_grad_op", 1.0)])
def test_fsdp_sends_once_and_a_half_what_ssgd_sends(sharding: str, times: float) -> None:
    found = plan(load_method("fsdp", {"sharding": sharding}))
    assert found.sent_bytes == pytest.approx(times * plan(load_method("ssgd", {})).sent_bytes)
    parameters = load_method("fsdp", {"sharding": sharding}).kept_share(4)["parameters"]
    assert parameters == (0.25 if sharding == "full_shard" else 1.0)


def test_fsdp_on_two_gpus_divides_once() -> None:
    found = plan(load_method("fsdp", {}), cluster=ring_cluster(2, "1GB/s,1ms"))
    assert names(found, "compress") and not names(found, "decompress")


def test_fsdp_in_copies_gathers_inside_and_reduces_across() -> None:
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    cluster = Cluster(4, (2, 2), wire, bus)
    found = plan(load_method("fsdp", {"shards": 2}), cluster=cluster)
    # Inside a node 1 us + 0.05 ms a call: one is exposed before each pass, the sum after it. All
    # are divided (12 us), then the half (11 us), which the two copies all-reduce; half an update.
    across_s = cluster.of((2, 2), "all_reduce", 0.5e6).seconds
    expected_ms = 0.051 + 10 + 0.051 + 30 + 0.012 + 0.051 + 0.011 + across_s / MS + 1.0
    assert milliseconds(found) == pytest.approx(expected_ms)
    # Of 2 MB: half three times in the node, and half of it across, twice a half.
    assert found.sent_bytes == pytest.approx(2e6 * (1.5 + 0.5))
    assert load_method("fsdp", {"shards": 2}).kept_share(4)["optimizer"] == 0.5


@given(copies=st.integers(1, 8), shards=st.integers(2, 8))
def test_fsdp_in_copies_keeps_its_formula(copies: int, shards: int) -> None:
    ranks = copies * shards
    found = plan(load_method("fsdp", {"shards": shards}), cluster=ring_cluster(ranks, "1GB/s,1us"))
    share = 3 * (1 - 1 / shards) + 2 * (1 / shards - 1 / ranks)
    assert found.sent_bytes == pytest.approx(2e6 * share)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("zero", {"reduction": "reduce"}),
        ("zero", {"reduction": "reduce_scatter"}),
        ("fsdp", {"sharding": "shard_grad_op"}),
        ("fsdp", {"shards": 4, "sharding": "shard_grad_op"}),
        ("p3", {"servers": 3}),
        ("byteps", {"servers": 8}),
        ("bytescheduler", {"servers": 20, "transport": "ps"}),
        ("dct", {"servers": 3}),
        ("dct", {"exchange": "all_gather"}),
        ("omnireduce", {"aggregators": "dedicated", "block_density": 0.1}),
    ],
)
def test_the_formula_of_bytes_holds_with_options(name: str, options: dict[str, object]) -> None:
    method = load_method(name, options)
    sent = mean(one_matrix(method, 8), "sent_bytes")
    assert sent == pytest.approx(by_formula(method, 8), rel=1e-9)


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_fsdp_refuses_copies_of_other_sizes(shards: int) -> None:
    with pytest.raises(RequestError, match=rf"two or more shards that divide 4 GPUs, not {shards}"):
        plan(load_method("fsdp", {"shards": shards}))


def test_bytescheduler_refuses_servers_without_pushes() -> None:
    with pytest.raises(RequestError, match="has no servers where transport is all_reduce"):
        plan(load_method("bytescheduler", {"servers": 2}))


def test_blocks_are_read_off_the_names() -> None:
    tensors = [
        Gradient(name, (1,), ready_s, 0)
        for ready_s, name in enumerate(
            [
                "fc.weight",
                "layer2.0.bn.weight",
                "layer2.0.conv.weight",
                "layer1.3.conv.weight",
                "c.b",
            ]
        )
    ]
    found = fusion.load("block").fuse(tensors, context(None))
    assert [len(one.gradients) for one in found] == [1, 2, 1, 1]
    assert block("layer2.0.conv.weight") == "layer2.0"


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("bytescheduler", "transport", "tcp"),
        ("bytescheduler", "partition", 0),
        ("p3", "slice", 0),
        ("byteps", "servers", -1),
        ("byteps", "switch", 0),
        ("zero", "stage", 3),
        ("zero", "reduction", "sum"),
        ("fsdp", "prefetch", "early"),
        ("fsdp", "sharding", "hybrid"),
        ("fsdp", "shards", -1),
    ],
)
def test_options_are_checked(name: str, option: str, value: object) -> None:
    with pytest.raises(RequestError, match=option):
        load_method(name, {option: value})
