"""Collectives that compress inside: what each recipe sends and runs, by hand and by law."""

from __future__ import annotations

from dataclasses import replace
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, Send
from perfsim.methods.building.compressed_collectives import (
    Codec,
    Fused,
    Separate,
    largest_message,
    serial_s,
    two_shot,
)
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import bucket, gradient, hand_device, profile, ring_cluster

EVERY = {"threshold": "0", "recipe": "two_shot"}
N = 2**20


def stages(
    name: str, options: dict[str, str], elements: int, world: MethodContext
) -> list[JobStage]:
    """Return the stages of one gradient."""
    return load_method(name, options).stages(bucket(gradient(elements)), world, 0)


def sent(found: list[JobStage]) -> list[tuple[str, float, object]]:
    """Return collective, bytes and group of the sends."""
    return [(one.collective, one.size_bytes, one.group) for one in found if isinstance(one, Send)]


def moved(found: list[JobStage]) -> list[float]:
    """Return the bytes that each computing stage reads and writes."""
    return [
        sum(kernel.moved_bytes for kernel in one.kernels)
        for one in found
        if isinstance(one, Compute)
    ]


def plan(method: Method, elements: int, cluster: Cluster) -> CostedGraph:
    """Return the plan of a model of one tensor."""
    made = profile([elements], [0.010], backward_s=0.012, forward_s=0.006)
    fuse = fusion.load_policy(method.default_fusion()).fuse
    return schedule(made, method, fuse, hand_device(), cluster)[0]


def two_levels() -> Cluster:
    """Return 4 nodes of 2 GPUs, with a NIC each."""
    wire, bus = custom_link("1GB/s,20us", "test"), custom_link("10GB/s,2us", "test")
    return Cluster(8, (2,) * 4, wire, bus)


def test_two_shots_by_hand() -> None:
    # 1024 values on 8 ranks: chunks of 128, each 64 bytes of levels and a scale of 4: 68.
    found = stages("coccl", EVERY, 1024, MethodContext(8))
    assert sent(found) == [("all_to_all", 544.0, "all"), ("all_gather", 544.0, "all")]
    # Read 4096, write 544; read 8 x 68, write 68; read 544, write 4096.
    assert moved(found) == [4640.0, 612.0, 4640.0]
    assert [one.stream for one in found] == ["communication"] * 5
    eight = stages("coccl", EVERY | {"bits": "8", "group": "64"}, 1024, MethodContext(8))
    # 2 groups of 64 + 4 bytes a chunk.
    assert sent(eight)[0] == ("all_to_all", 8 * 136.0, "all")


def test_one_shot_by_hand() -> None:
    found = stages("coccl", EVERY | {"recipe": "one_shot"}, 1024, MethodContext(8))
    # Every rank's 544 bytes reach all; 8 x 544 read, 1024 values written.
    assert sent(found) == [("all_gather", 8 * 544.0, "all")]
    assert moved(found) == [4640.0, 8 * 544.0 + 4096]


def test_the_ring_merges_at_every_hop() -> None:
    found = stages("coccl", EVERY | {"recipe": "ring"}, 1024, MethodContext(8))
    assert sent(found) == [("send_recv", 68.0, "all")] * 7 + [("all_gather", 544.0, "all")]
    # Coding all and a copy of a chunk; 6 times a copy, 2 parts read and 1 written; a copy, 2
    # parts read, 128 values written, read and coded; decoding all.
    between = 2 * 68.0 + 3 * 68.0
    last = 2 * 68.0 + (2 * 68.0 + 512) + (512 + 68.0)
    assert moved(found) == [4640.0 + 136, *([between] * 6), last, 4640.0]


def test_three_shots_go_by_levels() -> None:
    world = MethodContext(8, nodes=4, gpus_per_node=2)
    found = stages("coccl", EVERY | {"recipe": "triple_shot"}, 1024, world)
    assert sent(found) == [
        ("all_to_all", 544.0, "node"),
        ("all_to_all", 4 * 68.0, "across"),
        ("all_gather", 544.0, "all"),
    ]
    # 2 parts of 4 chunks merged to 4 chunks; 4 parts of a chunk to one.
    assert moved(found)[1:3] == [3 * 4 * 68.0, 5 * 68.0]
    method = load_method("coccl", {"recipe": "triple_shot"})
    assert "as many GPUs on every node" in method.refusal(
        MethodContext(6, nodes=4, gpus_per_node=2)
    )
    assert method.refusal(world) == ""


@pytest.mark.parametrize("elements", [N, N + 77])
@pytest.mark.parametrize("ranks", [2, 3, 16])
def test_what_a_rank_sends_is_documented_for_every_recipe(elements: int, ranks: int) -> None:
    chunk = -(-elements // ranks)
    packed = -(-chunk // 128) * 68.0
    expected = {"two_shot": 2.0, "one_shot": float(ranks), "ring": 2.0}
    for recipe, times in expected.items():
        method = load_method("coccl", EVERY | {"recipe": recipe})
        found = plan(method, elements, ring_cluster(ranks, "1GB/s,20us"))
        assert found.sent_bytes == pytest.approx(times * (ranks - 1) * packed)


def test_small_messages_go_dense() -> None:
    # 8 MiB are 2^21 values.
    small = stages("coccl", {}, 2**21 - 1, MethodContext(4))
    assert small == [Send("all_reduce", 4.0 * (2**21 - 1))]
    assert len(sent(stages("coccl", {}, 2**21, MethodContext(4)))) == 2


def test_lossless_messages_tell_their_sizes_first() -> None:
    found = stages("coccl", EVERY | {"codec": "dietgpu"}, 1024, MethodContext(8))
    # 3 bytes as they are and 2.7 bits of exponent: 26.7 of 32 bits. 16 bytes tell a chunk's size.
    size = 4096 * 26.7 / 32
    (first, told), (second, whole) = [one[:2] for one in sent(found)[:2]]
    assert (first, told, second) == ("all_to_all", 128.0, "all_to_all")
    assert whole == pytest.approx(size)
    names = [kernel.name for kernel in found[3].kernels]  # type: ignore[union-attr]
    # 8 parts decoded (1 pass more for fp32), added up, coded.
    assert names[::2] == ["dietgpu_decode", "elementwise", "elementwise"]
    assert names[1::2] == ["elementwise", "dietgpu_encode"]
    whole_exponent = stages(
        "coccl", EVERY | {"codec": "dietgpu", "exponent_bits": "8"}, 8, MethodContext(8)
    )
    assert sent(whole_exponent)[1][1] == 32.0


def test_auto_takes_what_costs_least() -> None:
    one_way = EVERY | {"recipe": "one_shot"}
    two_ways = EVERY | {"recipe": "two_shot"}

    def by_calls(collective: str, size_bytes: float, group: object = "all", /) -> float:
        return 1.0

    def by_bytes(collective: str, size_bytes: float, group: object = "all", /) -> float:
        return size_bytes

    auto = EVERY | {"recipe": "auto"}
    assert stages("coccl", auto, N, MethodContext(8, collective_s=by_calls)) == stages(
        "coccl", one_way, N, MethodContext(8)
    )
    assert stages("coccl", auto, N, MethodContext(8, collective_s=by_bytes)) == stages(
        "coccl", two_ways, N, MethodContext(8)
    )
    # All-gathers at no cost and free exchange inside nodes: levels send least between them.
    levels = MethodContext(8, nodes=4, gpus_per_node=2, collective_s=_across_only)
    three = EVERY | {"recipe": "triple_shot"}
    assert stages("coccl", auto, N, levels) == stages("coccl", three, N, levels)


def _across_only(collective: str, size_bytes: float, group: object = "all", /) -> float:
    if (collective == "all_gather" and size_bytes < N) or group == "node":
        return 0.0
    return size_bytes


def test_auto_is_never_slower_than_what_it_chooses_from_where_nothing_overlaps() -> None:
    for cluster in (ring_cluster(8, "1GB/s,20us"), two_levels()):
        times = {}
        recipes = ["two_shot", "one_shot", "auto", *(["triple_shot"] if cluster.nodes < 8 else [])]
        for recipe in recipes:
            method = load_method("coccl", EVERY | {"recipe": recipe})
            times[recipe] = run(plan(method, 4 * N, cluster)).period_s
        assert times["auto"] == pytest.approx(min(times.values()))


def test_kernels_keep_the_line_busy_hop_by_hop() -> None:
    # 2 ranks, 2^20 values on a link of 1 GB/s without latency; kernels stream at 1 TB/s and take
    # 10 us to launch. Chunks of 2^19 values: 4096 groups of 68 B, 278528 B. Coding reads 4 MiB and
    # writes two chunks, decoding the other way round; the merge reads two and writes one.
    method = load_method("coccl", EVERY)
    found = plan(method, N, ring_cluster(2, "1GB/s,0us"))
    assert found.sent_bytes == 2 * 278528
    busy = sum(task.duration_s for task in found.graph.tasks if task.stream == "communication")
    coding = (4 * N + 557056) / 1e12 + 1e-5
    merge = 3 * 278528 / 1e12 + 1e-5
    assert busy == pytest.approx(2 * coding + merge + 2 * 278528e-9)


def test_doubling_by_hand() -> None:
    world = MethodContext(8, nodes=4, gpus_per_node=2)
    found = stages("gzccl", {"ratio": "4"}, 1000, world)
    # The neighbour on the node first, then 2 steps between nodes: 1000 B each.
    assert sent(found) == [
        ("send_recv", 1000.0, "node"),
        ("send_recv", 1000.0, "across"),
        ("send_recv", 1000.0, "across"),
    ]
    # 4000 read and 1000 written; 1000 read and 4000 written, 3 x 4000 to add.
    assert moved(found) == [5000.0, 17000.0] * 3


def test_the_ring_of_gzccl_by_hand() -> None:
    found = stages("gzccl", {"exchange": "ring", "ratio": "4"}, 1000, MethodContext(5))
    assert sent(found) == [("send_recv", 200.0, "all")] * 4 + [("all_gather", 1000.0, "all")]
    # Chunks of 200 values: 800 + 200; 1000 and 3 x 800; at last 4 of the others.
    assert moved(found) == [1000.0, 3400.0] * 4 + [1000.0, 4 * 1000.0]


@pytest.mark.parametrize("ranks", [2, 4, 32])
def test_gzccl_sends_what_it_documents(ranks: int) -> None:
    cluster = ring_cluster(ranks, "1GB/s,20us")
    doubling = plan(load_method("gzccl", {}), N, cluster)
    ring = plan(load_method("gzccl", {"exchange": "ring"}), N, cluster)
    assert doubling.sent_bytes == pytest.approx(log2(ranks) * 4 * N / 4.42)
    assert ring.sent_bytes == pytest.approx(2 * (ranks - 1) / ranks * 4 * N / 4.42)


def test_only_powers_of_two_pair_off() -> None:
    with pytest.raises(RequestError, match="exchange=ring"):
        plan(load_method("gzccl", {}), N, ring_cluster(6, "1GB/s,20us"))
    plan(load_method("gzccl", {"exchange": "ring"}), N, ring_cluster(6, "1GB/s,20us"))
    method = load_method("gzccl", {})
    assert method.refusal(MethodContext(8, nodes=3, gpus_per_node=3))
    assert method.refusal(MethodContext(8, nodes=2, gpus_per_node=4)) == ""


def test_small_chunks_favour_doubling_and_large_ones_the_ring() -> None:
    # The paper's point: a ring of many ranks launches kernels for every small chunk.
    def period(elements: int, exchange: str) -> float:
        method = load_method("gzccl", {"exchange": exchange})
        return float(run(plan(method, elements, ring_cluster(32, "10GB/s,10us"))).period_s)

    assert period(N, "doubling") < period(N, "ring")
    assert period(2**28, "ring") < period(2**28, "doubling")


@pytest.mark.parametrize("codec", [Fused(4, 128), Fused(8, 64), Separate("cuszp", 0.25)])
@given(elements=st.integers(1, 10**7), ranks=st.integers(2, 64))
def test_codecs_move_what_they_send(codec: Codec, elements: int, ranks: int) -> None:
    found = two_shot(elements, MethodContext(ranks), codec)
    chunk = -(-elements // ranks)
    sizes = [size for _, size, _ in sent(found)]
    assert sizes == [ranks * codec.packed_bytes(chunk)] * 2
    # Coding reads every value and writes what is sent; decoding the other way round.
    assert moved(found)[0] == moved(found)[2] == pytest.approx(4 * ranks * chunk + sizes[0])


def test_stages_cost_their_sum_one_after_the_other() -> None:
    world = MethodContext(4, collective_s=lambda *_: 2.0, kernel_s=lambda _: 0.5)
    # Two sends and three kernels.
    assert serial_s(two_shot(1000, world, Fused(4, 128)), world) == 5.5


def test_memory_is_that_of_the_largest_message() -> None:
    # 100 tensors of a million values: a bucket holds 25 MiB and the tensor that crosses them.
    many = profile([10**6] * 100, [0.01] * 100).gradients
    values = 10**6 + 25 * 2**18
    assert largest_message(many) == values
    chunk = -(-values // 8)
    packed = -(-chunk // 128) * 68.0
    assert load_method("coccl", {}).memory_bytes(many, 8) == 2 * 8 * packed
    assert load_method("coccl", {"recipe": "one_shot"}).memory_bytes(many, 8) == 9 * 8 * packed
    assert load_method("gzccl", {"ratio": "2"}).memory_bytes(many, 8) == 4 * values * 2


@pytest.mark.parametrize("name", ["coccl", "gzccl"])
def test_memory_follows_the_bucket_that_is_asked_for(name: str) -> None:
    """Tensors of a million values: by how much a message of DDP's buckets may exceed one."""
    known = profile([10**6] * 100, [0.01] * 100)
    method = load_method(name, {})
    world = MethodContext(8, profile=known)
    usual = method.memory_bytes(known.gradients, 8)
    assert method.memory_in(world) == usual
    assert method.memory_in(replace(world, bucket_bytes=25.0 * 2**20)) == usual
    wide = method.memory_in(replace(world, bucket_bytes=4.0 * 19 * 10**6))
    assert wide / usual == pytest.approx(20 * 10**6 / (10**6 + 25 * 2**18), rel=1e-4)
    assert method.memory_in(replace(world, bucket_bytes=1e12)) == pytest.approx(
        usual * 100 * 10**6 / (10**6 + 25 * 2**18), rel=1e-4
    )


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("coccl", "bits", "5"),
        ("coccl", "recipe", "four_shot"),
        ("coccl", "threshold", "-1"),
        ("coccl", "exponent_bits", "9"),
        ("gzccl", "ratio", "0.5"),
        ("gzccl", "exchange", "tree"),
    ],
)
def test_options_are_checked(name: str, option: str, value: str) -> None:
    with pytest.raises(RequestError, match=option):
        load_method(name, {option: value})
