"""Methods that shard the model, ZeRO and FSDP: what is sent, kept and waited for, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.builders import gradient, ring_cluster
from support.layered import MS, context, milliseconds, model, names, plan, start_ms


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
    # With overlap both buckets are copied in the backward pass (0.024), the kernels around them are
    # beside it; then the second bucket's; without it all in a row. Update 0.5, gather of 2 MB 4.5.
    [
        (True, 40 + 0.024 + 0.024 + 7.5 + 0.0105 + 5),
        (False, 40 + 2 * (0.036 + 7.5 + 0.0105) + 5),
    ],
)
def test_zero_overlaps_buckets_when_asked(overlap: bool, expected_ms: float) -> None:
    found = plan(load_method("zero", {"overlap_comm": overlap}), policy="zero", limit_bytes=1e6)
    assert milliseconds(found) == pytest.approx(expected_ms)


def test_zero_waits_for_the_bucket_before() -> None:
    # The second bucket's copy, 15 ms into a backward pass of 30, waits for the first's 75 ms.
    slow = ring_cluster(4, "0.02GB/s,0s")
    found = plan(load_method("zero", {"overlap_comm": True}), cluster=slow, policy="none")
    sums_ms = 1.0 / 0.02 * 1.5
    first_ms = 10 + 15 + 0.012 + 0.024 + sums_ms + 0.0105
    assert start_ms(found, "compress 0.1") == pytest.approx(first_ms)


def test_zero_shards_what_its_stage_says() -> None:
    world = MethodContext(4)
    one, two, three = (load_method("zero", {"stage": n}).kept_share(world) for n in (1, 2, 3))
    assert one == {"parameters": 1.0, "gradients": 1.0, "optimizer": 0.25}
    assert two == {"parameters": 1.0, "gradients": 0.25, "optimizer": 0.25}
    assert three == {"parameters": 0.25, "gradients": 0.25, "optimizer": 0.25}
    both = [load_method("zero", {"overlap_comm": each}) for each in (False, True)]
    memory = [method.memory_bytes([gradient(4000)], 4) for method in both]
    assert memory == [4 * (5e8 + 1000), 4 * (1e9 + 1000)]


@pytest.mark.parametrize(
    ("asked", "options", "width"),
    [
        ("fp32", {}, 4),
        ("amp-bf16", {}, 2),
        ("amp-bf16", {"reduce": "fp32"}, 4),
        ("fp32", {"reduce": "bf16"}, 2),
    ],
)
def test_zero_sends_gradients_as_they_are_made(
    asked: str, options: dict[str, object], width: int
) -> None:
    of = replace(model([250_000] * 2, [5.0, 5.0]), precision=asked)
    found = plan(load_method("zero", options), of, policy="zero")
    gathered = 4 if asked == "fp32" else 2
    assert found.sent_bytes == pytest.approx(0.75 * 500_000 * (2 * width + gathered))


def test_zero_counts_values_that_fill_a_bucket() -> None:
    # In 16 bits a bucket of 5e8 values is half as long, and no fuller.
    tensors = [replace(gradient(2 * 10**8, name=name), value_bytes=2.0) for name in "abcd"]
    found = fusion.load_policy("zero").fuse(tensors, context(None))
    assert [len(one.gradients) for one in found] == [2, 2]


# ZeRO-3


def test_zero_of_stage_3_gathers_layers_ahead_and_scatters_gradients() -> None:
    # Layer 0's gather to 3.75 ms; layer 1's, issued at its hook too, to 7.5: passes to 43.75, and
    # nothing is gathered again. Both layers are one bucket: copied 0.024, concatenated and divided
    # 0.028, scattered 4.5, its share added 0.011; a quarter of the update.
    found = plan(load_method("zero", {"stage": 3}), policy="zero")
    assert milliseconds(found) == pytest.approx(43.75 + 0.063 + 4.5 + 0.5)
    assert names(found, "all_gather") == ["all_gather 0.fetch 0", "all_gather 0.fetch 1"]
    assert found.calls == 3


def test_zero_of_stage_3_gathers_again_what_is_used_late() -> None:
    # With no reuse near, each layer is gathered for each pass; the kept tensor after the update.
    options = {"stage": 3, "max_reuse_distance": 0, "prefetch_bucket": 0}
    sizes = [250_000, 90_000, 200_000]
    found = plan(load_method("zero", options), model(sizes, [1.0] * 3), policy="zero")
    sent = 0.75 * 4 * (2 * 450_000 + 90_000 + 540_000)
    assert found.sent_bytes == pytest.approx(sent)
    assert names(found, "all_gather")[-1] == "all_gather 0.parameters"


def test_zero_of_stage_3_reduces_in_each_micro_batch() -> None:
    method = load_method("zero", {"stage": 3})
    one, three = plan(method, policy="zero"), plan(method, policy="zero", micro_batches=3)
    assert three.calls == 3 * one.calls
    with pytest.raises(RequestError, match="reduces them in each micro-batch"):
        plan(method, policy="zero", micro_batches=3, exchange_each=False)


# FSDP2: of 1 MB a gather or a scatter takes 3.75 ms; on the compute stream 12 us to copy gathered
# parameters out, 12 us to copy gradients in; 20.5 us to copy a share in.
IN, OUT, CAT, CALL = 0.0205, 0.012, 0.012, 3.75


def test_fsdp_copies_on_the_compute_stream_and_keeps_the_last_unit() -> None:
    found = plan(load_method("fsdp", {}))
    # Both gathers are under way at once: the second unit's is there before the first has run.
    forward_ms = IN + CALL + OUT + 5 + OUT + 5
    # The last unit stays gathered; the first is gathered beside it. Its scatter is exposed.
    backward_ms = 15 + CAT + OUT + 15 + CAT + CALL
    assert milliseconds(found) == pytest.approx(forward_ms + backward_ms + 0.5)
    assert names(found, "all_gather") == [
        "all_gather 0.unit 0",
        "all_gather 0.unit 1",
        "all_gather 0.again 1",
    ]
    assert found.calls == 5


def test_fsdp_with_kept_parameters_gathers_for_forward_only() -> None:
    found = plan(load_method("fsdp", {"shard": "grad"}))
    passes_ms = IN + CALL + OUT + 5 + OUT + 5 + 15 + CAT + 15 + CAT + CALL
    assert milliseconds(found) == pytest.approx(passes_ms + 0.5)
    assert found.calls == 4


def test_fsdp_gathers_at_most_two_units_ahead() -> None:
    # The third gather has the link at 7.5 but waits for the first unit's copy.
    found = plan(load_method("fsdp", {}), model([250_000] * 4, [10.0, 10.0, 1.0, 1.0]))
    assert start_ms(found, "all_gather 0.unit 1") == pytest.approx(IN + CALL)
    assert start_ms(found, "all_gather 0.unit 2") == pytest.approx(IN + 2 * CALL)
    # The fourth is issued behind the second unit's copy, when the first has run.
    second_ms = IN + CALL + OUT + 10 + OUT
    assert start_ms(found, "all_gather 0.unit 3") == pytest.approx(second_ms + IN)


def test_fsdp_waits_for_the_scatter_of_the_unit_before() -> None:
    # Units of 1 ms in backward, scatters of 3.75: gradients are copied one scatter behind.
    of = model([250_000] * 4, [20.0] * 4, 1.0)
    found = plan(load_method("fsdp", {"shard": "grad"}), of)
    copies = [start_ms(found, f"compress 0.sum {number}") for number in range(4)]
    scatters = [start_ms(found, f"reduce_scatter 0.sum {number}") for number in range(4)]
    for number in range(1, 4):
        assert copies[number] == pytest.approx(scatters[number - 1] + CALL)
        assert scatters[number] == pytest.approx(copies[number] + CAT)


def test_fsdp_issues_gathers_and_scatters_as_fully_shard_does() -> None:
    # Run for PyTorch 2.13 with torchtitan's units (a fake group of 8): forward e,0,1,2,3,head;
    # backward AG3 RShead AG2 RS3 AG1 RS2 AG0 RS1 AGe RS0 RSe.
    sizes = {"embed": 9, "h.0.w.w": 5, "h.1.w.w": 6, "h.2.w.w": 7, "h.3.w.w": 8, "head": 10}
    of = model([size * 1000 for size in sizes.values()], [1.0] * 6)
    named = [replace(one, name=name) for one, name in zip(of.gradients, sizes, strict=True)]
    found = plan(load_method("fsdp", {}), replace(of, gradients=tuple(named)), policy="block")
    unit_of = {4000.0 * size: name.removesuffix(".w.w") for name, size in sizes.items()}
    sent = [task for task in found.graph.tasks if task.stream == "communication"]
    order = [f"{task.name.split()[0]} {unit_of[task.size_bytes]}" for task in sent]
    forward = ["embed", "h.0", "h.1", "h.2", "h.3", "head"]
    scattered = ["head", "h.3", "h.2", "h.1", "h.0", "embed"]
    expected = [f"all_gather {unit}" for unit in forward]
    for gathered, unit in zip([*scattered[1:], ""], scattered, strict=True):
        expected += [f"all_gather {gathered}"] if gathered else []
        expected.append(f"reduce_scatter {unit}")
    assert order == expected


@pytest.mark.parametrize(
    ("options", "each", "calls", "share"),
    # Two units, the second kept from forward to backward. A gather or scatter of each is 0.75 MB.
    [
        ({}, None, 3 * 5, 3 * 5),
        ({}, False, 3 * 3 + 2, 3 * 3 + 2),
        ({"shard": "grad"}, None, 3 * 4, 3 * 4),
        ({"shard": "grad"}, False, 3 * 2 + 2, 3 * 2 + 2),
        ({"shard": "grad", "version": 1}, False, 2 + 2, 2 + 2),
        ({"version": 1}, False, 3 * 4 + 2, 3 * 4 + 2),
    ],
)
def test_fsdp_without_exchange_gathers_in_each_micro_batch(
    options: dict[str, object], each: bool | None, calls: int, share: int
) -> None:
    found = plan(load_method("fsdp", options), micro_batches=3, exchange_each=each)
    assert found.calls == calls
    assert found.sent_bytes == pytest.approx(0.75e6 * share)


def test_fsdp_without_exchange_keeps_gradients_whole() -> None:
    world = MethodContext(4, profile=model([250_000] * 2, [5.0, 5.0]))
    method = load_method("fsdp", {})
    assert method.state(world, each=True).whole_bytes == 0.0
    assert method.state(world, each=False).whole_bytes == 4.0


def test_fsdp_gathers_again_among_fewer() -> None:
    found = plan(load_method("fsdp", {"regather": 2}))
    assert found.sent_bytes == pytest.approx(1e6 * (4 * 0.75 + 0.5))
    world = MethodContext(4, profile=model([250_000] * 2, [5.0, 5.0]))
    assert load_method("fsdp", {"regather": 2}).state(world, each=True).gathered == 0.5
    with pytest.raises(RequestError, match="two or more ranks to regather that divide 4, not 3"):
        plan(load_method("fsdp", {"regather": 3}))


def test_fsdp_version_follows_the_software() -> None:
    of = {"model": "resnet50", "gpus": 4, "method": "fsdp"}
    for era, version in (("torch2", 2), ("torch1.12", 1), ("composer-2023", 1)):
        auto, asked = (
            predict(make_scenario(of | {"software": era, "options": options})).iteration_s
            for options in ({}, {"version": version})
        )
        assert auto == asked


# FSDP1


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
        ({"shard": "grad"}, 43.75 + 0.012 + 3.75 + 0.0105 + 0.5),
    ],
)
def test_fsdp1_gathers_units_around_both_passes(
    options: dict[str, object], expected_ms: float
) -> None:
    found = plan(load_method("fsdp", {"version": 1} | options))
    assert milliseconds(found) == pytest.approx(expected_ms)


def test_fsdp1_holds_two_units_at_a_time() -> None:
    # The third gather has the link at 7.5 but waits for the first layer's end, 3.75 + 10.
    found = plan(load_method("fsdp", {"version": 1}), model([250_000] * 3, [10.0, 1.0, 1.0]))
    assert start_ms(found, "all_gather 0.unit 1") == pytest.approx(3.75)
    assert start_ms(found, "all_gather 0.unit 2") == pytest.approx(13.75)


def test_fsdp1_leaves_what_no_block_holds_to_the_root() -> None:
    # Embedding and head are one unit: gathered first, not again, its gradients sent last.
    of = model([9000, 5000, 6000, 10_000], [1.0] * 4)
    labels = ("embed.w", "h.0.mlp.w", "h.1.mlp.w", "head.w")
    named = [replace(one, name=name) for one, name in zip(of.gradients, labels, strict=True)]
    found = plan(
        load_method("fsdp", {"version": 1}), replace(of, gradients=tuple(named)), policy="block"
    )
    sent = [
        (task.name.split()[0], task.size_bytes / 4000)
        for task in found.graph.tasks
        if task.kind == "communicate"
    ]
    gathers = [size for name, size in sent if name == "all_gather"]
    sums = [size for name, size in sent if name == "reduce_scatter"]
    assert gathers == [19, 5, 6, 6, 5] and sums == [6, 5, 19]


@pytest.mark.parametrize("shard", ["full", "grad"])
def test_fsdp1_sends_once_and_a_half_what_ssgd_sends(shard: str) -> None:
    found = plan(load_method("fsdp", {"shard": shard, "version": 1}))
    times = 1.5 if shard == "full" else 1.0
    assert found.sent_bytes == pytest.approx(times * plan(load_method("ssgd", {})).sent_bytes)


def test_fsdp1_on_two_gpus_divides_once() -> None:
    method = load_method("fsdp", {"version": 1})
    found = plan(method, cluster=ring_cluster(2, "1GB/s,1ms"))
    assert names(found, "compress") and not names(found, "decompress")


# Both


@pytest.mark.parametrize("shard", ["full", "grad"])
def test_fsdp_keeps_a_share_of_everything(shard: str) -> None:
    method = load_method("fsdp", {"shard": shard})
    assert set(method.kept_share(MethodContext(4)).values()) == {0.25}
    assert method.state(MethodContext(4), each=True).gathered == (shard == "grad")


@pytest.mark.parametrize(("shard", "gathered"), [("full", 60 + 20), ("grad", 95)])
def test_fsdp_holds_gathered_units_and_one_units_gradients(shard: str, gathered: int) -> None:
    # Blocks of 10, 20, 60 and 5 parameters: the largest neighbours are 60 and 20.
    sizes = {"h.3": 5, "h.2": 60, "h.1": 20, "h.0": 10}
    gradients = tuple(gradient(size, name=f"{name}.mlp.w") for name, size in sizes.items())
    profile = replace(model([1], [10.0]), gradients=gradients)
    method = load_method("fsdp", {"shard": shard})
    for sent_bytes in (4.0, 2.0):  # parameters are no narrower where gradients are sent so
        held = method.memory_in(MethodContext(4, profile=profile.sent_in(sent_bytes)))
        assert held == 4.0 * (60 + gathered)


@pytest.mark.parametrize(("gather", "width"), [("auto", 4), ("fp32", 4), ("bf16", 2), ("fp8", 1)])
@pytest.mark.parametrize(("shard", "gathers"), [("full", 1.5), ("grad", 1)])
def test_fsdp_gathers_as_wide_as_asked_and_holds_what_it_gathers(
    gather: str, width: int, shard: str, gathers: float
) -> None:
    # Two layers of 1 MB on 4 GPUs: each gather and each scatter sends three quarters. One of them
    # is not gathered again.
    method = load_method("fsdp", {"gather": gather, "shard": shard})
    found = plan(method)
    assert found.sent_bytes == pytest.approx(0.75 * 500_000 * (gathers * width + 4))
    # Both are one block: its gradients in fp32, and it as gathered.
    held = method.memory_in(MethodContext(4, profile=model([250_000] * 2, [5.0, 5.0])))
    assert held == 500_000 * (4 + width)


def test_fsdp_copies_less_of_narrow_parameters() -> None:
    # bf16 gathered and made, fp32 sent: 4 bytes a value out, 6 in, 8 of a quarter cast and copied.
    found = plan(load_method("fsdp", {"gather": "bf16"}))
    moved = {
        name: [task.duration_s for task in found.graph.tasks if task.name == name]
        for name in ("compress 0.sum 0", "decompress 0.unit 0", "compress 0.unit 0")
    }
    assert moved["compress 0.sum 0"] == [pytest.approx(10e-6 + 250_000 * 6 / 1e12)]
    assert moved["decompress 0.unit 0"] == [pytest.approx(10e-6 + 250_000 * 4 / 1e12)]
    assert moved["compress 0.unit 0"] == [pytest.approx(20e-6 + 62_500 * 10 / 1e12)]


@pytest.mark.parametrize(
    ("version", "expected_ms"),
    # Inside a node 1 us + 0.05 ms a call: one is exposed before forward, the sum after backward;
    # across copies half of each unit's 1 MB. Version 1 gathers again in backward, and divides 1 MB
    # (12 us), then the half (11 us); half an update.
    [
        (1, 0.051 + 10 + 0.051 + 30 + 0.012 + 0.051 + 0.011 + 1.0),
        (2, 0.021 + 0.051 + 2 * OUT + 10 + 30 + OUT + 2 * CAT + 0.051 + 1.0),
    ],
)
def test_fsdp_in_copies_gathers_inside_and_reduces_across(version: int, expected_ms: float) -> None:
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    cluster = Cluster(4, (2, 2), wire, bus)
    method = load_method("fsdp", {"shard": "hybrid", "version": version})
    found = plan(method, cluster=cluster)
    across_s = cluster.of((2, 2), "all_reduce", 0.5e6).seconds
    assert milliseconds(found) == pytest.approx(expected_ms + across_s / MS)
    # Of 1 MB a unit: half a gather or scatter in the node, half of it across, twice a half.
    inside = 6 if version == 1 else 5
    assert found.sent_bytes == pytest.approx(0.5e6 * inside + 2 * 0.5e6)
    given = load_method("fsdp", {"shard": "hybrid", "shards": 2})
    assert given.kept_share(MethodContext(4))["optimizer"] == 0.5


@given(copies=st.integers(1, 8), shards=st.integers(2, 8), version=st.sampled_from([1, 2]))
@settings(max_examples=25)
def test_fsdp_in_copies_keeps_its_formula(copies: int, shards: int, version: int) -> None:
    ranks = copies * shards
    method = load_method("fsdp", {"shard": "hybrid", "shards": shards, "version": version})
    found = plan(method, cluster=ring_cluster(ranks, "1GB/s,1us"))
    inside = 3 if version == 1 else 2.5
    share = inside * (1 - 1 / shards) + 2 * (1 / shards - 1 / ranks)
    assert found.sent_bytes == pytest.approx(2e6 * share)


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_fsdp_refuses_copies_of_other_sizes(shards: int) -> None:
    method = load_method("fsdp", {"shard": "hybrid", "shards": shards})
    with pytest.raises(RequestError, match=r"two or more shards that divide 4 GPUs, not "):
        plan(method)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"shards": 8}, "shards=8 has no effect with shard=full; set shard=hybrid"),
        ({"prefetch": "post"}, "set version=1"),
        ({"regather": 8, "version": 1}, "set version=auto or 2"),
        ({"regather": 8, "shard": "grad"}, "set shard=full"),
    ],
)
def test_fsdp_refuses_options_without_an_effect(options: dict[str, object], why: str) -> None:
    with pytest.raises(RequestError) as error:
        load_method("fsdp", options)
    assert why in str(error.value).replace("options.", "").replace(": ", "=", 1)


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=5),
    rate=st.sampled_from(["0.1GB/s,1us", "1GB/s,100us", "100GB/s,1us"]),
    asked=st.sampled_from(
        [
            ("fsdp", {}),
            ("fsdp", {"version": 1}),
            ("fsdp", {"shard": "grad"}),
            ("zero", {"stage": 3}),
            ("zero", {"stage": 2, "overlap_comm": True}),
            ("distributed_optimizer", {"overlap_grad_reduce": True, "overlap_param_gather": True}),
            ("hybrid_zero", {"overlap_broadcast": True}),
        ]
    ),
)
@settings(max_examples=40)
def test_no_sharded_method_is_faster_than_its_streams(
    sizes: list[int], rate: str, asked: tuple[str, dict[str, object]]
) -> None:
    # An iteration takes no less than any stream's work, and no more than all of it in a row.
    found = plan(
        load_method(*asked), model(sizes, [1.0] * len(sizes)), ring_cluster(4, rate), "none"
    )
    spent: dict[str, float] = {}
    for task in found.graph.tasks:
        spent[task.stream] = spent.get(task.stream, 0.0) + float(task.duration_s)
    took_s = milliseconds(found) * MS
    assert max(spent.values()) * (1 - 1e-9) <= took_s <= sum(spent.values()) * (1 + 1e-9)
