"""P3: small slices to and from sharded parameter servers, those of the first layers first."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import ONE_GROUP, Job, Method, MethodContext, Send
from perfsim.methods.building.layerwise import crossing_jobs
from perfsim.methods.building.tensor_slices import PUSH_PULL, push_pull, split_whole, too_many


class P3(Method):
    """Pushes every gradient in slices to sharded servers, which send each sum back at once.

    A gradient of more than ``slice`` parameters is cut into slices of that size and a rest. Slices
    that are ready wait to be pushed or to come back; the next to go belongs to the earliest layer
    of the model. A layer of the next forward pass waits only for the slices of its own parameters.
    Servers run on the workers' nodes, whose GPUs add up first; with ``servers`` also on machines of
    their own. The method runs no kernels of its own.

    The code cuts at 40000 parameters, as does MXNet, which took P3 over. Bytes a rank, one GPU a
    node: 2 (P-1)/P x 4 a parameter, down to 4 with P servers more. Memory: none more. Left out:
    copies to the host, sums and the optimizer on the servers' CPUs (here every rank updates what
    came back); the servers' turns, where a slice goes to one server and the next slice to the next
    (here each goes to all of them).
    """

    summary: ClassVar[str] = "slices to parameter servers and back, first layers first (P3)"
    citation: ClassVar[str] = (
        "Jayarajan et al. 2019, Priority-based Parameter Propagation for Distributed DNN Training,"
        " MLSys (arXiv 1905.03960); code anandj91/p3@c6479545 src/kvstore/kvstore_dist.h,"
        " ps-lite/include/ps/internal/threadsafe_queue.h"
    )
    family: ClassVar[str] = "dense"
    levels: ClassVar[str] = (
        f"{ONE_GROUP}: servers stand on the nodes, whose GPUs add up by NCCL before they push"
    )
    wire: ClassVar[str] = PUSH_PULL
    fusion: ClassVar[str] = "none"
    lossy: ClassVar[bool] = False
    order: ClassVar[Literal["issue", "priority"]] = "priority"

    slice: int = Field(40_000, ge=1, description="largest number of parameters in a slice")
    servers: int = Field(0, ge=0, le=10**5, description="server machines without GPUs")

    def refusal(self, world: MethodContext) -> str:
        """Return why slices too small to be simulated one by one are refused, or ""."""
        elements = world.profile.elements if world.profile else 0
        return too_many(elements, self.slice, "slice")

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return a job for each gradient: its slices, and the layer that waits for them."""
        return crossing_jobs(buckets, world, self.sends)

    def sends(self, bucket: Bucket, rank: int) -> list[Send]:
        """Return push and pull of each slice."""
        parts = [
            part
            for gradient in bucket.gradients
            for part in split_whole(gradient.elements, self.slice)
        ]
        return push_pull(parts, -rank, self.servers, bucket.gradients[0].value_bytes)
