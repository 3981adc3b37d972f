"""A trace's layers by the public names of a model that perfsim knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfsim.calibrate.traced import Shape, Step, TracedLayer
from perfsim.models import build, names

__all__ = ["as_known"]

Tensor = tuple[str, Shape]


def as_known(step: Step, model: str) -> Step | None:
    """Return a step with the names, and missing shapes, of a model's definition.

    None where perfsim has no such model, or its layers are not these in this order.
    """
    if model not in names():
        return None
    defined = [layer for layer in build(model) if layer.tensors]
    if len(defined) != len(step.layers):
        return None
    begun, ready, layers = {}, {}, []
    for traced, known in zip(step.layers, defined, strict=True):
        pairs = _paired(traced, known.tensors)
        if pairs is None:
            return None
        begun[known.name] = step.begun_s[traced.name]
        for name, (own, _) in pairs:
            ready[own] = step.ready_s[name]
        layers.append(TracedLayer(known.name, known.kind, tuple(own for _, own in pairs)))
    return replace(step, layers=tuple(layers), begun_s=begun, ready_s=ready)


def _paired(traced: TracedLayer, tensors: Sequence[Tensor]) -> list[tuple[str, Tensor]] | None:
    """Return (traced name, defined tensor) in the definition's order, None if they differ."""
    if len(tensors) != len(traced.gradients):
        return None
    left = list(traced.gradients)
    if all(shape is None for _, shape in left):
        if traced.kind == "linear":
            # The bias is a result of the product's node itself, the weight of a later node.
            left.reverse()
        return [(name, own) for (name, _), own in zip(left, tensors, strict=True)]
    pairs = []
    for tensor in tensors:
        found = next((one for one in left if one[1] == tuple(tensor[1])), None)
        if found is None:
            return None
        left.remove(found)
        pairs.append((found[0], tensor))
    return pairs
