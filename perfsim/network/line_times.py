"""The times of an algorithm over links, by the size of its message, as its formula has them.

Where the formula is a line, sizes that lie on one piece of a latency curve are priced in one go.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from perfsim.by_size import MessageSizes, Times, TimesBySize, arrays, one_by_one
from perfsim.collectives import Line
from perfsim.network.link import Latency

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LatencyLines", "line_times", "rising"]

_MAX_KEPT = 32
"""Curves inside nodes beside one between them, and lines over both, of which something is kept. No
source: chosen."""


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


@dataclass
class LatencyLines:
    """The latencies inside nodes and between them as lines over ln n, on the pieces of both.

    Parameters
    ----------
    knots : all sizes at which a piece of one of both begins, in order
    pieces : of each, from 0 on: where it begins, the logarithm of that, what a hop inside nodes is
        at 0 and what it rises by, and the same of one between nodes [s/hop]; 0 where there is none
    times : the times of `line_times` over them, by the line of a formula
    """

    knots: list[float]
    pieces: list[tuple[float, float, float, float, float, float]]
    times: dict[Line, TimesBySize] = field(default_factory=dict)

    @classmethod
    def of(cls, intra: Latency | None, inter: Latency | None) -> LatencyLines:
        """Return the lines of two curves; kept, as each collective of a cluster asks for them."""
        one, other = (inter, intra) if inter else (intra, None)
        if one is None:
            return cls([], [(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)])
        which = id(other), inter is None
        kept = one.beside.get(which)
        if kept is not None and kept[0] is other:
            known: LatencyLines = kept[1]
            return known
        found = cls._of(intra, inter)
        if len(one.beside) >= _MAX_KEPT:
            one.beside.clear()
        one.beside[which] = other, found
        return found

    @classmethod
    def _of(cls, intra: Latency | None, inter: Latency | None) -> LatencyLines:
        curves = [curve for curve in (intra, inter) if curve is not None]
        knots = sorted({size for curve in curves for size in curve.size_bytes})
        pieces = []
        for place, size in enumerate((0.0, *knots)):
            near_s, near_rise_s = intra.line(size) if intra else (0.0, 0.0)
            far_s, far_rise_s = inter.line(size) if inter else (0.0, 0.0)
            # Latencies are constant before the first knot, and from the last one on.
            if not 0 < place < len(knots):
                near_rise_s = far_rise_s = 0.0
            log = math.log(size) if size else 0.0
            pieces.append((size, log, near_s, near_rise_s, far_s, far_rise_s))
        return cls(knots, pieces)


def line_times(line: Line, latencies: LatencyLines) -> TimesBySize:
    """Return what `rising` returns where the formula is a line.

    Between two knots it is ``constant + share n s_per_byte + rise ln n``, whose numbers are worked
    out here, once for each piece. Collectives with the same line share their times, as a ring's
    all-gather and its reduce-scatter, and clusters whose longest ring measured is the same.
    """
    kept = latencies.times
    known = kept.get(line)
    if known is None:
        if len(kept) >= _MAX_KEPT:
            kept.clear()
        known = kept[line] = _line_times(line, latencies)
    return known


def _line_times(line: Line, latencies: LatencyLines) -> TimesBySize:
    knots, log = latencies.knots, math.log
    share, s_per_byte = line.share, line.s_per_byte
    pieces: list[tuple[float, float, float]] = []
    as_arrays: list[NDArray[np.float64]] = []  # of knots and pieces, once they are asked for
    latest: list[tuple[MessageSizes, Times]] = []  # who shares the line asks for the same

    def of(size_bytes: float) -> float:
        constant_s, rise_s, peak_s = pieces[bisect_right(knots, size_bytes)]
        seconds = constant_s + share * size_bytes * s_per_byte
        if rise_s:
            seconds += rise_s * log(size_bytes)
        return peak_s if peak_s > seconds else seconds

    def each(sizes: MessageSizes) -> Times:
        np = arrays()
        if np is None:
            return [of(size) for size in sizes.sizes_bytes]
        for asked, known in latest:
            if asked is sizes:
                return known
        if not as_arrays:
            as_arrays[:] = np.array(knots), np.array([*zip(*pieces, strict=True)])
        sizes_bytes, logs = sizes.as_arrays
        place = as_arrays[0].searchsorted(sizes_bytes, "right")
        constants_s, rises_s, peaks_s = as_arrays[1].take(place, axis=1)
        seconds = constants_s + share * sizes_bytes * s_per_byte + rises_s * logs
        seconds = np.maximum(peaks_s, seconds)
        seconds.flags.writeable = False
        times: Times = seconds
        latest[:] = [(sizes, times)]
        return times

    inter_hops, intra_hops = line.inter_hops, line.intra_hops
    peak_s = 0.0
    for size_bytes, log_size, near_s, near_rise_s, far_s, far_rise_s in latencies.pieces:
        constant_s = inter_hops * far_s + intra_hops * near_s
        rise_s = inter_hops * far_rise_s + intra_hops * near_rise_s
        if size_bytes:  # what ``of`` returns where the piece begins
            seconds = constant_s + share * size_bytes * s_per_byte
            if rise_s:
                seconds += rise_s * log_size
            if seconds > peak_s:  # noqa: PLR1730 (half the time of max())
                peak_s = seconds
        pieces.append((constant_s, rise_s, peak_s))
    return TimesBySize(of, each)
