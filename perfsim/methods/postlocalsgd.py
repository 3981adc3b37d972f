"""Post-local SGD: dense gradients at first, then local SGD over nodes."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, MethodContext, Round
from perfsim.methods.building.averaging import averages, by_share, merged_bucket
from perfsim.methods.building.ddp_buffers import DdpBuffers
from perfsim.methods.building.ddp_hooks import hook_jobs

DENSE, LOCAL, AVERAGED = 0, 1, 2
"""Iterations: gradients reduced by all ranks; not; not, and models averaged after the update."""


class Postlocalsgd(DdpBuffers):
    """Runs DDP for a share of training, then averages models every ``interval`` iterations.

    At first DDP's hook divides every bucket by P (2 passes; DDP without a hook does so while it
    copies gradients in). All ranks all-reduce the bucket in the backward pass. After that phase
    only the ranks of a node do so (``local_gradients``; nodes of one GPU have nothing to do). Every
    ``interval`` iterations all models are averaged after the update in one buffer (concatenate and
    divide: 4 passes, 2 launches), and the next forward pass waits for it. Iterations are weighted
    by ``dense_share``. The share is that of the paper's example (from epoch 150 of 300), the
    interval PyTorch's. All ranks are DDP's process group in either phase: buffers go to all of them
    in every iteration. Bytes a rank: 2 (P-1)/P x 4 a parameter in the share's iterations, that
    / interval in the others, and what stays in a node. Memory: DDP's buckets (see `ssgd`).
    Left out: batch-norm statistics; the host's wait for the device before it averages; the paper's
    own code, which averages models in the first phase too.
    """

    summary: ClassVar[str] = "dense all-reduce at first, then local SGD (post-local SGD)"
    citation: ClassVar[str] = (
        "Lin et al. 2020, Don't Use Large Mini-Batches, Use Local SGD, ICLR, arXiv 1808.07217;"
        " code pytorch/pytorch@025be6a5 ddp_comm_hooks/post_localSGD_hook.py, @00aef22a"
        " default_hooks.py (which divides last; later versions first) and @03e7531c"
        " model_averaging/averagers.py; epfml/LocalSGD-Code@24410694 distributed_code/README.md"
    )
    family: ClassVar[str] = "fewer exchanges"
    levels: ClassVar[str] = (
        "inside a node (or site) gradients are all-reduced in every iteration (not in the second"
        " phase without local_gradients); across nodes they are in the first phase, then models"
        " are averaged every interval iterations"
    )
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n * (dense_share + (1 - dense_share) / interval)"
    interval_option: ClassVar[str] = "interval"
    published_intervals: ClassVar[Mapping[int, str]] = {4: "PyTorch"}

    dense_share: float = Field(0.5, ge=0, le=1, description="share of iterations before local SGD")
    interval: int = Field(4, ge=1, le=10**6, description="iterations between two averagings")
    local_gradients: bool = Field(
        True,
        description="gradients are reduced inside the node (inside the site where a wide area"
        " network joins several) in the second phase",
    )

    @property
    def sites_are_nodes(self) -> bool:
        """Whether sites reduce gradients by themselves in the second phase (its ``subgroup``)."""
        return self.local_gradients

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the buckets' all-reduces, among all ranks or in the node, and the averaging."""
        reduced: list[Job] = []
        if iteration == DENSE:
            reduced = hook_jobs(buckets)
        elif self.local_gradients and world.gpus_per_node > 1:
            reduced = hook_jobs(buckets, "node")
        averaged = averages([merged_bucket(buckets)]) if iteration == AVERAGED else []
        return [*self.buffer_jobs(), *reduced, *averaged]

    @property
    def between(self) -> int:
        """Number of the second phase's iterations without averaging."""
        return LOCAL

    def interval_rounds(self) -> list[Round]:
        """Return the second phase from one averaging to the next; none where there is none."""
        if self.dense_share == 1:
            return []
        return by_share({LOCAL: self.interval - 1, AVERAGED: 1})

    def rounds(self) -> list[Round]:
        """Return the iterations of both phases, weighted by their share."""
        local = 1 - self.dense_share
        return by_share(
            {
                DENSE: self.dense_share,
                LOCAL: local * (self.interval - 1) / self.interval,
                AVERAGED: local / self.interval,
            }
        )
