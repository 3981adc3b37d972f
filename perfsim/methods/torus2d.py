"""2D-torus all-reduce: the GPUs form a grid, reduced along its rows and down its columns."""

from typing import ClassVar, Literal

from pydantic import Field

from perfsim.collectives.all_reduce import torus_grid
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, MethodContext
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.dense_buckets import DenseBuckets
from perfsim.methods.building.two_level import in_rows_and_columns, uneven_nodes


class Torus2d(DdpBuckets, DenseBuckets):
    """Sends every bucket in three calls on a grid of X x Y GPUs, as soon as it is ready.

    Buckets go in backward order. Each is reduce-scattered along each row of X neighbouring GPUs. A
    ring all-reduce of n/X runs down each column, all columns at once, and an all-gather along each
    row. A grid of one row or one column is one all-reduce, as `ssgd`. The method runs no kernels of
    its own. Bytes a rank: 2 (X-1)/X x 4 a parameter along its row, 2 (Y-1)/Y x 4/X down its column
    (together those of a ring). Memory: DDP's buckets (see `ssgd`). Left out: the remainder of a
    bucket that X does not divide; the large batches of the paper.

    ``grid`` "square": rows of whole nodes, as many as make the grid most square, so that steps grow
    with the square root of P. The paper arranges its GPUs in a logical grid; its sizes could not be
    read. "node": a row is a node, as Horovod's option torus-allreduce has it; that is
    `hierarchical` with rings. Where no grid is more square than that (8 nodes of 4, say) both are
    the same. Rows of several nodes send 2 (X-1)/X n out of each node, where rows of one node send
    nothing; their columns send less. On slow wires 16 nodes of 4, in rows of 2, take longer than 4
    nodes, in rows of 1, and than 64 in rows of 4. So time does not rise steadily with P. "node" is
    the better of the two until hops decide (ResNet-50 on 4 V100 a node: between 256 and 1024 GPUs
    on 10 GbE, at 64 on 100 Gb/s InfiniBand).
    """

    summary: ClassVar[str] = "all-reduce on a grid of GPUs, rows then columns (2D torus)"
    citation: ClassVar[str] = (
        "Mikami et al. 2018, ImageNet/ResNet-50 Training in 224 Seconds (later: Massively"
        " Distributed SGD), arXiv 1811.05233 (abstract); phases: horovod/horovod@2626dc87"
        " horovod/common/ops/nccl_operations.cc (NCCLTorusAllreduce), runner/launch.py"
    )
    levels: ClassVar[str] = (
        "inside rows of neighbours, which may be nodes, gradients are reduce-scattered and"
        " all-gathered; across rows the shares are all-reduced"
    )

    grid: Literal["square", "node"] = Field(
        "square", description="grid as square as possible, or a node a row"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the three calls of a bucket, or its one all-reduce."""
        row, column = world.gpus_per_node, world.nodes
        if self.grid == "square":
            row, column = torus_grid(world.nodes, world.gpus_per_node)
        return in_rows_and_columns(self.dense_bytes(bucket), row, column, algorithm="ring")

    def refusal(self, world: MethodContext) -> str:
        """Return why nodes of unequal size are refused, or ""."""
        return uneven_nodes(world)
