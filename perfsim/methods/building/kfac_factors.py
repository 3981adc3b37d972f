"""Kronecker factors: the shapes of a layer's A and G, and the GPU operations of K-FAC.

K-FAC approximates a layer's Fisher matrix by A (x) G. A is X^T X of the layer's input matrix X. For
a convolution X holds patches, one row per sample and output position. A bias adds a column of ones.
G is the same product for the gradients of the layer's outputs, with as many rows.

Passes and launches are counted in the public codes. A pass is one fp32 read or write of all values.
Padding and cloning of a convolution's input are left out, since a profile does not store the size
of its input maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Literal, NamedTuple

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
    "inverse_kernels",
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
"""Part of an embedding table's name; K-FAC builds no factors for such tables."""


class KfacLayer(NamedTuple):
    """A layer that K-FAC preconditions.

    Parameters
    ----------
    name : as in the profile
    conv : whether it is a convolution
    bias : whether it has a bias
    inputs, outputs : sides of A and of G
    rows : rows of the input matrix for the whole batch
    begins_s : start of its forward pass [s into the forward pass]
    ready_s : when its gradients are ready [s into the backward pass]
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
        """Values of its gradient; the bias is one more column."""
        return self.inputs * self.outputs


def triangle(side: int) -> int:
    """Return the number of values in the upper triangle of a symmetric matrix, which is sent.

    Examples
    --------
    >>> triangle(4608)
    10619136
    """
    return side * (side + 1) // 2


def _shape(tensors: Iterable[Gradient]) -> tuple[int, int, bool] | None:
    """Return (inputs, outputs, bias) of a layer's tensors, or None if none is a matrix."""
    weight = next((tensor for tensor in tensors if len(tensor.shape) > 1), None)
    if weight is None:
        return None
    outputs, inputs = weight.matrix
    bias = any(tensor.shape == (outputs,) for tensor in tensors)
    return inputs + bias, outputs, bias


def kfac_layers(profile: Profile, *, mean_over_tokens: bool = False) -> list[KfacLayer]:
    """Return the layers whose number of output positions is known, in forward order.

    ``mean_over_tokens``: a dense layer on sequences has one row per sample, the mean over tokens.

    Examples
    --------
    >>> from perfsim.data.catalog import Catalog
    >>> from perfsim.resolve import find_profile
    >>> layers = kfac_layers(find_profile("resnet50", "v100", 32, "fp32", Catalog()))
    >>> len(layers), layers[0].inputs, layers[0].rows, layers[-1].inputs
    (54, 147, 401408, 2049)
    """
    starts = [0.0, *accumulate(layer.forward_s for layer in profile.layers)]
    by_layer: dict[int, list[Gradient]] = {}
    for gradient in profile.gradients:
        by_layer.setdefault(gradient.layer, []).append(gradient)
    result = []
    for index, layer in enumerate(profile.layers):
        tensors = by_layer.get(index, [])
        shape = _shape(tensors)
        if layer.name not in profile.positions or shape is None:
            continue
        conv = layer.kind == "conv"
        mean = mean_over_tokens and not conv
        positions = 1 if mean else profile.positions[layer.name]
        ready_s = max(tensor.ready_s for tensor in tensors)
        inputs, outputs, bias = shape
        rows = profile.batch * positions
        result.append(
            KfacLayer(layer.name, conv, bias, inputs, outputs, rows, starts[index], ready_s)
        )
    return result


def factor_sides(gradients: Sequence[Gradient]) -> list[tuple[int, int]]:
    """Return (inputs, outputs) of every layer with a matrix, except embedding tables.

    Examples
    --------
    >>> weight, bias = Gradient("fc.weight", (10, 4), 0.0, 0), Gradient("fc.bias", (10,), 0.0, 0)
    >>> factor_sides([weight, bias])
    [(5, 10)]
    """
    by_layer: dict[int, list[Gradient]] = {}
    for gradient in gradients:
        if TABLE not in gradient.name:
            by_layer.setdefault(gradient.layer, []).append(gradient)
    shapes = [_shape(tensors) for tensors in by_layer.values()]
    return [(shape[0], shape[1]) for shape in shapes if shape is not None]


Inversion = Literal["cholesky", "eigen"]
"""How a factor is inverted: a damped inverse by Cholesky, or eigenvectors and eigenvalues.

Methods invert by Cholesky unless asked otherwise, so that a comparison compares methods. The papers
compare so: SPD-KFAC's code only inverts (shyhuai/kfac_pytorch@1dacea76), and DP-KFAC's training
scripts take ``--kfac-name inverse`` by default and time the "inverse" forms of MPD-KFAC, KAISA and
DP-KFAC on ImageNet (lzhangbv/kfac_pytorch examples/pytorch_imagenet_resnet.py, kfac/__init__.py).
"""
_INDEX_PASSES = 4
"""Passes to write or read a value's row and column (two int64 are four fp32 values)."""


class Code(NamedTuple):
    """How one public code builds and averages factors, as (passes, launches) of elementwise work.

    Parameters
    ----------
    input_conv, input_linear : work on X before A's product
    output_conv, output_linear : work on the gradients of the outputs before G's product
    average : work on the factor after its product (symmetrising, running average)
    """

    input_conv: tuple[int, int]
    input_linear: tuple[int, int]
    output_conv: tuple[int, int]
    output_linear: tuple[int, int]
    average: tuple[int, int]

    def input_factor(self, layer: KfacLayer) -> tuple[Kernel, ...]:
        """Return the kernels that build A of a layer."""
        passes, launches = self.input_conv if layer.conv else self.input_linear
        if layer.bias:  # a column of ones is made and appended to X
            passes, launches = passes + 2, launches + 2
        return self._factor(layer.rows, layer.inputs, passes, launches)

    def output_factor(self, layer: KfacLayer) -> tuple[Kernel, ...]:
        """Return the kernels that build G of a layer."""
        passes, launches = self.output_conv if layer.conv else self.output_linear
        return self._factor(layer.rows, layer.outputs, passes, launches)

    def _factor(self, rows: int, side: int, passes: int, launches: int) -> tuple[Kernel, ...]:
        before = elementwise(rows * side, passes, launches)
        return before, factor_product(rows, side), elementwise(side**2, *self.average)


HKBU = Code((6, 3), (2, 1), (8, 4), (2, 1), (7, 3))
"""shyhuai/kfac_pytorch@1dacea76 kfac/utils.py. Patches are copied and divided by positions and by
rows. G's rows are copied and scaled three times. The running average takes three operations."""

HKBU_LATER = Code((6, 3), (2, 1), (8, 4), (2, 1), (5, 2))
"""lzhangbv/kfac_pytorch@c45acb8f kfac/utils.py: as HKBU, but the running average takes two
operations."""

KAISA = Code((6, 3), (4, 2), (6, 3), (2, 1), (12, 5))
"""gpauloski/kfac-pytorch@869cf11 kfac/layers/: as HKBU, but the input is cloned, G is scaled twice,
and the product is made symmetric (5 passes) and averaged in three operations."""


@cache
def packed_triangle(side: int) -> Kernel:
    """Return the packing of an upper triangle: triu_indices makes indices, then a gather."""
    return elementwise(triangle(side), _INDEX_PASSES + _INDEX_PASSES + 2, 3)


@cache
def unpacked_triangle(side: int, *, mean: bool = False) -> tuple[Kernel, ...]:
    """Return the unpacking of an upper triangle into the whole matrix.

    It makes the indices of both triangles, scatters twice and gathers the mirrored values.

    ``mean`` also divides the matrix by the number of ranks.
    """
    indices, moves = 2 * _INDEX_PASSES, 3 * (_INDEX_PASSES + 2)
    both = elementwise(triangle(side), indices + moves, 7)
    return (both, elementwise(side**2, 2)) if mean else (both,)


@cache
def inverted(side: int) -> tuple[Kernel, ...]:
    """Return the kernels of the damped inverse of a matrix.

    They are damping (4 passes), two copies, the unit matrix, potrf and potrs.

    References
    ----------
    cybertronai/pytorch-sso@d161732 torchsso/utils/inv_cupy.py, inv (cuSOLVER through CuPy).
    """
    return elementwise(side**2, 9, 7), cholesky(side), cholesky_inverse(side)


def decomposed(side: int, *, copied: bool) -> tuple[Kernel, ...]:
    """Return torch.linalg.eigh and the clamping of the eigenvalues.

    ``copied``: the eigenvectors are copied as well.
    """
    kernels = (eigh(side), elementwise(side, 4, 2))
    return (*kernels, elementwise(side**2, 2)) if copied else kernels


def inverse_kernels(side: int, inversion: Inversion, *, copied: bool = True) -> tuple[Kernel, ...]:
    """Return the kernels that invert a factor; ``copied``: eigenvectors are copied as well."""
    return decomposed(side, copied=copied) if inversion == "eigen" else inverted(side)


def preconditioned(
    layer: KfacLayer, inversion: Inversion, *, quotients: bool = False
) -> tuple[Kernel, ...]:
    """Return the kernels of G^-1 W A^-1: two products, or four around a division by eigenvalues.

    The division takes 6 passes, or 3 if the ``quotients`` of all pairs were computed before.
    """
    left = gemm(layer.outputs, layer.outputs, layer.inputs)
    right = gemm(layer.outputs, layer.inputs, layer.inputs)
    if inversion == "cholesky":
        return left, right
    divided = elementwise(layer.elements, 3) if quotients else elementwise(layer.elements, 6, 3)
    return left, right, divided, left, right


def rescaled(layer: KfacLayer) -> Kernel:
    """Return the write of the new gradient: product with the old one (6 passes), copy, scale."""
    return elementwise(layer.elements, 10, 6 * (1 + layer.bias))


def local_kernels(
    layer: KfacLayer, code: Code, inversion: Inversion, factors: bool, inverses: bool
) -> list[Kernel]:
    """Return all kernels of one rank for a layer it owns: factors, inverses, preconditioning."""
    kernels: list[Kernel] = []
    if factors:
        kernels += (*code.input_factor(layer), *code.output_factor(layer))
    for side in (layer.inputs, layer.outputs) if inverses else ():
        kernels += inverse_kernels(side, inversion)
    return [*kernels, *preconditioned(layer, inversion)]
