"""Deep Gradient Compression: sampled threshold, momentum correction, all-gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.fusion.bucket import Bucket
from perfsim.kernel import FLOAT, INDEX, Kernel, elementwise, scatter_add
from perfsim.method import Compute, Method, Send, Stage
from perfsim.profile import Gradient
from perfsim.sparse import kept


class Dgc(Method):
    """Sends the values above a threshold found on a sample; vectors go dense.

    In the hook, on the compute stream: momentum correction and local accumulation (velocity and
    accumulator are read and written: 5 passes), then the threshold from a strided sample,
    selection and compaction (measured as one encode at density 1 %, 2**20 elements; the whole
    bucket is read whatever the density). Tensors of one dimension are all-reduced dense in one
    call; then one all-gather of the values and one of the indices, and after the backward pass
    P k pairs are scatter-added. Bytes a rank: (P-1) x 8 k + 2 (P-1)/P x the vectors. Memory:
    velocity and accumulator, 8 bytes a parameter. Left out: the warm-up epochs at higher
    density, and ranks that find more or fewer than k values (0.8 to 1.3 k in the code).
    """

    summary: ClassVar[str] = "sampled-threshold sparsification with momentum correction (DGC)"
    citation: ClassVar[str] = (
        "Lin et al. 2018, Deep Gradient Compression, ICLR, Algorithm 4; code"
        " synxlin/deep-gradient-compression@24673d45"
    )

    density: float = Field(0.001, gt=0, le=1, description="share of values kept, k/n")

    def stages(self, bucket: Bucket, ranks: int, iteration: int) -> list[Stage]:
        """Return accumulate and select, the exchanges, and the scatter-add."""
        matrices = [gradient.elements for gradient in bucket.gradients if len(gradient.shape) > 1]
        vectors = bucket.elements - sum(matrices)
        stages: list[Stage] = []
        if matrices:
            n = sum(matrices)
            # Fallback: sample, compare, compact and clear read or write the data four times.
            encode = Kernel("dgc_encode", n, 4.0 * FLOAT * n, launches=8)
            stages.append(Compute((elementwise(n, 5, 3), encode), "compress"))
        if vectors:
            stages.append(Send("all_reduce", float(FLOAT * vectors)))
        if matrices:
            k = sum(kept(elements, self.density) for elements in matrices)
            stages += [
                Send("all_gather", float(FLOAT * k * ranks)),
                Send("all_gather", float(INDEX * k * ranks)),
                Compute((scatter_add(k * ranks),), "decompress", earliest="backward"),
            ]
        return stages

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return what a rank sends for one gradient: sparse matrices, dense vectors."""
        if len(gradient.shape) == 1:
            return gradient.size_bytes
        return float((FLOAT + INDEX) * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return velocity and accumulator: two fp32 values a parameter."""
        return 2.0 * sum(gradient.size_bytes for gradient in gradients)
