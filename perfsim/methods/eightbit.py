"""8-bit gradients: a tree of exponents and fractions, or 256 steps between least and largest."""

from typing import Annotated, ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, KernelLoop, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    ONE_GROUP,
    Compute,
    Group,
    JobStage,
    Method,
    MethodContext,
    OnlyWith,
    Send,
)
from perfsim.methods.building.quantise import STREAM, QuantisedExchange, gathered_from_all

_HEADER = 32
"""Bytes before each piece of Bagua's message: its least and largest value, aligned."""


class Eightbit(Method):
    """Sends a byte a value, quantised by fused CUDA kernels.

    ``exchange`` "all_gather" is Dettmers' data parallelism, layer by layer. In the backward pass,
    on the compute stream, magnitudes and their largest are taken (3 passes); the largest is
    all-gathered. One kernel looks the byte up in a table of 8-bit floats (1.25 passes). Every rank
    sends its bytes to all others in a ring. Afterwards each of the others' messages is decoded
    (1.25) and added (3), so decoding grows with P.

    "two_step" is Bagua's ByteGrad, bucket by bucket, all of it on the communication stream: least
    and largest of each of P pieces (2 reads), 256 steps between them (1.25), all-to-all, decode
    (1.25) and mean (1 + 1/P), encode the own piece, all-gather, decode. ``hierarchical`` (Bagua's
    default) does so between nodes' first GPUs, after a reduction in fp32 inside each node and
    before a broadcast there.

    Bytes a rank: (P-1) (n + 4); in two steps 2 (P-1)/P n + 64 (P-1).
    Memory: none between iterations.
    Left out: the paper's model parallelism; Bagua's padding of buckets to P.
    """

    summary: ClassVar[str] = "a byte a value: 8-bit floats, or ByteGrad in two steps"
    citation: ClassVar[str] = (
        "Dettmers 2016, 8-Bit Approximations for Parallelism in Deep Learning, arXiv 1511.04561;"
        " code TimDettmers/clusterNet@cb0bec55 source/clusterKernels.cu and Layer.cpp; two steps:"
        " Gan et al. 2021, Bagua, arXiv 2107.01499, code BaguaSys/bagua@3e480d29"
        " centralized_low_precision_synchronous.rs and kernels/bagua_kernels.cu"
    )
    family: ClassVar[str] = "quantisation"
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with exchange two_step (hierarchical) fp32 sums inside a node, bytes across"
        " nodes"
    )
    wire: ClassVar[str] = (
        "(P - 1) * (n + 4) if exchange == 'all_gather' else 2 * (P - 1) / P * n + 64 * (P - 1)"
    )

    exchange: QuantisedExchange = Field(
        "all_gather", description="Dettmers' ring, or Bagua's ByteGrad"
    )
    hierarchical: Annotated[bool, OnlyWith(exchange="two_step")] = Field(
        True, description="two_step: between nodes only, fp32 inside"
    )

    def default_fusion(self) -> str:
        """Return one message a tensor for Dettmers' form, buckets for Bagua's."""
        return "none" if self.exchange == "all_gather" else "size"

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the encoding, the exchange, and the decoding."""
        n, ranks = bucket.elements, world.ranks
        if self.exchange == "all_gather":
            largest, encode = elementwise(n, 3, 3), elementwise(n, 1.25)
            decode = elementwise(n, 4.25, 2)
            stages = gathered_from_all([largest, encode], [FLOAT, float(n)], [], ranks)[:-1]
            others = KernelLoop([((decode,), max(ranks - 1, 1))])
            return [*stages, Compute(others, "decompress", earliest="backward")]
        if not self.hierarchical or world.gpus_per_node == 1:
            return self.pieces(n, ranks, "all")
        inside = Send("reduce", float(FLOAT * n), group="node")
        back = Send("broadcast", float(FLOAT * n), group="node")
        between = self.pieces(n, world.nodes, "leaders") if world.nodes > 1 else []
        return [inside, *between, back]

    def pieces(self, elements: int, ranks: int, group: Group) -> list[JobStage]:
        """Return ByteGrad's steps among ``ranks``, one piece each."""
        piece = -(-elements // ranks)
        size = float(elements + _HEADER * ranks)
        bounds, own = elementwise(elements, 2, 4 * ranks), elementwise(piece, 3.25, 5)
        encode, decode = elementwise(elements, 1.25), elementwise(elements, 1.25)
        mean = elementwise(elements, 1 + 1 / ranks)
        return [
            Compute((bounds, encode), "compress", STREAM),
            Send("all_to_all", size, group=group),
            Compute((decode, mean, own), "compress", STREAM),
            Send("all_gather", size, group=group),
            Compute((decode,), "decompress", STREAM),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of a message: one a value, and the largest magnitude."""
        return float(gradient.elements + FLOAT)
