"""ResNet v1.5 as torchvision defines it (stride in the 3x3), 224 x 224.

He et al., arXiv 1512.03385.
"""

from __future__ import annotations

from functools import partial

from perfsim.models.layer import ModelLayer, batchnorm, conv, linear

__all__ = ["MODELS", "basic_block", "bottleneck", "resnet"]

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
WITH_BOTTLENECK = 50


def _downsample(
    name: str, inputs: int, outputs: int, width: int, downsample: str
) -> list[ModelLayer]:
    return [
        conv(f"{name}.{downsample}.0", inputs, outputs, 1, width),
        batchnorm(f"{name}.{downsample}.1", outputs, width),
    ]


def bottleneck(
    name: str, inputs: int, planes: int, width: int, stride: int, downsample: str = "downsample"
) -> list[ModelLayer]:
    """Return 1x1, 3x3 (with the stride), 1x1 to four times ``planes``, and the projection."""
    outputs = 4 * planes
    layers = [
        conv(f"{name}.conv1", inputs, planes, 1, width * stride),
        batchnorm(f"{name}.bn1", planes, width * stride),
        conv(f"{name}.conv2", planes, planes, 3, width),
        batchnorm(f"{name}.bn2", planes, width),
        conv(f"{name}.conv3", planes, outputs, 1, width),
        batchnorm(f"{name}.bn3", outputs, width),
    ]
    if stride != 1 or inputs != outputs:
        layers += _downsample(name, inputs, outputs, width, downsample)
    return layers


def basic_block(
    name: str, inputs: int, planes: int, width: int, stride: int, downsample: str = "downsample"
) -> list[ModelLayer]:
    """Return two 3x3 convolutions and the projection; '' as ``downsample`` leaves it out."""
    layers = [
        conv(f"{name}.conv1", inputs, planes, 3, width),
        batchnorm(f"{name}.bn1", planes, width),
        conv(f"{name}.conv2", planes, planes, 3, width),
        batchnorm(f"{name}.bn2", planes, width),
    ]
    if downsample and (stride != 1 or inputs != planes):
        layers += _downsample(name, inputs, planes, width, downsample)
    return layers


def resnet(depth: int) -> tuple[ModelLayer, ...]:
    """Return ResNet of ``depth`` weight layers for 1000 classes."""
    layers = [conv("conv1", 3, 64, 7, 112), batchnorm("bn1", 64, 112)]
    wide = depth >= WITH_BOTTLENECK
    inputs, width = 64, 56
    for stage, blocks in enumerate(BLOCKS[depth]):
        planes = 64 * 2**stage
        for place in range(blocks):
            stride = 2 if stage and not place else 1
            width //= stride
            block = bottleneck if wide else basic_block
            layers += block(f"layer{stage + 1}.{place}", inputs, planes, width, stride)
            inputs = planes * (4 if wide else 1)
    layers.append(linear("fc", inputs, 1000))
    return tuple(layers)


MODELS = {f"resnet{depth}": partial(resnet, depth) for depth in BLOCKS}
