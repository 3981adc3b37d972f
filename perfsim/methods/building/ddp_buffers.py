"""What DDP does whatever its communication hook: it broadcasts buffers and keeps buckets.

References
----------
pytorch/pytorch v2.13 torch/nn/parallel/distributed.py, _pre_forward and _sync_buffers (before each
forward pass, from rank 0 of the process group, unless broadcast_buffers is off);
torch/csrc/distributed/c10d/reducer.cpp of the same, broadcast_coalesced; pytorch/pytorch@00463a45
torch/csrc/distributed/c10d/reducer.hpp, BucketReplica (``contents``: made once, filled by copies).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Group,
    Job,
    Method,
    MethodContext,
    MethodState,
    PassPoint,
    Send,
)

__all__ = ["DdpBuckets", "DdpBuffers"]


class DdpBuckets(Method):
    """A method whose gradients DDP copies into its buckets, whatever is done with these.

    Memory: buckets as large as all gradients. They stay from one iteration to the next beside the
    gradients, which are copied in and out (gradient_as_bucket_view is off by default).
    """

    def runs_in_ddp(self, world: MethodContext) -> bool:
        """Tell whether DDP reduces the gradients with these options."""
        return True

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return that gradients are copied into DDP's buckets, where it reduces them."""
        return super().state(world, each=each)._replace(buckets=self.runs_in_ddp(world))


class DdpBuffers(DdpBuckets):
    """A method in DDP, which broadcasts the model's buffers and keeps buckets of gradients.

    Buffers are what a model keeps and does not train: running means of batch normalisation, tables
    of rotary positions. Rank 0 broadcasts them before the forward pass, which waits for them,
    unless broadcast_buffers is off. ``buffers_mib`` says how large they are; by default there are
    none. Left out: copies of buffers into their message and back.
    """

    buffers_mib: float = Field(
        0.0, ge=0, le=1e6, description="the model's buffers, broadcast before each forward pass"
    )

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the broadcast of the buffers, if there are any, and the method's own jobs."""
        return [*self.buffer_jobs(), *super().jobs(buckets, world, iteration)]

    def buffer_jobs(self, group: Group = "all") -> list[Job]:
        """Return the broadcast among the ranks of DDP's process group; none without buffers."""
        if not self.buffers_mib:
            return []
        start = PassPoint("forward")
        sent = Send("broadcast", self.buffers_mib * 2**20, group=group)
        return [Job("buffers", (sent,), start, start)]
