"""Network definitions: their sums are those of the public definitions."""

from __future__ import annotations

import math

import pytest

from layer_shapes import CALIBRATED_ON, layer_groups, read_ready_trace
from perfsim.errors import RequestError
from perfsim.models import build_model, defined_models
from perfsim.models.layers import ModelLayer, conv, linear, lstm, pooled
from perfsim.models.transformers import bert
from support.collected import COLLECTED, needs_data, table

# Counted on the public definitions: torchvision 0.29.2, timm 1.0.31, transformers 5.23.0;
# forward GFLOP by torch's FlopCounterMode, 2 a multiply-add, one sample.
# parameters, tensors, tensors of more than one axis, largest tensor, forward GFLOP
PUBLISHED = {
    "alexnet": (61_100_840, 16, 8, 37_748_736, 1.43),
    "vgg16": (138_357_544, 32, 16, 102_760_448, 30.9),
    "vgg19": (143_667_240, 38, 19, 102_760_448, 39.3),
    "resnet18": (11_689_512, 62, 21, 2_359_296, 3.63),
    "resnet50": (25_557_032, 161, 54, 2_359_296, 8.18),
    "resnet101": (44_549_160, 314, 105, 2_359_296, 15.6),
    "resnet152": (60_192_808, 467, 156, 2_359_296, 23.0),
    "densenet121": (7_978_856, 364, 121, 1_024_000, 5.67),
    "densenet161": (28_681_000, 484, 161, 2_230_272, 15.5),
    "densenet201": (20_013_928, 604, 201, 1_920_000, 8.58),
    "inception-v3": (27_161_264, 292, 98, 2_457_600, 11.4),
    "inception-v4": (42_679_816, 449, 150, 1_536_000, 24.5),
    "googlenet": (13_004_888, 187, 64, 2_097_152, 3.00),
    "vit-b16": (86_567_656, 152, 52, 2_359_296, 35.1),
    "vit-l16": (304_326_632, 296, 100, 4_194_304, 123),
    "bert-base": (110_106_428, 206, 78, 23_440_896, 14.1),
    "bert-large": (336_226_108, 398, 150, 31_254_528, 43.2),
    "bert-base-squad": (108_893_186, 199, 76, 23_440_896, None),
    "bert-large-squad": (334_094_338, 391, 148, 31_254_528, None),
    "gpt2": (124_439_808, 148, 50, 38_597_376, 292),
    "gpt2-medium": (354_823_168, 292, 98, None, 827),
    "gpt2-large": (774_030_080, 436, 146, None, None),
    "gpt2-xl": (1_557_611_200, 580, 194, None, None),
    "lstm-ptb": (66_034_000, 11, 6, 15_000_000, None),
    "lstm-an4": (27_569_568, 40, None, None, None),
    "lstm": (85_974_278, 10, None, 49_917_000, None),
}

# Millions as printed: He et al. 2015, table 6; README of kuangliu/pytorch-cifar; arXiv 2109.12497.
CIFAR_MILLIONS = {
    "resnet20-cifar": "0.27",
    "resnet32-cifar": "0.46",
    "resnet56-cifar": "0.85",
    "resnet110-cifar": "1.7",
    "resnet18-cifar": "11.2",
    "resnet50-cifar": "23.5",
    "vgg16-cifar": "14.7",
}


def _shapes(layers: tuple[ModelLayer, ...]) -> dict[str, tuple[int, ...]]:
    return {tensor: shape for layer in layers for tensor, shape in layer.tensors}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sums_are_the_published_ones(name: str) -> None:
    parameters, tensors, matrices, largest, _ = PUBLISHED[name]
    shapes = _shapes(build_model(name))
    sizes = [math.prod(shape) for shape in shapes.values()]
    assert sum(sizes) == parameters
    assert len(sizes) == tensors
    if matrices is not None:
        assert sum(len(shape) > 1 for shape in shapes.values()) == matrices
    if largest is not None:
        assert max(sizes) == largest


@pytest.mark.parametrize("name", [name for name, sums in PUBLISHED.items() if sums[-1]])
def test_forward_work_is_the_published_one_within_2_percent(name: str) -> None:
    published = PUBLISHED[name][-1]
    assert published is not None
    assert sum(layer.flops for layer in build_model(name)) == pytest.approx(
        published * 1e9, rel=0.02
    )


@pytest.mark.parametrize(
    ("size", "tokens", "gflop"),
    [
        ("base", 128, 28.5),
        ("base", 384, 89.1),
        ("base", 512, 121),
        ("large", 128, 87.2),
        ("large", 384, 271),
        ("large", 512, 368),
    ],
)
def test_bert_work_grows_with_the_sequence_as_published(
    size: str, tokens: int, gflop: float
) -> None:
    work = sum(layer.flops for layer in bert(size, tokens=tokens))
    assert work == pytest.approx(gflop * 1e9, rel=0.02)


@pytest.mark.parametrize(("name", "printed"), CIFAR_MILLIONS.items())
def test_cifar_networks_have_the_published_size(name: str, printed: str) -> None:
    digits = len(printed.partition(".")[2])
    assert f"{sum(layer.elements for layer in build_model(name)) / 1e6:.{digits}f}" == printed


@pytest.mark.parametrize("name", defined_models())
def test_names_are_unique_and_quantities_are_not_negative(name: str) -> None:
    layers = build_model(name)
    tensors = [tensor for layer in layers for tensor, _ in layer.tensors]
    assert len(set(tensors)) == len(tensors)
    assert len({layer.name for layer in layers}) == len(layers)
    assert all(layer.flops >= 0 and layer.activation_bytes > 0 for layer in layers)
    assert layers[0].tensors  # a layer without parameters joins the one before it


def test_layer_sums_by_hand() -> None:
    # 3x3 from 2 to 5 maps on 4x4 points: 90 weights, 5 biases, 2 x 90 x 16 operations
    layer = conv("c", 2, 5, 3, 4, bias=True)
    assert (layer.elements, layer.flops, layer.activation_bytes) == (95, 2880.0, 320.0)
    layer = linear("f", 3, 7, rows=2, transposed=True)
    assert layer.tensors == (("f.weight", (3, 7)), ("f.bias", (7,)))
    assert layer.flops == 84.0
    # 4 gates x 2 hidden: weights 8x3 and 8x2, two biases of 8; 10 steps
    layer = lstm("r", "l0", 3, 2, 10)
    assert (layer.elements, layer.flops) == (56, 800.0)
    assert [pooled(7, 3, 2), pooled(8, 3, 2), pooled(8, 3, 2, ceil=True)] == [3, 3, 4]


def test_tied_output_layers_stand_once() -> None:
    for name, head in (("bert-base", "cls.predictions"), ("gpt2", "lm_head"), ("lstm", "decoder")):
        by_name = {layer.name: layer for layer in build_model(name)}
        assert by_name[head].flops > 0
        assert all(len(shape) < 2 for _, shape in by_name[head].tensors)
        assert build_model(name)[0].kind == "embedding"


def test_auxiliary_heads_stand_where_the_forward_pass_runs_them() -> None:
    order = [layer.name for layer in build_model("googlenet")]
    assert order.index("aux1.fc2") < order.index("inception4b.branch1.conv")
    assert order.index("aux1.conv.conv") > order.index("inception4a.branch4.1.bn")


def test_an_unknown_network_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RequestError, match="no 'resnet5O'; did you mean 'resnet50'"):
        build_model("resnet5O")


@needs_data
@pytest.mark.parametrize(
    "source", [source for source in CALIBRATED_ON if source.startswith("espresso")]
)
def test_names_sizes_and_backward_order_are_those_of_the_traces(source: str) -> None:
    model = layer_groups(CALIBRATED_ON[source])
    path = COLLECTED / "profiles" / f"{source}.csv"
    trace = read_ready_trace(path, model)  # refuses another tensor, size or order
    assert set(trace.ready_ms) == {tensor for group in model for tensor, _ in group.tensors}
    gaps_us = sum(int(row["gap_us"]) for row in table(source))
    assert sum(trace.layer_ms) == pytest.approx(gaps_us / 1e3)
