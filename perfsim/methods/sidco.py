"""SIDCo: takes the Top-k threshold from a fitted distribution, in stages."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import HOROVOD_FORK, CodeBase
from perfsim.methods.building.sparsify import above, gathered, kept

_FIRST_STAGE_SHARE = 0.25
"""Share that the first of several stages keeps (code, settings.py, FIRST_RATIO)."""


class Sidco(Method):
    """Fits a distribution to the magnitudes; its quantile is the threshold, refined in stages.

    On the compute stream the residual is added (3 passes). Norm (1), magnitudes over the norm (4)
    and a copy of them (2) follow, then the fit (below). Compare and find indices take 1.75 passes
    in 5 launches. The values found are gathered; the residual is weighed as in the code (two
    products and a sum, 7) with what is sent cleared. Of S > 1 stages the first aims at a quarter,
    the others at equal ratios of what is left. Each of these compares and compacts (1.75 passes
    over what it gets, 4 over what stays), takes the minimum and fits again there. Two all-gathers
    (values, int32 indices) send the k aimed at. After the backward pass the gradient is zeroed, the
    pairs of all ranks are scatter-added and the mean is taken (3 passes). Bytes a rank: (P-1) x 8
    k. Memory: the residual. Left out: counts up to 20 % off k, which the adaptation accepts; the
    inverse gamma function on the host; the host's wait for each count; the code's Horovod, which
    gathers by MPI through host memory.

    ``distribution``: "exponential" fits the mean (1 pass). "pareto" fits mean and variance (1 pass,
    and 2 to subtract the minimum in later stages). "gamma" also fits the mean logarithm (6 passes),
    and Pareto in later stages. ``fits``: the code's script runs 1. Its adaptation begins at 1 and
    leaves it only if counts are more than 20 % off; it stays where the fit holds. It goes no
    further than log2(1 / density), 10 for 0.001. The script merges all gradients into one buffer (a
    partition), so nothing overlaps; `fusion` none fits tensor by tensor.
    """

    summary: ClassVar[str] = "Top-k with a threshold from a fitted distribution (SIDCo)"
    citation: ClassVar[str] = (
        "Abdelmoniem et al. 2021, MLSys, arXiv 2101.10761; code sands-lab/SIDCo@197f3c3f"
        " compression.py, distributed_optimizer.py, settings.py, run8.sh"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = HOROVOD_FORK
    wire: ClassVar[str] = "(P - 1) * 8 * k"
    fusion: ClassVar[str] = "whole"

    density: float = Field(0.001, gt=0, le=1, description="share of values aimed at, k/n")
    distribution: Literal["exponential", "pareto", "gamma"] = Field(
        "exponential", description="what is fitted to the magnitudes"
    )
    fits: int = Field(1, ge=1, le=10, description="stages: fits, each on what the last one kept")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return fits and selection, the two all-gathers and the scatter-add."""
        n, k = bucket.elements, kept(bucket.elements, self.density)
        # Add, norm, magnitudes over it, their copy; the residual's two products and sum.
        whole = elementwise(n, 3 + 1 + 4 + 2 + 7, launches=8)
        logarithms = [elementwise(n, 5, 3)] if self.distribution == "gamma" else []
        kernels = [whole, elementwise(n, 1), *logarithms, *self._later(n)]
        return [
            Compute((*kernels, above(n), elementwise(k, 3, 2)), "compress"),
            *gathered(n, k, world.ranks),
        ]

    def _later(self, elements: int) -> list[Kernel]:
        """Return the kernels of the stages after the first."""
        if self.fits == 1 or self.density >= _FIRST_STAGE_SHARE:
            return []
        ratio = (self.density / _FIRST_STAGE_SHARE) ** (1 / (self.fits - 1))
        fit, launches = (2, 3) if self.distribution == "exponential" else (4, 4)
        kernels, share = [], _FIRST_STAGE_SHARE
        for _ in range(self.fits - 1):
            left = kept(elements, share)
            kernels += [above(elements), elementwise(left, 4 + fit, launches)]
            elements, share = left, ratio
        return kernels

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the values aimed at: 8 each."""
        return float((FLOAT + INDEX) * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)
