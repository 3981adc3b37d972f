"""Positions: how many rows a layer's input matrix has for one sample (``<model>.positions.csv``).

The output height x width of a convolution, 1 for a dense layer on vectors, the tokens for one on
sequences. Second-order methods build their factors from as many rows a sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perfsim.errors import DataError
from perfsim.limits import COUNT, shown
from perfsim.table import number, read_lines, read_table

if TYPE_CHECKING:
    from perfsim.profile import Profile

__all__ = ["BESIDE", "COLUMNS", "SCHEMA", "read_positions", "registered"]

SCHEMA = "perfsim/positions/1"
COLUMNS = ("layer", "positions")
BESIDE = ".positions.csv"
"""What follows a model's name in the file of its positions."""


REGISTERED = ("conv", "linear")
"""Kinds of layers that K-FAC preconditions."""
NAMED = 3
"""So many lacking layers a message names."""


def registered(profile: Profile) -> list[str]:
    """Return the layers whose positions a file must hold: convolutions and dense layers."""
    matrices = {gradient.layer for gradient in profile.gradients if len(gradient.shape) > 1}
    return [
        layer.name
        for place, layer in enumerate(profile.layers)
        if place in matrices and layer.kind in REGISTERED
    ]


def read_positions(path: Path, layers: Iterable[str], needed: Iterable[str] = ()) -> dict[str, int]:
    """Return layer -> positions; ``layers`` are those of the model, all ``needed`` must be there.

    Raises
    ------
    DataError
        If the file cannot be read, breaks the format, is of another model, names a layer twice
        or one that the model lacks, or lacks a needed one.
    """
    known = set(layers)
    found: dict[str, int] = {}
    table = read_table(path, SCHEMA, COLUMNS)
    model = path.name.removesuffix(BESIDE)
    told = [line[1:].partition(":") for line in read_lines(path) if line.startswith("#")]
    named = [value.strip() for key, _, value in told if key.strip() == "model"]
    if named != [model]:
        raise DataError(
            f"model is {shown(named[0]) if named else 'missing'}, the file's name says {model!r}",
            path=path,
        )
    for row, cells in table:
        name = cells["layer"]
        if name not in known or name in found:
            wrong = "stands twice" if name in found else "is no layer of the model"
            raise DataError(f"layer {shown(name)} {wrong}", path=path, row=row, column="layer")
        found[name] = int(
            number(
                cells["positions"], "positions", path, row, positive=True, whole=True, within=COUNT
            )
        )
    lacking = [name for name in needed if name not in found]
    if lacking:
        more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
        raise DataError(
            f"lacks {', '.join(lacking[:NAMED])}{more}: every convolution and dense layer of the"
            " model needs its positions",
            path=path,
        )
    return found
