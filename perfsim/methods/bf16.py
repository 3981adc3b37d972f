"""Dense gradients all-reduced in bf16 by PyTorch's hook."""

from typing import ClassVar

from perfsim.compute.kernel import HALF
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, MethodContext
from perfsim.methods.building.ddp_buffers import DdpBuffers
from perfsim.methods.building.ddp_hooks import half_hook


class Bf16(DdpBuffers):
    """Sends every bucket as bf16 by an all-reduce as soon as it is ready, in backward order.

    It is PyTorch's bf16_compress_hook: the code of `fp16` (library "ddp") with another type. In the
    hook, on the compute stream, the bucket is cast (reads 4 and writes 2 bytes a value, 1 launch)
    and divided by P in bf16 (1 pass, 1 launch). The future's callback casts the reduced bucket back
    (1 launch) on a stream of its own and blocks neither host nor backward pass. There is no error
    feedback. Buckets are those of the fp32 gradients.

    Bytes a rank: 2 (P-1)/P x 2 a parameter (ring).
    Memory: DDP's buckets (see `ssgd`); a bucket's bf16 copy lives while it is sent.
    Left out: the time that the callback's kernel takes from the backward pass beside it; copies
    into buckets (see `ssgd`); what bf16 takes on GPUs without it, which emulate it.
    """

    summary: ClassVar[str] = "gradients cast to bf16, all-reduced, cast back (bf16_compress_hook)"
    citation: ClassVar[str] = (
        "PyTorch DDP communication hook of 2021: pytorch/pytorch@38dfbe6f"
        " torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py (bf16_compress_hook),"
        " @007b9534 torch/futures/__init__.py (Future.then)"
    )
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = "2 * (P - 1) / P * 2 * n"
    needs: ClassVar[str] = "NCCL 2.9.7 or later"

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return cast, all-reduce and cast back."""
        return half_hook(bucket.elements)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return two bytes a value."""
        return float(HALF * gradient.elements)
