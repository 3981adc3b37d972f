"""Low rank: gradients factored as M = P Q^T, and Power-SGD's stages in each public implementation.

Every function of Power-SGD takes the matrices that are factored, the number of ``dense`` values
that are not, and the number of tensors (``vectors``) with dense values. Passes and launches are
those of the PyTorch operations in the code that the function names.
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
    "RANK_OVER_TEXT",
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

RANK_OVER_TEXT = {"rank": 32}
"""The rank that the code of Zhang et al. 2023 (ACP-SGD, arXiv 2306.08881; lzhangbv/acpsgd@ec75a2a9,
batch files) takes for BERT with both Power-SGD and ACP-SGD, beside 4 for ResNets."""

Orthogonaliser = Literal["auto", "gram_schmidt", "qr"]


def factor_rank(gradient: Gradient, rank: int) -> int:
    """Return the rank of a gradient's factors, which is at most its smaller side.

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
    count : number of matrices
    rows, columns : n and m of each matrix
    rank : r, the columns of P (n x r) and of Q (m x r)

    Examples
    --------
    >>> two = LowRankTensor(2, 512, 256, 4)
    >>> two.p_elements, two.q_elements, two.p_product().launches
    (4096, 2048, 1)
    >>> two.q_product().name, two.q_product().elements, two.q_product().width
    ('lowrank_q', 262144, 4)
    """

    count: int
    rows: int
    columns: int
    rank: int

    @property
    def elements(self) -> int:
        """Number of values in the matrices."""
        return self.count * self.rows * self.columns

    @property
    def p_elements(self) -> int:
        """Number of values in their P factors."""
        return self.count * self.rows * self.rank

    @property
    def q_elements(self) -> int:
        """Number of values in their Q factors."""
        return self.count * self.columns * self.rank

    def p_product(self) -> Kernel:
        """Return the kernel of P = M Q."""
        return self._product("lowrank_p", gemm(self.rows, self.columns, self.rank))

    def q_product(self) -> Kernel:
        """Return the kernel of Q = M^T P."""
        return self._product("lowrank_q", gemm(self.columns, self.rows, self.rank))

    def rebuilt(self) -> Kernel:
        """Return the kernel of P Q^T."""
        return self._product("lowrank_rebuilt", gemm(self.rows, self.rank, self.columns))

    def added(self) -> Kernel:
        """Return M += P Q^T as one kernel (baddbmm), which also reads M."""
        kernel = self._together(gemm(self.rows, self.rank, self.columns))
        more = elementwise(self.elements, 1).moved_bytes
        return kernel._replace(moved_bytes=kernel.moved_bytes + more)

    def orthonormal(self, side: int, kernel: Orthogonaliser) -> list[Kernel]:
        """Return the kernels that orthonormalise their factors of ``side`` rows.

        Gram-Schmidt runs on all of them together. torch.linalg.qr runs on one after another: its
        second half (orgqr) always, its first half (geqrf) only above 256 rows or below rows / 16
        matrices. Both halves are counted one by one here, which is too slow in the other cases.

        References
        ----------
        pytorch/pytorch@006b3e67 aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp,
        geqrf_kernel and orgqr_kernel_impl.
        """
        single = orthogonalise(side, self.rank, kernel)
        return [self._together(single)] if single.name == "gram_schmidt" else [single] * self.count

    def _product(self, name: str, product: Kernel) -> Kernel:
        """Return a product under the name of its measured points, by the values of M and the rank.

        Without such points it costs what a product of its sizes does.
        """
        named = product._replace(name=name, elements=self.rows * self.columns, width=self.rank)
        return self._together(named)

    def _together(self, kernel: Kernel) -> Kernel:
        return kernel._replace(
            elements=kernel.elements * self.count,
            moved_bytes=kernel.moved_bytes * self.count,
            flops=kernel.flops * self.count,
            parts=tuple(map(self._together, kernel.parts)),
        )


def factored_matrices(
    gradients: Iterable[Gradient], rank: int, *, together: bool
) -> list[LowRankTensor]:
    """Return the matrices of some gradients, one by one or ``together`` by shape.

    Examples
    --------
    >>> gradients = [Gradient(name, (8, 6), 0.0, 0) for name in "ab"]
    >>> [matrix.count for matrix in factored_matrices(gradients, 2, together=True)]
    [2]
    """
    gradients = list(gradients)
    if not together:
        return [
            LowRankTensor(1, *gradient.matrix, factor_rank(gradient, rank))
            for gradient in gradients
        ]
    shapes = Counter(gradient.matrix for gradient in gradients)
    return [LowRankTensor(count, n, m, min(rank, n, m)) for (n, m), count in shapes.items()]


Direction = Literal["compress", "decompress"]


def powersgd_hook(
    matrices: Sequence[LowRankTensor], dense: int, vectors: int, kernel: Orthogonaliser
) -> list[JobStage]:
    """Return a bucket's stages in PyTorch's powerSGD_hook.

    The residual is added (3 passes) and the bucket copied (2). Dense values are packed (2), sent,
    divided and copied back (4) before P is sent. Q is divided (2) and the difference is kept (3).
    NCCL's futures are complete when enqueued, so their callbacks run at once, in the hook.

    References
    ----------
    pytorch/pytorch@00c22ce5 torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py. Matrices
    of one shape are batched by pull 75157.
    """
    total = dense + sum(matrix.elements for matrix in matrices)
    stacked = [matrix for matrix in matrices if matrix.count > 1]
    first = [elementwise(total, 5, 2)]
    stages: list[JobStage] = []
    if dense:
        first.append(elementwise(dense, 2))
        unpacked = elementwise(dense, 4, 1 + vectors)
        stages = [_all_reduce(dense), _blocking([unpacked])]
    if not matrices:
        return [Compute(tuple(first), "compress"), *stages, _blocking([elementwise(total, 3)])]
    first += [elementwise(matrix.elements, 2) for matrix in stacked]
    for matrix in matrices:
        first += [*matrix.orthonormal(matrix.columns, kernel), matrix.p_product()]
    finish = [matrix.rebuilt() for matrix in matrices]
    finish += [elementwise(matrix.elements, 2, matrix.count) for matrix in stacked]
    finish += [elementwise(_q_elements(matrices), 2), elementwise(total, 3)]
    return [
        Compute(tuple(first), "compress"),
        *stages,
        _all_reduce(_p_elements(matrices)),
        _blocking(_middle_kernels(matrices, kernel), "compress"),
        _all_reduce(_q_elements(matrices)),
        _blocking(finish),
    ]


def batched_powersgd_hook(elements: int, rank: int, kernel: Orthogonaliser) -> list[JobStage]:
    """Return a bucket's stages in PyTorch's batched_powerSGD_hook.

    All values of the bucket form one square matrix. If the square needs padding, they are moved to
    a larger buffer, which is filled up (2 passes). The rest is as in `powersgd_hook`, but nothing
    is sent dense.

    References
    ----------
    pytorch/pytorch@00c22ce5 torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py,
    batched_powerSGD_hook.
    """
    side = ceil(sqrt(elements))
    square = LowRankTensor(1, side, side, min(rank, side))
    moved = elementwise(square.elements, 2, 2) if square.elements > elements else None
    begin = [
        elementwise(square.elements, 5, 2),
        *square.orthonormal(side, kernel),
        square.p_product(),
    ]
    first = [moved, *begin] if moved else begin
    finish = [elementwise(square.q_elements, 2), square.rebuilt(), elementwise(square.elements, 3)]
    return [
        Compute(tuple(first), "compress"),
        _all_reduce(square.p_elements),
        _blocking(_middle_kernels([square], kernel), "compress"),
        _all_reduce(square.q_elements),
        _blocking(finish),
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

    The residual is added into a send buffer (5 passes, one tensor at a time). Without
    ``warm_start`` Q is drawn (3). P is sent. The packed vectors are sent in parallel with what
    follows. Q is sent and divided (2). Each matrix's difference is kept (5). The vectors are
    divided and unpacked (4).

    References
    ----------
    epfml/powersgd@f07be924 paper-code/gradient_reducers.py, RankKReducer; paper-code/train.py.
    """
    total = dense + sum(matrix.elements for matrix in matrices)
    first = [elementwise(total, 5, 2 * (len(matrices) + vectors))]
    finish: list[Kernel] = []
    sent: list[JobStage] = []
    if dense:
        # The code packs after P is sent. It is counted before, which takes as long.
        first.append(elementwise(dense, 2))
        finish.append(elementwise(dense, 4, 1 + vectors))
        sent = [Send("all_reduce", float(FLOAT * dense), "backward", awaited=False)]
    if not matrices:
        return [_after_backward(first, "compress"), *sent, _after_backward(finish)]
    if not warm_start:
        first.append(elementwise(_q_elements(matrices), 3, 2 * len(matrices)))
    first += [matrix.p_product() for matrix in matrices]
    finish += [matrix.rebuilt() for matrix in matrices]
    finish.append(elementwise(_q_elements(matrices), 2))
    finish.append(elementwise(total - dense, 5, 2 * len(matrices)))
    return [
        _after_backward(first, "compress"),
        _all_reduce(_p_elements(matrices), late=True),
        *sent,
        _after_backward(_middle_kernels(matrices, kernel), "compress"),
        _all_reduce(_q_elements(matrices), late=True),
        _after_backward(finish),
    ]


def powersgd_package(
    matrices: Sequence[LowRankTensor],
    dense: int,
    vectors: int,
    kernel: Orthogonaliser,
    *,
    sends_q: bool,
) -> list[JobStage]:
    """Return the stages of the authors' package, after the backward pass.

    An iteration sends P or Q, then the dense values. Matrices of one shape are stacked (2 passes),
    and a buffer for the result is zeroed (1). The factor that is not sent is orthonormalised: at
    rank 1 it is divided by its norm (3), else QR runs and the factor is copied back (2). A product
    gives the new factor, and the product of both is subtracted from the stack. After the factor is
    sent, the product is added to the result. Result and residual are copied back (4).

    Dense values are packed and divided (4) and sent, and their gradients are zeroed (1).

    References
    ----------
    epfml/powersgd@f07be924 powersgd/powersgd.py, BasicPowerSGD.aggregate and AllReduce.aggregate;
    powersgd/orthogonalization.py.
    """
    packed = [elementwise(dense, 4, 2)] if dense else []
    rest: list[JobStage] = []
    if dense:
        rest = [_all_reduce(dense, late=True), _after_backward([elementwise(dense, 1, vectors)])]
    if not matrices:
        return [_after_backward(packed, "compress"), *rest]
    first: list[Kernel] = []
    for matrix in matrices:
        side = matrix.rows if sends_q else matrix.columns
        kept = matrix.p_elements if sends_q else matrix.q_elements
        first.append(elementwise(matrix.elements, 3, 2))
        if kernel == "auto" and matrix.rank == 1:
            first.append(elementwise(kept, 3, 3))
        else:
            first += matrix.orthonormal(side, "qr" if kernel == "auto" else kernel)
            first.append(elementwise(kept, 2))
        first += [matrix.q_product() if sends_q else matrix.p_product(), matrix.added()]
    finish = [matrix.added() for matrix in matrices]
    finish += [elementwise(matrix.elements, 4, 2 * matrix.count) for matrix in matrices]
    return [
        _after_backward(first, "compress"),
        _all_reduce(_q_elements(matrices) if sends_q else _p_elements(matrices), late=True),
        _after_backward([*finish, *packed]),
        *rest,
    ]


def _p_elements(matrices: Sequence[LowRankTensor]) -> int:
    return sum(matrix.p_elements for matrix in matrices)


def _q_elements(matrices: Sequence[LowRankTensor]) -> int:
    return sum(matrix.q_elements for matrix in matrices)


def _middle_kernels(matrices: Sequence[LowRankTensor], kernel: Orthogonaliser) -> list[Kernel]:
    """Return the kernels between the two all-reduces: P orthonormal, Q = M^T P."""
    kernels: list[Kernel] = []
    for matrix in matrices:
        kernels += [*matrix.orthonormal(matrix.rows, kernel), matrix.q_product()]
    return kernels


def _all_reduce(elements: int, *, late: bool = False) -> Send:
    return Send("all_reduce", float(FLOAT * elements), "backward" if late else "ready")


def _after_backward(kernels: Sequence[Kernel], kind: Direction = "decompress") -> Compute:
    return Compute(tuple(kernels), kind, earliest="backward")


def _blocking(kernels: Sequence[Kernel], kind: Direction = "decompress") -> Compute:
    return Compute(tuple(kernels), kind, blocks=True)
