"""Inception-v4 as timm defines it (Szegedy et al., arXiv 1602.07261), 299 x 299."""

from __future__ import annotations

from perfsim.models.layer import ModelLayer, batchnorm, conv, linear

__all__ = ["MODELS", "InceptionStep", "inception_v4", "unit"]

KernelSize = int | tuple[int, int]
InceptionStep = tuple[str, int, int, KernelSize]
"""Name inside the module, input maps, output maps, kernel."""

Placed = tuple[str, int, int, KernelSize, int]
"""The same, with the width of what it writes."""

ACROSS, DOWN = (1, 7), (7, 1)
SHORT_ACROSS, SHORT_DOWN = (1, 3), (3, 1)


def unit(name: str, inputs: int, outputs: int, kernel: KernelSize, width: int) -> list[ModelLayer]:
    """Return a convolution without bias and its batch normalisation."""
    return [
        conv(f"{name}.conv", inputs, outputs, kernel, width),
        batchnorm(f"{name}.bn", outputs, width),
    ]


A: tuple[InceptionStep, ...] = (
    ("branch0", 384, 96, 1),
    ("branch1.0", 384, 64, 1),
    ("branch1.1", 64, 96, 3),
    ("branch2.0", 384, 64, 1),
    ("branch2.1", 64, 96, 3),
    ("branch2.2", 96, 96, 3),
    ("branch3.1", 384, 96, 1),
)
B: tuple[InceptionStep, ...] = (
    ("branch0", 1024, 384, 1),
    ("branch1.0", 1024, 192, 1),
    ("branch1.1", 192, 224, ACROSS),
    ("branch1.2", 224, 256, DOWN),
    ("branch2.0", 1024, 192, 1),
    ("branch2.1", 192, 192, DOWN),
    ("branch2.2", 192, 224, ACROSS),
    ("branch2.3", 224, 224, DOWN),
    ("branch2.4", 224, 256, ACROSS),
    ("branch3.1", 1024, 128, 1),
)
C: tuple[InceptionStep, ...] = (
    ("branch0", 1536, 256, 1),
    ("branch1_0", 1536, 384, 1),
    ("branch1_1a", 384, 256, SHORT_ACROSS),
    ("branch1_1b", 384, 256, SHORT_DOWN),
    ("branch2_0", 1536, 384, 1),
    ("branch2_1", 384, 448, SHORT_DOWN),
    ("branch2_2", 448, 512, SHORT_ACROSS),
    ("branch2_3a", 512, 256, SHORT_ACROSS),
    ("branch2_3b", 512, 256, SHORT_DOWN),
    ("branch3.1", 1536, 256, 1),
)


def _placed(prefix: str, steps: tuple[Placed, ...]) -> list[ModelLayer]:
    return [
        layer
        for name, inputs, outputs, kernel, width in steps
        for layer in unit(f"{prefix}.{name}", inputs, outputs, kernel, width)
    ]


def _stem() -> list[ModelLayer]:
    steps: tuple[Placed, ...] = (
        ("0", 3, 32, 3, 149),
        ("1", 32, 32, 3, 147),
        ("2", 32, 64, 3, 147),
        ("3.conv", 64, 96, 3, 73),
        ("4.branch0.0", 160, 64, 1, 73),
        ("4.branch0.1", 64, 96, 3, 71),
        ("4.branch1.0", 160, 64, 1, 73),
        ("4.branch1.1", 64, 64, ACROSS, 73),
        ("4.branch1.2", 64, 64, DOWN, 73),
        ("4.branch1.3", 64, 96, 3, 71),
        ("5.conv", 192, 192, 3, 35),
    )
    return _placed("features", steps)


def _reductions() -> tuple[list[ModelLayer], list[ModelLayer]]:
    first: tuple[Placed, ...] = (
        ("branch0", 384, 384, 3, 17),
        ("branch1.0", 384, 192, 1, 35),
        ("branch1.1", 192, 224, 3, 35),
        ("branch1.2", 224, 256, 3, 17),
    )
    second: tuple[Placed, ...] = (
        ("branch0.0", 1024, 192, 1, 17),
        ("branch0.1", 192, 192, 3, 8),
        ("branch1.0", 1024, 256, 1, 17),
        ("branch1.1", 256, 256, ACROSS, 17),
        ("branch1.2", 256, 320, DOWN, 17),
        ("branch1.3", 320, 320, 3, 8),
    )
    return (
        _placed("features.10", first),
        _placed("features.18", second),
    )


def _modules(places: range, steps: tuple[InceptionStep, ...], width: int) -> list[ModelLayer]:
    return [
        layer
        for place in places
        for name, inputs, outputs, kernel in steps
        for layer in unit(f"features.{place}.{name}", inputs, outputs, kernel, width)
    ]


def inception_v4() -> tuple[ModelLayer, ...]:
    """Return Inception-v4 for 1000 classes: stem, 4 A, reduction, 7 B, reduction, 3 C."""
    to_b, to_c = _reductions()
    return (
        *_stem(),
        *_modules(range(6, 10), A, 35),
        *to_b,
        *_modules(range(11, 18), B, 17),
        *to_c,
        *_modules(range(19, 22), C, 8),
        linear("last_linear", 1536, 1000),
    )


MODELS = {"inception-v4": inception_v4}
