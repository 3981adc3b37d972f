"""Routing: send a collective's flows over the shortest paths of a network.

The result is the load on every link, the busiest link, and the latency of the longest chain of
messages.

The network is a networkx graph whose edges have ``rate_bytes_per_s`` and ``latency_s``. A vertex
of ``kind`` "host" is a node of the cluster. A host forwards the traffic of others only if it is
wired to another host (a direct network). Links are full duplex: each direction is its own edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from perfsim.collectives.hops import exchange_pairs
from perfsim.errors import RequestError
from perfsim.sums import sum_in_order

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
    """Traffic from one node to another.

    Nodes are numbered from 0 in the order of the placement. ``weight`` is the bytes sent per byte
    of one rank's buffer.
    """

    source: int
    target: int
    weight: float


@dataclass(frozen=True, slots=True)
class Pattern:
    """The flows of a collective between nodes.

    Parameters
    ----------
    phases : the flows of each phase, which run at once; phases run one after another, and traffic
        inside a node is left out
    chains : sequences of dependent messages, each as the (source, target) hops in their order
    everyone : GPUs on each node, for an all-to-all where every rank sends 1/P of its buffer to
        every other; it replaces the list of N^2 flows of
        `perfsim.network.routing.all_to_all_flows`
    """

    phases: tuple[tuple[Flow, ...], ...]
    chains: tuple[tuple[tuple[int, int], ...], ...]
    everyone: tuple[int, ...] = ()


def phases(
    steps: Sequence[Mapping[tuple[int, int], int]], weights: Sequence[float]
) -> tuple[tuple[Flow, ...], ...]:
    """Turn each step's (source, target) -> count into a phase, without traffic inside a node.

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
"""(source node, target node) -> ranks that send from the one to the other, or their blocks."""


def halving_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of recursive halving.

    In round i rank r exchanges 1/2^(i+1) of the buffer with rank r XOR 2^i. The first round
    exchanges halves with the nearest rank. If the number of ranks is no power of two, each surplus
    rank first sends its whole buffer to a neighbour and takes no part in the rounds. A doubling
    that follows sends the same flows in reverse.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in halving_flows((1,) * 4).phases]
    [[0.5, 0.5, 0.5, 0.5], [0.25, 0.25, 0.25, 0.25]]

    References
    ----------
    Rabenseifner, ICCS 2004; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.2.
    """
    home, folds, steps, hops = _exchange_rounds(placement)
    weights = [0.5 / distance for distance in _distances(len(home))]
    chains = _without_local_hops([*fold, *rounds] for fold, rounds in hops)
    return Pattern(phases([*folds, *steps], [1.0] * len(folds) + weights), chains)


def doubling_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of an all-reduce by recursive doubling.

    In round i rank r exchanges its whole buffer with rank r XOR 2^i. If the number of ranks is no
    power of two, each surplus rank sends its buffer to a neighbour before the rounds and gets the
    result after them.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in doubling_flows((1,) * 4).phases]
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5.
    """
    _, folds, steps, hops = _exchange_rounds(placement)
    steps = [*folds, *steps, *map(_reversed_step, folds)]
    return Pattern(phases(steps, [1.0] * len(steps)), _folded_and_back(hops))


def gathering_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of an all-gather by recursive doubling.

    Each rank starts with one of the P blocks. In round i rank r exchanges the blocks that it has
    with rank r XOR 2^i: 2^i, and those of ranks that folded. If the number of ranks is no power of
    two, each surplus rank sends its block to a neighbour before the rounds and gets all blocks
    after them.

    Examples
    --------
    >>> [[flow.weight for flow in phase] for phase in gathering_flows((1,) * 4).phases]
    [[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.5, 0.5]]

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.1.
    """
    home, folds, _, hops = _exchange_rounds(placement)
    ranks, members = sum(placement), range(len(home))
    held = [1 + len(fold) for fold, _ in hops]  # blocks
    steps: list[FlowStep] = []
    for far in _distances(len(home)):
        step: FlowStep = Counter()
        for rank in members:
            step[home[rank], home[rank ^ far]] += held[rank]
        steps.append(step)
        held = [held[rank] + held[rank ^ far] for rank in members]
    weights = [1.0 / ranks] * len([*folds, *steps]) + [1.0] * len(folds)
    steps = [*folds, *steps, *map(_reversed_step, folds)]
    return Pattern(phases(steps, weights), _folded_and_back(hops))


def bruck_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of Bruck's all-gather.

    Each rank starts with one of the P blocks. In round i rank r sends min(2^i, P - 2^i) blocks to
    rank r - 2^i.

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
    return _ring_shifts(placement, rounds)


def bruck_exchange_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of Bruck's all-to-all.

    In round i rank r sends half of its buffer to rank r - 2^i.

    Examples
    --------
    >>> [phase[0].weight for phase in bruck_exchange_flows((1,) * 8).phases]
    [0.5, 0.5, 0.5]

    References
    ----------
    Bruck et al., IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.4.
    """
    return _ring_shifts(placement, [(-far, 0.5) for far in _distances(sum(placement))])


def pat_flows(placement: Sequence[int]) -> Pattern:
    """Return the flows of PAT's all-gather; its reduce-scatter sends them in reverse.

    The distance 2^i starts at the largest power of two below P and halves in every round. Rank r
    sends to rank r + 2^i the blocks that it has and the other lacks. These come from ranks that
    are a multiple of 2^(i+1) before r (0 included), and less than P - 2^i before it.

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
    return _ring_shifts(placement, rounds)


def _distances(ranks: int) -> list[int]:
    """Return the powers of two below a number of ranks."""
    return [1 << power for power in range((ranks - 1).bit_length())]


def _reversed_step(step: FlowStep) -> FlowStep:
    """Swap source and target of every flow."""
    return Counter({(target, source): count for (source, target), count in step.items()})


MessageChains = tuple[tuple[tuple[int, int], ...], ...]

_Messages = list[tuple[int, int]]
"""Messages one after another, each from a node to a node."""


def _exchange_rounds(
    placement: Sequence[int],
) -> tuple[list[int], list[FlowStep], list[FlowStep], list[tuple[_Messages, _Messages]]]:
    """List the rounds in which rank r exchanges with rank r XOR 2^i.

    Returns the node of each rank that takes part, the step that folds surplus ranks into their
    neighbours (empty for a power of two), the step of each round, and, of each rank that takes
    part, the hop of the one that folds into it (if any) and those of its rounds.
    """
    pairs = exchange_pairs([node for node, gpus in enumerate(placement) for _ in range(gpus)])
    folds = [Counter(pairs.folds)] if pairs.folds else []
    hops = [
        (pairs.folds[rank : rank + 1], [one[rank] for one in pairs.rounds])
        for rank in range(len(pairs.home))
    ]
    return pairs.home, folds, [Counter(one) for one in pairs.rounds], hops


def _folded_and_back(hops: Iterable[tuple[_Messages, _Messages]]) -> MessageChains:
    """Return the chains of rounds with the hops before them and after them that fold a rank."""
    return _without_local_hops(
        [*fold, *rounds, *((target, source) for source, target in fold)] for fold, rounds in hops
    )


def _ring_shifts(placement: Sequence[int], rounds: Sequence[tuple[int, float]]) -> Pattern:
    """Return the flows of rounds (distance, weight): rank r sends the weight to r + distance."""
    home = [node for node, gpus in enumerate(placement) for _ in range(gpus)]
    ranks = len(home)
    steps = [Counter((home[r], home[(r + by) % ranks]) for r in range(ranks)) for by, _ in rounds]
    hops = []
    for rank in range(ranks):
        chain, sender = [], rank
        for by, _ in rounds:
            receiver = (sender + by) % ranks
            chain.append((home[sender], home[receiver]))
            sender = receiver
        hops.append(chain)
    return Pattern(phases(steps, [weight for _, weight in rounds]), _without_local_hops(hops))


def _without_local_hops(chains: Iterable[Sequence[tuple[int, int]]]) -> MessageChains:
    """Return each chain once, without the hops inside a node."""
    distinct = {tuple(hop for hop in chain if hop[0] != hop[1]) for chain in chains}
    return tuple(sorted(chain for chain in distinct if chain))


def flows(pattern: str, placement: Sequence[int]) -> Pattern:
    """Return the flows of the pattern of that name, one of `PATTERNS`.

    The flows of "all_to_all" are not listed: `Pattern.everyone` describes them.

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
    """Return the flows of a ring that visits all ranks of a node before the next node.

    Every node sends to the next, however many GPUs it has. With several NICs per node, as many
    rings share the weight in the same node order, so that the sum is the same. The weight is 1:
    one pass over all ranks.

    Examples
    --------
    >>> [flow[:2] for flow in ring_flows((4, 4, 4)).phases[0]]
    [(0, 1), (1, 2), (2, 0)]
    """
    nodes = len(placement)
    if nodes < 2:
        return Pattern((), ())
    hops = tuple((node, (node + 1) % nodes) for node in range(nodes))
    return Pattern((tuple(Flow(*hop, 1.0) for hop in hops),), (hops,))


def tree_parents(nodes: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return node -> parent in each of two binary trees over ``nodes`` nodes.

    Node 0 is the root of the first tree. The parent of any other node has that node's lowest set
    bit cleared and the bit above it set. If that lies past the last node, the bit is only cleared.
    For an even number of nodes the second tree is the mirror image (node -> N - 1 - node); for an
    odd number it is shifted by one node. So nearly every node is a leaf in one tree and an inner
    node in the other.

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
    """Return the flows of an all-reduce over a double binary tree of nodes.

    Each tree carries half of the buffer over each of its edges: sums up, results down. Inside a
    node the GPUs form a chain, which causes no flows between nodes.

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
    """Return the flows of an all-to-all, where every rank sends 1/P of its buffer to every other.

    The flow from a node of p GPUs to a node of q GPUs has weight p q / P.

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

    With an odd number of nodes the last one exchanges nothing.

    Examples
    --------
    >>> [flow[:2] for flow in pair_flows((4,) * 5).phases[0]]
    [(0, 1), (1, 0), (2, 3), (3, 2)]
    """
    pairs = [(node, node ^ 1) for node in range(len(placement) // 2 * 2)]
    phase = tuple(Flow(a, b, 1.0) for a, b in pairs)
    return Pattern((phase,) if phase else (), tuple((pair,) for pair in pairs))


def _unlisted_all_to_all(placement: Sequence[int]) -> Pattern:
    """Return an all-to-all by the GPUs of each node, without a list of flows."""
    return Pattern((), (), tuple(placement))


PATTERNS: Mapping[str, Callable[[Sequence[int]], Pattern]] = {
    "ring": ring_flows,
    "tree": tree_flows,
    "all_to_all": _unlisted_all_to_all,
    "pairs": pair_flows,
    "halving": halving_flows,
    "doubling": doubling_flows,
    "gathering": gathering_flows,
    "bruck": bruck_flows,
    "bruck_exchange": bruck_exchange_flows,
    "pat": pat_flows,
}
"""The patterns by name. A collective's algorithm names one of them as its ``flows``."""


Graph: TypeAlias = Any
"""A ``networkx.DiGraph``; networkx has no type annotations."""

Ties = Literal["even", "first"]
TIES: tuple[Ties, ...] = ("even", "first")
"""How a flow uses equal-cost next hops: all of them evenly (ECMP, on average), or the first alone
(static)."""

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Routed:
    """Loads, busiest link and latency of a pattern on a graph.

    Parameters
    ----------
    seconds_per_byte : time on the busiest link of each phase per byte of the buffer, summed over
        the phases [s/B]
    busiest : the busiest link of the longest phase, as "from -> to"; "" where nothing is sent
    latency_s : sum of the latencies along the longest chain of hops [s]
    hops : hops between nodes on that chain
    loads : for each phase, the bytes that each directed edge carries per byte of the buffer
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
    graph : a directed graph, as the module's docstring describes it
    hosts : the vertex of each node of the placement
    pattern : flows between nodes, which are indices into ``hosts``
    ties : how a flow uses equal-cost next hops at each switch, one of `TIES`

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
    seconds_per_byte, busiest, loads = route_flows(graph, hosts, pattern, ties)
    latency_s, hops = critical_latency_s(graph, hosts, pattern, ties)
    return Routed(seconds_per_byte, busiest, latency_s, hops, loads)


def route_flows(
    graph: Graph, hosts: Sequence[str], pattern: Pattern, ties: Ties = "even"
) -> tuple[float, str, tuple[Mapping[Edge, float], ...]]:
    """Return seconds_per_byte, busiest and loads of `Routed`; parameters as in `route`."""
    net = _RoutingGraph(graph)
    loads = [net.loads(phase, hosts, ties) for phase in pattern.phases]
    if len(pattern.everyone) > 1:
        loads.append(net.all_to_all_loads(pattern.everyone, hosts, ties))
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
    """Return latency_s and hops of `Routed`; parameters as in `route`.

    Where several paths share a flow, the slowest counts.
    """
    net = _RoutingGraph(graph)
    if len(pattern.everyone) > 1:
        return net.longest_latency_s(hosts[: len(pattern.everyone)], ties), 1
    hop_s = net.latencies_s({hop for chain in pattern.chains for hop in chain}, hosts, ties)
    longest = (0.0, 0)
    for chain in pattern.chains:
        longest = max(longest, (sum_in_order(hop_s[hop] for hop in chain), len(chain)))
    return longest


class _RoutingGraph:
    """A graph prepared for routing: neighbours, rates, latencies and tree branches.

    A vertex with one neighbour can only be reached through that neighbour. Such vertices are
    removed one after another, so that a tree shrinks to its root. ``uplink`` gives the only
    neighbour that each of them had when it was removed. The rest of the graph is the core. Only
    the core needs a search for paths.

    ``forwarding`` are the vertices that forward the traffic of others.
    """

    def __init__(self, graph: Graph) -> None:
        self.successors = {vertex: list(graph.successors(vertex)) for vertex in graph}
        self.predecessors = {vertex: list(graph.predecessors(vertex)) for vertex in graph}
        edges: list[tuple[str, str, dict[str, Any]]] = list(graph.edges(data=True))
        self.rate: dict[Edge, float] = {(a, b): d["rate_bytes_per_s"] for a, b, d in edges}
        self.latency_s: dict[Edge, float] = {(a, b): d["latency_s"] for a, b, d in edges}
        kinds = graph.nodes(data="kind")
        host = {vertex for vertex, kind in kinds if kind == "host"}
        self.forwarding = {
            v for v in graph if v not in host or any(w in host for w in self.successors[v])
        }
        self.uplink = self._uplinks()

    def _uplinks(self) -> dict[str, str]:
        """Return vertex -> its only neighbour, for all vertices outside the core, leaves first."""
        neighbours = {v: {*self.successors[v]} | {*self.predecessors[v]} for v in self.successors}
        uplink: dict[str, str] = {}
        leaves = [v for v in neighbours if len(neighbours[v]) == 1]
        while leaves:
            vertex = leaves.pop()
            if len(neighbours[vertex]) != 1:
                continue
            (parent,) = neighbours[vertex]
            both_ways = (vertex, parent) in self.rate and (parent, vertex) in self.rate
            if parent not in self.forwarding or not both_ways:
                continue
            uplink[vertex] = parent
            neighbours[vertex].clear()
            neighbours[parent].discard(vertex)
            if len(neighbours[parent]) == 1:
                leaves.append(parent)
        return uplink

    def _path_to_core(self, vertex: str) -> list[str]:
        """Return the vertices from one vertex up its uplinks to the core."""
        path = [vertex]
        while path[-1] in self.uplink:
            path.append(self.uplink[path[-1]])
        return path

    def path_ends(self, source: str, target: str) -> tuple[list[str], list[str]]:
        """Return the two parts of a path that leave no choice: up from the source, down to target.

        Either both parts meet in one vertex, or a path through the core must join them.
        """
        up, down = self._path_to_core(source), self._path_to_core(target)
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        return up, down[::-1]

    def loads(self, phase: Sequence[Flow], hosts: Sequence[str], ties: Ties) -> dict[Edge, float]:
        """Return the load on every edge that the flows of a phase use."""
        load: dict[Edge, float] = {}
        demands: dict[str, dict[str, float]] = {}
        for source, target, weight in phase:
            up, down = self.path_ends(hosts[source], hosts[target])
            for path in (up, down):
                for edge in pairwise(path):
                    load[edge] = load.get(edge, 0.0) + weight
            if up[-1] != down[0]:
                demand = demands.setdefault(down[0], {})
                demand[up[-1]] = demand.get(up[-1], 0.0) + weight
        for core_target, demand in demands.items():
            self._add_core_load(core_target, demand, ties, load)
        return load

    def _add_core_load(
        self, target: str, demand: Mapping[str, float], ties: Ties, load: dict[Edge, float]
    ) -> None:
        """Add to ``load`` what each source in ``demand`` sends to one target.

        Flows advance hop by hop from the vertices farthest from the target.
        """
        flow = dict(demand)
        for vertex, next_hops in reversed(list(self._next_hops(target, set(demand), ties))):
            amount = flow.pop(vertex, 0.0)
            if amount:
                for next_hop in next_hops:
                    edge = (vertex, next_hop)
                    load[edge] = load.get(edge, 0.0) + amount / len(next_hops)
                    if next_hop != target:
                        flow[next_hop] = flow.get(next_hop, 0.0) + amount / len(next_hops)

    def _next_hops(
        self, target: str, sources: Set[str], ties: Ties
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield each vertex with its next hops towards a target, nearest vertices first.

        A breadth-first search from the target, which ends when it has reached all sources.
        """
        distance, frontier, missing = {target: 0}, [target], set(sources)
        while frontier and missing:
            reached: list[str] = []
            for vertex in frontier:
                if vertex != target and vertex not in self.forwarding:
                    continue
                for before in self.predecessors[vertex]:
                    if before not in distance:
                        distance[before] = distance[vertex] + 1
                        reached.append(before)
            for vertex in reached:
                nearer = distance[vertex] - 1
                next_hops = [
                    w
                    for w in self.successors[vertex]
                    if distance.get(w) == nearer and (w == target or w in self.forwarding)
                ]
                yield vertex, next_hops if ties == "even" else next_hops[:1]
            missing.difference_update(reached)
            frontier = reached
        if missing:
            raise RequestError(
                "", f"the network's graph: {target!r} cannot be reached from {min(missing)!r}."
            )

    def all_to_all_loads(
        self, gpus: Sequence[int], hosts: Sequence[str], ties: Ties
    ) -> dict[Edge, float]:
        """Return the loads where every rank sends 1/P to every other, faster than flow by flow.

        An uplink with s of the P ranks below it carries s (P - s) / P each way.
        """
        ranks = sum(gpus)
        ranks_below = dict.fromkeys(self.successors, 0)
        for host, count in zip(hosts, gpus, strict=False):
            ranks_below[host] += count
        load: dict[Edge, float] = {}
        for vertex, parent in self.uplink.items():  # leaves first
            below = ranks_below.pop(vertex)
            ranks_below[parent] += below
            if 0 < below < ranks:
                load[vertex, parent] = load[parent, vertex] = below * (ranks - below) / ranks
        core = {vertex: count for vertex, count in ranks_below.items() if count}
        for target, count in core.items():
            demand = {v: below * count / ranks for v, below in core.items() if v != target}
            if demand:
                self._add_core_load(target, demand, ties, load)
        return load

    def longest_latency_s(self, hosts: Sequence[str], ties: Ties) -> float:
        """Return the latency between the two hosts that are farthest apart [s]."""
        # The largest latency from any host below a vertex up to it, and from it down to a host.
        up_s, down_s, longest_s = dict.fromkeys(hosts, 0.0), dict.fromkeys(hosts, 0.0), 0.0
        for vertex, parent in self.uplink.items():
            if vertex not in up_s:
                continue
            to_parent_s = up_s.pop(vertex) + self.latency_s[vertex, parent]
            from_parent_s = down_s.pop(vertex) + self.latency_s[parent, vertex]
            if parent in up_s:
                longest_s = max(
                    longest_s, to_parent_s + down_s[parent], up_s[parent] + from_parent_s
                )
            up_s[parent] = max(up_s.get(parent, 0.0), to_parent_s)
            down_s[parent] = max(down_s.get(parent, 0.0), from_parent_s)
        for target in up_s:
            others = up_s.keys() - {target}
            if others:
                core_s = self._core_latencies_s(target, others, ties)
                to_target_s = max(up_s[vertex] + core_s[vertex] for vertex in others)
                longest_s = max(longest_s, to_target_s + down_s[target])
        return longest_s

    def latencies_s(
        self, hops: Iterable[tuple[int, int]], hosts: Sequence[str], ties: Ties
    ) -> dict[tuple[int, int], float]:
        """Return the latency of each (source, target) hop between hosts [s]."""
        latencies_s: dict[tuple[int, int], float] = {}
        through_core: dict[str, list[tuple[str, tuple[int, int]]]] = {}
        for hop in hops:
            up, down = self.path_ends(hosts[hop[0]], hosts[hop[1]])
            edges = (*pairwise(up), *pairwise(down))
            latencies_s[hop] = sum_in_order(self.latency_s[edge] for edge in edges)
            if up[-1] != down[0]:
                through_core.setdefault(down[0], []).append((up[-1], hop))
        for target, crossings in through_core.items():
            core_s = self._core_latencies_s(target, {source for source, _ in crossings}, ties)
            for source, hop in crossings:
                latencies_s[hop] += core_s[source]
        return latencies_s

    def _core_latencies_s(self, target: str, sources: Set[str], ties: Ties) -> dict[str, float]:
        """Return the latency from each vertex to a target by its slowest shortest path [s]."""
        latencies_s = {target: 0.0}
        for vertex, next_hops in self._next_hops(target, sources, ties):
            latencies_s[vertex] = max(self.latency_s[vertex, w] + latencies_s[w] for w in next_hops)
        return latencies_s
