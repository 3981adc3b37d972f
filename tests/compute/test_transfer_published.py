"""Anchors that ship, and what profiles transferred by them take, beside what others measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from perfsim.compute.anchors import load_anchors
from perfsim.compute.device import load_device
from perfsim.compute.profile import read_profile
from perfsim.compute.transfer import transfer
from perfsim.resolve import find_profile
from support.anchors import Table, milliseconds, transferred
from support.collected import (
    Found,
    gavel,
    kaust,
    lambda_labs,
    mxnet,
    needs_data,
    tensorflow,
    timm,
    torchvision,
)
from support.what_ships import SHIPPED


def test_resnet50_on_v100_pcie_as_hkbu_measured() -> None:
    """ddl-benchmarks 2020: 253.1 images/s at batch 64 (arXiv 2005.13247)."""
    [found] = [a for a in load_anchors("v100-pcie", SHIPPED) if a.model == "resnet50"]
    assert math.isclose(found.iteration_s, 64 / 253.1, rel_tol=1e-5)
    own = read_profile(SHIPPED.path("models", "resnet50.v100.fp32.b32", "model", "models"))
    result = transfer(own, load_device("v100-pcie", SHIPPED), 64, "fp32", SHIPPED)
    assert math.isclose(milliseconds(result), 252.86, abs_tol=0.01)
    assert result.quantity.kind == "measured"


def test_both_v100_boards_differ_by_their_chip_alone() -> None:
    """ViT-B/16 at batch 192: what one board takes, the other takes by 15.7 / 14.0 TFLOP/s."""
    own = find_profile("vit-b16", "v100", 192, "fp32", SHIPPED)
    sxm, pcie = (
        transfer(own, load_device(gpu, SHIPPED), 192, "fp32", SHIPPED).quantity.value
        for gpu in ("v100", "v100-pcie")
    )
    assert 1 < pcie / sxm <= 15.7 / 14.0 + 1e-9


def test_h200_is_as_much_faster_than_h100_as_lambda_measured() -> None:
    """Lambda's benchmark: ResNet-50 in TF32 at 1895 images/s on an H100, 2259 on an H200."""
    own = read_profile(SHIPPED.path("models", "resnet50.v100.fp32.b32", "model", "models"))
    h100, h200, smaller = (
        transfer(own, load_device(gpu, SHIPPED), batch, "tf32", SHIPPED, "torch2").quantity.value
        for gpu, batch in (("h100", 640), ("h200", 1280), ("h200", 640))
    )
    assert math.isclose(h100, 640 / 1895, rel_tol=1e-5)
    assert math.isclose(h200, 1280 / 2259, rel_tol=1e-5)
    assert math.isclose(smaller * 2259, h100 * 1895, rel_tol=0.05)


def test_resnet50_transferred_to_batch_64_agrees_with_tensorflow_traces() -> None:
    """Traces on a V100 (ChenYuHo/schedule-simulator@368d560): forward 73.19, backward 117.13 ms."""
    own = read_profile(SHIPPED.path("models", "resnet50.v100.fp32.b32", "model", "models"))
    result = transfer(own, load_device("v100", SHIPPED), 64, "fp32", SHIPPED)
    assert math.isclose(result.profile.forward_s * 1e3, 73.19, rel_tol=0.06)
    assert math.isclose(result.profile.backward_s * 1e3, 117.13, rel_tol=0.06)


def test_mxnet_figures_between_batches_lie_near_the_line() -> None:
    """MXNet's page gives 63.689 ms at batch 16; its batches 8 and 32 predict it within 20 %."""
    whole = read_profile(SHIPPED.path("models", "resnet50.v100.fp32.b32", "model", "models"))
    own = replace(whole, gpu="p100")
    ends = [
        a for a in load_anchors("v100", SHIPPED) if a.model == "resnet50" and a.batch in (8, 32)
    ]
    table: Table = {"v100": [a for a in ends if a.source.startswith("apache/mxnet")]}
    assert math.isclose(milliseconds(transferred(table, 16, own=own)), 63.689, rel_tol=0.2)


# The second column: how many anchors of the source there are, so that none is lost unnoticed.
# The H200's are left out: their batch is that of the H100, not their source's.
@needs_data
@pytest.mark.parametrize(
    ("source", "rows", "collect"),
    [
        ("apache/mxnet", 38, mxnet),
        ("tensorflow/tensorflow", 18, tensorflow),
        ("huggingface/pytorch-image-models", 12, timm),
        ("ryujaehun/pytorch-gpu-benchmark", 8, torchvision),
        ("stanford-futuredata/gavel", 18, gavel),
        ("ChenYuHo/schedule-simulator", 5, kaust),
        ("lambdal/deeplearning-benchmark", 28, lambda_labs),
    ],
)
def test_anchors_are_those_of_the_collected_tables(
    source: str, rows: int, collect: Callable[[], Found]
) -> None:
    found = collect()
    own = [
        (gpu, a)
        for gpu in SHIPPED.files("devices")
        for a in load_anchors(gpu, SHIPPED)
        if a.source.startswith(source) and gpu != "h200"
    ]
    assert len(own) == rows
    for gpu, a in own:
        near = found[gpu, a.model, a.precision, a.batch]
        assert any(math.isclose(a.iteration_s * 1e3, one, rel_tol=6e-6) for one in near), a
