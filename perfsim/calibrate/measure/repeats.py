"""How well the median of repeated timings is known, and when enough repeats are done."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import median

from perfsim.errors import RequestError, shown
from perfsim.sums import sum_in_order
from perfsim.units import parse_fraction

__all__ = [
    "CONFIDENCE",
    "MAX_TOLERANCE",
    "MIN_REPEATS",
    "MIN_TOLERANCE",
    "Repeats",
    "ReportProgress",
    "half_width",
    "mean_of",
    "parse_tolerance",
    "settled",
]


ReportProgress = Callable[[int, int, str], None]
"""Takes how many points are done, how many there are, and the current point in words."""

CONFIDENCE = 0.90
"""Probability with which the interval of a median holds it: DESIGN.md section 6."""
LONGEST_SHARE = 0.1
"""Share of the longest repeats that count in a mean as long as the longest of the others: one stall
among few repeats would else outweigh all others. No source: chosen; a winsorized mean."""
MIN_REPEATS = 5
"""The extremes of 5 samples enclose the median with 1 - 2 / 2^5 = 94 %, those of 4 with 88 %."""
MIN_TOLERANCE = 1e-4
"""The least half-width that can be asked for; points that do not reach it end by their budget. No
source: chosen, below what clocks show."""
MAX_TOLERANCE = 0.5
"""The widest one. No source: chosen: the first 5 repeats reach it where they differ by a factor 3,
and a wider one would take any repeats for settled."""


class Repeats:
    """The repeated timings of one thing: their median and how well it is known."""

    __slots__ = ()

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median repeat [s]."""
        return median(self.seconds)

    @property
    def mean_s(self) -> float:
        """The mean repeat, `mean_of` [s]."""
        return mean_of(self.seconds)

    @property
    def spread(self) -> float:
        """Half the median's 90 % interval over the median; infinite below 5 repeats."""
        return half_width(self.seconds)


def mean_of(samples: Sequence[float]) -> float:
    """Return the mean of repeats, in which the longest tenth is as long as the next one.

    A sequence of messages takes the sum of their times, which the median does not tell where some
    calls wait for a core or a segment and others do not.

    Examples
    --------
    >>> mean_of([1.0] * 7 + [3.0] * 2 + [200.0])
    1.6
    """
    ordered = sorted(samples)
    kept = max(1, len(ordered) - math.ceil(LONGEST_SHARE * len(ordered)))
    return (sum_in_order(ordered[:kept]) + (len(ordered) - kept) * ordered[kept - 1]) / len(ordered)


def half_width(samples: Sequence[float]) -> float:
    """Return half the width of the median's 90 % interval, over the median.

    The interval assumes no distribution. The k-th smallest and k-th largest of n samples enclose
    the median with probability 1 - 2 P(Binomial(n, 1/2) < k) (David & Nagaraja, Order Statistics,
    3rd ed. 2003, section 7.1). Below `MIN_REPEATS` samples the width is infinite.

    Examples
    --------
    >>> round(half_width([1.0, 1.02, 0.98, 1.0, 1.04]), 3)
    0.03
    >>> half_width([1.0, 1.0])
    inf
    """
    if len(samples) < MIN_REPEATS:
        return math.inf
    ordered = sorted(samples)
    index = _interval_index(len(ordered))
    return (ordered[-1 - index] - ordered[index]) / 2 / median(ordered)


def settled(samples: Sequence[float], tolerance: float) -> bool:
    """Say whether half the median's interval is within this fraction of the median."""
    return half_width(samples) <= tolerance


def parse_tolerance(text: str) -> float:
    """Parse the half-width at which a point is done, such as "2%".

    Raises
    ------
    RequestError
        If it is none that repeats can be held to.

    Examples
    --------
    >>> parse_tolerance("2%")
    0.02
    """
    share = parse_fraction(text, "tolerance")
    if not MIN_TOLERANCE <= share <= MAX_TOLERANCE:
        why = (
            f"{shown(text)} is not allowed: it must be {MIN_TOLERANCE:.2%} to {MAX_TOLERANCE:.0%}."
        )
        raise RequestError("tolerance", why, value=text)
    return share


@lru_cache(maxsize=256)
def _interval_index(count: int) -> int:
    """Return the largest index from either end whose samples still enclose the median."""
    below = 0.0
    for index in range(count // 2 + 1):
        below += math.comb(count, index) / 2**count
        if 1.0 - 2.0 * below < CONFIDENCE:
            return index - 1
    return count // 2
