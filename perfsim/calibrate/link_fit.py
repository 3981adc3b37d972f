"""One link from the curves measured over it: rate, latency by size, reduction, protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from perfsim.calibrate.hop_figures import hop_figures
from perfsim.calibrate.link_gamma import gamma_of
from perfsim.calibrate.link_hops import cluster_of, errors_of, floor_error, wired
from perfsim.calibrate.link_latency import Start, latencies_of, same_hops
from perfsim.calibrate.link_protocol import held_curves, protocol_fits
from perfsim.calibrate.link_rate import clearest, rate_of, tree_rate_of
from perfsim.calibrate.robust import FitResult
from perfsim.cluster.growth.choice import TunedChoice
from perfsim.cluster.growth.sibling import SMALL_BYTES
from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.cluster.measured import Curve
from perfsim.quantity import Quantity

__all__ = ["LinkFit", "fit_link"]


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
    curves: Sequence[Curve],
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


def _alike(reference: Curve, curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves of a reference's collective and algorithm, on any ranks."""
    kind = (reference.collective, reference.algorithm)
    return [curve for curve in curves if (curve.collective, curve.algorithm) == kind]


def _residual(
    of: str, curves: Sequence[Curve], link: Link, inside: Link | None, nics: int
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


def _largest(curves: Sequence[Curve]) -> list[Curve]:
    return sorted(
        curves, key=lambda curve: (curve.ranks, curve.size_bytes[-1], -curve.nodes, curve.seconds)
    )


def _none(rate: Quantity) -> Latency:
    return Latency.constant(Quantity(0.0, "s/hop", "derived", rate.source))
