"""What a fabric does to a collective: how much slower it makes a byte, and how much longer a hop.

A `Fabric` joins nodes, a `NodeFabric` the GPUs of a node. Both route flows over the graph that a
kind of fabric builds (`perfsim.network.routing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perfsim.errors import RequestError, unknown
from perfsim.network.fabrics import between_nodes, graph_file, inside_nodes
from perfsim.network.fabrics.base import FABRIC_KINDS, FabricKind, FabricPlace, FabricValue
from perfsim.network.routing import (
    PATTERNS,
    Graph,
    Pattern,
    Ties,
    critical_latency_s,
    flows,
    ring_flows,
    route,
    route_flows,
)
from perfsim.sums import sum_in_order

__all__ = ["Fabric", "NodeFabric", "fabric_kind", "fabrics", "oversubscribed"]

del between_nodes, graph_file, inside_nodes  # importing them has listed their fabrics


def fabrics(place: FabricPlace) -> dict[str, FabricKind]:
    """Return name -> fabric of one place.

    Examples
    --------
    >>> list(fabrics("intra"))
    ['nvlink-mesh', 'nvswitch', 'pcie-tree']
    """
    return {name: kind for name, kind in sorted(FABRIC_KINDS.items()) if kind.place == place}


def fabric_kind(place: FabricPlace, name: str) -> FabricKind:
    """Return a fabric by its name.

    Raises
    ------
    RequestError
        If there is none; the message gives the nearest match.

    Examples
    --------
    >>> fabric_kind("inter", "leaf-spine").place
    'inter'
    """
    known = fabrics(place)
    if name not in known:
        raise unknown("fabric", name, known)
    return known[name]


# Between nodes


@dataclass(frozen=True, slots=True)
class Fabric:
    """How the nodes of a cluster are joined.

    Parameters
    ----------
    kind : name of the fabric, such as "leaf-spine"
    options : what it reads from the ``[fabric]`` table, as pairs
    hop_latency_s : latency of passing one switch [s]; 0 where not stated
    spread : whether consecutive nodes of a job stand on different leaves (in turn over all, the
        worse case) instead of filling leaf after leaf
    ties : equal-cost next hops share a flow evenly, or the first takes it ("first": static)
    source : where it is stated

    Examples
    --------
    >>> fabric = Fabric("leaf-spine", (("nodes_per_leaf", 4), ("oversubscription", 2.0)))
    >>> fabric.slowdown("ring", (8,) * 8, 1), fabric.slowdown("all_to_all", (8,) * 8, 1)
    (1.0, 1.1428571428571428)
    """

    kind: str
    options: tuple[tuple[str, FabricValue], ...] = ()
    hop_latency_s: float = 0.0
    spread: bool = False
    ties: Ties = "even"
    source: str = ""

    def graph(self, nodes: int, nics: int = 1, nic_rate_bytes_per_s: float = 1.0) -> Graph:
        """Return the graph for ``nodes`` nodes whose ``nics`` NICs have this rate each [B/s].

        Raises
        ------
        RequestError
            If the fabric does not hold so many nodes.
        """
        build = fabric_kind("inter", self.kind).build
        return build(nodes, nics * nic_rate_bytes_per_s, self.hop_latency_s, **dict(self.options))

    def hosts(self, graph: Graph, nodes: int) -> list[str]:
        """Return the vertex of each of a job's nodes, in the order of its placement."""
        hosts: list[str] = list(graph.graph["hosts"])
        if nodes > len(hosts):
            raise RequestError(
                "",
                f"the network's {self.kind} fabric has {len(hosts)} nodes, {nodes} are asked for.",
            )
        if self.spread:
            hosts.sort(key=lambda host: tuple(reversed(graph.nodes[host]["position"])))
        return hosts[:nodes]

    def slowdown(self, pattern: str, placement: tuple[int, ...], nics: int) -> float:
        """Return how many times longer a byte takes than if the nodes' NICs were the only limit.

        The time of a byte on the busiest link of the routed flows, over the time on the busiest
        NIC if every node had those of the fastest (or those that the file states); of a pattern
        with several phases, the sums over the phases. 1 on a single switch, never below 1.

        Parameters
        ----------
        pattern : one of `perfsim.network.routing.PATTERNS`
        placement : GPUs on each node
        nics : NICs that each node has; a GPU drives at most one, so a node of p GPUs uses
            min(nics, p) of them, while its uplinks are built for all

        Raises
        ------
        RequestError
            If there is no such pattern, or the fabric does not hold the nodes.
        """
        if len(placement) < 2 or self.kind == "single-switch":
            _check_pattern(pattern)
            return 1.0
        return _slowdown(self, pattern, placement, nics)[0]

    def extra_latency_s(self, pattern: str, placement: tuple[int, ...]) -> float:
        """Return what the fabric adds to the latency of one hop between nodes [s].

        The mean over the hops of the longest chain (a ring's turn, a tree's deepest branch, the
        farthest pair) of the path's latency less that of one switch, by which the reference hop
        was measured. 0 where no latency is stated.
        """
        if len(placement) < 2 or self.kind == "single-switch":
            _check_pattern(pattern)
            return 0.0
        return _extra_latency_s(self, pattern, placement)

    def busiest(self, pattern: str, placement: tuple[int, ...], nics: int = 1) -> str:
        """Return the name of the busiest link, "" where nothing leaves a node."""
        return _slowdown(self, pattern, placement, nics)[1]

    def words(self) -> str:
        """Return the fabric in a few words.

        Examples
        --------
        >>> oversubscribed(2.0).words()
        'leaf-spine, 1 node a leaf, 2:1 oversubscribed'
        """
        words = fabric_kind("inter", self.kind).words(**dict(self.options))
        words += ", nodes spread over leaves" if self.spread else ""
        return words + (", static routing" if self.ties == "first" else "")


def oversubscribed(ratio: float, nodes_per_leaf: int = 1) -> Fabric:
    """Return a two-level fabric whose leaves have uplinks ``ratio`` times too narrow.

    With ``nodes_per_leaf`` not stated every node is a leaf of its own, the worst case: all that
    leaves a node shares an uplink of 1/ratio of its NICs, so that every pattern between nodes
    takes exactly ``ratio`` times as long on the wire. That is what a job meets whose neighbours
    stand on different leaves, as schedulers place it when leaves are partly taken. A job that
    fills leaf after leaf meets less (a ring of leaves with m nodes: max(1, ratio / m)); who knows
    the leaves states them.

    Parameters
    ----------
    ratio : rate of a leaf's nodes over that of its uplinks, 1 or more
    nodes_per_leaf : nodes on one leaf switch

    Raises
    ------
    RequestError
        If the ratio is below 1.

    Examples
    --------
    >>> oversubscribed(2.0).slowdown("ring", (4,) * 16, 1)
    2.0
    >>> oversubscribed(2.0, nodes_per_leaf=8).slowdown("ring", (4,) * 16, 1)
    1.0
    """
    if not 1.0 <= ratio <= 1e3:
        raise RequestError(
            "oversubscription",
            f"{ratio:g} is not a ratio from 1 to 1000; 2 means that a leaf's"
            " nodes together are twice as fast as its uplinks.",
        )
    options: tuple[tuple[str, FabricValue], ...] = (
        ("nodes_per_leaf", nodes_per_leaf),
        ("oversubscription", float(ratio)),
    )
    return Fabric("leaf-spine", options, source="the ratio is given by the user")


def _check_pattern(pattern: str) -> None:
    if pattern not in PATTERNS:
        raise unknown("pattern", pattern, PATTERNS)


@lru_cache(maxsize=256)
def _slowdown(
    fabric: Fabric, pattern: str, placement: tuple[int, ...], nics: int
) -> tuple[float, str]:
    """Return the slowdown and the busiest link."""
    _check_pattern(pattern)
    graph = fabric.graph(len(placement), nics)
    hosts = fabric.hosts(graph, len(placement))
    stated = graph.graph.get("node_rate_bytes_per_s")
    fastest = stated or max(_rate(graph, host) for host in hosts)
    shares = [min(nics, gpus) / nics for gpus in placement]
    if min(shares) < 1.0:
        graph = graph.copy()
        for host, share in zip(hosts, shares, strict=True):
            for edge in (*graph.in_edges(host), *graph.out_edges(host)):
                graph.edges[edge]["rate_bytes_per_s"] *= share
    asked = flows(pattern, placement)
    seconds_per_byte, busiest, _ = route_flows(graph, hosts, asked, fabric.ties)
    alone = sum_in_order(_nic_loads(asked, [fastest * share for share in shares]))
    return (max(1.0, seconds_per_byte / alone) if alone else 1.0), busiest


@lru_cache(maxsize=256)
def _extra_latency_s(fabric: Fabric, pattern: str, placement: tuple[int, ...]) -> float:
    _check_pattern(pattern)
    graph = fabric.graph(len(placement))
    hosts = fabric.hosts(graph, len(placement))
    total_s, hops = critical_latency_s(graph, hosts, flows(pattern, placement), fabric.ties)
    ways = (graph.out_edges, graph.in_edges)
    nearest_s = sum_in_order(
        min(s for h in hosts for _, _, s in way(h, data="latency_s")) for way in ways
    )
    return max(0.0, total_s / hops - nearest_s) if hops else 0.0


def _rate(graph: Graph, host: str) -> float:
    """Return the rate of all links of a host, in the faster direction [B/s]."""
    ways = (graph.out_edges, graph.in_edges)
    sums = (sum_in_order(rate for _, _, rate in way(host, data="rate_bytes_per_s")) for way in ways)
    return float(max(sums))


def _nic_loads(pattern: Pattern, rates: Sequence[float]) -> Iterator[float]:
    """Yield each phase's time of a byte on the busiest NIC, were there no other limit [s/B]."""
    for phase in pattern.phases:
        out, into = [0.0] * len(rates), [0.0] * len(rates)
        for source, target, weight in phase:
            out[source] += weight
            into[target] += weight
        yield max(max(pair) / rate for *pair, rate in zip(out, into, rates, strict=True))
    if pattern.everyone:
        ranks = sum(pattern.everyone)
        sent = (gpus * (ranks - gpus) / ranks for gpus in pattern.everyone)
        yield max(load / rate for load, rate in zip(sent, rates, strict=True))


# Inside a node


@dataclass(frozen=True, slots=True)
class NodeFabric:
    """How the GPUs of a node are joined.

    Parameters
    ----------
    kind : name of the fabric: "nvswitch", "nvlink-mesh" or "pcie-tree"
    gpus : GPUs of the node
    nics : NICs of the node
    options : what it reads from the ``[node]`` table, as pairs
    source : where it is stated

    Examples
    --------
    >>> mesh = NodeFabric("nvlink-mesh", 4, options=(("links_per_pair", 4),))
    >>> mesh.slowdown(2, of=4)  # 4 of the 12 links of a GPU lead to the other one
    3.0
    """

    kind: str
    gpus: int
    nics: int = 1
    options: tuple[tuple[str, FabricValue], ...] = ()
    source: str = ""

    def graph(self, gpus: int | None = None) -> Graph:
        """Return the graph of the first ``gpus`` GPUs, all by default."""
        count = self.gpus if gpus is None else gpus
        return fabric_kind("intra", self.kind).build(count, **dict(self.options))

    def slowdown(self, gpus: int, of: int) -> float:
        """Return how many times longer a byte takes in a ring over ``gpus`` GPUs than over ``of``.

        That is the bus bandwidth of the ring over ``of`` GPUs, which was measured, over that of
        the ring over ``gpus``: below 1 where fewer GPUs share less. The GPUs are the first of
        the node, as CUDA counts them. 1 where either is a single GPU, which sends nothing.

        Parameters
        ----------
        gpus : GPUs of a node that take part
        of : GPUs in what was measured

        Raises
        ------
        RequestError
            If the node has fewer GPUs, or too little is stated of its links.
        """
        for count in (gpus, of):
            if not 1 <= count <= self.gpus:
                raise RequestError(
                    "", f"the network's node: it has {self.gpus} GPUs, {count} are asked for."
                )
        if gpus == of or 1 in (gpus, of):
            return 1.0
        return _ring_rate(self, of) / _ring_rate(self, gpus)

    def words(self) -> str:
        """Return the fabric in a few words."""
        return fabric_kind("intra", self.kind).words(**dict(self.options))


@lru_cache(maxsize=256)
def _ring_rate(node: NodeFabric, gpus: int) -> float:
    """Return the bus bandwidth of a ring over the first GPUs, in the unit of the fabric."""
    kind = fabric_kind("intra", node.kind)
    if kind.ring_rate is not None:
        return kind.ring_rate(gpus, **dict(node.options))
    graph = node.graph(gpus)
    return 1.0 / route(graph, graph.graph["hosts"], ring_flows((1,) * gpus)).seconds_per_byte
