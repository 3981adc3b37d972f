"""Routing: flows over the shortest paths of a graph, the busiest link, latency along the way.

A graph is a networkx graph whose edges carry ``rate_bytes_per_s`` and ``latency_s``; a vertex of
``kind`` "host" is a node of the cluster and passes on the traffic of others only if it is wired
to another host (a direct network). Links are full duplex: each direction is an edge of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from perfsim.cluster.pattern import Flow, Pattern
from perfsim.errors import RequestError

__all__ = ["TIES", "Graph", "Routed", "Ties", "carry", "critical_latency_s", "route"]

Graph: TypeAlias = Any
"""A ``networkx.DiGraph``; networkx comes without types."""

Ties = Literal["even", "first"]
TIES: tuple[Ties, ...] = ("even", "first")
"""Equal-cost next hops share evenly (ECMP, on average), or the first takes all (static)."""

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Routed:
    """What a pattern does to a graph.

    Parameters
    ----------
    seconds_per_byte : time of a byte of the buffer on the busiest link, summed over phases [s/B]
    busiest : that link of the longest phase, as "from -> to"; "" where nothing is sent
    latency_s : sum of the latencies along the longest chain of hops [s]
    hops : hops between nodes on that chain
    loads : of each phase, bytes a directed edge carries a byte of the buffer
    """

    seconds_per_byte: float
    busiest: str
    latency_s: float
    hops: int
    loads: tuple[Mapping[Edge, float], ...]


def route(graph: Graph, hosts: Sequence[str], pattern: Pattern, ties: Ties = "even") -> Routed:
    """Route a pattern's flows on shortest paths (fewest edges) and find the busiest link.

    Parameters
    ----------
    graph : directed, see the head of this file
    hosts : the vertex of each node of the placement
    pattern : flows between nodes, by their index in ``hosts``
    ties : at each switch the next hops of equal length share a flow evenly, or the first takes it

    Raises
    ------
    RequestError
        If a node cannot be reached from another.

    Examples
    --------
    >>> from perfsim.cluster.fabric.single_switch import single_switch
    >>> from perfsim.cluster.flows import ring_flows
    >>> graph = single_switch(3, node_rate_bytes_per_s=1e9, hop_latency_s=1e-6)
    >>> routed = route(graph, graph.graph["hosts"], ring_flows((4, 4, 4)))
    >>> routed.seconds_per_byte, routed.busiest, round(routed.latency_s * 1e6)
    (1e-09, 'node 0 -> switch', 3)
    """
    load = carry(graph, hosts, pattern, ties)
    latency_s, hops = critical_latency_s(graph, hosts, pattern, ties)
    return Routed(*load[:2], latency_s, hops, load[2])


def carry(
    graph: Graph, hosts: Sequence[str], pattern: Pattern, ties: Ties = "even"
) -> tuple[float, str, tuple[Mapping[Edge, float], ...]]:
    """Return `Routed`'s seconds_per_byte, busiest and loads; parameters as in `route`."""
    net = _Net(graph)
    loads = [net.carry(phase, hosts, ties) for phase in pattern.phases]
    if len(pattern.everyone) > 1:
        loads.append(net.carry_everyone(pattern.everyone, hosts, ties))
    seconds, worst_s, busiest = 0.0, 0.0, ""
    for load in loads:
        edge = max(load, key=lambda edge: load[edge] / net.rate[edge])
        slowest_s = load[edge] / net.rate[edge]
        if slowest_s > worst_s:
            worst_s, busiest = slowest_s, f"{edge[0]} -> {edge[1]}"
        seconds += slowest_s
    return seconds, busiest, tuple(loads)


def critical_latency_s(
    graph: Graph, hosts: Sequence[str], pattern: Pattern, ties: Ties = "even"
) -> tuple[float, int]:
    """Return `Routed`'s latency_s and hops; parameters as in `route`.

    Of paths that share a flow the slowest counts.
    """
    net = _Net(graph)
    if len(pattern.everyone) > 1:
        return net.farthest_s(hosts[: len(pattern.everyone)], ties), 1
    hop_s = net.latencies_s({hop for chain in pattern.chains for hop in chain}, hosts, ties)
    longest = (0.0, 0)
    for chain in pattern.chains:
        longest = max(longest, (sum(hop_s[hop] for hop in chain), len(chain)))
    return longest


class _Net:
    """A graph made ready: neighbours, rates, and the stems that leave no choice of path.

    A vertex with one neighbour can only be reached through it. Such vertices are stripped one
    after another; each keeps its stem, the only way inward. Only what is left has to be searched.
    """

    def __init__(self, graph: Graph) -> None:
        self.out = {vertex: list(graph.successors(vertex)) for vertex in graph}
        self.into = {vertex: list(graph.predecessors(vertex)) for vertex in graph}
        edges: list[tuple[str, str, dict[str, Any]]] = list(graph.edges(data=True))
        self.rate: dict[Edge, float] = {(a, b): d["rate_bytes_per_s"] for a, b, d in edges}
        self.delay_s: dict[Edge, float] = {(a, b): d["latency_s"] for a, b, d in edges}
        kinds = graph.nodes(data="kind")
        host = {vertex for vertex, kind in kinds if kind == "host"}
        self.passes = {v for v in graph if v not in host or any(w in host for w in self.out[v])}
        self.stem = self._stems()

    def _stems(self) -> dict[str, str]:
        near = {v: {*self.out[v]} | {*self.into[v]} for v in self.out}
        stem: dict[str, str] = {}
        ready = [v for v in near if len(near[v]) == 1]
        while ready:
            vertex = ready.pop()
            if len(near[vertex]) != 1:
                continue
            (inward,) = near[vertex]
            both = (vertex, inward) in self.rate and (inward, vertex) in self.rate
            if inward not in self.passes or not both:
                continue
            stem[vertex] = inward
            near[vertex].clear()
            near[inward].discard(vertex)
            if len(near[inward]) == 1:
                ready.append(inward)
        return stem

    def _inward(self, vertex: str) -> list[str]:
        way = [vertex]
        while way[-1] in self.stem:
            way.append(self.stem[way[-1]])
        return way

    def ends(self, source: str, target: str) -> tuple[list[str], list[str]]:
        """Return the forced parts of a path: from the source inward, and out to the target.

        They meet in one vertex, or end where the search begins and ends.
        """
        up, down = self._inward(source), self._inward(target)
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        return up, down[::-1]

    def carry(self, phase: Sequence[Flow], hosts: Sequence[str], ties: Ties) -> dict[Edge, float]:
        """Return the load on every edge that the flows of a phase use."""
        load: dict[Edge, float] = {}
        demands: dict[str, dict[str, float]] = {}
        for source, target, weight in phase:
            up, down = self.ends(hosts[source], hosts[target])
            for way in (up, down):
                for edge in pairwise(way):
                    load[edge] = load.get(edge, 0.0) + weight
            if up[-1] != down[0]:
                asked = demands.setdefault(down[0], {})
                asked[up[-1]] = asked.get(up[-1], 0.0) + weight
        for end, asked in demands.items():
            self._push(end, asked, ties, load)
        return load

    def _push(
        self, target: str, asked: Mapping[str, float], ties: Ties, load: dict[Edge, float]
    ) -> None:
        """Push demands towards one target, the farthest vertices first."""
        flow = dict(asked)
        for vertex, ahead in reversed(list(self._towards(target, set(asked), ties))):
            amount = flow.pop(vertex, 0.0)
            if amount:
                for following in ahead:
                    edge = (vertex, following)
                    load[edge] = load.get(edge, 0.0) + amount / len(ahead)
                    if following != target:
                        flow[following] = flow.get(following, 0.0) + amount / len(ahead)

    def _towards(
        self, target: str, sources: Set[str], ties: Ties
    ) -> Iterator[tuple[str, list[str]]]:
        """Go outward from a target: each vertex with its next hops, until all sources are met."""
        distance, ring, missing = {target: 0}, [target], set(sources)
        while ring and missing:
            met: list[str] = []
            for vertex in ring:
                if vertex != target and vertex not in self.passes:
                    continue
                for before in self.into[vertex]:
                    if before not in distance:
                        distance[before] = distance[vertex] + 1
                        met.append(before)
            for vertex in met:
                ahead = [
                    w
                    for w in self.out[vertex]
                    if distance.get(w) == distance[vertex] - 1 and (w == target or w in self.passes)
                ]
                yield vertex, ahead if ties == "even" else ahead[:1]
            missing.difference_update(met)
            ring = met
        if missing:
            raise RequestError(
                f"the network's graph: {target!r} cannot be reached from {min(missing)!r}."
            )

    def carry_everyone(
        self, gpus: Sequence[int], hosts: Sequence[str], ties: Ties
    ) -> dict[Edge, float]:
        """Return the load where every rank sends 1/P to every other: what `carry` gives, faster.

        Across a stem with s of P ranks on its far side flows s (P - s) / P each way.
        """
        ranks = sum(gpus)
        beyond = dict.fromkeys(self.out, 0)
        for host, count in zip(hosts, gpus, strict=False):
            beyond[host] += count
        load: dict[Edge, float] = {}
        for vertex, inward in self.stem.items():  # outermost first
            own = beyond.pop(vertex)
            beyond[inward] += own
            if 0 < own < ranks:
                load[vertex, inward] = load[inward, vertex] = own * (ranks - own) / ranks
        inner = {vertex: count for vertex, count in beyond.items() if count}
        for target, count in inner.items():
            asked = {v: own * count / ranks for v, own in inner.items() if v != target}
            if asked:
                self._push(target, asked, ties, load)
        return load

    def farthest_s(self, hosts: Sequence[str], ties: Ties) -> float:
        """Return the latency between the two of several hosts that are farthest apart [s]."""
        up_s, down_s, worst_s = dict.fromkeys(hosts, 0.0), dict.fromkeys(hosts, 0.0), 0.0
        for vertex, inward in self.stem.items():
            if vertex not in up_s:
                continue
            there_s = up_s.pop(vertex) + self.delay_s[vertex, inward]
            back_s = down_s.pop(vertex) + self.delay_s[inward, vertex]
            if inward in up_s:
                worst_s = max(worst_s, there_s + down_s[inward], up_s[inward] + back_s)
            up_s[inward] = max(up_s.get(inward, 0.0), there_s)
            down_s[inward] = max(down_s.get(inward, 0.0), back_s)
        for target in up_s:
            others = up_s.keys() - {target}
            if others:
                found = self._delays_to(target, others, ties)
                far_s = max(up_s[vertex] + found[vertex] for vertex in others)
                worst_s = max(worst_s, far_s + down_s[target])
        return worst_s

    def latencies_s(
        self, hops: Iterable[tuple[int, int]], hosts: Sequence[str], ties: Ties
    ) -> dict[tuple[int, int], float]:
        """Return the latency of each (source, target) hop between hosts [s]."""
        found: dict[tuple[int, int], float] = {}
        inner: dict[str, list[tuple[str, tuple[int, int]]]] = {}
        for hop in hops:
            up, down = self.ends(hosts[hop[0]], hosts[hop[1]])
            forced = (*pairwise(up), *pairwise(down))
            found[hop] = sum(self.delay_s[edge] for edge in forced)
            if up[-1] != down[0]:
                inner.setdefault(down[0], []).append((up[-1], hop))
        for target, asked in inner.items():
            delays = self._delays_to(target, {source for source, _ in asked}, ties)
            for source, hop in asked:
                found[hop] += delays[source]
        return found

    def _delays_to(self, target: str, sources: Set[str], ties: Ties) -> dict[str, float]:
        found = {target: 0.0}
        for vertex, ahead in self._towards(target, sources, ties):
            found[vertex] = max(self.delay_s[vertex, w] + found[w] for w in ahead)
        return found
