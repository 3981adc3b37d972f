"""GaussianK-SGD: the Top-k threshold estimated from mean and standard deviation."""

from collections.abc import Sequence
from math import ceil
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import HOROVOD_FORK, CodeBase
from perfsim.methods.building.sparsify import above, gathered, kept

SURPLUS = 4 / 3
"""Largest count that ends the search for a threshold, in units of k (code, compression.py)."""


class Gaussiank(Method):
    """Estimates the threshold that keeps k values by a normal fit, corrected a few times.

    On the compute stream the residual is added (3 passes); standard deviation and mean (a read
    each) and magnitudes (2) are taken. Values are compared and indices found, once and once more
    for each correction (1.75 passes, 5 launches each). The values are gathered, and a copy goes to
    the residual with the sent values cleared (2). Two all-gathers (values, int32 indices) send what
    each rank found: up to 4/3 k, which is the size charged. After the backward pass the gradient is
    zeroed, the pairs of P ranks are scatter-added and the mean is taken (3 passes).

    The authors' code merges all gradients into one buffer by default, so nothing overlaps; `fusion`
    size makes buckets.

    Bytes a rank: (P-1) x 8 x 4/3 k.
    Memory: the residual.
    Left out: ranks that find fewer values than the largest count; the copies that pack a buffer and
    zero the gradients taken out of it; the host's waits, for deviation, mean and each count; that
    the authors' Horovod gathers by MPI through host memory (NCCL only all-reduces there).
    """

    summary: ClassVar[str] = "Top-k with a threshold from a Gaussian fit (GaussianK-SGD)"
    citation: ClassVar[str] = (
        "Shi et al. 2019, arXiv 1911.08772, Algorithm 1; code hclhkbu/GaussianK-SGD@3da1fb3b"
        " compression.py, GaussianCompressor; distributed_optimizer.py"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = HOROVOD_FORK
    wire: ClassVar[str] = "(P - 1) * 8 * ceil(4 / 3 * k)"
    fusion: ClassVar[str] = "whole"

    density: float = Field(0.001, gt=0, le=1, description="share of values aimed at, k/n")
    corrections: int = Field(
        2, ge=0, le=2, description="threshold corrections made (the code counts 3 times at most)"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return estimate and selection, the two all-gathers and the scatter-add."""
        n = bucket.elements
        count = min(n, ceil(SURPLUS * kept(n, self.density)))
        # Add, deviation, mean, magnitudes, copy; then gather and clear what is sent.
        fit = elementwise(n, 3 + 1 + 1 + 2 + 2, launches=5)
        search = above(n, 1 + self.corrections)
        return [
            Compute((fit, search, elementwise(count, 3, 2)), "compress"),
            *gathered(n, count, world.ranks),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return 8 bytes a value sent, for the largest count that the code accepts."""
        return (FLOAT + INDEX) * SURPLUS * kept(gradient.elements, self.density)

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)
