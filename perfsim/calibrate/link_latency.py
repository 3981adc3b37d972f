"""The latency of a link's hops by message size: what measured times leave over the rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from perfsim.calibrate.curve_fit import fit_curve
from perfsim.calibrate.link_hops import alpha_of, served_by
from perfsim.cluster.growth.choice import TunedChoice
from perfsim.cluster.growth.sibling import SMALL_BYTES
from perfsim.cluster.latency import Latency
from perfsim.cluster.measured import Curve
from perfsim.cluster.wiring import Wiring
from perfsim.collectives import Algorithm
from perfsim.library import DEFAULT_LIBRARY

__all__ = ["CLASSES", "Start", "latencies_of", "same_hops"]

CLASSES = ("ring", "tree")
"""The curves of a link: every algorithm's hops follow one of the two."""

Point = tuple[float, float]


class Start(NamedTuple):
    """The points that tell the hops of a class from the smallest message on, and who sent them."""

    points: Sequence[Point]
    algorithm: Algorithm
    wiring: Wiring


def latencies_of(
    reference: Curve, whole: Curve, wiring: Mapping[str, Wiring], of: str
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


def _parts(curve: Curve, name: str) -> list[tuple[Algorithm, list[Point]]]:
    """Return the points that each algorithm of one class of hops serves."""
    parts: dict[tuple[str, str], tuple[Algorithm, list[Point]]] = {}
    for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
        algorithm = served_by(curve, size, "ring")
        if algorithm.latency == name:
            key = (algorithm.collective, algorithm.name)
            parts.setdefault(key, (algorithm, []))[1].append((size, seconds))
    return list(parts.values())


def _latency(
    curve: Curve, parts: Sequence[tuple[Algorithm, list[Point]]], wiring: Wiring, of: str
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
