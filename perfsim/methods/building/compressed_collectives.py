"""Compression inside a collective: codecs, what they make of a chunk, and what their kernels do.

Inside a collective everything waits in line on the communication stream: kernels and sends of one
message alternate, and the next message starts behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.policies import DDP_BUCKET_BYTES
from perfsim.methods.base import Compute, Group, JobStage, MethodContext, Send
from perfsim.methods.building.quantise import STREAM

__all__ = [
    "Codec",
    "Fused",
    "Separate",
    "compressed_ring",
    "inside_collective",
    "largest_message",
    "one_shot",
    "serial_s",
    "triple_shot",
    "two_shot",
]

METADATA_BYTES = 16.0
"""Size and encoding of a framed chunk (cocclCompressorFrameMetadata in hpdps-group/COCCL)."""


@dataclass(frozen=True, slots=True)
class Separate:
    """A codec of one kernel a direction; adding up is a kernel of its own.

    Its kernels are named ``<name>_encode`` and ``<name>_decode`` and keyed on values. Where no GPU
    has points for them they stream what they read and write at memory bandwidth, which is less
    than an entropy coder takes.

    Parameters
    ----------
    name : of the kernels
    share : compressed bytes over the bytes of fp32 values
    extra_passes : of the values' size, beside what the points were measured with
    framed : whether sizes are known after coding only, so that they are sent ahead

    Examples
    --------
    >>> half = Separate("half", 0.5)
    >>> half.packed_bytes(1000), [one.name for one in half.merged_again(1000, 2)]
    (2000.0, ['half_decode', 'elementwise', 'half_encode'])
    """

    name: str
    share: float
    extra_passes: float = 0.0
    framed: bool = False

    def packed_bytes(self, elements: int) -> float:
        """Return the bytes of a chunk."""
        return FLOAT * elements * self.share

    def encode(self, elements: int, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the coding of so many chunks of ``elements`` values each."""
        return self._coded("encode", elements * chunks)

    def decode(self, elements: int, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the decoding of so many chunks."""
        return self._coded("decode", elements * chunks)

    def merged(self, elements: int, parts: int) -> tuple[Kernel, ...]:
        """Return decoding the parts of a chunk and adding them up: reads each, writes the sum."""
        return (*self.decode(elements, parts), elementwise(elements, parts + 1))

    def merged_again(self, elements: int, parts: int) -> tuple[Kernel, ...]:
        """Return the same, and the coding of the sum."""
        return (*self.merged(elements, parts), *self.encode(elements))

    def _coded(self, way: str, elements: int) -> tuple[Kernel, ...]:
        moved = FLOAT * elements * (1.0 + self.share)
        coding = Kernel(f"{self.name}_{way}", elements, moved)
        more = (elementwise(elements, self.extra_passes),) if self.extra_passes else ()
        return (coding, *more)


@dataclass(frozen=True, slots=True)
class Fused:
    """A quantiser whose kernels stream: each reads its input once and writes its output once.

    Values are cut into groups (the last one is filled up), each sent as levels of ``bits`` bits
    and one fp32 scale. Decoding, adding up and coding again are one kernel.

    References
    ----------
    maomaohpp/COCCL_PPoPP_AE@cc629ee7 src/device/compress/sdp4bit: GETSTOCHCOMPBUFF in
    sdp4bit_quan.cu; quantization/stochastic_quantize.cu, quant_reduce.cu, dequant_reduce_quant.cu.

    Examples
    --------
    >>> codec = Fused(bits=4, group=128)
    >>> codec.packed_bytes(1000)  # 8 groups of 64 + 4 bytes
    544.0
    >>> codec.encode(1000, chunks=2)[0].moved_bytes  # 8000 bytes read, 1088 written
    9088.0
    """

    bits: int
    group: int
    framed: bool = False

    def packed_bytes(self, elements: int) -> float:
        """Return the bytes of a chunk."""
        return -(-elements // self.group) * (self.group * self.bits / 8 + FLOAT)

    def encode(self, elements: int, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the coding of so many chunks of ``elements`` values each."""
        packed = self.packed_bytes(elements)
        return _streamed(elements * chunks, chunks * (FLOAT * elements + packed))

    def decode(self, elements: int, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the decoding of so many chunks."""
        return self.encode(elements, chunks)

    def merged(self, elements: int, parts: int) -> tuple[Kernel, ...]:
        """Return decoding the parts of a chunk and adding them up."""
        moved = parts * self.packed_bytes(elements) + FLOAT * elements
        return _streamed(elements, moved)

    def merged_again(self, elements: int, parts: int) -> tuple[Kernel, ...]:
        """Return the same, and the coding of the sum, without fp32 values in memory."""
        return _streamed(elements, (parts + 1) * self.packed_bytes(elements))


Codec = Fused | Separate


def _streamed(elements: int, moved_bytes: float) -> tuple[Kernel, ...]:
    return (Kernel("elementwise", elements, moved_bytes),)


def inside_collective(kernels: Sequence[Kernel], undo: bool = False) -> JobStage:
    """Return kernels inside a collective: they keep the communication stream busy."""
    return Compute(tuple(kernels), "decompress" if undo else "compress", STREAM)


def largest_message(gradients: Sequence[Gradient]) -> int:
    """Return the values of the largest message that DDP's buckets make, at most.

    The gradient that crosses the limit stays in the bucket.

    Examples
    --------
    >>> small, large = Gradient("a", (10,), 0.0, 0), Gradient("b", (2**23,), 0.0, 0)
    >>> [largest_message(some) for some in ([small], [large], [large] * 9)]
    [10, 8388608, 14942208]
    """
    sizes = [gradient.elements for gradient in gradients]
    return min(sum(sizes), max(sizes, default=0) + int(DDP_BUCKET_BYTES / FLOAT))


def two_shot(elements: int, world: MethodContext, codec: Codec) -> list[JobStage]:
    """Return an all-to-all of coded chunks, their merge, an all-gather, and decoding.

    References
    ----------
    hpdps-group/COCCL@5276074 src/coccl-extend/extensions/primitives/coccl_allreduce.cc, runTwoShot
    (and runOneShot, runTripleShot for the two functions below).

    Examples
    --------
    >>> stages = two_shot(1024, MethodContext(8), Fused(4, 128))
    >>> [(one.collective, one.size_bytes) for one in stages if isinstance(one, Send)]
    [('all_to_all', 544.0), ('all_gather', 544.0)]
    """
    ranks, chunk = world.ranks, -(-elements // world.ranks)
    return [
        inside_collective(codec.encode(chunk, ranks)),
        *_sent("all_to_all", chunk, ranks, codec),
        inside_collective(codec.merged_again(chunk, ranks)),
        *_sent("all_gather", chunk, ranks, codec),
        inside_collective(codec.decode(chunk, ranks), undo=True),
    ]


def one_shot(elements: int, world: MethodContext, codec: Codec) -> list[JobStage]:
    """Return an all-gather of every rank's P coded chunks, and their merge."""
    ranks, chunk = world.ranks, -(-elements // world.ranks)
    return [
        inside_collective(codec.encode(chunk, ranks)),
        *_sent("all_gather", chunk, ranks * ranks, codec),
        inside_collective(codec.merged(ranks * chunk, ranks), undo=True),
    ]


def triple_shot(elements: int, world: MethodContext, codec: Codec) -> list[JobStage]:
    """Return the two steps by levels: inside nodes, between equal local ranks, and back to all."""
    ranks, chunk = world.ranks, -(-elements // world.ranks)
    inside, nodes = world.gpus_per_node, world.nodes
    return [
        inside_collective(codec.encode(chunk, ranks)),
        *_sent("all_to_all", chunk, ranks, codec, "node"),
        inside_collective(codec.merged_again(nodes * chunk, inside)),
        *_sent("all_to_all", chunk, nodes, codec, "across"),
        inside_collective(codec.merged_again(chunk, nodes)),
        *_sent("all_gather", chunk, ranks, codec),
        inside_collective(codec.decode(chunk, ranks), undo=True),
    ]


def compressed_ring(elements: int, world: MethodContext, codec: Codec) -> list[JobStage]:
    """Return P - 1 hops round the ring with a merge before each but the first, then an all-gather.

    A chunk is copied to the send buffer (read and write) before each hop and before the last
    merge, which leaves fp32 values; these are coded again for the all-gather.

    References
    ----------
    maomaohpp/COCCL_PPoPP_AE@cc629ee7 src/coccl-extend/primitive: ncclReduceScatterComp in
    reduce_scatter_comp.cc, ncclAllGatherComp in all_gather_comp.cc.
    """
    ranks, chunk = world.ranks, -(-elements // world.ranks)
    copy = Kernel("elementwise", chunk, 2.0 * codec.packed_bytes(chunk))
    hop = _sent("send_recv", chunk, 1, codec)
    again = inside_collective([copy, *codec.merged_again(chunk, 2)])
    return [
        inside_collective([*codec.encode(chunk, ranks), copy]),
        *hop,
        *([again, *hop] * (ranks - 2)),
        inside_collective([copy, *codec.merged(chunk, 2), *codec.encode(chunk)]),
        *_sent("all_gather", chunk, ranks, codec),
        inside_collective(codec.decode(chunk, ranks), undo=True),
    ]


def serial_s(stages: Sequence[JobStage], world: MethodContext) -> float:
    """Return what stages take one after the other, by the world's costs [s]."""
    sends = (stage for stage in stages if isinstance(stage, Send))
    kernels = (stage.kernels for stage in stages if isinstance(stage, Compute))
    return sum(
        world.collective_s(send.collective, send.size_bytes, send.group) for send in sends
    ) + sum(map(world.kernel_s, chain.from_iterable(kernels)))


def _sent(
    collective: str, chunk: int, chunks: int, codec: Codec, group: Group = "all"
) -> list[JobStage]:
    """Return a send of coded chunks, and before it that of their sizes where these are unknown."""
    size = chunks * codec.packed_bytes(chunk)
    sizes = [Send(collective, chunks * METADATA_BYTES, group=group)] if codec.framed else []
    return [*sizes, Send(collective, size, group=group)]
