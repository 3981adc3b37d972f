"""Inside the range: every other size of a curve fitted, the sizes between predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from perfsim.calibrate.knots import fit_curve
from perfsim.libraries import AUTO
from perfsim.network.known import MeasuredCollectives
from perfsim.network.measured import CollectiveCurve
from perfsim.validate.nccl.links import Links
from perfsim.validate.nccl.plain import PlainRing
from perfsim.validate.nccl.row import NcclRow

__all__ = ["LIMITS", "QUESTION", "rows"]

QUESTION = "fit on every other size of a curve, predict the sizes between, without the curve"

LIMITS = {
    "in_range": {
        "median": 0.06,
        "p90": 0.25,
        "curve and model / log interpolation, median": 1.0,
        "curve and model / log interpolation, p90": 1.0,
    }
}

FEWEST = 5
"""Sizes that a curve must have, so that three are left to fit."""


def rows(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[NcclRow]:
    """Return every second size of every curve, predicted from the others' fit.

    ``others`` holds log interpolation between the fitted half; curve plus model: what a prediction
    takes on a network of which this half was measured; and the links that all half curves of the
    cluster tell, without any curve. Curves of which only knots are known are passed over.
    """
    halves = [
        (cluster, curve, _half(curve))
        for cluster, curve in curves
        if curve.kind != "fitted" and len(curve.size_bytes) >= FEWEST
    ]
    links = Links([(cluster, half) for cluster, _, half in halves])
    return [row for cluster, curve, half in halves for row in _rows(cluster, curve, half, links)]


def _half(curve: CollectiveCurve) -> CollectiveCurve:
    return replace(curve, size_bytes=curve.size_bytes[::2], seconds=curve.seconds[::2])


def _rows(
    cluster: str, curve: CollectiveCurve, half: CollectiveCurve, links: Links
) -> Iterator[NcclRow]:
    fitted, plain = fit_curve(half).curve, PlainRing([half])
    for size, seconds in zip(curve.size_bytes[1::2], curve.seconds[1::2], strict=True):
        if not half.inside(size):
            continue
        others = {
            "curve and model": _served(half, size) or fitted.at(size),
            "log interpolation": half.at(size),
        }
        linked = links.seconds(cluster, curve, size)
        if linked is not None:
            others["links"] = linked
        yield NcclRow(
            "in_range",
            cluster,
            curve.name,
            size,
            seconds,
            fitted.at(size),
            plain.seconds(curve.collective, curve.ranks, size),
            others,
            curve.collective,
        )


def _served(half: CollectiveCurve, size_bytes: float) -> float | None:
    """Return what a cluster with this curve takes for a size [s]; None where it is uneven."""
    placement = (half.gpus_per_node,) * half.nodes
    if sum(placement) != half.ranks:
        return None
    held = (half.library, (half.algorithm,), half.protocol or AUTO)
    cost = MeasuredCollectives((half,)).cost(half.collective, size_bytes, placement, *held)
    return None if cost is None else cost.seconds
