"""One link from the curves measured over it: rate, latency by size, reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfsim.calibrate.curve_fit import fit_curve
from perfsim.calibrate.hinge import fit_line, hinge
from perfsim.calibrate.robust import FitResult, Parameter, Unidentified, fit
from perfsim.cluster.growth.choice import TunedChoice
from perfsim.cluster.growth.sibling import SMALL_BYTES
from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.cluster.measured import Curve
from perfsim.collectives import Hops, algorithm
from perfsim.quantity import Quantity

__all__ = ["LinkFit", "fit_link"]

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

NAMES = {"broadcast": "chain", "send_recv": "direct"}
"""How a collective is carried out where it is no ring."""

TOLD_BY_HALVES = "the sum runs while bytes move: {why}; it is part of the rate"


@dataclass(frozen=True)
class LinkFit:
    """A fitted link, the fits behind its rate, and what the curves could not tell."""

    of: str
    link: Link
    rate_fit: FitResult
    untold: tuple[str, ...]


def fit_link(
    of: str,
    curves: Sequence[Curve],
    inside: Link | None,
    nics: int,
    choice: TunedChoice | None,
) -> LinkFit:
    """Return the link of one class (inter or intra) that curves tell.

    Parameters
    ----------
    of : "inter" (curves over several nodes) or "intra" (over the GPUs of one)
    curves : measured; of each collective the one over most ranks is fitted
    inside : the link within the nodes, whose hops an inter-node ring crosses too
    nics : that the GPUs of a node share; the rate is that of one
    choice : NCCL's tuner on the cluster, if it was set from the curves

    Raises
    ------
    Unidentified
        If the curves cannot tell the rate; says which measurement would.

    Notes
    -----
    rate: slope of the wire bytes' line over the largest messages, down to a sixteenth of the
    largest (relative errors, robust). latency: at each
    knot of the fitted curve the alpha of ring and of tree that gives the time, the rest of the
    formula taken off; at a size that one of the two serves the other is thereby no faster.
    """
    shapes = {(curve.collective, curve.algorithm): curve for curve in _largest(curves)}
    reference, found, bus = _clearest(of, shapes, choice)
    rate = _quantity(bus / nics if of == "inter" else bus, found, reference)
    untold: list[str] = []
    tree_rate = _tree_rate(of, shapes, rate, nics, untold)
    gamma = _gamma(shapes, untold)
    bare = Link("", rate, tree_rate, gamma, _none(rate), _none(rate))
    whole = shapes.get(("all_reduce", "tree")) or shapes.get(("all_reduce", "")) or reference
    tree = _latency("tree", of, whole, bare, inside, nics)
    ring = _latency("ring", of, reference, bare, inside, nics)
    if of == "inter" and choice is not None and reference is whole:
        ring = _same_hops(ring, tree, choice, whole)
    members = [curve.ranks for curve in curves]
    link = Link("", rate, tree_rate, gamma, ring, tree, (min(members), max(members)))
    return LinkFit(of, link, found, tuple(untold))


def _largest(curves: Sequence[Curve]) -> list[Curve]:
    return sorted(curves, key=lambda curve: (curve.ranks, curve.size_bytes[-1]))


def _place(of: str) -> str:
    return "nodes" if of == "inter" else "the GPUs of a node"


def _clearest(
    of: str, shapes: dict[tuple[str, str], Curve], choice: TunedChoice | None
) -> tuple[Curve, FitResult, float]:
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
        raise Unidentified(f"{curve.name}: {len(large)} sizes cannot tell a rate; {more}", ("b",))
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


def _tree_rate(
    of: str,
    shapes: dict[tuple[str, str], Curve],
    rate: Quantity,
    nics: int,
    untold: list[str],
) -> Quantity:
    held = shapes.get(("all_reduce", "tree"))
    large = [] if held is None else [size for size in held.size_bytes if size >= LARGE_BYTES]
    if held is None or len(large) < FEWEST:
        untold.append("tree rate: measure all_reduce with NCCL_ALGO=Tree; taken as the ring's")
        told = f"no curve with the tree held fixed: taken as the ring's, {rate.source}"
        return Quantity(rate.value, "B/s", "derived", told, rate.spread, rate.low, rate.high)
    points = zip(held.size_bytes, held.seconds, strict=True)
    found = _line(*zip(*[(2.0 * n, t) for n, t in points if n >= LARGE_BYTES], strict=True))
    value = 1.0 / found.values["b"] / (nics if of == "inter" else 1)
    return _quantity(value, found, held)


def _gamma(shapes: dict[tuple[str, str], Curve], untold: list[str]) -> Quantity:
    """Return the reduction's time a byte: what reduce_scatter takes more than all_gather."""
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
    quarter = len(more) // 4
    spread = (more[-1 - quarter] - more[quarter]) / 2.0 / value
    told = f"{scatter.source}: median of (reduce_scatter - all_gather) / ((P-1)/P n) from 1 MiB on"
    return Quantity(value, "s/B", "fitted", told, min(spread, 3.0))


def _none(rate: Quantity) -> Latency:
    return Latency.constant(Quantity(0.0, "s/hop", "derived", rate.source))


def _latency(
    name: str, of: str, curve: Curve, link: Link, inside: Link | None, nics: int
) -> Latency:
    if curve.collective != "all_reduce" and name == "tree":
        name = "ring"
    formula = algorithm(curve.collective, NAMES.get(curve.collective, name)).formula
    fitted = fit_curve(curve).curve
    sizes, alphas = [], []
    for size, seconds in zip(fitted.size_bytes, fitted.seconds, strict=True):
        alpha_in = inside.ring.at(size) if inside is not None and of == "inter" else 0.0
        rest = formula(size, _hops(of, curve, link, inside, nics, alpha_in, 0.0)).seconds
        crossed = formula(size, _hops(of, curve, link, inside, nics, 0.0, 1.0)).latency_s
        alphas.append(max(0.0, (seconds - rest) / crossed) if crossed else 0.0)
        sizes.append(size)
    # What is left at large sizes is noise of the rate: a hop never costs less than when small.
    alphas = [max(alpha_s, alphas[0]) for alpha_s in alphas]
    kept = _bends(alphas)
    return Latency(
        tuple(sizes[place] for place in kept),
        tuple(float(f"{alphas[place]:.4g}") for place in kept),
        "fitted",
        f"{curve.source}: {curve.name}; what the time leaves over the rate, a hop",
        fitted.spread,
        curve.size_bytes[0],
        curve.size_bytes[-1],
    )


def _same_hops(ring: Latency, tree: Latency, choice: TunedChoice, curve: Curve) -> Latency:
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


def _bends(alphas: Sequence[float]) -> list[int]:
    """Return the places of the knots that a flat stretch needs: its ends."""
    last = len(alphas) - 1
    return [
        place
        for place in range(len(alphas))
        if place in (0, last) or not alphas[place - 1] == alphas[place] == alphas[place + 1]
    ]


def _hops(
    of: str,
    curve: Curve,
    link: Link,
    inside: Link | None,
    nics: int,
    alpha_in: float,
    alpha: float,
) -> Hops:
    wire = inside if of == "inter" else link
    intra = 1.0 / wire.rate.value if wire is not None and curve.gpus_per_node > 1 else 0.0
    nic = 1.0 / (min(nics, curve.gpus_per_node) * link.rate.value) if of == "inter" else 0.0
    tree_nic = 1.0 / (min(nics, curve.gpus_per_node) * link.tree_rate.value)
    return Hops(
        curve.ranks,
        curve.nodes,
        curve.gpus_per_node,
        alpha if of == "intra" else alpha_in,
        alpha if of == "inter" else 0.0,
        max(nic, intra),
        max(tree_nic if of == "inter" else 1.0 / link.tree_rate.value, intra),
        intra,
        nic,
        link.gamma.value,
    )
