"""Timing calls of torch.distributed: by the clock on CPUs, by CUDA events on GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["on_cpu", "on_gpu"]

CALLS = 5
"""Calls between two CUDA events, as nccl-tests times many and divides."""


def on_cpu(call: Callable[[], Any], of: Any, repeats: int, aligned: bool) -> list[float]:
    """Return this rank's seconds of each repeat.

    Parameters
    ----------
    call : runs the collective once and waits for it
    of : torch's group of ranks
    repeats : calls
    aligned : start each from a barrier, else only the first
    """
    import torch.distributed as dist

    dist.barrier(group=of)
    seconds = []
    for _ in range(repeats):
        if aligned:
            dist.barrier(group=of)
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return seconds


def on_gpu(call: Callable[[], Any], of: Any, repeats: int, aligned: bool) -> list[float]:
    """Return this rank's seconds of each repeat, by events on its stream.

    A repeat is `CALLS` calls, whose mean counts, or one if ``aligned``; parameters as `on_cpu`.
    """
    import torch
    import torch.distributed as dist

    calls = 1 if aligned else CALLS
    token = torch.zeros(1, device="cuda")
    seconds = []
    for _ in range(repeats):
        # A barrier of GPUs, on the stream: none begins before the last has come, and the calls
        # are on the stream before it ends.
        dist.all_reduce(token, group=of)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        seconds.append(first.elapsed_time(last) / 1e3 / calls)
    return seconds
