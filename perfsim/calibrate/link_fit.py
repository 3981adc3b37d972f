"""Fit one link to the curves measured over it: rate, reduction, latency by size, protocols.

Each number is fitted where it shows best. Of each collective the curve over most ranks is taken.

========== ============================================== ==========================================
number     from which messages                            why
========== ============================================== ==========================================
rate       the largest, down to a sixteenth of the        bytes rule there: the slope of time over
           largest                                        bytes on the wire is 1 / rate
tree_rate  the same of an all_reduce held to the tree,    a tree sends 2 n over each link, and
           from 1 MiB                                     reaches another rate than a ring
gamma      reduce_scatter less all_gather on the same     both move the same bytes; only the first
           ranks, from 1 MiB                              adds numbers up
latency    every size: what the time leaves over the      a hop costs more the larger the message;
           rate, over the hops that the algorithm crosses one alpha cannot serve both ends
protocols  all sizes of a curve with NCCL_PROTO held      alpha and beta of one protocol, both
========== ============================================== ==========================================

What the curves do not determine is named with the measurement that would determine it.
"""

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
from perfsim.libraries import AUTO, library
from perfsim.libraries.nccl_versions import PROTOCOLS
from perfsim.network.cluster import Cluster
from perfsim.network.link import Latency, Link, ProtocolFigures
from perfsim.network.measured import CollectiveCurve
from perfsim.network.network_file import load_network
from perfsim.network.route import ClusterLinks
from perfsim.network.scaling_laws import SMALL_BYTES
from perfsim.network.tuner_fit import TunedChoice, communicator, tuner_figures
from perfsim.quantity import SPREAD_LIMIT, Kind, Quantity

__all__ = [
    "MIDDLE_BYTES",
    "LatencyStart",
    "LinkFit",
    "cluster_of",
    "errors_of",
    "fit_link",
    "inside_link",
    "rate_points",
]

MIDDLE_BYTES = 4 * 2**20
"""Up to here a curve is floor and slope; beyond, bytes rule.

No source: chosen so that the shape of a curve is fitted below the sizes that determine the rate.
"""

_LARGE_BYTES = 2**20
"""From here on reductions and trees are compared.

No source: chosen so that latency is a small part of the time on the links of our data.
"""

_MIN_LARGE_SIZES = 3
"""Large sizes that a rate needs: two parameters and one to check them. A sum needs them too."""

_MIN_BYTES_SHARE = 0.5
"""Of the largest message's time this much must be bytes, or the rate is not determined.

No source: chosen so that the slope is not that of the latency.
"""

_SUMS_PER_WIRE_BYTE = {"all_reduce": 0.5, "reduce_scatter": 1.0}
"""Sums a byte on the wire: this much of gamma is part of a collective's slope.

A ring's all_reduce sums every second byte that it moves, n (P-1)/P of 2 n (P-1)/P; a
reduce_scatter every one.
"""

_MEDIAN_ERROR = 1.2533 / 0.6745
"""Standard error of a median over half the quartiles' range and sqrt(count): sqrt(pi / 2) sigma."""

_MAD_TO_SIGMA = 1.4826
"""Standard deviation over the median absolute deviation of normal residuals: 1 / 0.6745."""

_SAME_TIME = 1e-9
"""Relative distance at which a time counts as met."""

_RATE_ORDER = (
    ("all_reduce", "ring"),
    ("all_gather", ""),
    ("reduce_scatter", ""),
    ("all_reduce", ""),
    ("all_reduce", "tree"),
    ("broadcast", ""),
    ("send_recv", ""),
)
"""Curves that show a rate, the clearest first.

A ring held fixed comes first, then what never goes over trees.
"""

_HOP_KINDS = ("ring", "tree")
"""The latency curves of a link: every algorithm's hops follow one of the two."""

_SIMPLE = 2
"""Index of the Simple protocol among the three figures of a hop (LL, LL128, Simple)."""

_PROTOCOL_NEEDS = {
    "alpha": "Measure messages of a few bytes with this NCCL_PROTO.",
    "beta": "Measure messages of 64 MiB and more with this NCCL_PROTO.",
}

_Shapes = Mapping[tuple[str, str], CollectiveCurve]
"""(collective, algorithm held fixed) -> the curve of it over most ranks."""

_Point = tuple[float, float]
"""Size [B] and time [s] of one message."""


class LatencyStart(NamedTuple):
    """The points that show the hops of one kind from the smallest message on.

    ``algorithm`` carried them over ``wiring``, the ranks over the link without latency.
    """

    points: Sequence[_Point]
    algorithm: Algorithm
    wiring: ClusterLinks


@dataclass(frozen=True)
class LinkFit:
    """A fitted link, the fits behind its rate, and what the curves do not determine.

    ``link_class`` is "inter" or "intra", ``undetermined`` a sentence a number; ``rate_curve`` is
    the curve whose large messages show the rate; ``starts`` are the
    points that show a small message's hop in ring and tree, ``protocol_fits`` the fits of
    protocols that were held fixed.
    """

    link_class: str
    link: Link
    rate_fit: FitResult
    rate_curve: CollectiveCurve
    undetermined: tuple[str, ...]
    rate_errors: Mapping[str, float | None] = field(default_factory=dict)
    starts: Mapping[str, LatencyStart] = field(default_factory=dict)
    protocol_fits: Mapping[str, FitResult] = field(default_factory=dict)

    @cached_property
    def errors(self) -> dict[str, float]:
        """Standard errors that are known, in the unit of each.

        Of rate, tree_rate, gamma; of a small message's hop in "ring" and "tree".
        """
        errors = dict(self.rate_errors)
        for name, start in self.starts.items():
            errors[name] = _latency_error(start, self.link_class)
        return {name: error for name, error in errors.items() if error is not None}


def fit_link(
    link_class: str,
    curves: Sequence[CollectiveCurve],
    inside: Link | None,
    nics_per_node: int | None,
    choice: TunedChoice | None,
) -> LinkFit:
    """Fit the link of one class to curves.

    Parameters
    ----------
    link_class : "inter" (curves over several nodes) or "intra" (over the GPUs of one)
    curves : measured; those with a protocol held fixed count only where there is no other
    inside : the link within the nodes, whose hops an inter-node ring crosses too
    nics_per_node : NICs that the GPUs of a node share; the rate is that of one in use. None where
        nobody states them: the rate is that of a whole node
    choice : NCCL's tuner on the cluster, if it was set from the curves

    Raises
    ------
    Unidentified
        If the curves do not determine the rate; says which measurement would.

    Notes
    -----
    rate: slope of the wire bytes' line over the largest messages, down to a sixteenth of the
    largest (relative errors, robust), without what the sum takes of it. latency: at each knot of
    the fitted curve the alpha of ring and of tree that gives the time, the rest of the formula
    taken off; at a size that one of the two serves the other is thereby no faster. Its residual
    is that of the link's own formulas at every point of these curves.
    """
    undetermined: list[str] = []
    nics = nics_per_node or 1
    usual = _without_protocol(curves, undetermined)
    by_ranks = sorted(
        usual, key=lambda curve: (curve.ranks, curve.size_bytes[-1], -curve.nodes, curve.seconds)
    )
    shapes = {(curve.collective, curve.algorithm): curve for curve in by_ranks}
    reference, rate_fit, bus = _clearest_rate(link_class, shapes, choice, nics_per_node)
    whole = shapes.get(("all_reduce", "tree")) or shapes.get(("all_reduce", "")) or reference

    gamma, gamma_error = _gamma(shapes, reference, bus, undetermined)

    def rate_of(curve: CollectiveCurve, slope: FitResult) -> tuple[Quantity, float | None]:
        used = _nics_crossed(curve, nics) if link_class == "inter" else 1
        return _rate(curve, slope, used, gamma, gamma_error)

    rate, rate_error = rate_of(reference, rate_fit)
    tree_rate, tree_error = _tree_rate(shapes, rate, rate_of, undetermined)

    no_latency = Latency.constant(Quantity(0.0, "s/hop", "derived", rate.source))
    bare = Link("", rate, tree_rate, gamma, no_latency, no_latency)
    wiring = {
        name: _wiring(link_class, curve, bare, inside, nics)
        for name, curve in (("ring", reference), ("tree", whole))
    }
    latencies, starts = _latencies(reference, whole, wiring, link_class)
    ring, tree = latencies["ring"], latencies["tree"]
    if min(curve.size_bytes[0] for curve in (reference, whole)) > SMALL_BYTES:
        undetermined.append(
            "latency: measure small messages, from 8 B on; NCCL's own figures are taken"
        )
        ring, tree = _tuner_latencies(link_class, reference)
    elif link_class == "inter" and choice is not None and reference is whole:
        ring = _at_least_tree(ring, tree, choice, whole)

    members = [curve.ranks for curve in curves]
    link = Link("", rate, tree_rate, gamma, ring, tree, (min(members), max(members)))

    def spread(model: CollectiveCurve) -> float | None:
        kind = (model.collective, model.algorithm)
        alike = [curve for curve in usual if (curve.collective, curve.algorithm) == kind]
        return _residual_p90(link_class, alike, link, inside, nics)

    link = replace(
        link,
        ring=replace(ring, spread=spread(reference)),
        tree=replace(tree, spread=spread(whole)),
    )
    protocols, protocol_fits = _protocols(link_class, curves, link, inside, nics, undetermined)
    errors = {"rate": rate_error, "tree_rate": tree_error, "gamma": gamma_error}
    link = replace(link, protocols=protocols)
    return LinkFit(
        *(link_class, link, rate_fit, reference, tuple(undetermined)),
        *(errors, starts, protocol_fits),
    )


def inside_link(catalog: Catalog) -> Callable[[str], Link | None]:
    """Return the function that loads a preset's link between the GPUs of a node.

    Examples
    --------
    >>> inside_link(Catalog())("pcie3").rate.unit
    'B/s'
    """
    return lambda name: load_network(name, catalog, "inside").links.get("intra")


def _without_protocol(
    curves: Sequence[CollectiveCurve], undetermined: list[str]
) -> list[CollectiveCurve]:
    """Return the curves whose protocol NCCL chose, else those of the fastest one held fixed."""
    usual = [curve for curve in curves if not curve.protocol]
    if usual or not curves:
        return usual
    # Of held protocols the one with the widest rate is nearest to NCCL's own choice.
    named = [name for name in PROTOCOLS[::-1] if any(curve.protocol == name for curve in curves)]
    protocol = named[0] if named else curves[0].protocol
    undetermined.append(
        f"NCCL's own choice of protocol: measure without NCCL_PROTO; taken as {protocol}"
    )
    return [curve for curve in curves if curve.protocol == protocol]


# The ranks of a curve, and the algorithm that carried it


def _wiring(
    link_class: str, curve: CollectiveCurve, link: Link, inside: Link | None, nics: int
) -> ClusterLinks:
    """Return the ranks of a measured curve over a link, as a prediction connects them."""
    if link_class == "intra":
        return ClusterLinks(curve.ranks, 1, curve.ranks, 1, None, link)
    return ClusterLinks(
        curve.ranks,
        curve.nodes,
        curve.gpus_per_node,
        _nics_crossed(curve, nics),
        link,
        inside if curve.gpus_per_node > 1 else None,
    )


def _one_rank_crosses(curve: CollectiveCurve) -> bool:
    """Tell whether of a node's several ranks one sends to the next node: send_recv on a ring.

    Every rank of nccl-tests' sendrecv sends to the next one, which for all but the last of a node
    stands beside it.
    """
    return curve.collective == "send_recv" and curve.nodes > 1 and curve.gpus_per_node > 1


def _nics_crossed(curve: CollectiveCurve, nics: int) -> int:
    """Return the NICs of a node that carried a curve; a GPU drives at most one at a time."""
    return 1 if _one_rank_crosses(curve) else min(nics, curve.gpus_per_node)


def cluster_of(
    curve: CollectiveCurve, inter: Link | None, intra: Link | None, nics: int = 1
) -> Cluster:
    """Return the ranks of a curve as a cluster that knows its links' formulas alone."""
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
    algorithm, protocol = curve.algorithm or AUTO, curve.protocol or AUTO
    try:
        return [
            abs(cluster.cost(curve.collective, size, algorithm, protocol).seconds / seconds - 1)
            for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True)
        ]
    except RequestError:
        return []  # it was measured with an algorithm held fixed that perfsim has no formula of


def _residual_p90(
    link_class: str, curves: Sequence[CollectiveCurve], link: Link, inside: Link | None, nics: int
) -> float | None:
    """Return the 90th percentile of what the link's formulas miss, over all ranks and sizes."""
    import numpy as np

    inter, intra = (link, inside) if link_class == "inter" else (None, link)
    off: list[float] = []
    for curve in curves:
        usual = replace(curve, protocol="")
        off += errors_of(usual, cluster_of(usual, inter, intra, nics))
    return float(np.quantile(off, 0.9)) if off else None


def _serving_algorithm(curve: CollectiveCurve, size_bytes: float, hop_kind: str) -> Algorithm:
    """Return the algorithm that carried a measured message, as its library runs it.

    Parameters
    ----------
    curve : measured; an algorithm that it says was held fixed is taken where the library has it
    hop_kind : ring or tree, of what NCCL has both for and takes the faster

    Examples
    --------
    >>> sizes, seconds = (8.0,), (1e-5,)
    >>> curve = CollectiveCurve(
    ...     "all_reduce", 8, 8, 1, sizes, seconds, "measured", "x", library="mpi"
    ... )
    >>> [_serving_algorithm(curve, size, "ring").name for size in (9999, 10000)]
    ['doubling', 'ring']
    """
    of = library(curve.library)
    collective = of.runs_as.get(curve.collective, curve.collective)
    if curve.algorithm and of.has is not None and curve.algorithm in of.names(collective):
        return of.algorithm(collective, curve.algorithm)
    chosen = of.choose(collective, size_bytes, curve.ranks)
    if chosen is not None:
        return of.algorithm(collective, chosen)
    both = [of.algorithm(collective, name) for name in of.considered(collective)]
    return next((algorithm for algorithm in both if algorithm.latency == hop_kind), both[0])


# Rate: the slope over the largest messages


def _clearest_rate(
    link_class: str, shapes: _Shapes, choice: TunedChoice | None, nics_per_node: int | None
) -> tuple[CollectiveCurve, FitResult, float]:
    """Return the first curve that shows a rate, its fit, and the bus bandwidth [B/s]."""
    refused: Unidentified | None = None
    for key in _RATE_ORDER:
        if key in shapes:
            try:
                if nics_per_node is None and _one_rank_crosses(shapes[key]):
                    raise Unidentified(
                        f"{shapes[key].name}: one rank of a node sends to the other, which shows"
                        " the rate of one NIC and not how many a node has; state the NICs a node,"
                        " or measure all_reduce",
                        ("rate",),
                    )
                slope = _slope(shapes[key], choice)
            except Unidentified as error:
                refused = refused or error
            else:
                return shapes[key], slope, 1.0 / slope.values["b"]
    if refused is not None:
        raise refused
    where = "nodes" if link_class == "inter" else "the GPUs of a node"
    raise Unidentified(
        f"no collective between {where} shows a rate; measure all_reduce, from a few"
        " bytes up to 256 MiB",
        ("rate",),
    )


def rate_points(curve: CollectiveCurve) -> list[tuple[float, float]]:
    """Return size [B] and time [s] of the messages that a curve's rate is fitted to."""
    points = curve.large()
    if len(points) < _MIN_LARGE_SIZES:
        points = list(zip(curve.size_bytes, curve.seconds, strict=True))
    return points


def _slope(curve: CollectiveCurve, choice: TunedChoice | None) -> FitResult:
    """Fit the line of the large messages, c + b m, over the bytes m on the busiest wire."""
    factor = _wire_factor(curve)
    if (
        choice is not None
        and curve.collective == "all_reduce"
        and not curve.algorithm
        and curve.nodes == 2
        and choice.label(curve.ranks, curve.nodes, curve.size_bytes[-1])[0] == "tree"
    ):
        factor = 1.0  # between two nodes a double tree sends each half of the message once
    points = rate_points(curve)
    large = [(factor * size, seconds) for size, seconds in points]
    more = f"measure at least {_MIN_LARGE_SIZES} sizes, the largest 64 MiB or more"
    if len(large) < _MIN_LARGE_SIZES:
        few = "1 size does" if len(large) == 1 else f"{len(large)} sizes do"
        raise Unidentified(f"{curve.name}: {few} not determine a rate; {more}", ("b",))
    slope = _large_line(large)
    if slope.values["b"] * large[-1][0] < _MIN_BYTES_SHARE * large[-1][1]:
        raise Unidentified(
            f"{curve.name}: the largest message is still more latency than bytes, which does not"
            f" determine a rate; {more}",
            ("b",),
        )
    if curve.size_bytes[-1] <= SMALL_BYTES:
        why = f"messages of at most {SMALL_BYTES / 1024:.0f} KiB show a latency and no rate"
        raise Unidentified(f"{curve.name}: {why}; {more}", ("b",))
    return slope


def _wire_factor(curve: CollectiveCurve) -> float:
    """Return the bytes that the largest message puts on a link, over the message's own."""
    hop_kind = "tree" if curve.algorithm == "tree" else "ring"
    formula = _serving_algorithm(curve, curve.size_bytes[-1], hop_kind).formula
    inside = 0.0 if curve.nodes > 1 else 1.0
    hops = (curve.ranks, curve.nodes, curve.gpus_per_node, 0.0, 0.0)
    return formula(1.0, Hops(*hops, 1.0, 1.0, inside, 1.0)).transfer_s


def _large_line(points: Sequence[_Point]) -> FitResult:
    """Fit c + b m; where large messages do not determine c, which they need not, b alone."""
    sizes, seconds = zip(*points, strict=True)
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


def _rate(
    curve: CollectiveCurve,
    slope: FitResult,
    used_nics: int,
    gamma: Quantity,
    gamma_error: float | None,
) -> tuple[Quantity, float | None]:
    """Return the rate of one NIC or link without the reduction's time, and its error [B/s].

    Parameters
    ----------
    curve, slope : the curve that shows the rate, and the line through its large messages
    used_nics : NICs that carried it: a GPU drives at most one, or the few that it owns
    gamma : the reduction's time a byte [s/B], part of a reducing collective's slope
    gamma_error : its standard error, None where it was not fitted

    Notes
    -----
    The standard error is that of the slope, and of what the sum takes of it.
    """
    sums = _SUMS_PER_WIRE_BYTE.get(curve.collective, 0.0)
    bus = 1.0 / slope.values["b"]
    beta = 1.0 / bus - sums * gamma.value
    alone = "; one rank of a node crosses, over one NIC" if _one_rank_crosses(curve) else ""
    rate = Quantity(
        1.0 / beta / used_nics,
        "B/s",
        "fitted",
        f"{curve.source}: {curve.name}, large messages{alone}",
        slope.p90,
        curve.size_bytes[0],
        curve.size_bytes[-1],
    )
    stderr = slope.stderr("b")
    if stderr is None:
        return rate, None
    slope_error = stderr / slope.values["b"] / bus
    return rate, rate.value * math.hypot(slope_error, sums * (gamma_error or 0.0)) / beta


def _tree_rate(
    shapes: _Shapes,
    rate: Quantity,
    rate_of: Callable[[CollectiveCurve, FitResult], tuple[Quantity, float | None]],
    undetermined: list[str],
) -> tuple[Quantity, float | None]:
    """Return what a double binary tree gets of a link, and its error [B/s].

    Only a curve with the tree held fixed shows it; else it is taken as the ring's ``rate``,
    without an error. ``rate_of`` gives the rate of a curve from its slope.
    """
    held = shapes.get(("all_reduce", "tree"))
    points = [] if held is None else list(zip(held.size_bytes, held.seconds, strict=True))
    large = [(2.0 * size, seconds) for size, seconds in points if size >= _LARGE_BYTES]
    if held is not None and len(large) >= _MIN_LARGE_SIZES:
        return rate_of(held, _large_line(large))
    if held is None and not all(library(one.library).compares_times for one in shapes.values()):
        source = f"no double binary tree in this library: taken as the ring's, {rate.source}"
    else:
        undetermined.append(
            "tree rate: measure all_reduce with NCCL_ALGO=Tree; taken as the ring's"
        )
        source = f"no curve with the tree held fixed: taken as the ring's, {rate.source}"
    return Quantity(rate.value, "B/s", "derived", source, rate.spread, rate.low, rate.high), None


# Gamma: what a reduce_scatter takes more than an all_gather


def _gamma(
    shapes: _Shapes, reference: CollectiveCurve, bus: float, undetermined: list[str]
) -> tuple[Quantity, float | None]:
    """Return the reduction's time a byte and its standard error [s/B].

    Parameters
    ----------
    shapes : the curves of the link
    reference, bus : the curve that shows the rate, and its bus bandwidth [B/s]: a sum must leave
        its bytes some time

    Notes
    -----
    The median over the large sizes of (reduce_scatter - all_gather) / ((P-1)/P n). Its standard
    error follows from the distance of the quartiles.
    """

    def part_of_rate(reason: str, kind: Kind = "fitted") -> tuple[Quantity, float | None]:
        source = f"the sum runs while bytes move: {reason}; it is part of the rate"
        return Quantity(0.0, "s/B", kind, source, 0.0), None

    scatter, gather = shapes.get(("reduce_scatter", "")), shapes.get(("all_gather", ""))
    if scatter is None or gather is None or scatter.ranks != gather.ranks:
        undetermined.append("gamma: measure reduce_scatter and all_gather on the same ranks")
        return part_of_rate("no curve of an all-reduce alone tells it from the rate", "derived")
    share = (scatter.ranks - 1) / scatter.ranks
    more = sorted(
        (seconds - gather.at(size)) / (share * size)
        for size, seconds in zip(scatter.size_bytes, scatter.seconds, strict=True)
        if size >= _LARGE_BYTES and gather.inside(size)
    )
    if len(more) < _MIN_LARGE_SIZES or more[len(more) // 2] <= 0:
        return part_of_rate("reduce_scatter takes no longer than all_gather")
    value = more[len(more) // 2]
    if _SUMS_PER_WIRE_BYTE.get(reference.collective, 0.0) * value >= 1.0 / bus:
        collective = reference.collective
        reason = f"by reduce_scatter and all_gather the sum takes all of {collective}'s time"
        return part_of_rate(reason)
    quarter = len(more) // 4
    half = (more[-1 - quarter] - more[quarter]) / 2.0
    source = (
        f"{scatter.source}: median of (reduce_scatter - all_gather) / ((P-1)/P n) from 1 MiB on"
    )
    error = _MEDIAN_ERROR * half / math.sqrt(len(more))
    return Quantity(value, "s/B", "fitted", source, min(half / value, SPREAD_LIMIT.most)), error


# Latency: what the time leaves over the rate, a hop


def _latencies(
    reference: CollectiveCurve,
    whole: CollectiveCurve,
    wiring: Mapping[str, ClusterLinks],
    link_class: str,
) -> tuple[dict[str, Latency], dict[str, LatencyStart]]:
    """Return a hop's latency in rings and in trees, and the points where each of the two starts.

    Parameters
    ----------
    reference, whole : the curve that shows the rate; the all_reduce that shows the tree's hops
    wiring : "ring" and "tree" -> the ranks of each of the two, over the link without latency
    link_class : "inter" or "intra", whose hops are asked

    Notes
    -----
    NCCL compares predicted times, so ring and tree both get the alpha that gives the time. gloo
    and Open MPI follow fixed rules: each size shows the hops of the algorithm that serves it, and
    a kind of hop that serves no size is taken as the other.
    """
    latencies: dict[str, Latency] = {}
    starts: dict[str, LatencyStart] = {}
    by_time = library(reference.library).compares_times
    for hop_kind in _HOP_KINDS:
        source = hop_kind if by_time else "ring"
        curve, links = whole if source == "tree" else reference, wiring[source]
        if by_time:
            points = list(zip(curve.size_bytes, curve.seconds, strict=True))
            parts = [(_serving_algorithm(curve, curve.size_bytes[0], hop_kind), points)]
        else:
            parts = _by_algorithm(curve, hop_kind)
        if parts:
            latencies[hop_kind] = _latency(curve, parts, links, link_class)
            algorithm, points = parts[0]
            starts[hop_kind] = LatencyStart(points, algorithm, links)
    for hop_kind, other in (_HOP_KINDS, _HOP_KINDS[::-1]):
        if hop_kind not in latencies:
            why = f"no {hop_kind} in what was measured: a hop taken as the {other}'s"
            source = f"{latencies[other].source}; {why}"
            latencies[hop_kind] = replace(latencies[other], kind="derived", source=source)
    return latencies, starts


def _by_algorithm(curve: CollectiveCurve, hop_kind: str) -> list[tuple[Algorithm, list[_Point]]]:
    """Return each algorithm whose hops are of a kind, with the points that it serves."""
    parts: dict[tuple[str, str], tuple[Algorithm, list[_Point]]] = {}
    for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
        algorithm = _serving_algorithm(curve, size, "ring")
        if algorithm.latency == hop_kind:
            key = (algorithm.collective, algorithm.name)
            parts.setdefault(key, (algorithm, []))[1].append((size, seconds))
    return list(parts.values())


def _latency(
    curve: CollectiveCurve,
    parts: Sequence[tuple[Algorithm, list[_Point]]],
    wiring: ClusterLinks,
    link_class: str,
) -> Latency:
    """Return the latency of a hop at each knot of the fitted curve of each algorithm's points."""
    knots: dict[float, float] = {}
    for algorithm, points in parts:
        sizes, seconds = zip(*points, strict=True)
        fitted = fit_curve(replace(curve, size_bytes=sizes, seconds=seconds)).curve
        for size, time_s in zip(fitted.size_bytes, fitted.seconds, strict=True):
            knots[size] = _hop_latency(algorithm, size, time_s, wiring, link_class)
    sizes = tuple(sorted(knots))
    alphas = [knots[size] for size in sizes]
    # What is left at large sizes is noise of the rate: a hop never costs less than when small.
    alphas = [max(alpha_s, alphas[0]) for alpha_s in alphas]
    last = len(alphas) - 1
    bends = [  # of a flat stretch the ends are enough
        index
        for index in range(len(alphas))
        if index in (0, last) or not alphas[index - 1] == alphas[index] == alphas[index + 1]
    ]
    return Latency(
        tuple(sizes[index] for index in bends),
        tuple(float(f"{alphas[index]:.4g}") for index in bends),
        "fitted",
        f"{curve.source}: {curve.name}; what the time leaves over the rate, a hop",
        None,
        curve.size_bytes[0],
        curve.size_bytes[-1],
    )


def _hop_latency(
    algorithm: Algorithm, size_bytes: float, seconds: float, wiring: ClusterLinks, link_class: str
) -> float:
    """Return the latency of one hop [s] at which an algorithm takes a measured time, at least 0.

    Parameters
    ----------
    algorithm : as its library runs it
    wiring : the ranks measured; a link inside the nodes has its own latency, of the curve that
        the algorithm's hops follow
    link_class : "inter" or "intra", whose hops are asked
    """

    def modelled_s(alpha_s: float) -> float:
        hops = _hops(algorithm, size_bytes, wiring, link_class, alpha_s)
        return algorithm.formula(size_bytes, hops).seconds

    rest_s = modelled_s(0.0)
    if seconds <= rest_s:
        return 0.0
    hops = modelled_s(1.0) - rest_s
    if hops <= 0.0:
        return 0.0
    alpha_s = (seconds - rest_s) / hops
    if abs(modelled_s(alpha_s) / seconds - 1.0) <= _SAME_TIME:
        return alpha_s
    # Chains split the message as alpha and beta call for, so time is no line in alpha.
    if modelled_s(seconds) <= seconds:
        return seconds
    from scipy.optimize import brentq

    return float(
        brentq(lambda alpha_s: modelled_s(alpha_s) - seconds, 0.0, seconds, xtol=1e-15 * seconds)
    )


def _hops(
    algorithm: Algorithm, size_bytes: float, wiring: ClusterLinks, link_class: str, alpha_s: float
) -> Hops:
    """Return the hops with ``alpha_s`` on the class asked, and its own latency on the other."""
    intra_s = 0.0
    if link_class == "inter" and wiring.intra is not None:
        intra_s = getattr(wiring.intra, algorithm.latency).at(size_bytes)
    return wiring.hops()._replace(
        alpha_intra_s=alpha_s if link_class == "intra" else intra_s,
        alpha_inter_s=alpha_s if link_class == "inter" else 0.0,
    )


def _at_least_tree(
    ring: Latency, tree: Latency, choice: TunedChoice, curve: CollectiveCurve
) -> Latency:
    """Return the ring's latency, at least the tree's where small messages go over trees.

    There the all_reduce shows no ring, and a hop of the same wire costs what the tree's does.
    """
    alphas = [
        max(alpha_s, tree.at(size))
        if size <= SMALL_BYTES and choice.label(curve.ranks, curve.nodes, size)[0] == "tree"
        else alpha_s
        for size, alpha_s in zip(ring.size_bytes, ring.alpha_s, strict=True)
    ]
    return replace(ring, alpha_s=tuple(max(alpha_s, alphas[0]) for alpha_s in alphas))


def _tuner_latencies(link_class: str, curve: CollectiveCurve) -> tuple[Latency, Latency]:
    """Return the latency of a ring's and a tree's hop by NCCL's tuner (Simple), kind derived.

    Parameters
    ----------
    link_class : "inter" or "intra"
    curve : states the version, the GPUs and the links inside a node

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, hwLat. Measured hops are 1 to 2 times that over
    Slingshot and 3 to 6 times over TCP.

    Examples
    --------
    >>> large = CollectiveCurve(
    ...     "all_reduce", 2, 2, 1, (1e9,), (1.0,), "measured", "x", version="2.23.4"
    ... )
    >>> [latency.alpha_s for latency in _tuner_latencies("inter", large)]
    [(1.4e-05,), (1.4e-05,)]
    """
    stated = communicator(curve)
    version, figures = tuner_figures(stated)
    hop_us = figures.hop_us["net" if link_class == "inter" else stated.intra]
    source = (
        f"{curve.source}: {curve.name} starts above 64 KiB and shows no latency; a Simple hop by"
        f" NCCL {version}'s tuner (src/graph/tuning.cc)"
    )
    if curve.library != "nccl" and library(curve.library).compares_times:
        source += f", taken over for {curve.library}, whose tuner has figures of its own"
    ends = (curve.size_bytes[0], curve.size_bytes[-1])
    ring, tree = (
        Latency((1.0,), (hop_us[hop_kind][_SIMPLE] * 1e-6,), "derived", source, None, *ends)
        for hop_kind in _HOP_KINDS
    )
    return ring, tree


def _latency_error(start: LatencyStart, link_class: str) -> float | None:
    """Return the standard error of a hop's latency when the message is small [s/hop].

    It adds two errors, over the hops: that of the floor (or the line's start) of the hinge
    through the points up to 4 MiB, and how far a single point, which the first knot is, lies
    from it. None where the points determine neither floor nor start.
    """
    points, algorithm, wiring = start
    small = [point for point in points if point[0] <= MIDDLE_BYTES]
    first_size, first_s = points[0]
    with_hops, without = (
        algorithm.formula(first_size, _hops(algorithm, first_size, wiring, link_class, alpha_s))
        for alpha_s in (1.0, 0.0)
    )
    hops = with_hops.latency_s - without.latency_s
    if len(small) <= 2 or hops <= 0:
        return None
    try:
        shape = fit_hinge(*zip(*small, strict=True))
    except Unidentified:
        return None
    error = shape.stderr("a" if shape.values["a"] > 0 else "c")
    if error is None:
        return None
    return math.hypot(error, shape.median * _MAD_TO_SIGMA * first_s) / hops


# Protocols that were held fixed


def _protocols(
    link_class: str,
    curves: Sequence[CollectiveCurve],
    link: Link,
    inside: Link | None,
    nics: int,
    undetermined: list[str],
) -> tuple[dict[str, ProtocolFigures], dict[str, FitResult]]:
    """Return rate and hop latency of each protocol that was held fixed, and the fits behind them.

    Alpha and beta of the algorithm's formula are fitted to all sizes at once, relative errors,
    robust; where NCCL chose between ring and tree the faster of the two is the model.
    """
    protocols: dict[str, ProtocolFigures] = {}
    fits: dict[str, FitResult] = {}
    for protocol in PROTOCOLS:
        held = {
            (curve.collective, curve.algorithm): curve
            for curve in curves
            if curve.protocol == protocol
        }
        curve = next((held[key] for key in _RATE_ORDER if key in held), None)
        if curve is None:
            continue
        try:
            fits[protocol] = _protocol_fit(link_class, curve, link, inside, nics)
        except (Unidentified, ValueError) as error:
            undetermined.append(f"protocol {protocol}: {curve.name}: {error}")
            continue
        values = fits[protocol].values
        source = f"{curve.source}: {curve.name}"
        origin = (fits[protocol].p90, curve.size_bytes[0], curve.size_bytes[-1])
        rate = Quantity(1.0 / values["beta"], "B/s", "fitted", source, *origin)
        alpha = Quantity(values["alpha"], "s/hop", "fitted", source, *origin)
        share, more_s = rate.value / link.rate.value, alpha.value - link.ring.alpha_s[0]
        protocols[protocol] = ProtocolFigures(rate, alpha, share, more_s)
    return protocols, fits


def _protocol_fit(
    link_class: str, curve: CollectiveCurve, link: Link, inside: Link | None, nics: int
) -> FitResult:
    """Fit alpha [s/hop] and beta [s/B] of one protocol; a tree's rate keeps its share."""
    hop_kinds = (curve.algorithm,) if curve.algorithm else _HOP_KINDS
    algorithms = [_serving_algorithm(curve, curve.size_bytes[0], kind) for kind in hop_kinds]
    tree_share = link.tree_rate.value / link.rate.value

    def model(sizes: Sequence[float], alpha: float, beta: float) -> list[float]:
        rate = link.rate._replace(value=1.0 / max(beta, 1e-30))
        tree = link.tree_rate._replace(value=tree_share * rate.value)
        held = replace(link, rate=rate, tree_rate=tree)
        wiring = _wiring(link_class, curve, held, inside, nics)
        hops = wiring.hops()._replace(alpha_intra_s=alpha, alpha_inter_s=alpha)
        times = []
        for size in sizes:
            if link_class == "inter":
                inside_s = wiring.intra.ring.at(size) if wiring.intra is not None else 0.0
                hops = hops._replace(alpha_intra_s=inside_s)
            times.append(min(algorithm.formula(size, hops).seconds for algorithm in algorithms))
        return times

    start = (
        Parameter("alpha", max(link.ring.alpha_s[0], 1e-9), "s/hop", low=0.0),
        Parameter("beta", 1.0 / link.rate.value, "s/B", low=0.0),
    )
    title = f"hops of {curve.protocol}"
    sizes = list(curve.size_bytes)
    return fit(model, sizes, curve.seconds, start, needs=_PROTOCOL_NEEDS, title=title)
