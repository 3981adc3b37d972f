"""ResNets for 32 x 32 images.

- resnet20-cifar ... resnet110-cifar: He et al., arXiv 1512.03385, section 4.2; three stages of
  16, 32, 64 maps; shortcuts without parameters (their option A).
- resnet18-cifar, resnet50-cifar: the ImageNet blocks at 64..512 maps on 32 x 32, as in
  kuangliu/pytorch-cifar (11.2 M and 23.5 M parameters).
"""

from __future__ import annotations

from functools import partial

from perfsim.models.layer import ModelLayer, batchnorm, conv, linear
from perfsim.models.resnet import basic_block, bottleneck

__all__ = ["MODELS", "thin", "wide"]


def thin(depth: int, classes: int = 10) -> tuple[ModelLayer, ...]:
    """Return the CIFAR ResNet of ``depth`` = 6 n + 2 weight layers."""
    layers = [conv("conv1", 3, 16, 3, 32), batchnorm("bn1", 16, 32)]
    inputs, width = 16, 32
    for stage in range(3):
        planes = 16 * 2**stage
        for place in range((depth - 2) // 6):
            stride = 2 if stage and not place else 1
            width //= stride
            name = f"layer{stage + 1}.{place}"
            layers += basic_block(name, inputs, planes, width, stride, downsample="")
            inputs = planes
    layers.append(linear("linear", inputs, classes))
    return tuple(layers)


def wide(depth: int, classes: int = 10) -> tuple[ModelLayer, ...]:
    """Return ResNet-18 or ResNet-50 with a 3x3 stem at full resolution."""
    layers = [conv("conv1", 3, 64, 3, 32), batchnorm("bn1", 64, 32)]
    block, blocks, growth = {
        18: (basic_block, (2, 2, 2, 2), 1),
        50: (bottleneck, (3, 4, 6, 3), 4),
    }[depth]
    inputs, width = 64, 32
    for stage, count in enumerate(blocks):
        planes = 64 * 2**stage
        for place in range(count):
            stride = 2 if stage and not place else 1
            width //= stride
            name = f"layer{stage + 1}.{place}"
            layers += block(name, inputs, planes, width, stride, downsample="shortcut")
            inputs = planes * growth
    layers.append(linear("linear", inputs, classes))
    return tuple(layers)


MODELS = {f"resnet{depth}-cifar": partial(thin, depth) for depth in (20, 32, 56, 110)} | {
    f"resnet{depth}-cifar": partial(wide, depth) for depth in (18, 50)
}
