"""Outer steps: workers that train by themselves and exchange once in a fixed number of iterations.

A worker is a rank or a node; where a wide area network joins several sites, a rank or a site, which
takes the place of a node in all that follows. Inside a node gradients are averaged in every
iteration, by DDP, in one message, or by FSDP. Between two outer steps nothing leaves a worker. At
an outer step every worker sends how its parameters have changed since the last one: the
pseudo-gradient.

Who sends it depends on what a worker's ranks hold. Ranks that are workers send it themselves. Of a
node whose ranks hold the same parameters one rank sends it, and broadcasts the result in the node.
Of a node whose ranks have a shard each, every rank sends its own, among the ranks with the same
place in their nodes.

References
----------
PrimeIntellect-ai/OpenDiloco@a5b7236b open_diloco/train_diloco_torch.py (a rank),
open_diloco/train_fsdp.py (a node: FSDP's NO_SHARD around the whole model; its first rank sends);
PrimeIntellect-ai/prime@01baf166 src/zeroband/train.py and comms.py (a node: fully_shard; a process
group of its own for each place in a node). Outer optimizer: PyTorch 2.13 torch/optim/sgd.py,
_multi_tensor_sgd.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import block_units
from perfsim.methods.base import (
    LOCAL_ITERATION,
    Compute,
    Group,
    Job,
    JobStage,
    MethodContext,
    MethodState,
    OnlyWith,
    PassPoint,
    Round,
    Send,
)
from perfsim.methods.building.averaging import INNER_ITERATION, merged_bucket, periodic
from perfsim.methods.building.ddp_buffers import DdpBuffers
from perfsim.methods.building.ddp_hooks import ddp_buckets
from perfsim.methods.building.sharded_parameters import divisor
from perfsim.methods.building.two_level import uneven_nodes
from perfsim.methods.fsdp import Fsdp

__all__ = [
    "OR_RANKS",
    "OUTER_UPDATE_PASSES",
    "Inner",
    "OuterSteps",
    "Workers",
    "after_update",
    "outer_update",
    "pseudo_gradient",
]

OR_RANKS = "; with worker rank all ranks are one group, and nothing is sent in between"
"""End of what these methods say of both levels (`Method.levels`)."""

Inner = Literal["ddp", "whole", "fsdp"]
"""How the ranks of a worker average gradients. "ddp": in DDP's buckets, beside the backward pass.
"whole": in one message after it. "fsdp": parameters are sharded in the node."""

_PSEUDO_PASSES = 3
"""Passes of the difference between old and new parameters: both are read, one is written."""

OUTER_UPDATE_PASSES, _OUTER_UPDATE_LAUNCHES = 11, 4
"""Passes and launches of SGD with Nesterov momentum in PyTorch: the momentum is scaled (2), the
pseudo-gradient is added to it (3), both are added up (3) and subtracted from the parameters (3)."""

_DIVIDED_PASSES = 2
"""Passes of FSDP's division of a gradient before and again after its sum."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Which ranks exchange pseudo-gradients, and what part of the parameters each of them has.

    Parameters
    ----------
    count : N, the workers
    group : the ranks that exchange
    inside : ranks of a worker
    shards : parts in which the ranks of a worker hold its parameters
    on_host : ranks of a node that exchange, whose work on the host shares its CPUs
    """

    count: int
    group: Group
    inside: int = 1
    shards: int = 1
    on_host: int = 1

    def values(self, elements: int) -> int:
        """Return the values of so many parameters that one rank sends, rounded up.

        Examples
        --------
        >>> Workers(2, "across", 4, 4).values(1001)
        251
        """
        return -(-elements // self.shards)

    @property
    def one_sends(self) -> bool:
        """Whether one rank of a worker sends for all of them."""
        return self.group == "leaders" and self.inside > 1


def after_update(*kernels: Kernel, stream: str = "compute", undo: bool = False) -> Compute:
    """Return kernels that run once the inner update is over.

    Examples
    --------
    >>> after_update(elementwise(1000, 3)).earliest
    'update'
    """
    return Compute(kernels, "decompress" if undo else "compress", stream, earliest="update")


def pseudo_gradient(elements: int, tensors: int) -> Kernel:
    """Return the difference of old and new parameters, tensor by tensor.

    Examples
    --------
    >>> pseudo_gradient(1000, 2).moved_bytes, pseudo_gradient(1000, 2).launches
    (12000.0, 2)
    """
    return elementwise(elements, _PSEUDO_PASSES, tensors)


def outer_update(elements: int) -> Kernel:
    """Return the outer optimizer's step on a GPU: SGD with Nesterov momentum, all tensors at once.

    Examples
    --------
    >>> outer_update(1000).moved_bytes, outer_update(1000).launches
    (44000.0, 4)
    """
    kernel = elementwise(elements, OUTER_UPDATE_PASSES, _OUTER_UPDATE_LAUNCHES)
    return kernel._replace(outer=True)


class OuterSteps(DdpBuffers):
    """A method whose workers train by themselves and exchange once in ``interval`` iterations."""

    family: ClassVar[str] = "fewer exchanges"
    fusion: ClassVar[str] = "none"
    interval_option: ClassVar[str] = "interval"

    interval: int = Field(500, ge=1, le=10**6, description="iterations from one outer step to next")
    worker: Literal["rank", "node"] = Field(
        "node",
        description="what trains by itself: each rank, or each node (each site where a wide area"
        " network joins several)",
    )
    inner: Annotated[Inner, OnlyWith(worker="node")] = Field(
        "ddp",
        description="gradients inside a node: in DDP's buckets; in one message after the backward"
        " pass; by FSDP, each GPU with a shard of the parameters",
    )

    buffers_mib: Annotated[float, OnlyWith(worker="node", inner="ddp")] = Field(
        0.0, ge=0, le=1e6, description="the model's buffers, broadcast in a node by inner ddp"
    )

    @property
    def sites_are_nodes(self) -> bool:
        """Whether a worker is a site where a wide area network joins several."""
        return self.worker == "node"

    @property
    def sharded(self) -> bool:
        """Whether the ranks of a worker hold a shard of its parameters each."""
        return self.worker == "node" and self.inner == "fsdp"

    def workers(self, world: MethodContext) -> Workers:
        """Return who exchanges pseudo-gradients."""
        inside = world.gpus_per_node
        host = world.gpus_of_host or inside
        if self.worker == "rank" or inside == 1:
            return Workers(world.ranks, "all", on_host=host)
        if self.sharded:
            return Workers(world.nodes, "across", inside, inside, host)
        return Workers(world.nodes, "leaders", inside)

    def refusal(self, world: MethodContext) -> str:
        """Return why the nodes are no workers, or ""."""
        if self.worker == "node" and world.nodes < 2:
            unit = world.node_word
            return (
                f"needs two or more {unit}s among ranks that hold the same weights where each"
                f" {unit} is a worker; set worker=rank"
            )
        apart = self.sharded or self.workers(world).group == "across"
        return uneven_nodes(world) if apart else ""

    def inner_jobs(self, buckets: Sequence[Bucket], world: MethodContext) -> list[Job]:
        """Return what the ranks of a worker exchange in every iteration."""
        if self.worker == "rank" or world.gpus_per_node == 1 or not buckets:
            return []
        gradients = sorted(merged_bucket(buckets).gradients, key=lambda one: one.ready_s)
        if self.inner == "fsdp":
            jobs = Fsdp.model_validate({}).jobs(block_units(gradients), _one_node(world), 0)
            return [_in_node(job) for job in jobs]
        if self.inner == "whole":
            bucket = Bucket.of(gradients)
            passes = _DIVIDED_PASSES * gradients[0].value_bytes / FLOAT
            division = (elementwise(bucket.elements, passes),)
            sum_of_all = Send("all_reduce", bucket.size_bytes, group="node")
            stages: tuple[JobStage, ...] = (Compute(division, "compress"), sum_of_all)
            if world.gpus_per_node > divisor(world.gpus_per_node):
                stages = (*stages, Compute(division, "decompress"))
            return [Job("inner", stages, PassPoint("backward", bucket.ready_s))]
        reduced = [
            Job(
                f"inner {number}",
                (Send("all_reduce", bucket.size_bytes, group="node"),),
                PassPoint("backward", bucket.ready_s),
            )
            for number, bucket in enumerate(ddp_buckets(buckets))
        ]
        return [*self.buffer_jobs("node"), *reduced]

    @property
    def between(self) -> int:
        """Number of the iterations between two outer steps: where ranks are workers, local ones."""
        return LOCAL_ITERATION if self.worker == "rank" else INNER_ITERATION

    def rounds(self) -> list[Round]:
        """Return the iterations between two outer steps and the one that ends with such a step."""
        return periodic(self.interval, self.between)

    def memory_in(self, world: MethodContext) -> float:
        """Return a rank's part of the extra memory."""
        return super().memory_in(world) / self.workers(world).shards

    def gathers_units(self) -> bool:
        """Tell whether FSDP gathers the units of the model inside nodes."""
        return self.sharded

    def kept_share(self, world: MethodContext) -> dict[str, float]:
        """Return a shard of everything where parameters are sharded in the node."""
        share = 1.0 / self.workers(world).shards
        return {"parameters": share, "gradients": share, "optimizer": share}

    def runs_in_ddp(self, world: MethodContext) -> bool:
        """Tell whether DDP reduces the gradients of a worker's ranks."""
        return self.worker == "node" and self.inner == "ddp" and world.gpus_per_node > 1

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return how FSDP keeps gradients whole until the last micro-batch, where it is used."""
        if self.sharded and world.gpus_per_node > 1:
            return Fsdp.model_validate({}).state(_one_node(world), each=each)
        return super().state(world, each=each)


def _one_node(world: MethodContext) -> MethodContext:
    """Return the context of one node's ranks."""
    return replace(world, ranks=world.gpus_per_node, nodes=1)


def _in_node(job: Job) -> Job:
    """Return a job whose collectives are among the ranks of each node."""
    stages = tuple(
        stage._replace(group="node") if isinstance(stage, Send) else stage for stage in job.stages
    )
    return replace(job, stages=stages)
