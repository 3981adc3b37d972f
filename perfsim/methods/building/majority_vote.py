"""Majority vote: methods that send one sign a value and take the majority of all ranks' signs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from perfsim.compute.kernel import Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.methods.base import SGD_LAUNCHES, JobStage, Method
from perfsim.methods.building.quantise import (
    Packing,
    gathered_from_all,
    majority,
    sign_bytes,
    sign_decode,
    sign_encode,
    sign_fusion,
    summed,
    two_step,
)

__all__ = ["Voting"]


class Voting(Method):
    """Signs, exchanged by an all-gather or in two steps, and their majority."""

    exchange: Literal["all_gather", "server", "two_step"] = Field(
        "all_gather", description="who counts the votes: every rank, rank 0, each rank its share"
    )
    packing: Packing = Field("bits", description="how signs travel: packed, or a byte each")

    def voted(self, elements: int, ranks: int, encode: Sequence[Kernel]) -> list[JobStage]:
        """Return the encoding of signs, their exchange (but by a server) and the votes' count.

        In two steps a piece is n / P of each of P messages: as many values to decode as one
        message has.
        """
        sent = [float(sign_bytes(elements, self.packing))]
        decode = sign_decode(elements, self.packing)
        if self.exchange == "all_gather":
            vote = [summed(elements, ranks), majority(elements)]
            return gathered_from_all(encode, sent, [decode], ranks, vote)
        piece = -(-elements // ranks)
        again = [elementwise(elements, 1 + 1 / ranks), sign_encode(piece, self.packing)]
        return two_step(encode, sent, 0.0, [decode, *again], [decode], ranks)

    def default_fusion(self) -> str:
        """Return a message a tensor for the frameworks' form, one message for the others."""
        return sign_fusion(self.exchange)

    def late_launches(self) -> int:
        """Return the launches of the update, which Horovod's optimizer runs behind its wait."""
        return SGD_LAUNCHES if self.exchange == "all_gather" else 0

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the signs of one gradient."""
        return float(sign_bytes(gradient.elements, self.packing))
