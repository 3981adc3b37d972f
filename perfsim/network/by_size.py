"""What a collective takes by the size of its message: one size at a time, or many at once.

A fusion policy asks about hundreds of sizes, the same on every network. Their logarithms are worked
out once, and sizes that lie on one piece of a latency curve are priced in one go.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from itertools import accumulate
from typing import NamedTuple

from perfsim.collectives import Line
from perfsim.network.link import Latency
from perfsim.quantity import Timing

__all__ = [
    "MessageSizes",
    "Timer",
    "TimesBySize",
    "fastest_of",
    "line_times",
    "message_sizes",
    "one_by_one",
    "rising",
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


def rising(of: Callable[[float], float], knots: Sequence[float]) -> TimesBySize:
    """Return the times by a formula, none less than that of a smaller message.

    Parameters
    ----------
    of : the formula, which between knots falls nowhere below what it is at the knot before
    knots : sizes at which latency begins to follow another piece of its curve, in order
    """
    peaks = list(accumulate(map(of, knots), max))

    def rising_of(size_bytes: float) -> float:
        seconds = of(size_bytes)
        smaller = bisect_left(knots, size_bytes)
        return max(seconds, peaks[smaller - 1]) if smaller else seconds

    return one_by_one(rising_of)


def line_times(
    line: Line, intra: Latency | None, inter: Latency | None, knots: Sequence[float]
) -> TimesBySize:
    """Return what `rising` returns where the formula is a line.

    Between two knots it is ``constant + share n s_per_byte + rise ln n``, whose numbers are worked
    out here, once for each piece.

    Parameters
    ----------
    intra, inter : the latency of a hop inside nodes and between them; None where there is none
    knots : all sizes at which a piece of one of both begins, in order
    """
    count, log = len(knots), math.log
    share, s_per_byte = line.share, line.s_per_byte
    pieces: list[tuple[float, float | None, float]] = []

    def of(size_bytes: float) -> float:
        constant_s, rise_s, peak_s = pieces[bisect_right(knots, size_bytes)]
        seconds = constant_s + share * size_bytes * s_per_byte
        if rise_s is not None:
            seconds += rise_s * log(size_bytes)
        return peak_s if peak_s > seconds else seconds

    def of_each(sizes: MessageSizes) -> list[float]:
        each_bytes, logs = sizes
        found: list[float] = []
        at, end = 0, len(each_bytes)
        while at < end:
            piece = bisect_right(knots, each_bytes[at])
            stop = bisect_left(each_bytes, knots[piece], at) if piece < count else end
            constant_s, rise_s, peak_s = pieces[piece]
            some = each_bytes[at:stop]
            if rise_s is None:
                each_s = [constant_s + share * size * s_per_byte for size in some]
            else:
                each_s = [
                    constant_s + share * size * s_per_byte + rise_s * log_size
                    for size, log_size in zip(some, logs[at:stop], strict=True)
                ]
            found += [peak_s if peak_s > seconds else seconds for seconds in each_s]
            at = stop
        return found

    starts = (0.0, *knots)
    inter_hops, intra_hops = line.inter_hops, line.intra_hops
    near, far = (
        [(0.0, 0.0)] * len(starts) if curve is None else curve.lines_from(starts)
        for curve in (intra, inter)
    )
    peak_s = 0.0
    for place, (one, other) in enumerate(zip(near, far, strict=True)):
        (near_s, near_rise_s), (far_s, far_rise_s) = one, other
        constant_s = inter_hops * far_s + intra_hops * near_s
        rise_s = inter_hops * far_rise_s + intra_hops * near_rise_s
        # Latencies are constant before the first knot, and from the last one on.
        pieces.append((constant_s, rise_s if 0 < place < count else None, peak_s))
        if place:
            peak_s = of(starts[place])
            pieces[place] = constant_s, pieces[place][1], peak_s
    return TimesBySize(of, of_each)
