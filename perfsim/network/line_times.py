"""The times of an algorithm over links, by the size of its message, as its formula has them.

Where the formula is a line, sizes that lie on one piece of a latency curve are priced in one go.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from perfsim.by_size import MessageSizes, Times, TimesBySize, arrays, one_by_one
from perfsim.collectives import Line
from perfsim.network.link import LatencyLines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["line_times", "rising"]


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


def line_times(line: Line, latencies: LatencyLines) -> TimesBySize:
    """Return what `rising` returns where the formula is a line.

    Between two knots it is ``constant + share n s_per_byte + rise ln n``, whose numbers are worked
    out here, once for each piece.
    """
    knots, log = latencies.knots, math.log
    share, s_per_byte = line.share, line.s_per_byte
    pieces: list[tuple[float, float, float]] = []
    as_arrays: list[NDArray[np.float64]] = []  # of knots and pieces, once they are asked for

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
        if not as_arrays:
            as_arrays[:] = np.array(knots), np.array([*zip(*pieces, strict=True)])
        sizes_bytes, logs = sizes.as_arrays
        place = as_arrays[0].searchsorted(sizes_bytes, "right")
        constants_s, rises_s, peaks_s = as_arrays[1].take(place, axis=1)
        seconds = constants_s + share * sizes_bytes * s_per_byte + rises_s * logs
        times: Times = np.maximum(peaks_s, seconds)
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
