"""Local SGD: models averaged every few iterations, tensor by tensor."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    LOCAL_ITERATION,
    Compute,
    Job,
    JobStage,
    MethodContext,
    PassPoint,
    Round,
    Send,
)
from perfsim.methods.building.averaging import (
    INNER_ITERATION,
    NOTHING_BETWEEN,
    fp32_bytes,
    periodic,
)
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.ddp_hooks import ddp_buckets, hook_jobs


class Localsgd(DdpBuckets):
    """Updates locally; every ``interval`` iterations the models are averaged after the update.

    The idea is that of `cpsgd`. The implementation is that of Hugging Face Accelerate, which most
    users of this name run. It takes one tensor after the other, in the order of the buckets: each
    is cloned (2 passes), all-reduced and divided by P (2 passes), and waits for the one before. The
    next forward pass waits for all. `fusion` whole does so with one buffer. The interval is that of
    Accelerate's example.

    Each rank is a worker: within Accelerate's LocalSGD no gradient is reduced, not even inside a
    node. ``local_gradients`` makes a worker of each node (of each site where a wide area network
    joins several), as PyTorch's post_localSGD_hook does with its subgroups: in every iteration the
    ranks of a node divide and all-reduce DDP's buckets of gradients in the backward pass. Then
    models are averaged as before. `postlocalsgd` with ``dense_share`` 0 is PyTorch's own averaging
    behind the same hook, in one buffer.

    Bytes a rank: 2 (P-1)/P x 4 / interval a parameter; with ``local_gradients`` as many in each
    iteration among the ranks of a node.
    Memory: DDP's buckets (see `ssgd`), which its no_sync leaves unused where nothing is reduced.
    Left out: the barrier before averaging; averaging of batch-norm statistics; with
    ``local_gradients`` DDP's broadcast of buffers (`postlocalsgd` has it).
    """

    summary: ClassVar[str] = "models averaged every few iterations, tensor by tensor (local SGD)"
    citation: ClassVar[str] = (
        "Stich 2019, Local SGD Converges Fast and Communicates Little, ICLR, arXiv 1805.09767;"
        " code huggingface/accelerate@04e6abd8 src/accelerate/local_sgd.py, @01a1ffcd"
        " utils/operations.py (reduce), @11ad1b38 examples/by_feature/local_sgd.py;"
        " local_gradients: pytorch/pytorch@025be6a5 ddp_comm_hooks/post_localSGD_hook.py"
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
    local_gradients: bool = Field(
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
        return inside + (self._averaging(buckets) if iteration != INNER_ITERATION else [])

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
