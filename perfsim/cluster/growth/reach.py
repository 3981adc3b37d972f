"""A curve read beyond its sizes: its floor below, its last slope above."""

from __future__ import annotations

from perfsim.cluster.measured import Curve

__all__ = ["reach"]


def reach(curve: Curve, size_bytes: float) -> float:
    """Return the time of a size, inside a curve or beyond it [s].

    Inside as `Curve.at`. Below the smallest size its time stays. Above the largest the last two
    sizes' line alpha + beta n goes on, with beta at most the last point's time a byte and at least
    half of that.

    Examples
    --------
    >>> curve = Curve("all_reduce", 2, 2, 1, (1e3, 1e6, 2e6), (1e-5, 1e-3, 2e-3), "measured", "x")
    >>> [round(reach(curve, size) * 1e6) for size in (8.0, 2e6, 4e6)]
    [10, 2000, 4000]
    """
    sizes, seconds = curve.size_bytes, curve.seconds
    if size_bytes <= sizes[0]:
        return seconds[0]
    if size_bytes <= sizes[-1]:
        return curve.at(size_bytes)
    most = seconds[-1] / sizes[-1]
    rise = most
    if len(sizes) > 1:
        rise = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
    # A last step that is flat or falls is noise or a switch: bytes never come free beyond it.
    slope = min(max(rise, most / 2.0), most)
    return seconds[-1] + slope * (size_bytes - sizes[-1])
