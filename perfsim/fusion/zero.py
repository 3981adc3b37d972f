"""DeepSpeed ZeRO's buckets: filled in ready order, never above 5e8 values.

A gradient that would take the bucket above the limit (``reduce_bucket_size``; ``--bucket`` gives
it in bytes) closes it first; one that is above the limit by itself goes alone.

References
----------
Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC
2020 (arXiv 1910.02054). Code: microsoft/DeepSpeed at 38327e07, deepspeed/runtime/zero/config.py,
``reduce_bucket_size``; stage_1_and_2.py, ``reduce_independent_p_g_buckets_and_remove_grads``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext, fill

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "DeepSpeed ZeRO: filled up to 5e8 values"
OPTIONS: Mapping[str, str] = {}

LIMIT_BYTES = 4 * 5e8


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return DeepSpeed's buckets."""
    limit = LIMIT_BYTES if context.limit_bytes is None else context.limit_bytes
    return fill(gradients, context.message_bytes, limit)
