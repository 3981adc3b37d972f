"""Power-SGD: low-rank factors by one power iteration, two all-reduces in sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.fusion.bucket import Bucket
from perfsim.kernel import FLOAT, elementwise, gemm
from perfsim.lowrank import Orthogonaliser, factor_rank, orthogonalise
from perfsim.method import Compute, Method, Moment, Send, Stage
from perfsim.profile import Gradient


class Powersgd(Method):
    """Sends P = M Q, then Q = M^T P, of every matrix; vectors go dense.

    Per bucket: residual added (3 passes) and P = M Q; all-reduce of what is not compressed,
    all-reduce of all P; orthonormalise P, Q = M^T P; all-reduce of all Q; rebuild P Q^T and keep
    the difference (a product and 3 passes). ``variant`` "hook" is PyTorch's DDP hook: per bucket,
    the first part in the hook on the compute stream, the rest chained on a stream of its own; a
    matrix is compressed only if that halves it (min_compression_rate 2). "after_backward" is the
    paper's code: one packed P, one packed Q and one buffer of vectors, all on the compute stream
    once the backward pass is over. Bytes a rank: 2 (P-1)/P x 4 (n + m) r a matrix. Memory:
    residual, and P and Q of every matrix. Left out: the dense start-up iterations.
    """

    summary: ClassVar[str] = "rank-r factors P and Q, two all-reduces in sequence (Power-SGD)"
    citation: ClassVar[str] = (
        "Vogels et al. 2019, PowerSGD, NeurIPS, Algorithm 1; code epfml/powersgd@f07be924;"
        " torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook"
    )

    rank: int = Field(4, ge=1, description="rank of the factors")
    variant: Literal["hook", "after_backward"] = Field(
        "hook", description="PyTorch's hook by bucket, or the paper's code after backward"
    )
    orthogonalisation: Orthogonaliser = Field(
        "auto", description="auto: Gram-Schmidt in the paper's code, PyTorch's choice in the hook"
    )

    def default_fusion(self) -> str:
        """Return one buffer for the paper's code, DDP buckets for the hook."""
        return "size" if self.variant == "hook" else "whole"

    def compressed(self, gradient: Gradient) -> bool:
        """Tell whether a gradient is factored."""
        if len(gradient.shape) == 1:
            return False
        # min_compression_rate = 2 is the hook's default; the paper's code factors every matrix.
        sent = sum(gradient.matrix) * factor_rank(gradient, self.rank)
        return self.variant == "after_backward" or 2 * sent < gradient.elements

    def stages(self, bucket: Bucket, ranks: int, iteration: int) -> list[Stage]:
        """Return the two factor exchanges and the dense one around their products."""
        matrices = [gradient for gradient in bucket.gradients if self.compressed(gradient)]
        dense = bucket.elements - sum(gradient.elements for gradient in matrices)
        hook = self.variant == "hook"
        stream = "hook" if hook else "compute"
        moment: Moment = "ready" if hook else "backward"
        kernel = self.orthogonalisation
        if kernel == "auto" and not hook:
            kernel = "gram_schmidt"
        first, second, rebuild = [], [], []
        rows_sent = columns_sent = 0
        for gradient in matrices:
            n, m = gradient.matrix
            r = factor_rank(gradient, self.rank)
            rows_sent, columns_sent = rows_sent + n * r, columns_sent + m * r
            first.append(gemm(n, m, r))
            second += [orthogonalise(n, r, kernel), gemm(m, n, r)]
            rebuild.append(gemm(n, r, m))
        total = bucket.elements - dense
        stages: list[Stage] = []
        if matrices:
            stages.append(Compute((elementwise(total, 3), *first), "compress", "compute", moment))
        if dense:
            stages.append(Send("all_reduce", float(FLOAT * dense), moment))
        if matrices:
            rebuild.append(elementwise(total, 3))
            stages += [
                Send("all_reduce", float(FLOAT * rows_sent), moment),
                Compute(tuple(second), "compress", stream, moment),
                Send("all_reduce", float(FLOAT * columns_sent), moment),
                Compute(tuple(rebuild), "decompress", stream, moment),
            ]
        return stages

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return both factors of a matrix, or the vector itself."""
        if not self.compressed(gradient):
            return gradient.size_bytes
        return float(FLOAT * sum(gradient.matrix) * factor_rank(gradient, self.rank))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the residual and both factors of every compressed matrix."""
        return sum(
            gradient.size_bytes + self.message_bytes(gradient, 0)
            for gradient in gradients
            if self.compressed(gradient)
        )
