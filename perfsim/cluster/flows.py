"""Flows: who sends how much to whom between nodes, for each pattern that a collective follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from perfsim.cluster.pattern import Flow, Pattern, phases
from perfsim.cluster.round_flows import (
    bruck_exchange_flows,
    bruck_flows,
    doubling_flows,
    gathering_flows,
    halving_flows,
    pat_flows,
)

__all__ = [
    "PATTERNS",
    "all_to_all_flows",
    "flows",
    "pair_flows",
    "ring_flows",
    "tree_flows",
    "tree_parents",
]


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
    found: Counter[tuple[int, int]] = Counter()
    chains = []
    for parents in trees:
        for node, up in parents.items():
            found[node, up] += 1
            found[up, node] += 1
        for leaf in set(parents) - set(parents.values()):
            chain, node = [], leaf
            while node in parents:
                chain.append((node, parents[node]))
                node = parents[node]
            chains.append(tuple(chain))
    return Pattern(phases([found], [0.5]), tuple(chains))


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
