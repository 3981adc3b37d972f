"""Kronecker factors: the shapes of a layer's A and G, and where in an iteration they are built.

The Fisher matrix of a layer is taken as A (x) G: A is X^T X of its input matrix X (a convolution's
patches, one row a sample and output position, a column of ones for a bias), G that of the
gradients of its outputs, of as many rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from perfsim.profile import Gradient, Profile

__all__ = ["Factored", "factor_sides", "factored", "triangle"]

TABLE = "embed"
"""Part of the name of a table of vectors, of which no factors are built."""


@dataclass(frozen=True, slots=True)
class Factored:
    """A layer that is preconditioned.

    Parameters
    ----------
    name : as in the profile
    conv : whether it is a convolution
    inputs, outputs : sides of A and of G
    rows : rows of the input matrix, of the whole batch
    begins_s : where its forward pass begins [s into the forward pass]
    ready_s : when its gradients are there [s into the backward pass]
    """

    name: str
    conv: bool
    bias: bool
    inputs: int
    outputs: int
    rows: int
    begins_s: float
    ready_s: float

    @property
    def elements(self) -> int:
        """Values of its gradient, the bias as one column more."""
        return self.inputs * self.outputs


def triangle(side: int) -> int:
    """Return the values of a symmetric matrix that are sent: its upper triangle.

    Examples
    --------
    >>> triangle(4608)
    10619136
    """
    return side * (side + 1) // 2


def _shape(tensors: Iterable[Gradient]) -> tuple[int, int, bool] | None:
    """Return (inputs, outputs, bias) of a layer's tensors; None where none is a matrix."""
    weight = next((one for one in tensors if len(one.shape) > 1), None)
    if weight is None:
        return None
    outputs, inputs = weight.matrix
    bias = any(one.shape == (outputs,) for one in tensors)
    return inputs + bias, outputs, bias


def factored(profile: Profile, *, mean_over_tokens: bool = False) -> list[Factored]:
    """Return the layers with known positions in forward order.

    ``mean_over_tokens``: a dense layer on sequences has one row a sample, their mean.

    Examples
    --------
    >>> from perfsim.catalog import Catalog
    >>> from perfsim.computation import find_profile
    >>> layers = factored(find_profile("resnet50", "v100", 32, "fp32", Catalog()))
    >>> len(layers), layers[0].inputs, layers[0].rows, layers[-1].inputs
    (54, 147, 401408, 2049)
    """
    starts = [0.0, *accumulate(layer.forward_s for layer in profile.layers)]
    own: dict[int, list[Gradient]] = {}
    for gradient in profile.gradients:
        own.setdefault(gradient.layer, []).append(gradient)
    found = []
    for index, layer in enumerate(profile.layers):
        tensors = own.get(index, [])
        shape = _shape(tensors)
        if layer.name not in profile.positions or shape is None:
            continue
        conv = layer.kind == "conv"
        mean = mean_over_tokens and not conv
        positions = 1 if mean else profile.positions[layer.name]
        ready_s = max(one.ready_s for one in tensors)
        inputs, outputs, bias = shape
        rows = profile.batch * positions
        found.append(
            Factored(layer.name, conv, bias, inputs, outputs, rows, starts[index], ready_s)
        )
    return found


def factor_sides(gradients: Sequence[Gradient]) -> list[tuple[int, int]]:
    """Return (inputs, outputs) of every layer with a matrix, tables of embeddings left out.

    Examples
    --------
    >>> weight, bias = Gradient("fc.weight", (10, 4), 0.0, 0), Gradient("fc.bias", (10,), 0.0, 0)
    >>> factor_sides([weight, bias])
    [(5, 10)]
    """
    own: dict[int, list[Gradient]] = {}
    for gradient in gradients:
        if TABLE not in gradient.name:
            own.setdefault(gradient.layer, []).append(gradient)
    shapes = [_shape(tensors) for tensors in own.values()]
    return [(shape[0], shape[1]) for shape in shapes if shape is not None]
