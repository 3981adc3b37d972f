"""Megatron-LM's data parallelism: fp32 gradients scattered once a step, parameters gathered."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    ONE_GROUP,
    Compute,
    Group,
    Job,
    JobStage,
    Method,
    MethodContext,
    MethodState,
    Moment,
    OnlyWith,
    PassPoint,
    Send,
)
from perfsim.methods.building.layerwise import LayerStarts
from perfsim.methods.building.sharded_parameters import (
    GatherType,
    gathered_width,
    in_forward_order,
    in_half,
)


class DistributedOptimizer(Method):
    """Adds gradients up in fp32 over micro-batches, reduces them once, updates a share a rank.

    Gradients go into one buffer in backward order. After the last micro-batch the buffer is scaled
    by 1/P (2 passes, not with ``average_in_collective``), its norm is taken to find NaNs (1 pass,
    ``check_nan``) and it is reduce-scattered. With ``overlap_grad_reduce`` it is cut into buckets
    of max(4e7, 1e6 x P) values (`fusion` megatron), and each goes as soon as its gradients are
    there, the two kernels before it on the compute stream. Each rank takes the norm of its share
    and clips it (3 passes over a share, ``clip``), updates its share of an fp32 copy and casts it
    to the parameters' type (1.5 passes of 4 bytes over a share, in half precision). The buffer is
    filled with zeros for the next iteration (1 pass). All but the update is priced together behind
    it.

    All parameters are gathered before the next forward pass. With ``overlap_param_gather`` each
    bucket is gathered when the forward pass reaches the bucket before it, the first at its start.
    With ``instances`` k the optimizer is sharded among P/k neighbouring ranks. They scatter and
    gather among themselves, and shares are all-reduced with those of the other instances. Without
    ``sharded`` this is Megatron-LM's plain data parallelism: gradients all-reduced, the whole
    optimizer on every rank.

    Gradients are fp32 whatever the precision, unless `reduce_dtype` is narrower
    (--grad-reduce-in-bf16). In half precision parameters are gathered in bf16, with ``gather`` fp8
    in a byte (--fp8-param-gather).

    Bytes a rank: 4 (P-1)/P a parameter for gradients, w (P-1)/P for w bytes of a gathered one; with
    k instances and S = P/k (4 + w) (S-1)/S + 2 x 4/S (k-1)/k; not sharded 8 (P-1)/P.
    Memory: gradients of 4 bytes (those of `reduce_dtype`) in the buffer, which stays from one
    iteration to the next, beside 16-bit parameters; 1/S of the optimizer's state with the fp32
    copy.
    Left out: the host, which waits for the check; adding norms up over ranks; tensors that tensor
    or pipeline parallelism shares.
    """

    summary: ClassVar[str] = "fp32 gradients scattered once a step, optimizer sharded (Megatron-LM)"
    citation: ClassVar[str] = (
        "Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters Using"
        " Megatron-LM, SC (arXiv 2104.04473); code NVIDIA/Megatron-LM@d98e8a64"
        " megatron/core/distributed/param_and_grad_buffer.py, distributed_data_parallel.py,"
        " megatron/core/optimizer/clip_grads.py, megatron/training/arguments.py"
    )
    family: ClassVar[str] = "dense"
    keeps_half: ClassVar[bool] = True
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with instances neighbours scatter and gather, inside a node if as many"
        " ranks have a copy, and shares are all-reduced across nodes"
    )
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n"
    lossy: ClassVar[bool] = False

    sharded: bool = Field(
        True, description="whether the optimizer is sharded; else gradients are all-reduced"
    )
    overlap_grad_reduce: bool = Field(
        False, description="reduce buckets beside the last micro-batch's backward pass"
    )
    overlap_param_gather: Annotated[bool, OnlyWith(sharded=True, overlap_grad_reduce=True)] = Field(
        False, description="gather buckets beside the next forward pass"
    )
    instances: Annotated[int, OnlyWith(sharded=True)] = Field(
        1, ge=1, le=10**6, description="copies of the sharded optimizer"
    )
    average_in_collective: bool = Field(False, description="NCCL averages: no scaling before")
    check_nan: bool = Field(True, description="take the norm of gradients before they are sent")
    clip: bool = Field(True, description="clip gradients by their norm (--clip-grad)")
    gather: Annotated[GatherType, OnlyWith(sharded=True)] = Field(
        "auto", description="type of gathered parameters; auto: bf16 in half precision, else fp32"
    )

    def default_fusion(self) -> str:
        """Return buckets where gradients are reduced beside the backward pass, else one buffer."""
        return "megatron" if self.overlap_grad_reduce else "whole"

    def refusal(self, world: MethodContext) -> str:
        """Return why so many instances cannot share the ranks, or ""."""
        if world.ranks % self.instances == 0 and self.instances < max(world.ranks, 2):
            return ""
        return f"needs instances of two or more ranks that divide {world.ranks} GPUs"

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return a reduction of each bucket, and the gathers of the parameters."""
        reductions = super().jobs(buckets, world, iteration)
        step = self._step(buckets, world)
        if self.overlap_param_gather:
            return reductions + self._gathers_ahead(buckets, world, step)
        stages: list[JobStage] = [step._replace(earliest="update")]
        if self.sharded:
            width = gathered_width(self.gather, world)
            size_bytes = width * sum(bucket.elements for bucket in buckets)
            gather = Send("all_gather", size_bytes, "update", group=self._group(world))
            stages.append(gather)
        after = Job("parameters", tuple(stages), PassPoint("backward"), PassPoint("next"))
        return [*reductions, after]

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the passes over one bucket and its reduction."""
        earliest: Moment = "ready" if self.overlap_grad_reduce else "backward"
        width = bucket.gradients[0].value_bytes
        kernels: list[Kernel] = []
        if not self.average_in_collective:
            kernels.append(elementwise(bucket.elements, 2 * width / FLOAT))
        if self.check_nan:
            kernels.append(elementwise(bucket.elements, width / FLOAT))
        passes: list[JobStage] = (
            [Compute(tuple(kernels), "compress", earliest=earliest)] if kernels else []
        )
        if not self.sharded:
            return [*passes, Send("all_reduce", bucket.size_bytes, earliest)]
        group, shards = self._group(world), self._shards(world)
        sends = [Send("reduce_scatter", bucket.size_bytes, earliest, group=group)]
        if self.instances > 1:
            across = (self.instances, shards)
            share_bytes = bucket.size_bytes / shards
            sends.append(
                Send("all_reduce", share_bytes, earliest, stream="instances", group=across)
            )
        return [*passes, *sends]

    def _gathers_ahead(
        self, buckets: Sequence[Bucket], world: MethodContext, step: Compute
    ) -> list[Job]:
        """Return the gathers of buckets in the order of the forward pass that needs them.

        They bring what the iteration before has updated.
        """
        ordered, starts_s = in_forward_order(buckets, LayerStarts.of(world))
        width = gathered_width(self.gather, world)
        sends = [
            Send("all_gather", width * bucket.elements, group=self._group(world))
            for bucket in ordered
        ]
        return [
            Job(
                f"parameters {number}",
                (step, send) if number == 0 else (send,),
                PassPoint("forward", starts_s[number - 1], behind=True)
                if number
                else PassPoint("forward"),
                PassPoint("forward", starts_s[number] if number else 0.0),
                repeats="first",
            )
            for number, send in enumerate(sends)
        ]

    def _step(self, buckets: Sequence[Bucket], world: MethodContext) -> Compute:
        """Return what the optimizer's step runs beside the update of its share.

        Gradients' norm and clipping, the cast of what it updated (nothing where parameters are
        fp32), and zeros in the whole buffer.
        """
        elements = sum(bucket.elements for bucket in buckets)
        share = -(-elements // self._shards(world)) if self.sharded else elements
        width = buckets[0].gradients[0].value_bytes
        kernels = [elementwise(elements, width / FLOAT)]
        if self.clip:
            kernels += [elementwise(share, width / FLOAT), elementwise(share, 2 * width / FLOAT)]
        if in_half(world):
            kernels.append(elementwise(share, (FLOAT + 2.0) / FLOAT))
        return Compute(tuple(kernels), "decompress")

    def _shards(self, world: MethodContext) -> int:
        """Return S, the ranks that share one copy of the optimizer; one rank has it to itself."""
        return max(1, world.ranks // self.instances)

    def _group(self, world: MethodContext) -> Group:
        return "all" if self.instances == 1 else self._shards(world)

    def exchanges_each(self, asked: bool | None) -> bool:
        """Return False: gradients are added up in the buffer until the last micro-batch.

        Raises
        ------
        RequestError
            If it is asked to reduce in each.
        """
        if asked:
            raise RequestError(
                "exchange_each",
                "distributed_optimizer adds gradients up in its buffer and reduces them after the"
                " last micro-batch; leave it out.",
            )
        return False

    def kept_share(self, world: MethodContext) -> dict[str, float]:
        """Return 1/S of the optimizer where it is sharded."""
        optimizer = 1.0 / self._shards(world) if self.sharded else 1.0
        return {"parameters": 1.0, "gradients": 1.0, "optimizer": optimizer}

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return gradients as wide as they are sent, in a buffer that stays."""
        profile = world.profile
        sent_bytes = profile.gradients[0].value_bytes if profile is not None else 4.0
        return MethodState(gradient_bytes=sent_bytes, buffered=True)
