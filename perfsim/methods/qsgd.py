"""QSGD: stochastic quantisation to a few bits."""

from collections.abc import Sequence
from math import ceil
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, KernelLoop, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    JobStage,
    MethodContext,
    OnlyWith,
    Send,
)
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.flat_buffer import packed_buffer, written_back
from perfsim.methods.building.gathers_through_horovod import GathersThroughHorovod
from perfsim.methods.building.quantise import gathered_from_all, summed_levels, two_step

QUANTISE_PASSES = 24
QUANTISE_LAUNCHES = 11
"""Passes (a read or write of every value) and launches of the operations that the class lists."""

_FEEDBACK = (14, 6)
"""Passes and launches of the residual besides one decode: MergeComp copies the gradient, decays the
residual, scales, adds, subtracts and copies."""

LEVEL_PASSES, LEVEL_LAUNCHES = 27.5, 13
"""Passes and launches of the max-norm form: sign, its cast, magnitude, two scalings, floor,
difference, clamp, draw, sum, cast, product, cast: 4 bytes an element, except casts to and from one
byte."""

DECODE_PASSES, DECODE_LAUNCHES = 3, 3
"""Passes and launches besides reading the levels: cast (1) and scale (2), as GRACE's
operations. Adding to the sum takes 3 passes and a launch more."""


class Qsgd(GathersThroughHorovod):
    """Sends each value as a sign and level of ``bits`` bits, and a norm a group of values.

    By default this is GRACE's loop: each tensor by itself, decoded after the backward pass. Levels
    in the all-reduce of DDP's buckets are `cgx` and `coccl`. In the hook, on the compute stream,
    the groups' norms are taken (1 read). Unfused PyTorch operations then draw, round and pack
    (magnitude, scale twice, floor, remainder, random numbers, compare, add, sign, multiply, cast:
    24 passes in 11 launches). Form "all_gather": every rank's levels and norms are gathered. After
    the backward pass a loop unpacks the P messages and adds them up, so decoding grows with P and
    the form pays on few ranks only; then the mean is taken (2 passes). Form "all_reduce", after the
    backward pass: the gradients are packed into one buffer. The largest magnitude (3 passes) is
    all-reduced first (a tiny message, for which the host waits) and values are drawn (27.5 passes
    in 13 launches). Levels are summed as integers of 8 bits if these hold the sum of P levels, else
    of 32 (NCCL sums no 16-bit integers), and unpacked once. Every gradient is cleared and gets its
    piece of the buffer added, which keeps the host busy longer than the GPU. With ``second_bits``
    values are drawn at two scales. The finer one is used where all ranks' values are small; an
    all-reduce of a mask finds out where (a byte a value, for which the host waits). Form "two_step"
    is GRACE's all-to-all communicator, after the backward pass: levels and norms are shared out,
    each rank adds up 1/P and quantises again, all-gathers bring it back, and the pieces are joined.
    ``feedback`` keeps the error of quantisation, as MergeComp does: the hook decodes the rank's own
    message and subtracts it. Bytes a rank: (P-1) (bits/8 n + 4 n/group); in two steps 2 (P-1)/P of
    a message; summed 2 (P-1)/P of a byte or four a value. Memory: none, or the residual.

    Kernels are derived. Messages: a tensor each in GRACE's forms (there with one norm a tensor or
    128 values, and no levels under a byte), one buffer in "all_reduce" as Gradient-Compression runs
    it. Compare with other methods at one `fusion`. Left out: the paper's Elias coding, which GPU
    implementations do not use.
    """

    summary: ClassVar[str] = "stochastic quantisation to a few bits a value (QSGD)"
    citation: ClassVar[str] = (
        "Alistarh et al. 2017, QSGD, NeurIPS, section 3; max-norm all-reduce form: arXiv"
        " 2109.12497, code vineeths96/Gradient-Compression@e5b61b1e compressors.py; two steps:"
        " sands-lab/grace@fd3a7f42 grace_dl/dist/communicator/all_to_all.py"
    )
    family: ClassVar[str] = "quantisation"
    wire: ClassVar[str] = (
        "(P - 1) * (ceil(n * bits / 8) + 4 * ceil(n / group)) if exchange == 'all_gather' else"
        " 2 * (P - 1) / P * (ceil(n * bits / 8) + 4 * ceil(n / group)) if exchange == 'two_step'"
        " else 2 * (P - 1) / P * (4 + (n if second_bits else 0)"
        " + n * (1 if P * (2 ** (bits - 1) - 1) < 128 else 4))"
    )

    bits: int = Field(8, ge=2, le=16, description="bits a value, sign included")
    exchange: Literal["all_gather", "all_reduce", "two_step"] = Field(
        "all_gather", description="how levels are exchanged"
    )
    group: Annotated[int, OnlyWith(exchange=("all_gather", "two_step"))] = Field(
        512, ge=1, description="values that share a norm (not in all_reduce)"
    )
    feedback: Annotated[bool, OnlyWith(exchange="all_gather")] = Field(
        False, description="keep the error and add it to the next gradient (MergeComp)"
    )
    second_bits: Annotated[int, OnlyWith(exchange="all_reduce")] = Field(
        0, ge=0, le=16, description="bits of the finer of two scales (all_reduce); 0 for one scale"
    )

    def default_fusion(self) -> str:
        """Return a message a tensor for GRACE's forms, one for Gradient-Compression's."""
        return "whole" if self.exchange == "all_reduce" else "none"

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the quantisation, the exchange, and the unpacking."""
        n = bucket.elements
        share = self.bits / 8 / FLOAT
        norms, quantise = elementwise(n, 1, 2), elementwise(n, QUANTISE_PASSES, QUANTISE_LAUNCHES)
        if self.exchange == "all_reduce":
            return self._summed(bucket, world)
        values = float(ceil(n * self.bits / 8))
        parts = [values, self.packed_bytes(n) - values]
        if self.exchange == "two_step":
            piece = -(-n // world.ranks)
            decode = elementwise(piece, share + DECODE_PASSES, DECODE_LAUNCHES)
            add = elementwise(piece, share + DECODE_PASSES + 3, DECODE_LAUNCHES + 1)
            again = elementwise(piece, 1 + QUANTISE_PASSES, 2 + QUANTISE_LAUNCHES)
            middle = KernelLoop([((add,), world.ranks), ((again,), 1)])
            # The pieces that come back are decoded and joined (2 passes), not added up.
            joined = (elementwise(n, 2), elementwise(n, 2))
            last = KernelLoop([((decode,), world.ranks), (joined, 1)])
            return two_step([norms, quantise], parts, 0.0, middle, last, world.ranks)
        add = elementwise(n, share + DECODE_PASSES + 3, DECODE_LAUNCHES + 1)
        encode, mean = [norms, quantise], [elementwise(n, 2)]
        if self.feedback:
            own = elementwise(n, share + DECODE_PASSES, DECODE_LAUNCHES)
            encode = [elementwise(n, *_FEEDBACK), *encode, own]
        return gathered_from_all(encode, parts, [add], world.ranks, mean)

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual, where there is one: one fp32 value a parameter."""
        return fp32_bytes(gradients) if self.feedback else 0.0

    def _summed(self, bucket: Bucket, world: MethodContext) -> list[JobStage]:
        n, tensors = bucket.elements, len(bucket.gradients)
        levels = elementwise(n, LEVEL_PASSES, LEVEL_LAUNCHES)
        width = self.sum_bytes(world.ranks)
        norms = (*packed_buffer(n, tensors), elementwise(n, 3, 2))
        return [
            Compute(norms, "compress", earliest="backward"),
            Send("all_reduce", float(FLOAT)),
            *summed_levels(n, width, levels, bool(self.second_bits)),
            Compute(written_back(n, tensors, world), "decompress", earliest="backward"),
        ]

    def packed_bytes(self, elements: int) -> float:
        """Return the bytes of levels and norms of ``elements`` values, packed."""
        return float(ceil(elements * self.bits / 8) + FLOAT * ceil(elements / self.group))

    def sum_bytes(self, ranks: int) -> int:
        """Return the bytes of the narrowest signed integer that NCCL sums and P levels fit in."""
        most = ranks * (2 ** (self.bits - 1) - 1)
        return 1 if most < 2**7 else 4

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one gradient's levels and norms."""
        return self.packed_bytes(gradient.elements)
