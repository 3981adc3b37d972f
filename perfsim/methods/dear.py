"""DeAR: reduce-scatter in the backward pass, all-gather in the next forward pass."""

from collections.abc import Sequence
from typing import ClassVar

from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, Method, MethodContext, Send
from perfsim.methods.building.layerwise import crossing_jobs
from perfsim.sums import sum_in_order


class Dear(Method):
    """Splits the all-reduce into two halves that overlap different passes.

    A group's gradients are reduce-scattered as soon as all of them are ready, in backward order.
    Once the backward pass and the last reduce-scatter are over, the groups are all-gathered, the
    first layers' first, while the next forward pass begins. That pass waits before the first layer
    of each group for the group; every rank then updates all of it. The size of the groups is tuned,
    as by the scheme's Bayesian search (`fusion` dear_tuned); `fusion` dear is the code without that
    search, 25 MiB or `bucket`, which is what its scripts import. Without tensor fusion (`fusion`
    none) it is the paper's "DeAR w/o TF". No kernels of its own.

    Bytes a rank: (P-1)/P x 4 a parameter twice, as in a ring all-reduce.
    Memory: the groups' buffers and this rank's shard of each.
    Left out: copies into and out of the groups' buffers and the division by P (6 passes over a
    parameter, as with ``ssgd``); values that pad a group to a multiple of P; the host, which stops
    for each collective before it launches the next work; the search's iterations. A layer's update
    runs when its group has arrived, not before each of its layers.
    """

    summary: ClassVar[str] = "reduce-scatter in backward, all-gather in the next forward (DeAR)"
    citation: ClassVar[str] = (
        "Zhang et al. 2023, Decoupling the All-Reduce Primitive for Accelerating Distributed Deep"
        " Learning, arXiv 2302.12445; code lzhangbv/dear_pytorch@43138d8b"
        " dear/dear_dopt.py, dear/dopt_rsag_bo.py (search)"
    )
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n"
    fusion: ClassVar[str] = "dear_tuned"
    lossy: ClassVar[bool] = False
    decides: ClassVar[bool] = True
    first_needed_first: ClassVar[bool] = True

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return one job a group: its two halves, and the layer that waits for them."""
        return crossing_jobs(buckets, world, self.halves)

    def halves(self, bucket: Bucket, rank: int) -> list[Send]:
        """Return the reduce-scatter and the all-gather of a group."""
        size_bytes = bucket.size_bytes
        gather = Send("all_gather", size_bytes, earliest="backward")
        return [Send("reduce_scatter", size_bytes), gather]

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the groups' buffers and of one rank's shards."""
        return sum_in_order(gradient.size_bytes for gradient in gradients) * (1.0 + 1.0 / ranks)
