"""Low rank: gradients factored as M = P Q^T, and Power-SGD's stages in each public implementation.

Every function of Power-SGD takes the matrices that are factored, the ``dense`` values that are not
and how many tensors (``vectors``) hold those; passes and launches are those of the PyTorch
operations in the code that it names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Literal

from perfsim.compute.kernel import FLOAT, Kernel, elementwise, gemm, gram_schmidt, qr
from perfsim.compute.profile import Gradient
from perfsim.methods.base import Compute, JobStage, Send

__all__ = [
    "LowRankTensor",
    "Orthogonaliser",
    "batched_powersgd_hook",
    "factor_rank",
    "factored_matrices",
    "orthogonalise",
    "powersgd_hook",
    "powersgd_package",
    "powersgd_paper_code",
]

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
class LowRankTensor:
    """Matrices M = P Q^T of one shape whose kernels are launched together.

    Parameters
    ----------
    count : how many
    rows, columns : n and m of each
    rank : r, columns of P (n x r) and of Q (m x r)

    Examples
    --------
    >>> two = LowRankTensor(2, 512, 256, 4)
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


def factored_matrices(
    gradients: Iterable[Gradient], rank: int, *, together: bool
) -> list[LowRankTensor]:
    """Return the matrices of some gradients, one by one or ``together`` by shape.

    Examples
    --------
    >>> ones = [Gradient(name, (8, 6), 0.0, 0) for name in "ab"]
    >>> [one.count for one in factored_matrices(ones, 2, together=True)]
    [2]
    """
    gradients = list(gradients)
    if not together:
        return [LowRankTensor(1, *one.matrix, factor_rank(one, rank)) for one in gradients]
    shapes = Counter(one.matrix for one in gradients)
    return [LowRankTensor(count, n, m, min(rank, n, m)) for (n, m), count in shapes.items()]


Direction = Literal["compress", "decompress"]


def powersgd_hook(
    matrices: Sequence[LowRankTensor], dense: int, vectors: int, kernel: Orthogonaliser
) -> list[JobStage]:
    """Return a bucket's stages in PyTorch's powerSGD_hook.

    Residual added (3 passes), bucket copied (2); what is not compressed is packed (2), sent,
    divided and copied back (4) before P goes; Q is divided (2); the difference is kept (3). NCCL's
    futures are complete when enqueued, so its callbacks run at once, in the hook.

    References
    ----------
    pytorch/pytorch@00c22ce5 torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py;
    matrices of one shape: pull 75157.
    """
    total = dense + sum(one.elements for one in matrices)
    stacked = [one for one in matrices if one.count > 1]
    first = [elementwise(total, 5, 2)]
    stages: list[JobStage] = []
    if dense:
        first.append(elementwise(dense, 2))
        unpacked = elementwise(dense, 4, 1 + vectors)
        stages = [_all_reduce(dense), _waited_for([unpacked])]
    if not matrices:
        return [Compute(tuple(first), "compress"), *stages, _waited_for([elementwise(total, 3)])]
    first += [elementwise(one.elements, 2) for one in stacked]
    for one in matrices:
        first += [*one.orthonormal(one.columns, kernel), one.p_product()]
    finish = [one.rebuilt() for one in matrices]
    finish += [elementwise(one.elements, 2, one.count) for one in stacked]
    finish += [elementwise(_q_elements(matrices), 2), elementwise(total, 3)]
    return [
        Compute(tuple(first), "compress"),
        *stages,
        _all_reduce(_p_elements(matrices)),
        _waited_for(_second(matrices, kernel), "compress"),
        _all_reduce(_q_elements(matrices)),
        _waited_for(finish),
    ]


def batched_powersgd_hook(elements: int, rank: int, kernel: Orthogonaliser) -> list[JobStage]:
    """Return a bucket's stages in PyTorch's batched_powerSGD_hook.

    All values of the bucket as one square, moved to a larger buffer and filled up where it needs
    padding (2 passes); then as in the hook, with nothing sent dense.

    References
    ----------
    pytorch/pytorch@00c22ce5 torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py,
    batched_powerSGD_hook.
    """
    side = ceil(sqrt(elements))
    one = LowRankTensor(1, side, side, min(rank, side))
    moved = elementwise(one.elements, 2, 2) if one.elements > elements else None
    begin = [elementwise(one.elements, 5, 2), *one.orthonormal(side, kernel), one.p_product()]
    first = [moved, *begin] if moved else begin
    finish = [elementwise(one.q_elements, 2), one.rebuilt(), elementwise(one.elements, 3)]
    return [
        Compute(tuple(first), "compress"),
        _all_reduce(one.p_elements),
        _waited_for(_second([one], kernel), "compress"),
        _all_reduce(one.q_elements),
        _waited_for(finish),
    ]


def powersgd_paper_code(
    matrices: Sequence[LowRankTensor],
    dense: int,
    vectors: int,
    kernel: Orthogonaliser,
    *,
    warm_start: bool,
) -> list[JobStage]:
    """Return the stages of the paper's code, after the backward pass.

    Residual added into a send buffer (5 passes, a tensor at a time); without ``warm_start`` Q is
    drawn (3); P sent; the packed vectors sent beside what follows; Q sent and divided (2); each
    matrix's difference kept (5); the vectors divided and unpacked (4).

    References
    ----------
    epfml/powersgd@f07be924 paper-code/gradient_reducers.py, RankKReducer; paper-code/train.py.
    """
    total = dense + sum(one.elements for one in matrices)
    first = [elementwise(total, 5, 2 * (len(matrices) + vectors))]
    finish: list[Kernel] = []
    sent: list[JobStage] = []
    if dense:
        # Packed after P is sent; counted before it, which takes as long.
        first.append(elementwise(dense, 2))
        finish.append(elementwise(dense, 4, 1 + vectors))
        sent = [Send("all_reduce", float(FLOAT * dense), "backward", awaited=False)]
    if not matrices:
        return [_after(first, "compress"), *sent, _after(finish)]
    if not warm_start:
        first.append(elementwise(_q_elements(matrices), 3, 2 * len(matrices)))
    first += [one.p_product() for one in matrices]
    finish += [one.rebuilt() for one in matrices]
    finish.append(elementwise(_q_elements(matrices), 2))
    finish.append(elementwise(total - dense, 5, 2 * len(matrices)))
    return [
        _after(first, "compress"),
        _all_reduce(_p_elements(matrices), late=True),
        *sent,
        _after(_second(matrices, kernel), "compress"),
        _all_reduce(_q_elements(matrices), late=True),
        _after(finish),
    ]


def powersgd_package(
    matrices: Sequence[LowRankTensor],
    dense: int,
    vectors: int,
    kernel: Orthogonaliser,
    *,
    sends_q: bool,
) -> list[JobStage]:
    """Return the stages of the authors' package, after the backward pass: P or Q, then the rest.

    Matrices of one shape are stacked (2 passes) and room for the result is zeroed (1); the kept
    factor is orthonormalised (at rank 1 only divided by its norm: 3 passes; else QR, copied back:
    2), a product gives the new one, their product is taken out of the stack; once that is sent,
    it is added into the result; result and residual are copied back (4). What is not compressed
    is packed and divided (4), sent, and its gradients zeroed (1).

    References
    ----------
    epfml/powersgd@f07be924 powersgd/powersgd.py, BasicPowerSGD.aggregate and AllReduce.aggregate;
    powersgd/orthogonalization.py.
    """
    packed = [elementwise(dense, 4, 2)] if dense else []
    rest: list[JobStage] = []
    if dense:
        rest = [_all_reduce(dense, late=True), _after([elementwise(dense, 1, vectors)])]
    if not matrices:
        return [_after(packed, "compress"), *rest]
    first: list[Kernel] = []
    for one in matrices:
        side = one.rows if sends_q else one.columns
        kept = one.p_elements if sends_q else one.q_elements
        first.append(elementwise(one.elements, 3, 2))
        if kernel == "auto" and one.rank == 1:
            first.append(elementwise(kept, 3, 3))
        else:
            first += one.orthonormal(side, "qr" if kernel == "auto" else kernel)
            first.append(elementwise(kept, 2))
        first += [one.q_product() if sends_q else one.p_product(), one.added()]
    finish = [one.added() for one in matrices]
    finish += [elementwise(one.elements, 4, 2 * one.count) for one in matrices]
    return [
        _after(first, "compress"),
        _all_reduce(_q_elements(matrices) if sends_q else _p_elements(matrices), late=True),
        _after([*finish, *packed]),
        *rest,
    ]


def _p_elements(matrices: Sequence[LowRankTensor]) -> int:
    return sum(one.p_elements for one in matrices)


def _q_elements(matrices: Sequence[LowRankTensor]) -> int:
    return sum(one.q_elements for one in matrices)


def _second(matrices: Sequence[LowRankTensor], kernel: Orthogonaliser) -> list[Kernel]:
    """Return the kernels between the two all-reduces: P orthonormal, Q = M^T P."""
    kernels: list[Kernel] = []
    for one in matrices:
        kernels += [*one.orthonormal(one.rows, kernel), one.q_product()]
    return kernels


def _all_reduce(elements: int, *, late: bool = False) -> Send:
    return Send("all_reduce", float(FLOAT * elements), "backward" if late else "ready")


def _after(kernels: Sequence[Kernel], kind: Direction = "decompress") -> Compute:
    return Compute(tuple(kernels), kind, earliest="backward")


def _waited_for(kernels: Sequence[Kernel], kind: Direction = "decompress") -> Compute:
    return Compute(tuple(kernels), kind, blocks=True)
