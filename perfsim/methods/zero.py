"""ZeRO stages 1 and 2: every rank updates its share of the parameters, then all are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, Method, MethodContext, PassPoint, Send
from perfsim.methods.building.sharded_parameters import GatherType, gathered_width

REDUCE_BUCKET = 500_000_000
"""Values in DeepSpeed's buffer of gradients (reduce_bucket_size)."""


class Zero(Method):
    """Reduces gradients in large buckets, updates a share of the parameters, gathers them all.

    Gradients are copied into a bucket in their hooks (2 passes, a launch a tensor). A full bucket
    is divided by P, flattened (2 passes each) and reduced. Each rank copies out what it owns (2
    passes over a share). The optimizer runs on 1/P of the parameters. One all-gather of all
    parameters ends the step, before the next forward pass. ``overlap_comm`` reduces while the
    backward pass goes on. Without it, DeepSpeed's default below stage 3, the backward pass waits
    for the reduction. ``reduction`` "all_reduce" is what DeepSpeed does
    (use_multi_rank_bucket_allreduce). "reduce" sends each owner its part, one reduce after the
    other, as DeepSpeed does with that off. "reduce_scatter" is the paper's.

    In half precision parameters are gathered in bf16.

    Bytes a rank: 3 (P-1)/P x 4 a parameter; 2 (P-1)/P x 4 unless gradients are all-reduced. Memory:
    1/P of the optimizer's state, in stage 2 of the gradients too; the buffer of gradients (two with
    overlap) and this rank's master copy. Stages 1 and 2 send alike. Left out: the norm and
    the check for overflow; offloading; a bucket's parts that straddle owners.
    """

    summary: ClassVar[str] = "optimizer (and gradients) sharded, parameters gathered (ZeRO-1, -2)"
    citation: ClassVar[str] = (
        "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter"
        " Models, SC (arXiv 1910.02054); code microsoft/DeepSpeed@38327e07"
        " deepspeed/runtime/zero/stage_1_and_2.py, config.py, deepspeed/runtime/utils.py"
    )
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = "(3 if reduction == 'all_reduce' else 2) * (P - 1) / P * 4 * n"
    fusion: ClassVar[str] = "zero"
    lossy: ClassVar[bool] = False

    stage: int = Field(1, ge=1, le=2, description="1: optimizer state sharded; 2: gradients too")
    gather: GatherType = Field(
        "auto", description="type of gathered parameters; auto: bf16 in half precision, else fp32"
    )
    overlap_comm: bool = Field(False, description="reduce while the backward pass goes on")
    reduction: Literal["all_reduce", "reduce", "reduce_scatter"] = Field(
        "all_reduce", description="DeepSpeed's all-reduce or reduces, or the paper's reduce-scatter"
    )

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return a job for each bucket of gradients, and one that gathers the parameters."""
        width = gathered_width(self.gather, world)
        size_bytes = width * sum(bucket.elements for bucket in buckets)
        gather = Send("all_gather", size_bytes, earliest="update")
        jobs = super().jobs(buckets, world, iteration)
        if not self.overlap_comm:
            # All run on one stream: a bucket's kernels wait for the reduction before them.
            jobs[1:] = [replace(job, needs=(last.name,)) for last, job in pairwise(jobs)]
        return [*jobs, Job("parameters", (gather,), PassPoint("backward"), PassPoint("next"))]

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[Compute | Send]:
        """Return copies and reduction of one bucket."""
        n, own = bucket.elements, -(-bucket.elements // world.ranks)
        into = elementwise(n, passes=2, launches=len(bucket.gradients))
        pack = (elementwise(n, passes=2), elementwise(n, passes=2))
        size_bytes, sends = bucket.size_bytes, 1
        if self.reduction == "reduce":
            size_bytes, sends = size_bytes / world.ranks, world.ranks
        earliest: Literal["ready", "backward"] = "ready" if self.overlap_comm else "backward"
        return [
            Compute((into,), "compress"),
            Compute(pack, "compress", earliest=earliest),
            *[Send(self.reduction, size_bytes, earliest)] * sends,
            Compute((elementwise(own, passes=2),), "decompress"),
        ]

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the gradients' buffers and of one rank's master copy."""
        elements = sum(gradient.elements for gradient in gradients)
        return float(FLOAT * (REDUCE_BUCKET * (1 + self.overlap_comm) + elements / ranks))

    def exchanges_each(self, asked: bool | None) -> bool:
        """Return what is asked, else whether gradients are sharded (stage 2): sent each time."""
        return self.stage == 2 if asked is None else asked

    def kept_share(self, ranks: int) -> dict[str, float]:
        """Return 1/P for what the stage shards."""
        gradients = 1.0 / ranks if self.stage == 2 else 1.0
        return {"parameters": 1.0, "gradients": gradients, "optimizer": 1.0 / ranks}
