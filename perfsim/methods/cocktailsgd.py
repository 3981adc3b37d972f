"""CocktailSGD: model differences by random sampling, Top-k and quantisation, in two phases."""

from collections.abc import Sequence
from math import ceil
from typing import ClassVar, NamedTuple

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, JobStage, MethodContext, MethodState, PassPoint, Send
from perfsim.methods.building.code_bases import COCKTAILSGD, CodeBase
from perfsim.methods.building.cpu_offload import to_gpu, to_host
from perfsim.methods.building.in_step import InStep
from perfsim.methods.building.quantise import STREAM
from perfsim.methods.building.sparsify import exact
from perfsim.sums import sum_in_order

_SAMPLED = "(ceil(ceil(n / P) / (1 / random_ratio // 1)) // bucket * bucket)"
_OF_SAMPLED = f"(topk_ratio * {_SAMPLED} // 1)"
_KEPT = f"({_OF_SAMPLED} // bucket * bucket or {_OF_SAMPLED})"
"""Sampled and kept values of a chunk, as parts of ``wire``; kept ones fill their buckets."""


class _Message(NamedTuple):
    """What one rank sends of one of P chunks of the model.

    Parameters
    ----------
    chunk : values of the chunk
    sampled : those of them that the mask samples
    kept : the largest of these
    parts_bytes : quantised values, scales, and a bit a sampled value
    """

    chunk: int
    sampled: int
    kept: int
    parts_bytes: tuple[float, float, float]


class Cocktailsgd(InStep):
    """Exchanges what the models changed while an iteration computes; the update waits for it.

    A thread starts with the forward pass, on a stream of its own, on the parameters of the last
    update: the exchange is one step late. The flat fp32 parameters are cut into P chunks, one an
    owner. In each chunk a mask, rolled on by one place an iteration, samples every tenth value. The
    difference from the global model is taken there. Its largest values are selected and quantised,
    with an fp16 scale for each ``bucket`` of them. What was sent is decoded and taken off the
    rank's own parameters: the rest stays as its error. Each part of each message (values, scales,
    one bit a sampled value) is copied to the host, and P-1 sends take the messages to the owners.
    An owner decodes P messages on its GPU, averages them, adds its own error and compresses the
    mean in the same way. It copies the result to the host once for each rank, and P-1 sends take it
    to all. All ranks decode the P means and add them to their own and to the global model. The
    exchange is over gloo: choose `library` gloo. All ranks are one group, inside a node and across
    nodes. With several micro-batches the exchange runs beside the last.

    Defaults are those of its README; the code alone has 0.5, 0.5 and 8 bits.

    Bytes a rank: 2 (P-1)/P x random_ratio (topk_ratio bits + 1)/8 a parameter, and two bytes for
    each ``bucket`` values that are kept: 0.046 (P-1)/P by default.
    Memory: the global model and the owner's error in fp16, masks of a byte a parameter. In half
    precision 16-bit parameters with an fp32 copy, whose gradients stay beside those in fp16.
    Left out: gloo's barrier before each exchange; the waits for the count of each mask; pageable
    host memory; the parts of a message, which go as one; dense start-up iterations
    (train_warmup_steps); other ways to sample (RANDOM_METHOD); one bit a value. Top-k of fp16
    values is priced as of fp32. The code refuses parameters that P does not divide; here the last
    chunk counts as full.
    """

    summary: ClassVar[str] = "differences of models sampled, cut by Top-k, quantised (CocktailSGD)"
    citation: ClassVar[str] = (
        "Wang et al. 2023, CocktailSGD: Fine-tuning Foundation Models over 500Mbps Networks, ICML;"
        " code DS3Lab/CocktailSGD@4819ed75 data_parallel/dist_dp_cocktail_sgd.py (_partial_sync),"
        " compress/, comm/torch_backend.py, pipeline_parallel/dist_gpipe_pipeline_async.py"
        " (sgd_iter), README.md"
    )
    family: ClassVar[str] = "sparsification"
    keeps_half: ClassVar[bool] = True
    wire: ClassVar[str] = (
        f"2 * (P - 1) * ({_SAMPLED} / 8 + ceil({_KEPT} * bits / 8) + 2 * ceil({_KEPT} / bucket))"
    )
    fusion: ClassVar[str] = "whole"
    runs_in: ClassVar[CodeBase] = COCKTAILSGD

    random_ratio: float = Field(0.1, gt=0, le=1, description="share of values that are sampled")
    topk_ratio: float = Field(0.2, gt=0, le=1, description="share of sampled values that are kept")
    bits: int = Field(4, ge=2, le=8, description="bits of a kept value")
    bucket: int = Field(128, ge=8, le=2**20, description="kept values that share a scale")

    def message(self, elements: int, ranks: int) -> _Message:
        """Return what a rank sends of one chunk of so many parameters in all."""
        chunk = -(-elements // ranks)
        sampled = ceil(chunk / int(1 / self.random_ratio)) // self.bucket * self.bucket or chunk
        kept = max(int(self.topk_ratio * sampled), 1)
        if kept >= self.bucket:
            kept = kept // self.bucket * self.bucket
        scales = kept // min(kept, self.bucket)
        parts = ceil(kept * self.bits / 8), _HALF * scales, ceil(sampled / 8)
        return _Message(chunk, sampled, kept, (float(parts[0]), float(parts[1]), float(parts[2])))

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the one job, which begins with the forward pass."""
        elements = sum(bucket.elements for bucket in buckets)
        return [Job("sync", tuple(self.synchronised(elements, world)), PassPoint("forward"))]

    def synchronised(self, elements: int, world: MethodContext) -> list[JobStage]:
        """Return the two phases, all on one stream."""
        ranks = world.ranks
        one = self.message(elements, ranks)
        encode, decode = self._compressed(one, world.software), self._decompressed(one)
        own = (*_drawn(one), *encode, *decode, *_changed(one, FLOAT))
        mean = (
            *decode * ranks,
            elementwise(one.sampled, (3 * ranks + 2 * ranks - 3) * _HALF / FLOAT, 2 * ranks - 1),
            *_at_mask(one, _HALF),
            elementwise(one.sampled, 3 * _HALF / FLOAT),
            *encode,
            *decode,
            elementwise(one.sampled, 3 * _HALF / FLOAT),
            *_at_mask(one, _HALF),
        )
        new = (*decode, *_changed(one, FLOAT), *_changed(one, _HALF))
        # All isends are posted at once: to each other rank a message of its own, or the same.
        send = Send("all_to_all", ranks * sum_in_order(one.parts_bytes))
        up, down = _staged(one, ranks, up=True), _staged(one, ranks, up=False)
        return [
            Compute((*own * ranks, *down), "compress", STREAM),
            send,
            Compute((*up, *mean, *down), "compress", STREAM),
            send,
            Compute((*up, *new * ranks), "decompress", STREAM),
        ]

    def _compressed(self, one: _Message, software: str) -> tuple[Kernel, ...]:
        """Return Top-k of the sampled values, the packed mask and the quantisation, in fp16.

        Of a sampled value: magnitude (4 bytes), mask of zeros (1), truth value (2), its count and
        its index (2), packed bits (1.25). Of a kept one: its bit set (9), its index (8), the value
        gathered (12); magnitude and maximum (6), division, scaling, rounding, limits and offset (4
        each), cast (3); its bits taken out (9 + 2 bits) and packed (1.25 bits).
        """
        return (
            elementwise(one.sampled, (4 + 1 + 2 + 2 + 1.25) / FLOAT, 9),
            exact(one.sampled, "auto", software),
            elementwise(one.kept, (29 + 29 + 9 + 3.25 * self.bits) / FLOAT, 2 + 9 + 4),
        )

    def _decompressed(self, one: _Message) -> tuple[Kernel, ...]:
        """Return the unpacking of a message into the sampled values in fp16.

        Of a kept value: bits unpacked, padded and packed (18 + 2 1/8 bits), cast (5), three
        operations in fp32 (24), its index and the value put in its place (24). Of a sampled one:
        zeros (4), mask unpacked (1.125) and read (4), cast (6).
        """
        return (
            elementwise(one.kept, (18 + 2.125 * self.bits + 5 + 24 + 24) / FLOAT, 5 + 4 + 1),
            elementwise(one.sampled, (4 + 1.125 + 4 + 6) / FLOAT, 8),
        )

    def code_base(self) -> CodeBase:
        """Return CocktailSGD's, whose host joins the thread before the update."""
        return self.runs_in

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return what a gradient's parameters add to both phases' messages."""
        per_value = (self.topk_ratio * (self.bits + 8 * _HALF / self.bucket) + 1) / 8
        return 2 * self.random_ratio * per_value * gradient.elements

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the global model, the masks and the owner's error."""
        elements = sum(gradient.elements for gradient in gradients)
        return float((_HALF + _MASK) * elements + _HALF * -(-elements // ranks))

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return that gradients have 16 bits, with fp32 ones beside them."""
        return MethodState(gradient_bytes=_HALF + FLOAT)


_HALF = 2
"""Bytes of an fp16 value."""
_MASK = 1
"""Bytes of a truth value."""
_INDEX = 8
"""Bytes of an index that PyTorch makes of a mask."""
_FOUND = 4
"""Launches that turn a mask into indices: two to count, two to select."""


def _at_mask(one: _Message, width: int) -> tuple[Kernel, ...]:
    """Return the reading, or the writing, of a chunk's sampled values of ``width`` bytes.

    PyTorch first makes indices of the mask, which it reads twice.
    """
    indices = elementwise(one.chunk, 2 * _MASK / FLOAT, _FOUND)
    return indices, elementwise(one.sampled, (2 * _INDEX + 2 * width) / FLOAT)


def _changed(one: _Message, width: int) -> tuple[Kernel, ...]:
    """Return an addition of fp16 values to the sampled ones: read, added, written."""
    added = elementwise(one.sampled, (2 * width + _HALF) / FLOAT)
    return (*_at_mask(one, width), added, *_at_mask(one, width))


def _drawn(one: _Message) -> tuple[Kernel, ...]:
    """Return the rolled mask, and the sampled differences from the global model, cast to fp16."""
    return (
        elementwise(one.chunk, 2 * _MASK / FLOAT),
        *_at_mask(one, FLOAT),
        *_at_mask(one, _HALF),
        elementwise(one.sampled, (FLOAT + _HALF + FLOAT + FLOAT + _HALF) / FLOAT, 2),
    )


def _staged(one: _Message, ranks: int, *, up: bool) -> tuple[Kernel, ...]:
    """Return the copies of all parts of P messages between GPU and host, one after the other."""
    copy = to_gpu if up else to_host
    return tuple(copy(ceil(part / FLOAT)) for part in one.parts_bytes) * ranks
