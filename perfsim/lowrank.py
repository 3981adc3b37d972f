"""What low-rank methods share: matrices factored together, and the kernels that do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perfsim.kernel import Kernel, elementwise, gemm, gram_schmidt, qr
from perfsim.profile import Gradient

__all__ = ["Factored", "Orthogonaliser", "factor_rank", "factored", "orthogonalise"]

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


@dataclass(frozen=True, slots=True)
class Factored:
    """Matrices M = P Q^T of one shape whose kernels are launched together.

    Parameters
    ----------
    count : how many
    rows, columns : n and m of each
    rank : r, columns of P (n x r) and of Q (m x r)

    Examples
    --------
    >>> two = Factored(2, 512, 256, 4)
    >>> two.p_elements, two.q_elements, two.p_product().launches
    (4096, 2048, 1)
    """

    count: int
    rows: int
    columns: int
    rank: int

    @property
    def elements(self) -> int:
        """Values of the matrices."""
        return self.count * self.rows * self.columns

    @property
    def p_elements(self) -> int:
        """Values of their P factors."""
        return self.count * self.rows * self.rank

    @property
    def q_elements(self) -> int:
        """Values of their Q factors."""
        return self.count * self.columns * self.rank

    def p_product(self) -> Kernel:
        """Return P = M Q."""
        return self._together(gemm(self.rows, self.columns, self.rank))

    def q_product(self) -> Kernel:
        """Return Q = M^T P."""
        return self._together(gemm(self.columns, self.rows, self.rank))

    def rebuilt(self) -> Kernel:
        """Return P Q^T."""
        return self._together(gemm(self.rows, self.rank, self.columns))

    def added(self) -> Kernel:
        """Return M += P Q^T in one kernel (baddbmm): M is read besides."""
        kernel = self.rebuilt()
        more = elementwise(self.elements, 1).moved_bytes
        return kernel._replace(moved_bytes=kernel.moved_bytes + more)

    def orthonormal(self, side: int, kernel: Orthogonaliser) -> list[Kernel]:
        """Return what orthonormalises their factors of ``side`` rows.

        Gram-Schmidt takes them together; torch.linalg.qr, one after the other: its second half
        (orgqr) always, its first (geqrf) above 256 rows or below rows / 16 matrices, so that
        fewer or smaller ones are counted too slow.

        References
        ----------
        pytorch/pytorch@006b3e67 aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp,
        geqrf_kernel and orgqr_kernel_impl.
        """
        one = orthogonalise(side, self.rank, kernel)
        return [self._together(one)] if one.name == "gram_schmidt" else [one] * self.count

    def _together(self, kernel: Kernel) -> Kernel:
        return kernel._replace(
            elements=kernel.elements * self.count,
            moved_bytes=kernel.moved_bytes * self.count,
            flops=kernel.flops * self.count,
        )


def factored(gradients: Iterable[Gradient], rank: int, *, together: bool) -> list[Factored]:
    """Return the matrices of some gradients, one by one or ``together`` by shape.

    Examples
    --------
    >>> ones = [Gradient(name, (8, 6), 0.0, 0) for name in "ab"]
    >>> [one.count for one in factored(ones, 2, together=True)]
    [2]
    """
    gradients = list(gradients)
    if not together:
        return [Factored(1, *one.matrix, factor_rank(one, rank)) for one in gradients]
    shapes = Counter(one.matrix for one in gradients)
    return [Factored(count, n, m, min(rank, n, m)) for (n, m), count in shapes.items()]
