"""Fabrics between nodes: single switch, leaf-spine, fat tree, torus.

A function builds the graph of ``nodes`` nodes (see `base.fabric`). Nodes are vertices of kind
"host" with a ``position``: where they stand, the outermost part first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from perfsim.data.toml import WholeNumber
from perfsim.errors import RequestError
from perfsim.network.fabrics.base import (
    Counts,
    FabricOption,
    LinkRatio,
    Oversubscription,
    Oversubscriptions,
    fabric,
    join,
    new_graph,
)
from perfsim.network.routing import Graph

__all__ = ["fat_tree", "leaf_spine", "single_switch", "torus"]


# One switch that joins all nodes: the reference against which the others are slower


def _single_switch_words() -> str:
    """Return the fabric in a few words."""
    return "single switch"


@fabric(
    "inter",
    "all nodes on one switch without limits of its own",
    {},
    words=_single_switch_words,
)
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
        graph.add_node(host, kind="host", position=(0, index))
        join(graph, host, "switch", node_rate_bytes_per_s, hop_latency_s)
        graph.graph["hosts"].append(host)
    return graph


# Leaf-spine: leaf switches with the nodes below them, each leaf joined to every spine


def _leaf_spine_words(
    *,
    nodes_per_leaf: int,
    spines: int = 1,
    leaves: int | None = None,
    oversubscription: float = 1.0,
) -> str:
    """Return the fabric in a few words.

    Examples
    --------
    >>> _leaf_spine_words(nodes_per_leaf=16, oversubscription=2.0)
    'leaf-spine, 16 nodes a leaf, 2:1 oversubscribed'
    """
    plural = "s" if nodes_per_leaf > 1 else ""
    parts = ["leaf-spine", f"{nodes_per_leaf} node{plural} a leaf"]
    parts += [f"{leaves} leaves"] if leaves else []
    parts += [f"{spines} spines"] if spines > 1 else []
    parts += [f"{oversubscription:g}:1 oversubscribed"] if oversubscription > 1 else []
    return ", ".join(parts)


@fabric(
    "inter",
    "two levels of switches; a leaf's uplinks may be narrower than its nodes together",
    {
        "nodes_per_leaf": FabricOption(WholeNumber, "nodes on one leaf switch", needed=True),
        "spines": FabricOption(WholeNumber, "spine switches, each joined to every leaf; 1"),
        "leaves": FabricOption(
            WholeNumber, "leaf switches of the cluster; as many as the nodes need"
        ),
        "oversubscription": FabricOption(
            Oversubscription, "rate of a leaf's nodes over that of its uplinks; 1"
        ),
    },
    words=_leaf_spine_words,
)
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

    With flows shared evenly the number of spines changes nothing: one has the rate of all. It
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
            "",
            f"the network's leaf-spine fabric: {leaves} leaves of {nodes_per_leaf} nodes hold"
            f" {count * nodes_per_leaf} nodes, {nodes} are asked for.",
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
            graph.add_node(host, kind="host", position=(number, slot))
            join(graph, host, leaf, node_rate_bytes_per_s, hop_latency_s)
            graph.graph["hosts"].append(host)
        for top in tops:
            join(graph, leaf, top, uplink, hop_latency_s)
    return graph


# Fat tree: three levels of equal switches (leaf, aggregation, core) in pods


def _fat_tree_words(
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
    >>> _fat_tree_words(k=4, oversubscription=(2.0, 4.0))
    'fat tree, 2 nodes a leaf, 2 leaves a pod, 2:1 and 4:1 oversubscribed'
    """
    below, width, _ = _pods_shape(k, nodes_per_leaf, leaves_per_pod, pods)
    parts = ["fat tree", f"{below} nodes a leaf", f"{width} leaves a pod"]
    if max(oversubscription) > 1:
        ratios = " and ".join(f"{ratio:g}:1" for ratio in oversubscription)
        parts.append(f"{ratios} oversubscribed")
    return ", ".join(parts)


@fabric(
    "inter",
    "three levels of switches in pods; each level may be oversubscribed",
    {
        "k": FabricOption(
            WholeNumber, "ports of every switch: k/2 nodes a leaf, k/2 leaves a pod, k pods"
        ),
        "nodes_per_leaf": FabricOption(WholeNumber, "nodes on one leaf switch, instead of k"),
        "leaves_per_pod": FabricOption(WholeNumber, "leaves of a pod; as many as a leaf has nodes"),
        "pods": FabricOption(WholeNumber, "pods of the cluster; as many as the nodes need"),
        "oversubscription": FabricOption(
            Oversubscriptions, "rate below over rate above: of a leaf, of a pod; 1"
        ),
    },
    words=_fat_tree_words,
)
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
    below, width, most = _pods_shape(k, nodes_per_leaf, leaves_per_pod, pods)
    count = -(-nodes // (below * width))
    if most is not None and count > most:
        raise RequestError(
            "",
            f"the network's fat tree: {most} pods of {width} leaves of {below} nodes hold"
            f" {most * width * below} nodes, {nodes} are asked for.",
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
                graph.add_node(host, kind="host", position=(pod, number, slot))
                join(graph, host, leaf, node_rate_bytes_per_s, hop_latency_s)
                graph.graph["hosts"].append(host)
            for middle in middles:
                join(graph, leaf, middle, lower, hop_latency_s)
    return graph


def _pods_shape(
    k: int | None, nodes_per_leaf: int | None, leaves_per_pod: int | None, pods: int | None
) -> tuple[int, int, int | None]:
    """Return nodes a leaf, leaves a pod, and the most pods (None: no limit).

    Examples
    --------
    >>> _pods_shape(8, None, None, None), _pods_shape(None, 16, None, None)
    ((4, 4, 8), (16, 16, None))
    """
    if (k is None) == (nodes_per_leaf is None):
        raise RequestError("", "the network's fat tree: give either k or nodes_per_leaf.")
    if k is not None:
        if k % 2 or leaves_per_pod is not None or (pods or 0) > k:
            raise RequestError(
                "",
                f"the network's fat tree: k = {k} must be even, comes without leaves_per_pod, and"
                " has at most k pods.",
            )
        return k // 2, k // 2, pods or k
    assert nodes_per_leaf is not None
    return nodes_per_leaf, leaves_per_pod or nodes_per_leaf, pods


# Torus: a router at each node, joined to its neighbours in every dimension, ends wrapped


def _torus_words(*, dims: Sequence[int], link_ratio: float = 1.0) -> str:
    """Return the fabric in a few words.

    Examples
    --------
    >>> _torus_words(dims=(4, 4, 2))
    'torus 4 x 4 x 2'
    """
    words = f"torus {' x '.join(map(str, dims))}"
    return words if link_ratio == 1.0 else f"{words}, links {link_ratio:g} times a node's rate"


@fabric(
    "inter",
    "routers in a grid with wrapped ends, one a node",
    {
        "dims": FabricOption(Counts, "routers along each dimension", needed=True),
        "link_ratio": FabricOption(
            LinkRatio, "rate of a link between routers over that of a node; 1"
        ),
    },
    words=_torus_words,
)
def torus(
    nodes: int,
    node_rate_bytes_per_s: float,
    hop_latency_s: float,
    *,
    dims: Sequence[int],
    link_ratio: float = 1.0,
) -> Graph:
    """Return a torus; jobs fill it with the last coordinate running fastest.

    A dimension of two routers has one link between them, not two.

    Parameters
    ----------
    nodes : N, nodes to hold
    node_rate_bytes_per_s : all NICs of a node, in each direction [B/s]
    hop_latency_s : latency of passing a router [s]
    dims : routers along each dimension
    link_ratio : rate of a link between routers over that of a node

    Raises
    ------
    RequestError
        If the torus is smaller than the nodes.

    Examples
    --------
    >>> graph = torus(16, 1e9, 0.0, dims=(4, 4))
    >>> sorted(graph.successors("router 0,0"))
    ['node 0', 'router 0,1', 'router 0,3', 'router 1,0', 'router 3,0']
    """
    size = math.prod(dims)
    if size < nodes:
        raise RequestError(
            "",
            f"the network's torus: {' x '.join(map(str, dims))} has {size} nodes, {nodes} are"
            " asked for.",
        )
    graph = new_graph(size, size * len(dims))
    rate = node_rate_bytes_per_s * link_ratio
    positions = list(product(*(range(length) for length in dims)))
    graph.add_nodes_from((_router(position) for position in positions), kind="switch", level=1)
    for index, position in enumerate(positions):
        host = f"node {index}"
        graph.add_node(host, kind="host", position=position)
        graph.graph["hosts"].append(host)
        join(graph, host, _router(position), node_rate_bytes_per_s, hop_latency_s)
        for axis, length in enumerate(dims):
            following = (position[axis] + 1) % length
            if following != position[axis]:
                beside = _router((*position[:axis], following, *position[axis + 1 :]))
                join(graph, _router(position), beside, rate, hop_latency_s)
    return graph


def _router(position: Sequence[int]) -> str:
    return f"router {','.join(map(str, position))}"
