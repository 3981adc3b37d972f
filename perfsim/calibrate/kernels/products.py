"""Matrix products: low-rank factors, K-FAC's factors, and what the matrix units reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfsim.calibrate.kernels.bench import SIDES, Bench, Call, Size
from perfsim.calibrate.kernels.place import Place
from perfsim.kernel import Kernel, factor_product, gemm

__all__ = ["PRODUCTS", "RATES"]

RANKS = (1, 4, 16, 64, 256)
LOW_RANK_SIDES = (256, 1024, 4096, 8192)
ROWS = 4096
"""Rows of X in X^T X: samples times positions of a middle layer."""
RATE_SIDES = (256, 512, 1024, 2048, 4096, 8192)


def _low_rank_sizes(most: int) -> list[Size]:
    return [
        Size(side * side, rank, (side, rank))
        for rank in RANKS
        for side in LOW_RANK_SIDES
        if side * side <= most
    ]


def _p(place: Place, size: Size) -> Call:
    side, rank = size.shape
    matrix, q = place.normal(side, side), place.normal(side, rank)
    return lambda: matrix @ q


def _q(place: Place, size: Size) -> Call:
    side, rank = size.shape
    matrix, p = place.normal(side, side), place.normal(side, rank)
    return lambda: matrix.t() @ p


def _rebuilt(place: Place, size: Size) -> Call:
    side, rank = size.shape
    p, q = place.normal(side, rank), place.normal(side, rank)
    return lambda: p @ q.t()


def _first(size: Size) -> Sequence[Kernel]:
    side, rank = size.shape
    return (gemm(side, side, rank),)


def _last(size: Size) -> Sequence[Kernel]:
    side, rank = size.shape
    return (gemm(side, rank, side),)


def _factor_sizes(most: int) -> list[Size]:
    return [
        Size(ROWS * side**2, 0, (ROWS, side)) for side in SIDES if max(ROWS, side) * side <= most
    ]


def _factor(place: Place, size: Size) -> Call:
    rows = place.normal(*size.shape)
    return lambda: rows.t() @ rows


def _rate_sizes(most: int) -> list[Size]:
    return [Size(side * side, 0, (side, side)) for side in RATE_SIDES if side * side <= most]


def _square(precision: str) -> Callable[[Place, Size], Call]:
    def make(place: Place, size: Size) -> Call:
        torch = place.torch
        kind = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(precision)
        one, two = (place.normal(*size.shape).to(kind or torch.float32) for _ in range(2))
        if precision != "tf32":
            return lambda: one @ two

        def product() -> object:
            torch.backends.cuda.matmul.allow_tf32 = True
            try:
                return one @ two
            finally:
                torch.backends.cuda.matmul.allow_tf32 = False

        return product

    return make


PRODUCTS = (
    Bench(
        "factor",
        f"X^T X, {ROWS} rows",
        _factor_sizes,
        _factor,
        counted=lambda size: (factor_product(*size.shape),),
    ),
    Bench("lowrank_p", "M Q, M square, width: rank", _low_rank_sizes, _p, counted=_first),
    Bench("lowrank_q", "M^T P, M square, width: rank", _low_rank_sizes, _q, counted=_first),
    Bench("lowrank_rebuilt", "P Q^T, width: rank", _low_rank_sizes, _rebuilt, counted=_last),
)
"""Low-rank products are read by no method: a gemm depends on three sizes, a point has two."""

RATES = {
    precision: Bench(
        f"matrix_{precision}",
        f"product of square matrices, {precision}",
        _rate_sizes,
        _square(precision),
        growth=1.5,
    )
    for precision in ("fp32", "tf32", "amp-fp16", "amp-bf16")
}
"""For the matrix rates of a device file; read by no method."""
