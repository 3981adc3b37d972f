"""Methods that shard the model, ZeRO and FSDP: what is sent, kept and waited for, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from support.builders import gradient, ring_cluster
from support.layered import MS, milliseconds, model, names, plan, start_ms


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


@pytest.mark.parametrize(("sharding", "gathered"), [("full_shard", 60 + 20), ("shard_grad_op", 0)])
def test_fsdp_holds_gathered_units_and_one_units_gradients(sharding: str, gathered: int) -> None:
    # Blocks of 10, 20, 60 and 5 parameters: the largest neighbours are 60 and 20.
    sizes = {"h.3": 5, "h.2": 60, "h.1": 20, "h.0": 10}
    gradients = tuple(gradient(size, name=f"{name}.mlp.w") for name, size in sizes.items())
    profile = replace(model([1], [10.0]), gradients=gradients)
    method = load_method("fsdp", {"sharding": sharding})
    held = method.memory_in(MethodContext(4, profile=profile))
    assert held == 4.0 * (60 + gathered)


@pytest.mark.parametrize(("gather", "width"), [("auto", 4), ("fp32", 4), ("bf16", 2), ("fp8", 1)])
@pytest.mark.parametrize(("sharding", "gathers"), [("full_shard", 2), ("shard_grad_op", 1)])
def test_fsdp_gathers_as_wide_as_asked_and_holds_what_it_gathers(
    gather: str, width: int, sharding: str, gathers: int
) -> None:
    # Two layers of 1 MB on 4 GPUs: each gather and each scatter sends three quarters.
    method = load_method("fsdp", {"gather": gather, "sharding": sharding})
    found = plan(method)
    assert found.sent_bytes == pytest.approx(0.75 * 500_000 * (gathers * width + 4))
    # Both are one block: its gradients in fp32, and it as gathered where it goes after forward.
    held = method.memory_in(MethodContext(4, profile=model([250_000] * 2, [5.0, 5.0])))
    assert held == 500_000 * (4 + (width if sharding == "full_shard" else 0))


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


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_fsdp_refuses_copies_of_other_sizes(shards: int) -> None:
    with pytest.raises(RequestError, match=rf"two or more shards that divide 4 GPUs, not {shards}"):
        plan(load_method("fsdp", {"shards": shards}))
