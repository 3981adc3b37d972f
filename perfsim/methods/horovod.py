"""Horovod: every cycle, what is ready is fused into buffers and all-reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2
from typing import ClassVar

from pydantic import Field

from perfsim.fusion.bucket import Bucket
from perfsim.kernel import elementwise
from perfsim.method import Compute, Job, Send, Stage, World
from perfsim.methods.ssgd import SHARE, Ssgd

COPIED = 160
"""Tensors that one batched copy moves (BATCHED_D2D_CAPACITY)."""


class Horovod(Ssgd):
    """Sends what was pushed since the last cycle, fused up to a threshold, once all ranks agree.

    In backward order, one dense all-reduce a fused buffer, during the backward pass and after it:
    a background thread wakes every cycle (1 ms; ``--set fusion.cycle_time``) and fills buffers of
    at most 128 MiB (``--bucket``); ``--fusion threshold`` says how. Before a buffer goes, the
    hosts agree on what all ranks have, by MPI over TCP, as Horovod's pages launch it: with the
    response ``cache`` one all-reduce of a bit a tensor, ceil(log2 N) messages one after the other
    over N nodes (those inside a node taken as free); without it a gather and two broadcasts of as
    many each, and a gather straight to the coordinator, one more. What was pushed while the GPU
    was not there yet is agreed on by then. The thread hands buffers to NCCL without waiting for
    it. Kernels: the gradients of a buffer are copied in and out again around the all-reduce, on
    its stream (2 passes each, a launch for 160 tensors); a tensor alone goes from where it is.
    Bytes a rank: 2 (P-1)/P x 4 a parameter (ring), half of it where the ``gradients`` are fp16
    (`ssgd`). Memory: one fusion buffer of the threshold, none from one iteration to the next. Left
    out: the coordinator's own work on what it gathers; an agreement that takes longer than a cycle
    delays the buffers, but not the next cycle; the thread's launches; the host's wait for the last
    buffer, in steps of 1 ms before 0.21.0.

    ``message_us``: an 8-byte all-reduce of Open MPI 4.0.1 takes 84.0 us on 8 nodes of 4 (10 Gbit/s
    Ethernet, TCP), where three of its five rounds are between nodes: 28 us each; on 4 nodes of
    one process 50.4 us, 25 us each. Over InfiniBand without TCP it is 7.36 us on 16 nodes, 1.84.
    """

    summary: ClassVar[str] = "all-reduce of what is ready each cycle, fused (Horovod)"
    citation: ClassVar[str] = (
        "Sergeev & Del Balso 2018, Horovod, arXiv 1802.05799, section 4; code"
        " horovod/horovod@2626dc87 horovod/common/operations.cc (RunLoopOnce), controller.cc"
        " (ComputeResponseList, FuseResponses), response_cache.cc (sync), mpi/mpi_controller.cc,"
        " ops/nccl_operations.cc (NCCLAllreduce), ops/gpu_operations.cc, docs/mpi.rst; message_us:"
        " dexhunter/allreduce-experiments@b49158f0 data/ompi-results,"
        " shyhuai/B-Caffe@1e8a70d8 logdata/allreduce4.log"
    )
    fusion: ClassVar[str] = "threshold"

    cache: bool = Field(True, description="whether responses are cached (HOROVOD_CACHE_CAPACITY)")
    message_us: float = Field(
        28.0, ge=0, le=1e6, description="a small message between two hosts, in microseconds"
    )

    def agreement_s(self, nodes: int) -> float:
        """Return how long the hosts take to agree on what all ranks have [s]."""
        rounds = ceil(log2(nodes))
        if not self.cache and nodes > 1:
            rounds = 3 * rounds + 1
        return rounds * self.message_us * 1e-6

    def stages(self, bucket: Bucket, world: World, iteration: int) -> list[Stage]:
        """Return the all-reduce, between copies where it is of several gradients."""
        send = Send("all_reduce", self.dense_bytes(bucket))
        tensors = len(bucket.gradients)
        if tensors == 1:
            return [send]
        passes = 2 * SHARE[self.gradients]
        copy = (elementwise(bucket.elements, passes, ceil(tensors / COPIED)),)
        stream = "communication"
        return [Compute(copy, "compress", stream), send, Compute(copy, "decompress", stream)]

    def jobs(self, buckets: Sequence[Bucket], world: World, iteration: int) -> list[Job]:
        """Return a job a buffer, which begins when all ranks agree on it."""
        waits_s = self.agreement_s(world.nodes)
        return super().jobs([_agreed(one, waits_s) for one in buckets], world, iteration)


def _agreed(bucket: Bucket, waits_s: float) -> Bucket:
    """Return a buffer as it goes: what was pushed ahead of the GPU is agreed on ahead of it."""
    there_s = max(gradient.ready_s for gradient in bucket.gradients)
    if bucket.ready_s <= there_s:
        return bucket
    return replace(bucket, ready_s=bucket.ready_s + waits_s)
