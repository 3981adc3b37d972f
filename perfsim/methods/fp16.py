"""Dense gradients all-reduced in half precision."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import HALF
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import HOROVOD_BUFFER_BYTES
from perfsim.methods.base import Compute, JobStage, MethodContext, OnlyWith, Send
from perfsim.methods.building.code_bases import DDP, HOROVOD, CodeBase
from perfsim.methods.building.ddp_buffers import DdpBuffers
from perfsim.methods.building.ddp_hooks import cast, half_hook, uncast


class Fp16(DdpBuffers):
    """Sends every bucket as fp16 by an all-reduce as soon as it is ready, in backward order.

    There is no error feedback. ``library`` "ddp" is PyTorch's fp16_compress_hook. In the hook, on
    the compute stream, the bucket is cast (reads 4 and writes 2 bytes a value, 1 launch) and
    divided by P in fp16 (1 pass, 1 launch). The future's callback casts the reduced bucket back (1
    launch) on a stream of its own and blocks neither host nor backward pass. Buckets are those of
    the fp32 gradients.

    "horovod" is Compression.fp16. Each tensor is cast by itself in its hook, before fusion, so
    twice as many fit a buffer (`fusion` threshold). After the backward pass each is cast back on
    the compute stream, 1 launch a tensor. The update is launched behind them, as `horovod` says.

    Bytes a rank: 2 (P-1)/P x 2 a parameter (ring).
    Memory: DDP's buckets (see `ssgd`), or Horovod's fusion buffer (see `horovod`); a bucket's fp16
    copy lives while it is sent.
    Left out: the time that the callback's kernel takes from the backward pass beside it; copies
    into buckets or fusion buffers (see `ssgd`, `horovod`).

    Casts have one point on the V100 (2**20 values); below it their time is constant.
    """

    summary: ClassVar[str] = "gradients cast to fp16, all-reduced, cast back"
    citation: ClassVar[str] = (
        "PyTorch DDP communication hook: pytorch/pytorch@38dfbe6f"
        " torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py (fp16_compress_hook),"
        " @007b9534 torch/futures/__init__.py (Future.then); Sergeev & Del Balso 2018, Horovod,"
        " arXiv 1802.05799: horovod/horovod@2626dc87 horovod/torch/compression.py, optimizer.py"
    )
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = "2 * (P - 1) / P * 2 * n"

    library: Literal["ddp", "horovod"] = Field(
        "ddp", description="who casts: DDP's hook by bucket, or Horovod's optimizer by tensor"
    )

    buffers_mib: Annotated[float, OnlyWith(library="ddp")] = Field(
        0.0, ge=0, le=1e6, description="ddp: the model's buffers, broadcast before each pass"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return cast, all-reduce and cast back."""
        if self.library == "ddp":
            return half_hook(bucket.elements)
        sizes = [gradient.elements for gradient in bucket.gradients]
        return [
            Compute(tuple(map(cast, sizes)), "compress"),
            Send("all_reduce", float(HALF * bucket.elements)),
            Compute(tuple(map(uncast, sizes)), "decompress", earliest="backward"),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return two bytes a value."""
        return float(HALF * gradient.elements)

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of the fusion buffer, where Horovod runs."""
        held_bytes = world.bucket_bytes or HOROVOD_BUFFER_BYTES
        return held_bytes if self.library == "horovod" else 0.0

    def runs_in_ddp(self, world: MethodContext) -> bool:
        """Tell whether the library is DDP."""
        return self.library == "ddp"

    def code_base(self) -> CodeBase:
        """Return the code base of the library."""
        return HOROVOD if self.library == "horovod" else DDP

    def default_fusion(self) -> str:
        """Return the fusion policy of the library."""
        return "size" if self.library == "ddp" else "threshold"
