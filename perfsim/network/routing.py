"""Routing: flows over the shortest paths of a graph, the busiest link, latency along the way.

A graph is a networkx graph whose edges carry ``rate_bytes_per_s`` and ``latency_s``; a vertex of
``kind`` "host" is a node of the cluster and passes on the traffic of others only if it is wired
to another host (a direct network). Links are full duplex: each direction is an edge of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from perfsim.errors import RequestError

__all__ = [
    "PATTERNS",
    "TIES",
    "Flow",
    "Graph",
    "Pattern",
    "Routed",
    "Ties",
    "all_to_all_flows",
    "bruck_exchange_flows",
    "bruck_flows",
    "critical_latency_s",
    "doubling_flows",
    "flows",
    "gathering_flows",
    "halving_flows",
    "pair_flows",
    "pat_flows",
    "phases",
    "ring_flows",
    "route",
    "route_flows",
    "tree_flows",
    "tree_parents",
]


class Flow(NamedTuple):
    """Traffic from one node to another; nodes count from 0 in the order of the placement.

    ``weight`` is in bytes a byte of one rank's buffer.
    """

    source: int
    target: int
    weight: float


@dataclass(frozen=True, slots=True)
class Pattern:
    """The flows of a collective between nodes.

    Parameters
    ----------
    phases : flows that run at once, phase after phase; what stays inside a node is left out
    chains : ways through the collective, each the (source, target) hops crossed one after another
    everyone : GPUs on each node where every rank sends 1/P of its buffer to every other: the flows
        of `perfsim.network.routing.all_to_all_flows`, N^2 of them, without their list
    """

    phases: tuple[tuple[Flow, ...], ...]
    chains: tuple[tuple[tuple[int, int], ...], ...]
    everyone: tuple[int, ...] = ()


def phases(
    steps: Sequence[Mapping[tuple[int, int], int]], weights: Sequence[float]
) -> tuple[tuple[Flow, ...], ...]:
    """Return one phase a step of (source, target) -> count, without what stays inside a node.

    Examples
    --------
    >>> phases([{(0, 1): 2, (1, 1): 2}], [0.5])
    ((Flow(source=0, target=1, weight=1.0),),)
    """
    kept = (
        tuple(Flow(*hop, count * weight) for hop, count in step.items() if hop[0] != hop[1])
        for step, weight in zip(steps, weights, strict=True)
    )
    return tuple(phase for phase in kept if phase)


FlowStep = Counter[tuple[int, int]]
"""(source, target) -> ranks that send so, by their nodes."""


def halving_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of recursive halving; the doubling that may follow mirrors them.

    In round i rank r exchanges 1/2^(i+1) of the buffer with rank r XOR 2^i: halves first, with
    the nearest. Ranks past the largest power of two first hand over their whole buffer to a
    neighbour and sit out.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in halving_flows((1,) * 4).phases]
    [[0.5, 0.5, 0.5, 0.5], [0.25, 0.25, 0.25, 0.25]]

    References
    ----------
    Rabenseifner, ICCS 2004; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.2.
    """
    home, folds, steps, chains = _swaps(placement)
    weights = [0.5 / distance for distance in _distances(len(home))]
    return Pattern(phases([*folds, *steps], [1.0] * len(folds) + weights), chains)


def doubling_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of an all-reduce by recursive doubling: the whole buffer in every round.

    In round i rank r exchanges it with rank r XOR 2^i; ranks past the largest power of two hand
    theirs over before and get the result after.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in doubling_flows((1,) * 4).phases]
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5.
    """
    _, folds, steps, chains = _swaps(placement)
    steps = [*folds, *steps, *map(_back, folds)]
    return Pattern(phases(steps, [1.0] * len(steps)), chains)


def gathering_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of an all-gather by recursive doubling: twice the blocks, twice as far.

    In round i rank r exchanges the 2^i blocks of P that it has with rank r XOR 2^i; ranks past
    the largest power of two hand their block over before and get all after.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in gathering_flows((1,) * 4).phases]
    [[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.5, 0.5]]

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1.
    """
    home, folds, steps, chains = _swaps(placement)
    ranks = sum(placement)
    blocks = [distance * (ranks / len(home)) for distance in _distances(len(home))]
    sent = [1.0] * len(folds) + blocks + [float(ranks)] * len(folds)
    weights = [count / ranks for count in sent]
    return Pattern(phases([*folds, *steps, *map(_back, folds)], weights), chains)


def bruck_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of Bruck's all-gather: twice the blocks, twice as far round the ring.

    In round i rank r sends min(2^i, P - 2^i) blocks of P to rank r - 2^i.

    Examples
    --------
    >>> [(phase[0].target, 3 * phase[0].weight) for phase in bruck_flows((1,) * 3).phases]
    [(2, 1.0), (1, 1.0)]

    References
    ----------
    Bruck et al., IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1.
    """
    ranks = sum(placement)
    rounds = [(-far, min(far, ranks - far) / ranks) for far in _distances(ranks)]
    return _shifts(placement, rounds)


def bruck_exchange_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of Bruck's all-to-all: half of the blocks each round, twice as far.

    In round i rank r sends half of its buffer to rank r - 2^i.

    Examples
    --------
    >>> [phase[0].weight for phase in bruck_exchange_flows((1,) * 8).phases]
    [0.5, 0.5, 0.5]

    References
    ----------
    Bruck et al., IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.4.
    """
    return _shifts(placement, [(-far, 0.5) for far in _distances(sum(placement))])


def pat_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of PAT's all-gather: twice the blocks, half as far; backwards to scatter.

    From the farthest, 2^i >= P/2, to the nearest rank r sends to r + 2^i what it has and that one
    misses: the blocks that came from multiples of 2^(i+1) before it, below P - 2^i.

    Examples
    --------
    >>> [phase[0][1:] for phase in pat_flows((1,) * 8).phases]
    [(4, 0.125), (2, 0.25), (1, 0.5)]

    References
    ----------
    Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale, arXiv
    2506.20252.
    """
    ranks = sum(placement)
    rounds = [
        (far, len(range(0, ranks - far, 2 * far)) / ranks) for far in reversed(_distances(ranks))
    ]
    return _shifts(placement, rounds)


def _distances(ranks: int) -> list[int]:
    """Return the powers of two below a number of ranks."""
    return [1 << power for power in range((ranks - 1).bit_length())]


def _back(step: FlowStep) -> FlowStep:
    return Counter({(target, source): count for (source, target), count in step.items()})


Chains = tuple[tuple[tuple[int, int], ...], ...]


def _swaps(placement: Sequence[int]) -> tuple[list[int], list[FlowStep], list[FlowStep], Chains]:
    """Return who swaps with whom: nodes of the ranks that take part, folds, rounds, chains."""
    home = [node for node, gpus in enumerate(placement) for _ in range(gpus)]
    extra = len(home) - (1 << (len(home).bit_length() - 1))
    folds = []
    if extra:
        folds.append(Counter((home[2 * i], home[2 * i + 1]) for i in range(extra)))
        home = [home[2 * i + 1] for i in range(extra)] + home[2 * extra :]
    ranks = range(len(home))
    steps = [Counter((home[r], home[r ^ far]) for r in ranks) for far in _distances(len(home))]
    hops = ([(home[r], home[r ^ far]) for far in _distances(len(home))] for r in ranks)
    return home, folds, steps, _crossing(hops)


def _shifts(placement: Sequence[int], rounds: Sequence[tuple[int, float]]) -> Pattern:
    """Return rounds in which every rank sends a weight to the one so far on, round the ring."""
    home = [node for node, gpus in enumerate(placement) for _ in range(gpus)]
    ranks = len(home)
    steps = [Counter((home[r], home[(r + by) % ranks]) for r in range(ranks)) for by, _ in rounds]
    hops = []
    for rank in range(ranks):
        chain, at = [], rank
        for by, _ in rounds:
            chain.append((home[at], home[(at + by) % ranks]))
            at = (at + by) % ranks
        hops.append(chain)
    return Pattern(phases(steps, [weight for _, weight in rounds]), _crossing(hops))


def _crossing(chains: Iterable[Sequence[tuple[int, int]]]) -> Chains:
    """Return each chain once, without the hops inside a node."""
    crossing = {tuple(hop for hop in chain if hop[0] != hop[1]) for chain in chains}
    return tuple(sorted(chain for chain in crossing if chain))


def flows(pattern: str, placement: Sequence[int]) -> Pattern:
    """Return the flows of a pattern by name, one of `PATTERNS`; all_to_all without a list.

    Raises
    ------
    KeyError
        If there is no such pattern.

    Examples
    --------
    >>> flows("ring", (3, 5)).phases
    ((Flow(source=0, target=1, weight=1.0), Flow(source=1, target=0, weight=1.0)),)
    """
    return PATTERNS[pattern](placement)


def ring_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of a ring that passes the ranks of each node together, node after node.

    Every node sends to the next whatever the number of its GPUs; where a node has several NICs,
    as many rings share the weight in the same node order, so the sum is the same. Weight 1, the
    scale of a pass over all ranks.

    Examples
    --------
    >>> [flow[:2] for flow in ring_flows((4, 4, 4)).phases[0]]
    [(0, 1), (1, 2), (2, 0)]
    """
    nodes = len(placement)
    if nodes < 2:
        return Pattern((), ())
    turn = tuple((node, (node + 1) % nodes) for node in range(nodes))
    return Pattern((tuple(Flow(*hop, 1.0) for hop in turn),), (turn,))


def tree_parents(nodes: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return node -> parent in the first and second of two binary trees over ``nodes`` nodes.

    In the first, node 0 is the root; the parent of any other clears its lowest set bit and sets
    the one above, or only clears it where that lies past the last node. The second is the mirror
    image (node -> N - 1 - node) for an even number of nodes, else shifted by one node. So nearly
    every node is a leaf in one tree and inside in the other.

    Examples
    --------
    >>> first, second = tree_parents(4)
    >>> first, second
    ({1: 2, 2: 0, 3: 2}, {2: 1, 1: 3, 0: 1})

    References
    ----------
    Sanders, Speck & Träff, Parallel Computing 2009; as built by NCCL (src/graph/trees.cc).
    """
    first: dict[int, int] = {}
    for node in range(1, nodes):
        low = node & -node
        up = (node ^ low) | (low << 1)
        first[node] = up if up < nodes else node ^ low
    if nodes % 2 == 0:
        second = {nodes - 1 - node: nodes - 1 - up for node, up in first.items()}
    else:
        second = {(node + 1) % nodes: (up + 1) % nodes for node, up in first.items()}
    return first, second


def tree_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of a double binary tree all-reduce over nodes, with chains inside nodes.

    Each tree carries half of the buffer, up (sums) and down (results) over each of its edges.

    Examples
    --------
    >>> sum(flow.weight for flow in tree_flows((8,) * 4).phases[0])  # 2 trees, 3 edges, 2 ways
    6.0
    """
    nodes = len(placement)
    trees = tree_parents(nodes)
    hops: Counter[tuple[int, int]] = Counter()
    chains = []
    for parents in trees:
        for node, up in parents.items():
            hops[node, up] += 1
            hops[up, node] += 1
        for leaf in set(parents) - set(parents.values()):
            chain, node = [], leaf
            while node in parents:
                chain.append((node, parents[node]))
                node = parents[node]
            chains.append(tuple(chain))
    return Pattern(phases([hops], [0.5]), tuple(chains))


def all_to_all_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of an all-to-all: every rank sends 1/P of its buffer to every other.

    From a node of p GPUs to one of q flows p q / P.

    Examples
    --------
    >>> [flow.weight for flow in all_to_all_flows((3, 5)).phases[0]]
    [1.875, 1.875]
    """
    ranks, nodes = sum(placement), range(len(placement))
    phase = tuple(
        Flow(a, b, placement[a] * placement[b] / ranks) for a in nodes for b in nodes if a != b
    )
    return Pattern((phase,) if phase else (), tuple(((flow[:2]),) for flow in phase))


def pair_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of nodes that exchange their buffers in pairs: 0 with 1, 2 with 3, ...

    A node left over stays alone.

    Examples
    --------
    >>> [flow[:2] for flow in pair_flows((4,) * 5).phases[0]]
    [(0, 1), (1, 0), (2, 3), (3, 2)]
    """
    pairs = [(node, node ^ 1) for node in range(len(placement) // 2 * 2)]
    phase = tuple(Flow(a, b, 1.0) for a, b in pairs)
    return Pattern((phase,) if phase else (), tuple((pair,) for pair in pairs))


def _everyone(placement: Sequence[int]) -> Pattern:
    return Pattern((), (), tuple(placement))


PATTERNS: Mapping[str, Callable[[Sequence[int]], Pattern]] = {
    "ring": ring_flows,
    "tree": tree_flows,
    "all_to_all": _everyone,
    "pairs": pair_flows,
    "halving": halving_flows,
    "doubling": doubling_flows,
    "gathering": gathering_flows,
    "bruck": bruck_flows,
    "bruck_exchange": bruck_exchange_flows,
    "pat": pat_flows,
}
"""Every pattern by its name, as collectives give it for ``FLOWS``."""


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
    >>> from perfsim.network.fabrics.between_nodes import single_switch
    >>> from perfsim.network.routing import ring_flows
    >>> graph = single_switch(3, node_rate_bytes_per_s=1e9, hop_latency_s=1e-6)
    >>> routed = route(graph, graph.graph["hosts"], ring_flows((4, 4, 4)))
    >>> routed.seconds_per_byte, routed.busiest, round(routed.latency_s * 1e6)
    (1e-09, 'node 0 -> switch', 3)
    """
    load = route_flows(graph, hosts, pattern, ties)
    latency_s, hops = critical_latency_s(graph, hosts, pattern, ties)
    return Routed(*load[:2], latency_s, hops, load[2])


def route_flows(
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
                "", f"the network's graph: {target!r} cannot be reached from {min(missing)!r}."
            )

    def carry_everyone(
        self, gpus: Sequence[int], hosts: Sequence[str], ties: Ties
    ) -> dict[Edge, float]:
        """Return the load where every rank sends 1/P to every other, faster than flow by flow.

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
                delays_s = self._delays_to(target, others, ties)
                far_s = max(up_s[vertex] + delays_s[vertex] for vertex in others)
                worst_s = max(worst_s, far_s + down_s[target])
        return worst_s

    def latencies_s(
        self, hops: Iterable[tuple[int, int]], hosts: Sequence[str], ties: Ties
    ) -> dict[tuple[int, int], float]:
        """Return the latency of each (source, target) hop between hosts [s]."""
        latencies_s: dict[tuple[int, int], float] = {}
        inner: dict[str, list[tuple[str, tuple[int, int]]]] = {}
        for hop in hops:
            up, down = self.ends(hosts[hop[0]], hosts[hop[1]])
            forced = (*pairwise(up), *pairwise(down))
            latencies_s[hop] = sum(self.delay_s[edge] for edge in forced)
            if up[-1] != down[0]:
                inner.setdefault(down[0], []).append((up[-1], hop))
        for target, asked in inner.items():
            delays = self._delays_to(target, {source for source, _ in asked}, ties)
            for source, hop in asked:
                latencies_s[hop] += delays[source]
        return latencies_s

    def _delays_to(self, target: str, sources: Set[str], ties: Ties) -> dict[str, float]:
        delays_s = {target: 0.0}
        for vertex, ahead in self._towards(target, sources, ties):
            delays_s[vertex] = max(self.delay_s[vertex, w] + delays_s[w] for w in ahead)
        return delays_s
