"""A sweep's setting and its points, as its record holds them."""

from __future__ import annotations

from perfsim.calibrate.measure.journals import NetworkPoint

__all__ = ["SETTING", "point"]

SETTING = {"library": "gloo", "ranks": 2}


def point(size: int, *seconds: float, collective: str = "all_reduce") -> NetworkPoint:
    return NetworkPoint(collective, 2, 2, 1, size, seconds or (1e-3, 1.1e-3))
