"""FSDP: parameters sharded too; each unit is gathered before its forward and backward passes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.execution import execution_of
from perfsim.compute.host_offload import PARAMETERS, HostUpdate
from perfsim.compute.kernel import FLOAT
from perfsim.compute.software import is_newest
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import block_units
from perfsim.methods.base import (
    ONE_GROUP,
    Compute,
    Group,
    Job,
    Method,
    MethodContext,
    MethodState,
    OnlyWith,
    PassPoint,
)
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.host_copies import behind_copies, gradients_out, shard_in
from perfsim.methods.building.layerwise import LayerStarts
from perfsim.methods.building.sharded_parameters import (
    GatherType,
    Prefetch,
    backward_gathers,
    copied_backward_gathers,
    copied_forward_gathers,
    copied_sums,
    forward_gathers,
    gathered_width,
    in_forward_order,
    made_bytes,
    scattered,
    with_root,
)
from perfsim.sums import sum_in_order

_OUT = "copy out"
"""The stream of copies of gradients to the host, which follow the sums of the same unit."""


class Fsdp(Method):
    """Gathers a unit's parameters before it runs, reduce-scatters its gradients after.

    Units are the buckets of `fusion`: "block" is wrapping by block class. Each frees its parameters
    after the forward pass and is gathered again in the backward pass (``shard`` "full"), or keeps
    them in between ("grad": SHARD_GRAD_OP, reshard_after_forward=False). All gathers and scatters
    share one communicator, in the order in which they are issued. Every rank updates its share.
    With ``shard`` "hybrid" only ``shards`` neighbouring ranks share a copy (the GPUs of a node
    unless given). They gather and scatter among themselves, and each share is all-reduced with
    those of the other copies, on a stream of its own.

    ``version`` 2 is fully_shard, as torchtitan runs it; "auto" takes it for software from 2024 on.
    A gather waits for the copy of the unit two before in forward; in backward it begins with the
    unit before, behind that one's copy. Gathered parameters are copied out (1 launch) and
    gradients copied into the message (1 launch) on the compute stream, where nothing hides it. A
    rank's shard is cast and copied in on another (2 launches). Before its gradients are copied, a
    unit waits for the reduce-scatter of the one before. NCCL averages. The last unit of the forward
    pass (norm and head) stays gathered. The first (the embedding) is gathered again, though nothing
    needs it. With ``regather`` R each unit stays gathered as shares of R ranks after its forward
    pass, which gather it in the backward pass.

    ``version`` 1 is FullyShardedDataParallel. A unit's gather is under way while the unit before it
    runs, and no further one (limit_all_gathers: two units at a time). In the backward pass a gather
    starts, with ``prefetch`` "pre" (BACKWARD_PRE, the default), when the unit before it in that
    pass begins, with "post" when that one has ended, with "none" after its gradients were sent.
    Gradients are divided, reduce-scattered and divided again (2 passes over all, then over a share)
    on another stream. Parameters in no block form the root unit, which stays gathered, and whose
    gradients go last.

    With several micro-batches, units are gathered and scattered in each. Where gradients are
    exchanged in the last alone (no_sync), units are still gathered in each, in version 1 with
    ``shard`` "grad" in the first alone, and gradients are kept whole. In a pipeline a stage is
    gathered in the first micro-batch and reduced in the last, as torch.distributed.pipelining does;
    its parameters and gradients stay whole in between.

    ``cpu_offload`` (CPUOffloadPolicy of version 2, CPUOffload of version 1) keeps a rank's shard of
    parameters, gradients and optimizer state in pinned memory of the host. Before each gather the
    shard is copied to the GPU as wide as it is kept, and cast there, on the stream of copies in;
    each parameter by itself, in version 1 a unit at once. A rank's share of summed gradients is
    copied to the host on the stream of the reduce-scatter, which that of the next unit follows.
    The host waits for all copies, and PyTorch's Adam updates on its CPUs.

    With adapters (`lora`) units of all parameters are gathered, frozen ones among them, and the
    gradients of the adapters alone are summed; version 2 only.

    On CPUs PyTorch has no streams: each gather and scatter holds up computation where it is called.
    Ask for that with ``overlap`` false. Over gloo a scatter is an all-reduce (`Library.runs_as`).

    NCCL gathers and scatters in rings, so each of the 3 calls a unit takes P-1 hops. PAT, since
    2.23 with one GPU a node, is not considered. On a thousand GPUs small units cost little but
    hops, which hybrid sharding avoids. In half precision parameters are gathered in bf16
    (MixedPrecision's param_dtype); gradients are sent in what `reduce_dtype` says, fp32 by default,
    as torchtitan has it.

    Bytes a rank: (2 w + 4) (S-1)/S a parameter of w gathered bytes and S ranks that share it; (w +
    4) (S-1)/S with ``shard`` "grad" and of units that stay gathered, as the only unit of a model
    does; for hybrid sharding 2 (1/S - 1/P) x 4 more.
    Memory: 1/S of parameters, gradients and optimizer state, or none of these (``cpu_offload``); on
    top the whole gradients of the largest unit, and the two largest neighbouring units gathered
    (all with ``shard`` "grad"), with units by block; all gradients whole where the last micro-batch
    alone exchanges.
    Left out: padding to S; version 1's copies of gradients into the flat parameter and its casts;
    version 2's division of gradients sent in fp16; gradients added to those of other micro-batches;
    the host, which leads the GPU, and its hooks: 1.4 to 1.7 ms a block of nine parameters on one
    core (tests/scripts/sharding_host.txt). Small models that FSDP trained are right without them,
    as eager launches on those hosts take less than they are priced at.
    """

    summary: ClassVar[str] = "parameters, gradients and optimizer sharded, gathered by unit (FSDP)"
    citation: ClassVar[str] = (
        "Zhao et al. 2023, PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, VLDB"
        " (arXiv 2304.11277); code pytorch/pytorch@00ae0bc9 torch/distributed/fsdp/"
        "_runtime_utils.py, @07b3040a torch/distributed/algorithms/_comm_hooks/default_hooks.py;"
        " PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"
    )
    family: ClassVar[str] = "dense"
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with shard hybrid units are gathered and scattered inside a node, and"
        " shares of gradients all-reduced across nodes"
    )
    wire: ClassVar[str] = (
        "2 * (1 - 1 / (shards or P)) * 4 * n + 2 * (1 / (shards or P) - 1 / P) * 4 * n"
    )
    fusion: ClassVar[str] = "block"
    lossy: ClassVar[bool] = False
    shards_parameters: ClassVar[bool] = True
    gathers_frozen: ClassVar[bool] = True
    on_host: ClassVar[Mapping[str, str]] = {PARAMETERS: "cpu_offload"}

    shard: Literal["full", "grad", "hybrid"] = Field(
        "full",
        description="full: units gathered for each pass; grad: kept between them; hybrid: shards"
        " shared by a few ranks",
    )
    shards: Annotated[int, OnlyWith(shard="hybrid")] = Field(
        0, ge=0, le=10**6, description="ranks that share one copy; 0: the GPUs of a node"
    )
    version: Literal["auto", 1, 2] = Field(
        "auto", description="FSDP1 or FSDP2; auto: 2 for software from 2024 on"
    )
    prefetch: Annotated[Prefetch, OnlyWith(version=1)] = Field(
        "pre", description="when the next unit of the backward pass is gathered"
    )
    regather: Annotated[int, OnlyWith(shard="full", version=("auto", 2))] = Field(
        0,
        ge=0,
        le=10**6,
        description="ranks that gather a unit again for the backward pass; 0: all that share it",
    )
    gather: GatherType = Field(
        "auto", description="type of gathered parameters; auto: bf16 in half precision, else fp32"
    )
    cpu_offload: bool = Field(
        False,
        description="keep parameters, gradients and the optimizer's state on the host, whose CPUs"
        " update the parameters (`offload` parameters)",
    )

    @property
    def host_update(self) -> HostUpdate | None:
        """PyTorch's Adam on the CPUs where parameters are on the host."""
        return HostUpdate("PyTorch") if self.cpu_offload else None

    def refusal(self, world: MethodContext) -> str:
        """Return why so many ranks cannot share a copy, or ""."""
        ranks = world.ranks
        if world.profile is not None and world.profile.frozen and not self._copies(world):
            return (
                "of version 1 keeps a unit in one flat parameter, which is trained or frozen as a"
                " whole; with lora, set version=2"
            )
        if self.shard == "hybrid":
            shards = self.shards or self.ranks_a_copy(world)
            if shards < 2 or ranks % shards:
                given = f"{shards}" if self.shards else f"the {shards} of a node"
                return f"needs two or more shards that divide {ranks} GPUs, not {given}"
        if self.regather and not self._copies(world):
            return "of version 1 gathers a unit again among all that share it; leave regather out"
        if self.regather and (self.regather < 2 or ranks % self.regather):
            return f"needs two or more ranks to regather that divide {ranks}, not {self.regather}"
        if self.cpu_offload and world.stages > 1:
            return (
                "with cpu_offload is not known in a pipeline, whose stages keep gathered parameters"
                " and whole gradients; leave one of the two out"
            )
        return ""

    def _copies(self, world: MethodContext) -> bool:
        """Tell whether this is FSDP2, which copies what it gathers and what it sends."""
        return self.version == 2 or (self.version == "auto" and is_newest(world.software))

    def registers_buffers(self, software: str) -> bool:
        """Tell whether this is Megatron-FSDP, as its guide advises to run it."""
        return execution_of(software).registers

    def ranks_a_copy(self, world: MethodContext) -> int:
        """Return S, the ranks that share one copy of the model."""
        if self.shard != "hybrid":
            return world.ranks
        return min(self.shards or world.gpus_per_node, world.ranks)

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the gathers of the forward pass, then each unit's jobs in the backward pass."""
        starts, shards = LayerStarts.of(world), self.ranks_a_copy(world)
        group: Group = "all" if shards == world.ranks else shards
        width = gathered_width(self.gather, world)
        if world.stages == 1 and not self._copies(world):
            return self._flat_jobs(buckets, world, starts, shards, group, width)
        units = buckets
        if world.given_profile().frozen:
            units = block_units(world.given_profile().all_parameters())
        jobs = copied_forward_gathers(units, starts, shards, group, width)
        if self.cpu_offload:
            ordered, _ = in_forward_order(units, starts)
            jobs = behind_copies(jobs, self._shards_in(ordered, world))
        if world.stages > 1:
            # The stages of a pipeline gather once an iteration.
            jobs = [replace(job, repeats="first") for job in jobs]
        elif self.shard != "grad":
            sharers, among = (self.regather, self.regather) if self.regather else (shards, group)
            again = copied_backward_gathers(units, starts, sharers, among, width)
            if self.cpu_offload and not self.regather:
                again = behind_copies(again, self._shards_in(units[1:], world))
            jobs += again
        copies, made, profile = world.ranks // shards, made_bytes(width), world.given_profile()
        to_host = partial(gradients_out, shards=shards, profile=profile, stream=_OUT, flat=False)
        out = to_host if self.cpu_offload else None
        return jobs + copied_sums(buckets, shards, copies, group, made, out)

    def _shards_in(
        self, units: Sequence[Bucket], world: MethodContext, *, flat: bool = False
    ) -> list[Compute]:
        """Return the copy of a rank's shard of each unit from the host."""
        shards, profile = self.ranks_a_copy(world), world.given_profile()
        return [shard_in(unit, shards, profile, flat=flat) for unit in units]

    def _flat_jobs(
        self,
        buckets: Sequence[Bucket],
        world: MethodContext,
        starts: LayerStarts,
        shards: int,
        group: Group,
        width: float,
    ) -> list[Job]:
        """Return the jobs of FSDP1, which keeps each unit in a flat parameter."""
        units, root = with_root(buckets)
        out = partial(
            gradients_out,
            shards=shards,
            profile=world.given_profile(),
            stream="post_backward",
            flat=True,
        )
        sums = [
            Job(
                f"sum {number}",
                (
                    *scattered(unit, shards, world.ranks),
                    *([out(unit)] if self.cpu_offload else []),
                ),
                PassPoint("backward", unit.ready_s),
            )
            for number, unit in enumerate(units)
        ]
        kept = self.shard == "grad"
        jobs = forward_gathers(units, starts, group, width, "first" if kept else "every")
        if self.cpu_offload:
            ordered, _ = in_forward_order(units, starts)
            jobs = behind_copies(jobs, self._shards_in(ordered, world, flat=True))
        if kept:
            return jobs + sums
        again = backward_gathers(units, starts, self.prefetch, group, width)
        if self.cpu_offload:
            again = behind_copies(again, self._shards_in(units, world, flat=True))
        asked = [[] if unit is root else [job] for unit, job in zip(units, again, strict=True)]
        # In the order of issue: the number of gathers before a unit's gradients.
        before = 1 if self.prefetch == "none" else 2
        for number, job in enumerate(sums):
            first, last = (number + before - 1 if number else 0), number + before
            jobs += [one for each in asked[first:last] for one in each]
            jobs.append(job)
        return jobs

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of gathered units and of one unit's whole gradients, fp32."""
        if world.profile is None:
            return 0.0
        trained, units = (
            [fp32_bytes(unit.gradients) for unit in block_units(parameters)]
            for parameters in (world.profile.in_ready_order(), world.profile.all_parameters())
        )
        gathered = max(one + other for one, other in pairwise([0.0, *units]))
        gathered = sum_in_order(units) if self.shard == "grad" else gathered
        return max(trained) + gathered * gathered_width(self.gather, world) / FLOAT

    def exchanges_each(self, asked: bool | None) -> bool:
        """Return what is asked, else that gradients are scattered in each micro-batch."""
        return True if asked is None else asked

    def kept_share(self, world: MethodContext) -> dict[str, float]:
        """Return 1/S of everything, of which nothing is on the GPU where it is offloaded."""
        share = 0.0 if self.cpu_offload else 1.0 / self.ranks_a_copy(world)
        return {"parameters": share, "gradients": share, "optimizer": share}

    def update_share(self, world: MethodContext) -> float:
        """Return 1/S, wherever the optimizer's state is."""
        return 1.0 / self.ranks_a_copy(world)

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return what stays gathered, and gradients kept whole until the last micro-batch."""
        kept = self.shard == "grad" or world.stages > 1
        gathered = 1.0 if kept else 1.0 / self.regather if self.regather else 0.0
        whole_bytes = 0.0
        if not each and world.profile is not None:
            width = gathered_width(self.gather, world)
            sent_bytes = world.profile.gradients[0].value_bytes
            # FSDP2 adds them up in the type in which it sends them, FSDP1 as they are made.
            whole_bytes = sent_bytes if self._copies(world) else made_bytes(width)
        return MethodState(gathered=gathered, whole_bytes=whole_bytes)
