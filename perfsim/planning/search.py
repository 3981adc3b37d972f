"""Search for the least of a function that is cheap, may have steps, and is asked once a place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

__all__ = ["Curve", "edge", "log_grid", "refine"]

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

Curve = dict[float, float | None]
"""Place to value; None where the function has none."""


def log_grid(low: float, high: float, factor: float) -> list[float]:
    """Return ``low`` and every ``factor`` times the one before, up to ``high``, which is the last.

    Examples
    --------
    >>> log_grid(1.0, 10.0, 2.0)
    [1.0, 2.0, 4.0, 8.0, 10.0]
    """
    steps = math.ceil(math.log(high / low) / math.log(factor) - 1e-9)
    return [float(f"{low * factor**step:.12g}") for step in range(steps)] + [high]


def refine(
    curve: Curve, value_at: Callable[[float], float | None], steps: int, *, whole: bool = False
) -> None:
    """Look for a smaller value between the neighbours of the least one, by golden section.

    Asks ``value_at`` at most ``steps`` times more and adds what it says to ``curve``. In the
    logarithm of the place; at whole numbers only if asked. Of a function with one dip the place is
    found to the neighbours' distance times 0.618 a step; of another, what was on the curve already
    is never lost.

    Examples
    --------
    >>> curve = {1.0: 9.0, 10.0: 4.0, 100.0: 8.0}
    >>> refine(curve, lambda place: (place - 20.0) ** 2, 25)
    >>> round(min(curve, key=curve.get), 1)
    20.0
    """

    def at(log_place: float) -> float:
        place = math.exp(log_place)
        place = float(round(place)) if whole else place
        if place not in curve:
            curve[place] = value_at(place)
        found = curve[place]
        return math.inf if found is None else found

    held = [place for place in sorted(curve) if curve[place] is not None]
    if len(held) < 2:
        return
    middle = held.index(_least(curve))
    low = math.log(held[max(0, middle - 1)])
    high = math.log(held[min(len(held) - 1, middle + 1)])
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    before, after = at(left), at(right)
    for _ in range(max(0, steps - 2)):
        if before <= after:
            high, right, after = right, left, before
            left = high - GOLDEN * (high - low)
            before = at(left)
        else:
            low, left, before = left, right, after
            right = low + GOLDEN * (high - low)
            after = at(right)


def edge(
    curve: Curve,
    value_at: Callable[[float], float | None],
    limit: float,
    *,
    rising: bool,
    steps: int,
    whole: bool = False,
) -> float:
    """Return the farthest place from the least on that side whose value is within ``limit``.

    Goes from the least along the curve (up if ``rising``) as long as values are within the limit,
    then halves the last gap ``steps`` times, in the logarithm.

    Examples
    --------
    >>> places = {1.0: 1.0, 10.0: 1.0, 100.0: 10.0}
    >>> found = edge(places, lambda place: place / 10.0, 2.0, rising=True, steps=30)
    >>> round(found, 3)
    20.0
    """

    def within(place: float) -> bool:
        found = curve[place]
        return found is not None and found <= limit

    order: Sequence[float] = sorted(curve, reverse=not rising)
    near = _least(curve)
    beyond = None
    for place in order[order.index(near) + 1 :]:
        if not within(place):
            beyond = place
            break
        near = place
    for _ in range(steps if beyond is not None else 0):
        assert beyond is not None
        middle = math.sqrt(near * beyond)
        middle = float(round(middle)) if whole else middle
        if middle in (near, beyond):
            break
        curve[middle] = curve[middle] if middle in curve else value_at(middle)
        if within(middle):
            near = middle
        else:
            beyond = middle
    return near


def _least(curve: Curve) -> float:
    return min(
        (place for place in curve if curve[place] is not None),
        key=lambda place: (curve[place], place),
    )
