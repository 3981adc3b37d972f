"""ZeRO as DeepSpeed runs it: optimizer, gradients and parameters sharded, by stage."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.host_link import copied_out
from perfsim.compute.host_offload import OPTIMIZER, PARAMETERS, HostUpdate
from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import ZERO_BUCKET_BYTES
from perfsim.methods.base import (
    Compute,
    Job,
    Method,
    MethodContext,
    MethodState,
    Moment,
    OnlyWith,
    PassPoint,
    Send,
)
from perfsim.methods.building.host_hooks import zero3_host_s
from perfsim.methods.building.leaf_gathers import (
    GatherLimits,
    MaxLive,
    MaxReuseDistance,
    PersistenceThreshold,
    PrefetchBucket,
    leaf_gathers,
    leaf_modules,
    persistent_elements,
)
from perfsim.methods.building.sharded_parameters import (
    GatherType,
    gathered_width,
    in_half,
    sent_width,
)

_SENT_BYTES = {"fp32": 4.0, "bf16": 2.0}
"""Bytes of a gradient that is sent, by its type."""
_SIDE = "reduction"
"""DeepSpeed's stream for what surrounds an overlapped reduction."""


class Zero(Method):
    """Reduces gradients in large buckets; each rank updates its share of the parameters.

    Gradients are copied into a bucket in their hooks (2 passes, a launch a tensor). A full bucket
    is divided by P, flattened (2 passes each) and reduced. Each rank copies out what it owns (2
    passes over a share). The optimizer runs on 1/P of the parameters.

    In stages 1 and 2 one all-gather of all parameters ends the step, before the next forward pass.
    ``reduction`` "all_reduce" is what DeepSpeed does (use_multi_rank_bucket_allreduce). "reduce"
    sends each owner its part, one reduce after the other, as DeepSpeed does with that off.
    "reduce_scatter" is the paper's.

    Stage 3 reduce-scatters buckets and shards parameters. Each layer (leaf module) is gathered for
    both passes, ahead of use along the trace of a whole iteration: in the hook of a layer, what it
    lacks and then up to 5e7 values more in one message, while fewer than 1e9 are gathered. Layers
    that are used again within 1e9 values stay gathered, so that the last ones of the forward pass
    are not gathered again. Tensors of up to 1e5 values are never sharded; one all-gather brings
    their new values. Gathers and reductions share one communicator. The trace holds from the third
    iteration on. With adapters (`lora`) stage 3 gathers frozen parameters too.

    ``overlap_comm`` reduces while the backward pass goes on, the kernels around a reduction on a
    side stream. In stages 1 and 2 computation waits for the reduction of the bucket before, so that
    one is under way. Without it, DeepSpeed's default below stage 3, the backward pass waits for
    the reduction. With several micro-batches stage 1 reduces in the last, stages 2 and 3 in each.

    In half precision parameters are gathered in bf16 and gradients sent in 16 bits, as they are
    made, whatever `reduce_dtype` says; ``reduce`` sends them in another type
    (communication_data_type).

    Bytes a rank: 3 (P-1)/P x 4 a parameter in stages 1 and 2; 2 (P-1)/P x 4 unless gradients are
    all-reduced; stage 3 as much as the former, and less by what stays gathered. Half of it in half
    precision.
    Memory: 1/P of the optimizer's state with the fp32 copy of 16-bit parameters, from stage 2 on of
    the gradients, in stage 3 of the parameters; the buffer of gradients (two with overlap below
    stage 3), this rank's master copy in fp32 too; in stage 3 up to 1e9 gathered values.
    ``offload_optimizer`` is ZeRO-Offload (`perfsim.compute.host_offload`): a rank's part of the
    gradients goes to the host beside the backward pass, its CPUs run Adam, and the new parameters
    go back. The optimizer's state and the sum of gradients (stages 2 and 3) are on the host.
    ``offload_param`` (stage 3) keeps a rank's 16-bit parameters there too. Before each gather they
    are copied to the GPU, tensor by tensor, on one stream; never sharded tensors stay on the GPU.
    What the GPU has updated goes back after the update. On one GPU they are copied alike.
    Hooks of stage 3 around modules take time of the host (`perfsim.methods.building.host_hooks`).
    Left out: the norm and the check for overflow; NVMe; the host, which waits for each copy of
    parameters and casts new ones to 16 bits on its CPUs; a bucket's parts that
    straddle owners; gathers begun in hooks of modules without parameters; waits of the host for
    gathers under way.
    """

    summary: ClassVar[str] = "optimizer, gradients and parameters sharded by stage (ZeRO-1, -2, -3)"
    citation: ClassVar[str] = (
        "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter"
        " Models, SC (arXiv 1910.02054); code microsoft/DeepSpeed@38327e07"
        " deepspeed/runtime/zero/stage_1_and_2.py, config.py, deepspeed/runtime/utils.py;"
        " deepspeedai/DeepSpeed@edaa7221 stage3.py, @00a31c99 partitioned_param_coordinator.py"
    )
    family: ClassVar[str] = "dense"
    keeps_half: ClassVar[bool] = True
    wire: ClassVar[str] = (
        "(3 if stage < 3 and reduction == 'all_reduce' else 2) * (P - 1) / P * 4 * n"
    )
    fusion: ClassVar[str] = "zero"
    lossy: ClassVar[bool] = False
    gathers_frozen: ClassVar[bool] = True
    on_host: ClassVar[Mapping[str, str]] = {
        OPTIMIZER: "offload_optimizer",
        PARAMETERS: "offload_param",
    }

    stage: int = Field(
        1, ge=1, le=3, description="1: optimizer state sharded; 2: gradients too; 3: parameters too"
    )
    gather: GatherType = Field(
        "auto", description="type of gathered parameters; auto: bf16 in half precision, else fp32"
    )
    reduce: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="type of gradients sent; auto: 16 bits in half precision, else reduce_dtype",
    )
    overlap_comm: bool | None = Field(
        None, description="reduce while the backward pass goes on; unless given, in stage 3 only"
    )
    reduction: Annotated[
        Literal["all_reduce", "reduce", "reduce_scatter"], OnlyWith(stage=(1, 2))
    ] = Field(
        "all_reduce", description="DeepSpeed's all-reduce or reduces, or the paper's reduce-scatter"
    )
    prefetch_bucket: Annotated[PrefetchBucket, OnlyWith(stage=3)] = GatherLimits().prefetch
    persistence_threshold: Annotated[PersistenceThreshold, OnlyWith(stage=3)] = (
        GatherLimits().persistence
    )
    offload_optimizer: bool = Field(
        False,
        description="keep the optimizer's state on the host, whose CPUs update the parameters"
        " (ZeRO-Offload; `offload` optimizer)",
    )
    offload_param: Annotated[bool, OnlyWith(stage=3)] = Field(
        False,
        description="keep the shards of parameters on the host, and copy them to the GPU before"
        " each gather (`offload` parameters)",
    )
    max_live: Annotated[MaxLive, OnlyWith(stage=3)] = GatherLimits().live
    max_reuse_distance: Annotated[MaxReuseDistance, OnlyWith(stage=3)] = GatherLimits().reuse

    @property
    def runs_alone(self) -> bool:
        """Whether parameters come from the host, on one GPU too."""
        return self.offload_param

    @property
    def host_update(self) -> HostUpdate | None:
        """DeepSpeed's CPU-Adam where the optimizer's state is on the host."""
        if not self.offload_optimizer:
            return None
        return HostUpdate("DeepSpeed", gradients=True, parameters=not self.offload_param)

    @property
    def overlaps(self) -> bool:
        """Whether gradients are reduced while the backward pass goes on."""
        return self.stage == 3 if self.overlap_comm is None else self.overlap_comm

    def limits(self) -> GatherLimits:
        """Return the limits of stage 3's gathers."""
        return GatherLimits(
            self.prefetch_bucket, self.persistence_threshold, self.max_live, self.max_reuse_distance
        )

    def sent_width(self, value_bytes: float, world: MethodContext) -> float:
        """Return the width of a gradient that is sent [bytes], of one asked for as wide."""
        if self.reduce != "auto":
            return _SENT_BYTES[self.reduce]
        return sent_width(value_bytes, world)

    def refusal(self, world: MethodContext) -> str:
        """Return why the stage does not run in a pipeline, or ""."""
        if world.stages > 1 and self.stage > 1:
            return (
                f"of stage {self.stage} does not run in a pipeline: DeepSpeed's pipeline engine"
                " allows stage 1, as gradients are added up over micro-batches; set stage=1"
            )
        return ""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return a job for each bucket of gradients, and those that gather the parameters."""
        width = gathered_width(self.gather, world)
        jobs = super().jobs(buckets, world, iteration)
        if self.stage == 3:
            gathers = leaf_gathers(world, self.limits(), width, from_host=self.offload_param)
            kept = self.kept_gathers(world, width)
            if self.offload_param and not self.offload_optimizer:
                kept.append(_goes_back(width * sum(bucket.elements for bucket in buckets), world))
            return [*gathers, *jobs, *kept]
        # A bucket's kernels wait for the reduction before them.
        jobs[1:] = [replace(job, needs=(last.name,)) for last, job in pairwise(jobs)]
        size_bytes = width * sum(bucket.elements for bucket in buckets)
        return [*jobs, _gathers_all(size_bytes)]

    def kept_gathers(self, world: MethodContext, width: float) -> list[Job]:
        """Return the gather of the tensors that are never sharded, whose shares were updated."""
        kept = persistent_elements(leaf_modules(world, updated=True), self.limits())
        return [_gathers_all(width * kept)] if kept else []

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[Compute | Send]:
        """Return copies and reduction of one bucket."""
        n, own = bucket.elements, -(-bucket.elements // world.ranks)
        width = self.sent_width(bucket.gradients[0].value_bytes, world)
        passes = 2 * width / FLOAT
        into = Compute((elementwise(n, passes, launches=len(bucket.gradients)),), "compress")
        pack = Compute((elementwise(n, passes), elementwise(n, passes)), "compress")
        out = Compute((elementwise(own, passes),), "decompress")
        size_bytes, sends, reduction = width * n, 1, self.reduction
        if self.stage == 3:
            reduction = "reduce_scatter"
        elif reduction == "reduce":
            size_bytes, sends = size_bytes / world.ranks, world.ranks
        if self.overlaps:
            first = into._replace(stream=_SIDE) if self.stage == 3 else into._replace(blocks=True)
            pack, out = pack._replace(stream=_SIDE), out._replace(stream=_SIDE)
            return [first, pack, *[Send(reduction, size_bytes)] * sends, out]
        if self.stage == 3:
            return [into, pack, Send(reduction, size_bytes), out._replace(blocks=True)]
        earliest: Moment = "backward"
        pack = pack._replace(earliest=earliest)
        return [into, pack, *[Send(reduction, size_bytes, earliest)] * sends, out]

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the gradients' buffers and of one rank's master copy, in fp32."""
        elements = sum(gradient.elements for gradient in gradients)
        return FLOAT * (self._buffered(elements, ZERO_BUCKET_BYTES) + elements / ranks)

    def _buffered(self, elements: int, bucket_bytes: float) -> float:
        """Return the values in buffers of gradients and, in stage 3, of gathered parameters.

        A buffer has reduce_bucket_size values; ``bucket_bytes`` gives them in bytes of fp32.
        """
        bucket = bucket_bytes / FLOAT
        if self.stage == 3:
            return bucket + min(self.max_live, elements)
        return bucket * (1 + self.overlaps)

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of buffers; in half precision the master copy is optimizer state."""
        elements = world.profile.elements if world.profile else 0
        every = elements + (world.profile.frozen_elements if world.profile else 0)
        buffered = self._buffered(every, world.bucket_bytes or ZERO_BUCKET_BYTES)
        if not in_half(world) or world.profile is None:
            return FLOAT * (buffered + elements / world.ranks)
        return self.sent_width(world.profile.gradients[0].value_bytes, world) * buffered

    def exchanges_each(self, asked: bool | None) -> bool:
        """Return what is asked, else whether gradients are sharded (stages 2, 3): sent each time.

        Raises
        ------
        RequestError
            If stage 3 is asked not to.
        """
        if self.stage == 3 and asked is False:
            raise RequestError(
                "exchange_each",
                "zero of stage 3 keeps no whole gradients and reduces them in each micro-batch;"
                " leave it out.",
            )
        return self.stage >= 2 if asked is None else asked

    def kept_share(self, world: MethodContext) -> dict[str, float]:
        """Return 1/P for what the stage shards."""
        share = 1.0 / world.ranks
        return {
            "parameters": 0.0 if self.offload_param else share if self.stage == 3 else 1.0,
            "gradients": 1.0 if self.stage == 1 else 0.0 if self.offload_optimizer else share,
            "optimizer": 0.0 if self.offload_optimizer else share,
        }

    def update_share(self, world: MethodContext) -> float:
        """Return 1/P, wherever the optimizer's state is."""
        return 1.0 / world.ranks

    def host_s(self, world: MethodContext, recompute: str) -> float:
        """Return what hooks around modules take in stage 3."""
        if self.stage < 3:
            return 0.0
        kept = self.persistence_threshold
        return zero3_host_s(world.given_profile(), kept, world.software, recompute)

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return that half precision keeps 16-bit gradients."""
        return MethodState(gradient_bytes=2.0)


def _goes_back(size_bytes: float, world: MethodContext) -> Job:
    """Return the copy of a rank's updated parameters to the host, before the next forward pass."""
    copy = Compute((copied_out(size_bytes / world.ranks),), "decompress", "copy out", "update")
    return Job("to host", (copy,), PassPoint("backward"), PassPoint("next"))


def _gathers_all(size_bytes: float) -> Job:
    """Return the gather of updated parameters, which the next forward pass waits for."""
    gather = Send("all_gather", size_bytes, earliest="update")
    return Job("parameters", (gather,), PassPoint("backward"), PassPoint("next"))
