"""Collectives from the data sheet of the nodes alone, with each cluster's family left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import law_without, node_law
from perfsim.validate.nccl.row import NcclRow, PlainRing
from perfsim.validate.node_clusters import MeasuredNodes, measured_nodes

__all__ = ["LIMITS", "QUESTION", "predict_rows"]

QUESTION = (
    "predict clusters from the data sheet of their nodes, by numbers fitted without any cluster of"
    " that machine or kind; data_sheet_modern are all-reduces from 1 MiB on nodes of 8 Hopper or"
    " Blackwell GPUs"
)

LIMITS = {
    "data_sheet": {"median": 0.21, "p90": 0.52},
    "data_sheet_modern": {"median": 0.11, "p90": 0.28},
}

_MODERN = ("hopper", "blackwell")
_MODERN_BYTES = 2.0**20
_MODERN_GPUS = 8


def predict_rows(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[NcclRow]:
    """Predict every size of each curve whose cluster states what its data sheet would.

    ``others`` holds the prediction with numbers fitted on all clusters.
    """
    known = measured_nodes()
    rows: list[NcclRow] = []
    for cluster, curve in curves:
        nodes = known.get(cluster)
        held = curve.library not in ("nccl", "rccl") or curve.protocol
        if nodes is not None and nodes.stated and curve.ranks > 1 and not held:
            rows += _rows(cluster, curve, nodes)
    return rows


def _rows(cluster: str, curve: CollectiveCurve, nodes: MeasuredNodes) -> list[NcclRow]:
    plain = PlainRing([curve])
    rows = [
        NcclRow(
            "data_sheet",
            cluster,
            curve.name,
            size,
            seconds,
            nodes.seconds(law_without(nodes.family), curve, size),
            plain.seconds(curve.collective, curve.ranks, size),
            {"not left out": nodes.seconds(node_law(), curve, size)},
            curve.collective,
        )
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True)
    ]
    modern = nodes.facts.generation in _MODERN and curve.gpus_per_node == _MODERN_GPUS
    if modern and curve.collective == "all_reduce" and nodes.facts.inside.startswith("nvlink"):
        rows += [
            replace(row, question="data_sheet_modern", collective="")
            for row in rows
            if row.size_bytes >= _MODERN_BYTES
        ]
    return rows
