"""Inside the range: every other size of a curve fitted, the sizes between predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfsim.calibrate.curve_fit import fit_curve
from perfsim.cluster.known import Known
from perfsim.cluster.measured import Curve
from perfsim.library.protocols import AUTO
from perfsim.validate.nccl.plain import PlainRing
from perfsim.validate.nccl.row import Row

__all__ = ["LIMITS", "QUESTION", "rows"]

QUESTION = "fit on every other size of a curve, predict the sizes between, without the curve"

LIMITS = {"in_range": {"median": 0.06, "p90": 0.25}}

FEWEST = 5
"""Sizes that a curve must have, so that three are left to fit."""


def rows(curves: Sequence[tuple[str, Curve]]) -> list[Row]:
    """Return every second size of every curve, predicted from the others' fit.

    ``others`` holds log interpolation between the fitted half, and curve plus model: what a
    prediction takes on a network of which this half was measured. Curves of which only knots are
    known are passed over.
    """
    found: list[Row] = []
    for cluster, curve in curves:
        if curve.kind == "fitted" or len(curve.size_bytes) < FEWEST:
            continue
        half = replace(curve, size_bytes=curve.size_bytes[::2], seconds=curve.seconds[::2])
        fitted, plain = fit_curve(half).curve, PlainRing([half])
        for size, seconds in zip(curve.size_bytes[1::2], curve.seconds[1::2], strict=True):
            if half.inside(size):
                found.append(
                    Row(
                        "in_range",
                        cluster,
                        curve.name,
                        size,
                        seconds,
                        fitted.at(size),
                        plain.seconds(curve.collective, curve.ranks, size),
                        {
                            "curve and model": _served(half, size) or fitted.at(size),
                            "log interpolation": half.at(size),
                        },
                    )
                )
    return found


def _served(half: Curve, size_bytes: float) -> float | None:
    """Return what a cluster with this curve takes for a size [s]; None where it is uneven."""
    placement = (half.gpus_per_node,) * half.nodes
    if sum(placement) != half.ranks:
        return None
    held = (half.library, half.algorithm or AUTO, half.protocol or AUTO)
    cost = Known((half,)).cost(half.collective, size_bytes, placement, *held)
    return None if cost is None else cost.seconds
