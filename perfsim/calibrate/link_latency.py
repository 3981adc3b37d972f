"""The latency of a link's hops by message size: what measured times leave over the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfsim.calibrate.curve_fit import fit_curve
from perfsim.calibrate.link_rate import NAMES
from perfsim.cluster.growth.choice import TunedChoice
from perfsim.cluster.growth.sibling import SMALL_BYTES
from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.cluster.measured import Curve
from perfsim.collectives import Hops, algorithm

__all__ = ["latency_of", "same_hops"]


def latency_of(
    name: str, of: str, curve: Curve, link: Link, inside: Link | None, nics: int
) -> Latency:
    """Return the curve of one hop's latency, ring or tree, at the knots of a measured curve."""
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


def same_hops(ring: Latency, tree: Latency, choice: TunedChoice, curve: Curve) -> Latency:
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
