"""Profiles: the measured (or derived, and labelled so) times and gradients of one model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from perfsim.quantity import Kind

__all__ = ["PRECISIONS", "Gradient", "Layer", "Profile"]

PRECISIONS = ("fp32", "tf32", "amp-fp16", "amp-bf16")
ROUNDING = 1e-5
"""Share of the iteration that rounded milliseconds may leave over."""


@dataclass(frozen=True)
class Gradient:
    """One parameter's gradient: fp32, ready ``ready_s`` after the backward pass began."""

    name: str
    shape: tuple[int, ...]
    ready_s: float
    layer: int

    @cached_property
    def elements(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> float:
        """Bytes in fp32."""
        return 4.0 * self.elements

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the gradient as low-rank methods view it (first axis x the rest)."""
        if len(self.shape) < 2:
            return self.elements, 1
        return self.shape[0], math.prod(self.shape[1:])

    def at(self, ready_s: float) -> Gradient:
        """Return the same gradient, ready at another moment [s].

        Examples
        --------
        >>> Gradient("fc.weight", (10, 4), 1.0, 0).at(2.0)
        Gradient(name='fc.weight', shape=(10, 4), ready_s=2.0, layer=0)
        """
        made = object.__new__(Gradient)  # it keeps how many elements there are, if they are known
        made.__dict__.update(self.__dict__, ready_s=ready_s)
        return made


class Layer(NamedTuple):
    """A layer with parameters; layers without any are merged into the one before them."""

    name: str
    kind: str
    forward_s: float
    backward_s: float


@dataclass(frozen=True)
class Profile:
    """Per-layer times and gradients of one model at one batch size and precision on one GPU.

    ``gradients`` are in forward order. ``iteration_s`` is the whole single-GPU iteration; what
    forward, backward and optimizer leave of it is ``other_s`` (input, launches, host).
    ``positions`` are the rows a sample of a layer's input matrix, where they are known (see
    ``perfsim.positions``).
    """

    model: str
    gpu: str
    precision: str
    batch: int
    iteration_s: float
    optimizer_s: float
    layers: tuple[Layer, ...]
    gradients: tuple[Gradient, ...]
    kinds: dict[str, Kind]
    header: dict[str, str]
    path: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def forward_s(self) -> float:
        """Forward pass [s]."""
        return sum(layer.forward_s for layer in self.layers)

    @cached_property
    def backward_s(self) -> float:
        """Backward pass [s]."""
        return sum(layer.backward_s for layer in self.layers)

    @cached_property
    def other_s(self) -> float:
        """Time of the iteration outside forward, backward and optimizer [s]."""
        rest_s = self.iteration_s - self.forward_s - self.backward_s - self.optimizer_s
        return rest_s if rest_s > ROUNDING * self.iteration_s else 0.0

    @property
    def alone_s(self) -> float:
        """An iteration as it is scheduled on one GPU, which scaling efficiency counts from [s]."""
        return self.forward_s + self.backward_s + self.optimizer_s + self.other_s

    @cached_property
    def elements(self) -> int:
        """Parameters."""
        return sum(gradient.elements for gradient in self.gradients)

    @cached_property
    def size_bytes(self) -> float:
        """Bytes of all gradients in fp32."""
        return 4.0 * self.elements

    @property
    def sequence(self) -> int | None:
        """Tokens a sample, for models over text."""
        return int(float(self.header["sequence"])) if "sequence" in self.header else None

    @cached_property
    def _ready_order(self) -> tuple[Gradient, ...]:
        order = sorted(
            range(len(self.gradients)), key=lambda index: (self.gradients[index].ready_s, -index)
        )
        return tuple(self.gradients[index] for index in order)

    def in_ready_order(self) -> list[Gradient]:
        """Return the gradients in the order in which the backward pass makes them.

        Gradients ready at the same moment come last-registered first, as autograd gives them.
        """
        return list(self._ready_order)

    def scaled(self, factor: float) -> Profile:
        """Return the profile with every time multiplied by ``factor``."""
        return replace(
            self,
            iteration_s=self.iteration_s * factor,
            optimizer_s=self.optimizer_s * factor,
            layers=tuple(
                Layer(layer.name, layer.kind, layer.forward_s * factor, layer.backward_s * factor)
                for layer in self.layers
            ),
            gradients=tuple(one.at(one.ready_s * factor) for one in self.gradients),
        )
