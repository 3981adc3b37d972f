"""Wires between the vertices of a graph: full duplex, each direction an edge of its own."""

from __future__ import annotations

from perfsim.errors import RequestError
from perfsim.network.routing import Graph

__all__ = ["join", "new_graph"]

MOST_NODES = 131072
MOST_LINKS = 2000000
"""What is routed in seconds; beyond it a slip is likelier than a cluster."""


def new_graph(nodes: int = 0, links: int = 0) -> Graph:
    """Return an empty graph; its ``hosts`` list the nodes in the order in which jobs fill them.

    Raises
    ------
    RequestError
        If it is about to hold too many nodes or links between switches.
    """
    import networkx as nx  # type: ignore[import-untyped, unused-ignore]

    if nodes > MOST_NODES or links > MOST_LINKS:
        raise RequestError(
            f"the network's fabric: {nodes} nodes and {links} links between switches are too many"
            f" to route; at most {MOST_NODES} and {MOST_LINKS}."
        )
    return nx.DiGraph(hosts=[])


def join(
    graph: Graph, low: str, high: str, rate_bytes_per_s: float, hop_latency_s: float = 0.0
) -> None:
    """Join two vertices in both directions; what leaves a switch has passed it and paid for it.

    Parameters
    ----------
    low, high : vertices that are in the graph, ``kind`` "switch" or other
    rate_bytes_per_s : rate in each direction [B/s]
    hop_latency_s : latency of passing a switch [s]

    Examples
    --------
    >>> graph = new_graph()
    >>> graph.add_node("node 0", kind="host")
    >>> graph.add_node("leaf 0", kind="switch")
    >>> join(graph, "node 0", "leaf 0", 1e9, 1e-6)
    >>> [latency_s for _, _, latency_s in graph.edges(data="latency_s")]
    [0.0, 1e-06]
    """
    for tail, head in ((low, high), (high, low)):
        latency_s = hop_latency_s if graph.nodes[tail]["kind"] == "switch" else 0.0
        graph.add_edge(tail, head, rate_bytes_per_s=rate_bytes_per_s, latency_s=latency_s)
