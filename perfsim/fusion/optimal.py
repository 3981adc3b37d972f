"""The partition into consecutive buckets that ends communication soonest, by dynamic programming.

With gradients 1..n in ready order, r their ready times and T the time of an all-reduce,

    end(i) = min over j < i of  max(end(j), r(i)) + T(size of j+1..i),   end(0) = 0

An earlier end of a prefix never makes the rest end later, so the recurrence is exact for messages
sent one after another, for any T. No library does this; it is the yardstick for those that do
something quicker. ``--bucket`` is not used; ``merge_alpha`` and ``merge_beta`` as in ``mgwfbp``.
Where several partitions end at the same time it takes one with the fewest buckets.
It takes n (n + 1) / 2 evaluations of T.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext
from perfsim.fusion.mgwfbp import OPTIONS as MERGE_OPTIONS
from perfsim.fusion.mgwfbp import merge_cost

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

OPTIONS = {name: MERGE_OPTIONS[name] for name in ("merge_alpha", "merge_beta")}
LIMIT_BYTES = None
SUMMARY = "the buckets that end communication soonest (exact search, no library's rule)"


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return the best buckets.

    Raises
    ------
    RequestError
        See ``mgwfbp.merge_cost``.
    """
    cost_s = merge_cost(context)
    sizes = [context.message_bytes(gradient) for gradient in gradients]
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    for last, gradient in enumerate(gradients):
        choices = []
        size_bytes = 0.0
        for first in range(last, -1, -1):
            size_bytes += sizes[first]
            end_s, buckets, _ = best[first]
            choices.append((max(end_s, gradient.ready_s) + cost_s(size_bytes), buckets + 1, first))
        best.append(min(choices))
    groups = []
    stop = len(gradients)
    while stop:
        first = best[stop][2]
        groups.append(gradients[first:stop])
        stop = first
    return [Bucket.of(group) for group in reversed(groups)]
