"""GPU operations that methods add, by name and size; ``Device.cost`` prices them.

A ``Kernel`` names the points measured of it (``profiles/devices/<gpu>.kernels.csv``). Where there
are none, its price follows from the bytes it moves over memory bandwidth, its floating-point
operations over the matrix rate, and its launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias, overload

__all__ = [
    "Kernel",
    "KernelLoop",
    "Kernels",
    "cholesky",
    "cholesky_inverse",
    "count_kernels",
    "eigh",
    "elementwise",
    "factor_product",
    "gemm",
    "gram_schmidt",
    "method_code",
    "moved",
    "qr",
    "scatter_add",
]

FLOAT = 4
"""Bytes of an fp32 element."""

HALF = 2
"""Bytes of an fp16 or bf16 element."""

INDEX = 4
"""Bytes of an int32 index."""


class Kernel(NamedTuple):
    """One GPU operation, perhaps of several launches.

    Parameters
    ----------
    name : the name under which devices hold measured points
    elements : the size by which those points are looked up
    moved_bytes : bytes read and written, for GPUs without measured points
    flops : floating-point operations (2 a multiply-add)
    launches : how many kernels are launched
    width : second size of a two-dimensional operation (columns, rank); 0 where there is none
    parts : the framework's operations that a method's code runs, which price it in software eras
        newer than its points; () for one operation of a library
    outer : whether it is the step of an outer optimizer, which what an exchange costs is split by
    """

    name: str
    elements: int
    moved_bytes: float
    flops: float = 0.0
    launches: int = 1
    width: int = 0
    parts: tuple[Kernel, ...] = ()
    outer: bool = False


class KernelLoop(Sequence[Kernel]):
    """Kernels of which some run many times in a row, such as once for each rank.

    It reads as the tuple of all of them and takes no more memory for more times.

    Parameters
    ----------
    runs : kernels, and how many times they run, one after another

    Examples
    --------
    >>> copy, add = moved(1000, 8e3), moved(500, 4e3)
    >>> loop = KernelLoop([((copy, add), 3)]).then(copy)
    >>> len(loop), loop[-1] == copy, count_kernels(loop) == {copy: 4, add: 3}
    (7, True, True)
    >>> loop == (copy, add, copy, add, copy, add, copy)
    True
    """

    __slots__ = ("runs",)

    def __init__(self, runs: Sequence[tuple[tuple[Kernel, ...], int]]) -> None:
        self.runs = tuple((kernels, times) for kernels, times in runs if kernels and times)

    def __len__(self) -> int:
        """Return how many kernels run."""
        return sum(len(kernels) * times for kernels, times in self.runs)

    def __iter__(self) -> Iterator[Kernel]:
        """Yield the kernels as they run."""
        for kernels, times in self.runs:
            for _ in range(times):
                yield from kernels

    @overload
    def __getitem__(self, index: int) -> Kernel: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Kernel, ...]: ...

    def __getitem__(self, index: int | slice) -> Kernel | tuple[Kernel, ...]:
        """Return one kernel, or a tuple of some."""
        return tuple(self)[index]

    def then(self, *others: Kernel) -> KernelLoop:
        """Return these kernels and others after them."""
        return KernelLoop((*self.runs, (others, 1)))

    def __eq__(self, other: object) -> bool:
        """Tell whether the same kernels run in the same order."""
        if isinstance(other, KernelLoop) and self.runs == other.runs:
            return True
        return isinstance(other, KernelLoop | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Return the hash of all kernels."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Return the runs."""
        return f"KernelLoop({self.runs!r})"


Kernels: TypeAlias = tuple[Kernel, ...] | KernelLoop
"""Kernels that run one after the other."""


def count_kernels(kernels: Kernels) -> dict[Kernel, int]:
    """Return how many times each kernel runs, in the order in which they first do."""
    if isinstance(kernels, tuple):
        return Counter(kernels)
    found: dict[Kernel, int] = {}
    for some, times in kernels.runs:
        for kernel in some:
            found[kernel] = found.get(kernel, 0) + times
    return found


def elementwise(elements: int, passes: float, launches: int = 1) -> Kernel:
    """Return a kernel that streams ``elements`` fp32 values ``passes`` times (reads + writes).

    Examples
    --------
    >>> elementwise(1000, passes=3).moved_bytes
    12000.0
    """
    return Kernel("elementwise", elements, float(FLOAT * elements * passes), 0.0, launches)


def moved(values: float, moved_bytes: float, launches: int = 1) -> Kernel:
    """Return a kernel on so many values that reads and writes so many bytes.

    Examples
    --------
    >>> moved(1000, 2500.0) == elementwise(1000, 0.625)
    True
    """
    return Kernel("elementwise", round(values), moved_bytes, 0.0, launches)


def method_code(name: str, elements: int, *parts: Kernel, width: int = 0) -> Kernel:
    """Return operations of a method's code that were measured together under a name.

    Examples
    --------
    >>> method_code("fp16_cast", 1000, elementwise(1000, 1.5)).moved_bytes
    6000.0
    """
    moved_bytes, flops, launches = 0.0, 0.0, 0
    for part in parts:
        moved_bytes += part.moved_bytes
        flops += part.flops
        launches += part.launches
    return Kernel(name, elements, moved_bytes, flops, launches, width, parts)


def gemm(rows: int, inner: int, columns: int) -> Kernel:
    """Return the product of a ``rows`` x ``inner`` and an ``inner`` x ``columns`` matrix.

    Examples
    --------
    >>> gemm(512, 512, 4).flops
    2097152.0
    """
    moved = FLOAT * (rows * inner + inner * columns + rows * columns)
    return Kernel("gemm", rows * inner, float(moved), 2.0 * rows * inner * columns, 1, columns)


def qr(rows: int, rank: int) -> Kernel:
    """Return the reduced QR of a ``rows`` x ``rank`` matrix (Householder, LAPACK count).

    References
    ----------
    Golub & Van Loan, Matrix Computations, 4th ed., section 5.2: 4 m r^2 - 4 r^3 / 3 flops for
    factor and explicit Q.
    """
    flops = 4.0 * rows * rank**2 - 4.0 * rank**3 / 3.0
    return Kernel("qr", rows, 4.0 * FLOAT * rows * rank, max(flops, 0.0), 2, rank)


def gram_schmidt(rows: int, rank: int) -> Kernel:
    """Return a column-by-column Gram-Schmidt of a ``rows`` x ``rank`` matrix, as PowerSGD runs it.

    A column is normalised in 5 launches (square, sum, square root, add epsilon, divide). Each but
    the last is then projected out of the columns after it in 4 (multiply, sum, multiply,
    subtract): 9 rank - 4 in all if TorchScript fuses nothing. Passes: 5 over each column to
    normalise it; to project it out, 7 over each column after it and 2 over itself.

    References
    ----------
    Vogels et al. 2019, PowerSGD; epfml/powersgd@eb48559c paper-code/gradient_reducers.py,
    orthogonalize.

    Examples
    --------
    >>> [gram_schmidt(512, rank).launches for rank in (1, 2, 4)]
    [5, 14, 32]
    """
    passes = 5 * rank + 7 * rank * (rank - 1) // 2 + 2 * (rank - 1)
    columns = elementwise(rows, passes, 9 * rank - 4)._replace(flops=2.0 * rows * rank**2)
    return method_code("gram_schmidt", rows, columns, width=rank)


def scatter_add(entries: int) -> Kernel:
    """Return the addition of ``entries`` (value, index) pairs into a dense vector.

    Reads value and index, reads and writes the target: 16 bytes an entry, uncoalesced.
    """
    return Kernel("scatter_add", entries, float((FLOAT + INDEX + 2 * FLOAT) * entries))


def factor_product(rows: int, side: int) -> Kernel:
    """Return X^T X for a ``rows`` x ``side`` matrix X, both triangles, as a K-FAC factor is built.

    Its points are looked up by rows x side x side (multiply-adds).

    Examples
    --------
    >>> factor_product(100, 10).elements, factor_product(100, 10).flops
    (10000, 20000.0)
    """
    moved = float(FLOAT * (2 * rows * side + side**2))
    return Kernel("factor", rows * side**2, moved, 2.0 * rows * side**2)


def cholesky(side: int) -> Kernel:
    """Return the Cholesky factor of a ``side`` x ``side`` matrix (n^3 / 3 flops)."""
    return Kernel("cholesky", side**2, 2.0 * FLOAT * side**2, side**3 / 3.0)


def cholesky_inverse(side: int) -> Kernel:
    """Return the inverse from a Cholesky factor: ``side`` right-hand sides (potrs, 2 n^3 flops)."""
    return Kernel("cholesky_inverse", side**2, 2.0 * FLOAT * side**2, 2.0 * side**3)


def eigh(side: int) -> Kernel:
    """Return eigenvalues and eigenvectors of a symmetric ``side`` x ``side`` matrix.

    References
    ----------
    Golub & Van Loan, Matrix Computations, 4th ed., section 8.3: about 9 n^3 flops.
    """
    return Kernel("eigh", side**2, 2.0 * FLOAT * side**2, 9.0 * side**3)
