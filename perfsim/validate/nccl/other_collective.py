"""Other collectives from all-reduce: all_gather and reduce_scatter of the same cluster."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.network.measured import CollectiveCurve
from perfsim.network.scaling_laws import (
    HALVES,
    SMALL_BYTES,
    call_seconds,
    gathering_floor,
    half_of_all_reduce,
    inside_share,
    small_message_seconds,
)
from perfsim.validate.nccl.row import NcclRow, PlainRing

__all__ = ["LIMITS", "QUESTION", "predict_rows"]

QUESTION = (
    "fit on all_reduce and the smallest message measured (not scored), predict all_gather and"
    " reduce_scatter of the same ranks"
)

LIMITS = {"other_collective": {"median": 0.15}}


def predict_rows(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[NcclRow]:
    """Predict every size but the smallest of each all_gather and reduce_scatter.

    ``others`` holds the prediction from all_reduce alone, without the small message.
    """
    groups: dict[tuple[object, ...], list[CollectiveCurve]] = {}
    for cluster, curve in curves:
        shape = (cluster, curve.ranks, curve.nodes, curve.gpus_per_node, curve.library)
        groups.setdefault(shape, []).append(curve)
    rows: list[NcclRow] = []
    for key, same in groups.items():
        whole = [curve for curve in same if curve.collective == "all_reduce"]
        if whole:
            for curve in same:
                if curve.collective in HALVES:
                    rows += _rows(str(key[0]), whole[0], curve)
    return rows


def _rows(cluster: str, whole: CollectiveCurve, curve: CollectiveCurve) -> list[NcclRow]:
    plain = PlainRing([whole])
    latency_s = curve.seconds[0] if curve.size_bytes[0] <= SMALL_BYTES else None
    alone_s = gathering_floor(
        small_message_seconds(whole),
        whole.ranks,
        whole.nodes,
        call_seconds(whole),
        inside_share(whole),
    )
    first = 1 if latency_s is not None else 0
    return [
        NcclRow(
            "other_collective",
            cluster,
            curve.name,
            size,
            seconds,
            half_of_all_reduce(whole, size, alone_s if latency_s is None else latency_s),
            plain.seconds(curve.collective, curve.ranks, size),
            {"all_reduce alone": half_of_all_reduce(whole, size, alone_s)},
        )
        for size, seconds in zip(curve.size_bytes[first:], curve.seconds[first:], strict=True)
        if whole.size_bytes[0] <= size <= whole.size_bytes[-1]
    ]
