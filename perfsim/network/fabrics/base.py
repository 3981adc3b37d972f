"""What all fabrics share: their list, the types of their options, and the making of graphs.

A fabric is how the nodes of a cluster are joined (place "inter") or the GPUs of a node ("intra").
Each is one function that builds its graph, under the decorator `fabric`, which lists it:

    @fabric("inter", "all nodes on one switch", {}, words=lambda: "single switch")
    def single_switch(nodes, node_rate_bytes_per_s, hop_latency_s): ...

Its name in a network file is the function's, with ``-`` for ``_``. Fabrics between nodes are in
`between_nodes`, those of a node in `inside_nodes`, a graph of one's own in `graph_file`. What they
do to a collective is in `slowdown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import PlainValidator

from perfsim.data.toml import WrongValue, plain_number, whole_number
from perfsim.errors import RequestError, shown
from perfsim.network.routing import Graph
from perfsim.quantity import NumberLimit

__all__ = [
    "FABRIC_KINDS",
    "Counts",
    "FabricKind",
    "FabricOption",
    "FabricPlace",
    "FabricValue",
    "LinkRatio",
    "Oversubscription",
    "Oversubscriptions",
    "fabric",
    "join",
    "new_graph",
]

FabricPlace = Literal["inter", "intra"]
FabricValue = int | float | bool | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


# The list of fabrics


class FabricOption(NamedTuple):
    """One key that a fabric reads from its table of a network file.

    Parameters
    ----------
    type : of the value, one of those below or of `perfsim.data.toml`
    meaning : for the message where it is missing
    needed : whether the key must be there
    """

    type: Any
    meaning: str
    needed: bool = False


class FabricKind(NamedTuple):
    """One kind of fabric.

    Parameters
    ----------
    place : "inter" (between nodes) or "intra" (inside a node)
    summary : one line
    options : the keys of its table, arguments of ``build`` and of ``words``
    build : returns its graph; between nodes of (nodes, rate of a node [B/s], latency of passing a
        switch [s]), inside one of (GPUs)
    words : returns it in a few words
    ring_rate : returns the bus bandwidth of a ring over so many GPUs, instead of routing one;
        None where the ring is routed
    """

    place: FabricPlace
    summary: str
    options: Mapping[str, FabricOption]
    build: Callable[..., Graph]
    words: Callable[..., str]
    ring_rate: Callable[..., float] | None


FABRIC_KINDS: dict[str, FabricKind] = {}
"""Every fabric by its name, once its file is imported."""

_Build = TypeVar("_Build", bound=Callable[..., Graph])


def fabric(
    place: FabricPlace,
    summary: str,
    options: Mapping[str, FabricOption],
    *,
    words: Callable[..., str],
    ring_rate: Callable[..., float] | None = None,
) -> Callable[[_Build], _Build]:
    """List a function that builds a graph as a kind of fabric; parameters as in `FabricKind`.

    ``ring_rate`` returns [B/s].
    """

    def list_it(build: _Build) -> _Build:
        name = build.__name__.replace("_", "-")
        FABRIC_KINDS[name] = FabricKind(place, summary, options, build, words, ring_rate)
        return build

    return list_it


# Types of options that no other file has


_MAX_DIMENSIONS = 6
"""Dimensions of a torus. No source: chosen; the largest machines have six (Fugaku's Tofu)."""


def _ratios(value: object) -> tuple[float, ...]:
    several = value if isinstance(value, list) else [value]
    if not 1 <= len(several) <= 2:
        raise WrongValue(f"found {shown(value)}, allowed are one number or [leaf, pod]")
    return tuple(_ratio.func(one) for one in several)  # type: ignore[call-arg]


def _counts(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_DIMENSIONS:
        allowed = f"a list of 1 to {_MAX_DIMENSIONS} whole numbers"
        raise WrongValue(f"found {shown(value)}, allowed is {allowed}")
    return tuple(whole_number(one) for one in value)


_ratio = plain_number(NumberLimit(1.0, 1000.0, "1 to 1000"))

Oversubscription = Annotated[float, _ratio]
"""How many times faster what is below a switch is than what is above it."""
Oversubscriptions = Annotated[tuple[float, ...], PlainValidator(_ratios)]
"""One ratio, or that of a leaf and that of a pod."""
LinkRatio = Annotated[float, plain_number(NumberLimit(1e-3, 1000.0, "0.001 to 1000"))]
"""The rate of a link over that of a node."""
Counts = Annotated[tuple[int, ...], PlainValidator(_counts)]


# Graphs


_MAX_NODES = 131072
_MAX_LINKS = 2000000
"""Nodes and links between switches that are routed in seconds. No source: chosen; beyond them a
slip of the pen is likelier than a cluster."""


def new_graph(nodes: int = 0, links: int = 0) -> Graph:
    """Return an empty graph; its ``hosts`` list the nodes in the order in which jobs fill them.

    Raises
    ------
    RequestError
        If it is about to hold too many nodes or links between switches.
    """
    import networkx as nx  # type: ignore[import-untyped, unused-ignore]

    if nodes > _MAX_NODES or links > _MAX_LINKS:
        raise RequestError(
            "",
            f"the network's fabric: {nodes} nodes and {links} links between switches are too many"
            f" to route; at most {_MAX_NODES} and {_MAX_LINKS}.",
        )
    return nx.DiGraph(hosts=[])


def join(
    graph: Graph, low: str, high: str, rate_bytes_per_s: float, hop_latency_s: float = 0.0
) -> None:
    """Join two vertices in both directions; an edge that leaves a switch carries its latency.

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
