"""A fabric of one's own: any graph from a file (GraphML, node-link JSON, or a CSV of links)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from perfsim.data.files import forbidden, read_text
from perfsim.data.tables import csv_rows, read_lines
from perfsim.data.toml import BytesPerSecond, FileBeside, Texts
from perfsim.errors import DataError, RequestError, shown
from perfsim.network.fabrics.base import FabricOption, fabric, new_graph
from perfsim.network.routing import Graph
from perfsim.quantity import LATENCY_LIMIT, RATE_LIMIT, NumberLimit
from perfsim.units import parse_rate, parse_seconds

__all__ = ["graph"]

_PARSER_ERRORS = (AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError)
"""What networkx and its parsers raise over files of another shape."""

_GraphEdge = tuple[str, str, float, float | None]


def _graph_words(*, file: str, hosts: Sequence[str] = (), node_rate: float | None = None) -> str:
    """Return the fabric in a few words; rates [bytes/s] are not told.

    Examples
    --------
    >>> _graph_words(file="/data/rack.csv")
    'graph of rack.csv'
    """
    return f"graph of {Path(file).name}"


@fabric(
    "inter",
    "switches and links of a file: GraphML, node-link JSON, or CSV with from,to,rate",
    {
        "file": FabricOption(FileBeside, "the graph, beside the network file", needed=True),
        "hosts": FabricOption(Texts, "vertices that are nodes, * allowed; those of kind host"),
        "node_rate": FabricOption(
            BytesPerSecond, "NICs of a node that the links were measured on; the fastest"
        ),
    },
    words=_graph_words,
)
def graph(
    nodes: int,
    node_rate_bytes_per_s: float,
    hop_latency_s: float,
    *,
    file: str,
    hosts: Sequence[str] = (),
    node_rate: float | None = None,
) -> Graph:
    """Return the graph of a file; its rates are its own, whatever the nodes' NICs.

    A link is a line ``from,to,rate[,latency]`` of a CSV ("25Gbit/s", "0.5us"), or an edge with
    ``rate`` and ``latency`` in such words or ``rate_bytes_per_s`` and ``latency_s`` as numbers.
    It runs both ways at that rate, unless the graph is directed or the CSV has the way back as a
    line of its own. Parallel edges add up. Without a latency an edge that leaves a switch has
    ``hop_latency_s``. Nodes are taken in the order of the file.

    Parameters
    ----------
    nodes, node_rate_bytes_per_s : not used: the graph has its own
    hop_latency_s : latency of passing a switch [s]
    file : ``*.csv``, ``*.json`` or ``*.graphml``
    hosts : names of the nodes, with * for any text
    node_rate : see OPTIONS [B/s]

    Raises
    ------
    DataError
        If the file cannot be read, a link has no rate, or no vertex is a node.
    """
    del nodes, node_rate_bytes_per_s
    return _load(file, tuple(hosts), hop_latency_s, node_rate)


@lru_cache(maxsize=16)
def _load(
    file: str, hosts: tuple[str, ...], hop_latency_s: float, node_rate: float | None
) -> Graph:
    path = Path(file)
    readers = {".csv": _csv, ".json": _edges, ".graphml": _edges}
    if path.suffix not in readers:
        raise DataError(f"is no graph; allowed: {', '.join(sorted(readers))}", path=path)
    kinds, wires = readers[path.suffix](path)
    made = new_graph()
    made.graph["node_rate_bytes_per_s"] = node_rate
    for vertex in kinds:
        named = any(fnmatchcase(vertex, pattern) for pattern in hosts)
        host = named if hosts else kinds[vertex] == "host"
        made.add_node(vertex, kind="host" if host else "switch", level=None if host else 1)
        if host:
            made.graph["hosts"].append(vertex)
    for pattern in hosts:
        if not any(fnmatchcase(vertex, pattern) for vertex in kinds):
            raise DataError(f"no vertex is named like {shown(pattern)} of hosts", path=path)
    if not made.graph["hosts"]:
        raise DataError("no vertex has kind host; name some with hosts", path=path)
    for tail, head, rate, stated_s in wires:
        unstated_s = hop_latency_s if made.nodes[tail]["kind"] == "switch" else 0.0
        latency_s = unstated_s if stated_s is None else stated_s
        before = made.get_edge_data(tail, head, {"rate_bytes_per_s": 0.0, "latency_s": 0.0})
        made.add_edge(
            tail,
            head,
            rate_bytes_per_s=before["rate_bytes_per_s"] + rate,
            latency_s=max(before["latency_s"], latency_s),
        )
    _number_positions(made, path)
    return made


def _number_positions(made: Graph, path: Path) -> None:
    """Give each host its position: the number of its first switch, and its slot there."""
    numbers: dict[str, int] = {}
    slots: dict[str, int] = {}
    for host in made.graph["hosts"]:
        beside = next(iter(made.successors(host)), None)
        if beside is None:
            raise DataError(f"node {shown(host)} has no link", path=path)
        number, slot = numbers.setdefault(beside, len(numbers)), slots.get(beside, 0)
        slots[beside] = slot + 1
        made.nodes[host]["position"] = (number, slot)


def _csv(path: Path) -> tuple[dict[str, str], list[_GraphEdge]]:
    lines = read_lines(path)
    start = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    kinds: dict[str, str] = {}
    links: dict[tuple[str, str], tuple[float, float | None]] = {}
    for row, cells in csv_rows(lines, start, ("from", "to", "rate"), path):
        tail, head = cells["from"], cells["to"]
        if not tail or not head or tail == head or (tail, head) in links:
            raise DataError(
                f"from {shown(tail)} to {shown(head)}: is no link, or there twice",
                path=path,
                row=row,
            )
        rate = _number(cells["rate"], parse_rate, RATE_LIMIT, "rate", path, row)
        text = cells.get("latency")
        delay = _number(text, parse_seconds, LATENCY_LIMIT, "latency", path, row) if text else None
        links[tail, head] = (rate, delay)
        kinds |= {tail: kinds.get(tail, ""), head: kinds.get(head, "")}
    back = {(b, a): values for (a, b), values in links.items() if (b, a) not in links}
    return kinds, [(*edge, *values) for edge, values in (links | back).items()]


def _edges(path: Path) -> tuple[dict[str, str], list[_GraphEdge]]:
    import networkx as nx  # type: ignore[import-untyped, unused-ignore]

    try:
        if path.suffix == ".json":
            data = json.loads(read_text(path))
            key = "links" if "links" in data else "edges"
            read: Any = nx.node_link_graph(data, edges=key)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # networkx takes a key without a type as a text
                read = nx.parse_graphml(read_text(path))
    except _PARSER_ERRORS as error:
        raise _no_graph(path, error) from None
    except nx.NetworkXException as error:
        raise _no_graph(path, error) from None
    kinds = {str(v): str(data.get("kind", "")) for v, data in read.nodes(data=True)}
    for vertex in kinds:
        if forbidden(vertex):
            raise DataError(f"vertex {shown(vertex)} holds a control character", path=path)
    wires: list[_GraphEdge] = []
    for a, b, data in read.edges(data=True):
        numbers = _edge_numbers(data, f"link {shown(a)} to {shown(b)}", path)
        wires.append((str(a), str(b), *numbers))
        if not read.is_directed():
            wires.append((str(b), str(a), *numbers))
    return kinds, wires


def _no_graph(path: Path, error: Exception) -> DataError:
    why = shown(str(error))[1:-1]
    return DataError(f"is not a graph as networkx writes {path.suffix}: {why}", path=path)


def _edge_numbers(data: Mapping[str, Any], where: str, path: Path) -> tuple[float, float | None]:
    """Return the rate [B/s] and latency [s] of an edge, the latter None where not stated."""
    plain = dict(_plain(data, where, path))
    if "rate" in data:
        plain["rate_bytes_per_s"] = _number(data["rate"], parse_rate, RATE_LIMIT, where, path)
    if "latency" in data:
        plain["latency_s"] = _number(data["latency"], parse_seconds, LATENCY_LIMIT, where, path)
    if "rate_bytes_per_s" not in plain:
        raise DataError(f"{where}: has neither rate nor rate_bytes_per_s", path=path)
    return plain["rate_bytes_per_s"], plain.get("latency_s")


def _plain(data: Mapping[str, Any], where: str, path: Path) -> Iterator[tuple[str, float]]:
    for key, limit in (("rate_bytes_per_s", RATE_LIMIT), ("latency_s", LATENCY_LIMIT)):
        if key in data:
            value = data[key]
            if isinstance(value, bool) or not isinstance(value, int | float):
                why = f"{key} {shown(value)} is not a number; it must be {limit.words}"
                raise DataError(f"{where}: {why}", path=path)
            if not limit.holds(value):
                why = f"{key} {shown(value)} is not allowed: it must be {limit.words}"
                raise DataError(f"{where}: {why}", path=path)
            yield key, float(value)


def _number(
    text: object, parse: Any, limit: NumberLimit, where: str, path: Path, row: int | None = None
) -> float:
    try:
        value: float = parse(text, where)
    except RequestError as error:
        raise DataError(f"{where}: {error.why}", path=path, row=row) from None
    if not limit.holds(value):
        why = f"{where}: {shown(text)} is not allowed: it must be {limit.words}"
        raise DataError(why, path=path, row=row)
    return value
