"""What was measured of a network's collectives: the curve itself, or the law that carries it on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from perfsim.collectives import Hops, algorithm
from perfsim.data.catalog import shipped
from perfsim.data.tables import number, read_table
from perfsim.libraries import AUTO
from perfsim.network.measured import CollectiveCurve
from perfsim.network.scaling_laws import (
    FLOOR_BYTES,
    HALVES,
    SMALL_BYTES,
    ScalingLaw,
    call_seconds,
    extrapolate,
    floor,
    gathering_floor,
    half,
    inside_share,
)
from perfsim.network.tuner_fit import TunedChoice
from perfsim.quantity import SPREAD, Cost, Grade, Kind, Quantity, Term
from perfsim.units import format_bytes

__all__ = [
    "FILE",
    "GROWTH_ERRORS_COLUMNS",
    "GROWTH_ERRORS_SCHEMA",
    "MeasuredCollectives",
    "growth_error",
    "interpolation_error",
]

FILE = "networks/growth_errors.csv"
"""Written by ``python -m perfsim.validate.nccl.record``."""

GROWTH_ERRORS_SCHEMA = "perfsim/growth-errors/1"
GROWTH_ERRORS_COLUMNS = (
    "question",
    "ratio_up_to",
    "count",
    "median",
    "p90",
    "plain_median",
    "plain_p90",
)


@cache
def _errors() -> tuple[tuple[float, float], ...]:
    path = shipped() / FILE
    return tuple(
        (
            number(cells["ratio_up_to"], "ratio_up_to", path, row),
            number(cells["p90"], "p90", path, row, within=SPREAD),
        )
        for row, cells in read_table(path, GROWTH_ERRORS_SCHEMA, GROWTH_ERRORS_COLUMNS)
    )


def growth_error(ratio: float) -> float:
    """Return the relative 90 % half-width of a time carried to ``ratio`` times the ranks.

    The 90th percentile of the absolute relative errors that the same laws make on measured
    clusters; a ratio below 1 is as far as its inverse, 1 is another collective of the same ranks.
    """
    away = max(ratio, 1.0 / ratio)
    found = _errors()
    return next((p90 for most, p90 in found if away <= most), found[-1][1])


def interpolation_error() -> float:
    """Return the relative 90 % half-width of a time between two measured sizes.

    From every second size of measured curves, read between the others: half as dense as the
    curves themselves are, so an upper bound for them.
    """
    return _errors()[0][1]


USUAL = {
    "all_reduce": "ring",
    "reduce_scatter": "ring",
    "all_gather": "ring",
    "broadcast": "chain",
    "reduce": "chain",
    "all_to_all": "pairwise",
    "send_recv": "direct",
}
"""The algorithm whose bytes a GPU sends; a tree sends the same as a ring, mean over ranks."""


@dataclass(frozen=True, slots=True)
class MeasuredPlace:
    """A message on a cluster whose nodes are all as full."""

    collective: str
    ranks: int
    nodes: int
    gpus_per_node: int
    size_bytes: float


@dataclass
class MeasuredCollectives:
    """The curves of one network, and NCCL's tuner as they show it."""

    curves: tuple[CollectiveCurve, ...]
    tuner: TunedChoice | None = None

    def cost(
        self,
        collective: str,
        size_bytes: float,
        placement: Sequence[int],
        library: str = "nccl",
        held: Sequence[str] = ("",),
        protocol: str = AUTO,
        model: Callable[[float], float] | None = None,
    ) -> Cost | None:
        """Return the cost of a collective as far as measured curves tell it, else None.

        Of ranks that were measured the curve itself, inside its sizes; at other numbers of nodes
        of as many GPUs the law that carries it on; all_gather and reduce_scatter where only
        all_reduce was measured, from that. Uneven nodes other than those measured, and nodes of
        another size than any measured, are left to the links' formulas.

        Parameters
        ----------
        collective, size_bytes, placement : the message and the GPUs on each node
        library : nccl, gloo or mpi
        held : what a curve may have been held to: "" for the library's own choice, an algorithm
        protocol : as a curve was held to, or ``auto``
        model : the links' time by size, which goes on beyond a curve's sizes in proportion
        """
        ranks, nodes, gpus = sum(placement), len(placement), max(placement)
        if ranks < 2:
            return None
        place = MeasuredPlace(collective, ranks, nodes, gpus, size_bytes)
        even = ranks == nodes * gpus
        worded = "" if protocol == AUTO else protocol
        curves = [
            curve
            for curve in self.curves
            if (curve.library, curve.protocol) == (library, worded)
            and curve.algorithm in held
            and (curve.nodes == 1) == (nodes == 1)
            and (nodes == 1 or curve.gpus_per_node == gpus)
            and even == (curve.ranks == curve.nodes * curve.gpus_per_node)
        ]
        if not even or (worded and held == ("",)):
            # No law carries uneven nodes, nor a tuner that chooses though held to a protocol.
            curves = [c for c in curves if (c.ranks, c.nodes) == (ranks, nodes)]
        curves.sort(key=lambda curve: held.index(curve.algorithm))
        return (
            self._own(place, curves, model)
            or self._twin(place, curves)
            or self._from_all_reduce(place, curves)
        )

    def measured(self, placement: Sequence[int]) -> bool:
        """Say whether any collective was measured on just these nodes."""
        shape = (sum(placement), len(placement), max(placement))
        return any((c.ranks, c.nodes, c.gpus_per_node) == shape for c in self.curves)

    def _own(
        self,
        place: MeasuredPlace,
        curves: Sequence[CollectiveCurve],
        model: Callable[[float], float] | None = None,
    ) -> Cost | None:
        same = [curve for curve in curves if curve.collective == place.collective]
        for curve in same:
            if (curve.ranks, curve.nodes) == (place.ranks, place.nodes):
                return _exact(place, curve, model)
        if not same:
            return None
        growth = self._growth([c for c in same if c.algorithm == same[0].algorithm])
        seconds = growth.seconds(place.ranks, place.nodes, place.size_bytes)
        last = growth.last
        ratio = place.ranks / last.ranks
        how = growth.choice(place.ranks, place.nodes, place.size_bytes)
        return _cost(place, seconds, last, "fitted", growth_error(ratio), True, how)

    def _twin(self, place: MeasuredPlace, curves: Sequence[CollectiveCurve]) -> Cost | None:
        """Return a reduce_scatter as the all_gathers tell it, or the other way round.

        Both take P-1 steps of n / P; what the sum adds is within the error of one for the other.
        """
        if place.collective not in HALVES:
            return None
        other = next(name for name in HALVES if name != place.collective)
        found = self._own(replace(place, collective=other), curves)
        if found is None:
            return None
        (term,) = found.terms
        error = max(found.spread or 0.0, growth_error(1.0))
        source = f"{term.quantity.source}, {place.collective} taken as {other}"
        quantity = term.quantity._replace(kind="fitted", source=source, spread=error)
        name = term.term.replace(other, place.collective, 1)
        terms = (Term(name, quantity, term.extrapolated),)
        return found._replace(spread=error, terms=terms)

    def _from_all_reduce(
        self, place: MeasuredPlace, curves: Sequence[CollectiveCurve]
    ) -> Cost | None:
        """Return an all_gather or reduce_scatter as the all_reduces of the cluster tell it."""
        whole = [curve for curve in curves if curve.collective == "all_reduce"]
        if place.collective not in HALVES or not whole:
            return None
        growth = self._growth(whole)
        there = growth.measured(place.ranks, place.nodes)
        nearest = there or growth.last
        ratio = place.ranks / nearest.ranks
        error = growth_error(ratio)
        exact = there is not None and there.inside(place.size_bytes)
        time_s = growth.seconds(place.ranks, place.nodes, place.size_bytes)
        if nearest.size_bytes[0] > SMALL_BYTES:
            return _cost(place, time_s / 2.0, nearest, "fitted", error, not exact)
        floor_s = (
            growth.seconds(place.ranks, place.nodes, FLOOR_BYTES) if there is None else floor(there)
        )
        latency_s = gathering_floor(
            floor_s, place.ranks, place.nodes, growth.call_s, inside_share(nearest)
        )
        found_s = half(time_s, floor_s, latency_s)
        return _cost(place, found_s, nearest, "fitted", error, not exact)

    def _growth(self, curves: Sequence[CollectiveCurve]) -> ScalingLaw:
        return _scaling_law(tuple(curves), self.tuner)


@lru_cache(maxsize=256)  # of measured numbers alone: it cannot go stale
def _scaling_law(curves: tuple[CollectiveCurve, ...], tuner: TunedChoice | None) -> ScalingLaw:
    return ScalingLaw(curves, tuner)


def _exact(
    place: MeasuredPlace, curve: CollectiveCurve, model: Callable[[float], float] | None
) -> Cost:
    """Return what a curve says of its own ranks; beyond its sizes in proportion to the model."""
    size = place.size_bytes
    spread: float | None = interpolation_error() if curve.spread is None else curve.spread
    if curve.inside(size):
        return _cost(place, curve.at(size), curve, curve.kind, spread, False)
    edge = curve.size_bytes[0] if size < curve.size_bytes[0] else curve.size_bytes[-1]
    if model is None or model(edge) <= 0:
        seconds = extrapolate(curve, size)
    else:
        seconds = max(curve.at(edge) * model(size) / model(edge), call_seconds(curve))
    untold = size < edge and edge > SMALL_BYTES  # no message was small enough to show a latency
    spread = None if untold else max(spread or 0.0, growth_error(size / edge))
    way = f", beyond {format_bytes(edge, 3)} in proportion to the links' formula"
    return _cost(place, seconds, curve, "fitted", spread, True, way)


def _cost(
    place: MeasuredPlace,
    seconds: float,
    curve: CollectiveCurve,
    kind: Kind,
    spread: float | None,
    extrapolated: bool,
    how: str = "",
) -> Cost:
    wire_s = place.size_bytes * curve.seconds[-1] / curve.size_bytes[-1]
    hops = Hops(place.ranks, place.nodes, place.gpus_per_node, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    sent = algorithm(place.collective, USUAL[place.collective]).sent(place.size_bytes, hops)
    carried = (curve.ranks, curve.nodes) != (place.ranks, place.nodes)
    other = curve.collective != place.collective
    way = f", carried from {curve.name}{how}" if carried or other else how
    quantity = Quantity(
        seconds,
        "s",
        kind,
        f"{curve.source}{way}",
        spread,
        curve.size_bytes[0],
        curve.size_bytes[-1],
    )
    name = f"{place.collective} on {place.ranks} GPUs at {format_bytes(place.size_bytes, 3)}"
    latency_s = max(0.0, seconds - wire_s)
    terms = (Term(name, quantity, extrapolated),)
    grade: Grade = "carried" if extrapolated else "measured"
    return Cost(seconds, latency_s, sent, spread, terms, grade)
