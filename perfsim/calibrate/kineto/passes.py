"""One step's forward and backward pass: its layers, and when the host had each gradient.

Autograd numbers the nodes that a forward operator makes; the profiler writes the number, as
``Sequence number``, on that operator and on the node when it runs backward (torch/csrc/autograd/
profiler_kineto.cpp). Several operators may show a number before the one that takes it: the last
to begin has it. ``AccumulateGrad`` runs right after the node that made its gradient, since the
engine prefers it to every other node (torch/csrc/autograd/engine.cpp).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from perfsim.calibrate.kineto.owner import Home, homes, kind_of
from perfsim.calibrate.kineto.recording import ACCUMULATE, BACKWARD, NODE, Recording, Span
from perfsim.calibrate.kineto.window import Window, inside
from perfsim.errors import DataError

__all__ = ["Layer", "Passes", "passes"]

START = attrgetter("start")


@dataclass
class Layer:
    """A layer with parameters: when it begins [us], and the accumulations of its gradients."""

    name: str
    kind: str
    begun: float
    gradients: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class Passes:
    """Both passes of one step on the host [us], the thread of each, layers by their beginning."""

    forward: tuple[float, float]
    backward: tuple[float, float]
    threads: tuple[str, str]
    layers: tuple[Layer, ...]


def passes(recording: Recording, window: Window, path: Path) -> Passes | None:
    """Return a step's passes, None where it has no backward pass.

    Raises
    ------
    DataError
        If forward passes follow a backward pass in one step, or nodes cannot be told apart.
    """
    gradients = inside(recording.accumulations, window)
    if not gradients:
        return None
    thread = gradients[0].thread
    nodes = _nodes(inside(recording.operations, window, thread))
    if not nodes:
        raise DataError(
            "has no 'Sequence number' on its backward operators, which joins them to the layers:"
            " record it with PyTorch 1.9 or newer",
            path=path,
        )
    begun = nodes[0].start
    own = [
        operation
        for operation in inside(recording.operations, window, window.thread)
        if not _is_node(operation)
    ]
    ahead = own[: bisect_right(own, begun, key=START)]
    numbers = {node.sequence for node in nodes}
    _check_once(own[len(ahead) :], nodes if thread == window.thread else [], numbers, path)
    modules = inside(recording.modules, window, window.thread)
    by_number: dict[int | None, Home] = {}
    for operation, home in zip(ahead, homes(ahead, modules), strict=True):
        by_number[operation.sequence] = home
    made = [by_number[number] for number in numbers if number in by_number]
    if not made:
        return None
    layers = _layers(gradients, nodes, by_number)
    first = min(home.begun for home in made)
    forward = (first, min(max(home.end for home in made), begun))
    # What waits for collectives after the last node (DDP's last hook) is no part of the pass.
    backward = (begun, max(nodes[-1].end, gradients[-1].end))
    return Passes(forward, backward, (window.thread, thread), layers)


def _is_node(span: Span) -> bool:
    return span.name.startswith(NODE) or bool(BACKWARD.match(span.name))


def _nodes(operations: Sequence[Span]) -> list[Span]:
    """Return autograd's nodes that made gradients, as the engine ran them."""
    engine = [span for span in operations if span.name.startswith(NODE)]
    engine = [span for span in engine if not span.name.endswith(ACCUMULATE)]
    return engine or [span for span in operations if BACKWARD.match(span.name)]


def _layers(
    gradients: Sequence[Span], nodes: Sequence[Span], by_number: dict[int | None, Home]
) -> tuple[Layer, ...]:
    """Return the layers that own gradients, by their beginning."""
    held: dict[str, Layer] = {}
    for gradient in gradients:
        place = bisect_right(nodes, gradient.start, key=START) - 1
        while place >= 0 and nodes[place].sequence not in by_number:
            place -= 1
        if place < 0:
            continue
        home = by_number[nodes[place].sequence]
        layer = held.setdefault(home.name, Layer(home.name, kind_of(home.word), home.begun))
        layer.gradients.append(gradient)
    return tuple(sorted(held.values(), key=attrgetter("begun")))


def _check_once(
    later: Sequence[Span], nodes: Sequence[Span], numbers: set[int | None], path: Path
) -> None:
    """Refuse steps whose forward operators go on after the backward pass began."""
    for operation in later:
        place = bisect_right(nodes, operation.start, key=START) - 1
        nested = place >= 0 and operation.start < nodes[place].end
        if operation.sequence in numbers and not nested:
            raise DataError(
                "holds several backward passes in one step (gradient accumulation): trace steps"
                " of one pass each",
                path=path,
            )
