"""Drawings as SVG: wires, boxes and labels at their places, which templates write out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Drawing", "DrawnBox", "DrawnLabel", "DrawnShape", "DrawnWire"]


class DrawnWire(NamedTuple):
    """A line between two boxes [px]."""

    x1: float
    y1: float
    x2: float
    y2: float
    shape: str = "wire"


class DrawnBox(NamedTuple):
    """A rectangle [px]; ``kind`` is its class in the page's style: node, switch, nic or gpu."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    radius: float
    shape: str = "box"


class DrawnLabel(NamedTuple):
    """A text that begins at a point [px]."""

    x: float
    y: float
    text: str
    small: bool = False
    shape: str = "label"


DrawnShape = DrawnWire | DrawnBox | DrawnLabel


class Drawing(NamedTuple):
    """Shapes in the order in which they are drawn, and what they show in words (``title``) [px]."""

    title: str
    shapes: Sequence[DrawnShape]
    width: float
    height: float
