"""Each instant to one cause: a sweep over intervals, O(n log n)."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["PARTS", "attribute", "communication_s"]

PARTS = (
    "forward",
    "backward",
    "compression",
    "second_order",
    "communication_exposed",
    "update",
    "other",
)
"""The parts of an iteration, as a prediction shows them."""

PART_OF = {
    "forward": "forward",
    "backward": "backward",
    "compress": "compression",
    "decompress": "compression",
    "second_order": "second_order",
    "communicate": "communication_exposed",
    "update": "update",
    "other": "other",
}

ELSEWHERE = ("compression", "second_order", "communication_exposed")
"""What counts on streams other than compute while that one is idle, first match first."""

Interval = tuple[bool, str, float, float]
"""(on the compute stream, kind, start, end), clipped to the window."""


def attribute(intervals: Iterable[Interval], window_s: float) -> dict[str, float]:
    """Return the seconds of each part in a window of ``window_s``; they sum to it.

    Examples
    --------
    >>> runs = [(True, "backward", 0.0, 2.0), (False, "communicate", 1.0, 5.0)]
    >>> parts = attribute(runs, 6.0)
    >>> parts["backward"], parts["communication_exposed"], parts["other"]
    (2.0, 3.0, 1.0)
    """
    marks: list[tuple[float, int, int]] = []
    order = [(True, part) for part in PARTS] + [(False, part) for part in ELSEWHERE]
    level_of = {key: level for level, key in enumerate(order)}
    for on_compute, kind, start, end in intervals:
        level = level_of.get((on_compute, PART_OF[kind]))
        if level is not None and end > start:
            marks.append((start, level, 1))
            marks.append((end, level, -1))
    marks.sort()
    spent: dict[str, list[float]] = {part: [] for part in PARTS}
    running = [0] * len(order)
    before = 0.0
    for moment, level, change in marks:
        if moment > before:
            for place, active in enumerate(running):
                if active:
                    spent[order[place][1]].append(moment - before)
                    break
        before = moment
        running[level] += change
    parts = {part: math.fsum(seconds) for part, seconds in spent.items()}
    # What nothing claims is the rest, so that the parts sum to the window to the last digit.
    parts["other"] = 0.0
    parts["other"] = max(0.0, window_s - math.fsum(parts.values()))
    return parts


def communication_s(intervals: Iterable[Interval]) -> tuple[float, float]:
    """Return seconds with any communication, and those of them beside work on compute.

    Communication on the compute stream itself is busy, and hidden by nothing.

    Examples
    --------
    >>> communication_s([(True, "backward", 0.0, 2.0), (False, "communicate", 1.0, 5.0)])
    (4.0, 1.0)
    """
    marks: list[tuple[float, bool, int]] = []
    for on_compute, kind, start, end in intervals:
        communicates = kind == "communicate"
        if (communicates or on_compute) and end > start:
            marks.append((start, communicates, 1))
            marks.append((end, communicates, -1))
    marks.sort()
    busy: list[float] = []
    hidden: list[float] = []
    communicating = computing = 0
    before = 0.0
    for moment, communicates, change in marks:
        if communicating and moment > before:
            busy.append(moment - before)
            if computing:
                hidden.append(moment - before)
        before = moment
        if communicates:
            communicating += change
        else:
            computing += change
    return math.fsum(busy), math.fsum(hidden)
