"""DDP's communication hooks in PyTorch: an all-reduce in fp32, in fp16 or in bf16.

fp16_compress_hook and bf16_compress_hook run the same code (``_compress_hook``) with another type.
Casts take the points measured for fp16, ``fp16_cast`` and ``fp16_uncast``: a cast to bf16 moves as
many bytes.

References
----------
pytorch/pytorch@38dfbe6f torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.kernel import HALF, Kernel, elementwise, method_code
from perfsim.fusion.buckets import Bucket, fill_up
from perfsim.fusion.policies import DDP_BUCKET_BYTES, DDP_FIRST_BUCKET_BYTES
from perfsim.methods.base import Compute, Group, Job, JobStage, PassPoint, Send

__all__ = ["cast", "ddp_buckets", "dense_hook", "half_hook", "hook_jobs", "uncast"]


def dense_hook(bucket: Bucket, group: Group = "all") -> list[JobStage]:
    """Return a bucket's division by P in the hook (2 passes), and its all-reduce.

    This is what a hook that does not compress calls (``_allreduce_fut``).
    """
    return [
        Compute((elementwise(bucket.elements, 2),), "compress"),
        Send("all_reduce", bucket.size_bytes, group=group),
    ]


def hook_jobs(buckets: Sequence[Bucket], group: Group = "all") -> list[Job]:
    """Return the jobs of buckets that a hook all-reduces as they are, each when it is ready."""
    return [
        Job(f"{number}", tuple(dense_hook(bucket, group)), PassPoint("backward", bucket.ready_s))
        for number, bucket in enumerate(buckets)
    ]


def ddp_buckets(buckets: Sequence[Bucket]) -> list[Bucket]:
    """Return the buckets that DDP makes of the gradients of some buckets, in backward order."""
    gradients = [gradient for bucket in buckets for gradient in bucket.gradients]
    return fill_up(
        sorted(gradients, key=lambda one: one.ready_s),
        lambda one: one.size_bytes,
        DDP_BUCKET_BYTES,
        DDP_FIRST_BUCKET_BYTES,
    )


def half_hook(elements: int) -> list[JobStage]:
    """Return a bucket's cast and division in the hook, its all-reduce, and the cast back.

    The division runs in 16 bits (1 pass). The cast back is the future's callback, on a stream of
    its own.

    Examples
    --------
    >>> [stage.size_bytes for stage in half_hook(1000) if isinstance(stage, Send)]
    [2000.0]
    """
    return [
        Compute((cast(elements), elementwise(elements, 1)), "compress"),
        Send("all_reduce", float(HALF * elements)),
        Compute((uncast(elements),), "decompress", stream="callback"),
    ]


def cast(elements: int) -> Kernel:
    """Return the cast of fp32 values to 16 bits."""
    return method_code("fp16_cast", elements, elementwise(elements, 1.5))


def uncast(elements: int) -> Kernel:
    """Return the cast of 16-bit values to fp32."""
    return method_code("fp16_uncast", elements, elementwise(elements, 1.5))
