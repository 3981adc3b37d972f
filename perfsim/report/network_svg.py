"""The page that shows a network: one SVG, no scripts, nothing from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import combinations

from perfsim.report.network_picture import Picture, levels, uplinks

__all__ = ["page"]

NODES_DRAWN = 4
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

Point = tuple[float, float]


def page(picture: Picture) -> str:
    """Return the page as text.

    Examples
    --------
    >>> from perfsim.report.network_picture import Wire
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
    places: dict[str, Point] = {}
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
    count = min(picture.nodes, NODES_DRAWN)
    more = f"... {picture.nodes - count} more" if picture.nodes > count else ""
    if picture.graph is None:
        return [["network"], [f"node {index}" for index in range(count)]], ["", more]
    rows, words = [], []
    for _, names in levels(picture.graph):
        drawn = names[:SWITCHES_DRAWN]
        rows.append(drawn)
        words.append(f"... {len(names) - len(drawn)} more" if len(names) > len(drawn) else "")
    return [*rows, list(picture.graph.graph["hosts"][:count])], [*words, more]


def _wires(
    picture: Picture, rows: Sequence[Sequence[str]], places: Mapping[str, Point]
) -> list[str]:
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
