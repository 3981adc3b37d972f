"""``perfsim calibrate network`` on one rank, with a ring of messages as gloo's reduce_scatter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from engine import ring_reduce_scatter

from perfsim.calibrate.sweep import torch_wire
from perfsim.calibrate.sweep.groups import Group
from perfsim.cli.main import run


class RingWire(torch_wire.TorchWire):
    """PyTorch's gloo; its reduce_scatter, which it builds of all-reduces, is a ring instead."""

    def collectives(self) -> tuple[str, ...]:
        """Return what the emulated schemes use."""
        return ("all_reduce", "all_gather", "reduce_scatter")

    def _call(self, collective: str, group: Group, size_bytes: int) -> Callable[[], Any]:
        if collective != "reduce_scatter":
            return super()._call(collective, group, size_bytes)
        data = self._torch.zeros(size_bytes // torch_wire.FLOAT_BYTES)
        return partial(ring_reduce_scatter, data, self._groups[group.ranks])


if __name__ == "__main__":
    torch_wire.TorchWire = RingWire  # type: ignore[misc]
    sys.argv[1:1] = ["calibrate", "network"]
    run()
