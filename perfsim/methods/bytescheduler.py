"""ByteScheduler: tensors in parts, first layers first, across the end of the iteration."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, Method, MethodContext, Send
from perfsim.methods.building.layerwise import crossing_jobs
from perfsim.methods.building.tensor_slices import PUSH_PULL, push_pull, split_evenly, too_many


class Bytescheduler(Method):
    """Sends every tensor in parts; a part of an earlier layer overtakes those of later layers.

    Each tensor is cut by itself: one of more than ``partition`` parameters is cut along its first
    axis into equal parts. Of the parts that are ready, the one that comes first in the model goes
    next. Nothing waits at the end of the iteration: a layer of the next forward pass waits for the
    parts of its own tensors and is then updated. ``transport`` "all_reduce" is the PyTorch plugin
    over Horovod. "ps" is the MXNet plugin: it pushes each part to sharded servers and pulls it
    back. The servers run on the workers' nodes and, with ``servers``, on machines of their own too.

    Parts are handed to the library while those under way hold fewer than ``credit`` parameters. A
    part that was handed over cannot be overtaken (`perfsim.methods.base.Send`). A credit of 0 means
    one part at a time.

    The code cuts at 1 million parameters. Its notes advise 8 million for all-reduces; DeAR's
    authors ran it with 4 million. No kernels of its own.

    Bytes a rank: 2 (P-1)/P x 4 a parameter, down to 4 with P further servers.
    Memory: none more.
    Left out: the search that tunes part size and credit during training; Horovod's cycle and its
    fusion of parts; the threads that poll for ready tensors; a tensor's update before its layer's
    turn; for "ps", copies to the host, sums on the servers' CPUs and the optimizer, which MXNet
    runs there too.
    """

    summary: ClassVar[str] = "tensors in parts, first layers first, across iterations"
    citation: ClassVar[str] = (
        "Peng et al. 2019, A Generic Communication Scheduler for Distributed DNN Training"
        " Acceleration, SOSP; code bytedance/byteps@27498487 (branch bytescheduler)"
        " bytescheduler/common/bytecore.py, pytorch/horovod.py, mxnet/kvstore_task.py"
    )
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = PUSH_PULL
    fusion: ClassVar[str] = "none"
    lossy: ClassVar[bool] = False
    order: ClassVar[Literal["issue", "priority"]] = "priority"

    partition: int = Field(1_000_000, ge=1, description="most parameters in a part of a tensor")
    transport: Literal["all_reduce", "ps"] = Field(
        "all_reduce", description="Horovod's all-reduce, or pushes and pulls to sharded servers"
    )
    credit: int = Field(
        4_000_000, ge=0, le=10**9, description="parameters handed over before others may overtake"
    )
    servers: int = Field(0, ge=0, le=10**5, description="ps: server machines without GPUs")

    def refusal(self, world: MethodContext) -> str:
        """Return why servers or such small parts are refused, or ""."""
        if self.servers and self.transport == "all_reduce":
            return "has no servers where transport is all_reduce; set transport=ps, or no servers"
        elements = world.profile.elements if world.profile else 0
        return too_many(elements, self.partition, "partition")

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return one job a tensor: its parts, and the layer that waits for them."""
        return crossing_jobs(buckets, world, self.sends)

    def sends(self, bucket: Bucket, rank: int) -> list[Send]:
        """Return the collectives of each part; parts do not wait for each other."""
        parts = [one for each in bucket.gradients for one in split_evenly(each, self.partition)]
        width = bucket.gradients[0].value_bytes
        if self.transport == "ps":
            sends = push_pull(parts, -rank, self.servers, width)
        else:
            sizes_bytes = [float(width * part) for part in parts]
            sends = [
                Send("all_reduce", size, awaited=False, priority=-rank) for size in sizes_bytes
            ]
        return [one._replace(credit_bytes=float(width * self.credit)) for one in sends]
