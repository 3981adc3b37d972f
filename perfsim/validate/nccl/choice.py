"""Ring or tree: which of the two is faster, on curves measured with each held fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from perfsim.calibrate.knots import fit_curve
from perfsim.libraries.nccl import NcclTuner
from perfsim.network.measured import CollectiveCurve
from perfsim.network.tuner_fit import communicator
from perfsim.validate.nccl.row import NcclRow

__all__ = ["LIMITS", "QUESTION", "predict_rows"]

QUESTION = (
    "fit ring and tree on every other size, name the faster at the sizes between where they"
    " differ by more than 10 %"
)

LIMITS = {"choice": {"right": 0.90}}

_MIN_DIFFERENCE = 0.10

_BOTH = ("ring", "tree")


def predict_rows(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[NcclRow]:
    """Name the faster of ring and tree at each size where they differ; measured is the faster.

    ``predicted_s`` is the measured time of the algorithm named, so its error is the regret;
    ``plain_s`` that of the ring, always; ``others`` that of what NCCL's own tuner takes.
    """
    rows: list[NcclRow] = []
    for cluster, ring, tree in _pairs(curves):
        fits = {
            of: fit_curve(_half(one)).curve for of, one in zip(_BOTH, (ring, tree), strict=True)
        }
        tuner = _tuner(ring)
        for size in ring.size_bytes[1::2]:
            if not (tree.inside(size) and all(fit.inside(size) for fit in fits.values())):
                continue
            times = {"ring": ring.at(size), "tree": tree.at(size)}
            best = min(times.values())
            if max(times.values()) <= best * (1.0 + _MIN_DIFFERENCE):
                continue
            named = min(_BOTH, key=lambda name: fits[name].at(size))
            taken = tuner.choose("all_reduce", size).algorithm
            rows.append(
                NcclRow(
                    "choice",
                    cluster,
                    ring.name,
                    size,
                    best,
                    times[named],
                    times["ring"],
                    {"NCCL's tuner": times.get(taken, times["ring"])},
                )
            )
    return rows


def _half(curve: CollectiveCurve) -> CollectiveCurve:
    return replace(curve, size_bytes=curve.size_bytes[::2], seconds=curve.seconds[::2])


def _tuner(ring: CollectiveCurve) -> NcclTuner:
    known = communicator(ring)
    rate = 2.0 * (ring.ranks - 1) / ring.ranks * ring.size_bytes[-1] / ring.seconds[-1]
    return NcclTuner(
        known.version,
        ring.ranks,
        ring.nodes,
        known.architecture,
        "intel",
        known.intra,
        rate / 1e9,
        1,
    )


def _pairs(
    curves: Sequence[tuple[str, CollectiveCurve]],
) -> Iterator[tuple[str, CollectiveCurve, CollectiveCurve]]:
    """Return pairs of all-reduces that differ in the algorithm alone, which was held fixed."""
    groups: dict[tuple[object, ...], dict[str, tuple[str, CollectiveCurve]]] = {}
    for cluster, curve in curves:
        if curve.collective == "all_reduce" and curve.algorithm in _BOTH:
            key = (
                curve.ranks,
                curve.nodes,
                curve.gpu,
                curve.fabric,
                curve.library,
                curve.version,
                curve.protocol,
            )
            groups.setdefault(key, {}).setdefault(curve.algorithm, (cluster, curve))
    for both in groups.values():
        if len(both) == len(_BOTH):
            yield both["ring"][0], both["ring"][1], both["tree"][1]
