"""The rate of a link from the large messages of measured curves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfsim.calibrate.hinge import fit_line, hinge
from perfsim.calibrate.link_gamma import FEWEST, LARGE_BYTES, SUMMED, Shapes
from perfsim.calibrate.link_hops import served_by
from perfsim.calibrate.robust import FitResult, Parameter, Unidentified, fit
from perfsim.cluster.growth.choice import TunedChoice
from perfsim.cluster.measured import Curve
from perfsim.collectives import Hops
from perfsim.quantity import Quantity

__all__ = ["CLEAREST", "clearest", "rate_of", "tree_rate_of"]

WIRE_SHARE = 0.5
"""Of the largest message's time this much must be bytes, or the rate is not told."""

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
    points = curve.large()
    if len(points) < FEWEST:
        points = list(zip(curve.size_bytes, curve.seconds, strict=True))
    large = [(factor * size, seconds) for size, seconds in points]
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
    """Return the bytes that the largest message puts on a link, over the message."""
    name = "tree" if curve.algorithm == "tree" else "ring"
    formula = served_by(curve, curve.size_bytes[-1], name).formula
    inside = 0.0 if curve.nodes > 1 else 1.0
    hops = (curve.ranks, curve.nodes, curve.gpus_per_node, 0.0, 0.0)
    return formula(1.0, Hops(*hops, 1.0, 1.0, inside, 1.0)).transfer_s


def _used(of: str, nics: int, curve: Curve) -> int:
    """Return the NICs that carried a curve: a GPU drives at most one, or the few that it owns."""
    return min(nics, curve.gpus_per_node) if of == "inter" else 1


def rate_of(
    of: str,
    curve: Curve,
    found: FitResult,
    bus: float,
    nics: int,
    gamma: Quantity,
    gamma_error: float | None,
) -> tuple[Quantity, float | None]:
    """Return the rate of one NIC (inter) or link (intra), without the reduction's time [B/s].

    The second is its standard error: of the slope, and of what the sum takes of it.

    Parameters
    ----------
    of : "inter" or "intra"
    curve, found, bus : what tells the rate, its fit, and the bus bandwidth [B/s]
    nics : that the GPUs of a node share
    gamma : the reduction's time a byte, part of a reducing collective's slope
    gamma_error : its standard error, None where it was not fitted

    Notes
    -----
    A ring's all_reduce sums every second byte that it moves, n (P-1)/P of 2 n (P-1)/P; a
    reduce_scatter every one.
    """
    summed = SUMMED.get(curve.collective, 0.0)
    beta = 1.0 / bus - summed * gamma.value
    rate = _quantity(1.0 / beta / _used(of, nics, curve), found, curve)
    stderr = found.stderr("b")
    if stderr is None:
        return rate, None
    slope = stderr / found.values["b"] / bus
    return rate, rate.value * math.hypot(slope, summed * (gamma_error or 0.0)) / beta


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
    of: str,
    shapes: Shapes,
    rate: Quantity,
    nics: int,
    gamma: Quantity,
    gamma_error: float | None,
    untold: list[str],
) -> tuple[Quantity, float | None]:
    """Return what a double binary tree sees of a link [B/s]; told by a curve with it held only.

    The second is its standard error, None where it is taken as the ring's.
    """
    held = shapes.get(("all_reduce", "tree"))
    large = [] if held is None else [size for size in held.size_bytes if size >= LARGE_BYTES]
    if held is None or len(large) < FEWEST:
        if held is None and any(curve.library != "nccl" for curve in shapes.values()):
            told = f"no double binary tree in this library: taken as the ring's, {rate.source}"
        else:
            untold.append("tree rate: measure all_reduce with NCCL_ALGO=Tree; taken as the ring's")
            told = f"no curve with the tree held fixed: taken as the ring's, {rate.source}"
        taken = Quantity(rate.value, "B/s", "derived", told, rate.spread, rate.low, rate.high)
        return taken, None
    points = zip(held.size_bytes, held.seconds, strict=True)
    found = _line(*zip(*[(2.0 * n, t) for n, t in points if n >= LARGE_BYTES], strict=True))
    return rate_of(of, held, found, 1.0 / found.values["b"], nics, gamma, gamma_error)
