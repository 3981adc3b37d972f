"""PCIe tree: GPUs on PCIe switches, switches on CPU sockets, sockets on their interconnect."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfsim.network.fabrics.option import Option
from perfsim.network.fabrics.wire import join, new_graph
from perfsim.network.routing import Graph

__all__ = ["OPTIONS", "PLACE", "SUMMARY", "pcie_tree", "words"]

PLACE = "intra"
SUMMARY = "GPUs share the uplinks of PCIe switches; without peer access also host memory"
OPTIONS: Mapping[str, Option] = {
    "gpus_per_switch": Option("count", "GPUs behind one uplink to a CPU", needed=True),
    "switches_per_socket": Option("count", "such uplinks of one CPU socket; all on one socket"),
    "peer_access": Option("flag", "whether GPUs reach each other without host memory", needed=True),
    "link_rate": Option("rate", "a PCIe link in one direction, for the ratio to the next two"),
    "socket_rate": Option("rate", "the link between two sockets in one direction; no limit"),
    "memory_rate": Option("rate", "a socket's host memory, written and read together; no limit"),
}


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


def words(
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
    >>> words(gpus_per_switch=2, peer_access=False)
    'PCIe tree, 2 GPUs a switch, no peer access'
    """
    plural = "s" if gpus_per_switch > 1 else ""
    parts = ["PCIe tree", f"{gpus_per_switch} GPU{plural} a switch"]
    if switches_per_socket:
        several = "es" if switches_per_socket > 1 else ""
        parts.append(f"{switches_per_socket} switch{several} a socket")
    return ", ".join([*parts, "peer access" if peer_access else "no peer access"])
