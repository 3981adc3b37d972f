"""1-bit optimizers of DeepSpeed: their compressed all-reduce, and the dense one of other steps.

The compressed all-reduce (``compressed_allreduce``) runs operation by operation on fp32 values, of
which the last are padding: chunks and their packed bits are equally large on all ranks. Passes and
launches are counted from the code; a byte read or written is a quarter of a pass, a packed bit a
32nd. The host waits for the GPU after it has packed signs (``compress_by_chunk``), so that launches
are not hidden.

All-gathers take a list of tensors: NCCL's result is copied to each of them, a launch a rank.

References
----------
deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/comm/nccl.py, runtime/compression/cupy.py,
runtime/fp16/onebit; engine.py, buffered_allreduce_fallback; runtime/fp16/fused_optimizer.py, which
makes one tensor of a group of parameters. Lists of all-gathers: PyTorch, torch/csrc/distributed/
c10d/ProcessGroupNCCL.cpp, allgather.
"""

from collections.abc import Sequence
from math import lcm
from typing import ClassVar, Literal

from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket, fill_up
from perfsim.methods.base import (
    Compute,
    Job,
    JobStage,
    MethodContext,
    MethodState,
    Moment,
    PassPoint,
    Send,
)
from perfsim.methods.building.code_bases import DEEPSPEED, CodeBase
from perfsim.methods.building.in_step import InStep
from perfsim.methods.building.quantise import two_step
from perfsim.methods.building.sharded_parameters import sent_width

__all__ = [
    "DENSE",
    "DENSE_WIRE",
    "ONE_BIT",
    "ONE_BIT_WIRE",
    "OneBitOptimizer",
    "dense_all_reduce",
    "on_compute",
    "one_bit_all_reduce",
    "padded",
]

DENSE, ONE_BIT = 1, 0
"""Iterations: gradients all-reduced as they are; one bit a value exchanged in the step."""

DENSE_WIRE = "2 * (P - 1) / P * 4 * n"
"""What a dense iteration sends for a matrix, as part of a method's ``wire``."""

ONE_BIT_WIRE = "2 * (P - 1) / P * ceil(n / (P * lcm(P, 8))) * P * lcm(P, 8) / 8 + 8 * (P - 1)"
"""``one_bit_all_reduce`` as part of a method's ``wire``, with its padding."""

_BUFFER = 500_000_000
"""Values that end a dense message (MEMORY_OPT_ALLREDUCE_SIZE)."""

_ENCODE = (3 + 1 + 15.5 + 5.75 + 9 / 32, 1 + 2 + 8 + 4 + 1)
"""Passes and launches: error added (3); norm (1) and its division; new error: sign, plus one (2
each), to truth values (1.25) and back (1.25), minus a half, doubled, scaled (2 each), subtracted
(3); signs: sign, plus one, to truth values, to bytes (0.5); packed (9/32)."""

_DECODE = (9 / 32 + 1.25 + 2 + 2 + 2, 5)
"""Passes and launches: unpacked (9/32), made floats (1.25), minus a half, doubled and scaled (2
each)."""

_PAD = (2.0, 2)
"""Passes and launches of appending zeros: made, and concatenated."""


def padded(elements: int, ranks: int) -> int:
    """Return the values with their padding: P chunks of whole bytes, and as many on each rank.

    Examples
    --------
    >>> padded(1000, 4), padded(1000, 3)
    (1024, 1008)
    """
    block = ranks * lcm(ranks, 8)
    return -(-elements // block) * block


def one_bit_all_reduce(
    elements: int, ranks: int, *, pad: bool = True, earliest: Moment = "backward"
) -> list[JobStage]:
    """Return DeepSpeed's compressed all-reduce of ``elements`` fp32 values.

    Each rank adds its error, takes signs and one scale (norm / sqrt n), keeps the new error and
    packs the signs. An all-to-all gives each rank its chunk of all of them, and scales are
    all-gathered. The rank unpacks P chunks in one operation, takes their mean, and does with the
    mean what it did with the values, with an error of its own. Two all-gathers bring signs and
    scales to all, which unpack them.

    ``pad`` says whether values lack their padding, so that they are copied to a larger buffer.

    Examples
    --------
    >>> stages = one_bit_all_reduce(1024, 4)
    >>> [(stage.collective, stage.size_bytes) for stage in stages if isinstance(stage, Send)]
    [('all_to_all', 128.0), ('all_gather', 16.0), ('all_gather', 128.0), ('all_gather', 16.0)]
    """
    whole = padded(elements, ranks)
    chunk = whole // ranks
    copy = [elementwise(whole, *_PAD)] if pad and whole > elements else []
    worker = [
        *copy,
        elementwise(whole, *_ENCODE),
        # Packed signs stacked (2/32), a buffer for those of others cleared (1/32), P scales too.
        elementwise(whole, 3 / 32, 2 + ranks),
    ]
    server = (
        # P scales copied out; stacked and divided; a sum over the ranks reads once more.
        elementwise(whole, _DECODE[0] + 1 + 1 / ranks, ranks + 2 + _DECODE[1] + 1),
        elementwise(chunk, *_ENCODE),
        elementwise(whole, 1 / 32, 2),
    )
    # Signs and scales copied out (2/32) and signs stacked (2/32); the result copied back (2).
    result = elementwise(whole, 4 / 32 + _DECODE[0] + 2, 2 * ranks + 1 + _DECODE[1] + 1)
    return two_step(worker, [whole / 8], FLOAT, server, (result,), ranks, earliest)


def dense_all_reduce(buckets: Sequence[Bucket], world: MethodContext) -> list[JobStage]:
    """Return DeepSpeed's all-reduce of all gradients after the backward pass.

    Tensors in forward order fill messages of just above 5e8 values. Each is flattened and divided
    by P, all-reduced, and copied back tensor by tensor (2 passes each), before the next begins.

    Examples
    --------
    >>> one = Bucket.of([Gradient(name, (10,), 0.0, 0) for name in "ab"])
    >>> [stage.size_bytes for stage in dense_all_reduce([one], MethodContext(4))[1:2]]
    [80.0]
    """
    gradients = [
        gradient for bucket in reversed(buckets) for gradient in reversed(bucket.gradients)
    ]
    stages: list[JobStage] = []
    for message in fill_up(gradients, lambda gradient: gradient.elements, _BUFFER + 1):
        width = sent_width(message.gradients[0].value_bytes, world)
        n, passes = message.elements, 2 * width / FLOAT
        back = elementwise(n, passes, len(message.gradients))
        stages += [
            on_compute(elementwise(n, 2 * passes, 2), "compress"),
            Send("all_reduce", width * n, "backward"),
            on_compute(back, "decompress"),
        ]
    return stages


def on_compute(
    kernel: Kernel, kind: Literal["compress", "decompress"], earliest: Moment = "backward"
) -> Compute:
    """Return a kernel on the compute stream after the backward pass, or after the update."""
    return Compute((kernel,), kind, earliest=earliest)


class OneBitOptimizer(InStep):
    """An optimizer of DeepSpeed that exchanges one bit a value in most of its steps.

    In half precision a group of parameters is one fp32 tensor (FP16_Optimizer), so that all
    gradients are one message. In fp32 DeepSpeed goes tensor by tensor (`fusion` none).
    """

    family: ClassVar[str] = "quantisation"
    keeps_half: ClassVar[bool] = True
    fusion: ClassVar[str] = "whole"
    needs: ClassVar[str] = "DeepSpeed with cupy"
    runs_in: ClassVar[CodeBase] = DEEPSPEED
    optimizers: ClassVar[tuple[str, ...]] = ("adam", "adamw")
    buffers: ClassVar[int] = 0
    """Buffers of the model's size besides those of Adam and the errors."""

    def dense(self, buckets: Sequence[Bucket], world: MethodContext) -> Job:
        """Return the all-reduce of gradients in a dense iteration, which the update waits for."""
        return Job("gradients", tuple(dense_all_reduce(buckets, world)), PassPoint("backward"))

    def compressed(
        self, buckets: Sequence[Bucket], world: MethodContext, *, pad: bool = True
    ) -> list[JobStage]:
        """Return the compressed all-reduces, one after the other, which the update waits for."""
        return [
            stage
            for bucket in buckets
            for stage in one_bit_all_reduce(bucket.elements, world.ranks, pad=pad)
        ]

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return that half precision keeps 16-bit gradients."""
        return MethodState(gradient_bytes=2.0)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one gradient's signs and of their scale."""
        return gradient.elements / 8 + FLOAT

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the worker's error, the server's (1/P of it) and further buffers."""
        elements = sum(gradient.elements for gradient in gradients)
        kept = float(FLOAT * elements * self.buffers)
        if all(one.iterations == (DENSE,) for one in self.rounds()):
            return kept
        return kept + FLOAT * padded(elements, ranks) * (1.0 + 1.0 / ranks)
