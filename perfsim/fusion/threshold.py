"""Horovod's tensor fusion: at every tick of a cycle, what is ready goes out in filled buffers.

A background thread wakes once a cycle and takes the tensors that became ready since; it fuses
them in order into buffers that never exceed the threshold (``--bucket``); a tensor larger than
the threshold goes alone. A bucket is ready at its tick, not before. The phase of the ticks is not
known in a real run: here they count from the start of the backward pass. Sizes are those of what
is sent, since Horovod compresses before it fuses.

Defaults: cycle 1 ms and threshold 128 MiB, Horovod's since 0.21.0 (5 ms and 64 MiB before, which
Horovod's own page on tensor fusion still names).

References
----------
Sergeev & Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow",
arXiv 1802.05799, section 4. Code: horovod/horovod, horovod/common/controller.cc,
``FuseResponses``; operations.cc, ``SetTensorFusionThresholdBytes`` and ``SetCycleTimeMs``;
CHANGELOG 0.21.0 (pull request 2468).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from perfsim.errors import RequestError
from perfsim.fusion.bucket import Bucket, FusionContext, fill
from perfsim.limits import Limit, shown
from perfsim.profile import Gradient
from perfsim.units import parse_seconds

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "Horovod: every cycle (1 ms) the ready tensors go out in buffers up to 128 MiB"
OPTIONS: Mapping[str, str] = {"cycle_time": "time between two cycles (default 1ms)"}

LIMIT_BYTES = 128 * 2.0**20
CYCLE = "1ms"
CYCLES = Limit(1e-6, 100.0, "1us to 100s, or 0s for no cycle")
ROUNDING = 1e-9
"""A gradient ready within this part of a cycle after a tick still makes that tick."""


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return Horovod's buffers; each ready at the tick that takes its tensors.

    Raises
    ------
    RequestError
        If the option ``cycle_time`` is not a time or outside its limits.
    """
    cycle_s = _cycle_s(context.options.get("cycle_time", CYCLE))
    limit = LIMIT_BYTES if context.limit_bytes is None else context.limit_bytes

    def tick_s(gradient: Gradient) -> float:
        if cycle_s == 0:
            return gradient.ready_s
        cycles = math.ceil(gradient.ready_s / cycle_s - ROUNDING)
        return max(cycles * cycle_s, gradient.ready_s)

    buckets: list[Bucket] = []
    for ready_s, taken in groupby(gradients, tick_s):
        buckets += [
            Bucket(bucket.gradients, ready_s)
            for bucket in fill(list(taken), context.message_bytes, limit)
        ]
    return buckets


def _cycle_s(text: str) -> float:
    cycle_s = parse_seconds(text, "fusion.cycle_time")
    if cycle_s and not CYCLES.holds(cycle_s):
        raise RequestError(f"fusion.cycle_time: {shown(text)} is outside {CYCLES.words}.")
    return cycle_s
