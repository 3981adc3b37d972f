"""Blocks of a transformer: where each begins and ends, and what its attention reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perfsim.models.layers import ModelLayer
from perfsim.sums import sum_in_order

__all__ = ["NORMS", "attended_values", "block_count", "block_spans", "block_start", "query_values"]

NORMS = ("layernorm", "rmsnorm")
"""Kinds of layers that normalise each token."""


def attended_values(layers: Sequence[ModelLayer], index: int, whole: Sequence[ModelLayer]) -> float:
    """Return the values of queries, keys and values that attention keeps for one sample.

    ``whole`` are the same layers undivided.
    """
    return sum_in_order(_projected(layers, index, whole))


def query_values(layers: Sequence[ModelLayer], index: int, whole: Sequence[ModelLayer]) -> float:
    """Return the values of queries of one sample, which may be wider than what attention writes.

    ``whole`` are the same layers undivided.
    """
    first, *others = _projected(layers, index, whole)
    return first if others else layers[index].outputs


def _projected(
    layers: Sequence[ModelLayer], index: int, whole: Sequence[ModelLayer]
) -> list[float]:
    """Return the outputs of the projections that attention reads, that of queries first."""
    return [
        layers[at].outputs
        for at in range(block_start(whole, index), index)
        if layers[at].kind == "linear"
        and not (layers[at + 1].kind in NORMS and layers[at + 2].kind == "linear")
    ]


def block_start(layers: Sequence[ModelLayer], index: int) -> int:
    """Return the index of the normalisation before an attention's projections.

    A normalisation within them (of queries and keys, or of a narrow projection) is another: no
    product follows it, or it is narrower than the residual stream. Behind a product that widens
    embeddings the first projection stands in its place.
    """
    width = layers[index + 1].outputs if index + 1 < len(layers) else 0.0
    at = index - 1
    while at > 0 and layers[at].kind in ("linear", *NORMS):
        stream = layers[at].outputs == width and layers[at + 1].kind == "linear"
        if layers[at].kind in NORMS and stream:
            break
        if layers[at].kind == layers[at + 1].kind == "linear" and not layers[at].split:
            return at + 1
        at -= 1
    return at


def block_spans(layers: Sequence[ModelLayer]) -> Iterator[tuple[int, int]]:
    """Yield each block's first layer and the one after its last, a block for each attention."""
    starts = [
        block_start(layers, index)
        for index, layer in enumerate(layers)
        if layer.kind == "attention"
    ]
    for number, first in enumerate(starts):
        if number + 1 < len(starts):
            yield first, starts[number + 1]
        else:
            span = first - starts[number - 1] if number else _only_block(layers)
            yield first, min(first + span, len(layers))


def block_count(layers: Sequence[ModelLayer]) -> int:
    """Return how many blocks there are; 0 without attention."""
    return sum(layer.kind == "attention" for layer in layers)


def _only_block(layers: Sequence[ModelLayer]) -> int:
    """Return how many layers the only block has: as many as bear its number ("layers.0.").

    Without a number it has all to the end.
    """
    attention = next(layer.name for layer in layers if layer.kind == "attention")
    named = re.match(r".*?\d+\.", attention)
    if named is None:
        return len(layers)
    return sum(layer.name.startswith(named[0]) for layer in layers)
