"""Horovod's groups: the gradients in a fixed number of messages, by their count.

The gradients, in the order of registration, are cut into ``count`` lists of as many tensors each
(the first lists take one more where it does not come out even), and a list goes as one message
once its last gradient is there: no cycle fills it further, and none splits it. ``sizes`` states
the tensors of each list instead, from the first that is ready. One group is one message for the
whole model, after the backward pass (``--fusion whole``). With a ``cycle_time`` a group waits for
Horovod's thread to wake; cycles count from the start of the backward pass. MXNet hands a gradient
over once the GPU has made it, so that nothing is pushed ahead.

References
----------
Code: horovod/horovod@0051b897, horovod/mxnet/__init__.py (``DistributedOptimizer``, num_groups),
horovod/common/util.py (``split_list``); in NVIDIA's MXNet container before that:
mlcommons/training_results_v0.6@f312518c NVIDIA/benchmarks/resnet/implementations/mxnet, Dockerfile
(HOROVOD_GROUPED_ALLREDUCES, MXNET_HOROVOD_NUM_GROUPS). There MXNet groups tensors of one type at
a time; here batch normalisation's fp32 tensors stand among the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError, shown
from perfsim.fusion.bucket import Bucket, FusionContext
from perfsim.units import parse_seconds

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "Horovod's groups: a fixed number of messages, of as many tensors each"
OPTIONS: Mapping[str, str] = {
    "count": "groups (default 1)",
    "cycle_time": "time between two cycles of Horovod's thread (default 0s: it waits for nothing)",
    "sizes": "tensors of each group, from the first that is ready, as 3/21/57; the rest is one",
}
LIMIT_BYTES = None


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return a bucket a group; those that are ready first have the last registered tensors.

    Raises
    ------
    RequestError
        If ``count`` or ``sizes`` are not whole numbers above zero, or both are given, or
        ``cycle_time`` is no time.
    """
    cycle_s = parse_seconds(context.options.get("cycle_time", "0s"), "fusion.cycle_time")
    if "sizes" in context.options and "count" in context.options:
        raise RequestError("fusion.sizes: leave out fusion.count, which it takes the place of.")
    if "sizes" in context.options:
        sizes = [_whole(part, "sizes") for part in context.options["sizes"].split("/")]
    else:
        count = _whole(context.options.get("count", "1"), "count")
        each, more = divmod(len(gradients), count)
        sizes = [each] * (count - more) + [each + 1] * more
    buckets, first = [], 0
    for size in [*sizes, len(gradients)]:
        if gradients[first : first + size]:
            buckets.append(_woken(Bucket.of(gradients[first : first + size]), cycle_s))
        first += size
    return buckets


def _woken(bucket: Bucket, cycle_s: float) -> Bucket:
    """Return a bucket as the thread finds it: at the first cycle after its last gradient."""
    if cycle_s <= 0:
        return bucket
    cycles = math.floor(bucket.ready_s / cycle_s) + 1
    return Bucket(bucket.gradients, cycles * cycle_s)


def _whole(text: str, option: str) -> int:
    text = str(text).strip()
    if not text.isdecimal() or int(text) < 1:
        raise RequestError(f"fusion.{option}: {shown(text)} is not a whole number above zero.")
    return int(text)
