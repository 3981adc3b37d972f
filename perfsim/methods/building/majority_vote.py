"""Majority vote: methods that send one sign per value and take the majority of all ranks' signs."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.methods.base import JobStage, Method
from perfsim.methods.building.code_bases import DDP, HOROVOD_FORK, CodeBase
from perfsim.methods.building.quantise import (
    Packing,
    gathered_from_all,
    majority,
    sign_bytes,
    sign_decode,
    sign_encode,
    summed,
    two_step,
)

__all__ = ["Voting"]


class Voting(Method):
    """A method that exchanges signs and takes the majority of all ranks' votes.

    One buffer holds the whole model, in every form: the authors flatten tensors up to 100 MB after
    the backward pass (jiaweizzhao/signSGD-with-Majority-Vote@5bebcd0f main/Signum_SGD.py,
    ``bucket_size``), and HKBU's benchmarks gather one buffer (lzhangbv/dear_pytorch benchmarks.py,
    ``signum``: threshold 536870912). GRACE and MergeComp go tensor by tensor.
    """

    fusion: ClassVar[str] = "whole"

    exchange: Literal["all_gather", "server", "two_step"] = Field(
        "all_gather", description="who counts the votes: every rank, rank 0, each rank its share"
    )
    packing: Packing = Field("bits", description="how signs travel: packed, or a byte each")

    def voted(self, elements: int, ranks: int, encode: Sequence[Kernel]) -> list[JobStage]:
        """Return the encoding of signs, their exchange and the count of votes.

        This is not for the exchange by a server. In two steps a rank decodes n / P values of each
        of P messages: as many values as one message has.
        """
        sent = [float(sign_bytes(elements, self.packing))]
        decode = sign_decode(elements, self.packing)
        if self.exchange == "all_gather":
            vote = [summed(elements, ranks), majority(elements)]
            return gathered_from_all(encode, sent, [decode], ranks, vote)
        piece = -(-elements // ranks)
        merge = (elementwise(elements, 1 + 1 / ranks), sign_encode(piece, self.packing))
        return two_step(encode, sent, 0.0, (decode, *merge), (decode,), ranks)

    def code_base(self) -> CodeBase:
        """Return HKBU's with all-gathers (lzhangbv/dear_pytorch benchmarks.py, signum)."""
        return HOROVOD_FORK if self.exchange == "all_gather" else DDP

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one gradient's signs."""
        return float(sign_bytes(gradient.elements, self.packing))
