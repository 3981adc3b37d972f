"""What a collective takes by the size of its message: one size at a time, or many at once.

A fusion policy asks about hundreds of sizes, the same on every network. Their logarithms are worked
out once, and whoever prices them may do so in one go.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from perfsim.quantity import Timing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MessageSizes",
    "Timer",
    "Times",
    "TimesBySize",
    "arrays",
    "as_list",
    "fastest_of",
    "one_by_one",
    "slowest_of",
]


def arrays() -> Any:
    """Return numpy where it is loaded already, as in a sweep; else None.

    One prediction does not wait for its import, which takes longer than what arrays save there.
    """
    return sys.modules.get("numpy")


@dataclass(frozen=True)
class MessageSizes:
    """Sizes of messages that are priced together, each once.

    Parameters
    ----------
    sizes_bytes : the sizes
    """

    sizes_bytes: tuple[float, ...]

    @classmethod
    def of(cls, sizes_bytes: Iterable[float]) -> MessageSizes:
        """Return some sizes, which may repeat, as those that are priced together.

        Examples
        --------
        >>> MessageSizes.of([8.0, 1.0, 8.0]).sizes_bytes
        (8.0, 1.0)
        """
        return cls(tuple(dict.fromkeys(sizes_bytes)))

    @cached_property
    def logs(self) -> list[float]:
        """The logarithm of each size; 0 for a size of 0."""
        return [math.log(size) if size else 0.0 for size in self.sizes_bytes]

    @cached_property
    def as_arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sizes and their logarithms as arrays."""
        import numpy as np

        return np.array(self.sizes_bytes), np.array(self.logs)


Timer = Callable[[float], Timing]
"""A function of a size that returns the time of a collective and what a rank sends."""


Times: TypeAlias = "list[float] | NDArray[np.float64]"
"""What some sizes take [s]: a list, or an array where that is quicker."""


class TimesBySize(NamedTuple):
    """What tells the time of a collective by the size of its message.

    Parameters
    ----------
    of : returns the time for a size [s]
    each : returns the times for some sizes, in their order, as ``of`` does for each; in an array
        where that is quicker
    """

    of: Callable[[float], float]
    each: Callable[[MessageSizes], Times]

    def of_each(self, sizes: MessageSizes) -> list[float]:
        """Return the times for some sizes [s]."""
        return as_list(self.each(sizes))


def as_list(times: Times) -> list[float]:
    """Return some times as a list [s]."""
    return times if isinstance(times, list) else times.tolist()


def one_by_one(of: Callable[[float], float]) -> TimesBySize:
    """Return the times by a function that tells one at a time.

    Examples
    --------
    >>> one_by_one(lambda size: 2.0 * size).of_each(MessageSizes.of([1.0, 3.0]))
    [2.0, 6.0]
    """
    return TimesBySize(of, lambda sizes: [of(size) for size in sizes.sizes_bytes])


def fastest_of(times: Sequence[TimesBySize]) -> TimesBySize:
    """Return the shortest of some times, for each size.

    Examples
    --------
    >>> flat, steep = one_by_one(lambda size: 3.0), one_by_one(lambda size: size)
    >>> fastest_of([flat, steep]).of(2.0), slowest_of([flat, steep]).of(2.0)
    (2.0, 3.0)
    """
    return reduce(partial(_chosen, operator.lt), times)


def slowest_of(times: Sequence[TimesBySize]) -> TimesBySize:
    """Return the longest of some times, for each size."""
    return reduce(partial(_chosen, operator.gt), times)


def _chosen(
    goes_first: Callable[[Any, Any], Any], one: TimesBySize, other: TimesBySize
) -> TimesBySize:
    """Return of two times the other where it goes before the one, for each size."""
    one_of, other_of = one.of, other.of

    def of(size_bytes: float) -> float:
        one_s, other_s = one_of(size_bytes), other_of(size_bytes)
        return other_s if goes_first(other_s, one_s) else one_s

    def each(sizes: MessageSizes) -> Times:
        one_s, other_s = one.each(sizes), other.each(sizes)
        if isinstance(one_s, list) or isinstance(other_s, list):
            pairs = zip(as_list(one_s), as_list(other_s), strict=True)
            return [two if goes_first(two, first) else first for first, two in pairs]
        times: Times = arrays().where(goes_first(other_s, one_s), other_s, one_s)
        return times

    return TimesBySize(of, each)
