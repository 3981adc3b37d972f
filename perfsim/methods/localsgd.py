"""Local SGD: models averaged every few iterations, tensor by tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    LOCAL_ITERATION,
    Compute,
    HeldState,
    Job,
    JobStage,
    MethodContext,
    OnlyWith,
    PassPoint,
    Round,
    Send,
    Shared,
)
from perfsim.methods.building.averaging import (
    INNER_ITERATION,
    NOTHING_BETWEEN,
    fp32_bytes,
    periodic,
)
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.ddp_hooks import ddp_buckets, hook_jobs

_FLEET_RINGS = 2
"""Rings of NCCL that PaddlePaddle's fleet uses in turn (localsgd_optimizer.py, ``nrings``)."""


class Localsgd(DdpBuckets):
    """Updates locally; every ``interval`` iterations the models are averaged after the update.

    The idea is that of `cpsgd`. The implementation is that of Hugging Face Accelerate, which most
    users of this name run. It takes one tensor after the other, in the order of the buckets: each
    is cloned (2 passes), all-reduced and divided by P (2 passes), and waits for the one before. The
    next forward pass waits for all. `fusion` whole does so with one buffer. The interval is that of
    Accelerate's example.

    ``variant`` "fleet" is PaddlePaddle's fleet, which averages by tensors too, but by differences:
    each tensor is subtracted from a snapshot of the last average (3 passes) and all-reduced, with
    two communicators in turn, so that two may run at once: their latencies overlap, their bytes
    share the links. Once all have come the host launches three kernels a tensor: divide by P,
    subtract from the snapshot, copy into it (7 passes). Before ``begin_step`` it averages so in
    every iteration: its synchronous phase is interval 1, not DDP.

    Each rank is a worker: within Accelerate's LocalSGD no gradient is reduced, not even inside a
    node. ``local_gradients`` makes a worker of each node (of each site where a wide area network
    joins several), as PyTorch's post_localSGD_hook does with its subgroups: in every iteration the
    ranks of a node divide and all-reduce DDP's buckets of gradients in the backward pass. Then
    models are averaged as before. `postlocalsgd` with ``dense_share`` 0 is PyTorch's own averaging
    behind the same hook, in one buffer.

    Bytes a rank: 2 (P-1)/P x 4 / interval a parameter; with ``local_gradients`` as many in each
    iteration among the ranks of a node.
    Memory: DDP's buckets (see `ssgd`), which its no_sync leaves unused where nothing is reduced;
    of fleet none of these, but a snapshot of the parameters.
    Left out: the barrier before averaging; fleet's waits of the host for each difference; averaging
    of batch-norm statistics; with ``local_gradients`` DDP's broadcast of buffers (`postlocalsgd`
    has it).
    """

    summary: ClassVar[str] = "models averaged every few iterations, tensor by tensor (local SGD)"
    citation: ClassVar[str] = (
        "Stich 2019, Local SGD Converges Fast and Communicates Little, ICLR, arXiv 1805.09767;"
        " code huggingface/accelerate@04e6abd8 src/accelerate/local_sgd.py, @01a1ffcd"
        " utils/operations.py (reduce), @11ad1b38 examples/by_feature/local_sgd.py;"
        " local_gradients: pytorch/pytorch@025be6a5 ddp_comm_hooks/post_localSGD_hook.py;"
        " fleet: PaddlePaddle/Paddle@02a032c5 fleet/meta_optimizers/localsgd_optimizer.py,"
        " @007c5703 operators/collective/c_allreduce_op.h"
    )
    family: ClassVar[str] = "fewer exchanges"
    levels: ClassVar[str] = (
        f"{NOTHING_BETWEEN}; with local_gradients gradients are reduced inside a node (or site) in"
        " every iteration"
    )
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n / interval"
    fusion: ClassVar[str] = "none"
    interval_option: ClassVar[str] = "interval"
    published_intervals: ClassVar[Mapping[int, str]] = {8: "Accelerate's example"}

    interval: int = Field(8, ge=1, le=10**6, description="iterations between two averagings")
    variant: Literal["accelerate", "fleet"] = Field(
        "accelerate", description="the code that averages: Accelerate or PaddlePaddle's fleet"
    )
    local_gradients: Annotated[bool, OnlyWith(variant="accelerate")] = Field(
        False,
        description="gradients are reduced inside the node (inside the site where a wide area"
        " network joins several) in every iteration",
    )

    @property
    def sites_are_nodes(self) -> bool:
        """Whether sites reduce gradients by themselves."""
        return self.local_gradients

    @property
    def between(self) -> int:
        """Number of the iterations between two averagings."""
        return INNER_ITERATION if self.local_gradients else LOCAL_ITERATION

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the all-reduces inside nodes, where asked for, and the averaging where due."""
        inside: list[Job] = []
        if self.local_gradients and world.gpus_per_node > 1:
            inside = hook_jobs(ddp_buckets(buckets), "node")
        if iteration == INNER_ITERATION:
            return inside
        return inside + (
            _by_fleet(buckets) if self.variant == "fleet" else self._averaging(buckets)
        )

    def _averaging(self, buckets: Sequence[Bucket]) -> list[Job]:
        """Return the averaging after the update, tensor by tensor."""
        stages: list[JobStage] = []
        for bucket in buckets:
            kernels = (elementwise(bucket.elements, 2),)
            stages += [
                Compute(kernels, "compress", earliest="update"),
                Send("all_reduce", fp32_bytes(bucket.gradients), earliest="update"),
                Compute(kernels, "decompress", earliest="update"),
            ]
        return [Job("average", tuple(stages), PassPoint("backward"), PassPoint("next"))]

    def rounds(self) -> list[Round]:
        """Return the local iterations and the one that averages."""
        return periodic(self.interval, self.between)

    def runs_in_ddp(self, world: MethodContext) -> bool:
        """Tell whether DDP's buckets are there: not in fleet."""
        return self.variant == "accelerate"

    def outer_state(self, world: MethodContext) -> list[HeldState]:
        """Return fleet's snapshot of the parameters."""
        held = self.memory_in(world)
        return [HeldState("old parameters", held, ranks=world.gpus_per_node)] if held else []

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of fleet's snapshot: one fp32 value a parameter."""
        return fp32_bytes(gradients) if self.variant == "fleet" else 0.0


def _by_fleet(buckets: Sequence[Bucket]) -> list[Job]:
    """Return fleet's averaging after the update: by differences, over its rings in turn."""
    elements = sum(bucket.elements for bucket in buckets)
    tensors = sum(len(bucket.gradients) for bucket in buckets)
    jobs = []
    for number, bucket in enumerate(buckets):
        difference = elementwise(bucket.elements, 3, len(bucket.gradients))
        send = Send(
            "all_reduce",
            fp32_bytes(bucket.gradients),
            earliest="update",
            stream=f"communication {number % _FLEET_RINGS}",
            shares=Shared("network"),
        )
        stages = Compute((difference,), "compress", earliest="update"), send
        jobs.append(Job(f"average {number}", stages, PassPoint("backward"), PassPoint("next")))
    back = Compute((elementwise(elements, 7, 3 * tensors),), "decompress")
    return [*jobs[:-1], replace(jobs[-1], after=(back,))]
