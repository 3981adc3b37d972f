"""A measured time as hops of a link: the algorithm that served it, and the alpha that gives it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfsim.calibrate.hinge import fit_hinge
from perfsim.calibrate.parameter import Unidentified
from perfsim.cluster.cluster import Cluster
from perfsim.cluster.link import Link
from perfsim.cluster.measured import Curve
from perfsim.cluster.wiring import Wiring
from perfsim.collectives import Algorithm, Hops
from perfsim.errors import RequestError
from perfsim.library import AUTO, library

__all__ = [
    "MIDDLE_BYTES",
    "alpha_of",
    "cluster_of",
    "errors_of",
    "floor_error",
    "served_by",
    "wired",
]

MIDDLE_BYTES = 4 * 2**20
"""Up to here the shape of a curve is floor and slope; beyond, bytes rule."""

POINT = 1.4826
"""Standard deviation over the median distance, of points that scatter as a normal law."""

NEAR = 1e-9
"""Relative distance at which a time counts as met."""

HALVINGS = 60
"""Halvings of an interval: to the last digit of a double."""


def served_by(curve: Curve, size_bytes: float, name: str) -> Algorithm:
    """Return the algorithm that carried a measured message, as its library runs it.

    Parameters
    ----------
    curve : measured; an algorithm that it says was held fixed is taken where the library has it
    name : ring or tree, of what NCCL has both for and takes the faster

    Examples
    --------
    >>> curve = Curve("all_reduce", 8, 8, 1, (8.0,), (1e-5,), "measured", "x", library="mpi")
    >>> served_by(curve, 9999, "ring").name, served_by(curve, 10000, "ring").name
    ('doubling', 'ring')
    """
    of = library(curve.library)
    if curve.algorithm and of.has is not None and curve.algorithm in of.names(curve.collective):
        return of.algorithm(curve.collective, curve.algorithm)
    taken = of.choose(curve.collective, size_bytes, curve.ranks)
    if taken is not None:
        return of.algorithm(curve.collective, taken)
    both = [of.algorithm(curve.collective, one) for one in of.considered(curve.collective)]
    return next((one for one in both if one.latency == name), both[0])


def wired(of: str, curve: Curve, link: Link, inside: Link | None, nics: int) -> Wiring:
    """Return the ranks of a measured curve over a link, as a prediction wires them."""
    several = curve.gpus_per_node > 1
    if of == "intra":
        return Wiring(curve.ranks, 1, curve.ranks, 1, None, link)
    return Wiring(
        curve.ranks,
        curve.nodes,
        curve.gpus_per_node,
        min(nics, curve.gpus_per_node),
        link,
        inside if several else None,
    )


def alpha_of(
    algorithm: Algorithm, size_bytes: float, seconds: float, wiring: Wiring, of: str
) -> float:
    """Return the latency of one hop [s] at which an algorithm takes a measured time, at least 0.

    Parameters
    ----------
    algorithm : as its library runs it
    wiring : the ranks measured; a link inside the nodes has its own latency, of the curve that
        the algorithm's hops follow
    of : "inter" or "intra", whose hops are asked
    """

    def told(alpha_s: float) -> float:
        hops = _hops(algorithm, size_bytes, wiring, of, alpha_s)
        return algorithm.formula(size_bytes, hops).seconds

    rest_s = told(0.0)
    if seconds <= rest_s:
        return 0.0
    hops_s = told(1.0) - rest_s
    if hops_s <= 0.0:
        return 0.0
    alpha_s = (seconds - rest_s) / hops_s
    if abs(told(alpha_s) / seconds - 1.0) <= NEAR:
        return alpha_s
    # Chains split the message as alpha and beta call for, so time is no line in alpha.
    low, high = 0.0, seconds
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if told(middle) < seconds else (low, middle)
    return (low + high) / 2.0


def floor_error(
    points: Sequence[tuple[float, float]], algorithm: Algorithm, wiring: Wiring, of: str
) -> float | None:
    """Return the standard error of a hop's latency when the message is small [s/hop].

    That of the floor, or of the line's start, of the hinge through the points up to 4 MiB, and
    how far a single point, which the first knot is, lies from it; over the hops. None where the
    points tell neither floor nor start.
    """
    small = [point for point in points if point[0] <= MIDDLE_BYTES]
    size = points[0][0]
    both = (_hops(algorithm, size, wiring, of, alpha_s) for alpha_s in (1.0, 0.0))
    most, rest = (algorithm.formula(size, hops).latency_s for hops in both)
    crossed = most - rest
    if len(small) <= 2 or crossed <= 0:
        return None
    try:
        found = fit_hinge(*zip(*small, strict=True))
    except Unidentified:
        return None
    error = found.stderr("a" if found.values["a"] > 0 else "c")
    if error is None:
        return None
    return math.hypot(error, found.median * POINT * points[0][1]) / crossed


def cluster_of(curve: Curve, inter: Link | None, intra: Link | None, nics: int = 1) -> Cluster:
    """Return the ranks of a curve as a cluster that only its links' formulas tell."""
    even, more = divmod(curve.ranks, curve.nodes)
    placement = (even + 1,) * more + (even,) * (curve.nodes - more)
    return Cluster(
        curve.ranks,
        placement,
        inter if curve.nodes > 1 else None,
        intra if max(placement) > 1 else None,
        nics,
        curve.library,
        curve.library,
    )


def errors_of(curve: Curve, cluster: Cluster) -> list[float]:
    """Return how far the links' formulas are off at every point of a curve, as fractions."""
    held = curve.algorithm or AUTO
    try:
        return [
            abs(cluster.cost(curve.collective, size, held, curve.protocol or AUTO).seconds / t - 1)
            for size, t in zip(curve.size_bytes, curve.seconds, strict=True)
        ]
    except RequestError:
        return []  # an algorithm, held when it was measured, that perfsim has no formula of


def _hops(algorithm: Algorithm, size_bytes: float, wiring: Wiring, of: str, alpha_s: float) -> Hops:
    """Return the hops with ``alpha_s`` on the class asked, and its own latency on the other."""
    intra_s = 0.0
    if of == "inter" and wiring.intra is not None:
        intra_s = getattr(wiring.intra, algorithm.latency).at(size_bytes)
    return wiring.hops()._replace(
        alpha_intra_s=alpha_s if of == "intra" else intra_s,
        alpha_inter_s=alpha_s if of == "inter" else 0.0,
    )
