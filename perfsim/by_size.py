"""What a collective takes by the size of its message: one size at a time, or many at once.

A fusion policy asks about hundreds of sizes, the same on every network. Their logarithms are worked
out once, and whoever prices them may do so in one go.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

from perfsim.quantity import Timing

__all__ = [
    "MessageSizes",
    "Timer",
    "TimesBySize",
    "fastest_of",
    "message_sizes",
    "one_by_one",
    "slowest_of",
]


class MessageSizes(NamedTuple):
    """Sizes of messages that are priced together: each once, the smallest first.

    Parameters
    ----------
    sizes_bytes, logs : the sizes, and their logarithms; 0 for a size of 0
    """

    sizes_bytes: tuple[float, ...]
    logs: tuple[float, ...]

    @classmethod
    def of(cls, sizes_bytes: Iterable[float]) -> MessageSizes:
        """Return some sizes, which may repeat, as those that are priced together.

        Examples
        --------
        >>> MessageSizes.of([8.0, 1.0, 8.0]).sizes_bytes
        (1.0, 8.0)
        """
        sizes = tuple(sorted(set(sizes_bytes)))
        return cls(sizes, tuple([math.log(size) if size else 0.0 for size in sizes]))


@lru_cache(maxsize=64)  # a sweep over networks asks about the same gradients on each
def message_sizes(sizes_bytes: tuple[float, ...]) -> MessageSizes:
    """Return `MessageSizes.of` some sizes, which somebody asks about again and again."""
    return MessageSizes.of(sizes_bytes)


Timer = Callable[[float], Timing]
"""A function of a size that returns the time of a collective and what a rank sends."""


class TimesBySize(NamedTuple):
    """What tells the time of a collective by the size of its message.

    Parameters
    ----------
    of : returns the time for a size [s]
    of_each : returns the times for some sizes, in their order, as ``of`` does for each
    """

    of: Callable[[float], float]
    of_each: Callable[[MessageSizes], list[float]]


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
    return _chosen(operator.lt, min, times)


def slowest_of(times: Sequence[TimesBySize]) -> TimesBySize:
    """Return the longest of some times, for each size."""
    return _chosen(operator.gt, max, times)


def _chosen(
    goes_first: Callable[[float, float], bool],
    choose: Callable[[float, float], float],
    times: Sequence[TimesBySize],
) -> TimesBySize:
    """Return the times of which one goes before the others; of equal ones the first stands."""

    def of_two(one: TimesBySize, other: TimesBySize) -> TimesBySize:
        one_of, other_of = one.of, other.of

        def of(size_bytes: float) -> float:
            one_s, other_s = one_of(size_bytes), other_of(size_bytes)
            return other_s if goes_first(other_s, one_s) else one_s

        def of_each(sizes: MessageSizes) -> list[float]:
            return [*map(choose, one.of_each(sizes), other.of_each(sizes))]

        return TimesBySize(of, of_each)

    return reduce(of_two, times)
