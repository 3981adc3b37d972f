"""The rate of a link from the large messages of measured curves, and the sum's time a byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.calibrate.hinge import fit_line, hinge
from perfsim.calibrate.robust import FitResult, Parameter, Unidentified, fit
from perfsim.cluster.growth.choice import TunedChoice
from perfsim.cluster.measured import Curve
from perfsim.quantity import Quantity

__all__ = ["NAMES", "Shapes", "clearest", "gamma_of", "rate_of", "tree_rate_of"]

Shapes = Mapping[tuple[str, str], Curve]
"""(collective, algorithm held fixed) -> the curve of it over most ranks."""

NAMES = {"broadcast": "chain", "send_recv": "direct"}
"""How a collective is carried out where it is no ring."""

LARGE_SHARE = 1 / 16
"""Messages from this share of the largest on tell the rate: beyond the steps of the middle."""

WIRE_SHARE = 0.5
"""Of the largest message's time this much must be bytes, or the rate is not told."""

LARGE_BYTES = 2**20
"""From here on reductions and trees are compared."""

FEWEST = 3
"""Large sizes that a rate needs: two parameters, and one to check them."""

CLEAREST = (
    ("all_reduce", "ring"),
    ("all_gather", ""),
    ("reduce_scatter", ""),
    ("all_reduce", ""),
    ("all_reduce", "tree"),
    ("broadcast", ""),
    ("send_recv", ""),
)
"""What tells a rate, the clearest first: a ring held fixed, then what never goes over trees."""

TOLD_BY_HALVES = "the sum runs while bytes move: {why}; it is part of the rate"


SUMMED = {"all_reduce": 0.5, "reduce_scatter": 1.0}
"""Sums a byte on the wire: so much of gamma stands in the slope of a curve."""


def _place(of: str) -> str:
    return "nodes" if of == "inter" else "the GPUs of a node"


def clearest(of: str, shapes: Shapes, choice: TunedChoice | None) -> tuple[Curve, FitResult, float]:
    """Return the first curve that tells a rate, its fit, and the bus bandwidth [B/s]."""
    refused: Unidentified | None = None
    for key in CLEAREST:
        if key in shapes:
            try:
                return (shapes[key], *_rate(shapes[key], choice))
            except Unidentified as error:
                refused = refused or error
    if refused is not None:
        raise refused
    raise Unidentified(
        f"no collective between {_place(of)} that tells a rate; measure all_reduce, from a few"
        " bytes up to 256 MiB",
        ("rate",),
    )


def _rate(curve: Curve, choice: TunedChoice | None) -> tuple[FitResult, float]:
    """Return the fit of the large messages and the bus bandwidth that it tells [B/s]."""
    factor = _wire(curve)
    if (
        choice is not None
        and curve.collective == "all_reduce"
        and not curve.algorithm
        and curve.nodes == 2
        and choice.label(curve.ranks, curve.nodes, curve.size_bytes[-1])[0] == "tree"
    ):
        factor = 1.0
    points = [(factor * n, t) for n, t in zip(curve.size_bytes, curve.seconds, strict=True)]
    large = [point for point in points if point[0] >= LARGE_SHARE * points[-1][0]]
    if len(large) < FEWEST:
        large = points
    more = f"measure at least {FEWEST} sizes, the largest 64 MiB or more"
    if len(large) < FEWEST:
        few = f"{len(large)} {'size' if len(large) == 1 else 'sizes'}"
        raise Unidentified(f"{curve.name}: {few} cannot tell a rate; {more}", ("b",))
    found = _line(*zip(*large, strict=True))
    beta = found.values["b"]
    if beta * large[-1][0] < WIRE_SHARE * large[-1][1]:
        raise Unidentified(
            f"{curve.name}: the largest message is still more latency than bytes, so the rate is"
            f" not told; {more}",
            ("b",),
        )
    return found, 1.0 / beta


def _line(sizes: Sequence[float], seconds: Sequence[float]) -> FitResult:
    """Fit c + b m; where c cannot be told, which large messages need not, b alone."""
    try:
        return fit_line(sizes, seconds)
    except Unidentified as error:
        if "b" in error.names:
            raise
    import numpy as np

    start = float(np.median(np.asarray(seconds) / np.asarray(sizes)))
    held = (Parameter("a", 0.0, "s", fixed=True), Parameter("c", 0.0, "s", fixed=True))
    parameters = (*held, Parameter("b", start, "s/B", low=0.0))
    return fit(hinge, sizes, seconds, parameters, title="bytes alone, b m")


def _wire(curve: Curve) -> float:
    if curve.collective in NAMES:
        return 1.0
    if curve.algorithm == "tree":
        return 2.0
    around = (curve.ranks - 1) / curve.ranks
    return 2.0 * around if curve.collective == "all_reduce" else around


def _used(of: str, nics: int, curve: Curve) -> int:
    """Return the NICs that carried a curve: a GPU drives at most one, or the few that it owns."""
    return min(nics, curve.gpus_per_node) if of == "inter" else 1


def rate_of(
    of: str, curve: Curve, found: FitResult, bus: float, nics: int, gamma: Quantity
) -> Quantity:
    """Return the rate of one NIC (inter) or link (intra), without the reduction's time [B/s].

    Parameters
    ----------
    of : "inter" or "intra"
    curve, found, bus : what tells the rate, its fit, and the bus bandwidth [B/s]
    nics : that the GPUs of a node share
    gamma : the reduction's time a byte, part of a reducing collective's slope

    Notes
    -----
    A ring's all_reduce sums every second byte that it moves, n (P-1)/P of 2 n (P-1)/P; a
    reduce_scatter every one.
    """
    beta = 1.0 / bus - SUMMED.get(curve.collective, 0.0) * gamma.value
    return _quantity(1.0 / beta / _used(of, nics, curve), found, curve)


def _quantity(value: float, found: FitResult, curve: Curve) -> Quantity:
    return Quantity(
        value,
        "B/s",
        "fitted",
        f"{curve.source}: {curve.name}, large messages",
        found.p90,
        curve.size_bytes[0],
        curve.size_bytes[-1],
    )


def tree_rate_of(
    of: str, shapes: Shapes, rate: Quantity, nics: int, gamma: Quantity, untold: list[str]
) -> Quantity:
    """Return what a double binary tree sees of a link [B/s]; told by a curve with it held only."""
    held = shapes.get(("all_reduce", "tree"))
    large = [] if held is None else [size for size in held.size_bytes if size >= LARGE_BYTES]
    if held is None or len(large) < FEWEST:
        untold.append("tree rate: measure all_reduce with NCCL_ALGO=Tree; taken as the ring's")
        told = f"no curve with the tree held fixed: taken as the ring's, {rate.source}"
        return Quantity(rate.value, "B/s", "derived", told, rate.spread, rate.low, rate.high)
    points = zip(held.size_bytes, held.seconds, strict=True)
    found = _line(*zip(*[(2.0 * n, t) for n, t in points if n >= LARGE_BYTES], strict=True))
    return rate_of(of, held, found, 1.0 / found.values["b"], nics, gamma)


def gamma_of(shapes: Shapes, reference: Curve, bus: float, untold: list[str]) -> Quantity:
    """Return the reduction's time a byte: what reduce_scatter takes more than all_gather [s/B].

    ``bus`` is the bus bandwidth of ``reference`` [B/s], whose bytes a sum must leave some time.
    """
    scatter, gather = shapes.get(("reduce_scatter", "")), shapes.get(("all_gather", ""))
    if scatter is None or gather is None or scatter.ranks != gather.ranks:
        untold.append("gamma: measure reduce_scatter and all_gather on the same ranks")
        why = "no curve of an all-reduce alone tells it from the rate"
        return Quantity(0.0, "s/B", "derived", TOLD_BY_HALVES.format(why=why), 0.0)
    share = (scatter.ranks - 1) / scatter.ranks
    more = sorted(
        (seconds - gather.at(size)) / (share * size)
        for size, seconds in zip(scatter.size_bytes, scatter.seconds, strict=True)
        if size >= LARGE_BYTES and gather.inside(size)
    )
    if len(more) < FEWEST or more[len(more) // 2] <= 0:
        why = "reduce_scatter takes no longer than all_gather"
        return Quantity(0.0, "s/B", "fitted", TOLD_BY_HALVES.format(why=why), 0.0)
    value = more[len(more) // 2]
    if SUMMED.get(reference.collective, 0.0) * value >= 1.0 / bus:
        why = f"by reduce_scatter and all_gather the sum takes all of {reference.collective}'s time"
        return Quantity(0.0, "s/B", "fitted", TOLD_BY_HALVES.format(why=why), 0.0)
    quarter = len(more) // 4
    spread = (more[-1 - quarter] - more[quarter]) / 2.0 / value
    told = f"{scatter.source}: median of (reduce_scatter - all_gather) / ((P-1)/P n) from 1 MiB on"
    return Quantity(value, "s/B", "fitted", told, min(spread, 3.0))
