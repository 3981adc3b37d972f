"""A picture of a network: switches, nodes, their NICs and GPUs, as text or as a page with SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from perfsim.report.network_picture import Picture, Wire, levels, uplinks

__all__ = ["Picture", "Wire", "draw_html", "draw_text"]

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
