"""More nodes: a cluster's larger node counts predicted from its smaller ones, or from two nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from perfsim.calibrate.knots import fit_curve
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_extrapolation import extrapolate_nodes
from perfsim.network.node_law import law_without
from perfsim.network.scaling_laws import ScalingLaw, extrapolate
from perfsim.validate.nccl.row import NcclRow, PlainRing
from perfsim.validate.node_clusters import measured_nodes

__all__ = ["LIMITS", "QUESTION", "larger_targets", "predict_rows"]

QUESTION = (
    "fit on the smaller node counts of a cluster, predict larger ones; two_nodes (2x: four nodes,"
    " 4x: up to eight) are those fitted on two nodes alone"
)

LIMITS = {
    "scale_2x": {"median": 0.12, "p90": 0.45, "median above": 0.08},
    "scale_4x": {"median": 0.18},
    "scale_beyond": {"median": 0.30},
    "two_nodes_2x": {"median": 0.12, "p90": 0.50},
    "two_nodes_4x": {"median": 0.13, "p90": 0.50},
    "two_nodes": {"median": 0.15, "p90": 0.55},
}

_TWO_NODES = {"scale_2x": "two_nodes_2x", "scale_4x": "two_nodes_4x"}
"""Questions that are asked once more of the rows fitted on two nodes alone."""


def larger_targets(
    curves: Sequence[tuple[str, CollectiveCurve]],
) -> Iterator[tuple[str, list[CollectiveCurve], CollectiveCurve, float]]:
    """Return (cluster, curves of the nodes fitted, the curve to predict, ratio of nodes).

    Fitted are all curves of the cluster with at most C nodes, for every C measured below the
    target's number and at least 2: one node shows nothing of the network.
    """
    groups: dict[tuple[object, ...], list[CollectiveCurve]] = {}
    for cluster, curve in curves:
        if curve.nodes > 1:
            held = (curve.library, curve.algorithm, curve.protocol)
            shape = (cluster, curve.collective, curve.gpus_per_node, *held)
            groups.setdefault(shape, []).append(curve)
    for key, alike in groups.items():
        counts = sorted({curve.nodes for curve in alike})
        for target in alike:
            for largest in counts:
                if largest < target.nodes:
                    fitted = [curve for curve in alike if curve.nodes <= largest]
                    yield str(key[0]), fitted, target, target.nodes / largest


def predict_rows(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[NcclRow]:
    """Predict every size of every larger node count, inside the sizes fitted.

    ``others`` holds the largest curve unchanged; the scaling law alone, without the data sheet of
    the nodes; and the scaling law on the fitted knots of the curves: all that ships of a network
    whose licence does not allow its points. The data sheet counts where the cluster's source states
    it, with numbers of the law of node types that were fitted without the cluster's family.
    """
    rows: list[NcclRow] = []
    knots: dict[CollectiveCurve, CollectiveCurve] = {}
    for cluster, fitted, target, ratio in larger_targets(curves):
        growth, plain = ScalingLaw(fitted), PlainRing(fitted)
        last = growth.last
        for curve in fitted:
            if curve not in knots:
                knots[curve] = fit_curve(curve).curve
        from_knots = ScalingLaw([knots[curve] for curve in fitted])
        question = "scale_2x" if ratio <= 2 else "scale_4x" if ratio <= 4 else "scale_beyond"
        low = min(curve.size_bytes[0] for curve in fitted)
        high = max(curve.size_bytes[-1] for curve in fitted)
        what = f"{target.collective}, {last.nodes} to {target.nodes} nodes"
        nodes = measured_nodes().get(last.series)
        known = nodes is not None and nodes.stated
        facts, law = (
            (nodes.of(last), law_without(nodes.family)) if known and nodes else (None, None)
        )
        for size, seconds in zip(target.size_bytes, target.seconds, strict=True):
            if not low <= size <= high:
                continue
            row = NcclRow(
                question,
                cluster,
                what,
                size,
                seconds,
                extrapolate_nodes(growth, facts, law, target.nodes, size).seconds,
                plain.seconds(target.collective, target.ranks, size),
                {
                    "unchanged": extrapolate(last, size),
                    "scaling law alone": growth.seconds(target.ranks, target.nodes, size),
                    "from fitted knots": from_knots.seconds(target.ranks, target.nodes, size),
                },
                target.collective,
            )
            rows.append(row)
            if last.nodes == 2:
                asked = (_TWO_NODES[question],) if question in _TWO_NODES else ()
                rows += [replace(row, question=one) for one in (*asked, "two_nodes")]
    return rows
