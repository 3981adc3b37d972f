"""What one label's steps or levels cost by size: measured lines of several numbers of nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from perfsim.cluster.growth.ring import LEAST_S

__all__ = ["Line", "Points", "look"]

Line = Sequence[tuple[float, float]]
"""(log of the size, log of the cost) as measured, sizes rising."""

Points = Mapping[int, Line]
"""Nodes -> their line."""

SAME = 0.01
"""How far outside a line is still on it: rounding of sizes."""

FADE = math.log(2.0)
"""Past a line's end, in log size, where others have taken over: one doubling, the usual grid."""


def look(
    own: Points, other: Points, place: float, slope: float, wire_s_per_byte: float
) -> float | None:
    """Return the log cost at a log size, None where nothing is known.

    The line of the most nodes that has the size, the label's own lines before those of the other
    protocols; within a doubling outside it gives way to the next, so that no step shows. A size
    that no line has goes on from the nearest end: above with ``slope``, but at no more than the
    label's larger sizes cost; below as the first point less what its bytes more take on the wire,
    and between the two labels' lines of the same nodes at most as these are joined.

    Parameters
    ----------
    own, other : lines of the label, and of the same algorithm with the other protocols
    place : log of the size
    slope : by which the log cost grows with the log size above the largest
    wire_s_per_byte : of the cost, what a byte takes on the wire; 0 where it has no such part

    Examples
    --------
    >>> line = [(math.log(1e3), math.log(1e-5)), (math.log(1e5), math.log(1e-4))]
    >>> sizes = 1e4, 1e6, 10.0
    >>> [round(math.exp(look({8: line}, {}, math.log(n), 1.0, 0.0)) * 1e6) for n in sizes]
    [32, 1000, 10]
    """
    lines = [points[nodes] for points in (own, other) for nodes in sorted(points, reverse=True)]
    if not lines:
        return None

    def reached(first: int) -> float:
        if first == len(lines):
            return _beyond(own, other, place, slope, wire_s_per_byte)
        line = lines[first]
        away = _away(line, place)
        if away <= SAME:
            return _between(line, place)
        rest = reached(first + 1)
        if away >= FADE:
            return rest
        (start, low), (_, high) = line[0], line[-1]
        edge = low if place < start else high + slope * away
        return edge + away / FADE * (rest - edge)

    return reached(0)


def _beyond(
    own: Points, other: Points, place: float, slope: float, wire_s_per_byte: float
) -> float:
    line = min(
        (points[nodes] for points in (own, other) for nodes in sorted(points, reverse=True)),
        key=lambda line: _away(line, place),
    )
    (start, low), (end, high) = line[0], line[-1]
    if place >= start:
        larger = (one[0][1] for one in own.values() if one[0][0] >= place)
        return min(high + slope * (place - end), *larger, math.inf)
    both = sorted(own.keys() & other.keys(), reverse=True)
    joined = (sorted((*own[nodes], *other[nodes])) for nodes in both)
    between = next((_between(one, place) for one in joined if _away(one, place) == 0.0), None)
    if between is not None:
        return min(low, between)
    less_s = wire_s_per_byte * (math.exp(start) - math.exp(place))
    return math.log(max(math.exp(low) - less_s, LEAST_S))


def _away(line: Line, place: float) -> float:
    """Return how far outside a line a place lies."""
    return max(line[0][0] - place, place - line[-1][0], 0.0)


def _between(line: Line, place: float) -> float:
    for (start, low), (end, high) in pairwise(line):
        if place <= end:
            return low + (high - low) * max(0.0, place - start) / (end - start)
    return line[-1][1]
