"""DenseNet as torchvision defines it (Huang et al., arXiv 1608.06993), 224 x 224."""

from __future__ import annotations

from functools import partial

from perfsim.models.layer import ModelLayer, batchnorm, conv, linear

__all__ = ["MODELS", "densenet"]

SIZES = {
    121: (32, 64, (6, 12, 24, 16)),
    161: (48, 96, (6, 12, 36, 24)),
    201: (32, 64, (6, 12, 48, 32)),
}
"""Growth rate, first maps, dense layers of the four blocks, by depth."""


def densenet(depth: int) -> tuple[ModelLayer, ...]:
    """Return DenseNet of ``depth`` weight layers for 1000 classes."""
    growth, maps, blocks = SIZES[depth]
    layers = [conv("features.conv0", 3, maps, 7, 112), batchnorm("features.norm0", maps, 112)]
    width = 56
    for block, count in enumerate(blocks, 1):
        for place in range(1, count + 1):
            name = f"features.denseblock{block}.denselayer{place}"
            layers += [
                batchnorm(f"{name}.norm1", maps, width),
                conv(f"{name}.conv1", maps, 4 * growth, 1, width),
                batchnorm(f"{name}.norm2", 4 * growth, width),
                conv(f"{name}.conv2", 4 * growth, growth, 3, width),
            ]
            maps += growth
        if block < len(blocks):
            name = f"features.transition{block}"
            layers += [
                batchnorm(f"{name}.norm", maps, width),
                conv(f"{name}.conv", maps, maps // 2, 1, width),
            ]
            maps //= 2
            width //= 2
    layers += [batchnorm("features.norm5", maps, width), linear("classifier", maps, 1000)]
    return tuple(layers)


MODELS = {f"densenet{depth}": partial(densenet, depth) for depth in SIZES}
