"""What low-rank methods share: the factors of a matrix, and the kernel that orthogonalises."""

from __future__ import annotations

from typing import Literal

from perfsim.kernel import Kernel, gram_schmidt, qr
from perfsim.profile import Gradient

__all__ = ["Orthogonaliser", "factor_rank", "orthogonalise"]

Orthogonaliser = Literal["auto", "gram_schmidt", "qr"]


def factor_rank(gradient: Gradient, rank: int) -> int:
    """Return the rank a gradient is factored to: no more than its smaller side.

    Examples
    --------
    >>> factor_rank(Gradient("w", (64, 3, 7, 7), 0.0, 0), 128)
    64
    """
    return min(rank, *gradient.matrix)


def orthogonalise(rows: int, rank: int, kernel: Orthogonaliser) -> Kernel:
    """Return the kernel that makes the columns of a ``rows`` x ``rank`` factor orthonormal.

    "auto" is PyTorch's choice: Gram-Schmidt up to rank 2, QR above (pytorch pull 72043).
    """
    if kernel == "gram_schmidt" or (kernel == "auto" and rank <= 2):
        return gram_schmidt(rows, rank)
    return qr(rows, rank)
