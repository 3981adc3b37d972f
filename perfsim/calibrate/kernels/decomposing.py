"""Decompositions: orthonormal columns of a factor, inverses and eigenvectors of a square one."""

from __future__ import annotations

from typing import Any

from perfsim.calibrate.kernels.bench import Bench, Call, Size, by_rank, squares
from perfsim.calibrate.kernels.place import Place
from perfsim.kernel import cholesky, cholesky_inverse, eigh, gram_schmidt, qr

__all__ = ["DECOMPOSING"]

ROWS = (64, 256, 1024, 4096, 16384, 65536)
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TINY = 1e-8


def _factors(most: int) -> list[Size]:
    return by_rank(ROWS, RANKS, most)


def _qr(place: Place, size: Size) -> Call:
    matrix = place.normal(*size.shape)
    return lambda: place.torch.linalg.qr(matrix)


def _gram_schmidt(place: Place, size: Size) -> Call:
    """Return PowerSGD's Gram-Schmidt: a column at a time, each operation a launch, in place."""
    matrix = place.normal(*size.shape)
    rank = size.width

    def run() -> object:
        for at in range(rank):
            column = matrix[:, at : at + 1]
            column /= place.torch.sqrt((column**2).sum()) + TINY
            if at + 1 < rank:
                rest = matrix[:, at + 1 :]
                rest -= (column * rest).sum(dim=0) * column
        return matrix

    return run


def _factor(place: Place, size: Size) -> Any:
    """Return a symmetric matrix without small eigenvalues, as a damped K-FAC factor is."""
    side = size.shape[0]
    rows = place.normal(side, side)
    return rows @ rows.t() / side + place.torch.eye(side, device=place.device)


def _inverse(place: Place, size: Size) -> Call:
    matrix = _factor(place, size)
    return lambda: place.torch.linalg.inv(matrix)


def _cholesky(place: Place, size: Size) -> Call:
    matrix = _factor(place, size)
    return lambda: place.torch.linalg.cholesky(matrix)


def _cholesky_inverse(place: Place, size: Size) -> Call:
    lower = place.torch.linalg.cholesky(_factor(place, size))
    return lambda: place.torch.cholesky_inverse(lower)


def _eigh(place: Place, size: Size) -> Call:
    matrix = _factor(place, size)
    return lambda: place.torch.linalg.eigh(matrix)


DECOMPOSING = (
    Bench(
        "qr",
        "torch.linalg.qr, reduced",
        _factors,
        _qr,
        counted=lambda size: (qr(size.elements, size.width),),
    ),
    Bench(
        "gram_schmidt",
        "column by column as PowerSGD, nothing fused",
        _factors,
        _gram_schmidt,
        counted=lambda size: (gram_schmidt(size.elements, size.width),),
    ),
    Bench(
        "cholesky",
        "torch.linalg.cholesky",
        squares,
        _cholesky,
        growth=1.5,
        counted=lambda size: (cholesky(size.shape[0]),),
    ),
    Bench(
        "cholesky_inverse",
        "torch.cholesky_inverse of the lower factor",
        squares,
        _cholesky_inverse,
        growth=1.5,
        counted=lambda size: (cholesky_inverse(size.shape[0]),),
    ),
    Bench("inverse", "torch.linalg.inv", squares, _inverse, growth=1.5),
    Bench(
        "eigh",
        "torch.linalg.eigh",
        squares,
        _eigh,
        growth=1.5,
        counted=lambda size: (eigh(size.shape[0]),),
    ),
)
