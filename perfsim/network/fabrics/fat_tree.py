"""Fat tree: three levels of equal switches (leaf, aggregation, core) in pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.errors import RequestError
from perfsim.network.fabrics.option import Option
from perfsim.network.fabrics.wire import join, new_graph
from perfsim.network.routing import Graph

__all__ = ["OPTIONS", "PLACE", "SUMMARY", "fat_tree", "words"]

PLACE = "inter"
SUMMARY = "three levels of switches in pods; each level may be oversubscribed"
OPTIONS: Mapping[str, Option] = {
    "k": Option("count", "ports of every switch: k/2 nodes a leaf, k/2 leaves a pod, k pods"),
    "nodes_per_leaf": Option("count", "nodes on one leaf switch, instead of k"),
    "leaves_per_pod": Option("count", "leaves of a pod; as many as a leaf has nodes"),
    "pods": Option("count", "pods of the cluster; as many as the nodes need"),
    "oversubscription": Option("ratios", "rate below over rate above: of a leaf, of a pod; 1"),
}


def fat_tree(
    nodes: int,
    node_rate_bytes_per_s: float,
    hop_latency_s: float,
    *,
    k: int | None = None,
    nodes_per_leaf: int | None = None,
    leaves_per_pod: int | None = None,
    pods: int | None = None,
    oversubscription: Sequence[float] = (1.0,),
) -> Graph:
    """Return a fat tree of pods.

    A leaf of m nodes has m uplinks, one to each aggregation switch of its pod; an aggregation
    switch below which l leaves stand has l uplinks, each to a core switch of its own plane. With
    k-port switches m = l = k/2 and there are up to k pods, k^3/4 nodes.

    Parameters
    ----------
    nodes : N, nodes to hold
    node_rate_bytes_per_s : all NICs of a node, in each direction [B/s]
    hop_latency_s : latency of passing a switch [s]
    k, or nodes_per_leaf, leaves_per_pod, pods : m, l and pods
    oversubscription : ratio of a leaf, and of a pod if another; each 1 or more

    Raises
    ------
    RequestError
        If the shape is not given once, or does not hold the nodes.

    Examples
    --------
    >>> graph = fat_tree(16, 1e9, 0.0, k=4)
    >>> kinds = [level for _, level in graph.nodes(data="level") if level]
    >>> [kinds.count(level) for level in (1, 2, 3)]  # leaves, aggregation, core
    [8, 8, 4]

    References
    ----------
    Al-Fares, Loukissas & Vahdat, A scalable, commodity data center network architecture,
    SIGCOMM 2008, section 2.2; the name: Leiserson, IEEE Trans. Computers 1985.
    """
    below, width, most = shape(k, nodes_per_leaf, leaves_per_pod, pods)
    count = -(-nodes // (below * width))
    if most is not None and count > most:
        raise RequestError(
            f"the network's fat tree: {most} pods of {width} leaves of {below} nodes hold"
            f" {most * width * below} nodes, {nodes} are asked for."
        )
    count = most if pods is not None and most is not None else count
    graph = new_graph(count * width * below, 2 * count * width * below)
    lower = node_rate_bytes_per_s / oversubscription[0]
    upper = lower / (oversubscription[1] if len(oversubscription) > 1 else 1.0)
    if count > 1:
        cores = (f"core {index}" for index in range(below * width))
        graph.add_nodes_from(cores, kind="switch", level=3)
    for pod in range(count):
        middles = [f"pod {pod} aggregation {index}" for index in range(below)]
        graph.add_nodes_from(middles, kind="switch", level=2)
        for index, middle in enumerate(middles if count > 1 else []):
            for port in range(width):
                join(graph, middle, f"core {index * width + port}", upper, hop_latency_s)
        for number in range(width):
            leaf = f"pod {pod} leaf {number}"
            graph.add_node(leaf, kind="switch", level=1)
            for slot in range(below):
                host = f"node {len(graph.graph['hosts'])}"
                graph.add_node(host, kind="host", place=(pod, number, slot))
                join(graph, host, leaf, node_rate_bytes_per_s, hop_latency_s)
                graph.graph["hosts"].append(host)
            for middle in middles:
                join(graph, leaf, middle, lower, hop_latency_s)
    return graph


def shape(
    k: int | None, nodes_per_leaf: int | None, leaves_per_pod: int | None, pods: int | None
) -> tuple[int, int, int | None]:
    """Return nodes a leaf, leaves a pod, and the most pods (None: no limit).

    Examples
    --------
    >>> shape(8, None, None, None), shape(None, 16, None, None)
    ((4, 4, 8), (16, 16, None))
    """
    if (k is None) == (nodes_per_leaf is None):
        raise RequestError("the network's fat tree: give either k or nodes_per_leaf.")
    if k is not None:
        if k % 2 or leaves_per_pod is not None or (pods or 0) > k:
            raise RequestError(
                f"the network's fat tree: k = {k} must be even, comes without leaves_per_pod, and"
                " has at most k pods."
            )
        return k // 2, k // 2, pods or k
    assert nodes_per_leaf is not None
    return nodes_per_leaf, leaves_per_pod or nodes_per_leaf, pods


def words(
    *,
    k: int | None = None,
    nodes_per_leaf: int | None = None,
    leaves_per_pod: int | None = None,
    pods: int | None = None,
    oversubscription: Sequence[float] = (1.0,),
) -> str:
    """Return the fabric in a few words.

    Examples
    --------
    >>> words(k=4, oversubscription=(2.0, 4.0))
    'fat tree, 2 nodes a leaf, 2 leaves a pod, 2:1 and 4:1 oversubscribed'
    """
    below, width, _ = shape(k, nodes_per_leaf, leaves_per_pod, pods)
    parts = ["fat tree", f"{below} nodes a leaf", f"{width} leaves a pod"]
    if max(oversubscription) > 1:
        told = " and ".join(f"{ratio:g}:1" for ratio in oversubscription)
        parts.append(f"{told} oversubscribed")
    return ", ".join(parts)
