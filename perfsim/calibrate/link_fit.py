"""One link from the curves measured over it: rate, latency by size, reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfsim.calibrate.link_latency import latency_of, same_hops
from perfsim.calibrate.link_rate import clearest, gamma_of, rate_of, tree_rate_of
from perfsim.calibrate.robust import FitResult
from perfsim.cluster.growth.choice import TunedChoice
from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.cluster.measured import Curve
from perfsim.quantity import Quantity

__all__ = ["LinkFit", "fit_link"]


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
    taken off; at a size that one of the two serves the other is thereby no faster.
    """
    shapes = {(curve.collective, curve.algorithm): curve for curve in _largest(curves)}
    reference, found, bus = clearest(of, shapes, choice)
    untold: list[str] = []
    gamma = gamma_of(shapes, reference, bus, untold)
    rate = rate_of(of, reference, found, bus, nics, gamma)
    tree_rate = tree_rate_of(of, shapes, rate, nics, gamma, untold)
    bare = Link("", rate, tree_rate, gamma, _none(rate), _none(rate))
    whole = shapes.get(("all_reduce", "tree")) or shapes.get(("all_reduce", "")) or reference
    tree = latency_of("tree", of, whole, bare, inside, nics)
    ring = latency_of("ring", of, reference, bare, inside, nics)
    if of == "inter" and choice is not None and reference is whole:
        ring = same_hops(ring, tree, choice, whole)
    members = [curve.ranks for curve in curves]
    link = Link("", rate, tree_rate, gamma, ring, tree, (min(members), max(members)))
    return LinkFit(of, link, found, tuple(untold))


def _largest(curves: Sequence[Curve]) -> list[Curve]:
    return sorted(curves, key=lambda curve: (curve.ranks, curve.size_bytes[-1]))


def _none(rate: Quantity) -> Latency:
    return Latency.constant(Quantity(0.0, "s/hop", "derived", rate.source))
