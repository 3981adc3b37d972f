"""What a picture of a network shows, however it is drawn: its wires, nodes and switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfsim.units import format_rate

__all__ = ["Picture", "Wire", "levels", "uplinks"]


@dataclass(frozen=True, slots=True)
class Wire:
    """What is known of a link, in words: "1.17 GB/s" and "25 us a hop"."""

    rate: str
    latency: str = ""

    def __str__(self) -> str:
        """Return both, with a comma between."""
        return ", ".join(part for part in (self.rate, self.latency) if part)


@dataclass(frozen=True, slots=True)
class Picture:
    """What a drawing shows.

    Parameters
    ----------
    title : first line
    inter, intra : the links between nodes (of one NIC) and inside them; None where there is none
    nodes : nodes of the cluster, of which the first few are drawn
    gpus_per_node, nics_per_node : of each node; None where the file leaves the GPUs open
    inter_kind, intra_kind : the fabrics in words ("single switch", "NVSwitch")
    graph : a networkx graph as `perfsim.cluster.fabric.Fabric.graph` gives it, whose switches are
        drawn by level; None: nothing is known, a cloud stands for it
    notes : lines below
    """

    title: str
    inter: Wire | None = None
    intra: Wire | None = None
    nodes: int = 2
    gpus_per_node: int | None = 1
    nics_per_node: int = 1
    inter_kind: str = "fabric not stated"
    intra_kind: str = "fabric not stated"
    graph: Any = None
    notes: tuple[str, ...] = ()


def levels(graph: Any) -> list[tuple[int, list[str]]]:
    """Return the switches of a graph by level, the highest first.

    Examples
    --------
    >>> from perfsim.cluster.fabric import Fabric
    >>> levels(Fabric("leaf-spine", (("nodes_per_leaf", 2),)).graph(4))
    [(2, ['spine 0']), (1, ['leaf 0', 'leaf 1'])]
    """
    found: dict[int, list[str]] = {}
    for vertex, level in graph.nodes(data="level"):
        if level is not None:
            found.setdefault(level, []).append(str(vertex))
    return sorted(found.items(), reverse=True)


def uplinks(graph: Any, level: int) -> str:
    """Return in words the links of a switch to the level above, "" where there are none.

    Examples
    --------
    >>> from perfsim.cluster.fabric import oversubscribed
    >>> uplinks(oversubscribed(2.0, nodes_per_leaf=4).graph(8, 1, 1e9), 1)
    '1 uplink of 2 GB/s each'
    """
    height = dict(graph.nodes(data="level"))
    rates = [
        rate
        for tail, head, rate in graph.edges(data="rate_bytes_per_s")
        if height[tail] == level and (height[head] or 0) > level
    ]
    if not rates:
        return ""
    switches = sum(1 for own in height.values() if own == level)
    count = f"{len(rates) / switches:.3g}"
    told = format_rate(min(rates), 3)
    told += f" to {format_rate(max(rates), 3)}" if max(rates) > min(rates) else ""
    return f"{count} uplink{'s' if count != '1' else ''} of {told} each"
