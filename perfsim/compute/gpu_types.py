"""GPUs of several types in one job: whole nodes of each, and the model on one of each type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd

from perfsim.compute.device import Device
from perfsim.compute.transfer import TransferredProfile
from perfsim.errors import RequestError

__all__ = ["GpuGroup", "alone_s", "check_nodes", "gpus_per_node", "types_of_ranks"]

_Types = Sequence[tuple[str, int]]
"""Types of GPU and how many of each."""


@dataclass(frozen=True)
class GpuGroup:
    """The GPUs of one type: how many, what they can do, and the model on one of them."""

    count: int
    device: Device
    carried: TransferredProfile

    @property
    def alone_s(self) -> float:
        """An iteration on one of them [s]."""
        return self.carried.profile.alone_s


def alone_s(parts: Sequence[GpuGroup]) -> float:
    """Return the iteration on one GPU whose rate is the mean of all GPUs' rates [s].

    So ``gpus * batch / alone_s`` is what they would train together if none waited for another.
    """
    return sum(part.count for part in parts) / sum(part.count / part.alone_s for part in parts)


def gpus_per_node(types: _Types, stated: int) -> int:
    """Return the most GPUs a node, up to what is stated, that fill whole nodes of each type.

    Examples
    --------
    >>> gpus_per_node([("v100", 16), ("p100", 6)], 4)
    2
    """
    common = gcd(*(count for _, count in types))
    return next(size for size in range(min(stated, common), 0, -1) if common % size == 0)


def check_nodes(types: _Types, placement: Sequence[int], gpus: int) -> None:
    """Check that the types are all GPUs, and that all GPUs of a node are of one type.

    Raises
    ------
    RequestError
        If they are not.
    """
    if sum(count for _, count in types) != gpus:
        raise RequestError("gpu", f"the GPUs of each type are given, and are not {gpus} in all.")
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
    return tuple(number for number, count in enumerate(counts) for _ in range(count))
