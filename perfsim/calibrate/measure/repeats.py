"""Ranks that die: every rank beats once a second, and whoever stays silent is named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

__all__ = ["CONFIDENCE", "FEWEST", "Repeats", "half_width", "settled"]

CONFIDENCE = 0.90
FEWEST = 5
"""Of 5 samples least and greatest enclose the median with 1 - 2 / 2^5 = 94 %; of 4 with 88 %."""


class Repeats:
    """What was timed several times, and how well its time is known."""

    __slots__ = ()

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median repeat [s]."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the median's 90 % interval over the median; infinite of fewer than 5 repeats."""
        return half_width(self.seconds)


def half_width(samples: Sequence[float]) -> float:
    """Return half the width of the median's 90 % interval, over the median.

    The interval needs no distribution: the k-th least and k-th greatest of n samples enclose the
    median with probability 1 - 2 P(Binomial(n, 1/2) < k) (David & Nagaraja, Order Statistics,
    3rd ed. 2003, section 7.1). Fewer than `FEWEST` samples tell nothing: infinite.

    Examples
    --------
    >>> round(half_width([1.0, 1.02, 0.98, 1.0, 1.04]), 3)
    0.03
    >>> half_width([1.0, 1.0])
    inf
    """
    if len(samples) < FEWEST:
        return math.inf
    ordered = sorted(samples)
    place = _place(len(ordered))
    return (ordered[-1 - place] - ordered[place]) / 2 / median(ordered)


def settled(samples: Sequence[float], tolerance: float) -> bool:
    """Say whether the median is known within a fraction of itself."""
    return half_width(samples) <= tolerance


@lru_cache(maxsize=256)
def _place(count: int) -> int:
    """Return the largest place from either end that still encloses the median often enough."""
    below = 0.0
    for place in range(count // 2 + 1):
        below += math.comb(count, place) / 2**count
        if 1.0 - 2.0 * below < CONFIDENCE:
            return place - 1
    return count // 2
