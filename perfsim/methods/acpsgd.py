"""ACP-SGD: low-rank factors P and Q in alternate iterations, one all-reduce a bucket."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    Job,
    JobStage,
    Method,
    MethodContext,
    PassPoint,
    Round,
    Send,
)
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.low_rank import (
    RANK_OVER_TEXT,
    Orthogonaliser,
    factor_rank,
    factored_matrices,
)
from perfsim.sums import sum_in_order


class Acpsgd(Method):
    """Sends P of every matrix in even iterations and Q in odd ones, with WFBP and fusion.

    The hook of each gradient runs on the compute stream. The factor kept from the last iteration is
    orthonormalised and copied back. The residual is added (3 passes). A product gives the new
    factor, which is copied into its buffer. The residual grows by M - P Q^T (a product and 6
    passes). A vector is copied into its buffer. The factors and vectors of a bucket go in one
    all-reduce. A bucket closes at 25 MB times the compressed over the full size (``compressed``
    fusion), separately for P and for Q. After the backward pass and the last all-reduce, P Q^T is
    rebuilt for every matrix, copied into the gradient and divided by the number of ranks (4 passes,
    as for the vectors).

    Bytes a rank: 2 (P-1)/P x 4 n r for P of an n x m matrix, or 4 m r in place of 4 n r for Q.
    Memory: residual, P and Q of every matrix; vectors twice, in the buffers of P and of Q.
    Left out: the host's time in the hooks; the code has no dense start-up iterations.
    """

    summary: ClassVar[str] = "P and Q in alternate iterations, one all-reduce a bucket (ACP-SGD)"
    citation: ClassVar[str] = (
        "Zhang et al. 2023, ACP-SGD, ICDCS, arXiv 2306.08881; code lzhangbv/acpsgd@ec75a2a9"
        " acpsgd.py, _alternative_compress and _bp_barrier"
    )
    family: ClassVar[str] = "low rank"
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * (rows + columns) / 2 * r"
    fusion: ClassVar[str] = "compressed"
    over_text: ClassVar[Mapping[str, Any]] = RANK_OVER_TEXT

    rank: int = Field(4, ge=1, description="rank of the factors; 32 for models over text")
    orthogonalisation: Orthogonaliser = Field(
        "qr", description="how a factor is orthonormalised; the authors' code calls QR"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the kernels in the hooks of a bucket's gradients, and its all-reduce."""
        matrices = factored_matrices(_matrices(bucket.gradients), self.rank, together=False)
        vectors = len(bucket.gradients) - len(matrices)
        compress = []
        copied = bucket.elements - sum(one.elements for one in matrices)
        for one in matrices:
            sends_p = iteration % 2 == 0
            compress += one.orthonormal(
                one.columns if sends_p else one.rows, self.orthogonalisation
            )
            compress += [one.p_product() if sends_p else one.q_product(), one.rebuilt()]
            compress.append(elementwise(one.elements, 9, 3))
            copied += one.p_elements + one.q_elements
        compress.append(elementwise(copied, 2, 2 * len(matrices) + vectors))
        sent = sum_in_order(
            self.message_bytes(gradient, iteration) for gradient in bucket.gradients
        )
        return [Compute(tuple(compress), "compress"), Send("all_reduce", sent)]

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the buckets' jobs, and the rebuilding of P Q^T, which waits for all of them."""
        jobs = super().jobs(buckets, world, iteration)
        gradients = [gradient for bucket in buckets for gradient in bucket.gradients]
        products = [
            one.rebuilt()
            for one in factored_matrices(_matrices(gradients), self.rank, together=False)
        ]
        finish = elementwise(sum(one.elements for one in gradients), 4, 2 * len(gradients))
        rebuild = Compute((*products, finish), "decompress", earliest="backward")
        needs = tuple(job.name for job in jobs)
        return [*jobs, Job("rebuild", (rebuild,), PassPoint("backward"), needs=needs)]

    def rounds(self) -> list[Round]:
        """Return an iteration that sends P and one that sends Q."""
        return [Round((0, 1))]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the factor sent in this iteration, or of the vector itself."""
        if len(gradient.shape) == 1:
            return gradient.size_bytes
        side = gradient.matrix[iteration % 2]
        return float(FLOAT * side * factor_rank(gradient, self.rank))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of every matrix's residual and of the buffers of P and of Q."""
        residual = fp32_bytes(_matrices(gradients))
        return residual + sum_in_order(
            self.message_bytes(one, turn) for one in gradients for turn in (0, 1)
        )


def _matrices(gradients: Sequence[Gradient]) -> list[Gradient]:
    return [gradient for gradient in gradients if len(gradient.shape) > 1]
