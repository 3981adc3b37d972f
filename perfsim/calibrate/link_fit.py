"""One link from the curves measured over it: rate, latency by size, reduction, protocols."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from perfsim.calibrate.fit import (
    FitResult,
    Parameter,
    Unidentified,
    fit,
    fit_hinge,
    fit_line,
    hinge,
)
from perfsim.calibrate.knots import fit_curve
from perfsim.collectives import Algorithm, Hops
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.libraries import AUTO, DEFAULT_LIBRARY, library
from perfsim.libraries.nccl_versions import PROTOCOLS
from perfsim.network.cluster import Cluster
from perfsim.network.link import Latency, Link, ProtocolFigures
from perfsim.network.measured import CollectiveCurve
from perfsim.network.network_file import load_network
from perfsim.network.route import ClusterLinks
from perfsim.network.scaling_laws import SMALL_BYTES
from perfsim.network.tuner_fit import TunedChoice, communicator, tuner_figures
from perfsim.quantity import Quantity

__all__ = [
    "CLASSES",
    "CLEAREST",
    "FEWEST",
    "LARGE_BYTES",
    "MIDDLE_BYTES",
    "SUMMED",
    "LinkFit",
    "Shapes",
    "Start",
    "alpha_of",
    "clearest",
    "cluster_of",
    "errors_of",
    "fit_link",
    "floor_error",
    "gamma_of",
    "held_curves",
    "hop_figures",
    "inside_link",
    "latencies_of",
    "protocol_fits",
    "rate_of",
    "same_hops",
    "served_by",
    "tree_rate_of",
    "wired",
]

SIMPLE = 2
"""Place of the Simple protocol among a hop's three figures."""


def hop_figures(of: str, curve: CollectiveCurve) -> tuple[Latency, Latency]:
    """Return the latency of a ring's and a tree's hop by NCCL's tuner (Simple), kind derived.

    Parameters
    ----------
    of : "inter" or "intra"
    curve : tells the version, the GPUs and the links inside a node

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, hwLat. Measured hops are 1 to 2 times that over
    Slingshot and 3 to 6 times over TCP.

    Examples
    --------
    >>> large = CollectiveCurve("all_reduce", 2, 2, 1, (1e9,), (1.0,), "measured", "x", version="2.23.4")
    >>> [one.alpha_s for one in hop_figures("inter", large)]
    [(1.4e-05,), (1.4e-05,)]
    """
    told = communicator(curve)
    version, known = tuner_figures(told)
    hop_us = known.hop_us["net" if of == "inter" else told.intra]
    source = (
        f"{curve.source}: {curve.name} starts above 64 KiB and shows no latency; a Simple hop by"
        f" NCCL {version}'s tuner (src/graph/tuning.cc)"
    )
    ring, tree = (
        Latency((1.0,), (hop_us[name][SIMPLE] * 1e-6,), "derived", source, None, *_range(curve))
        for name in ("ring", "tree")
    )
    return ring, tree


def _range(curve: CollectiveCurve) -> tuple[float, float]:
    return curve.size_bytes[0], curve.size_bytes[-1]


def inside_link(catalog: Catalog) -> Callable[[str], Link | None]:
    """Return what gives a preset's link between the GPUs of a node.

    Examples
    --------
    >>> inside_link(Catalog())("pcie3").rate.unit
    'B/s'
    """
    return lambda name: load_network(name, catalog, "inside").links.get("intra")


Shapes = Mapping[tuple[str, str], CollectiveCurve]
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
    shapes: Shapes, reference: CollectiveCurve, bus: float, untold: list[str]
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


MIDDLE_BYTES = 4 * 2**20
"""Up to here the shape of a curve is floor and slope; beyond, bytes rule."""

POINT = 1.4826
"""Standard deviation over the median distance, of points that scatter as a normal law."""

NEAR = 1e-9
"""Relative distance at which a time counts as met."""

HALVINGS = 60
"""Halvings of an interval: to the last digit of a double."""


def served_by(curve: CollectiveCurve, size_bytes: float, name: str) -> Algorithm:
    """Return the algorithm that carried a measured message, as its library runs it.

    Parameters
    ----------
    curve : measured; an algorithm that it says was held fixed is taken where the library has it
    name : ring or tree, of what NCCL has both for and takes the faster

    Examples
    --------
    >>> curve = CollectiveCurve("all_reduce", 8, 8, 1, (8.0,), (1e-5,), "measured", "x", library="mpi")
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


def wired(
    of: str, curve: CollectiveCurve, link: Link, inside: Link | None, nics: int
) -> ClusterLinks:
    """Return the ranks of a measured curve over a link, as a prediction wires them."""
    several = curve.gpus_per_node > 1
    if of == "intra":
        return ClusterLinks(curve.ranks, 1, curve.ranks, 1, None, link)
    return ClusterLinks(
        curve.ranks,
        curve.nodes,
        curve.gpus_per_node,
        min(nics, curve.gpus_per_node),
        link,
        inside if several else None,
    )


def alpha_of(
    algorithm: Algorithm, size_bytes: float, seconds: float, wiring: ClusterLinks, of: str
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
    points: Sequence[tuple[float, float]], algorithm: Algorithm, wiring: ClusterLinks, of: str
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


def cluster_of(
    curve: CollectiveCurve, inter: Link | None, intra: Link | None, nics: int = 1
) -> Cluster:
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


def errors_of(curve: CollectiveCurve, cluster: Cluster) -> list[float]:
    """Return how far the links' formulas are off at every point of a curve, as fractions."""
    held = curve.algorithm or AUTO
    try:
        return [
            abs(cluster.cost(curve.collective, size, held, curve.protocol or AUTO).seconds / t - 1)
            for size, t in zip(curve.size_bytes, curve.seconds, strict=True)
        ]
    except RequestError:
        return []  # an algorithm, held when it was measured, that perfsim has no formula of


def _hops(
    algorithm: Algorithm, size_bytes: float, wiring: ClusterLinks, of: str, alpha_s: float
) -> Hops:
    """Return the hops with ``alpha_s`` on the class asked, and its own latency on the other."""
    intra_s = 0.0
    if of == "inter" and wiring.intra is not None:
        intra_s = getattr(wiring.intra, algorithm.latency).at(size_bytes)
    return wiring.hops()._replace(
        alpha_intra_s=alpha_s if of == "intra" else intra_s,
        alpha_inter_s=alpha_s if of == "inter" else 0.0,
    )


CLASSES = ("ring", "tree")
"""The curves of a link: every algorithm's hops follow one of the two."""

LatencyPoint = tuple[float, float]


class Start(NamedTuple):
    """The points that tell the hops of a class from the smallest message on, and who sent them."""

    points: Sequence[LatencyPoint]
    algorithm: Algorithm
    wiring: ClusterLinks


def latencies_of(
    reference: CollectiveCurve, whole: CollectiveCurve, wiring: Mapping[str, ClusterLinks], of: str
) -> tuple[dict[str, Latency], dict[str, Start]]:
    """Return a hop's latency in rings and in trees, and where each of the two starts.

    Parameters
    ----------
    reference, whole : the curve that tells the rate; the all_reduce that tells the tree's hops
    wiring : "ring" and "tree" -> the ranks of each of the two, over the link without latency
    of : "inter" or "intra", whose hops are asked

    Notes
    -----
    NCCL compares predicted times, so ring and tree both get the alpha that gives the time. gloo
    and Open MPI follow fixed rules: each size tells the hops of the algorithm that serves it, and
    a curve that serves no size is taken as the other.
    """
    found: dict[str, Latency] = {}
    starts: dict[str, Start] = {}
    chosen = reference.library == DEFAULT_LIBRARY
    for name in CLASSES:
        shown = name if chosen else "ring"
        curve, at = whole if shown == "tree" else reference, wiring[shown]
        points = list(zip(curve.size_bytes, curve.seconds, strict=True))
        parts = [(served_by(curve, curve.size_bytes[0], name), points)]
        if not chosen:
            parts = _parts(curve, name)
        if parts:
            found[name] = _latency(curve, parts, at, of)
            algorithm, points = parts[0]
            starts[name] = Start(points, algorithm, at)
    for name, other in (CLASSES, CLASSES[::-1]):
        if name not in found:
            told = f"no {name} in what was measured: a hop taken as the {other}'s"
            found[name] = replace(
                found[other], kind="derived", source=f"{found[other].source}; {told}"
            )
    return found, starts


def same_hops(ring: Latency, tree: Latency, choice: TunedChoice, curve: CollectiveCurve) -> Latency:
    """Return the ring's curve, at least the tree's hop where small messages go over trees.

    There the all-reduce shows no ring, and a hop of the same wire costs what the tree's does.
    """
    alphas = [
        max(alpha_s, tree.at(size))
        if size <= SMALL_BYTES and choice.label(curve.ranks, curve.nodes, size)[0] == "tree"
        else alpha_s
        for size, alpha_s in zip(ring.size_bytes, ring.alpha_s, strict=True)
    ]
    return replace(ring, alpha_s=tuple(max(alpha_s, alphas[0]) for alpha_s in alphas))


def _parts(curve: CollectiveCurve, name: str) -> list[tuple[Algorithm, list[LatencyPoint]]]:
    """Return the points that each algorithm of one class of hops serves."""
    parts: dict[tuple[str, str], tuple[Algorithm, list[LatencyPoint]]] = {}
    for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
        algorithm = served_by(curve, size, "ring")
        if algorithm.latency == name:
            key = (algorithm.collective, algorithm.name)
            parts.setdefault(key, (algorithm, []))[1].append((size, seconds))
    return list(parts.values())


def _latency(
    curve: CollectiveCurve,
    parts: Sequence[tuple[Algorithm, list[LatencyPoint]]],
    wiring: ClusterLinks,
    of: str,
) -> Latency:
    knots: dict[float, float] = {}
    for algorithm, points in parts:
        sizes, seconds = zip(*points, strict=True)
        fitted = fit_curve(replace(curve, size_bytes=sizes, seconds=seconds)).curve
        for size, time_s in zip(fitted.size_bytes, fitted.seconds, strict=True):
            knots[size] = alpha_of(algorithm, size, time_s, wiring, of)
    sizes = tuple(sorted(knots))
    alphas = [knots[size] for size in sizes]
    # What is left at large sizes is noise of the rate: a hop never costs less than when small.
    alphas = [max(alpha_s, alphas[0]) for alpha_s in alphas]
    kept = _bends(alphas)
    return Latency(
        tuple(sizes[place] for place in kept),
        tuple(float(f"{alphas[place]:.4g}") for place in kept),
        "fitted",
        f"{curve.source}: {curve.name}; what the time leaves over the rate, a hop",
        None,
        curve.size_bytes[0],
        curve.size_bytes[-1],
    )


def _bends(alphas: Sequence[float]) -> list[int]:
    """Return the places of the knots that a flat stretch needs: its ends."""
    last = len(alphas) - 1
    return [
        place
        for place in range(len(alphas))
        if place in (0, last) or not alphas[place - 1] == alphas[place] == alphas[place + 1]
    ]


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


def clearest(
    of: str, shapes: Shapes, choice: TunedChoice | None
) -> tuple[CollectiveCurve, FitResult, float]:
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


def _rate(curve: CollectiveCurve, choice: TunedChoice | None) -> tuple[FitResult, float]:
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


def _wire(curve: CollectiveCurve) -> float:
    """Return the bytes that the largest message puts on a link, over the message."""
    name = "tree" if curve.algorithm == "tree" else "ring"
    formula = served_by(curve, curve.size_bytes[-1], name).formula
    inside = 0.0 if curve.nodes > 1 else 1.0
    hops = (curve.ranks, curve.nodes, curve.gpus_per_node, 0.0, 0.0)
    return formula(1.0, Hops(*hops, 1.0, 1.0, inside, 1.0)).transfer_s


def _used(of: str, nics: int, curve: CollectiveCurve) -> int:
    """Return the NICs that carried a curve: a GPU drives at most one, or the few that it owns."""
    return min(nics, curve.gpus_per_node) if of == "inter" else 1


def rate_of(
    of: str,
    curve: CollectiveCurve,
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


def _quantity(value: float, found: FitResult, curve: CollectiveCurve) -> Quantity:
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


NEEDS = {
    "alpha": "Measure messages of a few bytes with this NCCL_PROTO.",
    "beta": "Measure messages of 64 MiB and more with this NCCL_PROTO.",
}


def held_curves(curves: Sequence[CollectiveCurve], untold: list[str]) -> list[CollectiveCurve]:
    """Return the curves that NCCL chose the protocol of, else those of the fastest one held."""
    usual = [curve for curve in curves if not curve.protocol]
    if usual or not curves:
        return usual
    # Of held protocols the one with the widest rate is nearest to NCCL's own choice.
    named = [name for name in PROTOCOLS[::-1] if any(one.protocol == name for one in curves)]
    protocol = named[0] if named else curves[0].protocol
    untold.append(f"NCCL's own choice of protocol: measure without NCCL_PROTO; taken as {protocol}")
    return [curve for curve in curves if curve.protocol == protocol]


def protocol_fits(
    of: str,
    curves: Sequence[CollectiveCurve],
    link: Link,
    inside: Link | None,
    nics: int,
    untold: list[str],
) -> tuple[dict[str, ProtocolFigures], dict[str, FitResult]]:
    """Return rate and hop latency of each protocol that was held fixed, and the fits behind them.

    Alpha and beta of the algorithm's formula are fitted to all sizes at once, relative errors,
    robust; where NCCL chose between ring and tree the faster of the two is the model.
    """
    found: dict[str, ProtocolFigures] = {}
    fits: dict[str, FitResult] = {}
    for protocol in PROTOCOLS:
        held = {(one.collective, one.algorithm): one for one in curves if one.protocol == protocol}
        curve = next((held[key] for key in CLEAREST if key in held), None)
        if curve is None:
            continue
        try:
            fits[protocol] = _fit(of, curve, link, inside, nics)
        except (Unidentified, ValueError) as error:
            untold.append(f"protocol {protocol}: {curve.name}: {error}")
            continue
        values = fits[protocol].values
        source = f"{curve.source}: {curve.name}"
        origin = (fits[protocol].p90, curve.size_bytes[0], curve.size_bytes[-1])
        rate = Quantity(1.0 / values["beta"], "B/s", "fitted", source, *origin)
        alpha = Quantity(values["alpha"], "s/hop", "fitted", source, *origin)
        share, more_s = rate.value / link.rate.value, alpha.value - link.ring.alpha_s[0]
        found[protocol] = ProtocolFigures(rate, alpha, share, more_s)
    return found, fits


def _fit(of: str, curve: CollectiveCurve, link: Link, inside: Link | None, nics: int) -> FitResult:
    names = (curve.algorithm,) if curve.algorithm else ("ring", "tree")
    algorithms = [served_by(curve, curve.size_bytes[0], name) for name in names]
    ratio = link.tree_rate.value / link.rate.value

    def model(sizes: Sequence[float], alpha: float, beta: float) -> list[float]:
        rate = link.rate._replace(value=1.0 / max(beta, 1e-30))
        tree = link.tree_rate._replace(value=ratio * rate.value)
        wiring = wired(of, curve, replace(link, rate=rate, tree_rate=tree), inside, nics)
        hops = wiring.hops()._replace(alpha_intra_s=alpha, alpha_inter_s=alpha)
        times = []
        for size in sizes:
            if of == "inter":
                inside_s = wiring.intra.ring.at(size) if wiring.intra is not None else 0.0
                hops = hops._replace(alpha_intra_s=inside_s)
            times.append(min(one.formula(size, hops).seconds for one in algorithms))
        return times

    start = (
        Parameter("alpha", max(link.ring.alpha_s[0], 1e-9), "s/hop", low=0.0),
        Parameter("beta", 1.0 / link.rate.value, "s/B", low=0.0),
    )
    title = f"hops of {curve.protocol}"
    sizes = list(curve.size_bytes)
    return fit(model, sizes, curve.seconds, start, needs=NEEDS, title=title)


@dataclass(frozen=True)
class LinkFit:
    """A fitted link, the fits behind its rate, and what the curves could not tell.

    ``starts`` are the points that tell a small message's hop in ring and tree,
    ``protocol_fits`` the fits of protocols that were held fixed.
    """

    of: str
    link: Link
    rate_fit: FitResult
    untold: tuple[str, ...]
    rate_errors: Mapping[str, float | None] = field(default_factory=dict)
    starts: Mapping[str, Start] = field(default_factory=dict)
    protocol_fits: Mapping[str, FitResult] = field(default_factory=dict)

    @cached_property
    def errors(self) -> dict[str, float]:
        """Standard errors that are told, in the unit of each.

        Of rate, tree_rate, gamma; of a small message's hop in "ring" and "tree".
        """
        told = dict(self.rate_errors)
        for name, start in self.starts.items():
            told[name] = floor_error(*start, self.of)
        return {name: error for name, error in told.items() if error is not None}


def fit_link(
    of: str,
    curves: Sequence[CollectiveCurve],
    inside: Link | None,
    nics: int,
    choice: TunedChoice | None,
) -> LinkFit:
    """Return the link of one class (inter or intra) that curves tell.

    Parameters
    ----------
    of : "inter" (curves over several nodes) or "intra" (over the GPUs of one)
    curves : measured; of each collective the one over most ranks is fitted, those with a protocol
        held only where there is no other
    inside : the link within the nodes, whose hops an inter-node ring crosses too
    nics : that the GPUs of a node share; the rate is that of one in use
    choice : NCCL's tuner on the cluster, if it was set from the curves

    Raises
    ------
    Unidentified
        If the curves cannot tell the rate; says which measurement would.

    Notes
    -----
    rate: slope of the wire bytes' line over the largest messages, down to a sixteenth of the
    largest (relative errors, robust), without what the sum takes of it. latency: at each knot of
    the fitted curve the alpha of ring and of tree that gives the time, the rest of the formula
    taken off; at a size that one of the two serves the other is thereby no faster. Its residual
    is that of the link's own formulas at every point of these curves.
    """
    untold: list[str] = []
    usual = held_curves(curves, untold)
    shapes = {(curve.collective, curve.algorithm): curve for curve in _largest(usual)}
    reference, found, bus = clearest(of, shapes, choice)
    gamma, gamma_error = gamma_of(shapes, reference, bus, untold)
    rate, rate_error = rate_of(of, reference, found, bus, nics, gamma, gamma_error)
    tree_rate, tree_error = tree_rate_of(of, shapes, rate, nics, gamma, gamma_error, untold)
    whole = shapes.get(("all_reduce", "tree")) or shapes.get(("all_reduce", "")) or reference
    bare = Link("", rate, tree_rate, gamma, _none(rate), _none(rate))
    wiring = {
        name: wired(of, curve, bare, inside, nics)
        for name, curve in (("ring", reference), ("tree", whole))
    }
    latencies, starts = latencies_of(reference, whole, wiring, of)
    ring, tree = latencies["ring"], latencies["tree"]
    if min(curve.size_bytes[0] for curve in (reference, whole)) > SMALL_BYTES:
        untold.append("latency: measure small messages, from 8 B on; NCCL's own figures are taken")
        ring, tree = hop_figures(of, reference)
    elif of == "inter" and choice is not None and reference is whole:
        ring = same_hops(ring, tree, choice, whole)
    members = [curve.ranks for curve in curves]
    link = Link("", rate, tree_rate, gamma, ring, tree, (min(members), max(members)))
    link = replace(
        link,
        ring=replace(ring, spread=_residual(of, _alike(reference, usual), link, inside, nics)),
        tree=replace(tree, spread=_residual(of, _alike(whole, usual), link, inside, nics)),
    )
    held, fits = protocol_fits(of, curves, link, inside, nics, untold)
    errors = {"rate": rate_error, "tree_rate": tree_error, "gamma": gamma_error}
    link = replace(link, protocols=held)
    return LinkFit(of, link, found, tuple(untold), errors, starts, fits)


def _alike(reference: CollectiveCurve, curves: Sequence[CollectiveCurve]) -> list[CollectiveCurve]:
    """Return the curves of a reference's collective and algorithm, on any ranks."""
    kind = (reference.collective, reference.algorithm)
    return [curve for curve in curves if (curve.collective, curve.algorithm) == kind]


def _residual(
    of: str, curves: Sequence[CollectiveCurve], link: Link, inside: Link | None, nics: int
) -> float | None:
    """Return the 90th percentile of what the link's formulas miss, all ranks and sizes."""
    inter, intra = (link, inside) if of == "inter" else (None, link)
    off: list[float] = []
    for curve in curves:
        usual = replace(curve, protocol="")
        off += errors_of(usual, cluster_of(usual, inter, intra, nics))
    if not off:
        return None
    off.sort()
    place = 0.9 * (len(off) - 1)
    low = int(place)
    return off[low] + (place - low) * (off[min(low + 1, len(off) - 1)] - off[low])


def _largest(curves: Sequence[CollectiveCurve]) -> list[CollectiveCurve]:
    return sorted(
        curves, key=lambda curve: (curve.ranks, curve.size_bytes[-1], -curve.nodes, curve.seconds)
    )


def _none(rate: Quantity) -> Latency:
    return Latency.constant(Quantity(0.0, "s/hop", "derived", rate.source))
