"""Vision transformers of 16 x 16 patches as timm defines them, 224 x 224.

Dosovitskiy et al., arXiv 2010.11929.
"""

from __future__ import annotations

from functools import partial

from perfsim.models.layer import ModelLayer, conv, layernorm, linear, matmul

__all__ = ["MODELS", "vit"]

PATCHES = (224 // 16) ** 2
SIZES = {"b": (768, 12), "l": (1024, 24)}
"""Width and depth, by size."""


def vit(size: str) -> tuple[ModelLayer, ...]:
    """Return ViT of one size for 224 x 224 images and 1000 classes."""
    width, depth = SIZES[size]
    rows = PATCHES + 1
    token = ModelLayer("cls_token", "parameter", (("cls_token", (1, 1, width)),), 0.0, 4.0 * width)
    places = (("pos_embed", (1, rows, width)),)
    layers = [
        conv("patch_embed.proj", 3, width, 16, 14, bias=True),
        token,
        ModelLayer("pos_embed", "parameter", places, 0.0, 4.0 * rows * width),
    ]
    for block in range(depth):
        name = f"blocks.{block}"
        layers += [
            layernorm(f"{name}.norm1", width, rows),
            linear(f"{name}.attn.qkv", width, 3 * width, rows),
            matmul(f"{name}.attn", "attention", 4.0 * rows * rows * width, rows * width),
            linear(f"{name}.attn.proj", width, width, rows),
            layernorm(f"{name}.norm2", width, rows),
            linear(f"{name}.mlp.fc1", width, 4 * width, rows),
            linear(f"{name}.mlp.fc2", 4 * width, width, rows),
        ]
    layers += [layernorm("norm", width, rows), linear("head", width, 1000)]
    return tuple(layers)


MODELS = {f"vit-{size}16": partial(vit, size) for size in SIZES}
