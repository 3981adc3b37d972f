"""A figure of a report: what Plotly draws, the same numbers as a table, and both in words."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any

__all__ = [
    "COLOURS",
    "PARTS",
    "Figure",
    "axis",
    "interval",
    "marker",
    "names",
    "plain",
    "quantity",
    "upright",
]

COLOURS = {
    "blue": "#0072b2",
    "orange": "#e69f00",
    "green": "#009e73",
    "vermilion": "#d55e00",
    "sky": "#56b4e9",
    "purple": "#cc79a7",
    "yellow": "#f0e442",
    "grey": "#8a939c",
}
"""Okabe and Ito's palette, which colour-blind readers tell apart."""

PARTS = {
    "forward": (COLOURS["sky"], ""),
    "backward": (COLOURS["blue"], ""),
    "compression": (COLOURS["purple"], "x"),
    "second_order": (COLOURS["yellow"], "."),
    "communication_exposed": (COLOURS["vermilion"], "/"),
    "update": (COLOURS["green"], ""),
    "other": (COLOURS["grey"], ""),
}
"""Colour and hatch of each part of an iteration."""

Cell = str | int | float

WIDE = 8.0
"""Values that span more than this factor stand on a logarithmic axis."""

STEPS = ((1.0, 2.0, 5.0), (1.0,))
"""Ticks of a decade, where they span few decades or many."""
FEW_DECADES = 2.5


def marker(colour: str, hatch: str) -> dict[str, Any]:
    """Return how bars look: a colour, with a hatch over it that prints without colour too."""
    pattern = {"shape": hatch, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.55}
    return {"color": colour, "pattern": pattern | {"size": 7}, "line": {"width": 0}}


@dataclass(frozen=True)
class Figure:
    """One figure.

    Parameters
    ----------
    name : its identifier in the page
    title : its heading
    words : what it shows, in a sentence or two with the figures that matter; the alt text
    data, layout : what Plotly draws, as plain data
    head, rows : the same numbers as a table; every column names its unit
    notes : sentences below it
    """

    name: str
    title: str
    words: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())


def plain(text: object) -> str:
    """Return text for a figure: Plotly reads a little HTML in labels, and this is none.

    Examples
    --------
    >>> plain("a<b>")
    'a&lt;b&gt;'
    """
    return html.escape(str(text), quote=False)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with its title."""
    return {"title": {"text": plain(title)}, "automargin": True, **more}


def interval(values: Sequence[float], ends: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the bars of intervals around values, each from its low end to its high one.

    Examples
    --------
    >>> found = interval([5.0], [(4.0, 8.0)])
    >>> found["array"], found["arrayminus"]
    ([3.0], [1.0])
    """
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for (_, high), value in zip(ends, values, strict=True)],
        "arrayminus": [value - low for (low, _), value in zip(ends, values, strict=True)],
        "color": "ink",
    }


def upright(at: float, **line: Any) -> dict[str, Any]:
    """Return a line over the whole height."""
    return {
        "type": "line",
        "x0": at,
        "x1": at,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": line,
    }


def names(words: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return a vertical axis of names, the first on top; every one is written."""
    return axis("", type="category", categoryarray=list(words)[::-1], dtick=1, **more)


def quantity(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return an axis from zero, or a logarithmic one where positive values span a wide range.

    Examples
    --------
    >>> quantity("time [ms]", [1.0, 2.0])["rangemode"]
    'tozero'
    >>> quantity("time [ms]", [3.0, 70.0])["ticktext"]
    ['2', '5', '10', '20', '50', '100']
    >>> quantity("time [ms]", [1.0, 90000.0])["ticktext"][-1]
    '100,000'
    """
    low, high = min(values), max(values)
    if low <= 0 or high <= WIDE * low:
        return axis(title, rangemode="tozero")
    first, last = floor(log10(low)), floor(log10(high)) + 1
    steps = STEPS[log10(high / low) > FEW_DECADES]
    marks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    ends = max(mark for mark in marks if mark <= low), min(mark for mark in marks if mark >= high)
    kept = [mark for mark in marks if ends[0] <= mark <= ends[1]]
    return axis(title, type="log", tickvals=kept, ticktext=[f"{mark:,.10g}" for mark in kept])
