"""Measured points as curves, which is what a network is fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from perfsim.calibrate.sweep.journal import Point
from perfsim.calibrate.sweep.wire import Wire
from perfsim.cluster.measured import Curve

__all__ = ["curves_of"]

KNOWN = 10.0
"""A point repeated fewer times than tell a spread has an infinite one."""


def curves_of(points: Sequence[Point], wire: Wire, about: Mapping[str, Any]) -> list[Curve]:
    """Return the curves of measured points, one a collective and group, sizes rising."""
    grouped: dict[tuple[str, int, int, int], list[Point]] = {}
    for point in sorted(points, key=lambda one: one.size_bytes):
        shape = (point.collective, point.ranks, point.nodes, point.gpus_per_node)
        grouped.setdefault(shape, []).append(point)
    return [
        Curve(
            collective,
            ranks,
            nodes,
            gpus,
            tuple(float(point.size_bytes) for point in of),
            tuple(point.median_s for point in of),
            "measured",
            f"perfsim calibrate network, {date.today().isoformat()}",
            spread=_spread(of),
            algorithm=wire.held if collective == "all_reduce" else "",
            library=wire.library,
            version=wire.version,
            gpu=wire.device,
            fabric=str(about["interface"]),
        )
        for (collective, ranks, nodes, gpus), of in grouped.items()
    ]


def _spread(points: Sequence[Point]) -> float | None:
    known = sorted(point.spread for point in points if point.spread < KNOWN)
    return known[len(known) // 2] if known else None
