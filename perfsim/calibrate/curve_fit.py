"""A measured curve as few numbers: knots between which time is alpha + beta n."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from perfsim.calibrate.segments import segments
from perfsim.cluster.measured import Curve

__all__ = ["KNOTS", "TOLERANCE", "CurveFit", "fit_curve"]

TOLERANCE = 0.05
"""Knots are added until every point is this near: a few times what repeats differ by (1.1 %)."""

KNOTS = 10
"""Knots at most: nine segments."""

PRECISION = 4
"""Digits of a knot: more would be noise."""


class CurveFit(NamedTuple):
    """The fitted curve, and points left out because they contradict their neighbours.

    ``left_out`` holds size [B], time [s] and how far off [fraction].
    """

    curve: Curve
    left_out: tuple[tuple[float, float, float], ...]


def fit_curve(curve: Curve, tolerance: float = TOLERANCE, most: int = KNOTS) -> CurveFit:
    """Return the fewest knots of a curve that keep its points within a tolerance.

    The fitted curve's kind is "fitted", its ``spread`` the 90th percentile of the relative
    residuals of all points, those left out included.

    Examples
    --------
    >>> times = (1e-5, 1e-5, 1e-5, 2e-5, 4e-5)
    >>> fit_curve(Curve("reduce", 2, 2, 1, (1, 2, 4, 8, 16), times, "measured", "x")).curve.seconds
    (1e-05, 1e-05, 4e-05)
    """
    if len(curve.size_bytes) < 3:
        return CurveFit(replace(curve, kind="fitted"), ())
    found = segments(curve.size_bytes, curve.seconds, tolerance, most)
    fitted = replace(
        curve,
        size_bytes=found.size_bytes,
        seconds=tuple(float(f"{time_s:.{PRECISION}g}") for time_s in found.seconds),
        kind="fitted",
    )
    off = sorted(
        abs(fitted.at(size) / time_s - 1.0)
        for size, time_s in zip(curve.size_bytes, curve.seconds, strict=True)
        if fitted.inside(size)
    )
    return CurveFit(replace(fitted, spread=off[int(0.9 * (len(off) - 1))]), found.left_out)
