"""CGX: which layers it codes, what it sends at each level, kernels and buffers, by hand and law."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import Compute, JobStage, MethodContext, Send
from perfsim.methods.cgx import chunks_of
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from support.builders import bucket, gradient, hand_device, profile, ring_cluster

ONE_NODE = MethodContext(4, nodes=1, gpus_per_node=4)
TWO_NODES = MethodContext(8, nodes=2, gpus_per_node=4)
NCCL = {"inner": "nccl"}


def stages(
    options: dict[str, Any], world: MethodContext, *shapes: int | tuple[int, ...]
) -> list[JobStage]:
    """Return the stages of one bucket."""
    return load_method("cgx", options).stages(bucket(*map(gradient, shapes)), world, 0)


def sent(found: list[JobStage]) -> list[tuple[str, float, object]]:
    """Return collective, bytes and group of the sends that a rank makes."""
    return [
        (one.collective, one.size_bytes * one.repeats, one.group)
        for one in found
        if isinstance(one, Send) and one.counted
    ]


def kernels(found: list[JobStage]) -> list[list[tuple[float, int]]]:
    """Return bytes moved and launches of each kernel, by stage."""
    return [
        [(kernel.moved_bytes, kernel.launches) for kernel in one.kernels]
        for one in found
        if isinstance(one, Compute)
    ]


def plan(options: dict[str, Any], sizes: list[int | tuple[int, ...]], on: Cluster) -> CostedGraph:
    """Return the plan of a model of some tensors, all ready at once, in one bucket."""
    made = profile(sizes, [0.010] * len(sizes), backward_s=0.012, forward_s=0.006)
    method = load_method("cgx", options)
    return schedule(made, method, fusion.load_policy("whole").fuse, hand_device(), on)[0]


def test_scatter_reduce_all_gather_by_hand() -> None:
    # 4096 values in 4 chunks of 1024: 512 bytes of levels and two bounds of 4.
    found = stages(NCCL, ONE_NODE, (64, 64))
    assert sent(found) == [("all_to_all", 4 * 520.0, "all")] * 2
    hook, first, middle, last = kernels(found)
    assert hook == [(2 * 16384.0, 1)]
    # Three chunks are read twice and packed, two kernels each; three are decoded at last.
    assert first == [(2 * 12288 + 1560.0, 6)]
    assert last == [(12288 + 1560.0, 3)]
    # Three messages are added to 1024 values; the sum is coded and decoded.
    assert middle == [(2 * 4096 + 520.0, 1)] * 3 + [(2 * 4096 + 520.0, 2), (4096 + 520.0, 1)]
    assert [one.stream for one in found] == ["compute"] + ["communication"] * 5


def test_small_layers_and_those_of_one_dimension_go_whole() -> None:
    found = stages(NCCL, ONE_NODE, (64, 64), 2048, (31, 33))
    # 4096 values are coded; 2048 + 1023 are copied together, summed by NCCL and copied back.
    assert sent(found) == [("all_to_all", 2080.0, "all")] * 2 + [("all_reduce", 4 * 3071.0, "all")]
    assert kernels(found)[-2:] == [[(8 * 3071.0, 2)]] * 2
    alone = stages({"inner": "mpi"}, ONE_NODE, 2048)
    # A single layer is not copied: P - 1 parts of a quarter are added (3 passes).
    assert sent(alone) == [("all_to_all", 8192.0, "all")] * 2
    assert kernels(alone)[1:] == [[(3 * 2048.0, 1)] * 3]


def test_without_its_hook_a_bucket_is_one_layer() -> None:
    found = stages(NCCL | {"hook": False}, ONE_NODE, (63, 64), 64)
    assert sent(found) == [("all_to_all", 2080.0, "all")] * 2
    assert found[0] == stages(NCCL, ONE_NODE, (64, 64))[1]  # nothing is divided in a hook


def test_a_message_through_host_memory_takes_the_link_twice() -> None:
    there = stages({}, ONE_NODE, (64, 64))
    both = [one for one in there if isinstance(one, Send)]
    assert [one.counted for one in both] == [True, False] * 2
    assert {one.size_bytes for one in both} == {2080.0}
    assert sent(there) == sent(stages(NCCL, ONE_NODE, (64, 64)))
    wire, bus = custom_link("1GB/s,20us", "test"), custom_link("10GB/s,2us", "test")
    node = Cluster(4, (4,), wire, bus)

    def on_stream_s(inner: str) -> float:
        tasks = plan({"inner": inner}, [(1024, 1024)], node).graph.tasks
        return sum(float(one.duration_s) for one in tasks if one.stream == "communication")

    message_s = on_stream_s("shm") - on_stream_s("nccl")
    # 2^20 values in four chunks: 4 x (2^17 + 256 x 8) bytes, 3/4 of them over 10 GB/s to 3 others
    # at 2 us each, twice.
    assert message_s == pytest.approx(2 * (0.75 * 532480 / 10e9 + 3 * 2e-6))


def test_across_nodes_the_first_rank_goes_round_a_ring_and_tells_the_others() -> None:
    found = stages({}, TWO_NODES, (64, 64))
    # Two chunks of 2048: 1024 bytes and 2 x 8. The whole is 4096: 2048 and 4 x 8, to 3 others.
    assert sent(found) == [
        ("all_to_all", 2080.0, "node"),
        ("all_to_all", 2080.0, "node"),
        ("send_recv", 1040.0, "leaders"),
        ("send_recv", 1040.0, "leaders"),
        ("send_recv", 3 * 2080.0, "node"),
    ]
    ring = kernels(found)[4]
    # A hop codes a chunk and adds another; then the sum is coded and decoded.
    coded = (2 * 8192 + 1040.0, 2)
    assert ring == [coded, (2 * 8192 + 1040.0, 1), coded, (8192 + 1040.0, 1)]
    assert kernels(found)[-2:] == [[(2 * 16384 + 2080.0, 2)], [(16384 + 2080.0, 1)]]


def test_across_nodes_by_nccl_the_sum_is_broadcast_uncoded() -> None:
    found = stages(NCCL | {"cross": "nccl"}, TWO_NODES, (64, 64))
    assert sent(found)[2:] == [
        ("all_to_all", 2080.0, "leaders"),
        ("all_to_all", 2080.0, "leaders"),
        ("broadcast", 16384.0, "node"),
    ]


def test_without_broadcast_all_ranks_go_across() -> None:
    found = stages({"broadcast": False}, TWO_NODES, (64, 64))
    assert sent(found)[2:] == [("send_recv", 1040.0, "across")] * 2
    uneven = MethodContext(6, nodes=2, gpus_per_node=4)
    assert "as many GPUs on every node" in load_method("cgx", {"broadcast": False}).refusal(uneven)
    assert load_method("cgx", {}).refusal(uneven) == ""


def test_what_is_not_coded_inside_is_coded_across() -> None:
    found = stages(NCCL | {"compress_inside": False}, TWO_NODES, (64, 64))
    assert sent(found)[:2] == [("all_reduce", 16384.0, "node"), ("send_recv", 1040.0, "leaders")]


def test_values_of_16_bits_have_bounds_of_16_bits() -> None:
    narrow = gradient((64, 64)).sent_in(2.0)
    found = load_method("cgx", NCCL).stages(bucket(narrow), ONE_NODE, 0)
    # 512 bytes of levels and two bounds of 2, together a multiple of 8.
    assert sent(found)[0] == ("all_to_all", 4 * 520.0, "all")
    assert kernels(found)[0] == [(2 * 8192.0, 1)]
    eight = load_method("cgx", NCCL | {"group": 64}).stages(bucket(narrow), ONE_NODE, 0)
    assert sent(eight)[0] == ("all_to_all", 4 * (512.0 + 16 * 4), "all")


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=20),
    st.integers(2, 40),
    st.sampled_from([4, 8]),
)
def test_chunks_hold_every_value_once_and_in_order(sizes: list[int], ranks: int, unit: int) -> None:
    chunks = chunks_of(sizes, ranks, unit)
    assert len(chunks) == ranks
    assert sum(map(sum, chunks)) == sum(sizes)
    ends = list(accumulate(piece for chunk in chunks for piece in chunk))
    assert set(accumulate(sizes)) <= set(ends)  # no piece is of two layers
    assert len(ends) <= len(sizes) + ranks - 1
    assert max(map(sum, chunks)) < sum(sizes) / ranks + unit


@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=8),
    st.integers(2, 9),
    st.integers(1, 7),
    st.sampled_from(["sra", "ring"]),
)
def test_more_bits_and_smaller_groups_send_more(
    shapes: list[tuple[int, int]], ranks: int, bits: int, by: str
) -> None:
    cluster = ring_cluster(ranks, "1GB/s,20us")

    def sends(**changed: int) -> float:
        options = {"cross_reduction": by, "min_size": 0, "bits": bits, "group": 1024} | changed
        return plan(options, list(shapes), cluster).sent_bytes

    assert sends(bits=bits + 1) >= sends() >= sends(group=2048)
    values = sum(prod(shape) for shape in shapes if prod(shape) > 16)
    least = 2 * (ranks - 1) / ranks * values * bits / 8
    rest = 2 * (ranks - 1) / ranks * 4 * (sum(map(prod, shapes)) - values)
    assert sends() >= (least + rest) * (1 - 1e-9)


@pytest.mark.parametrize("by", ["sra", "ring"])
def test_both_reductions_send_the_same_and_run_other_kernels(by: str) -> None:
    found = plan({"cross_reduction": by}, [(1024, 1024)], ring_cluster(8, "1GB/s,20us"))
    # 2^17 values a chunk: 65536 bytes and 128 x 8.
    assert found.sent_bytes == 2 * 7 * 66560
    assert found.calls == (2 if by == "sra" else 14)


def test_memory_is_its_buffers_and_random_states() -> None:
    method, mib = load_method("cgx", {}), 2**20
    states = 16 * 16 * mib
    assert method.memory_in(ONE_NODE) == 7 * 16 * mib + states
    assert method.memory_in(TWO_NODES) == 7 * 16 * mib + 3 * 32 * mib + states
    assert method.memory_in(MethodContext(4)) == method.memory_bytes((), 4)


def test_a_message_counts_levels_and_bounds() -> None:
    method = load_method("cgx", {"bits": 3})
    assert method.message_bytes(gradient((100, 100)), 0) == 10 * 8 + 3752
    assert method.message_bytes(gradient(10000), 0) == 40000


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"bits": 9}, "bits"),
        ({"inner": "gloo"}, "inner"),
        ({"group": 0}, "group"),
        ({"hook": False, "min_size": 5}, "min_size: 5 has no effect with hook=false"),
        ({"inner": "nccl", "inner_reduction": "ring"}, "no effect with inner=nccl"),
        ({"cross": "nccl", "cross_reduction": "sra"}, "no effect with cross=nccl"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        load_method("cgx", options)


def test_copies_through_the_host_beside_nvlink_are_a_warning() -> None:
    def warned(gpu: str, **options: object) -> bool:
        asked = {"model": "resnet50", "gpus": 8, "gpus_per_node": 8, "gpu": gpu, "method": "cgx"}
        notes = predict(make_scenario(asked | {"options": options})).notes
        return any("copies messages through the host" in note for note in notes)

    assert warned("h100")
    assert not warned("h100", inner="nccl")
    assert not warned("rtx3090")
