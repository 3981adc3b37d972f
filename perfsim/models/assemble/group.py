"""Layers of a network as a profile lists them: those without parameters join the one before."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfsim.models import build_model
from perfsim.models.layers import LayerShape, ModelLayer

__all__ = ["LayerGroup", "groups"]


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """A layer with parameters and the layers without that follow it."""

    parts: tuple[ModelLayer, ...]

    @property
    def name(self) -> str:
        """Name of the layer that holds the parameters."""
        return self.parts[0].name

    @property
    def kind(self) -> str:
        """Kind of the layer that holds the parameters."""
        return self.parts[0].kind

    @property
    def tensors(self) -> tuple[tuple[str, LayerShape], ...]:
        """Its parameters."""
        return self.parts[0].tensors

    @property
    def elements(self) -> int:
        """Number of its parameters."""
        return sum(math.prod(shape) for _, shape in self.tensors)


def groups(model: str) -> tuple[LayerGroup, ...]:
    """Return the groups of one network in forward order.

    Examples
    --------
    >>> [len(group.parts) for group in groups("gpt2")[2:5]]
    [1, 2, 1]
    """
    found: list[list[ModelLayer]] = []
    for layer in build_model(model):
        if layer.tensors:
            found.append([layer])
        else:
            found[-1].append(layer)
    return tuple(LayerGroup(tuple(parts)) for parts in found)
