"""A curve read beyond its sizes: its floor below, its last slope above."""

from __future__ import annotations

from perfsim.cluster.measured import Curve

__all__ = ["SMALL_BYTES", "reach"]

SMALL_BYTES = 65536.0
"""Messages up to here tell a link's latency; a curve that starts above tells none."""


def reach(curve: Curve, size_bytes: float) -> float:
    """Return the time of a size, inside a curve or beyond it [s].

    Inside as `Curve.at`. Below the smallest size its time stays where that tells a latency, at
    most `SMALL_BYTES`; else the first two sizes' line goes on down, with beta at least 0 and at
    most the first point's time a byte. Above the largest the last two sizes' line alpha + beta n
    goes on, with beta at most the last point's time a byte and at least half of that.

    Examples
    --------
    >>> curve = Curve("all_reduce", 2, 2, 1, (1e3, 1e6, 2e6), (1e-5, 1e-3, 2e-3), "measured", "x")
    >>> [round(reach(curve, size) * 1e6) for size in (8.0, 2e6, 4e6)]
    [10, 2000, 4000]
    >>> large = Curve("all_to_all", 2, 2, 1, (4e6, 8e6), (3e-3, 5e-3), "measured", "x")
    >>> round(reach(large, 1e6) * 1e6)  # 1 ms beside 2 ms for every 4 MB
    1500
    """
    sizes, seconds = curve.size_bytes, curve.seconds
    if size_bytes <= sizes[0]:
        return seconds[0] if sizes[0] <= SMALL_BYTES else _below(curve, size_bytes)
    if size_bytes <= sizes[-1]:
        return curve.at(size_bytes)
    most = seconds[-1] / sizes[-1]
    rise = most
    if len(sizes) > 1:
        rise = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
    # A last step that is flat or falls is noise or a switch: bytes never come free beyond it.
    slope = min(max(rise, most / 2.0), most)
    return seconds[-1] + slope * (size_bytes - sizes[-1])


def _below(curve: Curve, size_bytes: float) -> float:
    sizes, seconds = curve.size_bytes, curve.seconds
    most = seconds[0] / sizes[0]
    rise = most
    if len(sizes) > 1:
        rise = (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    return seconds[0] - min(max(rise, 0.0), most) * (sizes[0] - size_bytes)
