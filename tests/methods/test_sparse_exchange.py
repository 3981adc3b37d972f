"""Methods that merge selections on the way or leave out zeros: by hand and by law."""

from __future__ import annotations

from math import ceil, lcm
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import Compute, MethodContext, Send
from perfsim.methods.building.sparsify import merged_pairs, served
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import bucket, gradient, hand_device, profile, ring_cluster
from support.stages import kernels, moved, of, plans, sends, time_s

TWO_NODES = Cluster(8, (4, 4), custom_link("1GB/s,1ms", "x"), custom_link("10GB/s,1us", "x"))

# gTop-k.


def test_gtopk_goes_up_the_tree_and_down() -> None:
    stages = of("gtopk", 10_000)
    # 10 values of 10,000: 80 bytes, twice through the tree; three merges of 20 pairs on the way.
    assert sends(stages) == [("broadcast", 80.0)] * 2
    merges = [stage for stage in stages if getattr(stage, "stream", "") == "communication"][1]
    assert isinstance(merges, Compute)
    assert [kernel.name for kernel in merges.kernels] == ["elementwise", "topk_new"] * 3
    # 13 passes over the gradient, Top-k (7 where unknown), 3 over the values kept.
    assert moved(kernels(stages, "compress")) == 4 * (20 * 10_000 + 3 * 10)


def test_gtopk_pays_the_latency_of_each_round_where_it_runs() -> None:
    (send, _) = (stage for stage in of("gtopk", 10**6) if isinstance(stage, Send))
    cost = TWO_NODES.of(send.group, send.collective, send.size_bytes, send.algorithm)
    # 8000 bytes: two rounds inside the node, one between the nodes (1 GB/s, 1 ms).
    inside, between = 1e-6 + 8000e-10, 1e-3 + 8000e-9
    assert cost.seconds == pytest.approx(2 * inside + between, rel=1e-9)
    assert cost.sent_bytes == pytest.approx(7 / 8 * 8000)


@pytest.mark.parametrize(("ranks", "fine"), [(1, True), (2, True), (6, False), (8, True)])
def test_gtopk_pairs_all_ranks_or_refuses(ranks: int, fine: bool) -> None:
    assert (load_method("gtopk", {}).refusal(MethodContext(ranks)) == "") is fine


def test_gtopk_wins_over_topk_only_on_many_ranks() -> None:
    # On equal hops Top-k's gathers send 8 k (P-1), the tree 2 log2 P times 8 k: 24 k against
    # 32 k at 4 ranks, 248 k against 80 k at 32 (latency aside).
    def network_s(name: str, ranks: int) -> float:
        [plan] = plans(
            load_method(name, {"density": 0.1}), ring_cluster(ranks, "1GB/s,1ns"), [10**7]
        )
        tasks = zip(plan.graph.tasks, plan.charges, strict=True)
        return sum(float(task.duration_s) for task, charge in tasks if charge.cause == "network")

    for ranks, ratio in ((4, 32 / 24), (32, 80 / 248)):
        assert network_s("gtopk", ranks) / network_s("topk", ranks) == pytest.approx(ratio, 1e-3)


def test_old_selection_merges_with_it_too() -> None:
    assert [kernel.name for kernel in merged_pairs(5, "old")] == ["elementwise", "topk_old"]
    assert {kernel.name for kernel in kernels(of("gtopk", 999, kernel="old"), "decompress")} >= {
        "topk_old"
    }


# Ok-Topk.


def test_oktopk_exchanges_regions_then_the_global_choice() -> None:
    # 100 of 10,000 values on 8 ranks; sizes are 4 bytes a rank.
    small, pairs = 4 * 8.0, 8 * 100.0
    found = sends(of("oktopk", 10_000, iteration=1))
    assert found == [
        ("all_to_all", small),
        ("all_to_all", pairs),
        ("all_gather", small),
        ("all_gather", pairs),
    ]


def test_oktopk_gathers_all_sums_where_thresholds_are_found() -> None:
    sizes = dict(sends(of("oktopk", 10_000, iteration=32)))
    assert sizes["all_gather"] == 8 * 800.0  # 100 from each of 8 ranks, none in common
    assert dict(sends(of("oktopk", 10_000, 256, 32)))["all_gather"] == 8 * 10_000.0
    names = [kernel.name for kernel in kernels(of("oktopk", 10_000, iteration=32), "compress")]
    assert names.count("topk_new") == 1
    plain = [kernel.name for kernel in kernels(of("oktopk", 10_000, iteration=1), "compress")]
    assert "topk_new" not in plain


def test_oktopk_makes_regions_equal_now_and_then() -> None:
    assert sends(of("oktopk", 10_000, iteration=64))[0] == ("all_reduce", 4 * 7.0)
    assert sends(of("oktopk", 10_000, iteration=32))[0][0] == "all_to_all"


@given(threshold=st.integers(1, 200), region=st.integers(1, 200))
def test_oktopk_rounds_are_the_period(threshold: int, region: int) -> None:
    options = {"threshold_interval": threshold, "region_interval": region}
    rounds = load_method("oktopk", options).rounds()
    period = lcm(threshold, region)
    assert sum(one.count for one in rounds) == period

    def often(interval: int) -> float:
        return sum(one.count for one in rounds if one.iterations[0] % interval == 0)

    assert often(threshold) == period / threshold and often(region) == period / region


@given(ranks=st.integers(2, 512), elements=st.integers(10_000, 10**6))
def test_oktopk_sends_less_than_six_k(ranks: int, elements: int) -> None:
    k = ceil(elements / 100)
    pairs = [size for _, size in sends(of("oktopk", elements, ranks, 1)) if size > 4 * ranks]
    # The paper counts values and places of 4 bytes each: 6 k (P-1)/P.
    assert sum(pairs) * (ranks - 1) / ranks <= 4 * 6 * k


# OmniReduce.


def test_omnireduce_of_dense_gradients_is_a_ring() -> None:
    cluster = ring_cluster(8, "1GB/s,1ns")
    ring_s = cluster.cost("all_reduce", 1024e3, "ring").seconds
    # 1000 blocks of 256 values and one place.
    found = time_s(cluster, of("omnireduce", 256_000))
    assert found == pytest.approx(ring_s * 257 / 256, rel=1e-4)


@pytest.mark.parametrize(
    ("union", "share"),
    # Half of the blocks on 8 ranks: 1 - 1/2**8 of all places, the same half, or all.
    [("random", 1 - 0.5**8), ("same", 0.5), ("apart", 1.0)],
)
def test_omnireduce_returns_the_union(union: str, share: float) -> None:
    stages = of("omnireduce", 256_000, block_density=0.5, union=union)
    sizes = dict(sends(stages))
    assert sizes == pytest.approx({"push": 0.5 * 1028e3, "pull": share * 1028e3})


@pytest.mark.parametrize(("density", "union"), [(1.0, "same"), (0.25, "same"), (0.25, "apart")])
def test_omnireduce_on_own_machines_takes_the_union_in(density: float, union: str) -> None:
    cluster = ring_cluster(4, "1GB/s,1ns")
    options: dict[str, Any] = {"block_density": density, "union": union}
    came = 1.0 if union == "apart" else density
    # Every block of the union comes in over a rank's NIC, at 1 GB/s.
    found = time_s(cluster, of("omnireduce", 256_000, 4, aggregators="dedicated", **options))
    assert found == pytest.approx(came * 1.028e-3, rel=1e-4)


@pytest.mark.parametrize(
    ("union", "sent", "back"),
    # A quarter of the blocks on each of 4 GPUs a node, 2 nodes: what the node's sum has, and all.
    [
        ("random", 1 - 0.75**4, 1 - 0.75**8),
        ("same", 0.25, 0.25),
        ("apart", 1.0, 1.0),
    ],
)
def test_omnireduce_sums_a_node_first(union: str, sent: float, back: float) -> None:
    method = load_method("omnireduce", {"block_density": 0.25, "union": union})
    stages = method.stages(bucket(gradient(256_000)), MethodContext(8, 2, 4), 0)
    found = [(one.collective, one.group) for one in stages if isinstance(one, Send)]
    assert found == [
        ("reduce", "node"),
        ("push", "leaders"),
        ("pull", "leaders"),
        ("broadcast", "node"),
    ]
    sizes = dict(sends(stages))
    assert sizes["reduce"] == sizes["broadcast"] == 1024e3
    assert (sizes["push"], sizes["pull"]) == pytest.approx((sent * 1028e3, back * 1028e3))
    # The marks are on the sum: one pass, and zeros where it has none; 2 into the buffer.
    assert moved(kernels(stages, "compress")) == pytest.approx(4 * 256_000 * (4 - sent))


def test_omnireduce_takes_fp32_values_and_a_nodes_sum_is_as_wide() -> None:
    wide = gradient((1000, 256))
    method, world = load_method("omnireduce", {}), MethodContext(8, 2, 4)
    found = [method.stages(bucket(one), world, 0) for one in (wide, wide.sent_in(2.0))]
    assert sends(found[0]) == sends(found[1])


def test_omnireduce_on_one_node_is_nccl_and_apart_as_on_one_gpu_a_node() -> None:
    whole = bucket(gradient(256_000))
    alone = load_method("omnireduce", {}).stages(whole, MethodContext(4, 1, 4), 0)
    assert sends(alone) == [("all_reduce", 1024e3)]
    apart = load_method("omnireduce", {"inside": "apart"})
    assert sends(apart.stages(whole, MethodContext(8, 2, 4), 0)) == sends(of("omnireduce", 256_000))


def test_omnireduce_blocks_are_whole() -> None:
    assert sends(of("omnireduce", 100, block_size=64))[0] == ("push", 2 * (4 * 64 + 4.0))
    assert load_method("omnireduce", {}).memory_bytes([gradient(1000)], 8) == 2**30 + 4


def test_omnireduce_marks_blocks_and_zeroes_those_of_zeros() -> None:
    stages = of("omnireduce", 1000, block_density=0.25)
    # And 2 passes into the buffer; 2 out of it.
    assert moved(kernels(stages, "compress")) == 4 * 1000 * (1.75 + 2)
    assert moved(kernels(stages, "decompress")) == 4 * 1000 * 2


def test_omnireduce_is_through_with_a_bucket_before_the_next() -> None:
    # 2 ranks, blocks of one value, 250,000 of them (2 MB with places): 1 ms + 1 ms a way; marks
    # 11 us, which run ahead, copies of 2 + 80 us, the second bucket's once the first is back.
    [plan] = schedule(
        profile([250_000] * 2, [0.01] * 2, forward_s=0.01),
        load_method("omnireduce", {"block_size": 1}),
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(2, "1GB/s,1ms"),
    )
    each_ms = 0.082 + 2 + 2 + 0.082
    assert float(run(plan).period_s) * 1e3 == pytest.approx(20 + 0.011 + 2 * each_ms)


def test_ranks_of_a_node_share_its_nic_to_the_servers() -> None:
    (there, _) = served(1e6, 1e6, MethodContext(8, 2, 4))
    # Four ranks a node, half of each message to the other node: 4 x 0.5 MB at 1 GB/s.
    cost = TWO_NODES.of(there.group, there.collective, there.size_bytes)
    assert cost.seconds == pytest.approx(1e-3 + 2e-3, rel=1e-9)
    assert served(1.0, 1.0, MethodContext(4, 1, 4))[0].group == "all"


# Options of these and of methods with a cheaper selection.


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("gtopk", "density", 0),
        ("oktopk", "threshold_interval", 0),
        ("omnireduce", "block_density", 1.5),
        ("omgs", "merge", "maybe"),
        ("dragonn", "choose", "luck"),
        ("dct", "lifespan", 0),
    ],
)
def test_options_are_checked(name: str, option: str, value: object) -> None:
    with pytest.raises(RequestError, match=option):
        load_method(name, {option: value})
