"""DGC_k: DGC's sampled threshold as its rivals run it, on a sample from a random permutation."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import HOROVOD_FORK, CodeBase
from perfsim.methods.building.sparsify import (
    Selection,
    above,
    exact,
    gathered,
    kept,
    permutation,
)

_SAMPLE = 0.01
"""Share of the values that is sampled (code, compression.py)."""


class DgcK(Method):
    """Keeps the values above the k-th largest of a random sample; a permutation draws the sample.

    On the compute stream the residual is added (3 passes) and magnitudes are taken (2). All n
    indices are permuted (torch.randperm), and the first n/100 values are the sample. Exact Top-k of
    the sample gives the threshold. Values are compared with it and indices found (1.75 passes, 5
    launches). The values found are gathered, and a copy goes to the residual with the sent values
    cleared (2). Two all-gathers (values, int32 indices) send them. After the backward pass the
    gradient is zeroed, the pairs of all ranks are scatter-added and the mean is taken (3 passes).
    The authors of GaussianK-SGD and SIDCo compare with this form of `dgc`; DGC's own code samples
    by strides. One buffer holds the whole model; `fusion` size makes buckets.

    Bytes a rank: (P-1) x 8 k.
    Memory: the residual.
    Left out: ranks that find more or fewer than k values, and the exact Top-k of those found where
    they are over 4/3 k; the permutation's measured points end at 100,000 values and grow on in a
    straight line; the host's wait for the count; Horovod's gathers by MPI through host memory.
    """

    summary: ClassVar[str] = "Top-k by a threshold on a random sample (DGC as its rivals run it)"
    citation: ClassVar[str] = (
        "Lin et al. 2018, Deep Gradient Compression, ICLR, section 5; code"
        " hclhkbu/GaussianK-SGD@0de3eeb compression.py, DGCSamplingCompressor"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = HOROVOD_FORK
    wire: ClassVar[str] = "(P - 1) * 8 * k"
    fusion: ClassVar[str] = "whole"

    density: float = Field(
        0.001, gt=0, le=_SAMPLE, description="share of values kept, k/n; no more than the sample"
    )
    kernel: Selection = Field("auto", description="PyTorch's top-k; auto: of the `software`")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the sample, its threshold and the selection, the all-gathers, the scatter-add."""
        n, k = bucket.elements, kept(bucket.elements, self.density)
        sample = max(k, int(_SAMPLE * n))
        select = exact(sample, self.kernel, world.software)
        threshold = permutation(n), elementwise(sample, 4, 2), select
        return [
            Compute((elementwise(n, 7, 3), *threshold, above(n), elementwise(k, 3, 2)), "compress"),
            *gathered(n, k, world.ranks),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the kept values: 8 each."""
        return float((FLOAT + INDEX) * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)
