"""Made-up measured curves, and what they tell of a collective."""

from __future__ import annotations

from perfsim.network.known import MeasuredCollectives
from perfsim.network.measured import CollectiveCurve
from perfsim.quantity import Cost

__all__ = ["LARGE", "SMALL", "curve", "told"]

SMALL, LARGE = 8.0, 64e6


def curve(
    nodes: int, gpus: int = 4, collective: str = "all_reduce", factor: float = 1.0, **more
) -> CollectiveCurve:
    """Return a made-up curve: 20 us a node, and 1 us for each 10 kB."""
    sizes = (*(8.0 * 4**power for power in range(12)), LARGE)
    seconds = tuple(factor * (2e-5 * nodes + size * 1e-10) for size in sizes)
    words = {"source": "made up", "spread": 0.02, "gpu": "A100", "version": "2.18.3"} | more
    return CollectiveCurve(
        collective, nodes * gpus, nodes, gpus, sizes, seconds, "measured", **words
    )


def told(
    known: MeasuredCollectives, collective: str, size: float, placement: tuple[int, ...], **more
) -> Cost:
    """Return the cost that curves tell; they must tell one."""
    cost = known.cost(collective, size, placement, **more)
    assert cost is not None
    return cost
