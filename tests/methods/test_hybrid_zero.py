"""InternEvo's ZeRO-1: buckets one behind, whole tensors dealt out and broadcast, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from support.builders import gradient, ring_cluster
from support.layered import MS, context, milliseconds, model, names, plan, start_ms

NAME = "hybrid_zero"
# Two layers of 1 MB on 4 GPUs: 10 ms forward, 30 backward, an update of 2. To flatten 1 MB or copy
# it back takes 12 us, an all-reduce of 1 MB 7.5 ms.


def broadcast_ms(size_bytes: float, ranks: int = 4) -> float:
    """Return the time of a broadcast [ms]."""
    return ring_cluster(ranks, "1GB/s,1ms").cost("broadcast", size_bytes).seconds / MS


def test_owners_of_whole_tensors_broadcast_them_in_turn() -> None:
    found = plan(load_method(NAME, {}), policy="none")
    # Two of the four ranks own a tensor: half of an update, two broadcasts.
    # The first bucket is copied back beside the second's all-reduce.
    exposed_ms = 7.5 + 0.012
    passes_ms = 40 + 2 * 0.012
    assert milliseconds(found) == pytest.approx(passes_ms + exposed_ms + 1 + 2 * broadcast_ms(1e6))
    assert names(found, "broadcast") == ["broadcast 0.owner 0", "broadcast 0.owner 1"]


def test_computation_waits_for_a_bucket_when_the_next_one_goes() -> None:
    # All-reduces of 75 ms: the first is awaited 15 ms later, when the second's pass is over.
    found = plan(load_method(NAME, {}), cluster=ring_cluster(4, "0.02GB/s,0s"), policy="none")
    first_ms = 10 + 15 + 0.012
    assert start_ms(found, "all_reduce 0.0") == pytest.approx(first_ms)
    assert start_ms(found, "decompress 0.back 0") == pytest.approx(first_ms + 75)
    assert start_ms(found, "all_reduce 0.1") == pytest.approx(first_ms + 75)


def test_without_overlap_all_is_reduced_after_backward() -> None:
    found = plan(load_method(NAME, {"overlap": False}), policy="none")
    assert start_ms(found, "all_reduce 0.0") == pytest.approx(40 + 0.012)


def test_broadcasts_beside_forward_hold_up_their_layers_alone() -> None:
    found = plan(load_method(NAME, {"overlap_broadcast": True}), policy="none")
    each_ms = broadcast_ms(1e6)
    # The second layer's comes while the first computes 5 ms.
    forward_ms = each_ms + 5 + max(each_ms - 5, 0.0) + 5
    expected_ms = forward_ms + 30 + 2 * 0.012 + 7.5 + 0.012 + 1
    assert milliseconds(found) == pytest.approx(expected_ms)


@pytest.mark.parametrize(
    ("sizes", "ranks", "in_order", "most", "owners"),
    [
        # Dealt from the largest: 7, 6 | 5 to the second, 4 to the first, 1 to the tie's first.
        ([1, 4, 5, 6, 7], 2, False, 12, 2),
        ([10, 1, 1, 1], 4, False, 10, 4),
        ([10, 1, 1], 8, False, 10, 3),
        # In order, the next rank takes over with the tensor that passes an even part.
        ([5, 5, 5, 5], 2, True, 10, 2),
        ([1, 9, 1, 9], 2, True, 10, 2),
        ([3, 3, 3, 3, 8], 2, True, 11, 2),
    ],
)
def test_tensors_are_dealt_out_whole(
    sizes: list[int], ranks: int, in_order: bool, most: int, owners: int
) -> None:
    of = model(sizes, [1.0] * len(sizes))
    method = load_method(NAME, {"overlap_broadcast": in_order})
    share = method.kept_share(MethodContext(ranks, profile=of))["optimizer"]
    assert share == pytest.approx(most / sum(sizes))
    found = plan(method, of, cluster=ring_cluster(ranks, "1GB/s,1us"))
    assert len(names(found, "broadcast")) == owners


@given(sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=6), ranks=st.integers(2, 9))
@settings(max_examples=25)
def test_what_is_broadcast_is_the_model(sizes: list[int], ranks: int) -> None:
    of = model(sizes, [1.0] * len(sizes))
    for in_order in (False, True):
        method = load_method(NAME, {"overlap_broadcast": in_order})
        found = plan(method, of, cluster=ring_cluster(ranks, "1GB/s,1us"))
        sent = [task.size_bytes for task in found.graph.tasks if task.name.startswith("broadcast")]
        assert sum(sent) == 4 * sum(sizes)
        assert len(sent) <= min(ranks, len(sizes))
        share = method.kept_share(MethodContext(ranks, profile=of))["optimizer"]
        assert share == pytest.approx(max(sent) / sum(sent))


def test_half_precision_sends_half_and_casts_what_is_owned() -> None:
    of = replace(model([250_000] * 2, [5.0, 5.0]), precision="amp-bf16")
    found = plan(load_method(NAME, {}), of, policy="none")
    # Flattened and copied back 11 us; 0.5 MB sums and broadcasts; 20 bytes a value of the owned
    # 250,000 before the update, 6 after it.
    expected_ms = 40 + 3 * 0.011 + 6.75 + 0.015 + 1 + 0.0115 + 2 * broadcast_ms(0.5e6)
    assert milliseconds(found) == pytest.approx(expected_ms)


def test_groups_share_an_optimizer_and_all_share_gradients() -> None:
    method = load_method(NAME, {"shards": 2})
    found = plan(method)
    groups = {task.name.split()[0]: task.group for task in found.graph.tasks if task.size_bytes}
    assert groups == {"all_reduce": "all", "broadcast": 2}
    assert found.sent_bytes == pytest.approx(2e6 * (2 * 0.75 + 0.5))
    with pytest.raises(RequestError, match="two or more shards that divide 4 GPUs, not 3"):
        plan(load_method(NAME, {"shards": 3}))


def test_a_bucket_waits_for_the_tensor_that_does_not_fit() -> None:
    half = 2**28
    tensors = [gradient(half, name=name) for name in "abcd"]
    tensors = [one.at(0.1 * (place + 1)) for place, one in enumerate(tensors)]
    found = fusion.load_policy("hybrid_zero").fuse(tensors, context(None))
    assert [len(one.gradients) for one in found] == [2, 2]
    assert [one.ready_s for one in found] == [pytest.approx(0.3), 1.0]
    assert fusion.load_policy("hybrid_zero").fuse([], context(None)) == []


def test_memory_is_two_buckets_or_the_model() -> None:
    method = load_method(NAME, {})
    assert method.memory_bytes([gradient(1000)], 4) == 4000
    assert method.memory_bytes([gradient(2**31)], 4) == 4.0 * 2**30
