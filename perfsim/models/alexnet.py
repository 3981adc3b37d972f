"""AlexNet as torchvision defines it (Krizhevsky, "One weird trick", arXiv 1404.5997), 224 x 224."""

from __future__ import annotations

from perfsim.models.layer import ModelLayer, conv, linear

__all__ = ["MODELS", "alexnet"]


def alexnet() -> tuple[ModelLayer, ...]:
    """Return the five convolutions and three dense layers."""
    return (
        conv("features.0", 3, 64, 11, 55, bias=True),
        conv("features.3", 64, 192, 5, 27, bias=True),
        conv("features.6", 192, 384, 3, 13, bias=True),
        conv("features.8", 384, 256, 3, 13, bias=True),
        conv("features.10", 256, 256, 3, 13, bias=True),
        linear("classifier.1", 256 * 6 * 6, 4096),
        linear("classifier.4", 4096, 4096),
        linear("classifier.6", 4096, 1000),
    )


MODELS = {"alexnet": alexnet}
