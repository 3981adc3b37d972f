"""Megatron-LM's data parallelism: its passes, buckets and gathers, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.by_size import one_by_one
from perfsim.errors import RequestError
from perfsim.fusion.buckets import FusionContext
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from support.builders import gradient, ring_cluster
from support.layered import MS, milliseconds, model, names, plan, start_ms

NAME = "distributed_optimizer"
# Two layers of 1 MB on 4 GPUs: 10 ms forward, 30 backward, an update of 2. A pass over 1 MB takes 1
# us, a launch 10; a scatter or gather of 1 MB 3.75 ms, of 2 MB 4.5.
ZEROS_MS = 0.012
# A quarter's norm, and its scaling: half a megabyte read, read and written.
CLIP_MS = 0.0105 + 0.011
STEP_MS = ZEROS_MS + CLIP_MS


@pytest.mark.parametrize(
    ("options", "passes_ms"),
    # Scaled (2 MB twice) and its norm taken (once), a launch each.
    [
        ({}, 0.014 + 0.012),
        ({"check_nan": False}, 0.014),
        ({"average_in_collective": True}, 0.012),
        ({"average_in_collective": True, "check_nan": False}, 0.0),
    ],
)
def test_one_buffer_is_scaled_checked_and_scattered(
    options: dict[str, object], passes_ms: float
) -> None:
    found = plan(load_method(NAME, options), policy="whole")
    assert milliseconds(found) == pytest.approx(40 + passes_ms + 4.5 + 0.5 + STEP_MS + 4.5)
    assert [task.name.split()[0] for task in found.graph.tasks if task.kind == "communicate"] == [
        "reduce_scatter",
        "all_gather",
    ]


def test_gradients_are_not_clipped_where_asked() -> None:
    method = load_method(NAME, {"clip": False})
    found = plan(method, policy="whole")
    assert milliseconds(found) == pytest.approx(40 + 0.026 + 4.5 + 0.5 + ZEROS_MS + 4.5)


def test_plain_data_parallelism_reduces_all_and_updates_all() -> None:
    found = plan(load_method(NAME, {"sharded": False}), policy="whole")
    whole_ms = ZEROS_MS + 0.012 + 0.014
    assert milliseconds(found) == pytest.approx(40 + 0.026 + 9.0 + 2 + whole_ms)
    assert names(found, "all_gather") == []


def test_buckets_go_beside_backward_and_come_beside_forward() -> None:
    options = {"overlap_grad_reduce": True, "overlap_param_gather": True}
    found = plan(load_method(NAME, options), policy="none")
    # The first layer's gather is exposed, the second's begins behind it, beside that layer's 5 ms.
    forward_ms = STEP_MS + 3.75 + 5 + 5
    # Each bucket's passes, 12 + 11 us, hold up the backward pass; the last scatter is exposed.
    backward_ms = 15 + 0.023 + 15 + 0.023 + 3.75
    assert milliseconds(found) == pytest.approx(forward_ms + backward_ms + 0.5)
    assert start_ms(found, "all_gather 0.parameters 1") == pytest.approx(STEP_MS + 3.75)


def test_micro_batches_multiply_no_traffic() -> None:
    options = {"overlap_grad_reduce": True, "overlap_param_gather": True}
    method = load_method(NAME, options)
    one, three = plan(method), plan(method, micro_batches=3)
    assert (three.calls, three.sent_bytes) == (one.calls, one.sent_bytes)
    # The first micro-batch alone waits for gathers.
    assert milliseconds(three) == pytest.approx(milliseconds(one) + 2 * 40)
    with pytest.raises(RequestError, match="after the last micro-batch"):
        plan(method, micro_batches=3, exchange_each=True)


def test_half_precision_gathers_half_and_casts_the_share() -> None:
    of = replace(model([250_000] * 2, [5.0, 5.0]), precision="amp-bf16")
    found = plan(load_method(NAME, {}), of, policy="whole")
    assert found.sent_bytes == pytest.approx(0.75 * 500_000 * (4 + 2))
    # 125,000 values of 6 bytes; gathered 1 MB.
    cast_ms = 0.01075
    assert milliseconds(found) == pytest.approx(40 + 0.026 + 4.5 + 0.5 + STEP_MS + cast_ms + 3.75)


@given(instances=st.integers(1, 4), shards=st.integers(2, 8))
@settings(max_examples=15)
def test_instances_scatter_inside_and_reduce_across(instances: int, shards: int) -> None:
    ranks = instances * shards
    method = load_method(NAME, {"instances": instances})
    found = plan(method, cluster=ring_cluster(ranks, "1GB/s,1us"), policy="whole")
    inside, across = 2 * (shards - 1) / shards, 2 * (instances - 1) / ranks
    assert found.sent_bytes == pytest.approx(2e6 * (inside + across))
    assert method.kept_share(MethodContext(ranks))["optimizer"] == 1 / shards


def test_instances_are_neighbours() -> None:
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    cluster = Cluster(4, (2, 2), wire, bus)
    found = plan(load_method(NAME, {"instances": 2}), cluster=cluster, policy="whole")
    # In a node 1 us + 0.1 ms for 2 MB; half of it across.
    across_ms = cluster.of((2, 2), "all_reduce", 1e6).seconds / MS
    # A half's norm and scaling.
    step_ms = ZEROS_MS + 0.011 + 0.012
    assert milliseconds(found) == pytest.approx(
        40 + 0.026 + 0.101 + across_ms + 1 + step_ms + 0.101
    )


@pytest.mark.parametrize("instances", [3, 4])
def test_instances_of_other_sizes_are_refused(instances: int) -> None:
    with pytest.raises(RequestError, match="instances of two or more ranks that divide 4 GPUs"):
        plan(load_method(NAME, {"instances": instances}), policy="whole")


def test_gathers_ahead_need_reductions_beside_backward() -> None:
    with pytest.raises(RequestError, match="set overlap_grad_reduce=true"):
        load_method(NAME, {"overlap_param_gather": True})


def test_gradients_are_as_wide_as_they_are_sent() -> None:
    wide = model([1000], [1.0])
    narrow = replace(wide, gradients=tuple(replace(g, value_bytes=2.0) for g in wide.gradients))
    for of, width in ((wide, 4.0), (narrow, 2.0)):
        state = load_method(NAME, {}).state(MethodContext(4, profile=of), each=False)
        assert load_method(NAME, {}).keeps_half and state.gradient_bytes == width


@pytest.mark.parametrize(
    ("ranks", "sizes", "found"),
    [
        (1, [30, 9, 1, 39, 2, 41, 5], [3, 2, 1, 1]),
        (40, [30, 9, 1], [3]),
        (64, [60, 3, 1, 64, 1], [3, 1, 1]),
    ],
)
def test_a_bucket_closes_with_the_tensor_that_reaches_the_limit(
    ranks: int, sizes: list[int], found: list[int]
) -> None:
    tensors = [gradient(size * 10**6, name=str(place)) for place, size in enumerate(sizes)]
    asked = FusionContext(None, 1.0, lambda one: one.size_bytes, lambda _: one_by_one(float))
    buckets = fusion.load_policy("megatron").fuse(
        tensors, replace(asked, count_ranks=lambda: ranks)
    )
    assert [len(one.gradients) for one in buckets] == found


def test_the_policy_follows_the_overlap() -> None:
    assert load_method(NAME, {}).default_fusion() == "whole"
    assert load_method(NAME, {"overlap_grad_reduce": True}).default_fusion() == "megatron"
