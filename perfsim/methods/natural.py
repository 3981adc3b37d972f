"""Natural compression: each value is drawn to one of the two powers of two around it."""

from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import KernelLoop, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, MethodContext
from perfsim.methods.building.gathers_through_horovod import GathersThroughHorovod
from perfsim.methods.building.quantise import QuantisedExchange, gathered_from_all, two_step

_ENCODE = {"cupy": (26.75, 13), "cuda": (3.25, 2)}
"""Passes and launches. cupy: sign, exponent and mantissa by masks (6), draw (1), compare (2.25),
next exponent (2), choose (3.25), clip (2), shifts and offset (6), join (3), cast (1.25); cuda:
draw (1), one kernel (2.25)."""

_DECODE = {"cupy": (14.75, 10), "cuda": (1.25, 1)}
"""Passes and launches. cupy: sign and exponent from bytes (1), offset and cast (1.75), shift (2),
negate (2), choose (3.25), zeros (0.5, 1.25), multiply (3); cuda: one kernel."""


class Natural(GathersThroughHorovod):
    """Sends sign and exponent of each value in a byte; the mantissa decides the draw.

    By default this is GRACE's loop: each tensor by itself, decoded after the backward pass. Its
    hook is a tensor's, not that of DDP's buckets. In the hook, on the compute stream, exponents are
    drawn and packed, tensor by tensor as GRACE does. One all-gather takes n bytes from each rank.
    After the backward pass a loop decodes the P messages and adds them up (3 passes), so decoding
    grows with P; then the mean is taken (2 passes). ``kernel`` "cupy" is what GRACE's Horovod
    version runs, operation by operation; "cuda" is its fused extension. ``exchange`` "two_step" is
    GRACE's all-to-all communicator, after the backward pass: each rank adds up 1/P of the values,
    draws again, all-gathers, decodes the pieces and joins them (2 passes). Compare with other
    methods at one `fusion`. Bytes a rank: (P-1) n; in two steps 2 (P-1)/P n. Memory: none between
    iterations. Left out: the paper's ninth bit (GRACE keeps 7 bits of the exponent, clipped),
    cupy's hand-over on the host.
    """

    summary: ClassVar[str] = "sign and exponent only, drawn at random (natural compression)"
    citation: ClassVar[str] = (
        "Horvath et al. 2019, Natural Compression, arXiv 1905.10988; code"
        " sands-lab/grace@fd3a7f42 grace_dl/torch/compressor/natural.py,"
        " grace_dl/dist/compressor/cnat_cuda and grace_dl/dist/communicator/all_to_all.py"
    )
    family: ClassVar[str] = "quantisation"
    wire: ClassVar[str] = "(P - 1) * n if exchange == 'all_gather' else 2 * (P - 1) / P * n"
    fusion: ClassVar[str] = "none"

    exchange: QuantisedExchange = Field(
        "all_gather", description="every rank decodes all, or its share"
    )
    kernel: Literal["cupy", "cuda"] = Field("cupy", description="operation by operation, or fused")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return draw and pack, the exchange, and the decoding."""
        n, ranks = bucket.elements, world.ranks
        encode, decode = _ENCODE[self.kernel], _DECODE[self.kernel]
        added = (decode[0] + 3, decode[1] + 1)
        first, mean = elementwise(n, *encode), elementwise(n, 2)
        if self.exchange == "all_gather":
            add = elementwise(n, *added)
            return gathered_from_all([first], [float(n)], [add], ranks, [mean])
        piece = -(-n // ranks)
        middle = KernelLoop(
            [((elementwise(piece, *added),), ranks), ((elementwise(piece, *encode),), 1)]
        )
        # The pieces that come back are decoded and joined (2 passes), not added up.
        joined = (elementwise(n, 2), mean)
        last = KernelLoop([((elementwise(piece, *decode),), ranks), (joined, 1)])
        return two_step([first], [float(n)], 0.0, middle, last, ranks)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one gradient's values: one each."""
        return float(gradient.elements)
