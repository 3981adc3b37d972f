"""A model whose layers sleep for a profile's times and return real gradients of its shapes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from perfsim.compute.profile import Gradient, Profile, read_profile

__all__ = ["Sleeping", "asked_profile", "model"]


class _Sleep(torch.autograd.Function):
    """Sleeps forward and backward; the gradients of its parameters are ready made."""

    @staticmethod
    def forward(ctx: Any, x: Any, layer: Any, *_: Any) -> Any:
        ctx.layer = layer
        time.sleep(layer.forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        time.sleep(ctx.layer.backward_s)
        return gradient, None, *(ready.clone() for ready in ctx.layer.gradients)


class Layer(nn.Module):
    """One layer of a profile, with parameters p0, p1, ... of its gradients' shapes."""

    def __init__(self, shapes: list[tuple[int, ...]], forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.forward_s, self.backward_s = forward_s, backward_s
        self.gradients = [torch.full(shape, 1e-3) for shape in shapes]
        for index, shape in enumerate(shapes):
            self.register_parameter(f"p{index}", nn.Parameter(torch.zeros(shape)))

    def forward(self, x: Any) -> Any:
        """Sleep."""
        return _Sleep.apply(x, self, *self.parameters())


class Sleeping(nn.Sequential):
    """A profile's layers, each taking ``slower`` times as long.

    ``held`` maps the name of each gradient of the profile to its parameter.
    """

    def __init__(self, profile: Profile, slower: float) -> None:
        by_layer: dict[int, list[Gradient]] = {}
        for gradient in profile.gradients:
            by_layer.setdefault(gradient.layer, []).append(gradient)
        layers = [
            Layer(
                [gradient.shape for gradient in by_layer[index]],
                layer.forward_s * slower,
                layer.backward_s * slower,
            )
            for index, layer in enumerate(profile.layers)
        ]
        super().__init__(*layers)
        self.held = {
            gradient.name: parameter
            for index, layer in enumerate(layers)
            for gradient, parameter in zip(by_layer[index], layer.parameters(), strict=True)
        }


def asked_profile() -> tuple[Profile, float]:
    """Return the profile of the variable SLEEPING, and how many times slower to run it."""
    return read_profile(Path(os.environ["SLEEPING"])), float(os.environ.get("SLOWER", "1"))


def model(batch: int, device: str) -> tuple[nn.Module, Any]:
    """Return what ``perfsim calibrate compute --model sleeping:model`` measures."""
    made = Sleeping(*asked_profile())
    x = torch.zeros(4, requires_grad=True)
    return made, lambda: made(x).sum()
