"""The cost of a collective from what was measured on the network.

Ranks that were measured take their curve. Other numbers of nodes take the scaling law that the
curves follow. Each cost has the error that such a step made where measurements could check it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from perfsim.collectives import HALVES, Hops, find_algorithm
from perfsim.data.catalog import shipped
from perfsim.data.tables import cell_number, read_table
from perfsim.libraries import AUTO
from perfsim.network.gathering import Gathering, NodeSheet
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_extrapolation import extrapolate_nodes
from perfsim.network.node_law import ALL, NodeFacts, band_of, node_error, node_law
from perfsim.network.scaling_laws import (
    SMALL_BYTES,
    ScalingLaw,
    call_seconds,
    extrapolate,
)
from perfsim.network.tuner_fit import TunedChoice
from perfsim.quantity import SPREAD_LIMIT, Cost, Grade, Kind, Quantity, Term
from perfsim.units import format_bytes

__all__ = [
    "GROWTH_ERRORS_COLUMNS",
    "GROWTH_ERRORS_FILE",
    "GROWTH_ERRORS_SCHEMA",
    "SENT_AS",
    "MeasuredCollectives",
    "growth_error",
    "growth_errors",
    "interpolation_error",
    "other_collective_error",
]

GROWTH_ERRORS_FILE = "networks/growth_errors.csv"
"""Errors of the scaling laws; ``python profiles/build/growth_errors.py`` writes it."""

GROWTH_ERRORS_SCHEMA = "perfsim/growth-errors/2"
GROWTH_ERRORS_COLUMNS = (
    *("question", "ratio_up_to", "band", "count", "median", "p90"),
    *("half_width_ln", "coverage", "plain_median", "plain_p90"),
)


@cache
def growth_errors() -> dict[str, tuple[tuple[float, float], ...]]:
    """Read errors of extrapolated times: band of sizes -> (ratio of ranks up to, half-width in ln).

    It is read once a process, with the other files of a cluster.
    """
    path = shipped() / GROWTH_ERRORS_FILE
    found: dict[str, tuple[tuple[float, float], ...]] = {}
    for row, cells in read_table(path, GROWTH_ERRORS_SCHEMA, GROWTH_ERRORS_COLUMNS):
        ratio = cell_number(cells["ratio_up_to"], "ratio_up_to", path, row)
        width = cell_number(cells["half_width_ln"], "half_width_ln", path, row, within=SPREAD_LIMIT)
        found[cells["band"]] = (*found.get(cells["band"], ()), (ratio, width))
    return found


def growth_error(ratio: float, size_bytes: float | None = None) -> float:
    """Return the 90 % half-width, in ln, of a time extrapolated to ``ratio`` times the ranks.

    It is a percentile of the errors of the same laws on measured clusters, for messages of that
    band of sizes (of all sizes without ``size_bytes``), and no less than that of a shorter way.
    A ratio below 1 counts as its inverse.
    """
    factor = max(ratio, 1.0 / ratio)
    further = [row for row in _widths(size_bytes) if row[0] > _SAME_RANKS]
    upper = next((most for most, _ in further if factor <= most), further[-1][0])
    return max(width for most, width in further if most <= upper)


def other_collective_error(size_bytes: float | None = None) -> float:
    """Return the 90 % half-width, in ln, of a gather or scatter made of an all_reduce's time.

    It is that on the same ranks, where no small message of the collective was measured.
    """
    return next(width for most, width in _widths(size_bytes) if most == _SAME_RANKS)


_SAME_RANKS = 1.0
"""The ratio at which the table has the errors of one collective made of another."""
_TWIN_ERROR = 0.17
"""90 % half-width, in ln, of a reduce_scatter taken from an all_gather or the other way round.

Source: 330 sizes at which both were measured, 8 families of clusters; 0.22, 0.18 and 0.18 of small,
middle and large messages (``profiles/build/growth_errors.py --twins``)."""


def interpolation_error(size_bytes: float | None = None) -> float:
    """Return the 90 % half-width, in ln, of a time between two measured sizes.

    Every second size of measured curves was read between the others. These are half as dense as
    the curves themselves, so it is an upper bound.
    """
    return _widths(size_bytes)[0][1]


def _widths(size_bytes: float | None) -> tuple[tuple[float, float], ...]:
    """Return ratios of ranks with half-widths for a band of sizes, or for all sizes."""
    return growth_errors()[ALL if size_bytes is None else band_of(size_bytes)]


_APART_ON_TWO_RANKS = {"gloo": "all_gather"}
"""By library, a collective that takes another time on two ranks than their ring on more shows.

gloo's all_gather (gloo/allgather.cc) sends each block in two segments, and posts a send before the
receive beside it. On two ranks both use one connection. So the rank that comes later sends its
first segment before the notices that its peer waits for, and the peer begins one segment later:
1.5 times what the bytes take, or 1.0 where both come at once. On more ranks the notices go to
another rank than the segments."""

SENT_AS = {
    "all_reduce": "ring",
    "reduce_scatter": "ring",
    "all_gather": "ring",
    "broadcast": "chain",
    "reduce": "chain",
    "all_to_all": "pairwise",
    "send_recv": "direct",
}
"""The algorithm that says what a GPU sends; a tree sends as much as a ring, in the mean."""


class MessageOnRanks(NamedTuple):
    """A collective, its message and the ranks that take part."""

    collective: str
    ranks: int
    nodes: int
    gpus_per_node: int
    size_bytes: float


@dataclass
class MeasuredCollectives:
    """The curves of one network, NCCL's tuner as they show it, and the data sheet of its nodes."""

    curves: tuple[CollectiveCurve, ...]
    tuner: TunedChoice | None = None
    facts: NodeFacts | None = None

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
        """Return the cost of a collective that measured curves give, None where they give none.

        - Ranks that were measured take their curve.
        - Other numbers of nodes, with as many GPUs each, take the scaling law of the curves.
        - all_gather and reduce_scatter follow from each other, or else from all_reduce; before a
          curve of two ranks where that shows no law (gloo's all_gather).

        Uneven nodes other than those measured, and nodes of a size that was not measured, are left
        to the links' formulas.

        Parameters
        ----------
        collective, size_bytes, placement : the message and the GPUs on each node
        library : nccl, rccl, gloo or mpi
        held : algorithms that a curve may have been held to; "" is the library's own choice
        protocol : the one that a curve was held to, or ``auto``
        model : the links' time by size; beyond a curve's sizes the time grows in its proportion
        """
        ranks, nodes, gpus = sum(placement), len(placement), max(placement)
        if ranks < 2:
            return None
        message = MessageOnRanks(collective, ranks, nodes, gpus, size_bytes)
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
            # No law holds for uneven nodes, or for a choice of algorithm under a fixed protocol.
            curves = [c for c in curves if (c.ranks, c.nodes) == (ranks, nodes)]
        curves.sort(key=lambda curve: held.index(curve.algorithm))
        apart = collective == _APART_ON_TWO_RANKS.get(library) and ranks > 2
        if apart and all(c.ranks == 2 for c in curves if c.collective == collective):
            found = self._from_all_reduce(message, curves, model)
            if found is not None:
                return found
        return (
            self._own(message, curves, model)
            or self._twin(message, curves)
            or self._from_all_reduce(message, curves, model)
        )

    def measured(self, placement: Sequence[int]) -> bool:
        """Tell whether a collective was measured on just these nodes."""
        shape = (sum(placement), len(placement), max(placement))
        return any((c.ranks, c.nodes, c.gpus_per_node) == shape for c in self.curves)

    def _own(
        self,
        message: MessageOnRanks,
        curves: Sequence[CollectiveCurve],
        model: Callable[[float], float] | None = None,
    ) -> Cost | None:
        same = [curve for curve in curves if curve.collective == message.collective]
        for curve in same:
            if (curve.ranks, curve.nodes) == (message.ranks, message.nodes):
                return _exact(message, curve, model)
        if not same:
            return None
        law = self._growth([c for c in same if c.algorithm == same[0].algorithm])
        last = law.last
        ratio = message.ranks / last.ranks
        even = message.ranks == message.nodes * message.gpus_per_node
        facts = self.facts if even and message.nodes > 1 else None
        if facts is None:
            seconds = law.seconds(message.ranks, message.nodes, message.size_bytes)
            by_node_type = False
        else:
            seconds, by_node_type = extrapolate_nodes(
                law, facts, node_law(), message.nodes, message.size_bytes
            )
        if facts is not None and by_node_type:
            how = " by the data sheet of its nodes"
            error = node_error(facts, message.nodes, message.size_bytes)
        else:
            how = law.choice(message.ranks, message.nodes, message.size_bytes)
            error = growth_error(ratio, message.size_bytes)
        return _cost(message, seconds, last, "fitted", error, True, how)

    def _twin(self, message: MessageOnRanks, curves: Sequence[CollectiveCurve]) -> Cost | None:
        """Return the cost of a reduce_scatter from all_gathers, or the other way round.

        Both take P-1 steps of n / P. What the sum adds is less than the error of doing so.
        """
        if message.collective not in HALVES:
            return None
        other = next(name for name in HALVES if name != message.collective)
        cost = self._own(message._replace(collective=other), curves)
        if cost is None:
            return None
        (term,) = cost.terms
        error = max(cost.spread or 0.0, _TWIN_ERROR)
        source = f"{term.quantity.source}, {message.collective} taken as {other}"
        quantity = term.quantity._replace(kind="fitted", source=source, spread=error)
        name = term.term.replace(other, message.collective, 1)
        terms = (Term(name, quantity, term.extrapolated),)
        return cost._replace(spread=error, terms=terms)

    def _from_all_reduce(
        self,
        message: MessageOnRanks,
        curves: Sequence[CollectiveCurve],
        model: Callable[[float], float] | None = None,
    ) -> Cost | None:
        """Return the cost of an all_gather or reduce_scatter from all_reduces of the cluster.

        Below all_reduces of large messages alone the time shrinks in proportion to ``model``, where
        no data sheet of the nodes tells a latency.
        """
        whole = [curve for curve in curves if curve.collective == "all_reduce"]
        if message.collective not in HALVES or not whole:
            return None
        even = message.ranks == message.nodes * message.gpus_per_node
        facts = self.facts if even else None
        half = _gathering(
            tuple(whole), self.tuner, facts, message.collective, message.ranks, message.nodes
        )
        nearest, inside = half.nearest, half.measured and half.nearest.inside(message.size_bytes)
        ratio = message.ranks / nearest.ranks
        first = nearest.size_bytes[0]
        if facts is None and not half.shows_latency and message.size_bytes < first:
            first_s = half.seconds(first)
            shrunk_s = _in_proportion(nearest, first, first_s, message.size_bytes, model)
            if shrunk_s is not None:
                return _cost(message, shrunk_s, nearest, "fitted", None, True, _beyond(first))
        error = other_collective_error(message.size_bytes)
        if ratio != 1.0:
            error = max(error, growth_error(ratio, message.size_bytes))
        seconds = half.seconds(message.size_bytes)
        return _cost(message, seconds, nearest, "fitted", error, not inside)

    def _growth(self, curves: Sequence[CollectiveCurve]) -> ScalingLaw:
        return _scaling_law(tuple(curves), self.tuner)


@lru_cache(maxsize=256)  # of measured numbers alone: it cannot go stale
def _scaling_law(curves: tuple[CollectiveCurve, ...], tuner: TunedChoice | None) -> ScalingLaw:
    return ScalingLaw(curves, tuner)


@lru_cache(maxsize=256)  # of measured numbers and data sheets alone: it cannot go stale
def _gathering(
    curves: tuple[CollectiveCurve, ...],
    tuner: TunedChoice | None,
    facts: NodeFacts | None,
    collective: str,
    ranks: int,
    nodes: int,
) -> Gathering:
    sheet = None if facts is None else NodeSheet(facts, node_law())
    return Gathering(_scaling_law(curves, tuner), collective, ranks, nodes, sheet)


def _exact(
    message: MessageOnRanks, curve: CollectiveCurve, model: Callable[[float], float] | None
) -> Cost:
    """Return the cost on a curve's own ranks; beyond its sizes it grows as ``model`` does."""
    size = message.size_bytes
    spread = interpolation_error(size) if curve.spread is None else curve.spread
    if curve.inside(size):
        return _cost(message, curve.at(size), curve, curve.kind, spread, False)
    edge = curve.size_bytes[0] if size < curve.size_bytes[0] else curve.size_bytes[-1]
    seconds = _in_proportion(curve, edge, curve.at(edge), size, model)
    if seconds is None:
        seconds = extrapolate(curve, size)
    no_latency = size < edge and edge > SMALL_BYTES  # no message was small enough to show one
    known = None if no_latency else max(spread, growth_error(size / edge, size))
    return _cost(message, seconds, curve, "fitted", known, True, _beyond(edge))


def _in_proportion(
    curve: CollectiveCurve,
    edge: float,
    edge_s: float,
    size_bytes: float,
    model: Callable[[float], float] | None,
) -> float | None:
    """Return a time beyond the edge of a curve, in proportion to ``model`` and no less than a call.

    It is None where no model tells the time at the edge.
    """
    if model is None or model(edge) <= 0:
        return None
    return max(edge_s * model(size_bytes) / model(edge), call_seconds(curve))


def _beyond(edge: float) -> str:
    return f", beyond {format_bytes(edge, 3)} in proportion to the links' formula"


def _cost(
    message: MessageOnRanks,
    seconds: float,
    curve: CollectiveCurve,
    kind: Kind,
    spread: float | None,
    extrapolated: bool,
    how: str = "",
) -> Cost:
    wire_s = message.size_bytes * curve.seconds[-1] / curve.size_bytes[-1]
    hops = Hops(message.ranks, message.nodes, message.gpus_per_node, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    sent = find_algorithm(message.collective, SENT_AS[message.collective]).sent_bytes(
        message.size_bytes, hops
    )
    other_ranks = (curve.ranks, curve.nodes) != (message.ranks, message.nodes)
    other = curve.collective != message.collective
    way = f", extrapolated from {curve.name}{how}" if other_ranks or other else how
    quantity = Quantity(
        seconds,
        "s",
        kind,
        f"{curve.source}{way}",
        spread,
        curve.size_bytes[0],
        curve.size_bytes[-1],
    )
    name = f"{message.collective} on {message.ranks} GPUs at {format_bytes(message.size_bytes, 3)}"
    latency_s = max(0.0, seconds - wire_s)
    terms = (Term(name, quantity, extrapolated),)
    grade: Grade = "carried" if extrapolated else "measured"
    return Cost(seconds, latency_s, sent, spread, terms, grade)
