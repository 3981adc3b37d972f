"""The time that the sum of one byte takes, from curves that differ in it alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfsim.cluster.measured import Curve
from perfsim.quantity import Quantity

__all__ = ["FEWEST", "LARGE_BYTES", "SUMMED", "Shapes", "gamma_of"]

Shapes = Mapping[tuple[str, str], Curve]
"""(collective, algorithm held fixed) -> the curve of it over most ranks."""

LARGE_BYTES = 2**20
"""From here on reductions and trees are compared."""

FEWEST = 3
"""Large sizes that a rate needs, two parameters and one to check them, and a sum too."""

SUMMED = {"all_reduce": 0.5, "reduce_scatter": 1.0}
"""Sums a byte on the wire: so much of gamma stands in the slope of a curve."""

MEDIAN_ERROR = 1.2533 / 0.6745
"""Standard error of a median over half the quarters' range and sqrt(count): sqrt(pi / 2) sigma."""

TOLD_BY_HALVES = "the sum runs while bytes move: {why}; it is part of the rate"


def gamma_of(
    shapes: Shapes, reference: Curve, bus: float, untold: list[str]
) -> tuple[Quantity, float | None]:
    """Return the reduction's time a byte: what reduce_scatter takes more than all_gather [s/B].

    The second is its standard error, that of a median whose spread is the quarters'. ``bus`` is
    the bus bandwidth of ``reference`` [B/s], whose bytes a sum must leave some time.
    """
    scatter, gather = shapes.get(("reduce_scatter", "")), shapes.get(("all_gather", ""))
    if scatter is None or gather is None or scatter.ranks != gather.ranks:
        untold.append("gamma: measure reduce_scatter and all_gather on the same ranks")
        why = "no curve of an all-reduce alone tells it from the rate"
        return Quantity(0.0, "s/B", "derived", TOLD_BY_HALVES.format(why=why), 0.0), None
    share = (scatter.ranks - 1) / scatter.ranks
    more = sorted(
        (seconds - gather.at(size)) / (share * size)
        for size, seconds in zip(scatter.size_bytes, scatter.seconds, strict=True)
        if size >= LARGE_BYTES and gather.inside(size)
    )
    if len(more) < FEWEST or more[len(more) // 2] <= 0:
        why = "reduce_scatter takes no longer than all_gather"
        return Quantity(0.0, "s/B", "fitted", TOLD_BY_HALVES.format(why=why), 0.0), None
    value = more[len(more) // 2]
    if SUMMED.get(reference.collective, 0.0) * value >= 1.0 / bus:
        why = f"by reduce_scatter and all_gather the sum takes all of {reference.collective}'s time"
        return Quantity(0.0, "s/B", "fitted", TOLD_BY_HALVES.format(why=why), 0.0), None
    quarter = len(more) // 4
    half = (more[-1 - quarter] - more[quarter]) / 2.0
    told = f"{scatter.source}: median of (reduce_scatter - all_gather) / ((P-1)/P n) from 1 MiB on"
    error = MEDIAN_ERROR * half / math.sqrt(len(more))
    return Quantity(value, "s/B", "fitted", told, min(half / value, 3.0)), error
