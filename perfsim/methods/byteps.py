"""BytePS: sums inside the nodes, then pushes to and pulls from sharded summation servers."""

from collections.abc import Sequence
from math import ceil
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, JobStage, Method, MethodContext, PassPoint, Send
from perfsim.methods.building.code_bases import BYTEPS, DDP, CodeBase
from perfsim.methods.building.cpu_offload import busiest_server, cpu_sum, received, to_gpu, to_host
from perfsim.methods.building.layerwise import LayerStarts, update_shares
from perfsim.methods.building.tensor_slices import PUSH_PULL

PAGE_BYTES = 4096
"""Size of a page; a GPU's share of a part is a whole number of pages."""


class Byteps(Method):
    """Sends every tensor in parts through summation servers, in backward order.

    A part (``partition_bytes``, in whole pages for each GPU) is reduce-scattered inside its node,
    and each GPU copies its share to the host. The node pushes the part to the servers, whose CPUs
    add up what all nodes send, and pulls the sum. Each GPU copies its share back, and the shares
    are all-gathered. These stages work on different parts at the same time, each on one part at a
    time. Both NCCL stages share one stream, sums first.

    Each node has a server. With ``servers``, further servers run on machines without GPUs; they
    take the share of the load that fills every NIC (mixed mode). All ranks update at the end; with
    ``cross_barrier`` a layer of the next forward pass waits for its own tensors only. On one node
    only NCCL runs. Tensors go in the order in which they are ready: BytePS orders by priority only
    if BYTEPS_SCHEDULING_CREDIT is set, and its PyTorch plugin gives no priority. ``van``: with
    RDMA, messages arrive in place. Over TCP ("zmq") one thread of each server, and one of each
    worker, takes them off ZeroMQ, whatever the number of connections.

    Kernels: the copies, the servers' sums and the receiving threads' work
    (`perfsim.methods.building.cpu_offload`). ``switch`` is the number of GPUs that copy over one
    link to the host at once.

    Bytes a rank, one GPU a node: 2 (P-1)/P x 4 a parameter, down to 4 with P further servers.
    Memory: none more on the GPU.
    Left out: that a part goes to one server, chosen by hash, not to all of them; NICs and NCCL on
    the PCIe links that copies use; a limit of one TCP connection (said to carry less than 25 Gb/s);
    the threads' polling and signals from one GPU of a node to the others; sums across PCIe switches
    (BYTEPS_PCIE_SWITCH_SIZE, unset by default).
    """

    summary: ClassVar[str] = "tensors in parts through sharded summation servers (BytePS)"
    citation: ClassVar[str] = (
        "Jiang et al. 2020, A Unified Architecture for Accelerating Distributed DNN Training in"
        " Heterogeneous GPU/CPU Clusters, OSDI; code bytedance/byteps@f5df52fe"
        " byteps/common/operations.cc, scheduled_queue.cc, core_loops.cc, nccl_manager.cc,"
        " server/server.cc, torch/cross_barrier.py; docs/best-practice.md; van:"
        " 3rdparty/ps-lite src/zmq_van.h (RecvMsg), bytedance/byteps issue 237"
    )
    family: ClassVar[str] = "dense"
    levels: ClassVar[str] = (
        "inside a node NCCL reduce-scatters and all-gathers each part; across nodes the shares"
        " are pushed to servers and pulled"
    )
    wire: ClassVar[str] = PUSH_PULL
    fusion: ClassVar[str] = "none"
    lossy: ClassVar[bool] = False
    order: ClassVar[Literal["issue", "priority"]] = "priority"

    partition_bytes: int = Field(4_096_000, ge=1, description="most bytes in a part of a tensor")
    servers: int = Field(0, ge=0, le=10**5, description="server machines without GPUs")
    switch: int = Field(1, ge=1, le=64, description="GPUs that share one link to the host")
    van: Literal["rdma", "zmq"] = Field(
        "rdma", description="transport of ps-lite: RDMA, or TCP by ZeroMQ"
    )
    cross_barrier: bool = Field(
        False, description="layers of the next forward pass wait for their own tensors only"
    )

    def code_base(self) -> CodeBase:
        """Return BytePS's optimizer, or its cross barrier, which updates layer by layer."""
        return DDP if self.cross_barrier else BYTEPS

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return a job a part of a tensor."""
        if world.ranks == 1:  # nothing is sent
            return []
        starts = LayerStarts.of(world)
        step = PAGE_BYTES * world.gpus_per_node
        most_bytes = ceil(self.partition_bytes / step) * step
        jobs, ways = [], dict[float, tuple[JobStage, ...]]()
        for number, (bucket, share) in enumerate(zip(buckets, update_shares(buckets), strict=True)):
            parts = ceil(bucket.size_bytes / most_bytes)
            for part in range(parts):
                size_bytes = min(most_bytes, bucket.size_bytes - part * most_bytes)
                if size_bytes not in ways:
                    ways[size_bytes] = tuple(self.way(size_bytes, world))
                jobs.append(
                    Job(
                        f"{number}.{part}",
                        ways[size_bytes],
                        PassPoint("backward", bucket.ready_s),
                        starts.needed(bucket) if self.cross_barrier else None,
                        updates=share / parts if self.cross_barrier else 0.0,
                    )
                )
        return jobs

    def way(self, size_bytes: float, world: MethodContext) -> list[JobStage]:
        """Return the stages of one part, from its node to the servers and back."""
        inside = world.gpus_per_node
        if world.nodes == 1:
            return self.in_node(size_bytes, world, [])
        elements, share_bytes = ceil(size_bytes / FLOAT), size_bytes / inside
        copied = ceil(elements / inside) * min(self.switch, inside)
        pushed = busiest_server(elements, world.nodes, self.servers)
        push, pull = (
            Send(collective, share_bytes, group="across", servers=self.servers)
            for collective in ("push", "pull")
        )
        out = Compute((to_host(copied),), "compress", stream="to host")
        back = Compute((to_gpu(copied),), "decompress", stream="to GPU")
        at_servers = Compute((cpu_sum(pushed),), "decompress", stream="servers")
        if self.van == "rdma":
            return self.in_node(size_bytes, world, [out, push, at_servers, pull, back])
        at_server, at_worker = (
            Compute((received(count),), "decompress", stream=f"received by {who}")
            for count, who in ((pushed, "servers"), (elements, "worker"))
        )
        between: list[JobStage] = [out, push, at_server, at_servers, pull, at_worker, back]
        return self.in_node(size_bytes, world, between)

    def in_node(
        self, size_bytes: float, world: MethodContext, between: list[JobStage]
    ) -> list[JobStage]:
        """Return ``between``, with the sum inside each node before and the gather after it."""
        if world.gpus_per_node == 1:
            return between
        there = Send("reduce_scatter", size_bytes, group="node", stream="NCCL", priority=1)
        return [there, *between, Send("all_gather", size_bytes, group="node", stream="NCCL")]

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return 0: the buffers are on the host."""
        return 0.0
