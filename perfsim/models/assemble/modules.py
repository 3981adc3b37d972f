"""Module times of PipeDream (msr-fiddle/pipedream@7db6a1c, MIT): a shape, not a total.

The profiler there synchronises around every module, so sums are up to a third too long; the
first module's forward time includes the copy of the input.
"""

from __future__ import annotations

from pathlib import Path

from perfsim.errors import DataError
from perfsim.models.assemble.group import LayerGroup
from perfsim.models.assemble.tables import read_table

__all__ = ["read_modules"]


def read_modules(path: Path, model: tuple[LayerGroup, ...]) -> tuple[list[float], list[float]]:
    """Return forward and backward milliseconds of each group, in forward order.

    Modules without parameters count to the one before them. The first forward time is held to
    its backward time: the weight gradient alone is as much work as the forward pass.

    Raises
    ------
    DataError
        If the parameters of the modules are not those of the network, in its order.
    """
    forward: list[float] = []
    backward: list[float] = []
    for row in read_table(path, ("node", "fwd_ms", "bwd_ms", "params")):
        if row["op"] == "Input":
            continue
        if int(row["params"]):
            place = len(forward)
            if place >= len(model) or model[place].elements != int(row["params"]):
                raise DataError(f"module {row['node']} is not the network's next layer", path=path)
            forward.append(0.0)
            backward.append(0.0)
        if forward:
            forward[-1] += float(row["fwd_ms"])
            backward[-1] += float(row["bwd_ms"])
            if len(forward) == 1 and int(row["params"]):
                forward[0] = min(forward[0], backward[0])
    if len(forward) != len(model):
        raise DataError(f"has {len(forward)} layers, the network {len(model)}", path=path)
    return forward, backward
