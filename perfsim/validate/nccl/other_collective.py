"""Other collectives from all-reduce: all_gather and reduce_scatter of the same cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfsim.collectives import HALVES
from perfsim.network.gathering import Gathering, NodeSheet
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import law_without
from perfsim.network.scaling_laws import SMALL_BYTES, ScalingLaw
from perfsim.validate.nccl.row import NcclRow, PlainRing
from perfsim.validate.node_clusters import measured_nodes

__all__ = ["LIMITS", "QUESTION", "predict_rows"]

QUESTION = (
    "fit on all_reduce and the smallest message measured (not scored), predict all_gather and"
    " reduce_scatter of the same ranks"
)

LIMITS = {"other_collective": {"median": 0.08, "p90": 0.32}}


def predict_rows(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[NcclRow]:
    """Predict every size but the smallest of each all_gather and reduce_scatter.

    ``others`` holds the prediction from all_reduce alone, without the small message, and the same
    two without the data sheet of the nodes. The data sheet counts where the cluster's source states
    it, with numbers of the law of node types that were fitted without the cluster's family.
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
    plain, latency_s = PlainRing([whole]), None
    if curve.size_bytes[0] <= SMALL_BYTES:
        latency_s = curve.seconds[0]
    nodes = measured_nodes().get(whole.series)
    sheet = None
    if nodes is not None and nodes.stated:
        sheet = NodeSheet(nodes.of(whole), law_without(nodes.family))
        whole = replace(whole, algorithm=whole.algorithm or nodes.algorithm)
    growth = ScalingLaw([whole])

    def half(sheet: NodeSheet | None, latency_s: float | None) -> Gathering:
        return Gathering(growth, curve.collective, curve.ranks, curve.nodes, sheet, latency_s)

    predicted = half(sheet, latency_s)
    others = {
        "all_reduce alone": half(sheet, None),
        "no data sheet": half(None, latency_s),
        "neither": half(None, None),
    }
    first = 1 if latency_s is not None else 0
    return [
        NcclRow(
            "other_collective",
            cluster,
            curve.name,
            size,
            seconds,
            predicted.seconds(size),
            plain.seconds(curve.collective, curve.ranks, size),
            {name: other.seconds(size) for name, other in others.items()},
        )
        for size, seconds in zip(curve.size_bytes[first:], curve.seconds[first:], strict=True)
        if whole.size_bytes[0] <= size <= whole.size_bytes[-1]
    ]
