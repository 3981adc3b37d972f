"""Ring or tree: which of the two is faster, on curves measured with each held fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from perfsim.calibrate.knots import fit_curve
from perfsim.libraries.nccl import NcclTuner
from perfsim.network.measured import CollectiveCurve
from perfsim.network.tuner_fit import communicator
from perfsim.validate.nccl.row import NcclRow

__all__ = ["LIMITS", "QUESTION", "rows"]

QUESTION = (
    "fit ring and tree on every other size, name the faster at the sizes between where they"
    " differ by more than 10 %"
)

LIMITS = {"choice": {"right": 0.90}}

_MIN_DIFFERENCE = 0.10

_BOTH = ("ring", "tree")


def rows(curves: Sequence[tuple[str, CollectiveCurve]]) -> list[NcclRow]:
    """Return a row a size where ring and tree differ: measured is the better of the two.

    ``predicted_s`` is the measured time of the algorithm named, so its error is the regret;
    ``plain_s`` that of the ring, always; ``others`` that of what NCCL's own tuner takes.
    """
    found: list[NcclRow] = []
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
            named = min(_BOTH, key=lambda of: fits[of].at(size))
            taken = tuner.choose("all_reduce", size).algorithm
            found.append(
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
    return found


def _half(curve: CollectiveCurve) -> CollectiveCurve:
    return replace(curve, size_bytes=curve.size_bytes[::2], seconds=curve.seconds[::2])


def _tuner(ring: CollectiveCurve) -> NcclTuner:
    of = communicator(ring)
    rate = 2.0 * (ring.ranks - 1) / ring.ranks * ring.size_bytes[-1] / ring.seconds[-1]
    return NcclTuner(
        of.version, ring.ranks, ring.nodes, of.architecture, "intel", of.intra, rate / 1e9, 1
    )


def _pairs(
    curves: Sequence[tuple[str, CollectiveCurve]],
) -> Iterator[tuple[str, CollectiveCurve, CollectiveCurve]]:
    """Return all-reduces of the same ranks, software and network, ring and tree held fixed."""
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
