"""Reduce a measured curve to the fewest knots, straight in log size and log time, near its points.

A curve of a collective has no formula: protocols and algorithms change along it. The knots are
exact (dynamic programming), not a search; no library offers the smallest worst distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from perfsim.network.measured import CollectiveCurve

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["CurveFit", "Segments", "fit_curve", "segments"]

_TOLERANCE = 0.05
"""Knots are added until every point is this near: a few times what repeats differ by (1.1 %)."""

_MAX_KNOTS = 10
"""Knots of a curve, at most: nine segments. No source: chosen so that a file stays readable."""

_DIGITS = 4
"""Digits of a knot's time: more would be noise."""

_OUTLIER = 3.0
"""A point this many times further off than its neighbourhood is left out.

No source: chosen so that a single wild point is found and a step of a curve is not.
"""

_NEIGHBOURS = 4
"""Points on each side that make up a neighbourhood. No source: chosen as about an octave or two."""

_MAX_LEFT_OUT = 0.1
"""Share of the points that may be left out. No source: more would be another curve."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Knots of a curve, how far it is from the points kept, and the points left out.

    ``worst`` is the largest relative distance of a point kept; ``left_out`` holds size [B],
    time [s] and how far off [fraction] of each single point that contradicts its neighbours.
    """

    size_bytes: tuple[float, ...]
    seconds: tuple[float, ...]
    worst: float
    left_out: tuple[tuple[float, float, float], ...] = ()


class CurveFit(NamedTuple):
    """The fitted curve, and points left out because they contradict their neighbours.

    ``left_out`` holds size [B], time [s] and how far off [fraction].
    """

    curve: CollectiveCurve
    left_out: tuple[tuple[float, float, float], ...]


def fit_curve(
    curve: CollectiveCurve, tolerance: float = _TOLERANCE, most: int = _MAX_KNOTS
) -> CurveFit:
    """Return the fewest knots of a curve that keep its points within a tolerance.

    The fitted curve's kind is "fitted", its ``spread`` the 90th percentile of the relative
    residuals of all points, those left out included.

    Examples
    --------
    >>> times = (1e-5, 1e-5, 1e-5, 2e-5, 4e-5)
    >>> curve = CollectiveCurve("reduce", 2, 2, 1, (1, 2, 4, 8, 16), times, "measured", "x")
    >>> fit_curve(curve).curve.seconds
    (1e-05, 1e-05, 4e-05)
    """
    if len(curve.size_bytes) < 3:
        return CurveFit(replace(curve, kind="fitted"), ())
    knots = segments(curve.size_bytes, curve.seconds, tolerance, most)
    fitted = replace(
        curve,
        size_bytes=knots.size_bytes,
        seconds=tuple(float(f"{time_s:.{_DIGITS}g}") for time_s in knots.seconds),
        kind="fitted",
    )
    off = sorted(
        abs(fitted.at(size) / time_s - 1.0)
        for size, time_s in zip(curve.size_bytes, curve.seconds, strict=True)
        if fitted.inside(size)
    )
    return CurveFit(replace(fitted, spread=off[int(0.9 * (len(off) - 1))]), knots.left_out)


def segments(
    size: Sequence[float], seconds: Sequence[float], tolerance: float, most: int
) -> Segments:
    """Return the fewest knots among the points that keep all others within a tolerance.

    Parameters
    ----------
    size, seconds : points, sizes rising [B], [s]
    tolerance : largest relative distance allowed (0.05 is 5 %)
    most : knots at most; where these do not reach the tolerance, the best of that many

    Raises
    ------
    ValueError
        If there are fewer than 2 points or knots, or sizes do not rise.

    Notes
    -----
    Exact: dynamic programming over all pairs of points (quadratic in their number). A single
    point further from its neighbours' line than 3 times what they are from theirs is left out
    first; a step or a bend concerns several points and stays.

    Examples
    --------
    >>> knots = segments([1, 2, 4, 8, 16], [1.0, 1.0, 1.0, 2.0, 4.0], 0.01, 8)
    >>> knots.size_bytes, knots.seconds
    ((1.0, 4.0, 16.0), (1.0, 1.0, 4.0))
    """
    import numpy as np

    sizes, times = np.asarray(size, dtype=float), np.asarray(seconds, dtype=float)
    if sizes.shape != times.shape or sizes.size < 2 or most < 2:
        raise ValueError(f"{sizes.size} sizes, {times.size} times, {most} knots; at least 2 each")
    if np.any(np.diff(sizes) <= 0) or sizes[0] <= 0 or np.any(times <= 0):
        raise ValueError("sizes rise, and sizes and times are positive")
    kept, left_out = _without_outliers(np.log(sizes), np.log(times), tolerance)
    x, y = np.log(sizes[kept]), np.log(times[kept])
    knots, worst = _fewest_knots(_distances(x, y), float(np.log1p(tolerance)), most)
    indices = np.asarray(kept)[knots]
    return Segments(
        tuple(sizes[indices].tolist()),
        tuple(times[indices].tolist()),
        float(np.expm1(worst)),
        tuple((float(sizes[index]), float(times[index]), far) for index, far in left_out),
    )


def _without_outliers(
    x: Array, y: Array, tolerance: float
) -> tuple[list[int], list[tuple[int, float]]]:
    """Return the indices kept, and those of single points that contradict their neighbours.

    The furthest outlier goes first; then all points are looked at again without it.
    """
    import numpy as np

    kept = list(range(x.size))
    left_out: list[tuple[int, float]] = []
    while len(left_out) < int(_MAX_LEFT_OUT * x.size):
        furthest: tuple[float, int] | None = None
        for index in range(1, len(kept) - 1):
            far = abs(_from_neighbours(x, y, kept, index))
            rest = kept[:index] + kept[index + 1 :]
            near = range(max(1, index - _NEIGHBOURS), min(len(rest) - 1, index + _NEIGHBOURS))
            around = [abs(_from_neighbours(x, y, rest, other)) for other in near]
            beside = [
                abs(_from_neighbours(x, y, rest, other))
                for other in near
                if other in (index - 1, index)
            ]
            local = max(float(np.median(around)), *beside) if beside else float("inf")
            is_outlier = far > max(_OUTLIER * local, float(np.log1p(tolerance)))
            if is_outlier and (furthest is None or far > furthest[0]):
                furthest = (far, index)
        if furthest is None:
            break
        left_out.append((kept.pop(furthest[1]), float(np.expm1(furthest[0]))))
    return kept, sorted(left_out)


def _from_neighbours(x: Array, y: Array, kept: Sequence[int], index: int) -> float:
    """Return how far a point lies from the line between its neighbours, in log time."""
    before, at, after = kept[index - 1], kept[index], kept[index + 1]
    share = (x[at] - x[before]) / (x[after] - x[before])
    return float(y[at] - y[before] - share * (y[after] - y[before]))


def _distances(x: Array, y: Array) -> Array:
    """Return, for each pair of points, the largest distance of those between from their line."""
    import numpy as np

    count = x.size
    far = np.zeros((count, count))
    for start in range(count - 2):
        for end in range(start + 2, count):
            inner = slice(start + 1, end)
            slope = (y[end] - y[start]) / (x[end] - x[start])
            line = y[start] + slope * (x[inner] - x[start])
            far[start, end] = float(np.max(np.abs(y[inner] - line)))
    return far


def _fewest_knots(far: Array, tolerance: float, most: int) -> tuple[list[int], float]:
    """Return the knots of the shortest chain within the tolerance, else the best of ``most``."""
    import numpy as np

    count = far.shape[0]
    worst = far[0].copy()
    back = [np.zeros(count, dtype=int)]
    allowed = np.where(np.tri(count, k=0, dtype=bool), np.inf, far)
    for knots in range(2, min(most, count) + 1):
        if worst[-1] <= tolerance * (1 + 1e-12) or knots == min(most, count):
            break
        through = np.maximum(worst[:, None], allowed)
        through[0, :] = np.inf  # the first knot is the start, not one on the way
        back.append(np.argmin(through, axis=0))
        worst = through.min(axis=0)
    path = [count - 1]
    for step in reversed(back):
        path.append(int(step[path[-1]]))
    return sorted(set(path)), float(worst[-1])
