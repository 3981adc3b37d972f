"""Selections gathered in two layers, between nodes and then inside, by hand."""

from __future__ import annotations

import pytest

from perfsim.methods import load_method
from perfsim.methods.base import Compute, MethodContext
from perfsim.methods.building.sparsify import hierarchical
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from support.builders import bucket, gradient
from support.selections import plans, sends
from support.stages import kernels, moved


def test_two_layers_gather_pairs_between_nodes_then_inside() -> None:
    # 1000 values on 2 nodes of 4: shares of 250, 3 kept of each at 1 %.
    method = load_method("mstopk", {"density": 0.01})
    stages = method.stages(bucket(gradient(1000)), MethodContext(8, 2, 4), 0)
    assert sends(stages) == [
        ("reduce_scatter", 4000.0, "node"),
        ("all_gather", 24.0, "across"),
        ("all_gather", 24.0, "across"),
        ("all_gather", 96.0, "node"),
        ("all_gather", 96.0, "node"),
    ]
    # On the share: residual 5; 2 + 1 + 1, 20 x 1.5, 5.5; 3 kept, 3 passes.
    passes = 5 + 4 + 20 * 1.5 + 5.5
    assert moved(kernels(stages, "compress")) == 4 * (passes * 250 + 3 * 3)
    streams = {stage.stream for stage in stages if isinstance(stage, Compute)}
    assert streams == {"communication"}


def test_two_layers_may_gather_sums() -> None:
    method = load_method("mstopk", {"density": 0.01, "inside": "sums"})
    stages = method.stages(bucket(gradient(1000)), MethodContext(8, 2, 4), 0)
    assert sends(stages)[-1] == ("all_gather", 4000.0, "node")
    assert len(sends(stages)) == 4
    # A share is zeroed and divided (3 passes of 250), 6 pairs are added.
    assert moved(kernels(stages, "decompress")) == 3 * 1000 + 16 * 6


def test_two_layers_are_one_where_there_is_nobody_to_send_to() -> None:
    alone = sends(hierarchical(1000, 3, MethodContext(4, 1, 4), []))
    assert [group for _, _, group in alone] == ["node"] * 3
    apart = sends(hierarchical(1000, 3, MethodContext(4, 4, 1), []))
    assert [group for _, _, group in apart] == ["across"] * 2


def test_two_layers_bytes_are_the_documented_ones() -> None:
    # 2 nodes of 4, 1 % of shares of 24,576 = 246: 4 n 3/4 + 8 k 2 x 3 inside, 8 k between.
    wire, bus = custom_link("1GB/s,20us", "x"), custom_link("10GB/s,2us", "x")
    cluster = Cluster(8, (4, 4), wire, bus)
    method = load_method("mstopk", {"density": 0.01})
    [plan] = plans(method, bucket(gradient((384, 256))), cluster)
    n, k = 384 * 256, 246
    assert plan.sent_bytes == pytest.approx(4 * n * 3 / 4 + 8 * k * 2 * 3 + 8 * k)


def test_mstopk_among_all_ranks_gathers_as_topk_does() -> None:
    one = bucket(gradient(1000))
    flat = load_method("mstopk", {"exchange": "all_gather"}).stages(one, MethodContext(8, 2, 4), 0)
    assert sends(flat) == sends(load_method("topk", {}).stages(one, MethodContext(8, 2, 4), 0))


@pytest.mark.parametrize(("select", "kernel"), [("dgc", "dgc_encode"), ("randk", "randk_encode")])
def test_other_selections_run_in_the_two_layers(select: str, kernel: str) -> None:
    method = load_method("mstopk", {"select": select})
    stages = method.stages(bucket(gradient(1000)), MethodContext(8, 2, 4), 0)
    found = [one for one in kernels(stages, "compress") if one.name == kernel]
    assert [one.elements for one in found] == [250]


def test_small_buckets_may_go_dense() -> None:
    method = load_method("mstopk", {"dense_below": 512})
    assert sends(method.stages(bucket(gradient(511)), MethodContext(8, 2, 4), 0)) == [
        ("all_reduce", 2044.0, "all")
    ]
    assert len(sends(method.stages(bucket(gradient(512)), MethodContext(8, 2, 4), 0))) == 5


def test_two_layers_need_equal_nodes() -> None:
    uneven = MethodContext(6, 2, 4)
    assert "same number of GPUs" in load_method("mstopk", {}).refusal(uneven)
    assert load_method("mstopk", {"exchange": "all_gather"}).refusal(uneven) == ""
    assert load_method("mstopk", {}).refusal(MethodContext(8, 2, 4)) == ""
