"""Inside the range: every other size of a curve fitted, the sizes between predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from perfsim.calibrate.fit import Unidentified
from perfsim.calibrate.knots import fit_curve
from perfsim.calibrate.link_fit import cluster_of, inside_link
from perfsim.calibrate.network_fit import fit_network
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.libraries import AUTO
from perfsim.network.cluster import Cluster
from perfsim.network.known import MeasuredCollectives
from perfsim.network.link import Link
from perfsim.network.measured import CollectiveCurve
from perfsim.validate.nccl.row import NcclRow, PlainRing

__all__ = [
    "LIMITS",
    "QUESTION",
    "Links",
    "predict_rows",
]


QUESTION = "fit on every other size of a curve, predict the sizes between, without the curve"

LIMITS = {
    "in_range": {
        "median": 0.06,
        "p90": 0.25,
        "as served / log interpolation, median": 1.0,
        "as served / log interpolation, p90": 1.0,
    }
}

_MIN_SIZES = 5
"""Sizes that a curve must have, so that three are left to fit."""


def predict_rows(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[NcclRow]:
    """Predict every second size of every curve from a fit of the others.

    ``others`` holds three more predictions: "as served", what `predict` takes on a network that was
    measured at this half (`CollectiveCurve.at`); log interpolation between the fitted half;
    and "links", fitted to all half curves of the cluster, without any curve. Curves of which only
    knots are known are left out.
    """
    halves = [
        (cluster, curve, _half(curve))
        for cluster, curve in curves
        if curve.kind != "fitted" and len(curve.size_bytes) >= _MIN_SIZES
    ]
    links = Links([(cluster, half) for cluster, _, half in halves])
    return [row for cluster, curve, half in halves for row in _rows(cluster, curve, half, links)]


def _half(curve: CollectiveCurve) -> CollectiveCurve:
    return replace(curve, size_bytes=curve.size_bytes[::2], seconds=curve.seconds[::2])


def _rows(
    cluster: str, curve: CollectiveCurve, half: CollectiveCurve, links: Links
) -> Iterator[NcclRow]:
    fitted, plain = fit_curve(half).curve, PlainRing([half])
    for size, seconds in zip(curve.size_bytes[1::2], curve.seconds[1::2], strict=True):
        if not half.inside(size):
            continue
        others = {
            "as served": _served(half, size) or fitted.at(size),
            "log interpolation": half.log_at(size),
        }
        linked = links.seconds(cluster, curve, size)
        if linked is not None:
            others["links"] = linked
        yield NcclRow(
            "in_range",
            cluster,
            curve.name,
            size,
            seconds,
            fitted.at(size),
            plain.seconds(curve.collective, curve.ranks, size),
            others,
            curve.collective,
        )


def _served(half: CollectiveCurve, size_bytes: float) -> float | None:
    """Return the time of a size on a cluster with this curve [s]; None for uneven nodes."""
    placement = (half.gpus_per_node,) * half.nodes
    if sum(placement) != half.ranks:
        return None
    held = (half.library, (half.algorithm,), half.protocol or AUTO)
    cost = MeasuredCollectives((half,)).cost(half.collective, size_bytes, placement, *held)
    return None if cost is None else cost.seconds


class Links:
    """The links of each cluster, fitted to half of each of its curves.

    Curves do not state how many NICs the GPUs of a node share: one is taken, so that the rate
    between nodes is that of a whole node.
    """

    def __init__(self, halves: Sequence[tuple[str, CollectiveCurve]]) -> None:
        groups: dict[tuple[str, str], list[CollectiveCurve]] = {}
        for cluster, half in halves:
            groups.setdefault((cluster, half.library), []).append(half)
        self.links = {key: _fitted_links(same) for key, same in groups.items()}
        self.clusters: dict[tuple[object, ...], Cluster | None] = {}

    def seconds(self, cluster: str, curve: CollectiveCurve, size_bytes: float) -> float | None:
        """Return the time of a message by the links' formulas [s]; None where there are none."""
        key = (cluster, curve.library, curve.ranks, curve.nodes)
        if key not in self.clusters:
            self.clusters[key] = self._cluster(cluster, curve)
        links = self.clusters[key]
        if links is None:
            return None
        algorithm, protocol = curve.algorithm or AUTO, curve.protocol or AUTO
        try:
            return links.cost(curve.collective, size_bytes, algorithm, protocol).seconds
        except RequestError:
            return None  # measured with an algorithm that perfsim has no formula for

    def _cluster(self, cluster: str, curve: CollectiveCurve) -> Cluster | None:
        links = self.links[cluster, curve.library]
        inter, intra = links.get("inter"), links.get("intra")
        if curve.ranks < curve.nodes or curve.ranks < 2:
            return None
        if (curve.nodes > 1 and inter is None) or (curve.ranks > curve.nodes and intra is None):
            return None
        return cluster_of(curve, inter, intra)


def _fitted_links(curves: Sequence[CollectiveCurve]) -> Mapping[str, Link]:
    preset = inside_link(Catalog())
    try:
        fit = fit_network(curves, 1, preset)
    except Unidentified:
        return {}
    links = {link_class: fitted.link for link_class, fitted in fit.links.items()}
    inside = preset(fit.inside) if fit.inside and "intra" not in links else None
    return links if inside is None else links | {"intra": inside}
