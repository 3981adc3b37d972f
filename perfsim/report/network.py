"""A picture of a network: switches, nodes, their NICs and GPUs, as text or as a page with SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsim.units import format_rate

__all__ = ["Picture", "Wire", "draw_html", "draw_text", "levels", "uplinks"]

WIDTH = 80
NODES_DRAWN = 3
BOX = 24
LABEL = 10
GPUS_NAMED = 8
NICS_NAMED = 3
NAMES = {1: "leaf", 2: "spine", 3: "core"}


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


def draw_text(picture: Picture) -> str:
    """Return the picture in ASCII, at most 80 columns wide.

    Examples
    --------
    >>> print(draw_text(Picture("two nodes", Wire("1.2 GB/s", "25 us a hop"), gpus_per_node=1)))
    two nodes
    <BLANKLINE>
    between nodes: fabric not stated; a NIC 1.2 GB/s, 25 us a hop
    <BLANKLINE>
              ( network )
              |
              +----------------------+ +----------------------+
              | node 0               | | node 1               |
              | [NIC]                | | [NIC]                |
              | GPU 0                | | GPU 0                |
              +----------------------+ +----------------------+
    """
    lines = [*_wrap(picture.title), ""]
    if picture.inter is not None:
        lines += [*_wrap(f"between nodes: {picture.inter_kind}; a NIC {picture.inter}"), ""]
        lines += _switches(picture)
    lines += _nodes(picture)
    if picture.intra is not None:
        lines += ["", *_wrap(f"in a node: {picture.intra_kind}; {picture.intra}")]
    for note in picture.notes:
        lines += ["", *_wrap(note)]
    return "\n".join(line.rstrip() for line in lines)


def draw_html(picture: Picture, path: Path) -> None:
    """Write the picture as one HTML page with SVG in it, whole or not at all; no scripts.

    Raises
    ------
    RequestError
        If the file cannot be written.
    """
    from perfsim.report.files import write_text
    from perfsim.report.network_svg import page

    write_text(path, page(picture))


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


def _wrap(text: str) -> list[str]:
    plain = text.replace("\u00b5", "u").encode("ascii", "replace").decode()
    return textwrap.wrap(plain, WIDTH, subsequent_indent="  ") or [""]


def _switches(picture: Picture) -> list[str]:
    stem = " " * LABEL + "|"
    if picture.graph is None:
        return [" " * LABEL + "( network )", stem]
    lines: list[str] = []
    found = levels(picture.graph)
    for level, names in found:
        label = NAMES.get(level, "") if len(found) > 1 else ""
        lines.append(f"{label:<{LABEL}}{_fitting(names, WIDTH - LABEL)}")
        below = uplinks(picture.graph, level - 1)
        lines.append(f"{stem}  {below}" if below else stem)
    return lines


def _fitting(names: Sequence[str], width: int) -> str:
    """Return as many names as fit, and how many more there are."""
    for count in range(len(names), 0, -1):
        more = f" ... {len(names) - count} more" if count < len(names) else ""
        line = " ".join(f"[{name}]" for name in names[:count]) + more
        if len(line) <= width or count == 1:
            return line[:width]
    return ""


def _nodes(picture: Picture) -> list[str]:
    drawn = min(picture.nodes, NODES_DRAWN) if picture.inter is not None else 1
    left = " " * (LABEL if drawn < NODES_DRAWN else 2)
    edge = "+" + "-" * (BOX - 2) + "+"
    rows = [edge]
    inside = [[f"node {index}", *_inside(picture)] for index in range(drawn)]
    boxes = [[edge, *(f"| {line:<{BOX - 4}} |" for line in box), edge] for box in inside]
    rows = [left + " ".join(cells) for cells in zip(*boxes, strict=True)]
    more = picture.nodes - drawn if picture.inter is not None else 0
    return [*rows, f"{left}... {more} more"] if more else rows


def _inside(picture: Picture) -> list[str]:
    """Return the lines of a node's box: its NICs, the wires, its GPUs."""
    lines = []
    if picture.inter is not None:
        few = picture.nics_per_node <= NICS_NAMED
        nics = " ".join(["[NIC]"] * picture.nics_per_node)
        lines.append(nics if few else f"[NIC] x {picture.nics_per_node}")
    if picture.intra is not None:
        bar = f"={picture.intra_kind.partition(',')[0][: BOX - 8]}="
        lines.append(bar.center(BOX - 4, "="))
    gpus = picture.gpus_per_node
    if gpus is None:
        return [*lines, "GPUs: not stated"]
    named = " ".join(map(str, range(gpus)))
    return [*lines, f"GPU {named}" if gpus <= GPUS_NAMED else f"GPU 0 to {gpus - 1}"]
