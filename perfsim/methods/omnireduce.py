"""OmniReduce: an all-reduce through aggregators that leaves out blocks of zeros."""

from collections.abc import Sequence
from math import ceil
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, MethodContext, Send
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.sparsify import served

BUFFER_BYTES = 1024 * 2.0**20
"""Buffer on the GPU that the NIC reads and writes [bytes] (buffer_size, in MB)."""

THREADS = 8
"""Threads that share out a tensor in the code (num_threads)."""


class Omnireduce(DdpBuckets):
    """Streams the blocks that are not zero to aggregators, and the sums back to all ranks.

    For each bucket a kernel beside the backward pass marks the blocks that are not all zero (one
    pass). Each of 8 threads copies its part into the buffer that the NIC reads (2). A rank sends
    its marked blocks, each with the index of its next one (4 bytes). The aggregators share out the
    blocks, and send every block that any rank has to all ranks. Both directions stream at the same
    time. Nothing is decoded: sums are written in place and copied back (2). The code takes one
    tensor of fp32 values, that is one GPU, a node. On nodes of several GPUs ``inside`` says what
    happens. With "sum" NCCL first reduces to one GPU, which marks and sends the blocks that any of
    them has. At the end it broadcasts the sum, a bucket at a time; on one node this is NCCL's
    all-reduce. With "apart" each GPU sends its own blocks, and all share the node's NICs.

    Bytes a rank, one GPU a node: (P-1)/P x 4 n x (density of blocks + that of their union), with
    the indices; dedicated, 4 n x density. Memory: DDP's buckets (see `ssgd`), the buffer of 1 GiB,
    and the marks, a byte a block. Left out: copies through host memory (the configuration that
    comes with the code has the NIC read the GPU, direct_memory = 1; without it chunks go through
    the host); the sums on the aggregators' CPUs; empty answers; several messages' latencies where
    few are under way.

    ``block_density`` is a property of the model: 1 is a dense gradient, the worst case. The
    authors' benchmark runs 1, 0.4, 0.1 and 0.01. Zeros come from embeddings and the like, or from a
    sparsifier. ``union`` says where the blocks of different ranks lie: at random, all at the same
    indices, or without any overlap (the benchmark has all three). ``aggregators`` "dedicated": as
    many machines without GPUs as nodes, as in the authors' runs. "colocated": one on each node,
    which then carries both loads; for dense gradients that is as much as a ring.
    """

    summary: ClassVar[str] = "all-reduce of the blocks that are not zero, by aggregators"
    citation: ClassVar[str] = (
        "Fei et al. 2021, Efficient Sparse Collective Communication and its Application to"
        " Accelerate Distributed Deep Learning, SIGCOMM; code sands-lab/omnireduce@dafb113"
        " omnireduce-RDMA worker.cpp, aggregator.cpp, cuda_utils.cu; example/omnireduce.cfg;"
        " sands-lab/omnireduce-experiments@a2bdc80 benchmark/benchmark.py"
    )
    family: ClassVar[str] = "sparsification"
    levels: ClassVar[str] = (
        "inside a node NCCL reduces to one GPU and broadcasts the sum; across nodes that GPU"
        " streams blocks; with inside apart each GPU streams its own"
    )
    wire: ClassVar[str] = (
        "ceil(n / block_size) * 4 * (block_size + 1) * (block_density"
        " if aggregators == 'dedicated' else (P - 1) / P * (block_density"
        " + (1 - (1 - block_density) ** P if union == 'random' else block_density"
        " if union == 'same' else min(1, P * block_density))))"
    )
    lossy: ClassVar[bool] = False

    block_density: float = Field(1.0, gt=0, le=1, description="share of blocks that are not zero")
    block_size: int = Field(256, ge=1, le=2**20, description="values in a block")
    union: Literal["random", "same", "apart"] = Field("random", description="how ranks' blocks lie")
    inside: Literal["sum", "apart"] = Field(
        "sum", description="GPUs of a node add up first, or each sends by itself"
    )
    aggregators: Literal["colocated", "dedicated"] = Field(
        "colocated", description="on the nodes, or on as many machines without GPUs"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the marking of blocks, their sends to the aggregators, and the sums' return."""
        blocks = ceil(bucket.elements / self.block_size)
        full_bytes = float(blocks * (FLOAT * self.block_size + INDEX))
        inside = world.gpus_per_node if self.inside == "sum" else 1
        sent, union = self._union(inside), self._union(world.ranks)
        back, servers = union, 0
        if self.aggregators == "dedicated" and world.nodes > 1:
            # There push and pull take half their size each, while a NIC receives the union.
            back, servers = 2 * union - sent, world.nodes
        copy = elementwise(bucket.elements, passes=2, launches=THREADS)
        marks = elementwise(bucket.elements, 2 - sent)
        # The code's threads finish one tensor before they take the next.
        there: list[JobStage] = [
            Compute((marks,), "compress", stream="marking"),
            Compute((copy,), "compress", stream="threads"),
        ]
        back_again = Compute((copy,), "decompress", stream="threads")
        way = served(sent * full_bytes, back * full_bytes, world, servers)
        if inside == 1:
            return [*there, *way, back_again]
        if world.nodes == 1:
            return [Send("all_reduce", bucket.size_bytes)]
        whole = fp32_bytes(bucket.gradients)
        to_one, to_all = (
            Send(collective, whole, group="node") for collective in ("reduce", "broadcast")
        )
        leaders = (send._replace(group="leaders") for send in way)
        return [to_one, *there, *leaders, back_again, to_all]

    def _union(self, ranks: int) -> float:
        """Return the share of blocks that are not zero on at least one of ``ranks`` ranks."""
        if self.union == "same":
            return self.block_density
        if self.union == "apart":
            return min(1.0, ranks * self.block_density)
        return 1.0 - (1.0 - self.block_density) ** ranks

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the buffer and of the marks, a byte a block."""
        blocks = sum(ceil(gradient.elements / self.block_size) for gradient in gradients)
        return BUFFER_BYTES + blocks
