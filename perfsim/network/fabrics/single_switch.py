"""One switch that joins all nodes: the reference against which the others are slower."""

from __future__ import annotations

from collections.abc import Mapping

from perfsim.network.fabrics.option import Option
from perfsim.network.fabrics.wire import join, new_graph
from perfsim.network.routing import Graph

__all__ = ["OPTIONS", "PLACE", "SUMMARY", "single_switch", "words"]

PLACE = "inter"
SUMMARY = "all nodes on one switch without limits of its own"
OPTIONS: Mapping[str, Option] = {}


def single_switch(nodes: int, node_rate_bytes_per_s: float, hop_latency_s: float) -> Graph:
    """Return a star: every node on one switch by its NICs.

    Parameters
    ----------
    nodes : N, nodes to hold
    node_rate_bytes_per_s : all NICs of a node, in each direction [B/s]
    hop_latency_s : latency of passing a switch [s]

    Examples
    --------
    >>> sorted(single_switch(2, 1e9, 0.0))
    ['node 0', 'node 1', 'switch']
    """
    graph = new_graph(nodes)
    graph.add_node("switch", kind="switch", level=1)
    for index in range(nodes):
        host = f"node {index}"
        graph.add_node(host, kind="host", place=(0, index))
        join(graph, host, "switch", node_rate_bytes_per_s, hop_latency_s)
        graph.graph["hosts"].append(host)
    return graph


def words() -> str:
    """Return the fabric in a few words."""
    return "single switch"
