"""Horovod: each cycle fuses the ready gradients into buffers and all-reduces them."""

from collections.abc import Hashable
from math import ceil
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import HOROVOD_BUFFER_BYTES
from perfsim.methods.base import Compute, JobStage, MethodContext, Send
from perfsim.methods.building.code_bases import HOROVOD, CodeBase
from perfsim.methods.building.dense_buckets import DenseBuckets
from perfsim.methods.building.negotiation import MESSAGE_US, negotiation_s
from perfsim.methods.building.update_after_wait import UpdateAfterWait

COPIED = 160
"""Tensors that one batched copy moves (BATCHED_D2D_CAPACITY)."""


class Horovod(UpdateAfterWait, DenseBuckets):
    """Sends what was pushed since the last cycle, fused up to a threshold, once all ranks have it.

    Fused buffers go in backward order, each by one dense all-reduce, during the backward pass and
    after it. A background thread wakes every cycle (1 ms; `fusion_options.cycle_time`). It fills
    buffers of at most 128 MiB (`bucket`); `fusion` threshold says how. Before a buffer goes, the
    hosts negotiate which tensors all ranks have. They do so by MPI over TCP, as Horovod's pages
    launch it. With the response ``cache`` this is one all-reduce of a bit a tensor: ceil(log2 N)
    messages, one after the other, over N nodes (messages inside a node are free here). Without it
    there are a gather and two broadcasts of as many messages each; a gather straight to the
    coordinator, one message more; and the coordinator's work on the requests of all ranks, 0.35 us
    each. The next cycle waits for the negotiation. The host may push tensors before the GPU has
    computed them; their negotiation is over by then. The thread hands buffers to NCCL without
    waiting for it. Kernels: the gradients of a buffer are copied in before the all-reduce and out
    after it, on its stream (2 passes each, a launch for 160 tensors); a lone tensor is sent from
    where it lies. Bytes a rank: 2 (P-1)/P x 4 a parameter (ring), half of it where the
    ``gradients`` are fp16 (`ssgd`). Memory: one fusion buffer of the threshold, made once and kept.
    Left out: the host's work in a hook; the thread's launches; cycles that find nothing; the host's
    wait for the last buffer, in steps of 1 ms before 0.21.0; that `fusion` none has no buffer.

    ``update_launches``: the optimizer waits on the host until the last buffer is back
    (``synchronize`` in its step). Nothing is then queued on the GPU, so the update takes at least
    as long as its launches. PyTorch before 2.0 goes parameter by parameter. Unless given, they are
    those of the model's optimizer. SGD with momentum and weight decay launches 5 kernels: it clears
    the gradient, adds the decay, scales the momentum, adds the gradient to the momentum and the
    momentum to the weights. Plain SGD launches 2, the first and the last. Give 0 for a compiled
    graph (TensorFlow) or an engine that schedules the reductions among its own operations (MXNet).

    ``message_us`` and the coordinator's work: see `perfsim.methods.building.negotiation`.
    """

    summary: ClassVar[str] = "all-reduce of what is ready each cycle, fused (Horovod)"
    citation: ClassVar[str] = (
        "Sergeev & Del Balso 2018, Horovod, arXiv 1802.05799, section 4; code"
        " horovod/horovod@2626dc87 horovod/common/operations.cc (RunLoopOnce), controller.cc"
        " (ComputeResponseList, FuseResponses), response_cache.cc (sync), mpi/mpi_controller.cc,"
        " ops/nccl_operations.cc (NCCLAllreduce), ops/gpu_operations.cc, docs/mpi.rst;"
        " fusion_buffer_manager.cc (InitializeBuffer);"
        " update_launches: horovod/torch/optimizer.py and mpi_ops.py (synchronize), pytorch/pytorch"
        " v1.8.0 torch/optim/_functional.py (sgd)"
    )
    fusion: ClassVar[str] = "threshold"
    runs_in: ClassVar[CodeBase] = HOROVOD

    cache: bool = Field(True, description="whether responses are cached (HOROVOD_CACHE_CAPACITY)")
    message_us: float = Field(
        MESSAGE_US,
        ge=0,
        le=1e6,
        description="time of a small message between two hosts, in microseconds",
    )

    def negotiation_s(self, tensors: int, world: MethodContext) -> float:
        """Return how long the ranks negotiate over the tensors of a cycle [s]."""
        message_s = 1e-6 * self.message_us
        return negotiation_s(
            tensors, world.ranks, world.nodes, cache=self.cache, message_s=message_s
        )

    def likeness(self, bucket: Bucket) -> Hashable:
        """Return what the stages depend on: how many gradients are copied too."""
        return bucket.shapes

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the all-reduce; copies surround it where a buffer holds several gradients."""
        send = Send("all_reduce", self.dense_bytes(bucket))
        tensors = len(bucket.gradients)
        if tensors == 1:
            return [send]
        passes = 2 * self.dense_bytes(bucket) / (FLOAT * bucket.elements)
        copy = (elementwise(bucket.elements, passes, ceil(tensors / COPIED)),)
        stream = "communication"
        return [Compute(copy, "compress", stream), send, Compute(copy, "decompress", stream)]

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of the fusion buffer."""
        return world.bucket_bytes or HOROVOD_BUFFER_BYTES
