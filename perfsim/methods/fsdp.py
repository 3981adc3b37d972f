"""FSDP: parameters sharded too; each unit is gathered before its forward and backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import block_units
from perfsim.methods.base import Group, Job, Method, MethodContext, PassPoint
from perfsim.methods.building.layerwise import LayerStarts
from perfsim.methods.building.sharded_parameters import (
    GatherType,
    Prefetch,
    backward_gathers,
    forward_gathers,
    gathered_width,
    scattered,
)


class Fsdp(Method):
    """Gathers a unit's parameters before it runs, reduce-scatters its gradients after.

    Forward: a unit waits for its all-gather. While it runs, the next unit's is under way, and no
    further one (limit_all_gathers: two units at a time). A unit's parameters are freed after it.

    In the backward pass a unit is gathered again. With ``prefetch`` "pre" (BACKWARD_PRE, the
    default) this starts when the unit before it in that pass begins, with "post" when that one has
    ended, with "none" after its gradients were sent. The gradients of a unit are divided,
    reduce-scattered and divided again (2 passes over all, then over a share) as they become ready.
    All collectives share one stream. Every rank updates its share. ``sharding`` "shard_grad_op"
    keeps the parameters through the backward pass. Units are the buckets of `fusion`: "block" is
    wrapping by block class.

    With ``shards`` S (HYBRID_SHARD: the GPUs of a node) only S neighbouring ranks share a copy.
    They gather and scatter among themselves. Each share is then divided, all-reduced with those of
    the other P/S copies, on a stream of its own, and divided again. NCCL gathers and scatters in
    rings, so each of the 3 calls a unit takes P-1 hops. PAT, since 2.23 with one GPU a node, is not
    considered. On a thousand GPUs small units cost little but hops, which hybrid sharding avoids.

    In half precision parameters are gathered in bf16 (MixedPrecision's param_dtype); gradients are
    sent in what `reduce_dtype` says, fp32 by default, as torchtitan has it.

    Bytes a rank: (2 w + 4) (S-1)/S a parameter of w gathered bytes, shard_grad_op (w + 4) (S-1)/S.
    S = P unless given; where it is given, 2 (1/S - 1/P) x 4 more.
    Memory: 1/S of parameters (all of them for shard_grad_op), gradients and optimizer state; on top
    the whole gradients of the largest unit, and the two largest neighbouring units gathered (none
    for shard_grad_op), with units by block.
    Left out: that parameters in no block form one unit, gathered from forward to backward; padding
    to S; copies of gradients into the flat parameter; the host.
    """

    summary: ClassVar[str] = "parameters, gradients and optimizer sharded, gathered by unit (FSDP)"
    citation: ClassVar[str] = (
        "Zhao et al. 2023, PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, VLDB"
        " (arXiv 2304.11277); code pytorch/pytorch@00ae0bc9 torch/distributed/fsdp/"
        "_runtime_utils.py, @07b3040a torch/distributed/algorithms/_comm_hooks/default_hooks.py"
    )
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = (
        "((3 if sharding == 'full_shard' else 2) * (1 - 1 / (shards or P))"
        " + 2 * (1 / (shards or P) - 1 / P)) * 4 * n"
    )
    fusion: ClassVar[str] = "block"
    lossy: ClassVar[bool] = False
    shards_parameters: ClassVar[bool] = True

    sharding: Literal["full_shard", "shard_grad_op"] = Field(
        "full_shard", description="whether parameters are freed after the forward pass"
    )
    prefetch: Prefetch = Field(
        "pre", description="when the next unit of the backward pass is gathered"
    )
    shards: int = Field(
        0, ge=0, le=10**6, description="ranks that share one copy (hybrid sharding); 0: all"
    )

    gather: GatherType = Field(
        "auto", description="type of gathered parameters; auto: bf16 in half precision, else fp32"
    )

    def refusal(self, world: MethodContext) -> str:
        """Return why so many ranks cannot share a copy, or ""."""
        if self.shards == 0 or (self.shards > 1 and world.ranks % self.shards == 0):
            return ""
        return f"needs two or more shards that divide {world.ranks} GPUs, not {self.shards}"

    def ranks_a_copy(self, ranks: int) -> int:
        """Return S, the ranks that share one copy of the model."""
        return min(self.shards, ranks) or ranks

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the gathers of the forward pass, then each unit's jobs in the backward pass."""
        starts, shards = LayerStarts.of(world), self.ranks_a_copy(world.ranks)
        group: Group = "all" if shards == world.ranks else shards
        sums = [
            Job(
                f"sum {number}",
                scattered(unit, shards, world.ranks),
                PassPoint("backward", unit.ready_s),
            )
            for number, unit in enumerate(buckets)
        ]
        width = gathered_width(self.gather, world)
        jobs = forward_gathers(buckets, starts, group, width)
        if self.sharding == "shard_grad_op":
            return jobs + sums
        again = backward_gathers(buckets, starts, self.prefetch, group, width)
        # In the order of issue: the number of gathers before a unit's gradients.
        before = 1 if self.prefetch == "none" else 2
        for number, job in enumerate(sums):
            jobs += again[number + before - 1 : number + before] if number else again[:before]
            jobs.append(job)
        return jobs

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of gathered units and of one unit's whole gradients, fp32."""
        if world.profile is None:
            return 0.0
        units = [unit.size_bytes for unit in block_units(world.profile.in_ready_order())]
        gathered = max(one + other for one, other in pairwise([0.0, *units]))
        gathered *= gathered_width(self.gather, world) / 4.0
        return max(units) + (gathered if self.sharding == "full_shard" else 0.0)

    def exchanges_each(self, asked: bool | None) -> bool:
        """Return True: units are gathered, and their gradients scattered, in each micro-batch.

        Raises
        ------
        RequestError
            If it is asked not to (no_sync keeps whole gradients; it is not modelled).
        """
        if asked is False:
            raise RequestError(
                "exchange_each", "fsdp gathers and scatters in each micro-batch; leave it out."
            )
        return True

    def kept_share(self, ranks: int) -> dict[str, float]:
        """Return 1/S of everything, or all of the parameters where they are kept for backward."""
        share = 1.0 / self.ranks_a_copy(ranks)
        parameters = share if self.sharding == "full_shard" else 1.0
        return {"parameters": parameters, "gradients": share, "optimizer": share}
