"""QSGD: stochastic quantisation to a few bits."""

from __future__ import annotations

from math import ceil
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.fusion.bucket import Bucket
from perfsim.kernel import FLOAT, elementwise
from perfsim.method import Compute, Method, Send, Stage
from perfsim.profile import Gradient


class Qsgd(Method):
    """Sends each value as a sign and level of ``bits`` bits, and a norm a group of values.

    In the hook, on the compute stream: the groups' norms (1 read), then draw, round and pack
    (read the value and its random number, write the number, write ``bits`` bits). Form
    "all_gather": every rank's levels and norms are gathered, and after the backward pass P
    messages are unpacked and accumulated, so decoding grows with P; bytes a rank (P-1) (bits/8 n
    + 4 n/group). Form "all_reduce": the largest norm is agreed first (a tiny all-reduce), then
    levels are summed as integers of the narrowest of 8, 16 or 32 bits that holds P of them, and
    unpacked once. No residual. Kernels are derived (no measured point is known). Left out: the
    paper's Elias coding, which GPU implementations do not use.
    """

    summary: ClassVar[str] = "stochastic quantisation to a few bits a value (QSGD)"
    citation: ClassVar[str] = (
        "Alistarh et al. 2017, QSGD, NeurIPS, section 3; max-norm all-reduce form: arXiv 2109.12497"
    )

    bits: int = Field(8, ge=2, le=16, description="bits a value, sign included")
    group: int = Field(512, ge=1, description="values that share a norm (all_gather form)")
    exchange: Literal["all_gather", "all_reduce"] = Field(
        "all_gather", description="how levels are exchanged"
    )

    def stages(self, bucket: Bucket, ranks: int, iteration: int) -> list[Stage]:
        """Return quantise, the exchange, and the unpacking."""
        n = bucket.elements
        share = self.bits / 8 / FLOAT
        quantise = elementwise(n, 1 + 3 + share, launches=5)
        if self.exchange == "all_reduce":
            width = self.sum_bytes(ranks)
            return [
                Compute((elementwise(n, 1, launches=2),), "compress"),
                Send("all_reduce", float(FLOAT)),
                Compute((elementwise(n, 3 + width / FLOAT, launches=4),), "compress", "hook"),
                Send("all_reduce", float(width * n)),
                Compute((elementwise(n, 1 + width / FLOAT),), "decompress", earliest="backward"),
            ]
        unpack = elementwise(n, share + 2, launches=2)
        return [
            Compute((quantise,), "compress"),
            Send("all_gather", self.packed_bytes(n) * ranks),
            Compute((unpack,) * ranks, "decompress", earliest="backward"),
        ]

    def packed_bytes(self, elements: int) -> float:
        """Return levels and norms of ``elements`` values, packed [bytes]."""
        return float(ceil(elements * self.bits / 8) + FLOAT * ceil(elements / self.group))

    def sum_bytes(self, ranks: int) -> int:
        """Return the bytes of the narrowest integer that holds the sum of P levels."""
        needed = self.bits + ceil(ranks).bit_length() if ranks > 1 else self.bits
        return next(width for width in (1, 2, 4) if 8 * width >= needed or width == 4)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return levels and norms of one gradient."""
        return self.packed_bytes(gradient.elements)
