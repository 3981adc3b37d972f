"""Which collective a table of nccl-tests measured, where only its columns or its file say so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfsim.calibrate.cells import DIGITS, busbw_factor, collective_name, decimal_of
from perfsim.calibrate.rows import Row

__all__ = ["named", "shape"]

NONE = ("", "none")
LEAST = 0.5
"""GB/s from which the digits printed tell a bandwidth well enough."""
CLOSE = 0.05
"""How near bus over algorithm bandwidth must be to a collective's, as far as digits go."""


def named(path: Path) -> list[str]:
    """Return the collective that a file's name holds."""
    found = re.findall(
        r"all_?reduce|reduce_?scatter|all_?gather|broadcast|bcast|all_?to_?all|send_?recv",
        path.name.lower(),
    )
    names = list(dict.fromkeys(collective_name(one) for one in found))
    return names if len(names) == 1 else []


def shape(lead: Mapping[str, str], points: Sequence[Row], ranks: int | None) -> tuple[str, ...]:
    """Return the collectives whose redop, root and bandwidths look like those of the rows."""
    reduces = lead.get("redop", lead.get("op", "")) not in NONE
    root = lead.get("root", "-1") != "-1"
    if "redop" not in lead and "op" not in lead and "root" not in lead:
        return ()
    ratio = _ratio(points)
    if reduces and root:
        return ("reduce",)
    if reduces:
        fits = [
            name
            for name in ("all_reduce", "reduce_scatter", "send_recv")
            if ratio is None or not ranks or ranks < 2 or _near(ratio, busbw_factor(name, ranks))
        ]
        return tuple(fits)
    return ("broadcast",) if root else ("all_gather", "all_to_all", "send_recv", "broadcast")


def _near(ratio: float, factor: float) -> bool:
    return abs(ratio / factor - 1) < CLOSE


def _ratio(points: Sequence[Row]) -> float | None:
    """Return bus bandwidth over size / time where the printed digits suffice."""
    for point in reversed(points):
        rate = decimal_of(point.busbw)
        if rate is not None and rate.is_finite() and rate >= LEAST and rate.adjusted() <= DIGITS:
            return float(rate) * 1e9 * point.seconds / point.size_bytes
    return None
