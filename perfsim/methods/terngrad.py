"""TernGrad: each value is drawn to -1, 0 or 1 times the largest magnitude."""

from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel, KernelLoop, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, MethodContext
from perfsim.methods.building.gathers_through_horovod import GathersThroughHorovod
from perfsim.methods.building.quantise import QuantisedExchange, gathered_from_all, two_step

CLIP = (8.0, 6)
"""Passes and launches: mean (1), difference (2), square (2), mean (1), its root, clamp (2)."""

DRAW = {"bytes": (15.75, 9), "two_bits": (22 + 9 / 16, 14)}
"""Passes and launches: magnitude (2), largest (1), sign (2), scale (2), draw (1), compare (2.25),
clear (2.25); then sign and cast (3.25), or signs, masks, both joined and packed (10 1/16)."""

_DECODE = {"bytes": (3.25, 2), "two_bits": (7 + 1 / 16, 6)}
"""Passes and launches: cast (1.25), or unpack, choose, cast and shift (5 1/16); multiply (2)."""

WIRE = "(n if packing == 'bytes' else ceil(n / 4))"
"""Bytes of the values, as part of ``wire``."""


class Terngrad(GathersThroughHorovod):
    """Sends -1, 0 or 1 a value, and the largest magnitude that scales them.

    By default this is GRACE's loop: each tensor by itself, decoded after the backward pass. Its
    hook is a tensor's, not that of DDP's buckets. In the hook, on the compute stream, unfused
    operations clip (option ``clip``), take the largest magnitude, draw and cast, tensor by tensor
    as GRACE does. Values and scale are all-gathered. After the backward pass a loop decodes the P
    messages (cast and multiply, 3.25 passes) and adds them up (3 passes), so decoding grows with P;
    then the mean is taken (2 passes). ``packing`` "bytes": a value a byte, as GRACE and
    Gradient-Compression send; "two_bits" as the paper counts and MergeComp packs, with 7 passes
    more to pack and 4 to unpack. ``exchange`` "two_step" is GRACE's all-to-all communicator, after
    the backward pass: each rank adds up 1/P of the values, draws again, all-gathers, decodes the
    pieces and joins them (2 passes). Compare with other methods at one `fusion`. Bytes a rank:
    (P-1) (n + 4), or n/4 for n; in two steps 2 (P-1)/P n + 8 (P-1). Memory: none between
    iterations. Left out: the paper's sharing of one scale by all ranks, and the host's waiting for
    deviation and scale.
    """

    summary: ClassVar[str] = "three levels a value, drawn at random, one scale a tensor (TernGrad)"
    citation: ClassVar[str] = (
        "Wen et al. 2017, TernGrad, NeurIPS, Algorithm 1; code"
        " sands-lab/grace@fd3a7f42 grace_dl/torch/compressor/terngrad.py and"
        " grace_dl/dist/communicator/all_to_all.py; packed: zhuangwang93/mergeComp@82bc96c3"
        " mergeComp_dl/torch/compressor/poolterngrad.py"
    )
    family: ClassVar[str] = "quantisation"
    wire: ClassVar[str] = (
        f"(P - 1) * ({WIRE} + 4) if exchange == 'all_gather'"
        f" else 2 * (P - 1) / P * {WIRE} + 8 * (P - 1)"
    )
    fusion: ClassVar[str] = "none"

    exchange: QuantisedExchange = Field(
        "all_gather", description="every rank decodes all, or its share"
    )
    packing: Literal["bytes", "two_bits"] = Field("bytes", description="a byte a value, or packed")
    clip: bool = Field(True, description="clip at 2.5 standard deviations first")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return clip and draw, the exchange, and the decoding."""
        n, ranks = bucket.elements, world.ranks
        sent, encode, add = self.packed_bytes(n), self.drawn(n), self.added(n)
        mean = elementwise(n, 2)
        if self.exchange == "all_gather":
            return gathered_from_all([encode], [sent, FLOAT], [add], ranks, [mean])
        piece = -(-n // ranks)
        middle = KernelLoop([((self.added(piece),), ranks), ((self.drawn(piece),), 1)])
        # The pieces that come back are decoded and joined, not added up.
        decode = elementwise(piece, *_DECODE[self.packing])
        last = KernelLoop([((decode,), ranks), ((elementwise(n, 2), mean), 1)])
        return two_step([encode], [sent], FLOAT, middle, last, ranks)

    def drawn(self, elements: int) -> Kernel:
        """Return the kernel that makes the message of ``elements`` values."""
        passes, launches = DRAW[self.packing]
        if self.clip:
            passes, launches = passes + CLIP[0], launches + CLIP[1]
        return elementwise(elements, passes, launches)

    def added(self, elements: int) -> Kernel:
        """Return the kernel that decodes one message and adds it to the sum."""
        passes, launches = _DECODE[self.packing]
        return elementwise(elements, passes + 3, launches + 1)

    def packed_bytes(self, elements: int) -> float:
        """Return the bytes of ``elements`` values, packed."""
        return float(elements if self.packing == "bytes" else -(-elements // 4))

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one gradient's values and of their scale."""
        return self.packed_bytes(gradient.elements) + FLOAT
