"""Compression inside a collective: codecs, the sizes of their chunks, and their kernels.

Inside a collective everything runs in order on the communication stream. Kernels and sends of one
message alternate, and the next message starts after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from perfsim.compute.kernel import FLOAT, Kernel, Kernels, elementwise, moved
from perfsim.compute.profile import Gradient
from perfsim.fusion.policies import DDP_BUCKET_BYTES
from perfsim.methods.base import Compute, Group, JobStage, MethodContext, Send
from perfsim.methods.building.quantise import STREAM
from perfsim.sums import sum_in_order

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
"""Bytes that state the size and encoding of a framed chunk (cocclCompressorFrameMetadata in
hpdps-group/COCCL)."""


class Separate(NamedTuple):
    """A codec with one kernel to encode and one to decode; a separate kernel adds values up.

    Its kernels are named ``<name>_encode`` and ``<name>_decode``; their size is the number of
    values. If no GPU has measured points for them, they take the time of reading and writing
    their data at memory bandwidth. That is less than an entropy coder takes.

    Parameters
    ----------
    name : beginning of the kernels' names
    share : compressed bytes per byte of fp32 values
    extra_passes : passes over the values that the measured points do not include
    framed : whether sizes are known only after encoding, so that they are sent first

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
        """Return the bytes of an encoded chunk of ``elements`` values."""
        return FLOAT * elements * self.share

    def encode(self, elements: int, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the kernels that encode ``chunks`` chunks of ``elements`` values each."""
        return self._coded("encode", elements * chunks)

    def decode(self, elements: int, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the kernels that decode ``chunks`` chunks of ``elements`` values each."""
        return self._coded("decode", elements * chunks)

    def merged(self, elements: int, parts: int) -> tuple[Kernel, ...]:
        """Return the kernels that decode ``parts`` encoded chunks and add them up.

        The addition reads each chunk and writes the sum.
        """
        return (*self.decode(elements, parts), elementwise(elements, parts + 1))

    def merged_again(self, elements: int, parts: int) -> tuple[Kernel, ...]:
        """Return the kernels that decode chunks, add them up and encode the sum."""
        return (*self.merged(elements, parts), *self.encode(elements))

    def _coded(self, way: str, elements: int) -> tuple[Kernel, ...]:
        moved = FLOAT * elements * (1.0 + self.share)
        coding = Kernel(f"{self.name}_{way}", elements, moved)
        more = (elementwise(elements, self.extra_passes),) if self.extra_passes else ()
        return (coding, *more)


class Fused(NamedTuple):
    """A quantiser with fused kernels, which read their input once and write their output once.

    Values are cut into groups of ``group`` values; the last one is padded. Each group is sent as
    levels of ``bits`` bits and one fp32 scale. One kernel decodes, adds up and encodes again.

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
        """Return the bytes of an encoded chunk of ``elements`` values."""
        return -(-elements // self.group) * (self.group * self.bits / 8 + FLOAT)

    def encode(self, elements: int, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the kernel that encodes ``chunks`` chunks of ``elements`` values each."""
        packed = self.packed_bytes(elements)
        return _streamed(elements * chunks, chunks * (FLOAT * elements + packed))

    def decode(self, elements: int, chunks: int = 1) -> tuple[Kernel, ...]:
        """Return the kernel that decodes ``chunks`` chunks of ``elements`` values each."""
        return self.encode(elements, chunks)

    def merged(self, elements: int, parts: int) -> tuple[Kernel, ...]:
        """Return the kernel that decodes ``parts`` encoded chunks and adds them up."""
        moved = parts * self.packed_bytes(elements) + FLOAT * elements
        return _streamed(elements, moved)

    def merged_again(self, elements: int, parts: int) -> tuple[Kernel, ...]:
        """Return the kernel that decodes chunks, adds them up and encodes the sum.

        It writes no fp32 values to memory.
        """
        return _streamed(elements, (parts + 1) * self.packed_bytes(elements))


Codec = Fused | Separate


def _streamed(elements: int, moved_bytes: float) -> tuple[Kernel, ...]:
    return (moved(elements, moved_bytes),)


def inside_collective(kernels: Kernels, undo: bool = False) -> JobStage:
    """Return a stage of kernels inside a collective, on the communication stream."""
    return Compute(kernels, "decompress" if undo else "compress", STREAM)


def largest_message(gradients: Sequence[Gradient], bucket_bytes: float | None = None) -> int:
    """Return an upper limit for the values in one message of DDP's buckets.

    The gradient that exceeds the bucket's limit stays in the bucket. ``bucket_bytes`` is the limit
    that is asked for, None: DDP's own.

    Examples
    --------
    >>> small, large = Gradient("a", (10,), 0.0, 0), Gradient("b", (2**23,), 0.0, 0)
    >>> [largest_message(some) for some in ([small], [large], [large] * 9)]
    [10, 8388608, 14942208]
    >>> largest_message([large] * 9, 4e6)
    9388608
    """
    sizes = [gradient.elements for gradient in gradients]
    limit = int((bucket_bytes or DDP_BUCKET_BYTES) / FLOAT)
    return min(sum(sizes), max(sizes, default=0) + limit)


def two_shot(elements: int, world: MethodContext, codec: Codec) -> list[JobStage]:
    """Return an all-to-all of encoded chunks, their merge, an all-gather, and the decoding.

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
    """Return an all-gather of every rank's P encoded chunks, and their merge."""
    ranks, chunk = world.ranks, -(-elements // world.ranks)
    return [
        inside_collective(codec.encode(chunk, ranks)),
        *_sent("all_gather", chunk, ranks * ranks, codec),
        inside_collective(codec.merged(ranks * chunk, ranks), undo=True),
    ]


def triple_shot(elements: int, world: MethodContext, codec: Codec) -> list[JobStage]:
    """Return a two-shot exchange with its all-to-all in two levels.

    The first all-to-all is inside nodes, the second between ranks of the same local rank on
    different nodes. An all-gather among all ranks follows.
    """
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
    """Return P - 1 hops round the ring, then an all-gather.

    Chunks are merged before each hop but the first. A chunk is copied to the send buffer (read and
    write) before each hop and before the last merge. That merge leaves fp32 values, which are
    encoded again for the all-gather.

    References
    ----------
    maomaohpp/COCCL_PPoPP_AE@cc629ee7 src/coccl-extend/primitive: ncclReduceScatterComp in
    reduce_scatter_comp.cc, ncclAllGatherComp in all_gather_comp.cc.
    """
    ranks, chunk = world.ranks, -(-elements // world.ranks)
    copy = moved(chunk, 2.0 * codec.packed_bytes(chunk))
    hop = _sent("send_recv", chunk, 1, codec)
    again = inside_collective((copy, *codec.merged_again(chunk, 2)))
    return [
        inside_collective((*codec.encode(chunk, ranks), copy)),
        *hop,
        *([again, *hop] * (ranks - 2)),
        inside_collective((copy, *codec.merged(chunk, 2), *codec.encode(chunk))),
        *_sent("all_gather", chunk, ranks, codec),
        inside_collective(codec.decode(chunk, ranks), undo=True),
    ]


def serial_s(stages: Sequence[JobStage], world: MethodContext) -> float:
    """Return the time of stages that run one after another, at the context's costs [s]."""
    sends = (stage for stage in stages if isinstance(stage, Send))
    kernels = (stage.kernels for stage in stages if isinstance(stage, Compute))
    return sum_in_order(
        world.collective_s(send.collective, send.size_bytes, send.group) for send in sends
    ) + sum_in_order(map(world.kernel_s, chain.from_iterable(kernels)))


def _sent(
    collective: str, chunk: int, chunks: int, codec: Codec, group: Group = "all"
) -> list[JobStage]:
    """Return a send of encoded chunks; a framed codec first sends their sizes."""
    size = chunks * codec.packed_bytes(chunk)
    sizes = [Send(collective, chunks * METADATA_BYTES, group=group)] if codec.framed else []
    return [*sizes, Send(collective, size, group=group)]
