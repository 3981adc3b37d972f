"""Names and shapes of a layer's gradients, which a profile does not name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perfsim.calibrate.kineto.passes import Layer
from perfsim.calibrate.kineto.recording import Span
from perfsim.calibrate.traced import Shape, TracedLayer

__all__ = ["layers_of", "shape_of", "words_of"]

NORMS = ("batchnorm", "layernorm")


def layers_of(layers: Sequence[Layer]) -> tuple[tuple[TracedLayer, ...], dict[str, Span]]:
    """Return the layers with their gradients named, and gradient -> its accumulation."""
    made: list[TracedLayer] = []
    accumulated: dict[str, Span] = {}
    for layer in layers:
        spans = sorted(layer.gradients, key=lambda span: -len(shape_of(span) or ()))
        shapes = [shape_of(span) for span in spans]
        names = [f"{layer.name}.{word}" for word in words_of(shapes, layer.kind)]
        made.append(TracedLayer(layer.name, layer.kind, tuple(zip(names, shapes, strict=True))))
        accumulated.update(zip(names, spans, strict=True))
    return tuple(made), accumulated


def shape_of(span: Span) -> Shape | None:
    """Return the shape of an accumulated gradient, None where it is not said."""
    first = span.shapes[0] if span.shapes else None
    if not isinstance(first, list) or not all(type(axis) is int and axis > 0 for axis in first):
        return None
    return tuple(first)


def words_of(shapes: Sequence[Shape | None], kind: str) -> list[str]:
    """Return the gradients' names in their layer: matrices are weights, vectors biases.

    A normalising layer's first vector is its weight. Further ones of a kind are numbered.

    Examples
    --------
    >>> words_of([(8, 3, 3, 3), (8,)], "conv"), words_of([(8,), (8,)], "batchnorm")
    (['weight', 'bias'], ['weight', 'bias'])
    >>> words_of([(8, 4), (8, 2), (8,), (8,)], "lstm")
    ['weight', 'weight_2', 'bias', 'bias_2']
    """
    counted: Counter[str] = Counter()
    words = []
    for place, shape in enumerate(shapes):
        vector = shape is not None and len(shape) < 2 and not (kind in NORMS and not place)
        word = "bias" if vector else "weight"
        counted[word] += 1
        words.append(word if counted[word] == 1 else f"{word}_{counted[word]}")
    return words
