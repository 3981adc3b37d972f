"""Leaf-spine: leaf switches with the nodes below them, each leaf joined to every spine."""

from __future__ import annotations

from collections.abc import Mapping

from perfsim.errors import RequestError
from perfsim.network.fabrics.option import Option
from perfsim.network.fabrics.wire import join, new_graph
from perfsim.network.routing import Graph

__all__ = ["OPTIONS", "PLACE", "SUMMARY", "leaf_spine", "words"]

PLACE = "inter"
SUMMARY = "two levels of switches; a leaf's uplinks may be narrower than its nodes together"
OPTIONS: Mapping[str, Option] = {
    "nodes_per_leaf": Option("count", "nodes on one leaf switch", needed=True),
    "spines": Option("count", "spine switches, each joined to every leaf; 1"),
    "leaves": Option("count", "leaf switches of the cluster; as many as the nodes need"),
    "oversubscription": Option("ratio", "rate of a leaf's nodes over that of its uplinks; 1"),
}


def leaf_spine(
    nodes: int,
    node_rate_bytes_per_s: float,
    hop_latency_s: float,
    *,
    nodes_per_leaf: int,
    spines: int = 1,
    leaves: int | None = None,
    oversubscription: float = 1.0,
) -> Graph:
    """Return a two-level fabric: a leaf of m nodes has uplinks of m x node rate / ratio in all.

    With flows shared evenly the number of spines changes nothing: one stands for the bundle. It
    matters where routing is static (``ties = "first"``).

    Parameters
    ----------
    nodes : N, nodes to hold
    node_rate_bytes_per_s : all NICs of a node, in each direction [B/s]
    hop_latency_s : latency of passing a switch [s]
    nodes_per_leaf, spines, leaves : m, switches above, leaves of the cluster
    oversubscription : ratio, 1 or more

    Raises
    ------
    RequestError
        If the leaves do not hold the nodes.

    Examples
    --------
    >>> graph = leaf_spine(4, 1e9, 0.0, nodes_per_leaf=2, oversubscription=2.0)
    >>> graph.edges["leaf 0", "spine 0"]["rate_bytes_per_s"]  # 2 nodes x 1 GB/s / 2
    1000000000.0
    """
    count = -(-nodes // nodes_per_leaf) if leaves is None else leaves
    if count * nodes_per_leaf < nodes:
        raise RequestError(
            f"the network's leaf-spine fabric: {leaves} leaves of {nodes_per_leaf} nodes hold"
            f" {count * nodes_per_leaf} nodes, {nodes} are asked for."
        )
    graph = new_graph(count * nodes_per_leaf, count * spines)
    uplink = nodes_per_leaf * node_rate_bytes_per_s / oversubscription / spines
    tops = [f"spine {index}" for index in range(spines)] if count > 1 else []
    graph.add_nodes_from(tops, kind="switch", level=2)
    for number in range(count):
        leaf = f"leaf {number}"
        graph.add_node(leaf, kind="switch", level=1)
        for slot in range(nodes_per_leaf):
            host = f"node {number * nodes_per_leaf + slot}"
            graph.add_node(host, kind="host", place=(number, slot))
            join(graph, host, leaf, node_rate_bytes_per_s, hop_latency_s)
            graph.graph["hosts"].append(host)
        for top in tops:
            join(graph, leaf, top, uplink, hop_latency_s)
    return graph


def words(
    *,
    nodes_per_leaf: int,
    spines: int = 1,
    leaves: int | None = None,
    oversubscription: float = 1.0,
) -> str:
    """Return the fabric in a few words.

    Examples
    --------
    >>> words(nodes_per_leaf=16, oversubscription=2.0)
    'leaf-spine, 16 nodes a leaf, 2:1 oversubscribed'
    """
    plural = "s" if nodes_per_leaf > 1 else ""
    parts = ["leaf-spine", f"{nodes_per_leaf} node{plural} a leaf"]
    parts += [f"{leaves} leaves"] if leaves else []
    parts += [f"{spines} spines"] if spines > 1 else []
    parts += [f"{oversubscription:g}:1 oversubscribed"] if oversubscription > 1 else []
    return ", ".join(parts)
