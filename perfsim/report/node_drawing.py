"""Draw a node type: its GPUs, what joins them, its NICs, and what collectives reach there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfsim.report.drawing import Drawing, DrawnBox, DrawnLabel, DrawnShape, DrawnWire
from perfsim.report.network_drawing import DrawnLink, Picture, draw_text

__all__ = [
    "LineRate",
    "NodeFact",
    "NodePicture",
    "RateCurve",
    "RatePoint",
    "node_drawing",
    "node_text",
]


class NodeFact(NamedTuple):
    """One thing that is known of a node, or is not.

    Parameters
    ----------
    what, value : such as "rate of a NIC, one way" and "400 Gbit/s"
    origin : stated, derived or not looked up
    source : where this is stated, or from what it is derived
    """

    what: str
    value: str
    origin: str
    source: str


class RatePoint(NamedTuple):
    """A message of a collective: its time with the 90 % interval [s], and the algorithm."""

    size_bytes: float
    seconds: float
    low_s: float
    high_s: float
    algorithm: str


@dataclass(frozen=True, slots=True)
class RateCurve:
    """What one collective takes on a number of nodes, over message size.

    Parameters
    ----------
    collective : all_reduce, all_gather ...
    nodes, gpus : that take part, all GPUs of each node
    bus_factor : bus bandwidth over size / time, as nccl-tests defines it
    points : by size
    """

    collective: str
    nodes: int
    gpus: int
    bus_factor: float
    points: Sequence[RatePoint]

    def bus(self, size_bytes: float, seconds: float) -> float:
        """Return the bus bandwidth of a message [B/s]."""
        return self.bus_factor * size_bytes / seconds


class LineRate(NamedTuple):
    """A rate of the data sheet that bounds a collective: its name and value [B/s]."""

    what: str
    rate: float


@dataclass(frozen=True, slots=True)
class NodePicture:
    """A node type as it is drawn.

    Parameters
    ----------
    name, title : of the node type
    gpu, gpus : the GPU, and how many a node has
    inside_kind : what joins the GPUs ("NVSwitch", "NVLink mesh", "PCIe through the host"); "" for
        one GPU
    inside_style : how that is drawn: switch, mesh or host
    inside_rate : of one GPU, one way, in words
    nics : of a node, 0 for a node without a network
    nic_rate : of one NIC, one way, in words
    carrier : what carries messages between nodes ("RDMA over InfiniBand, GPUDirect")
    facts : what is known, with sources
    curves : what collectives take, by collective and number of nodes
    line_rates : rates of the data sheet, by collective
    notes : sentences below
    result : all of it as plain data
    """

    name: str
    title: str
    gpu: str
    gpus: int
    inside_kind: str
    inside_style: str
    inside_rate: str
    nics: int
    nic_rate: str
    carrier: str
    facts: Sequence[NodeFact]
    curves: Sequence[RateCurve]
    line_rates: Mapping[str, Sequence[LineRate]]
    notes: Sequence[str]
    result: Mapping[str, Any]

    @property
    def inside_words(self) -> str:
        """What joins the GPUs, and at which rate."""
        if not self.inside_kind:
            return "one GPU"
        return f"{self.inside_kind}, {self.inside_rate} a GPU one way"

    @property
    def nic_words(self) -> str:
        """How many NICs there are, their rate, and what carries messages."""
        return f"{self.nics} x {self.nic_rate} one way, {self.carrier}" if self.nics else "none"


def node_text(picture: NodePicture) -> str:
    """Return the node in ASCII, at most 80 columns wide."""
    inter = DrawnLink(f"{picture.nic_rate} one way") if picture.nics else None
    intra = DrawnLink(f"{picture.inside_rate} a GPU one way") if picture.inside_kind else None
    return draw_text(
        Picture(
            f"{picture.name}: {picture.title}",
            inter,
            intra,
            1,
            picture.gpus,
            picture.nics or 1,
            picture.carrier,
            picture.inside_kind,
        )
    )


_MAX_CHIPS = 16
"""GPUs, or NICs, that are drawn one by one; more are one box that says how many."""
_CHIP, _GAP, _MARGIN = (58, 26), 8, 20
"""Width and height of a small box, what is left between two, and around the drawing [px]."""
_MIN_WIDTH = 620
"""Width of the drawing at least [px]."""
_LETTER = 6.6
"""Width of a letter, about [px]."""


def node_drawing(picture: NodePicture) -> Drawing:
    """Draw the node: the network, its NICs, what joins the GPUs, the GPUs.

    A switch is joined to each GPU by a wire. Where there is none, a dashed box says what joins the
    GPUs: data sheets tell which links a GPU has, but not always which pairs they join.
    """
    chips = max(_drawn(picture.gpus), _drawn(picture.nics))
    words = max(len(picture.inside_words), len(picture.nic_words))
    width = max(_MIN_WIDTH, chips * (_CHIP[0] + _GAP) + 4 * _MARGIN, words * _LETTER + 100)
    wires: list[DrawnShape] = []
    boxes: list[DrawnShape] = []
    left, y = 2.0 * _MARGIN, float(_MARGIN)
    network = DrawnBox("switch", width / 2 - 110, y, 220, 30, 5)
    if picture.nics:
        boxes += [network, DrawnLabel(network.x + 32, y + 20, "network between nodes")]
        y += 58
    top, y = y, y + 12
    if picture.nics:
        nics = _chips("nic", "NIC", picture.nics, width, y)
        wires += [_wire(network, chip) for chip in _boxes(nics)]
        boxes += [*nics, DrawnLabel(left, y + _CHIP[1] + 18, picture.nic_words, small=True)]
        y += _CHIP[1] + 34
    inside = DrawnBox(picture.inside_style, left, y, width - 2 * left, 32, 5)
    if picture.inside_kind:
        boxes += [inside, DrawnLabel(left + 12, y + 21, picture.inside_words)]
        y += 32 + 22
    gpus = _chips("gpu", "GPU", picture.gpus, width, y)
    if picture.inside_kind:
        wires += [_wire(inside, chip, straight=True) for chip in _boxes(gpus)]
    y += _CHIP[1] + 18
    boxes += [*gpus, DrawnLabel(left, y, f"{picture.gpus} x {picture.gpu}", small=True)]
    frame = DrawnBox("node", _MARGIN, top, width - 2 * _MARGIN, y + 12 - top, 6)
    title = f"{picture.name}: {picture.gpus} x {picture.gpu}; inside: {picture.inside_words};"
    title += f" NICs: {picture.nic_words}"
    return Drawing(title, [frame, *wires, *boxes], width, y + 12 + _MARGIN)


def _drawn(count: int) -> int:
    return count if count <= _MAX_CHIPS else 3


def _chips(kind: str, word: str, count: int, width: float, y: float) -> list[DrawnShape]:
    """Return small boxes in a row in the middle; of too many, one box that says how many."""
    words = [f"{word} {index}" for index in range(count)]
    wide = float(_CHIP[0])
    if count > _MAX_CHIPS:
        words, wide = [f"{count} {word}s"], 3.0 * _CHIP[0]
    left = (width - len(words) * (wide + _GAP) + _GAP) / 2
    shapes: list[DrawnShape] = []
    for index, text in enumerate(words):
        x = left + index * (wide + _GAP)
        shapes += [
            DrawnBox(kind, x, y, wide, _CHIP[1], 3),
            DrawnLabel(x + 7, y + 17, text, small=True),
        ]
    return shapes


def _boxes(shapes: Sequence[DrawnShape]) -> list[DrawnBox]:
    return [shape for shape in shapes if isinstance(shape, DrawnBox)]


def _wire(above: DrawnBox, below: DrawnBox, *, straight: bool = False) -> DrawnWire:
    """Join the lower edge of a box to the upper edge of one below it."""
    x = below.x + below.width / 2
    start = x if straight else above.x + above.width / 2
    return DrawnWire(start, above.y + above.height, x, below.y)
