"""Hierarchical all-reduce: reduce-scatter in the node, all-reduce between nodes, all-gather."""

from typing import ClassVar, Literal

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, MethodContext
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.dense_buckets import DenseBuckets
from perfsim.methods.building.two_level import in_rows_and_columns, uneven_nodes


class Hierarchical(DdpBuckets, DenseBuckets):
    """Sends every bucket in three calls, as soon as it is ready, in backward order.

    The first call is a reduce-scatter among the g GPUs of each node. The second is an all-reduce of
    n/g between the GPUs with the same local rank on every node; all g groups share the nodes' NICs
    at once. The third is an all-gather in each node. On one node, or with one GPU a node, one
    all-reduce takes their place, as in `ssgd`. The method runs no kernels of its own. Bytes a rank:
    2 (g-1)/g x 4 a parameter in the node, 2 (N-1)/N x 4/g between nodes; together those of a ring.
    Memory: DDP's buckets (see `ssgd`). Left out: Horovod's copies to host memory and back around an
    all-reduce by MPI (here it is NCCL's, as with Horovod's option torus-allreduce); the remainder
    of a bucket that g does not divide.

    ``across`` "split" is BlueConnect: between nodes it calls a reduce-scatter, then an all-gather.
    Buckets are DDP's; Horovod's are `fusion` threshold.
    """

    summary: ClassVar[str] = "all-reduce in two levels: in each node, then between nodes"
    citation: ClassVar[str] = (
        "horovod/horovod@2626dc87 horovod/common/ops/nccl_operations.cc"
        " (NCCLHierarchicalAllreduce, NCCLTorusAllreduce), operations.cc; Cho et al. 2019,"
        " BlueConnect: Decomposing All-Reduce for Deep Learning on Heterogeneous Network"
        " Hierarchy, MLSys (abstract)"
    )
    levels: ClassVar[str] = (
        "inside a node gradients are reduce-scattered and all-gathered; across nodes the shares"
        " are all-reduced"
    )

    across: Literal["all_reduce", "split"] = Field(
        "all_reduce", description="between nodes: one call, or a reduce-scatter and an all-gather"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the three calls of a bucket, or its one all-reduce."""
        return in_rows_and_columns(
            self.dense_bytes(bucket), world.gpus_per_node, world.nodes, split=self.across == "split"
        )

    def refusal(self, world: MethodContext) -> str:
        """Return why nodes of unequal size are refused, or ""."""
        return uneven_nodes(world)
