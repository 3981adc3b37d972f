"""The shape of a measured curve up to the middle sizes: a line, or a floor and a line."""

from __future__ import annotations

from dataclasses import dataclass

from perfsim.calibrate.hinge import both_shapes
from perfsim.calibrate.link_hops import MIDDLE_BYTES
from perfsim.calibrate.parameter import Unidentified
from perfsim.calibrate.robust import FitResult
from perfsim.cluster.measured import Curve

__all__ = ["Shape", "shape_of"]


@dataclass(frozen=True)
class Shape:
    """What AICc calls for, with the fit of it, or why neither is told.

    ``lead`` is how much lower the AICc of the chosen one is; None where only one was possible.
    """

    verdict: str
    fit: FitResult | None
    lead: float | None = None
    why: str = ""


def shape_of(curve: Curve) -> Shape:
    """Return line or hinge, max(a, c + b m), through a curve's points up to 4 MiB.

    Examples
    --------
    >>> sizes = tuple(2.0**power for power in range(3, 24))
    >>> times = tuple(max(2e-5, -1e-4 + 1e-9 * size) for size in sizes)
    >>> shape_of(Curve("all_reduce", 2, 2, 1, sizes, times, "measured", "made up")).verdict
    'hinge'
    """
    points = [
        point
        for point in zip(curve.size_bytes, curve.seconds, strict=True)
        if point[0] <= MIDDLE_BYTES
    ]
    if len(points) <= 2:
        return Shape("", None, why=f"{len(points)} sizes up to 4 MiB; at least 3")
    try:
        line, bent, chosen = both_shapes(*zip(*points, strict=True))
    except Unidentified as error:
        return Shape("", None, why=str(error))
    lead = None if bent is None else abs(line.aicc - bent.aicc)
    return Shape("hinge" if chosen is bent else "line", chosen, lead)
