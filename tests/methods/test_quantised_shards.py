"""Sharded training with quantised collectives (ZeRO++, LoCo, SDP4Bit): bytes and times by hand."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.compute.profile import Profile
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from support.layered import MS, milliseconds, model, names, plan, start_ms

OFF = {"quantise_weights": False, "partition": 1, "quantise_gradients": False}
# Each layer is sharded, gathered at its own hook, and again for the backward pass.
AGAIN = {"persistence_threshold": 0, "prefetch_bucket": 0, "max_reuse_distance": 0}
GRIDS = [(2, 2), (2, 4), (4, 2), (3, 4), (8, 8)]


def nodes_of(nodes: int, inside: int) -> Cluster:
    """Return nodes of so many GPUs: 1 GB/s and 1 ms between them, 10 GB/s and 1 us inside."""
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    return Cluster(nodes * inside, (inside,) * nodes, wire, bus if inside > 1 else None)


def matrices(*shapes: tuple[int, ...], precision: str = "amp-fp16") -> Profile:
    """Return layers of 5 and 15 ms with one tensor each; 16-bit gradients in half precision."""
    made = model([1] * len(shapes), [5.0] * len(shapes))
    width = 4.0 if precision == "fp32" else 2.0
    gradients = [
        replace(one, shape=shape, value_bytes=width)
        for one, shape in zip(made.gradients, shapes, strict=True)
    ]
    return replace(made, gradients=tuple(gradients), precision=precision)


def planned(
    name: str,
    of: Profile,
    nodes: int,
    inside: int,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> CostedGraph:
    """Return a method's plan on nodes, with its own fusion unless another is given."""
    method = load_method(name, options or {})
    fused = {"policy": method.default_fusion()}
    return plan(method, of, nodes_of(nodes, inside), **(fused | more))


def sizes(found: CostedGraph, collective: str, group: str = "") -> list[float]:
    """Return the sizes of the messages of one kind, in issue order."""
    return [
        task.size_bytes
        for task in found.graph.tasks
        if task.name.startswith(f"{collective} ") and group in ("", task.group)
    ]


def durations_us(found: CostedGraph, start: str) -> list[float]:
    """Return what the tasks whose names start so take [us]."""
    return [
        float(task.duration_s) * 1e6 for task in found.graph.tasks if task.name.startswith(start)
    ]


def up(count: float, size: int) -> int:
    """Return how many groups of a size so many make, the last one perhaps smaller."""
    return ceil(count / size)


def own(bytes_moved: float, launches: int = 1) -> float:
    """Return what kernels take on the GPU of these tests, 1 TB/s and 10 us a launch [us]."""
    return bytes_moved / 1e6 + 10 * launches


# Without its parts a method is its base


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, {}),
        ({"overlap_comm": False}, {}),
        (AGAIN, {}),
        ({}, {"micro_batches": 3}),
        ({"prefetch_bucket": 1000, "max_live": 600_000}, {}),
    ],
)
def test_zeropp_without_its_parts_is_zero_of_stage_3(
    precision: str, options: dict[str, Any], more: dict[str, Any]
) -> None:
    of = matrices((640, 512), (1000, 64), (300,), (512, 640), precision=precision)
    without = planned("zeropp", of, 2, 4, OFF | options, **more)
    base = planned("zero", of, 2, 4, {"stage": 3} | options, **more)
    assert without.graph.tasks == base.graph.tasks
    assert without.charges == base.charges and without.sent_bytes == base.sent_bytes


@pytest.mark.parametrize("overlap", ["", "reduce", "gather"])
def test_sdp4bit_without_its_parts_is_the_distributed_optimizer(overlap: str) -> None:
    of = matrices((640, 512), (1000, 64), (300,), (512, 640), precision="amp-bf16")
    same: dict[str, Any] = {"clip": False}
    if overlap:
        same |= {"overlap_grad_reduce": True, "overlap_param_gather": overlap == "gather"}
    none = {"quantise_weights": False, "quantise_gradients": False}
    policy = "none" if overlap else "whole"
    without = planned("sdp4bit", of, 2, 4, none | same, policy=policy)
    base = planned("distributed_optimizer", of, 2, 4, {"check_nan": False} | same, policy=policy)
    assert without.graph.tasks == base.graph.tasks and without.charges == base.charges


def test_predictions_without_their_parts_are_those_of_the_base() -> None:
    """BERT-Large on 16 GPUs, to the last bit; in each, memory is the same too."""
    asked = {"model": "bert-large", "gpus": 16, "net": "25gbe", "precision": "fp16"}
    pairs = [
        (("zeropp", OFF), ("zero", {"stage": 3})),
        (
            ("sdp4bit", {"quantise_weights": False, "quantise_gradients": False}),
            ("distributed_optimizer", {"check_nan": False}),
        ),
    ]
    for pair in pairs:
        one, other = (
            predict(make_scenario(asked | {"method": name, "options": options}))
            for name, options in pair
        )
        assert one.iteration_s == other.iteration_s
        assert one.communication == other.communication
        assert one.memory_bytes == other.memory_bytes


# ZeRO++: gathers


@pytest.mark.parametrize(("nodes", "inside"), GRIDS)
def test_zeropp_gathers_bytes_from_afar_once(nodes: int, inside: int) -> None:
    """Two matrices of 2^20 values, each gathered for each pass.

    A shard of 2^20 / P values has a scale for each 8000, rounded up. The forward pass gathers 2^20
    bytes and P times these scales over all; the backward pass as much inside the node, with the
    scales of shards of 2^20 / g.
    """
    ranks, n = nodes * inside, 2**20
    found = planned("zeropp", matrices((1024, 1024), (1024, 1024)), nodes, inside, AGAIN)
    far = [n, 4 * ranks * up(up(n, ranks), 8000)]
    near = [n, 4 * inside * up(up(n, inside), 8000)]
    assert sizes(found, "all_gather", "all") == far * 2
    assert sizes(found, "all_gather", "node") == near * 2
    backward = [name for name in names(found, "all_gather 0.fetch ") if name[-1] in "23"]
    assert len(backward) == 4


def test_zeropp_of_one_partition_gathers_backward_across_nodes_too() -> None:
    found = planned("zeropp", matrices((1024, 1024)), 2, 2, AGAIN | {"partition": 1})
    assert sizes(found, "all_gather", "node") == []
    assert len(sizes(found, "all_gather", "all")) == 4


@pytest.mark.parametrize("quantised", [True, False])
def test_the_second_copy_serves_all_micro_batches_after_the_first(quantised: bool) -> None:
    """Of three micro-batches with two matrices the first one's forward pass alone gathers afar.

    Two gathers over all, then 2 + 4 + 4 inside the node; each is two messages where quantised.
    """
    of = matrices((1024, 1024), (1024, 1024))
    options = AGAIN | {"quantise_weights": quantised}
    found = planned("zeropp", of, 2, 2, options, micro_batches=3)
    messages = 2 if quantised else 1
    assert len(sizes(found, "all_gather", "all")) == 2 * messages
    assert len(sizes(found, "all_gather", "node")) == 10 * messages
    assert not [name for name in names(found, "all_gather 1.") if "fetch" in name]


def test_what_is_gathered_again_goes_apart_and_first() -> None:
    """Three matrices; a hook gathers ahead of its own, and the first is needed again at the end.

    As in the example of `leaf_fetches`: the last message holds the third matrix, gathered for the
    first time, and the first one again. The second copy brings that, before the other.
    """
    of = matrices((400, 10), (300, 10), (200, 10))
    limits = {"prefetch_bucket": 2500, "persistence_threshold": 100, "max_reuse_distance": 5000}
    found = planned("zeropp", of, 2, 2, limits | {"quantise_weights": False})
    sent = [
        (task.group, task.size_bytes)
        for task in found.graph.tasks
        if task.name.startswith("all_gather")
    ]
    assert sent == [("all", 8000.0), ("all", 6000.0), ("node", 8000.0), ("all", 4000.0)]


@pytest.mark.parametrize(("precision", "width"), [("amp-fp16", 2), ("amp-bf16", 2), ("fp32", 4)])
def test_zeropp_casts_what_is_not_fp16_around_its_kernels(precision: str, width: int) -> None:
    """A matrix of 2^20 on 4 GPUs: shards of 2^18 values with 33 scales.

    Quantising reads 2 bytes a value and writes one, and the scales; decoding reads all 2^20 bytes
    and 132 scales and writes 2 bytes a value. Casts read and write a value in both widths.
    """
    n, shard = 2**20, 2**18
    options = AGAIN | {"partition": 1, "quantise_gradients": False}
    found = planned("zeropp", matrices((1024, 1024), precision=precision), 2, 2, options)
    cast = 0 if precision == "amp-fp16" else width + 2
    launches = 2 if cast else 1
    encode_us = own(3 * shard + 4 * 33 + cast * shard, launches)
    decode_us = own(3 * n + 4 * 132 + cast * n, launches)
    assert durations_us(found, "compress 0.fetch 0") == [pytest.approx(encode_us)]
    assert durations_us(found, "decompress 0.fetch 0") == [pytest.approx(decode_us)]


def test_computation_waits_for_decoded_parameters() -> None:
    """One layer: its shard quantised, 2^20 bytes and the scales gathered, decoded, then 5 ms."""
    n, cluster = 2**20, nodes_of(2, 2)
    options = {"persistence_threshold": 0, "partition": 1, "quantise_gradients": False}
    found = planned("zeropp", matrices((1024, 1024)), 2, 2, options)
    wire_ms = sum(cluster.cost("all_gather", size).seconds for size in (n, 528.0)) / MS
    before_ms = own(3 * 2**18 + 132) / 1e3 + wire_ms + own(3 * n + 528) / 1e3
    assert start_ms(found, "forward 0") == pytest.approx(before_ms)


def test_the_second_copy_is_filled_once_behind_the_forward_pass() -> None:
    """Two matrices on nodes of 2 GPUs: 2^20 values a rank, 3 passes of 2 bytes, 4 launches."""
    found = planned("zeropp", matrices((1024, 1024), (1024, 1024)), 2, 2, AGAIN, micro_batches=2)
    assert durations_us(found, "decompress 0.second copy") == [pytest.approx(own(6 * 2**20, 4))]
    assert not names(found, "decompress 1.second copy")
    assert start_ms(found, "decompress 0.second copy") > start_ms(found, "forward 0.1")


# ZeRO++: gradients


@pytest.mark.parametrize(("nodes", "inside"), GRIDS)
def test_zeropp_sums_a_matrix_by_four_all_to_alls(nodes: int, inside: int) -> None:
    """1536 x 1024 values: half a byte each inside the node, a g-th of that across.

    The longer side has 1536 rows, so 1536 scales of 4 bytes inside, a g-th of them across. A rank
    sends (g-1)/g and (N-1)/N of it.
    """
    n, ranks = 1536 * 1024, nodes * inside
    found = planned("zeropp", matrices((1536, 1024)), nodes, inside, {"partition": 1})
    assert sizes(found, "all_to_all", "node") == [n / 2, 4 * 1536]
    assert sizes(found, "all_to_all", "across") == [n / 2 / inside, 4 * 1536 / inside]
    gathered = (1 - 1 / ranks) * (n + 4 * ranks * up(n / ranks, 8000))
    summed = (n / 2 + 4 * 1536) * (1 - 1 / inside + (1 - 1 / nodes) / inside)
    assert found.sent_bytes == pytest.approx(gathered + summed)


def test_four_bits_are_an_eighth_of_fp32() -> None:
    """On nodes of one GPU the levels are an eighth of what fp32 gradients send, scales beside."""
    of, n = matrices((1024, 1024), precision="fp32"), 2**20
    without_gathers = {"persistence_threshold": n, "partition": 1}
    dense = planned("zero", of, 4, 1, {"stage": 3, "persistence_threshold": n})
    narrow = planned("zeropp", of, 4, 1, without_gathers)
    gathered = 0.75 * 4 * n
    scales = 0.75 * 4 * 1024
    eighth = (dense.sent_bytes - gathered) / 8
    assert narrow.sent_bytes - gathered == pytest.approx(eighth + scales)
    assert sizes(narrow, "all_to_all", "node") == []


N = 2**20
# A matrix of 2^20 in fp16 on 2 nodes of 2: copied into the bucket (4 bytes a value); quantised (2 +
# 1/2 and 1024 scales); merged (1/2 and 1024 scales, a half of both); decoded (a half of 1/2 and of
# 1024 scales, 2 bytes of half the values), 2 shares of 2^18 added to zero and up (5 passes of 2
# bytes in 2 launches), divided (2 passes); copied out of the bucket (4 bytes of a share).
INTO, ENCODE, MERGE = own(4 * N), own(2.5 * N + 4096), own(0.75 * N + 4096 + 2048)
DECODE, OUT = own(1.25 * N + 2048 + 10 * N / 4 + 4 * N / 4, 4), own(4 * N / 4)


def summed_ms() -> float:
    """Return what all of that takes with its four messages [ms]."""
    cluster = nodes_of(2, 2)
    messages = ("node", N / 2), ("node", 4096.0), ("across", N / 4), ("across", 2048.0)
    wire_s = sum(cluster.of(group, "all_to_all", size).seconds for group, size in messages)
    return (INTO + ENCODE + MERGE + DECODE + OUT) / 1e3 + wire_s / MS


def test_zeropp_sums_in_kernels_beside_the_backward_pass() -> None:
    """The bucket is ready with the backward pass; then a quarter of the update of 2 ms."""
    options = {"persistence_threshold": 2 * N, "partition": 1}
    found = planned("zeropp", matrices((1024, 1024)), 2, 2, options)
    assert durations_us(found, "compress 0.0") == [
        pytest.approx(one) for one in (INTO, ENCODE, MERGE)
    ]
    assert durations_us(found, "decompress 0.0") == [pytest.approx(one) for one in (DECODE, OUT)]
    kept_ms = nodes_of(2, 2).cost("all_gather", 2.0 * N).seconds / MS
    assert milliseconds(found) == pytest.approx(20 + summed_ms() + 0.5 + kept_ms)


@pytest.mark.parametrize("overlap", [True, False])
def test_without_overlap_the_backward_pass_waits_for_the_sum(overlap: bool) -> None:
    """The second layer's 15 ms begin 25 ms in, or when the first bucket has been summed."""
    of = matrices((1024, 1024), (1024, 1024))
    options = {"persistence_threshold": 2 * N, "partition": 1, "overlap_comm": overlap}
    found = planned("zeropp", of, 2, 2, options, limit_bytes=4.0 * N)
    assert start_ms(found, "backward 0.1") == pytest.approx(25 + (0 if overlap else summed_ms()))


@pytest.mark.parametrize(
    ("shape", "launches"), [((4096,), 1), ((4099,), 2), ((64, 64), 0), ((63, 66), 2), ((62, 66), 1)]
)
def test_what_cannot_be_shared_is_scattered_by_itself(
    shape: tuple[int, ...], launches: int
) -> None:
    """On 4 GPUs a vector, or a matrix that 8 does not divide: divided, padded where 4 does not."""
    found = planned("zeropp", matrices(shape), 2, 2)
    kernels = durations_us(found, "compress 0.0")[1:]
    n = matrices(shape).elements
    if launches:
        assert kernels == [pytest.approx(own(4 * n * launches, launches))]
        assert sizes(found, "reduce_scatter") == [2.0 * n]
    else:
        assert sizes(found, "reduce_scatter") == [] and len(sizes(found, "all_to_all")) == 4


def test_each_gradient_of_a_bucket_is_sent_by_itself() -> None:
    of = matrices((64, 64), (4096,), (64, 64))
    found = planned("zeropp", of, 2, 2)
    sent = [name.split()[0] for name in names(found, "") if " 0.0" in name]
    assert [name for name in sent if name in ("all_to_all", "reduce_scatter")] == [
        *["all_to_all"] * 4,
        "reduce_scatter",
        *["all_to_all"] * 4,
    ]


def test_one_node_reduce_scatters() -> None:
    found = planned("zeropp", matrices((64, 64), (64, 64)), 1, 4)
    assert sizes(found, "all_to_all") == [] and len(sizes(found, "reduce_scatter")) == 1


# ZeRO++: memory and refusals


@pytest.mark.parametrize(("precision", "width"), [("amp-bf16", 2), ("fp32", 4)])
@pytest.mark.parametrize("inside", [2, 8])
def test_the_second_copy_takes_a_share_of_the_node(precision: str, width: int, inside: int) -> None:
    """2^21 values: 2 bytes each over the GPUs of a node in half precision, 4 in fp32."""
    of = matrices((1024, 1024), (1024, 1024), precision=precision)
    world = MethodContext(32, gpus_per_node=inside, profile=of)
    options = {"persistence_threshold": 0}
    with_copy, without = (
        load_method("zeropp", options | {"partition": count}).memory_in(world) for count in (0, 1)
    )
    assert with_copy - without == width * 2**21 / inside
    assert without == load_method("zero", {"stage": 3} | options).memory_in(world)


def test_gathered_parameters_are_not_kept_as_messages() -> None:
    asked = {"model": "bert-large", "gpus": 16, "net": "25gbe"}
    for name in ("zeropp", "loco", "sdp4bit"):
        assert predict(make_scenario(asked | {"method": name})).memory_bytes["messages"] == 0


@pytest.mark.parametrize(
    ("name", "options", "placement", "why"),
    [
        ("zeropp", {"partition": 3}, (4, 4), "a partition that divides 8 GPUs, not 3"),
        ("zeropp", {}, (4, 2), "a partition that divides 6 GPUs, not 4"),
        ("zeropp", {"partition": 1}, (4, 2), "as many GPUs on every node"),
        ("sdp4bit", {}, (4, 2), "as many GPUs on every node"),
        ("loco", {"quantise_gradients": False}, (4, 4), "leave quantise_gradients out"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    name: str, options: dict[str, Any], placement: tuple[int, ...], why: str
) -> None:
    cluster = replace(nodes_of(2, 4), gpus=sum(placement), placement=placement)
    with pytest.raises(RequestError, match=why):
        plan(load_method(name, options), matrices((64, 64)), cluster)


def test_zeropp_is_refused_in_a_pipeline() -> None:
    world = MethodContext(4, gpus_per_node=4, stages=2)
    assert "pipeline engine" in load_method("zeropp", {}).refusal(world)


def test_uneven_nodes_may_gather_quantised_parameters() -> None:
    cluster = replace(nodes_of(2, 4), gpus=6, placement=(4, 2))
    method = load_method("zeropp", {"partition": 1, "quantise_gradients": False})
    assert plan(method, matrices((1024, 1024)), cluster).sent_bytes > 0


# LoCo


@pytest.mark.parametrize(("nodes", "inside"), GRIDS)
def test_loco_sends_what_zeropp_sends(nodes: int, inside: int) -> None:
    of = matrices((1536, 1024), (100,), (64, 512))
    one, other = (planned(name, of, nodes, inside, AGAIN) for name in ("loco", "zeropp"))
    assert one.sent_bytes == other.sent_bytes and one.calls == other.calls


def test_loco_keeps_and_adds_errors() -> None:
    """A matrix of 2^20 on 2 nodes of 2: errors of 2^20 and 2^19 bytes, 1024 and 512 scales.

    Before quantising, both are decoded (a byte read, 2 written), and quantising reads and writes 4
    more. The first is quantised again before the merge, which reads and writes 4 bytes more of 2^19
    values; the second before the sum is decoded.
    """
    n, cluster_of = 2**20, (2, 2)
    options = {"persistence_threshold": 2 * n, "partition": 1}
    one, other = (
        planned(name, matrices((1024, 1024)), *cluster_of, options) for name in ("loco", "zeropp")
    )
    first, second = own(3 * n + 4096), own(1.5 * n + 2048)
    extra = [first + second + 4 * n / 1e6, first + 2 * n / 1e6]
    pairs = zip(durations_us(one, "compress 0.0"), durations_us(other, "compress 0.0"), strict=True)
    assert [mine - plain for mine, plain in pairs] == [
        pytest.approx(each, abs=1e-6) for each in (0.0, *extra)
    ]
    pairs = zip(
        durations_us(one, "decompress 0.0"), durations_us(other, "decompress 0.0"), strict=True
    )
    assert [mine - plain for mine, plain in pairs] == [
        pytest.approx(each, abs=1e-6) for each in (second, 0.0)
    ]


def test_loco_keeps_a_byte_a_value_and_a_share_of_it() -> None:
    """A matrix of 1536 x 1024 on 4 nodes of 8, a vector that has no error."""
    of = matrices((1536, 1024), (4096,))
    world = MethodContext(32, gpus_per_node=8, profile=of)
    one, other = (load_method(name, {}).memory_in(world) for name in ("loco", "zeropp"))
    assert one - other == (1536 * 1024 + 4 * 1536) * (1 + 1 / 8)
    alone = MethodContext(8, gpus_per_node=8, profile=of)
    one, other = (load_method(name, {}).memory_in(alone) for name in ("loco", "zeropp"))
    assert one == other


# SDP4Bit


@pytest.mark.parametrize(("nodes", "inside"), GRIDS)
@pytest.mark.parametrize("chunks", [1, 4])
def test_sdp4bit_sends_differences_and_two_steps(nodes: int, inside: int, chunks: int) -> None:
    """3 x 2^20 values, all in one buffer, in blocks of 2048 (weights) and 512 (gradients).

    Weights: half a byte each and P times the scales of a shard. Gradients: a byte each and 6144
    scales inside the node, a g-th of half a byte and of the scales across, in so many chunks.
    """
    n, ranks = 3 * 2**20, nodes * inside
    of = matrices((1024, 1024), (2048, 1024), precision="amp-bf16")
    found = planned("sdp4bit", of, nodes, inside, {"chunks": chunks})
    near, far = (
        [n / chunks, 4 * 6144 / chunks],
        [n / 2 / inside / chunks, 4 * 6144 / inside / chunks],
    )
    assert sizes(found, "all_to_all", "node") == [pytest.approx(one) for one in near * chunks]
    assert sizes(found, "all_to_all", "across") == [pytest.approx(one) for one in far * chunks]
    scales = ranks * up(up(n, ranks), 2048)
    assert sizes(found, "all_gather") == [n / 2, 4 * scales]
    gathered = (1 - 1 / ranks) * (n / 2 + 4 * scales)
    summed = (1 - 1 / inside) * (n + 4 * 6144) + (1 - 1 / nodes) / inside * (n / 2 + 4 * 6144)
    assert found.sent_bytes == pytest.approx(gathered + summed)


@pytest.mark.parametrize(
    ("nodes", "inside", "group", "bits"), [(1, 4, "node", 8), (4, 1, "across", 4)]
)
def test_sdp4bit_of_one_level_sends_in_one_step(
    nodes: int, inside: int, group: str, bits: int
) -> None:
    """On one node 8 bits, with one rank a node 4 bits; one kernel decodes and adds up in fp32."""
    n = 2**20
    found = planned("sdp4bit", matrices((1024, 1024)), nodes, inside)
    assert sizes(found, "all_to_all") == sizes(found, "all_to_all", group)
    assert sizes(found, "all_to_all") == [n * bits / 8, 4 * 2048]
    decode_us = own(n * bits / 8 + 4 * 2048 + 4 * n / 4)
    assert durations_us(found, "decompress 0.0")[0] == pytest.approx(decode_us)


def test_sdp4bit_takes_its_time_after_the_backward_pass() -> None:
    """A matrix of 2^20 in bf16 on 2 nodes of 2, fp32 gradients, nothing beside the passes.

    Divided (8 bytes a value); quantised (4 + 1 and 2048 scales); merged (1 and the scales, a half
    of 1/2 and of them); decoded (that, and 4 bytes of a quarter). A quarter of the update. Norm and
    clipping, cast and zeros of the base (a quarter of 4, 8 and 6, all of 4 bytes), zeros of 2
    bytes more; quantised (4 + 1/2 of a quarter, 128 scales); gathered; decoded (1/2 + 2 + 2, 512
    scales); copied out (4 bytes).
    """
    n, cluster = 2**20, nodes_of(2, 2)
    of = matrices((1024, 1024), precision="amp-bf16")
    wide = replace(of, gradients=(replace(of.gradients[0], value_bytes=4.0),))
    found = planned("sdp4bit", wide, 2, 2)
    sums_us = (
        *(own(8 * n), own(5 * n + 8192), own(1.25 * n + 8192 + 4096)),
        own(0.25 * n + 4096 + n),
    )
    step_us = own(4 * n + n + 2 * n + 6 * n / 4 + 2 * n, 5)
    weights_us = own(4.5 * n / 4 + 512), own(4.5 * n + 2048), own(4 * n)
    wire_s = sum(
        cluster.of(group, collective, size).seconds
        for collective, group, size in (
            ("all_to_all", "node", float(n)),
            ("all_to_all", "node", 8192.0),
            ("all_to_all", "across", n / 4),
            ("all_to_all", "across", 4096.0),
            ("all_gather", "all", n / 2),
            ("all_gather", "all", 2048.0),
        )
    )
    kernels_ms = (sum(sums_us) + step_us + sum(weights_us)) / 1e3
    assert milliseconds(found) == pytest.approx(20 + kernels_ms + wire_s / MS + 0.5)


def test_chunks_go_across_nodes_while_the_next_is_inside() -> None:
    found = planned("sdp4bit", matrices((1024, 1024)), 2, 2, {"chunks": 2})
    inside_ms = start_ms(found, "all_to_all 0.0 chunk 1")
    tasks = [task for task in found.graph.tasks if task.name == "all_to_all 0.0 chunk 0"]
    assert [task.group for task in tasks] == ["node", "node", "across", "across"]
    whole_ms = sum(float(task.duration_s) for task in tasks) / MS
    assert inside_ms < start_ms(found, "all_to_all 0.0 chunk 0") + whole_ms


def test_sdp4bit_beside_the_passes_gathers_bucket_by_bucket() -> None:
    """Two buckets: the first layer's differences go at the start, the second's beside it."""
    of = matrices((1024, 1024), (512, 1024), precision="amp-bf16")
    both = {"overlap_grad_reduce": True, "overlap_param_gather": True}
    found = planned("sdp4bit", of, 2, 2, both, policy="none", micro_batches=2)
    first, second = 2**20, 2**19
    assert sizes(found, "all_gather")[::2] == [first / 2, second / 2]
    copies = [durations_us(found, f"decompress 0.parameters {number}")[-1] for number in (0, 1)]
    assert copies == [pytest.approx(own(4.0 * first)), pytest.approx(own(4.0 * second))]
    assert not names(found, "all_gather 1.") and not names(found, "all_to_all 0.")


def test_sdp4bit_keeps_the_gathered_differences() -> None:
    """1024 x 1000 values: half a byte each, and 500 scales."""
    world = MethodContext(8, gpus_per_node=4, profile=matrices((1024, 1000)))
    assert load_method("sdp4bit", {}).memory_in(world) == 1024 * 1000 / 2 + 4 * 500
    assert load_method("sdp4bit", {"quantise_weights": False}).memory_in(world) == 0.0


# All


@given(
    name=st.sampled_from(["zeropp", "loco", "sdp4bit"]),
    nodes=st.integers(1, 5),
    inside=st.integers(1, 5),
    rows=st.integers(1, 400),
    columns=st.integers(1, 400),
    precision=st.sampled_from(["fp32", "amp-fp16", "amp-bf16"]),
    micro_batches=st.integers(1, 3),
)
@settings(max_examples=40)
def test_any_shape_runs_and_sends_no_more_than_its_base(
    name: str,
    nodes: int,
    inside: int,
    rows: int,
    columns: int,
    precision: str,
    micro_batches: int,
) -> None:
    """Levels are narrower than what they stand for; each message has a few scales more."""
    if nodes * inside == 1:
        return
    of = matrices((rows, columns), (columns,), precision=precision)
    limits = {"persistence_threshold": 0} if name != "sdp4bit" else {}
    found = planned(name, of, nodes, inside, limits, micro_batches=micro_batches)
    base_name = "distributed_optimizer" if name == "sdp4bit" else "zero"
    stage = {"stage": 3} | limits if name != "sdp4bit" else {}
    base = planned(base_name, of, nodes, inside, stage, micro_batches=micro_batches)
    scales = 16.0 * (max(rows, columns) + nodes * inside) * 8 * micro_batches
    assert 0 < found.sent_bytes <= base.sent_bytes + scales
    assert milliseconds(found) > 0
