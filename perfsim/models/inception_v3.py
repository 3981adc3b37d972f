"""Inception-v3 with its auxiliary head, 299 x 299, as torchvision defines it.

Szegedy et al., arXiv 1512.00567.
"""

from __future__ import annotations

from perfsim.models.inception import ACROSS, DOWN, SHORT_ACROSS, SHORT_DOWN, InceptionStep, unit
from perfsim.models.layer import ModelLayer, linear

__all__ = ["MODELS", "inception_v3"]


def _module(name: str, width: int, steps: tuple[InceptionStep, ...]) -> list[ModelLayer]:
    return [
        layer
        for part, inputs, outputs, kernel in steps
        for layer in unit(f"{name}.{part}", inputs, outputs, kernel, width)
    ]


def _a(name: str, inputs: int, pool: int) -> list[ModelLayer]:
    return _module(
        name,
        35,
        (
            ("branch1x1", inputs, 64, 1),
            ("branch5x5_1", inputs, 48, 1),
            ("branch5x5_2", 48, 64, 5),
            ("branch3x3dbl_1", inputs, 64, 1),
            ("branch3x3dbl_2", 64, 96, 3),
            ("branch3x3dbl_3", 96, 96, 3),
            ("branch_pool", inputs, pool, 1),
        ),
    )


def _c(name: str, maps: int) -> list[ModelLayer]:
    return _module(
        name,
        17,
        (
            ("branch1x1", 768, 192, 1),
            ("branch7x7_1", 768, maps, 1),
            ("branch7x7_2", maps, maps, ACROSS),
            ("branch7x7_3", maps, 192, DOWN),
            ("branch7x7dbl_1", 768, maps, 1),
            ("branch7x7dbl_2", maps, maps, DOWN),
            ("branch7x7dbl_3", maps, maps, ACROSS),
            ("branch7x7dbl_4", maps, maps, DOWN),
            ("branch7x7dbl_5", maps, 192, ACROSS),
            ("branch_pool", 768, 192, 1),
        ),
    )


def _e(name: str, inputs: int) -> list[ModelLayer]:
    return _module(
        name,
        8,
        (
            ("branch1x1", inputs, 320, 1),
            ("branch3x3_1", inputs, 384, 1),
            ("branch3x3_2a", 384, 384, SHORT_ACROSS),
            ("branch3x3_2b", 384, 384, SHORT_DOWN),
            ("branch3x3dbl_1", inputs, 448, 1),
            ("branch3x3dbl_2", 448, 384, 3),
            ("branch3x3dbl_3a", 384, 384, SHORT_ACROSS),
            ("branch3x3dbl_3b", 384, 384, SHORT_DOWN),
            ("branch_pool", inputs, 192, 1),
        ),
    )


def inception_v3() -> tuple[ModelLayer, ...]:
    """Return Inception-v3 for training at 299 x 299, the auxiliary head where it is run."""
    return (
        *unit("Conv2d_1a_3x3", 3, 32, 3, 149),
        *unit("Conv2d_2a_3x3", 32, 32, 3, 147),
        *unit("Conv2d_2b_3x3", 32, 64, 3, 147),
        *unit("Conv2d_3b_1x1", 64, 80, 1, 73),
        *unit("Conv2d_4a_3x3", 80, 192, 3, 71),
        *_a("Mixed_5b", 192, 32),
        *_a("Mixed_5c", 256, 64),
        *_a("Mixed_5d", 288, 64),
        *unit("Mixed_6a.branch3x3", 288, 384, 3, 17),
        *unit("Mixed_6a.branch3x3dbl_1", 288, 64, 1, 35),
        *unit("Mixed_6a.branch3x3dbl_2", 64, 96, 3, 35),
        *unit("Mixed_6a.branch3x3dbl_3", 96, 96, 3, 17),
        *_c("Mixed_6b", 128),
        *_c("Mixed_6c", 160),
        *_c("Mixed_6d", 160),
        *_c("Mixed_6e", 192),
        *unit("AuxLogits.conv0", 768, 128, 1, 5),
        *unit("AuxLogits.conv1", 128, 768, 5, 1),
        linear("AuxLogits.fc", 768, 1000),
        *unit("Mixed_7a.branch3x3_1", 768, 192, 1, 17),
        *unit("Mixed_7a.branch3x3_2", 192, 320, 3, 8),
        *unit("Mixed_7a.branch7x7x3_1", 768, 192, 1, 17),
        *unit("Mixed_7a.branch7x7x3_2", 192, 192, ACROSS, 17),
        *unit("Mixed_7a.branch7x7x3_3", 192, 192, DOWN, 17),
        *unit("Mixed_7a.branch7x7x3_4", 192, 192, 3, 8),
        *_e("Mixed_7b", 1280),
        *_e("Mixed_7c", 2048),
        linear("fc", 2048, 1000),
    )


MODELS = {"inception-v3": inception_v3}
