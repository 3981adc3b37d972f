"""One call of each collective of torch.distributed, with buffers of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from perfsim.calibrate.sweep.groups import Group

__all__ = ["SHARED", "make_call"]

FLOAT_BYTES = 4
ROOTED = frozenset({"broadcast", "reduce"})
SHARED = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
"""Their size is that of all ranks' blocks."""


def make_call(
    collective: str, group: Group, of: Any, rank: int, size_bytes: int, device: str
) -> Callable[[], Any]:
    """Return what runs a collective once on float32 buffers.

    Parameters
    ----------
    collective : its name
    group, of : the ranks, and torch's group of them
    rank : of this process in the job
    size_bytes : blocks of all ranks for `SHARED`, rounded down to whole ones, else one buffer
    device : "cuda" or "cpu", where the buffers lie
    """
    import torch
    import torch.distributed as dist

    block = max(1, size_bytes // FLOAT_BYTES // len(group.ranks))
    count = block * len(group.ranks) if collective in SHARED else size_bytes // FLOAT_BYTES
    data = torch.zeros(max(1, count), device=device)
    if collective in ROOTED:
        return partial(getattr(dist, collective), data, group.ranks[0], group=of)
    if collective == "send_recv":
        sends = rank == group.ranks[0]
        peer = group.ranks[1 if sends else 0]
        return partial(dist.send if sends else dist.recv, data, peer, group=of)
    if collective == "all_reduce":
        return partial(dist.all_reduce, data, group=of)
    if collective == "all_to_all":
        return partial(dist.all_to_all_single, torch.zeros_like(data), data, group=of)
    part = torch.zeros(block, device=device)
    if collective == "all_gather" and device == "cpu":
        return partial(dist.all_gather, list(data.split(block)), part, group=of)
    gathers = collective == "all_gather"
    call = dist.all_gather_into_tensor if gathers else dist.reduce_scatter_tensor
    return partial(call, *((data, part) if gathers else (part, data)), group=of)
