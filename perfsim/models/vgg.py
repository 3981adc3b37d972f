"""VGG-16 and VGG-19 as torchvision defines them, 224 x 224.

Simonyan & Zisserman, arXiv 1409.1556.
"""

from __future__ import annotations

from functools import partial

from perfsim.models.layer import ModelLayer, conv, linear

__all__ = ["MODELS", "STAGES", "vgg"]

STAGES = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""3x3 convolutions before each of the five poolings, by depth."""


def vgg(depth: int) -> tuple[ModelLayer, ...]:
    """Return VGG of ``depth`` weight layers without batch normalisation."""
    layers: list[ModelLayer] = []
    place, inputs, width = 0, 3, 224
    for stage, convolutions in enumerate(STAGES[depth]):
        outputs = min(64 * 2**stage, 512)
        for _ in range(convolutions):
            layers.append(conv(f"features.{place}", inputs, outputs, 3, width, bias=True))
            inputs = outputs
            place += 2
        place += 1
        width //= 2
    layers += [
        linear("classifier.0", 512 * 7 * 7, 4096),
        linear("classifier.3", 4096, 4096),
        linear("classifier.6", 4096, 1000),
    ]
    return tuple(layers)


MODELS = {f"vgg{depth}": partial(vgg, depth) for depth in STAGES}
