"""Methods that spend less on selecting: OMGS merges, DRAGONN hashes, DCT keeps thresholds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.fusion.buckets import Bucket
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from perfsim.methods.building.sparsify import merged_by_omgs
from perfsim.schedule.run import run
from support.builders import bucket, gradient, ring_cluster
from support.stages import kernels, moved, of, plans, sends, time_s

MS = 1e-3

# OMGS.


def three(ready_s: tuple[float, ...] = (1.0, 2.0, 3.0)) -> list[Bucket]:
    return [bucket(gradient(100, time, str(time))) for time in ready_s]


@pytest.mark.parametrize(("alpha", "groups"), [(0.85, 3), (1.1, 1)])
def test_tensors_are_merged_while_waiting_is_cheaper_than_latency(
    alpha: float, groups: int
) -> None:
    # A gather takes alpha + n/1000: the link is free when the next tensor comes, 1 later, so that
    # merging pays if alpha > 1.
    assert len(merged_by_omgs(three(), lambda n: 0.0, lambda n: alpha + n / 1000)) == groups


def test_a_busy_link_makes_merging_free() -> None:
    # The gather of the first takes 5, until 6; the second would wait from 2 on anyway, and takes
    # the third, ready at 3, with it though that saves 0.1 only.
    def gather_s(elements: int) -> float:
        return 0.1 + 4.9 * elements / 100

    assert [len(one.gradients) for one in merged_by_omgs(three(), lambda n: 0.0, gather_s)] == [
        1,
        2,
    ]


def test_selection_that_costs_more_together_keeps_tensors_apart() -> None:
    # Selecting n costs (n/100)**2: 1 alone, 4 for two, so merging delays by 1 + 2.
    def select_s(elements: int) -> float:
        return (elements / 100) ** 2

    assert len(merged_by_omgs(three()[:2], select_s, lambda n: 2.9 + n)) == 2
    assert len(merged_by_omgs(three()[:2], select_s, lambda n: 3.1 + n)) == 1


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=30),
    alpha=st.floats(0, 1),
    floor=st.floats(0, 1),
)
def test_merging_keeps_all_tensors_in_order(sizes: list[int], alpha: float, floor: float) -> None:
    each = [bucket(gradient(n, 0.01 * i, f"t{i}")) for i, n in enumerate(sizes)]
    found = merged_by_omgs(each, lambda n: floor + 1e-9 * n, lambda n: alpha + 1e-8 * n)
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
    stages = load_method("dragonn", {}).stages(bucket(small, large), MethodContext(4), 0)
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
    world = MethodContext(
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
    narrow = bucket(gradient((1000,)).sent_in(2.0))  # parameters stay fp32
    assert sends(load_method("dct", {}).stages(narrow, MethodContext(8), 1)) == sends(stages)
    gathers = of("dct", 1000, exchange="all_gather")
    assert sends(gathers) == [("all_gather", 4 * 50 * 8.0)] * 2


@pytest.mark.parametrize(
    ("options", "times"),
    # Dense pushes and pulls send 8 bytes a parameter: 8 / (8 x 0.05 + 4), 8 / (8 x 0.01).
    [({}, 8 / 4.4), ({"density": 0.01, "pull": "none"}, 100)],
)
def test_dct_sends_as_many_times_less_as_its_page_says(options: Any, times: float) -> None:
    sent = sum(size_bytes for _, size_bytes in sends(of("dct", 10**6, **options)))
    assert 8e6 / sent == pytest.approx(times)


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


def test_dct_sends_all_to_servers_of_their_own_and_pulls_all_back() -> None:
    cluster = ring_cluster(4, "1GB/s,1ns")
    shared = time_s(cluster, of("dct", 10**6, 4))
    own = time_s(cluster, of("dct", 10**6, 4, servers=4))
    # 8 k + 4 n, of which a quarter stays on a node that has a server.
    assert shared == pytest.approx(0.75 * 4.4e-3, rel=1e-4)
    assert own == pytest.approx(4.4e-3, rel=1e-4)
