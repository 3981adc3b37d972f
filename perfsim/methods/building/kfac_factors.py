"""Kronecker factors: the shapes of a layer's A and G, and the GPU operations of K-FAC, counted.

The Fisher matrix of a layer is taken as A (x) G: A is X^T X of its input matrix X (a convolution's
patches, one row a sample and output position, a column of ones for a bias), G that of the
gradients of its outputs, with as many rows.

Passes and launches are those of the public codes. A pass is one fp32 read or write of all values.
Padding and cloning of a convolution's input are left out, since a profile does not hold the size
of its input maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Literal

from perfsim.compute.kernel import (
    Kernel,
    cholesky,
    cholesky_inverse,
    eigh,
    elementwise,
    factor_product,
    gemm,
)
from perfsim.compute.profile import Gradient, Profile

__all__ = [
    "HKBU",
    "HKBU_LATER",
    "KAISA",
    "Code",
    "Inversion",
    "KfacLayer",
    "decomposed",
    "factor_sides",
    "inverted",
    "kfac_layers",
    "local_kernels",
    "packed_triangle",
    "preconditioned",
    "rescaled",
    "triangle",
    "unpacked_triangle",
]

TABLE = "embed"
"""Part of the name of an embedding table; K-FAC builds no factors for those."""


@dataclass(frozen=True, slots=True)
class KfacLayer:
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


def kfac_layers(profile: Profile, *, mean_over_tokens: bool = False) -> list[KfacLayer]:
    """Return the layers with known positions in forward order.

    ``mean_over_tokens``: a dense layer on sequences has one row a sample, their mean.

    Examples
    --------
    >>> from perfsim.data.catalog import Catalog
    >>> from perfsim.resolve import find_profile
    >>> layers = kfac_layers(find_profile("resnet50", "v100", 32, "fp32", Catalog()))
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
            KfacLayer(layer.name, conv, bias, inputs, outputs, rows, starts[index], ready_s)
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


Inversion = Literal["cholesky", "eigen"]
_INDEX_PASSES = 4
"""Passes that a value's row and column (two int64) are worth, written or read."""


@dataclass(frozen=True, slots=True)
class Code:
    """How one public code builds and averages factors: (passes, launches) of what surrounds them.

    Parameters
    ----------
    input_conv, input_linear : over X before A's product
    output_conv, output_linear : over the gradients of the outputs before G's product
    average : over the factor after its product (symmetrising, running average)
    """

    input_conv: tuple[int, int]
    input_linear: tuple[int, int]
    output_conv: tuple[int, int]
    output_linear: tuple[int, int]
    average: tuple[int, int]

    def input_factor(self, layer: KfacLayer) -> tuple[Kernel, ...]:
        """Return what builds A of a layer."""
        passes, launches = self.input_conv if layer.conv else self.input_linear
        if layer.bias:  # a column of ones is made and joined to X
            passes, launches = passes + 2, launches + 2
        return self._factor(layer.rows, layer.inputs, passes, launches)

    def output_factor(self, layer: KfacLayer) -> tuple[Kernel, ...]:
        """Return what builds G of a layer."""
        passes, launches = self.output_conv if layer.conv else self.output_linear
        return self._factor(layer.rows, layer.outputs, passes, launches)

    def _factor(self, rows: int, side: int, passes: int, launches: int) -> tuple[Kernel, ...]:
        before = elementwise(rows * side, passes, launches)
        return before, factor_product(rows, side), elementwise(side**2, *self.average)


HKBU = Code((6, 3), (2, 1), (8, 4), (2, 1), (7, 3))
"""shyhuai/kfac_pytorch@1dacea76 kfac/utils.py: patches copied, divided by positions and by rows;
G's rows copied and scaled three times; the running average in three operations."""

HKBU_LATER = Code((6, 3), (2, 1), (8, 4), (2, 1), (5, 2))
"""lzhangbv/kfac_pytorch@c45acb8f kfac/utils.py: as above, the running average in two operations."""

KAISA = Code((6, 3), (4, 2), (6, 3), (2, 1), (12, 5))
"""gpauloski/kfac-pytorch@869cf11 kfac/layers/: as above with the input cloned, G scaled twice, the
product made symmetric (5 passes) and averaged in three operations."""


@cache
def packed_triangle(side: int) -> Kernel:
    """Return the packing of an upper triangle: indices made by triu_indices, then gathered."""
    return elementwise(triangle(side), _INDEX_PASSES + _INDEX_PASSES + 2, 3)


@cache
def unpacked_triangle(side: int, *, mean: bool = False) -> tuple[Kernel, ...]:
    """Return the unpacking: indices of both triangles, two scatters and a gather of the mirror.

    ``mean`` also divides the matrix by the number of ranks.
    """
    indices, moves = 2 * _INDEX_PASSES, 3 * (_INDEX_PASSES + 2)
    both = elementwise(triangle(side), indices + moves, 7)
    return (both, elementwise(side**2, 2)) if mean else (both,)


@cache
def inverted(side: int) -> tuple[Kernel, ...]:
    """Return the damped inverse: damping (4 passes), two copies, the unit matrix, potrf, potrs.

    References
    ----------
    cybertronai/pytorch-sso@d161732 torchsso/utils/inv_cupy.py, inv (cuSOLVER through CuPy).
    """
    return elementwise(side**2, 9, 7), cholesky(side), cholesky_inverse(side)


def decomposed(side: int, *, copied: bool) -> tuple[Kernel, ...]:
    """Return torch.linalg.eigh, the clamping of its values, and perhaps a copy of its vectors."""
    kernels = (eigh(side), elementwise(side, 4, 2))
    return (*kernels, elementwise(side**2, 2)) if copied else kernels


def preconditioned(
    layer: KfacLayer, inversion: Inversion, *, quotients: bool = False
) -> tuple[Kernel, ...]:
    """Return G^-1 W A^-1: two products, or four around a division by the eigenvalues.

    The division takes 6 passes, or 3 where ``quotients`` of all pairs were made beforehand.
    """
    left = gemm(layer.outputs, layer.outputs, layer.inputs)
    right = gemm(layer.outputs, layer.inputs, layer.inputs)
    if inversion == "cholesky":
        return left, right
    divided = elementwise(layer.elements, 3) if quotients else elementwise(layer.elements, 6, 3)
    return left, right, divided, left, right


def rescaled(layer: KfacLayer) -> Kernel:
    """Return what writes the new gradient: product with the old one (6 passes), copy, scale."""
    return elementwise(layer.elements, 10, 6 * (1 + layer.bias))


def local_kernels(
    layer: KfacLayer, code: Code, inversion: Inversion, factors: bool, inverses: bool
) -> list[Kernel]:
    """Return all that one rank runs for a layer of its own: factors, inverses, preconditioning."""
    kernels: list[Kernel] = []
    if factors:
        kernels += (*code.input_factor(layer), *code.output_factor(layer))
    for side in (layer.inputs, layer.outputs) if inverses else ():
        kernels += decomposed(side, copied=True) if inversion == "eigen" else inverted(side)
    return [*kernels, *preconditioned(layer, inversion)]
