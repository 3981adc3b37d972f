"""RedSync: Top-k by a threshold between mean and maximum, searched or lowered in steps."""

from collections.abc import Sequence
from math import ceil
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import HOROVOD_FORK, CodeBase
from perfsim.methods.building.sparsify import above, gathered, kept

_COUNTS = {"binary": 3, "trimmed": 6}
"""Largest number of counts: 1 halved until at most 0.2; 0.8 (twice), 0.6, ... 0 (code)."""


class Redsync(Method):
    """Keeps what is above mean + ratio (maximum - mean); the ratio is searched, not the values.

    On the compute stream the residual is added (3 passes); magnitudes (2), their mean and maximum
    (a read each) are taken. Each ratio tried compares and finds indices (1.75 passes, 5 launches
    each). The values found are gathered. The whole is copied to the residual with what is sent
    cleared (2). Two all-gathers (values, int32 indices) send what a rank found. After the backward
    pass the gradient is zeroed, the pairs of all ranks are scatter-added and the mean is taken (3
    passes). Bytes a rank: (P-1) x 8 x surplus k. Memory: the residual. Left out: what only the
    paper describes and no code here does (the exact Top-k of what trimming leaves, messages that
    hold one mean for all values, thresholds kept for several iterations, and layers too small to
    compress); the host's wait for each count; the authors' Horovod, which gathers by MPI through
    host memory.

    ``search``: "binary" halves the interval of ratios, 3 counts at most (the code's "redsync").
    "trimmed" lowers the ratio from 0.8 in steps of 0.2 until k are found, 6 at most
    ("redsynctrim"). ``surplus``: up to 2 k end the binary search; trimming ends with k or more. The
    code merges all gradients into one buffer by default, so nothing overlaps.
    """

    summary: ClassVar[str] = "Top-k by a searched or trimmed threshold (RedSync)"
    citation: ClassVar[str] = (
        "Fang et al. 2018, RedSync, arXiv 1808.04357; code hclhkbu/GaussianK-SGD@3da1fb3b"
        " compression.py, RedSyncCompressor and RedSyncTrimCompressor (also sands-lab/SIDCo)"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = HOROVOD_FORK
    wire: ClassVar[str] = "(P - 1) * 8 * ceil(surplus * k)"
    fusion: ClassVar[str] = "whole"

    density: float = Field(0.001, gt=0, le=1, description="share of values aimed at, k/n")
    search: Literal["binary", "trimmed"] = Field("binary", description="how the ratio is found")
    counts: int = Field(0, ge=0, le=6, description="ratios tried; 0: as many as the search may try")
    surplus: float = Field(2.0, ge=0.5, le=1000, description="values found, in units of k")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return search and selection, the two all-gathers and the scatter-add."""
        n = bucket.elements
        count = min(n, ceil(self.surplus * kept(n, self.density)))
        # Add, magnitudes, mean, maximum, copy; then gather and clear what is sent.
        bounds = elementwise(n, 3 + 2 + 1 + 1 + 2, launches=5)
        search = above(n, self.counts or _COUNTS[self.search])
        return [
            Compute((bounds, search, elementwise(count, 3, 2)), "compress"),
            *gathered(n, count, world.ranks),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the values sent: 8 each."""
        return (FLOAT + INDEX) * self.surplus * kept(gradient.elements, self.density)

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)
