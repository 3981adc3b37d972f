"""The page that shows a network: one SVG, no scripts, nothing from elsewhere."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from perfsim.units import format_rate

__all__ = ["DrawnLink", "Picture", "draw_html", "draw_text", "levels", "page", "uplinks"]


@dataclass(frozen=True, slots=True)
class DrawnLink:
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
    graph : a networkx graph as `Fabric.graph` gives it, its switches
        drawn by level; None: nothing is known, a cloud stands for it
    notes : lines below
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


def levels(graph: Any) -> list[tuple[int, list[str]]]:
    """Return the switches of a graph by level, the highest first.

    Examples
    --------
    >>> from perfsim.network.fabrics.slowdown import Fabric
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
    >>> from perfsim.network.fabrics.slowdown import oversubscribed
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


WIDTH = 80
NODES_DRAWN = 3
BOX = 24
LABEL = 10
GPUS_NAMED = 8
NICS_NAMED = 3
NAMES = {1: "leaf", 2: "spine", 3: "core"}


def draw_text(picture: Picture) -> str:
    """Return the picture in ASCII, at most 80 columns wide.

    Examples
    --------
    >>> print(draw_text(Picture("two nodes", DrawnLink("1.2 GB/s", "25 us a hop"), gpus_per_node=1)))
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
    from perfsim.report.terminal import write_text

    write_text(path, page(picture))


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


NODES_DRAWN_SVG = 4
SWITCHES_DRAWN = 6
NODE = (210, 130)
SWITCH = (130, 34)
GAP = 30
RISE = 110
MARGIN = 20
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 64em; color: #1d2733; }
svg { width: 100%; height: auto; } text { font: 13px system-ui, sans-serif; fill: #1d2733; }
.wire { stroke: #7b8a99; stroke-width: 1.5; } .switch { fill: #dbe9f6; stroke: #3b6ea5; }
.node { fill: #f7f8fa; stroke: #9aa7b3; } .nic { fill: #fde8c9; stroke: #c78a2c; }
.gpu { fill: #d9efd9; stroke: #4c8c4c; } .small { font-size: 11px; fill: #52606d; }
"""

XY = tuple[float, float]


def page(picture: Picture) -> str:
    """Return the page as text.

    Examples
    --------
    >>> from perfsim.report.network_drawing import Wire
    >>> text = page(Picture("a & b", Wire("1 GB/s"), nodes=2))
    >>> "<h1>a &amp; b</h1>" in text, text.count('class="node"')
    (True, 2)
    """
    shapes, width, height = _shapes(picture)
    told = []
    if picture.inter is not None:
        told.append(f"Between nodes: {picture.inter_kind}; a NIC {picture.inter}.")
    if picture.intra is not None:
        told.append(f"In a node: {picture.intra_kind}; {picture.intra}.")
    paragraphs = "\n".join(f"<p>{_plain(line)}</p>" for line in (*told, *picture.notes))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_plain(picture.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{_plain(picture.title)}</h1>
<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{_plain(picture.title)}">
{chr(10).join(shapes)}
</svg>
{paragraphs}
</body>
</html>
"""


def _shapes(picture: Picture) -> tuple[list[str], float, float]:
    """Return the shapes, wires first so that boxes cover their ends, and the size."""
    rows, words = _rows(picture)
    nodes = rows[-1]
    widths = [len(row) * ((NODE if row is nodes else SWITCH)[0] + GAP) - GAP for row in rows]
    width = max(widths) + 2 * MARGIN + 110
    places: dict[str, XY] = {}
    boxes: list[str] = []
    for depth, row in enumerate(rows):
        size = NODE if row is nodes else SWITCH
        left = MARGIN + (width - 2 * MARGIN - 110 - widths[depth]) / 2
        top = MARGIN + depth * RISE
        for index, name in enumerate(row):
            x = left + index * (size[0] + GAP)
            places[name] = (x + size[0] / 2, top)
            boxes += _node(picture, name, x, top) if row is nodes else _switch(name, x, top)
        boxes.append(_text(width - MARGIN - 100, top + 22, words[depth], "small"))
    height = MARGIN * 2 + (len(rows) - 1) * RISE + NODE[1]
    return [*_wires(picture, rows, places), *boxes], width, height


def _rows(picture: Picture) -> tuple[list[list[str]], list[str]]:
    """Return the names to draw, the highest level first, and what is left out of each row."""
    if picture.inter is None:
        return [["node 0"]], [""]
    count = min(picture.nodes, NODES_DRAWN_SVG)
    more = f"... {picture.nodes - count} more" if picture.nodes > count else ""
    if picture.graph is None:
        return [["network"], [f"node {index}" for index in range(count)]], ["", more]
    rows, words = [], []
    for _, names in levels(picture.graph):
        drawn = names[:SWITCHES_DRAWN]
        rows.append(drawn)
        words.append(f"... {len(names) - len(drawn)} more" if len(names) > len(drawn) else "")
    return [*rows, list(picture.graph.graph["hosts"][:count])], [*words, more]


def _wires(picture: Picture, rows: Sequence[Sequence[str]], places: Mapping[str, XY]) -> list[str]:
    if picture.graph is None:
        pairs = [(rows[0][0], node) for node in rows[-1]] if len(rows) > 1 else []
    else:
        graph = picture.graph
        pairs = [pair for pair in combinations(places, 2) if graph.has_edge(*pair)]
    lines = []
    for a, b in pairs:
        (x1, y1), (x2, y2) = places[a], places[b]
        half = SWITCH[1] / 2
        lines.append(
            f'<line class="wire" x1="{x1:g}" y1="{y1 + half:g}" x2="{x2:g}" y2="{y2 + half:g}"/>'
        )
    for depth, (level, _) in enumerate(levels(picture.graph) if picture.graph is not None else []):
        told = uplinks(picture.graph, level - 1)
        if told:
            lines.append(_text(MARGIN, MARGIN + depth * RISE + 75, told, "small"))
    return lines


def _switch(name: str, x: float, y: float) -> list[str]:
    return [
        f'<rect class="switch" x="{x:g}" y="{y:g}" width="{SWITCH[0]}" height="{SWITCH[1]}"'
        ' rx="5"/>',
        _text(x + 10, y + 22, name),
    ]


def _node(picture: Picture, name: str, x: float, y: float) -> list[str]:
    box = f'x="{x:g}" y="{y:g}" width="{NODE[0]}" height="{NODE[1]}" rx="6"'
    shapes = [f'<rect class="node" {box}/>', _text(x + 10, y + 22, name)]
    if picture.inter is not None:
        shapes += _chips("nic", "NIC", picture.nics_per_node, x + 70, y + 8)
    if picture.intra is not None:
        shapes.append(_text(x + 10, y + 58, picture.intra_kind[:32], "small"))
    if picture.gpus_per_node is None:
        return [*shapes, _text(x + 10, y + 92, "GPUs: not stated")]
    return [*shapes, *_chips("gpu", "GPU", picture.gpus_per_node, x + 10, y + 72)]


def _chips(kind: str, word: str, count: int, x: float, y: float) -> list[str]:
    """Return small boxes, four a row, or one that tells the number."""
    most = 8 if kind == "gpu" else 2
    words = [f"{word} {index}" for index in range(count)] if count <= most else [f"{count} {word}s"]
    shapes = []
    for index, text in enumerate(words):
        left, top = x + index % 4 * 48, y + index // 4 * 25
        wide = 44 if count <= most else 76
        box = f'x="{left:g}" y="{top:g}" width="{wide}" height="21" rx="3"'
        shapes += [f'<rect class="{kind}" {box}/>', _text(left + 5, top + 15, text, "small")]
    return shapes


def _plain(text: str) -> str:
    """Return text as a page may carry it: escaped, without what cannot be printed."""
    return html.escape("".join(letter if letter.isprintable() else " " for letter in text))


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    if not text:
        return ""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:g}" y="{y:g}">{_plain(text)}</text>'
