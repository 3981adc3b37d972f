"""Synchronous SGD: dense gradients, averaged by one all-reduce a bucket."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, Method, MethodContext, Send

_WIDTHS = {"fp32": 4.0, "fp16": 2.0}
"""Bytes of a gradient by the type that the backward pass makes; `reduce_dtype` may narrow it."""
"""Bytes of a gradient of each type, relative to fp32."""


class Ssgd(Method):
    """Sends every bucket dense by an all-reduce as soon as it is ready, in backward order.

    It is also found as "ddp". With overlap this is wait-free backpropagation with tensor fusion
    (PyTorch DDP's rule by default). Without `overlap` it sends after the backward pass; with
    `fusion` whole this is BSP with one buffer. Where ``gradients`` are "fp16" the weights
    themselves are cast to half. The backward pass then makes gradients in half, and the optimizer
    keeps masters in fp32 (MXNet's float16 networks with multi_precision, Apex's O2). PyTorch's amp
    keeps gradients in fp32. The method runs no kernels of its own. Bytes a rank: 2 (P-1)/P x 4 a
    parameter (ring), half of it where ``gradients`` are "fp16". Memory: none more. Left out: copies
    of gradients into and out of the buckets, which DDP makes unless gradient_as_bucket_view is set
    (4 passes, 2 launches a tensor); normalisations, which stay in fp32 where the rest is cast (0.2
    % of ResNet-50).
    """

    summary: ClassVar[str] = "dense all-reduce of every bucket (S-SGD; DDP when overlapped)"
    citation: ClassVar[str] = (
        "Li et al. 2020, PyTorch Distributed, VLDB 13(12), section 3.2; wait-free"
        " backpropagation: Zhang et al. 2017, Poseidon, ATC, section 3.1; gradients in fp16:"
        " Micikevicius et al. 2018, Mixed Precision Training, ICLR, section 3.1"
    )
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n"
    lossy: ClassVar[bool] = False

    gradients: Literal["fp32", "fp16"] = Field(
        "fp32", description="type of the gradients that the backward pass makes"
    )

    def dense_bytes(self, bucket: Bucket) -> float:
        """Return the bytes of a bucket's gradients."""
        return min(_WIDTHS[self.gradients] * bucket.elements, bucket.size_bytes)

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the one all-reduce."""
        return [Send("all_reduce", self.dense_bytes(bucket))]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the gradient."""
        return min(_WIDTHS[self.gradients] * gradient.elements, gradient.size_bytes)
