"""Draw a network: nodes, switches and links, as ASCII text or as one HTML page with an SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from perfsim.report.drawing import Drawing, DrawnBox, DrawnLabel, DrawnShape, DrawnWire
from perfsim.units import format_rate

__all__ = [
    "DrawnLink",
    "Picture",
    "draw_text",
    "network_page",
    "switch_levels",
    "uplink_words",
]


_TEXT_COLUMNS = 80
_MAX_NODES_TEXT = 3
_BOX_COLUMNS = 24
_LABEL_COLUMNS = 10
_MAX_GPUS_NAMED = 8
_MAX_NICS_NAMED = 3
_LEVEL_NAMES = {1: "leaf", 2: "spine", 3: "core"}
"""Of the text: columns, nodes that are drawn, GPUs and NICs that are named one by one."""

_MAX_NODES_SVG = 4
_MAX_SWITCHES_SVG = 6
_NODE_SIZE = (210, 130)
_SWITCH_SIZE = (130, 34)
_GAP = 30
_ROW_HEIGHT = 110
_MARGIN = 20
"""Of the page: boxes in a row, and sizes [px]."""

_Point = tuple[float, float]
"""Across and down [px]."""


@dataclass(frozen=True, slots=True)
class DrawnLink:
    """The rate and the latency of a link in words, such as "1.17 GB/s" and "25 us a hop"."""

    rate: str
    latency: str = ""

    def __str__(self) -> str:
        """Return both, separated by a comma."""
        return ", ".join(part for part in (self.rate, self.latency) if part)


@dataclass(frozen=True, slots=True)
class Picture:
    """A network as it is drawn.

    Parameters
    ----------
    title : first line
    inter, intra : the links between nodes (of one NIC) and inside them; None if there is none
    nodes : nodes of the cluster; the first few are drawn
    gpus_per_node, nics_per_node : of each node; None if the file does not state the GPUs
    inter_kind, intra_kind : the fabrics in words ("single switch", "NVSwitch")
    graph : a networkx graph from `perfsim.network.fabrics.Fabric.graph`, whose switches are drawn
        by level; None if the fabric is not known, which is drawn as one box
    notes : lines below
    per : the NICs that ``inter`` is the rate of
    """

    title: str
    inter: DrawnLink | None = None
    intra: DrawnLink | None = None
    nodes: int = 2
    gpus_per_node: int | None = 1
    nics_per_node: int = 1
    inter_kind: str = "fabric not stated"
    intra_kind: str = "fabric not stated"
    graph: Any = None
    notes: tuple[str, ...] = ()
    per: str = "a NIC"


def switch_levels(graph: Any) -> list[tuple[int, list[str]]]:
    """Return the switches of a graph by level, the highest first.

    Examples
    --------
    >>> from perfsim.network.fabrics.slowdown import Fabric
    >>> switch_levels(Fabric("leaf-spine", (("nodes_per_leaf", 2),)).graph(4))
    [(2, ['spine 0']), (1, ['leaf 0', 'leaf 1'])]
    """
    switches: dict[int, list[str]] = {}
    for vertex, level in graph.nodes(data="level"):
        if level is not None:
            switches.setdefault(level, []).append(str(vertex))
    return sorted(switches.items(), reverse=True)


def uplink_words(graph: Any, level: int) -> str:
    """Say which links a switch has to the level above; "" if it has none.

    Examples
    --------
    >>> from perfsim.network.fabrics.slowdown import oversubscribed
    >>> uplink_words(oversubscribed(2.0, nodes_per_leaf=4).graph(8, 1, 1e9), 1)
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
    rate = format_rate(min(rates), 3)
    rate += f" to {format_rate(max(rates), 3)}" if max(rates) > min(rates) else ""
    return f"{count} uplink{'s' if count != '1' else ''} of {rate} each"


def draw_text(picture: Picture) -> str:
    """Return the picture in ASCII, at most 80 columns wide.

    Examples
    --------
    >>> link = DrawnLink("1.2 GB/s", "25 us a hop")
    >>> print(draw_text(Picture("two nodes", link, gpus_per_node=1)))
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
        lines += [*_wrap(f"between nodes: {picture.inter_kind}; {picture.per} {picture.inter}"), ""]
        lines += _switches(picture)
    lines += _nodes(picture)
    if picture.intra is not None:
        lines += ["", *_wrap(f"in a node: {picture.intra_kind}; {picture.intra}")]
    for note in picture.notes:
        lines += ["", *_wrap(note)]
    return "\n".join(line.rstrip() for line in lines)


def _wrap(text: str) -> list[str]:
    plain = text.replace("\u00b5", "u").encode("ascii", "replace").decode()
    return textwrap.wrap(plain, _TEXT_COLUMNS, subsequent_indent="  ") or [""]


def _switches(picture: Picture) -> list[str]:
    stem = " " * _LABEL_COLUMNS + "|"
    if picture.graph is None:
        return [" " * _LABEL_COLUMNS + "( network )", stem]
    lines: list[str] = []
    levels = switch_levels(picture.graph)
    for level, names in levels:
        label = _LEVEL_NAMES.get(level, "") if len(levels) > 1 else ""
        lines.append(f"{label:<{_LABEL_COLUMNS}}{_fitting(names, _TEXT_COLUMNS - _LABEL_COLUMNS)}")
        below = uplink_words(picture.graph, level - 1)
        lines.append(f"{stem}  {below}" if below else stem)
    return lines


def _fitting(names: Sequence[str], width: int) -> str:
    """Return as many names as fit, and the number of the others."""
    for count in range(len(names), 0, -1):
        more = f" ... {len(names) - count} more" if count < len(names) else ""
        line = " ".join(f"[{name}]" for name in names[:count]) + more
        if len(line) <= width or count == 1:
            return line[:width]
    return ""


def _nodes(picture: Picture) -> list[str]:
    drawn = min(picture.nodes, _MAX_NODES_TEXT) if picture.inter is not None else 1
    left = " " * (_LABEL_COLUMNS if drawn < _MAX_NODES_TEXT else 2)
    edge = "+" + "-" * (_BOX_COLUMNS - 2) + "+"
    rows = [edge]
    inside = [[f"node {index}", *_inside(picture)] for index in range(drawn)]
    boxes = [[edge, *(f"| {line:<{_BOX_COLUMNS - 4}} |" for line in box), edge] for box in inside]
    rows = [left + " ".join(cells) for cells in zip(*boxes, strict=True)]
    more = picture.nodes - drawn if picture.inter is not None else 0
    return [*rows, f"{left}... {more} more"] if more else rows


def _inside(picture: Picture) -> list[str]:
    """Return the lines of a node's box: its NICs, its fabric, its GPUs."""
    lines = []
    if picture.inter is not None:
        few = picture.nics_per_node <= _MAX_NICS_NAMED
        nics = " ".join(["[NIC]"] * picture.nics_per_node)
        lines.append(nics if few else f"[NIC] x {picture.nics_per_node}")
    if picture.intra is not None:
        bar = f"={picture.intra_kind.partition(',')[0][: _BOX_COLUMNS - 8]}="
        lines.append(bar.center(_BOX_COLUMNS - 4, "="))
    gpus = picture.gpus_per_node
    if gpus is None:
        return [*lines, "GPUs: not stated"]
    named = " ".join(map(str, range(gpus)))
    return [*lines, f"GPU {named}" if gpus <= _MAX_GPUS_NAMED else f"GPU 0 to {gpus - 1}"]


def network_page(picture: Picture) -> str:
    """Return the page as text.

    Examples
    --------
    >>> from perfsim.report.network_drawing import DrawnLink
    >>> text = network_page(Picture("a & b", DrawnLink("1 GB/s"), nodes=2))
    >>> "<h1>a &amp; b</h1>" in text, text.count('class="node"')
    (True, 2)
    """
    from perfsim.report.html.render import render

    shapes, width, height = _shapes(picture)
    paragraphs = []
    if picture.inter is not None:
        paragraphs.append(f"Between nodes: {picture.inter_kind}; {picture.per} {picture.inter}.")
    if picture.intra is not None:
        paragraphs.append(f"In a node: {picture.intra_kind}; {picture.intra}.")
    return render(
        "network.html.j2",
        title=picture.title,
        drawing=Drawing(picture.title, shapes, width, height),
        paragraphs=[*paragraphs, *picture.notes],
    )


def _shapes(picture: Picture) -> tuple[list[DrawnShape], float, float]:
    """Return the shapes, wires first as boxes cover their ends, then width and height."""
    rows, words = _rows(picture)
    nodes = rows[-1]
    widths = [
        len(row) * ((_NODE_SIZE if row is nodes else _SWITCH_SIZE)[0] + _GAP) - _GAP for row in rows
    ]
    width = max(widths) + 2 * _MARGIN + 110
    places: dict[str, _Point] = {}
    boxes: list[DrawnShape] = []
    for depth, row in enumerate(rows):
        size = _NODE_SIZE if row is nodes else _SWITCH_SIZE
        left = _MARGIN + (width - 2 * _MARGIN - 110 - widths[depth]) / 2
        top = _MARGIN + depth * _ROW_HEIGHT
        for index, name in enumerate(row):
            x = left + index * (size[0] + _GAP)
            places[name] = (x + size[0] / 2, top)
            boxes += _node(picture, name, x, top) if row is nodes else _switch(name, x, top)
        boxes.append(DrawnLabel(width - _MARGIN - 100, top + 22, words[depth], small=True))
    height = _MARGIN * 2 + (len(rows) - 1) * _ROW_HEIGHT + _NODE_SIZE[1]
    return [*_wires(picture, rows, places), *boxes], width, height


def _rows(picture: Picture) -> tuple[list[list[str]], list[str]]:
    """Return the names to draw, highest level first, and what each row leaves out."""
    if picture.inter is None:
        return [["node 0"]], [""]
    count = min(picture.nodes, _MAX_NODES_SVG)
    more = f"... {picture.nodes - count} more" if picture.nodes > count else ""
    if picture.graph is None:
        return [["network"], [f"node {index}" for index in range(count)]], ["", more]
    rows, words = [], []
    for _, names in switch_levels(picture.graph):
        drawn = names[:_MAX_SWITCHES_SVG]
        rows.append(drawn)
        words.append(f"... {len(names) - len(drawn)} more" if len(names) > len(drawn) else "")
    return [*rows, list(picture.graph.graph["hosts"][:count])], [*words, more]


def _wires(
    picture: Picture, rows: Sequence[Sequence[str]], places: Mapping[str, _Point]
) -> list[DrawnShape]:
    """Return a wire for each link between two boxes that are drawn, and words on the uplinks."""
    if picture.graph is None:
        pairs = [(rows[0][0], node) for node in rows[-1]] if len(rows) > 1 else []
        levels = []
    else:
        pairs = [pair for pair in combinations(places, 2) if picture.graph.has_edge(*pair)]
        levels = switch_levels(picture.graph)
    half = _SWITCH_SIZE[1] / 2
    shapes: list[DrawnShape] = []
    for a, b in pairs:
        (x1, y1), (x2, y2) = places[a], places[b]
        shapes.append(DrawnWire(x1, y1 + half, x2, y2 + half))
    for depth, (level, _) in enumerate(levels):
        y = _MARGIN + depth * _ROW_HEIGHT + 75
        shapes.append(DrawnLabel(_MARGIN, y, uplink_words(picture.graph, level - 1), small=True))
    return shapes


def _switch(name: str, x: float, y: float) -> list[DrawnShape]:
    return [DrawnBox("switch", x, y, *_SWITCH_SIZE, 5), DrawnLabel(x + 10, y + 22, name)]


def _node(picture: Picture, name: str, x: float, y: float) -> list[DrawnShape]:
    shapes: list[DrawnShape] = [
        DrawnBox("node", x, y, *_NODE_SIZE, 6),
        DrawnLabel(x + 10, y + 22, name),
    ]
    if picture.inter is not None:
        shapes += _chips("nic", "NIC", picture.nics_per_node, x + 70, y + 8)
    if picture.intra is not None:
        shapes.append(DrawnLabel(x + 10, y + 58, picture.intra_kind[:32], small=True))
    if picture.gpus_per_node is None:
        return [*shapes, DrawnLabel(x + 10, y + 92, "GPUs: not stated")]
    return [*shapes, *_chips("gpu", "GPU", picture.gpus_per_node, x + 10, y + 72)]


def _chips(kind: str, word: str, count: int, x: float, y: float) -> list[DrawnShape]:
    """Return small boxes, four a row; where they are too many, one box that says how many."""
    most = 8 if kind == "gpu" else 2
    words = [f"{word} {index}" for index in range(count)] if count <= most else [f"{count} {word}s"]
    width = 44 if count <= most else 76
    shapes: list[DrawnShape] = []
    for index, text in enumerate(words):
        left, top = x + index % 4 * 48, y + index // 4 * 25
        shapes += [
            DrawnBox(kind, left, top, width, 21, 3),
            DrawnLabel(left + 5, top + 15, text, small=True),
        ]
    return shapes
