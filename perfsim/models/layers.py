"""What network definitions are made of: layers with their tensors and their work for one sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "LayerShape",
    "ModelBuilder",
    "ModelLayer",
    "batchnorm",
    "conv",
    "embedding",
    "layernorm",
    "linear",
    "lstm",
    "matmul",
    "pooled",
]

LayerShape = tuple[int, ...]
_FLOAT_BYTES = 4
"""Bytes of an fp32 value."""


@dataclass(frozen=True, slots=True)
class ModelLayer:
    """One layer of a network definition, for one sample.

    Parameters
    ----------
    name : public name of the module (torchvision, timm, transformers)
    kind : conv, batchnorm, linear, embedding, layernorm, lstm, attention, parameter
    tensors : (public name, shape) of its parameters; none for products without parameters
        (attention scores, an output layer tied to the embedding)
    flops : floating-point operations of the forward pass for one sample, 2 a multiply-add;
        element-wise work counts as none
    activation_bytes : what it writes for one sample in fp32 [B]
    """

    name: str
    kind: str
    tensors: tuple[tuple[str, LayerShape], ...]
    flops: float
    activation_bytes: float

    @property
    def elements(self) -> int:
        """Parameters of the layer."""
        return sum(math.prod(shape) for _, shape in self.tensors)


ModelBuilder = Callable[[], tuple[ModelLayer, ...]]
"""Returns the layers of one network in forward order."""


def pooled(size: int, kernel: int, stride: int, padding: int = 0, ceil: bool = False) -> int:
    """Return the width of a convolution's or pooling's output.

    Examples
    --------
    >>> pooled(224, 7, 2, 3), pooled(112, 3, 2, 0, ceil=True)
    (112, 56)
    """
    span = size + 2 * padding - kernel
    return (-(-span // stride) if ceil else span // stride) + 1


def conv(
    name: str,
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    width: int | tuple[int, int],
    *,
    bias: bool = False,
) -> ModelLayer:
    """Return a convolution that writes ``outputs`` maps of ``width`` (x ``width``) points.

    Examples
    --------
    >>> conv("conv1", 3, 64, 7, 112).flops
    236027904.0
    """
    high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
    points = math.prod((width, width) if isinstance(width, int) else width)
    tensors: list[tuple[str, LayerShape]] = [(f"{name}.weight", (outputs, inputs, high, wide))]
    if bias:
        tensors.append((f"{name}.bias", (outputs,)))
    flops = 2.0 * inputs * high * wide * outputs * points
    return ModelLayer(name, "conv", tuple(tensors), flops, float(_FLOAT_BYTES * outputs * points))


def _scale_and_shift(name: str, kind: str, features: int, points: int) -> ModelLayer:
    tensors = ((f"{name}.weight", (features,)), (f"{name}.bias", (features,)))
    return ModelLayer(name, kind, tensors, 0.0, float(_FLOAT_BYTES * features * points))


def batchnorm(name: str, features: int, width: int | tuple[int, int] = 1) -> ModelLayer:
    """Return a batch normalisation over maps of ``width`` (x ``width``) points."""
    points = math.prod((width, width) if isinstance(width, int) else width)
    return _scale_and_shift(name, "batchnorm", features, points)


def layernorm(name: str, features: int, rows: int = 1) -> ModelLayer:
    """Return a layer normalisation of ``rows`` vectors of ``features`` values."""
    return _scale_and_shift(name, "layernorm", features, rows)


def linear(
    name: str,
    inputs: int,
    outputs: int,
    rows: int = 1,
    *,
    bias: bool = True,
    transposed: bool = False,
) -> ModelLayer:
    """Return a dense layer on ``rows`` vectors; ``transposed`` stores its weight as (in, out).

    Examples
    --------
    >>> linear("fc", 2048, 1000).elements
    2049000
    """
    shape = (inputs, outputs) if transposed else (outputs, inputs)
    tensors: list[tuple[str, LayerShape]] = [(f"{name}.weight", shape)]
    if bias:
        tensors.append((f"{name}.bias", (outputs,)))
    flops = 2.0 * inputs * outputs * rows
    return ModelLayer(name, "linear", tuple(tensors), flops, float(_FLOAT_BYTES * outputs * rows))


def embedding(name: str, entries: int, features: int, rows: int) -> ModelLayer:
    """Return an embedding table of ``entries`` vectors; a sample looks up ``rows``."""
    tensors = ((f"{name}.weight", (entries, features)),)
    return ModelLayer(name, "embedding", tensors, 0.0, float(_FLOAT_BYTES * features * rows))


def lstm(prefix: str, suffix: str, inputs: int, hidden: int, steps: int) -> ModelLayer:
    """Return one LSTM layer in PyTorch's names: four gates, two weights, two biases."""
    tensors: tuple[tuple[str, LayerShape], ...] = (
        (f"{prefix}.weight_ih_{suffix}", (4 * hidden, inputs)),
        (f"{prefix}.weight_hh_{suffix}", (4 * hidden, hidden)),
        (f"{prefix}.bias_ih_{suffix}", (4 * hidden,)),
        (f"{prefix}.bias_hh_{suffix}", (4 * hidden,)),
    )
    flops = 2.0 * 4 * hidden * (inputs + hidden) * steps
    name = f"{prefix}.{suffix}"
    return ModelLayer(name, "lstm", tensors, flops, float(_FLOAT_BYTES * hidden * steps))


def matmul(name: str, kind: str, flops: float, outputs: int) -> ModelLayer:
    """Return a matrix product without parameters of its own, such as attention scores."""
    return ModelLayer(name, kind, (), flops, float(_FLOAT_BYTES * outputs))
