"""Global Rand-k with max-norm quantisation: few values, the same on all ranks, as integers."""

from typing import Annotated, ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, OnlyWith, Send
from perfsim.methods.building.flat_buffer import packed_buffer, written_back
from perfsim.methods.qsgd import LEVEL_LAUNCHES, LEVEL_PASSES

_INDEX_PASSES = 4
"""Passes of gathering by 8-byte indices: the index, the value read and written."""


class RandkMaxnorm(Method):
    """All-reduces integers for the same few random values on all ranks, over one common norm.

    All of it runs after the backward pass, on the compute stream. Gradients are packed into one
    buffer (2 passes, a view a tensor), the values of this iteration are gathered and their largest
    magnitude is taken. The norms (4 bytes a rank) are all-gathered, for which the host waits.
    Values are rounded to levels of the largest norm at random (27.5 passes over the few values in
    13 launches). They are all-reduced, as 32-bit integers where ``bits`` is 8 or more, else as
    8-bit ones. Then they are scaled and put back. Every gradient is zeroed, and the buffer, with
    the local values that were not sent, is added to it (4 passes over everything, three launches
    and four views a tensor, which keep the host busy longer). These fixed costs weigh more than the
    exchange. Bytes a rank: 4 (P-1) + 2 (P-1)/P x 4 ``values``. Memory: none, there is no residual.
    Left out: the host's permutation of all indices and its transfer of indices; its comparison of
    the norms one by one.

    ``two_scale``: values are also rounded to a finer scale. A mask of those that fit it on every
    rank is all-reduced first, one byte a value, and the levels take one byte.
    """

    summary: ClassVar[str] = "few random values a rank, as integers of one norm (Rand-k max-norm)"
    citation: ClassVar[str] = (
        "Vineeth S 2021, arXiv 2109.12497; code vineeths96/Gradient-Compression@e5b61b1e"
        " reducer.py, GlobalRandKMaxNormReducer and GlobalRandKMaxNormTwoScaleReducer"
    )
    family: ClassVar[str] = "sparsification"
    wire: ClassVar[str] = (
        "4 * (P - 1) + 2 * (P - 1) / P * min(values, n)"
        " * (2 if two_scale else 1 if bits < 8 else 4)"
    )
    fusion: ClassVar[str] = "whole"

    values: int = Field(10000, ge=1, description="values sent of each bucket, K")
    bits: Annotated[int, OnlyWith(two_scale=False)] = Field(
        8, ge=1, le=30, description="bits of a level (one scale)"
    )
    two_scale: bool = Field(False, description="two scales and a mask that says which")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return pack and gather, the norms, rounding, the sum, and writing back."""
        n, k, tensors = bucket.elements, min(self.values, bucket.elements), len(bucket.gradients)
        pick = (*packed_buffer(n, tensors), elementwise(k, _INDEX_PASSES + 3, 3))
        levels = elementwise(k, LEVEL_PASSES, LEVEL_LAUNCHES)
        back = (elementwise(k, _INDEX_PASSES), *written_back(n, tensors, world))
        norms: list[JobStage] = [
            Compute(pick, "compress", earliest="backward"),
            Send("all_gather", float(FLOAT * world.ranks)),
        ]
        if not self.two_scale:
            return [
                *norms,
                Compute((levels,), "compress", blocks=True),
                Send("all_reduce", float(k * self._width)),
                Compute((elementwise(k, 2), *back), "decompress", earliest="backward"),
            ]
        # Masks: compare and cast, 1.25 + 0.5; four products and sums of bytes join the scales.
        return [
            *norms,
            Compute((levels, levels, elementwise(k, 1.75, 2)), "compress", blocks=True),
            Send("all_reduce", float(k)),
            Compute((elementwise(k, 2.75, 4),), "compress", blocks=True),
            Send("all_reduce", float(k)),
            Compute((elementwise(k, 10.5, 8), *back), "decompress", earliest="backward"),
        ]

    @property
    def _width(self) -> int:
        """Bytes of a level."""
        return 1 if self.bits < 8 else 4

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of a norm and of one gradient's levels, as if it were sent alone."""
        k = min(self.values, gradient.elements)
        return float(FLOAT + k * (2 if self.two_scale else self._width))
