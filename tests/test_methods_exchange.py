"""Methods that merge selections, hash them or leave out zeros: by hand and by law."""

from __future__ import annotations

from math import ceil, lcm
from typing import Any

import pytest
from builders import bucket, gradient, hand_device, profile, ring_cluster
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.cluster.cluster import Cluster
from perfsim.cluster.link import custom_link
from perfsim.errors import RequestError
from perfsim.fusion.bucket import Bucket
from perfsim.kernel import Kernel
from perfsim.merging import merged, merged_pairs, served
from perfsim.method import Compute, Method, Send, World
from perfsim.methods import load_method
from perfsim.plan import Plan
from perfsim.run import run
from perfsim.schedule import schedule
from perfsim.stage import Stage

MS = 1e-3
TWO_NODES = Cluster(8, (4, 4), custom_link("1GB/s,1ms", "x"), custom_link("10GB/s,1us", "x"))


def sends(stages: list[Stage]) -> list[tuple[str, float]]:
    return [(stage.collective, stage.size_bytes) for stage in stages if isinstance(stage, Send)]


def kernels(stages: list[Stage], kind: str) -> list[Kernel]:
    return [
        kernel
        for stage in stages
        if isinstance(stage, Compute) and stage.kind == kind
        for kernel in stage.kernels
    ]


def moved(found: list[Kernel]) -> float:
    return sum(kernel.moved_bytes for kernel in found)


def of(name: str, elements: int, ranks: int = 8, iteration: int = 0, **options: Any) -> list[Stage]:
    method = load_method(name, options)
    return method.stages(bucket(gradient((elements, 1))), World(ranks), iteration)


def plans(
    method: Method, cluster: Cluster, sizes: list[int], ready_s: list[float] | None = None
) -> list[Plan]:
    return schedule(
        profile(list(sizes), ready_s or [0.01] * len(sizes), forward_s=0.01),
        method,
        fusion.load(method.default_fusion()).fuse,
        hand_device(),
        cluster,
        algorithm="ring",
    )


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
    assert (load_method("gtopk", {}).refusal(World(ranks)) == "") is fine


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


def time_s(cluster: Cluster, stages: list[Stage]) -> float:
    return sum(
        cluster.served(stage.servers)
        .of(stage.group, stage.collective, stage.size_bytes, stage.algorithm)
        .seconds
        for stage in stages
        if isinstance(stage, Send)
    )


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
    stages = method.stages(bucket(gradient(256_000)), World(8, 2, 4), 0)
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


def test_omnireduce_on_one_node_is_nccl_and_apart_as_on_one_gpu_a_node() -> None:
    whole = bucket(gradient(256_000))
    alone = load_method("omnireduce", {}).stages(whole, World(4, 1, 4), 0)
    assert sends(alone) == [("all_reduce", 1024e3)]
    apart = load_method("omnireduce", {"inside": "apart"})
    assert sends(apart.stages(whole, World(8, 2, 4), 0)) == sends(of("omnireduce", 256_000))


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
        fusion.load("none").fuse,
        hand_device(),
        ring_cluster(2, "1GB/s,1ms"),
    )
    each_ms = 0.082 + 2 + 2 + 0.082
    assert float(run(plan).period_s) * 1e3 == pytest.approx(20 + 0.011 + 2 * each_ms)


def test_ranks_of_a_node_share_its_nic_to_the_servers() -> None:
    (there, _) = served(1e6, 1e6, World(8, 2, 4))
    # Four ranks a node, half of each message to the other node: 4 x 0.5 MB at 1 GB/s.
    cost = TWO_NODES.of(there.group, there.collective, there.size_bytes)
    assert cost.seconds == pytest.approx(1e-3 + 2e-3, rel=1e-9)
    assert served(1.0, 1.0, World(4, 1, 4))[0].group == "all"


# OMGS.


def three(ready_s: tuple[float, ...] = (1.0, 2.0, 3.0)) -> list[Bucket]:
    return [bucket(gradient(100, time, str(time))) for time in ready_s]


@pytest.mark.parametrize(("alpha", "groups"), [(0.85, 3), (1.1, 1)])
def test_tensors_are_merged_while_waiting_is_cheaper_than_latency(
    alpha: float, groups: int
) -> None:
    # A gather takes alpha + n/1000: the link is free when the next tensor comes, 1 later, so that
    # merging pays if alpha > 1.
    assert len(merged(three(), lambda n: 0.0, lambda n: alpha + n / 1000)) == groups


def test_a_busy_link_makes_merging_free() -> None:
    # The gather of the first takes 5, until 6; the second would wait from 2 on anyway, and takes
    # the third, ready at 3, with it though that saves 0.1 only.
    def gather_s(elements: int) -> float:
        return 0.1 + 4.9 * elements / 100

    assert [len(one.gradients) for one in merged(three(), lambda n: 0.0, gather_s)] == [1, 2]


def test_selection_that_costs_more_together_keeps_tensors_apart() -> None:
    # Selecting n costs (n/100)**2: 1 alone, 4 for two, so merging delays by 1 + 2.
    def select_s(elements: int) -> float:
        return (elements / 100) ** 2

    assert len(merged(three()[:2], select_s, lambda n: 2.9 + n)) == 2
    assert len(merged(three()[:2], select_s, lambda n: 3.1 + n)) == 1


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=30),
    alpha=st.floats(0, 1),
    floor=st.floats(0, 1),
)
def test_merging_keeps_all_tensors_in_order(sizes: list[int], alpha: float, floor: float) -> None:
    each = [bucket(gradient(n, 0.01 * i, f"t{i}")) for i, n in enumerate(sizes)]
    found = merged(each, lambda n: floor + 1e-9 * n, lambda n: alpha + 1e-8 * n)
    assert [g.name for one in found for g in one.gradients] == [f"t{i}" for i in range(len(sizes))]
    assert all(one.ready_s == one.gradients[-1].ready_s for one in found)


def test_omgs_merges_by_this_network_and_gpu() -> None:
    sizes, ready_s = [1000] * 6, [0.01 + 0.001 * step for step in range(6)]

    def calls(link: str, **options: object) -> int:
        [plan] = plans(load_method("omgs", options), ring_cluster(4, link), sizes, ready_s)
        return plan.calls

    # Two gathers of three hops: 6 hops; 1 ms between tensors, 10 us a launch.
    assert calls("1GB/s,1ns") == calls("1GB/s,1ms", merge=False) == 12
    assert calls("1GB/s,1ms") < 12
    [plan] = plans(load_method("omgs", {}), ring_cluster(1, "1GB/s,1ms"), sizes, ready_s)
    assert plan.calls == 0


def test_omgs_knows_how_long_a_gather_takes() -> None:
    # 1000 pairs of each of 4 ranks take 24 ms at 1 MB/s, tensors come 1 ms apart: the first goes
    # alone, and the others wait for it together.
    sizes, ready_s = [100_000] * 6, [0.01 + 0.001 * step for step in range(6)]
    method = load_method("omgs", {"density": 0.01})
    [plan] = plans(method, ring_cluster(4, "1MB/s,1ns"), sizes, ready_s)
    assert plan.calls == 4


def test_omgs_merges_what_launches_cost_more_to_select_apart() -> None:
    # Eleven launches of 10 us a selection, tensors 50 us apart, a network that costs nothing.
    sizes, ready_s = [1000] * 6, [0.01 + 0.00005 * step for step in range(6)]
    [plan] = plans(load_method("omgs", {}), ring_cluster(4, "100GB/s,1ns"), sizes, ready_s)
    assert plan.calls == 2


def test_omgs_selection_holds_the_backward_pass_up() -> None:
    one = load_method("omgs", {"density": 0.01})
    [plan] = plans(one, ring_cluster(2, "1GB/s,1ms"), [10**6], [0.02])
    # 7 passes, Top-k 7 passes, 2 over 10,000 values at 1 TB/s; 3 + 7 + 1 launches of 10 us.
    select_s = 4 * (14e6 + 2e4) / 1e12 + 11e-5
    compress = [task for task in plan.graph.tasks if task.kind == "compress"]
    assert [task.duration_s for task in compress] == [pytest.approx(select_s, rel=1e-9)]
    assert {task.stream for task in compress} == {"compute"}


# DRAGONN.


def test_dragonn_compresses_large_tensors_only() -> None:
    large, small = gradient((2000, 1000), 0.0, "large"), gradient(1000, 0.0, "small")
    stages = load_method("dragonn", {}).stages(bucket(small, large), World(4), 0)
    # 2000 values of the large one from each of 4 ranks; the small one dense.
    assert sends(stages) == [
        ("all_reduce", 4000.0),
        ("all_gather", 4 * 2000 * 4.0),
        ("all_gather", 4 * 2000 * 4.0),
    ]
    found = kernels(stages, "compress")
    assert [kernel.name for kernel in found] == ["elementwise", "dragonn_encode", "elementwise"]
    assert [moved([found[0]]), moved([found[2]])] == [4 * 5 * 2e6, 4 * 2000]
    # One zeroed tensor, and 8000 pairs of 16 bytes.
    assert moved(kernels(stages, "decompress")) == 4 * 2e6 + 16 * 8000


def test_dragonn_keeps_one_in_a_hundred_of_small_tensors() -> None:
    assert sends(of("dragonn", 2**17, 2, compress_above=0))[0][1] == 4 * 1311 * 2
    assert sends(of("dragonn", 2**17 + 1, 2, compress_above=0))[0][1] == 4 * 132 * 2
    assert sends(of("dragonn", 1000, 2)) == [("all_reduce", 4000.0)]


def test_dragonn_is_no_slower_on_a_faster_network() -> None:
    def iteration_s(link: str) -> float:
        [plan] = plans(load_method("dragonn", {}), ring_cluster(8, link), [2**21, 1000])
        return float(run(plan).period_s)

    times = [iteration_s(link) for link in ("2GB/s,5us", "2GB/s,20us", "1MB/s,20us")]
    assert times == sorted(times) and times[0] < times[-1]


def test_dragonn_without_momentum_only_encodes() -> None:
    stages = of("dragonn", 2**21, memory="none")
    assert [kernel.name for kernel in kernels(stages, "compress")] == ["dragonn_encode"]
    for memory, extra in (("none", 0.0), ("momentum", 4000.0)):
        found = load_method("dragonn", {"memory": memory})
        assert found.memory_bytes([gradient(1000)], 4) == extra


def test_dense_decoding_takes_a_tensor_a_rank() -> None:
    def decodes(ranks: int, decoding: str) -> int:
        stages = of("dragonn", 2**21, ranks, decoding=decoding)
        return len(kernels(stages, "decompress"))

    assert [decodes(ranks, "sparse") for ranks in (4, 16)] == [2, 2]
    assert [decodes(ranks, "dense") for ranks in (4, 16)] == [5, 17]


@pytest.mark.parametrize(
    ("kernel_s", "collective"),
    # Encode and decode (five kernels) against a dense message of 10 ms less two gathers of 2 ms.
    [(1.1 * MS, "all_gather"), (1.3 * MS, "all_reduce")],
)
def test_dragonn_compresses_what_pays(kernel_s: float, collective: str) -> None:
    world = World(
        4,
        collective_s=lambda name, size, group: 10 * MS if name == "all_reduce" else 2 * MS,
        kernel_s=lambda kernel: kernel_s,
    )
    method = load_method("dragonn", {"choose": "costs"})
    stages = method.stages(bucket(gradient((1000, 1))), world, 0)
    assert sends(stages)[0][0] == collective


# DCT.


def test_dct_pushes_pairs_and_pulls_parameters() -> None:
    stages = of("dct", 1000, density=0.05)
    assert sends(stages) == [("push", 8 * 50.0), ("pull", 4000.0)]
    gathers = of("dct", 1000, exchange="all_gather")
    assert sends(gathers) == [("all_gather", 4 * 50 * 8.0)] * 2


def test_dct_finds_a_threshold_once_in_its_lifespan() -> None:
    method = load_method("dct", {"lifespan": 100})
    assert [(one.iterations, one.count) for one in method.rounds()] == [((0,), 1.0), ((1,), 99)]
    assert len(load_method("dct", {"lifespan": 1}).rounds()) == 1
    due, reused = (kernels(of("dct", 1000, iteration=i), "compress") for i in (1000, 999))
    assert [kernel.name for kernel in due] == ["topk_new", *(kernel.name for kernel in reused)]
    # Error 3, magnitudes 2, mask 2.25, new error 3, search 1.75; 50 values gathered.
    assert moved(reused) == 4 * (12 * 1000 + 2 * 50)


def test_dct_gains_from_longer_lifespans_until_selection_is_nothing() -> None:
    def mean_s(lifespan: int) -> float:
        method = load_method("dct", {"lifespan": lifespan, "kernel": "old"})
        found = plans(method, ring_cluster(4, "10GB/s,1us"), [10**7])
        total = sum(plan.iterations for plan in found)
        return sum(plan.count * float(run(plan).period_s) for plan in found) / total

    times = [mean_s(lifespan) for lifespan in (1, 10, 100, 1000)]
    assert times == sorted(times, reverse=True)
    # One Top-k: 7 passes of 40 MB at 1 TB/s and 7 launches, once in so many iterations.
    select_s = 7 * 4e7 / 1e12 + 7e-5
    assert times[0] - times[1] == pytest.approx(0.9 * select_s, rel=1e-6)


def test_dct_servers_of_their_own_halve_the_load() -> None:
    cluster = ring_cluster(4, "1GB/s,1ns")
    shared = time_s(cluster, of("dct", 10**6, 4))
    own = time_s(cluster, of("dct", 10**6, 4, servers=4))
    # (3/4)(8 k + 4 n) on the nodes; half of it with as many servers.
    assert shared == pytest.approx(0.75 * 4.4e-3, rel=1e-4)
    assert own == pytest.approx(0.5 * 4.4e-3, rel=1e-4)


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
