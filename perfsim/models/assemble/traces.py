"""Gradient-ready traces of Espresso (zhuangwang93/Espresso@a0294e3, Apache-2.0), all on a V100."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from perfsim.errors import DataError
from perfsim.models.assemble.group import LayerGroup
from perfsim.models.assemble.tables import read_table

__all__ = ["LayerTrace", "read_trace"]

RENAMED = {"dense_act.": "dense."}
"""The fused dense layer of NVIDIA's BERT, under the name that transformers gives it."""
PADDED_ROWS = {30528: 30522}
"""Rows of a vocabulary padded to a multiple of eight, and without the padding."""


@dataclass(frozen=True, slots=True)
class LayerTrace:
    """When each gradient became ready, from the first ready gradient on.

    ``ready_ms`` maps tensor to moment; ``layer_ms`` is the time that each group took, the last
    group (first in the backward pass) only from its first gradient on.
    """

    ready_ms: dict[str, float]
    layer_ms: tuple[float, ...]


def _size(name: str, elements: int, width: int) -> int:
    rows, rest = divmod(elements, width)
    unpadded = name.endswith("word_embeddings.weight") and not rest
    return PADDED_ROWS.get(rows, rows) * width if unpadded else elements


def read_trace(path: Path, model: tuple[LayerGroup, ...]) -> LayerTrace:
    """Read one trace and hold it against a network's tensors.

    Raises
    ------
    DataError
        If tensors, sizes or the backward order differ from the network definition.
    """
    place = {tensor: index for index, group in enumerate(model) for tensor, _ in group.tensors}
    shapes = {tensor: shape for group in model for tensor, shape in group.tensors}
    ready_ms: dict[str, float] = {}
    layer_ms = [0.0] * len(model)
    before = len(model)
    for row in read_table(path, ("tensor", "elements", "gap_us", "ready_us")):
        name = row["tensor"]
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        if name not in shapes or name in ready_ms:
            raise DataError(f"tensor {row['tensor']!r} is not one of the network's", path=path)
        if _size(name, int(row["elements"]), shapes[name][-1]) != math.prod(shapes[name]):
            raise DataError(f"{name!r} has {row['elements']} elements", path=path)
        if place[name] > before:
            raise DataError(f"{name!r} comes out of the backward order", path=path)
        before = place[name]
        ready_ms[name] = int(row["ready_us"]) / 1e3
        layer_ms[before] += int(row["gap_us"]) / 1e3
    missing = sorted(set(shapes) - set(ready_ms))
    if missing:
        raise DataError(f"lacks {missing[0]!r}", path=path)
    return LayerTrace(ready_ms, tuple(layer_ms))
