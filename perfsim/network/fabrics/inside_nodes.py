"""Fabrics inside a node: NVSwitch, NVLink mesh, PCIe tree.

A function builds the graph of the first ``gpus`` GPUs (see `base.fabric`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated

from perfsim.data.toml import BytesPerSecond, Text, WholeNumber, YesOrNo, one_of
from perfsim.errors import RequestError
from perfsim.network.fabrics.base import FabricOption, fabric, join, new_graph
from perfsim.network.routing import Graph

__all__ = ["LAYOUTS", "lanes", "link_table", "nvlink_mesh", "nvswitch", "pcie_tree"]


# NVSwitch: every GPU of a node on switches that let all of them send at full rate at once


def _nvswitch_words() -> str:
    """Return the fabric in a few words."""
    return "NVSwitch"


@fabric(
    "intra",
    "GPUs on a non-blocking switch: a ring is as fast over two of them as over all",
    {},
    words=_nvswitch_words,
)
def nvswitch(gpus: int) -> Graph:
    """Return a star of GPUs around one switch, each joined at rate 1.

    Left out: NVLink SHARP (NVLS), in which the switch adds; it is an algorithm of its own.

    Examples
    --------
    >>> sorted(nvswitch(2))
    ['GPU 0', 'GPU 1', 'NVSwitch']
    """
    graph = new_graph()
    graph.add_node("NVSwitch", kind="switch", level=1)
    for index in range(gpus):
        graph.add_node(f"GPU {index}", kind="host")
        graph.graph["hosts"].append(f"GPU {index}")
        join(graph, f"GPU {index}", "NVSwitch", 1.0)
    return graph


# NVLink mesh: links from GPU to GPU without a switch; NCCL packs as many rings as they allow


LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "dgx-1-v100": (
        "-1122...",
        "1-21.2..",
        "12-2..1.",
        "212-...1",
        "2...-112",
        ".2..1-21",
        "..1.12-2",
        "...1212-",
    ),
    "dgx-1-p100": (
        "-1111...",
        "1-11.1..",
        "11-1..1.",
        "111-...1",
        "1...-111",
        ".1..1-11",
        "..1.11-1",
        "...1111-",
    ),
}
"""NVLinks between each pair of GPUs, one row a GPU.

Both as ``nvidia-smi topo -m`` prints them. V100, six a GPU: eight V100-SXM2 in
Oneflow-Inc/OneFlow-Benchmark v0.3.0, BERT base report; a DGX-1 in a test of microsoft/msccl-tools.
P100, four a GPU: a DGX-1 in RSE Sheffield's course intro_dl_sharc_dgx1, lab 5."""


def link_table(gpus: int, links_per_pair: int | None, layout: str | None) -> list[list[int]]:
    """Return the links between each pair of the first ``gpus`` GPUs.

    Raises
    ------
    RequestError
        If not exactly one of the two is given, or the layout has fewer GPUs.

    Examples
    --------
    >>> link_table(2, 4, None), link_table(3, None, "dgx-1-v100")
    ([[0, 4], [4, 0]], [[0, 1, 1], [1, 0, 2], [1, 2, 0]])
    """
    if (links_per_pair is None) == (layout is None):
        raise RequestError("", "the node's nvlink-mesh: give either links_per_pair or layout.")
    if layout is None:
        assert links_per_pair is not None
        return [[links_per_pair * (a != b) for b in range(gpus)] for a in range(gpus)]
    rows = LAYOUTS[layout]
    if gpus > len(rows):
        raise RequestError(
            "", f"the node's nvlink-mesh: {layout} has 8 GPUs, {gpus} are asked for."
        )
    return [[int(cell) if cell.isdigit() else 0 for cell in row[:gpus]] for row in rows[:gpus]]


def lanes(gpus: int, links_per_pair: int | None = None, layout: str | None = None) -> int:
    """Return how many one-way rings, each on links of its own, pass the first ``gpus`` GPUs.

    With k links for every pair k (g - 1), all that a GPU has; the complete digraph splits into
    g - 1 Hamiltonian cycles except for g = 4 and 6, where one less is found when k = 1. In a
    layout: the largest set of Hamiltonian cycles that share no link, each run both ways.

    Examples
    --------
    >>> lanes(4, links_per_pair=4), lanes(8, layout="dgx-1-v100"), lanes(5, layout="dgx-1-v100")
    (12, 6, 0)

    References
    ----------
    Tillson, J. Combinatorial Theory B 29, 1980 (even g from 8 on; odd g: Walecki). That NCCL drops
    to PCIe where the GPUs have no NVLink ring: NVIDIA/nccl-tests issue 178, 208 to 20 GB/s.
    """
    links = link_table(gpus, links_per_pair, layout)
    if layout is None or gpus == 2:
        odd = links_per_pair == 1 and gpus in (4, 6)
        return links[0][1] * (gpus - 1) - odd
    return 2 * _pack(tuple(map(tuple, links)))


def _nvlink_ring_rate(
    gpus: int,
    *,
    links_per_pair: int | None = None,
    layout: str | None = None,
    link_rate: float | None = None,
    fallback_rate: float | None = None,
) -> float:
    """Return the bus bandwidth of the rings over the first ``gpus`` GPUs [B/s, or links].

    Raises
    ------
    RequestError
        If they have no NVLink ring and the rates of both ways are not stated.
    """
    count = lanes(gpus, links_per_pair, layout)
    if count:
        return count * (link_rate or 1.0)
    if link_rate is None or fallback_rate is None:
        raise RequestError(
            "",
            f"the node's nvlink-mesh: the first {gpus} GPUs of {layout} have no ring over NVLink,"
            " and NCCL takes PCIe; state link_rate and fallback_rate in the network file, or use"
            " another number of GPUs.",
        )
    return fallback_rate


@cache
def _pack(links: tuple[tuple[int, ...], ...]) -> int:
    """Return the most undirected Hamiltonian cycles that use each link at most once."""
    spare = [list(row) for row in links]
    cycles = list(_cycles(spare))
    limit = min(sum(row) for row in links) // 2

    def most(start: int, found: int) -> int:
        best = found
        for index in range(start, len(cycles)):
            hops = cycles[index]
            for a, b in hops:
                spare[a][b] -= 1
                spare[b][a] -= 1
            if all(spare[a][b] >= 0 for a, b in hops):
                best = max(best, most(index, found + 1))
            for a, b in hops:
                spare[a][b] += 1
                spare[b][a] += 1
            if best == limit:
                break
        return best

    return most(0, 0)


def _cycles(links: list[list[int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield the Hamiltonian cycles, each once in one of its two directions."""
    size = len(links)

    def grow(way: list[int]) -> Iterator[list[tuple[int, int]]]:
        if len(way) == size:
            if links[way[-1]][0] and way[1] < way[-1]:
                yield list(zip(way, [*way[1:], 0], strict=True))
            return
        for following in range(1, size):
            if links[way[-1]][following] and following not in way:
                yield from grow([*way, following])

    yield from grow([0])


def _nvlink_mesh_words(
    *,
    links_per_pair: int | None = None,
    layout: str | None = None,
    link_rate: float | None = None,
    fallback_rate: float | None = None,
) -> str:
    """Return the fabric in a few words; rates [bytes/s] are not told.

    Examples
    --------
    >>> _nvlink_mesh_words(links_per_pair=4), _nvlink_mesh_words(layout="dgx-1-v100")
    ('NVLink mesh, 4 links a pair', 'NVLink mesh dgx-1-v100')
    """
    if layout is not None:
        return f"NVLink mesh {layout}"
    return f"NVLink mesh, {links_per_pair} links a pair"


@fabric(
    "intra",
    "GPUs wired pair by pair: rings available grow with the GPUs in use",
    {
        "links_per_pair": FabricOption(WholeNumber, "NVLinks between every two GPUs"),
        "layout": FabricOption(
            Annotated[Text, one_of(tuple(LAYOUTS))], "a known wiring, instead of links_per_pair"
        ),
        "link_rate": FabricOption(BytesPerSecond, "one NVLink in one direction"),
        "fallback_rate": FabricOption(
            BytesPerSecond, "a ring over PCIe, for GPUs that have no NVLink ring"
        ),
    },
    words=_nvlink_mesh_words,
    ring_rate=_nvlink_ring_rate,
)
def nvlink_mesh(
    gpus: int,
    *,
    links_per_pair: int | None = None,
    layout: str | None = None,
    link_rate: float | None = None,
    fallback_rate: float | None = None,
) -> Graph:
    """Return the graph of a mesh, each link at ``link_rate`` [bytes/s] or 1.

    Examples
    --------
    >>> nvlink_mesh(4, links_per_pair=2).edges["GPU 0", "GPU 3"]["rate_bytes_per_s"]
    2.0
    """
    graph = new_graph()
    graph.graph["hosts"] += [f"GPU {index}" for index in range(gpus)]
    graph.add_nodes_from(graph.graph["hosts"], kind="host")
    for a, row in enumerate(link_table(gpus, links_per_pair, layout)):
        for b, links in enumerate(row):
            if a < b and links:
                join(graph, f"GPU {a}", f"GPU {b}", links * (link_rate or 1.0))
    return graph


# PCIe tree: GPUs on PCIe switches, switches on CPU sockets, sockets on their interconnect


def _pcie_tree_words(
    *,
    gpus_per_switch: int,
    peer_access: bool,
    switches_per_socket: int | None = None,
    link_rate: float = 1.0,
    socket_rate: float = math.inf,
    memory_rate: float = math.inf,
) -> str:
    """Return the fabric in a few words; rates [bytes/s] are not told.

    Examples
    --------
    >>> _pcie_tree_words(gpus_per_switch=2, peer_access=False)
    'PCIe tree, 2 GPUs a switch, no peer access'
    """
    plural = "s" if gpus_per_switch > 1 else ""
    parts = ["PCIe tree", f"{gpus_per_switch} GPU{plural} a switch"]
    if switches_per_socket:
        several = "es" if switches_per_socket > 1 else ""
        parts.append(f"{switches_per_socket} switch{several} a socket")
    return ", ".join([*parts, "peer access" if peer_access else "no peer access"])


@fabric(
    "intra",
    "GPUs share the uplinks of PCIe switches; without peer access also host memory",
    {
        "gpus_per_switch": FabricOption(
            WholeNumber, "GPUs behind one uplink to a CPU", needed=True
        ),
        "switches_per_socket": FabricOption(
            WholeNumber, "such uplinks of one CPU socket; all on one socket"
        ),
        "peer_access": FabricOption(
            YesOrNo, "whether GPUs reach each other without host memory", needed=True
        ),
        "link_rate": FabricOption(
            BytesPerSecond, "a PCIe link in one direction, for the ratio to the next two"
        ),
        "socket_rate": FabricOption(
            BytesPerSecond, "the link between two sockets in one direction; no limit"
        ),
        "memory_rate": FabricOption(
            BytesPerSecond, "a socket's host memory, written and read together; no limit"
        ),
    },
    words=_pcie_tree_words,
)
def pcie_tree(
    gpus: int,
    *,
    gpus_per_switch: int,
    peer_access: bool,
    switches_per_socket: int | None = None,
    link_rate: float = 1.0,
    socket_rate: float = math.inf,
    memory_rate: float = math.inf,
) -> Graph:
    """Return the graph of the first ``gpus`` GPUs, filled in order of switches and sockets.

    With peer access a hop turns at the lowest switch above both GPUs. Without it (GeForce cards)
    every hop is written to host memory and read from there: NCCL's SHM transport, whose buffer
    lies with the receiver by default (NCCL_SHM_LOCALITY). Way up and way down are then vertices
    of their own, so that no path turns below the memory, and an uplink carries every GPU under it.

    Parameters
    ----------
    gpus : GPUs in use
    gpus_per_switch, switches_per_socket, peer_access : the tree
    link_rate : of each PCIe link, a GPU's and an uplink, in each direction [B/s]
    socket_rate, memory_rate : see OPTIONS [B/s]

    Examples
    --------
    >>> graph = pcie_tree(4, gpus_per_switch=2, peer_access=True)
    >>> sorted(graph.successors("switch 0"))
    ['GPU 0', 'GPU 1', 'socket 0']
    """
    graph = new_graph()
    switches = -(-gpus // gpus_per_switch)
    sockets = -(-switches // (switches_per_socket or switches))
    for socket in range(sockets):
        _add_socket(graph, socket, peer_access, socket_rate, memory_rate)
    for switch in range(switches):
        socket = switch // (switches_per_socket or switches)
        if peer_access:
            graph.add_node(f"switch {switch}", kind="switch", level=1)
            join(graph, f"switch {switch}", f"socket {socket}", link_rate)
        else:
            _one_way(graph, f"switch {switch} up", f"socket {socket} up", link_rate)
            _one_way(graph, f"socket {socket} down", f"switch {switch} down", link_rate)
    for index in range(gpus):
        gpu, switch = f"GPU {index}", index // gpus_per_switch
        graph.graph["hosts"].append(gpu)
        graph.add_node(gpu, kind="host")
        if peer_access:
            join(graph, gpu, f"switch {switch}", link_rate)
        else:
            _one_way(graph, gpu, f"switch {switch} up", link_rate)
            _one_way(graph, f"switch {switch} down", gpu, link_rate)
    return graph


def _add_socket(
    graph: Graph, socket: int, peer: bool, socket_rate: float, memory_rate: float
) -> None:
    """Add a socket and its links to those before it, all joined pair by pair."""
    if peer:
        graph.add_node(f"socket {socket}", kind="switch", level=2)
        for other in range(socket):
            join(graph, f"socket {socket}", f"socket {other}", socket_rate)
        return
    memory = f"memory {socket}"
    for other in range(socket):
        _one_way(graph, f"socket {socket} up", f"memory {other} bus", socket_rate)
        _one_way(graph, f"socket {other} up", f"{memory} bus", socket_rate)
    # One edge carries a byte as it is written and as it is read: half the rate of the memory.
    _one_way(graph, f"socket {socket} up", f"{memory} bus", math.inf)
    _one_way(graph, f"{memory} bus", memory, memory_rate / 2.0)
    _one_way(graph, memory, f"socket {socket} down", math.inf)


def _one_way(graph: Graph, tail: str, head: str, rate_bytes_per_s: float) -> None:
    for vertex in (tail, head):
        if vertex not in graph:
            graph.add_node(vertex, kind="switch", level=1)
    graph.add_edge(tail, head, rate_bytes_per_s=rate_bytes_per_s, latency_s=0.0)
