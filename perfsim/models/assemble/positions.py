"""Writes which layers of a network K-FAC preconditions, and their positions, as a table."""

from __future__ import annotations

import csv
import io
import math

from perfsim.compute.profile import POSITIONS_COLUMNS, POSITIONS_SCHEMA
from perfsim.models import build_model
from perfsim.models.layers import ModelLayer

__all__ = ["positions_of", "positions_text"]

KINDS = ("conv", "linear")
"""Modules that the public K-FAC codes register: Conv2d and Linear."""
NOT_REGISTERED = ("gpt2", "lstm")
"""Networks made of other modules: transformers' Conv1D, PyTorch's LSTM."""


def positions_of(layer: ModelLayer) -> int:
    """Return the rows a sample of a layer's input matrix.

    Examples
    --------
    >>> positions_of(build_model("resnet50")[0]), positions_of(build_model("resnet50")[-1])
    (12544, 1)
    """
    weight = math.prod(layer.tensors[0][1])
    return round(layer.flops / (2.0 * weight))


def positions_text(model: str) -> str:
    """Return the text of one file; "" for a network of which K-FAC registers no layer."""
    if model in NOT_REGISTERED:
        return ""
    out = io.StringIO()
    out.write(f"# schema: {POSITIONS_SCHEMA}\n# model: {model}\n")
    out.write("# source: the public network definition (perfsim.models), by arithmetic\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(POSITIONS_COLUMNS)
    for layer in build_model(model):
        if layer.kind in KINDS and layer.tensors:
            writer.writerow((layer.name, positions_of(layer)))
    return out.getvalue()
