"""Other collectives from all-reduce: all_gather and reduce_scatter of the same cluster."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.cluster.growth.grow import call_seconds, inside_share
from perfsim.cluster.growth.sibling import (
    HALVES,
    SMALL_BYTES,
    floor,
    gathering_floor,
    sibling,
)
from perfsim.cluster.measured import Curve
from perfsim.validate.nccl.plain import PlainRing
from perfsim.validate.nccl.row import Row

__all__ = ["LIMITS", "QUESTION", "rows"]

QUESTION = (
    "fit on all_reduce and the smallest message measured (not scored), predict all_gather and"
    " reduce_scatter of the same ranks"
)

LIMITS = {"other_collective": {"median": 0.15}}


def rows(curves: Sequence[tuple[str, Curve]]) -> list[Row]:
    """Return every size but the smallest of each all_gather and reduce_scatter beside one.

    ``others`` holds what all_reduce alone gives, without the small message.
    """
    groups: dict[tuple[object, ...], list[Curve]] = {}
    for cluster, curve in curves:
        shape = (cluster, curve.ranks, curve.nodes, curve.gpus_per_node, curve.library)
        groups.setdefault(shape, []).append(curve)
    found: list[Row] = []
    for key, same in groups.items():
        whole = [curve for curve in same if curve.collective == "all_reduce"]
        if whole:
            for curve in same:
                if curve.collective in HALVES:
                    found += _rows(str(key[0]), whole[0], curve)
    return found


def _rows(cluster: str, whole: Curve, curve: Curve) -> list[Row]:
    plain = PlainRing([whole])
    latency_s = curve.seconds[0] if curve.size_bytes[0] <= SMALL_BYTES else None
    alone_s = gathering_floor(
        floor(whole), whole.ranks, whole.nodes, call_seconds(whole), inside_share(whole)
    )
    first = 1 if latency_s is not None else 0
    return [
        Row(
            "other_collective",
            cluster,
            curve.name,
            size,
            seconds,
            sibling(whole, size, alone_s if latency_s is None else latency_s),
            plain.seconds(curve.collective, curve.ranks, size),
            {"all_reduce alone": sibling(whole, size, alone_s)},
        )
        for size, seconds in zip(curve.size_bytes[first:], curve.seconds[first:], strict=True)
        if whole.size_bytes[0] <= size <= whole.size_bytes[-1]
    ]
