"""DDP's broadcast of a model's buffers, which its communication hooks leave as it is.

References
----------
pytorch/pytorch v2.13 torch/nn/parallel/distributed.py, _pre_forward and _sync_buffers (before each
forward pass, from rank 0 of the process group, unless broadcast_buffers is off);
torch/csrc/distributed/c10d/reducer.cpp of the same, broadcast_coalesced.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Group, Job, Method, MethodContext, PassPoint, Send

__all__ = ["DdpBuffers"]


class DdpBuffers(Method):
    """A method in DDP, which broadcasts the model's buffers once an iteration.

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
