"""ASC-WFBP: merge a gradient only where it waits for nothing; two messages may go at once.

Along the backward pass, the next gradient joins what is merged so far when it is ready before
that message could start, ``start = max(end of the message before, its own ready time)``: the
first case of MG-WFBP's rule. In the other case, a next gradient that comes while the message is
on its way, MG-WFBP holds it back for less than a start-up time; here it starts at once beside it.
The start times are those of messages one after the other, as in the code. ``--bucket`` is not
used.

References
----------
Shi, Chu & Li, "Exploiting Simultaneous Communications to Accelerate Data Parallel Distributed
Deep Learning", INFOCOM 2021. Code: lzhangbv/dear_pytorch@43138d8b
mgwfbp/hv_distributed_optimizer.py, ``_generate_groups_asc``, which takes alpha and beta from a
table: ``--set fusion.merge_alpha=... --set fusion.merge_beta=...`` does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext
from perfsim.fusion.mgwfbp import OPTIONS as MERGE_OPTIONS
from perfsim.fusion.mgwfbp import merge_cost

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "ASC-WFBP: merge into the next tensor when that is ready before the message could start"
OPTIONS = {name: MERGE_OPTIONS[name] for name in ("merge_alpha", "merge_beta")}
LIMIT_BYTES = None


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return the merged buckets.

    Raises
    ------
    RequestError
        See ``mgwfbp.merge_cost``.
    """
    cost_s = merge_cost(context)
    groups: list[list[Gradient]] = []
    size_bytes = start_s = 0.0
    for gradient in gradients:
        next_bytes = context.message_bytes(gradient)
        if groups and gradient.ready_s < start_s:
            groups[-1].append(gradient)
            size_bytes += next_bytes
            continue
        taken_s = cost_s(size_bytes) if groups else 0.0
        start_s = max(start_s + taken_s, gradient.ready_s)
        groups.append([gradient])
        size_bytes = next_bytes
    return [Bucket.of(group) for group in groups]
