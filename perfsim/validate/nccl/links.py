"""A cluster's links fitted to half of its curves: what their formulas say, no curve at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.calibrate.fit import Unidentified
from perfsim.calibrate.link_fit import cluster_of, inside_link
from perfsim.calibrate.network_fit import fit_network
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.libraries import AUTO
from perfsim.network.cluster import Cluster
from perfsim.network.link import Link
from perfsim.network.measured import CollectiveCurve

__all__ = ["Links"]


class Links:
    """The links of each cluster as all its half curves together tell them.

    How many NICs the GPUs of a node share is not stated in curves: one, so that the rate between
    nodes is a whole node's.
    """

    def __init__(self, halves: Sequence[tuple[str, CollectiveCurve]]) -> None:
        groups: dict[tuple[str, str], list[CollectiveCurve]] = {}
        for cluster, half in halves:
            groups.setdefault((cluster, half.library), []).append(half)
        self.links = {key: _fitted(found) for key, found in groups.items()}
        self.clusters: dict[tuple[object, ...], Cluster | None] = {}

    def seconds(self, cluster: str, curve: CollectiveCurve, size_bytes: float) -> float | None:
        """Return the time of a message by the links' formulas [s]; None where they tell none."""
        key = (cluster, curve.library, curve.ranks, curve.nodes)
        if key not in self.clusters:
            self.clusters[key] = self._cluster(cluster, curve)
        found = self.clusters[key]
        if found is None:
            return None
        held = (curve.algorithm or AUTO, curve.protocol or AUTO)
        try:
            return found.cost(curve.collective, size_bytes, *held).seconds
        except RequestError:
            return None  # an algorithm, held when it was measured, that perfsim has no formula of

    def _cluster(self, cluster: str, curve: CollectiveCurve) -> Cluster | None:
        links = self.links[cluster, curve.library]
        inter, intra = links.get("inter"), links.get("intra")
        if curve.ranks < curve.nodes or curve.ranks < 2:
            return None
        if (curve.nodes > 1 and inter is None) or (curve.ranks > curve.nodes and intra is None):
            return None
        return cluster_of(curve, inter, intra)


def _fitted(curves: Sequence[CollectiveCurve]) -> Mapping[str, Link]:
    preset = inside_link(Catalog())
    try:
        fit = fit_network(curves, 1, preset)
    except Unidentified:
        return {}
    links = {of: found.link for of, found in fit.links.items()}
    inside = preset(fit.inside) if fit.inside and "intra" not in links else None
    return links if inside is None else links | {"intra": inside}
