"""Torus: a router at each node, joined to its neighbours in every dimension, ends wrapped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

from perfsim.errors import RequestError
from perfsim.network.fabrics.option import Option
from perfsim.network.fabrics.wire import join, new_graph
from perfsim.network.routing import Graph

__all__ = ["OPTIONS", "PLACE", "SUMMARY", "torus", "words"]

PLACE = "inter"
SUMMARY = "routers in a grid with wrapped ends, one a node"
OPTIONS: Mapping[str, Option] = {
    "dims": Option("counts", "routers along each dimension", needed=True),
    "link_ratio": Option("share", "rate of a link between routers over that of a node; 1"),
}


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
            f"the network's torus: {' x '.join(map(str, dims))} has {size} nodes, {nodes} are"
            " asked for."
        )
    graph = new_graph(size, size * len(dims))
    rate = node_rate_bytes_per_s * link_ratio
    places = list(product(*(range(length) for length in dims)))
    graph.add_nodes_from((_router(place) for place in places), kind="switch", level=1)
    for index, place in enumerate(places):
        host = f"node {index}"
        graph.add_node(host, kind="host", place=place)
        graph.graph["hosts"].append(host)
        join(graph, host, _router(place), node_rate_bytes_per_s, hop_latency_s)
        for axis, length in enumerate(dims):
            following = (place[axis] + 1) % length
            if following != place[axis]:
                beside = _router((*place[:axis], following, *place[axis + 1 :]))
                join(graph, _router(place), beside, rate, hop_latency_s)
    return graph


def _router(place: Sequence[int]) -> str:
    return f"router {','.join(map(str, place))}"


def words(*, dims: Sequence[int], link_ratio: float = 1.0) -> str:
    """Return the fabric in a few words.

    Examples
    --------
    >>> words(dims=(4, 4, 2))
    'torus 4 x 4 x 2'
    """
    told = f"torus {' x '.join(map(str, dims))}"
    return told if link_ratio == 1.0 else f"{told}, links {link_ratio:g} times a node's rate"
