"""Horovod's tensor fusion: a background thread takes what was pushed, a cycle at a time.

A cycle starts ``cycle_time`` after the one before, or when that one is over. It takes the tensors
whose hooks have run, waits until all ranks agree on them (``agreement_s`` of the method), fuses
them in order into buffers that never exceed the threshold (``--bucket``; a tensor larger than the
threshold goes alone), and, buffer by buffer, waits until the GPU has the last of its gradients
before it hands the buffer to NCCL. It does not wait for NCCL, so that a slow network does not make
buffers larger; gradients that are not there yet and a long agreement do, since nothing is taken
meanwhile. A bucket is ready when it is handed over. Sizes are those of what
is sent, since Horovod compresses before it fuses.

A hook runs when the host issues that part of the backward pass, which may be long before the GPU
is there: every ``hook`` the host comes to the next tensor, but not after the gradient is there.
It begins ``ahead`` of the GPU: not at all where the loss is read before the backward pass, as in
Horovod's ImageNet example. ``--set fusion.hook=1s`` lets every hook run when its gradient is
there, so that no buffer is waited for. The default is what an iteration of PyTorch takes a tensor
where the host sets the pace (random data, batch 12, on an A100: 0.22 ms for ResNet-50 of 161
tensors, 0.20 to 0.26 for five more nets; at batch 256 the GPU needs a third of that a sample):
forward and update are in it, and Horovod's part of a hook is not.

Defaults: cycle 1 ms and threshold 128 MiB, Horovod's since 0.21.0 (5 ms and 64 MiB before, which
Horovod's own page on tensor fusion still names). The phase of the cycles is not known in a real
run: here they count from the start of the backward pass.

References
----------
Sergeev & Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow",
arXiv 1802.05799, section 4. Code: horovod/horovod@2626dc87, horovod/common/operations.cc,
``RunLoopOnce`` and ``PerformOperation``; controller.cc, ``ComputeResponseList`` and
``FuseResponses``; ops/collective_operations.cc, ``WaitForData`` (in ``PerformOperation`` in
v0.16.4, v0.19.5 and v0.21.3); torch/mpi_ops_v2.cc, ``DoAllreduce``; CHANGELOG 0.21.0 (pull request
2468). Hooks: horovod/horovod issue 665 (all at nearly the same time); examples/pytorch/
pytorch_imagenet_resnet50.py; ryujaehun/pytorch-gpu-benchmark@3f47a9e2 results/dgx-a100.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError, shown
from perfsim.fusion.bucket import Bucket, FusionContext, fill
from perfsim.quantity import NumberLimit
from perfsim.units import parse_seconds

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "Horovod: every cycle (1 ms) the ready tensors go out in buffers up to 128 MiB"
OPTIONS: Mapping[str, str] = {
    "cycle_time": "time between two cycles (default 1ms)",
    "hook": "time from one tensor's hook to the next on the host (default 0.2ms)",
    "ahead": "how long before the GPU the host begins the backward pass (default 0s)",
}

LIMIT_BYTES = 128 * 2.0**20
CYCLE = "1ms"
CYCLES = NumberLimit(1e-6, 100.0, "1us to 100s, or 0s for no cycle")
HOOK = "0.2ms"
ROUNDING = 1e-9
"""A hook that runs within this part of a cycle after its start still makes that cycle."""


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return Horovod's buffers; each ready when it is handed to NCCL.

    Raises
    ------
    RequestError
        If the option ``cycle_time`` is not a time or outside its limits, or ``hook`` or
        ``ahead`` is no time.
    """
    cycle_s = _cycle_s(context.options.get("cycle_time", CYCLE))
    hook_s = parse_seconds(context.options.get("hook", HOOK), "fusion.hook")
    ahead_s = parse_seconds(context.options.get("ahead", "0s"), "fusion.ahead")
    limit = LIMIT_BYTES if context.limit_bytes is None else context.limit_bytes
    pushed_s = [
        min(gradient.ready_s, number * hook_s - ahead_s)
        for number, gradient in enumerate(gradients, start=1)
    ]
    buckets: list[Bucket] = []
    start_s, first = -ahead_s, 0
    while first < len(gradients):
        start_s = _next_s(start_s, cycle_s, pushed_s[first])
        stop = first + 1
        while stop < len(gradients) and pushed_s[stop] <= start_s + ROUNDING * cycle_s:
            stop += 1
        end_s = start_s + context.agreement_s(stop - first)
        for bucket in fill(gradients[first:stop], context.message_bytes, limit):
            end_s = max(end_s, bucket.ready_s)
            buckets.append(Bucket(bucket.gradients, end_s))
        start_s, first = max(start_s + cycle_s, end_s), stop
    return buckets


def _next_s(start_s: float, cycle_s: float, pushed_s: float) -> float:
    """Return when the first cycle starts that finds a tensor: cycles with none go by."""
    if pushed_s <= start_s + ROUNDING * cycle_s:
        return start_s
    if cycle_s == 0:
        return pushed_s
    cycles = math.ceil((pushed_s - start_s) / cycle_s - ROUNDING)
    return max(start_s + cycles * cycle_s, pushed_s)


def _cycle_s(text: str) -> float:
    cycle_s = parse_seconds(text, "fusion.cycle_time")
    if cycle_s and not CYCLES.holds(cycle_s):
        raise RequestError(f"fusion.cycle_time: {shown(text)} is outside {CYCLES.words}.")
    return cycle_s
