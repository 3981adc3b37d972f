"""Two small networks that really compute: a residual CNN and a GPT, with fake data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["cnn", "gpt", "sharded_units"]

IMAGE_SIDE, CLASSES = 32, 10
"""Images and classes of CIFAR-10."""
STAGES = (32, 64, 128, 256)
"""Channels of the CNN's stages, each of two blocks at half the side of the one before."""
VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS = 2000, 192, 4, 6, 32


class Block(nn.Module):
    """Two convolutions around which the input is added (He et al. 2016, basic block)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        same = before == after and stride == 1
        self.short = None if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        """Run the block."""
        kept = x if self.short is None else self.short(x)
        x = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(x)) + kept)


def cnn(batch: int, device: str) -> tuple[nn.Module, Callable[[], Any]]:
    """Return a residual CNN of 2.8 million parameters, and its loss on fake images."""
    layers: list[nn.Module] = [nn.Conv2d(3, STAGES[0], 3, 1, 1, bias=False)]
    before = STAGES[0]
    for channels in STAGES:
        layers += [Block(before, channels, 2), Block(channels, channels, 1)]
        before = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES)]
    model = nn.Sequential(*layers).to(device)
    images = torch.randn(batch, 3, IMAGE_SIDE, IMAGE_SIDE, device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    return model, lambda of=model: functional.cross_entropy(of(images), labels)


class Language(nn.Module):
    """A small GPT: causal, pre-normalised layers, GELU, learned positions, a head of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(TOKENS, WIDTH)
        layer = [WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu"]
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(*layer, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        """Return the logits of every token."""
        count = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(count, device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(count, device=tokens.device)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


def gpt(batch: int, device: str, sequence: int = TOKENS) -> tuple[nn.Module, Callable[[], Any]]:
    """Return a GPT of 3.4 million parameters, and its loss on fake tokens."""
    model = Language().to(device)
    tokens = torch.randint(VOCABULARY, (batch, sequence), device=device)
    after = tokens.roll(-1, 1).flatten()
    return model, lambda of=model: functional.cross_entropy(of(tokens).flatten(0, 1), after)


def sharded_units(model: nn.Module) -> list[list[nn.Module]]:
    """Return what FSDP gathers together: what is ahead of the blocks, each block, what is behind.

    torchtitan wraps its models so, and perfsim's method fsdp reads them so.
    """
    if isinstance(model, Language):
        ahead, behind = [model.tokens, model.positions], [model.norm, model.head]
        return [ahead, *([layer] for layer in model.layers), behind]
    return [[part] for part in model if list(part.parameters())]
