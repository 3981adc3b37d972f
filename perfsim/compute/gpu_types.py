"""GPUs of several types in one job: each type fills whole nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd

from perfsim.compute.device import Device
from perfsim.compute.transfer import TransferredProfile
from perfsim.errors import RequestError
from perfsim.sums import sum_in_order

__all__ = ["GpuGroup", "alone_s", "check_nodes", "gpus_per_node", "types_of_ranks"]

_Types = Sequence[tuple[str, int]]
"""Types of GPU and how many of each."""


@dataclass(frozen=True)
class GpuGroup:
    """The GPUs of one type in a job: how many, the device, and the profile moved to it."""

    count: int
    device: Device
    transferred: TransferredProfile

    @property
    def alone_s(self) -> float:
        """An iteration on one of them [s]."""
        return self.transferred.profile.alone_s


def alone_s(groups: Sequence[GpuGroup], each: Sequence[float]) -> float:
    """Return the iteration on one GPU of the mean rate of all GPUs [s].

    ``gpus * samples / alone_s`` samples/s is what they would train if none waited for another.
    ``each`` is an iteration on one GPU of each type [s].
    """
    gpus = sum(group.count for group in groups)
    return gpus / sum_in_order(group.count / one for group, one in zip(groups, each, strict=True))


def gpus_per_node(types: _Types, stated: int) -> int:
    """Return the most GPUs a node, at most ``stated``, with which each type fills whole nodes.

    Examples
    --------
    >>> gpus_per_node([("v100", 16), ("p100", 6)], 4)
    2
    """
    common = gcd(*(count for _, count in types))
    return next(size for size in range(min(stated, common), 0, -1) if common % size == 0)


def check_nodes(types: _Types, placement: Sequence[int], gpus: int) -> None:
    """Check that the types add up to all GPUs, and that each node holds one type.

    Raises
    ------
    RequestError
        If they are not.
    """
    if sum(count for _, count in types) != gpus:
        count = sum(count for _, count in types)
        raise RequestError("gpu", f"its types have {count} GPUs in all, the job has {gpus}.")
    ends = set(accumulate(placement))
    for (name, _), end in zip(types, accumulate(count for _, count in types), strict=True):
        if end not in ends:
            nodes = "+".join(map(str, placement)) if len(placement) <= 8 else f"{placement[0]} GPUs"
            raise RequestError(
                "gpu",
                f"a node ({nodes}) would hold {name} and another type; set `gpus_per_node`"
                " or `placement` so that all GPUs of a node are of one type, the first type on the"
                " first nodes.",
            )


def types_of_ranks(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the type of each rank by its number; ranks are numbered node by node.

    Examples
    --------
    >>> types_of_ranks([2, 3])
    (0, 0, 1, 1, 1)
    """
    return tuple(index for index, count in enumerate(counts) for _ in range(count))
