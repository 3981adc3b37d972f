"""FP8-LM: weight gradients of linear layers all-reduced in fp8, with a scale a tensor."""

from collections.abc import Sequence
from typing import ClassVar

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, JobStage, Method, MethodContext, PassPoint, Send
from perfsim.methods.building.sharded_parameters import HALF_BYTES, in_half

_LARGEST = (3, 3)
"""Launches a tensor (magnitude, maximum, its cast) and a bucket (maxima and scales stacked, NaN
made infinite) until the maxima are sent."""

_SCALED = (7, 20)
"""Launches a tensor (maximum and scale kept, cast, reciprocal kept in 2, copied to the buffer,
scale divided by P) and a bucket (the scales' arithmetic) behind them."""


class Fp8Gradients(Method):
    """Sends weight gradients of linear layers in one byte a value, with one scale a tensor.

    When a bucket is full, its hook takes the largest magnitude of each tensor (3 passes over
    gradients as wide as they were made), all-reduces these maxima (4 bytes a tensor), makes scales
    of them and casts each tensor into one buffer (a read and 3 passes over bytes). The buffer is
    all-reduced in fp8. All that is on a stream of its own, for which the compute stream waits
    before the all-reduce starts: the backward pass goes on when the bucket is cast, and not before
    the maxima are there, which queue behind the all-reduce of the bucket before. The optimizer
    casts the sums to fp32 (a launch a tensor).

    All other gradients (biases, norms, embeddings, convolutions) are all-reduced as they are, as
    DDP does. Buckets fill up to 25 MiB of what is sent (`fusion` sent). In the code both kinds have
    buckets of their own; here a bucket with both sends two messages.

    Bytes a rank: 2 (P-1)/P a weight of linear layers and 8 (P-1)/P a tensor of them; 2 (P-1)/P x 4
    a parameter of all else.
    Memory: the buffer, one byte a weight of linear layers.
    Left out: what 8-bit gradients and 16-bit weights save of memory; products in fp8 (`precision`);
    copies into DDP's buckets; the 8-bit optimizer of the paper (level O2).
    """

    summary: ClassVar[str] = "linear layers' gradients in fp8, one scale a tensor (FP8-LM, MS-AMP)"
    citation: ClassVar[str] = (
        "Peng et al. 2023, FP8-LM: Training FP8 Large Language Models, arXiv 2310.18313; code"
        " Azure/MS-AMP@9746ea85 msamp/nn/distributed.py, nn/linear.py, common/tensor/meta.py,"
        " operators/dist_op, optim/adamw.py"
    )
    family: ClassVar[str] = "quantisation"
    wire: ClassVar[str] = "2 * (P - 1) / P * (n + 4)"
    fusion: ClassVar[str] = "sent"
    needs: ClassVar[str] = "MS-AMP's NCCL (MSCCL), which sums fp8"

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return a job for what each bucket sends in fp8, and one for what it sends as it is."""
        jobs = []
        for number, bucket in enumerate(buckets):
            parts: dict[bool, list[Gradient]] = {True: [], False: []}
            for gradient in bucket.gradients:
                parts[is_linear(gradient, world)].append(gradient)
            for narrow, members in parts.items():
                if members:
                    part = Bucket.of(members)
                    stages = in_fp8(part, world) if narrow else as_it_is(part)
                    name = f"{number}" if narrow else f"{number} dense"
                    jobs.append(Job(name, tuple(stages), PassPoint("backward", part.ready_s)))
        return jobs

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return a byte a value of a matrix, whatever its layer, or those of the vector."""
        matrix = len(gradient.shape) == 2
        return float(gradient.elements) if matrix else gradient.size_bytes

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the buffer, all matrices taken for weights of linear layers."""
        return self.buffer_bytes(gradients, MethodContext(ranks))

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of the buffer."""
        return self.buffer_bytes(world.profile.gradients if world.profile else (), world)

    def buffer_bytes(self, gradients: Sequence[Gradient], world: MethodContext) -> float:
        """Return one byte a weight of linear layers."""
        return float(sum(one.elements for one in gradients if is_linear(one, world)))


def is_linear(gradient: Gradient, world: MethodContext) -> bool:
    """Tell whether a gradient is that of a linear layer's weight; without layers: of a matrix."""
    if len(gradient.shape) != 2:
        return False
    return world.profile is None or world.profile.layers[gradient.layer].kind == "linear"


def in_fp8(bucket: Bucket, world: MethodContext) -> list[JobStage]:
    """Return the maxima, their all-reduce, the casts, the all-reduce and the casts back."""
    n, tensors = bucket.elements, len(bucket.gradients)
    made = HALF_BYTES if in_half(world) else float(FLOAT)
    launches, more = _LARGEST
    largest = elementwise(n, 3 * made / FLOAT, launches * tensors + more)
    launches, more = _SCALED
    cast = elementwise(n, (made + 3) / FLOAT, launches * tensors + more)
    back = elementwise(n, (1 + FLOAT) / FLOAT, tensors)
    return [
        Compute((largest,), "compress"),
        Send("all_reduce", float(FLOAT * tensors)),
        Compute((cast,), "compress", blocks=True),
        Send("all_reduce", float(n)),
        Compute((back,), "decompress", earliest="backward"),
    ]


def as_it_is(bucket: Bucket) -> list[JobStage]:
    """Return the all-reduce of gradients as wide as asked for."""
    return [Send("all_reduce", bucket.size_bytes)]
