"""``perfsim calibrate network`` on one rank, with a ring of messages as gloo's reduce_scatter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from perfsim.calibrate.measure import torch_wire
from perfsim.calibrate.measure.job import RankGroup
from perfsim.calibrate.measure.torch_wire import collective_call
from perfsim.cli.main import run
from support.emulated.engine import ring_reduce_scatter

FLOAT_BYTES = 4


class RingWire(torch_wire.TorchWire):
    """PyTorch's gloo; its reduce_scatter, which it builds of all-reduces, is a ring instead."""

    def collectives(self) -> tuple[str, ...]:
        """Return what the emulated schemes use."""
        return ("all_reduce", "all_gather", "reduce_scatter")


def ring_call(
    collective: str, group: RankGroup, of: Any, rank: int, size_bytes: int, device: str
) -> Callable[[], Any]:
    """Return what runs a collective once; a reduce-scatter is the ring of the emulated schemes."""
    if collective != "reduce_scatter":
        return collective_call(collective, group, of, rank, size_bytes, device)
    return partial(ring_reduce_scatter, torch.zeros(size_bytes // FLOAT_BYTES), of)


if __name__ == "__main__":
    torch_wire.TorchWire = RingWire  # type: ignore[misc]
    torch_wire.collective_call = ring_call
    sys.argv[1:1] = ["calibrate", "network"]
    run()
