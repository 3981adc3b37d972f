"""ACP-SGD's buckets: filled by what is sent, to a limit that shrinks as the model's message does.

    limit = --bucket x (bytes sent for the model / bytes of its gradients)

so that there are about as many buckets as without compression. A bucket closes before it would
exceed the limit. ACP-SGD sends a P and a Q factor in turn and has buckets for each: the sizes are
what ``message_bytes`` says for the step in question. The default of 25 MB is 25 x 1024 x 1024
bytes in the authors' code.

References
----------
Zhang, Shi, Wang & Li, "Evaluation and Optimization of Gradient Compression for Distributed Deep
Learning", ICDCS 2023 (arXiv 2306.08881). Code: lzhangbv/acpsgd at ec75a2a9, acpsgd.py,
``_generate_groups_with_threshold``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext, fill

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "ACP-SGD: filled by what is sent, 25 MiB x (compressed / full size)"
OPTIONS: Mapping[str, str] = {}

LIMIT_BYTES = 25 * 2.0**20


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return buckets whose messages stay below the scaled limit."""
    if not gradients:
        return []
    limit = LIMIT_BYTES if context.limit_bytes is None else context.limit_bytes
    sent_bytes = sum(map(context.message_bytes, gradients))
    full_bytes = sum(gradient.size_bytes for gradient in gradients)
    return fill(gradients, context.message_bytes, limit * sent_bytes / full_bytes)
