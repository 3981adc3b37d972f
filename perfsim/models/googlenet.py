"""GoogLeNet with auxiliary heads as torchvision defines it (Szegedy et al., arXiv 1409.4842).

torchvision's third branch uses 3x3 where the paper has 5x5 (a known slip that its weights need).
"""

from __future__ import annotations

from perfsim.models.layer import ModelLayer, batchnorm, conv, linear

__all__ = ["MODELS", "googlenet"]

INCEPTIONS = (
    ("inception3a", 192, 64, (96, 128), (16, 32), 32, 28),
    ("inception3b", 256, 128, (128, 192), (32, 96), 64, 28),
    ("inception4a", 480, 192, (96, 208), (16, 48), 64, 14),
    ("inception4b", 512, 160, (112, 224), (24, 64), 64, 14),
    ("inception4c", 512, 128, (128, 256), (24, 64), 64, 14),
    ("inception4d", 512, 112, (144, 288), (32, 64), 64, 14),
    ("inception4e", 528, 256, (160, 320), (32, 128), 128, 14),
    ("inception5a", 832, 256, (160, 320), (32, 128), 128, 7),
    ("inception5b", 832, 384, (192, 384), (48, 128), 128, 7),
)
HEADS = {"inception4a": "aux1", "inception4d": "aux2"}
"""The auxiliary head that reads a module's output."""


def _basic(name: str, inputs: int, outputs: int, kernel: int, width: int) -> list[ModelLayer]:
    return [
        conv(f"{name}.conv", inputs, outputs, kernel, width),
        batchnorm(f"{name}.bn", outputs, width),
    ]


def _head(name: str, inputs: int) -> list[ModelLayer]:
    return [
        *_basic(f"{name}.conv", inputs, 128, 1, 4),
        linear(f"{name}.fc1", 2048, 1024),
        linear(f"{name}.fc2", 1024, 1000),
    ]


def googlenet() -> tuple[ModelLayer, ...]:
    """Return GoogLeNet for training, its two auxiliary heads where the forward pass runs them."""
    layers = [
        *_basic("conv1", 3, 64, 7, 112),
        *_basic("conv2", 64, 64, 1, 56),
        *_basic("conv3", 64, 192, 3, 56),
    ]
    for name, inputs, one, (reduce3, three), (reduce5, five), pool, width in INCEPTIONS:
        layers += _basic(f"{name}.branch1", inputs, one, 1, width)
        layers += _basic(f"{name}.branch2.0", inputs, reduce3, 1, width)
        layers += _basic(f"{name}.branch2.1", reduce3, three, 3, width)
        layers += _basic(f"{name}.branch3.0", inputs, reduce5, 1, width)
        layers += _basic(f"{name}.branch3.1", reduce5, five, 3, width)
        layers += _basic(f"{name}.branch4.1", inputs, pool, 1, width)
        if name in HEADS:
            layers += _head(HEADS[name], one + three + five + pool)
    layers.append(linear("fc", 1024, 1000))
    return tuple(layers)


MODELS = {"googlenet": googlenet}
