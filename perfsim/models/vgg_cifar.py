"""VGG-16 with batch normalisation for 32 x 32 images: one dense layer, 14.7 M parameters.

The variant of kuangliu/pytorch-cifar, which the CIFAR-10 measurements of gTop-k
(arXiv 1901.04359) and of arXiv 2109.12497 are of.
"""

from __future__ import annotations

from perfsim.models.layer import ModelLayer, batchnorm, conv, linear
from perfsim.models.vgg import STAGES

__all__ = ["MODELS", "vgg16_cifar"]


def vgg16_cifar() -> tuple[ModelLayer, ...]:
    """Return the thirteen convolutions with biases, their normalisations, one dense layer."""
    layers: list[ModelLayer] = []
    place, inputs, width = 0, 3, 32
    for stage, convolutions in enumerate(STAGES[16]):
        outputs = min(64 * 2**stage, 512)
        for _ in range(convolutions):
            layers.append(conv(f"features.{place}", inputs, outputs, 3, width, bias=True))
            layers.append(batchnorm(f"features.{place + 1}", outputs, width))
            inputs = outputs
            place += 3
        place += 1
        width //= 2
    layers.append(linear("classifier", 512, 10))
    return tuple(layers)


MODELS = {"vgg16-cifar": vgg16_cifar}
