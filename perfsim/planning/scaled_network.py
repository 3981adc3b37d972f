"""A cluster whose network is some times as fast: what a collective would cost there."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from perfsim.cluster.cluster import Cluster
from perfsim.cluster.link import Link
from perfsim.library import AUTO
from perfsim.quantity import Cost, Quantity
from perfsim.stage import Group

__all__ = ["scaled_network", "scaled_rate"]


@dataclass(frozen=True)
class _Scaled(Cluster):
    """``plain`` with another rate of its link between nodes (or, of one node, inside).

    Links' formulas take the new rate. A measured curve keeps its latency, and the rest of it
    changes as the links' formula of that collective does, so that a faster network is held up by
    the links inside the nodes as it would be.
    """

    plain: Cluster | None = None
    factor: float = 1.0

    def served(self, servers: int) -> Cluster:
        """Return the cluster with so many machines more that serve pushes and pulls."""
        assert self.plain is not None
        if servers == self.servers:
            return self
        if servers not in self._served:
            self._served[servers] = scaled_network(self.plain.served(servers), self.factor)
        return self._served[servers]

    def _part(self, group: Group) -> Cluster:
        assert self.plain is not None
        if group not in self._parts:
            part = self.plain._part(group)
            # Groups inside a node use its own links, which keep their rate.
            inside = part.nodes == 1 and self.nodes > 1
            self._parts[group] = part if inside else scaled_network(part, self.factor)
        return self._parts[group]

    def _cost(self, collective: str, size_bytes: float, algorithm: str, protocol: str) -> Cost:
        assert self.plain is not None
        if self.known is None:
            return super()._cost(collective, size_bytes, algorithm, protocol)
        found = self.plain.cost(collective, size_bytes, algorithm, protocol)
        chosen = self.plain.choice(collective, size_bytes, protocol)
        name = chosen if algorithm == AUTO else algorithm
        usual = self.plain.route(collective, name, protocol).cost(size_bytes)
        scaled = self.route(collective, name, protocol).cost(size_bytes)
        usual_s = usual.seconds - usual.latency_s
        ratio = (scaled.seconds - scaled.latency_s) / usual_s if usual_s > 0 else 1.0
        wire_s = (found.seconds - found.latency_s) * ratio
        return found._replace(seconds=found.latency_s + wire_s)


def scaled_network(cluster: Cluster, factor: float) -> Cluster:
    """Return the cluster with its network ``factor`` times as fast, in bytes a second.

    The network is the link between nodes; where all GPUs stand on one node, the link inside it.

    Examples
    --------
    >>> from perfsim.cluster.link import custom_link
    >>> wire = custom_link("1GB/s,1ms", "x")
    >>> four = Cluster(4, (1, 1, 1, 1), wire, None)
    >>> [round(scaled_network(four, factor).cost("all_reduce", 1e6, "ring").seconds * 1e3, 2)
    ...  for factor in (0.5, 1.0, 2.0)]
    [9.0, 7.5, 6.75]
    """
    kept = {
        one.name: getattr(cluster, one.name)
        for one in fields(cluster)
        if not one.name.startswith("_") and one.name not in ("plain", "factor")
    }
    if cluster.nodes > 1:
        kept["inter"] = _faster(cluster.inter, factor)
    else:
        kept["intra"] = _faster(cluster.intra, factor)
    return _Scaled(**kept, plain=cluster, factor=factor)


def scaled_rate(cluster: Cluster) -> float | None:
    """Return the rate that ``scaled_network`` multiplies [B/s]; None where there is no link."""
    link = cluster.inter if cluster.nodes > 1 else cluster.intra
    return None if link is None else link.rate.value


def _faster(link: Link | None, factor: float) -> Link | None:
    if link is None:
        return None
    held = {
        name: one._replace(rate=_times(one.rate, factor)) for name, one in link.protocols.items()
    }
    return replace(
        link,
        rate=_times(link.rate, factor),
        tree_rate=_times(link.tree_rate, factor),
        protocols=held,
    )


def _times(rate: Quantity, factor: float) -> Quantity:
    return rate._replace(value=rate.value * factor)
