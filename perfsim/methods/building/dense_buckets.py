"""Buckets of dense gradients, each averaged by one all-reduce: what the dense methods share."""

from collections.abc import Hashable
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, Method, MethodContext, Send

__all__ = ["DenseBuckets"]

_WIDTHS = {"fp32": 4.0, "fp16": 2.0}
"""Bytes of a gradient by the type that the backward pass makes; `reduce_dtype` may narrow it."""


class DenseBuckets(Method):
    """Sends each bucket of gradients as it is by one all-reduce.

    ``gradients`` is the type in which the backward pass makes them. A method whose stages depend on
    more than the size of a bucket says so in its ``likeness``.
    """

    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n"
    lossy: ClassVar[bool] = False

    gradients: Literal["fp32", "fp16"] = Field(
        "fp32", description="type of the gradients that the backward pass makes"
    )

    def dense_bytes(self, bucket: Bucket) -> float:
        """Return the bytes of a bucket's gradients."""
        return min(_WIDTHS[self.gradients] * bucket.elements, bucket.size_bytes)

    def likeness(self, bucket: Bucket) -> Hashable:
        """Return what the stages depend on: the bytes of the gradients."""
        return self.dense_bytes(bucket)

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the one all-reduce."""
        return [Send("all_reduce", self.dense_bytes(bucket))]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the gradient."""
        return min(_WIDTHS[self.gradients] * gradient.elements, gradient.size_bytes)
