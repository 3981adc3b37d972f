"""IntSGD: gradients rounded to integers with one scale, summed by an all-reduce of integers."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, Send

_ROUND = {"deterministic": (2.0, 1), "random": (27.0, 11)}
"""Passes and launches. "random": sign, magnitude, floor, ceiling (2 each); two differences (3
each), plus epsilon (2), quotient (3); draw (2); sum and product (3 each)."""

_NEXT_SCALE = (5.0, 3 + 9)
"""Passes and launches of the next scale: result copied (2), squared (2), summed (1); its running
mean, root and quotients are single values."""

_MAXIMUM = (3.0, 2)
"""Passes and launches of the largest magnitude."""

_NARROW, _LARGEST = 8, 128
"""Bits of a narrow integer, and the largest magnitude that a sum of them may have."""


class Intsgd(Method):
    """Sends gradients as 8-bit integers by one all-reduce after the backward pass.

    Each gradient is copied to a send buffer and all are concatenated (2 passes each). The buffer is
    scaled, rounded, clamped to +-128/P so that sums fit, and cast. One all-reduce sums it. The sums
    are cast back and divided, and copied to the gradients tensor by tensor (5.25 passes). ``scale``
    "adaptive" is IntSGD: the next scale follows from a running mean of the sum's norm (5 passes),
    which all ranks know, so that only integers are sent. "heuristic" is the rival of the paper's
    authors: the largest magnitude (3 passes) is all-reduced first, and the host waits for it.
    ``rounding`` is deterministic in the authors' run of ResNet-18 and random in that of an LSTM;
    ``bits`` 32 hardly ever clamps; 8 bits leave integers from -2 to 1 on 64 ranks, and zeros alone
    beyond 128, which is refused.

    Bytes a rank: 2 (P-1)/P a parameter, or 2 (P-1)/P x 4 with 32 bits; 8 (P-1)/P more for the
    heuristic scale.
    Memory: the send buffer, 4 bytes a parameter.
    Left out: weight decay and momentum before the exchange, which the update counts; buffers of an
    error that the code makes and does not use.
    """

    summary: ClassVar[str] = "integers of one scale summed by an all-reduce (IntSGD)"
    citation: ClassVar[str] = (
        "Mishchenko et al. 2022, IntSGD: Adaptive Floatless Compression of Stochastic Gradients,"
        " ICLR, arXiv 2102.08374; code bokunwang1/intsgd@1b3f3766 gradient_reducers.py"
        " (IntQuantReducer, HintQuantReducer), train.py, train_intsgd_resnet18.py"
    )
    family: ClassVar[str] = "quantisation"
    wire: ClassVar[str] = "2 * (P - 1) / P * (n * bits / 8 + (4 if scale == 'heuristic' else 0))"
    fusion: ClassVar[str] = "whole"

    bits: Literal[8, 32] = Field(8, description="bits of the integers that are summed")
    rounding: Literal["deterministic", "random"] = Field(
        "deterministic", description="to the nearest integer, or drawn between two"
    )
    scale: Literal["adaptive", "heuristic"] = Field(
        "adaptive", description="from sums of earlier iterations, or from the largest magnitude"
    )

    def refusal(self, world: MethodContext) -> str:
        """Return that integers of 8 bits leave nothing to add up among so many ranks, if so."""
        if self.bits > _NARROW or world.ranks <= _LARGEST:
            return ""
        return (
            f"clamps integers of 8 bits to +-{_LARGEST}/P so that their sums fit, which leaves"
            f" zeros on {world.ranks} GPUs; give `options` bits=32, or at most {_LARGEST} GPUs"
        )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return packing, rounding, the all-reduce, and what is made of the sums."""
        n, tensors, width = bucket.elements, len(bucket.gradients), self.bits / 8
        narrow = 1 + width / FLOAT
        passes, launches = _ROUND[self.rounding]
        # Scaled (2) and clamped (2) besides; behind the sum divided by P times the scale (2), and
        # copied to the gradients (2).
        packed = elementwise(n, 4, tensors + 1)
        rounded = elementwise(n, passes + 4 + narrow, launches + 3)
        result = elementwise(n, narrow + 4, 2 + tensors)
        summed = Send("all_reduce", width * n, "backward")
        if self.scale == "adaptive":
            return [
                Compute((packed, rounded), "compress", earliest="backward"),
                summed,
                Compute((result, elementwise(n, *_NEXT_SCALE)), "decompress", earliest="backward"),
            ]
        return [
            Compute((packed, elementwise(n, *_MAXIMUM)), "compress", earliest="backward"),
            Send("all_reduce", float(FLOAT), "backward"),
            Compute((rounded,), "compress", earliest="backward"),
            summed,
            Compute((result,), "decompress", earliest="backward"),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of a gradient's integers."""
        return self.bits / 8 * gradient.elements

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the send buffer: one fp32 value a parameter."""
        return float(FLOAT * sum(gradient.elements for gradient in gradients))
