"""A method to start from: it casts gradients to fewer bits, all-reduces them and casts back."""

from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, Send


class Mymethod(Method):
    """Sends every bucket in ``bits`` a value by an all-reduce as soon as it is ready.

    A kernel packs the bucket before it is sent (it reads 4 bytes a value and writes at most as
    many, 1 launch), another unpacks what was reduced. Bytes a rank: 2 (P-1)/P x bits/8 a
    parameter (ring). Memory: none from one iteration to the next. Left out: what a format loses.
    """

    summary: ClassVar[str] = "a template: gradients packed into fewer bits, all-reduced, unpacked"
    citation: ClassVar[str] = "your paper and its code, with the year: nobody 2026, a template"
    family: ClassVar[str] = "quantisation"
    wire: ClassVar[str] = "2 * (P - 1) / P * bits / 8 * n"

    bits: int = Field(16, ge=1, le=32, description="bits that a value takes on the wire")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return pack, all-reduce and unpack; each waits for the one before it."""
        kernel = (elementwise(bucket.elements, passes=2),)
        return [
            Compute(kernel, "compress"),
            Send("all_reduce", self.bits / 8 * bucket.elements),
            Compute(kernel, "decompress"),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return what a gradient takes on the wire, for policies that fuse by it [B]."""
        return self.bits / 8 * gradient.elements
