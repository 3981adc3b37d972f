"""Curves of a ring's exact times, as if measured."""

from __future__ import annotations

from perfsim.network.measured import CollectiveCurve

SIZES = tuple(8.0 * 4**power for power in range(13))


def curve(
    nodes: int, gpus: int = 1, collective: str = "all_reduce", sizes=SIZES, **more
) -> CollectiveCurve:
    """Return a ring's exact times: 20 us a step, 1 GB/s."""
    ranks = nodes * gpus
    rounds = 2 if collective == "all_reduce" else 1
    seconds = tuple(rounds * (ranks - 1) * (2e-5 + size / ranks * 1e-9) for size in sizes)
    words = {"library": "gloo"} | more
    return CollectiveCurve(
        collective, ranks, nodes, gpus, sizes, seconds, "measured", "made up", **words
    )


def of(cluster: str, *curves: CollectiveCurve) -> list[tuple[str, CollectiveCurve]]:
    """Return curves as those of one cluster."""
    return [(cluster, one) for one in curves]
