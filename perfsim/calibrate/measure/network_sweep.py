"""The sweep itself: every collective, group and size until its median is known or time is up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from perfsim.calibrate.measure.launch import Launch, find_launch
from perfsim.calibrate.measure.rendezvous import open_journal, same_request
from perfsim.calibrate.measure.repeats import (
    Backend,
    NetworkJournal,
    NetworkPoint,
    RankGroup,
    groups,
    guard,
    half_width,
    settled,
)
from perfsim.calibrate.network_fit import curve_order
from perfsim.calibrate.write_network import MadeNetwork, check_name, make_network
from perfsim.errors import DataError, unknown
from perfsim.network.measured import CollectiveCurve

__all__ = [
    "BACKENDS",
    "NetworkRequest",
    "SweepRequest",
    "SweepRule",
    "asked",
    "curves_of",
    "measure_network",
    "sizes",
    "sweep",
]

KNOWN = 10.0
"""A point repeated fewer times than tell a spread has an infinite one."""


def curves_of(
    points: Sequence[NetworkPoint], wire: Backend, about: Mapping[str, Any]
) -> list[CollectiveCurve]:
    """Return the curves of measured points, one a collective and group, sizes rising."""
    grouped: dict[tuple[str, int, int, int], list[NetworkPoint]] = {}
    for point in sorted(points, key=lambda one: one.size_bytes):
        shape = (point.collective, point.ranks, point.nodes, point.gpus_per_node)
        grouped.setdefault(shape, []).append(point)
    return [
        CollectiveCurve(
            collective,
            ranks,
            nodes,
            gpus,
            tuple(float(point.size_bytes) for point in of),
            tuple(point.median_s for point in of),
            "measured",
            f"perfsim calibrate network, {date.today().isoformat()}",
            spread=_spread(of),
            algorithm=wire.held if collective == "all_reduce" else "",
            library=wire.library,
            version=wire.version,
            gpu=wire.device,
            fabric=str(about["interface"]),
        )
        for (collective, ranks, nodes, gpus), of in grouped.items()
    ]


def _spread(points: Sequence[NetworkPoint]) -> float | None:
    known = sorted(point.spread for point in points if point.spread < KNOWN)
    return known[len(known) // 2] if known else None


PAIRS = frozenset({"send_recv"})
"""Collectives of two ranks."""

FIRST = 10
"""Repeats between two looks at the interval, where calls are short."""


FALLS = 1.1
WIDE = 0.10
BUMP = 1.04
"""A time so much above the next larger size's, repeats so far apart, or a time so much above the
straight line between its neighbours' (latency, rate and a burst let through make no such bump),
are looked at again."""

LOOKS = 3
"""Rounds of second looks: a point mended may show its neighbour."""


@dataclass(frozen=True, slots=True)
class SweepRule:
    """When a point is done.

    Parameters
    ----------
    tolerance : half the median's 90 % interval over the median that is tight enough
    budget_s : a point's time, after which it ends, its samples few or not [s]
    most : repeats at most
    whole_s : of all points; what early ones leave of their share goes to those after them [s]
    """

    tolerance: float = 0.02
    budget_s: float = 2.0
    most: int = 200
    whole_s: float | None = None

    def share(self, spent_s: float, left: int) -> SweepRule:
        """Return the rule of the next of so many points that are left."""
        if self.whole_s is None:
            return self
        return replace(self, budget_s=max(self.budget_s, (self.whole_s - spent_s) / left))


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """One point to measure."""

    collective: str
    group: RankGroup
    size_bytes: int

    @property
    def key(self) -> tuple[str, int, int, int]:
        """As `NetworkPoint.key`."""
        group = self.group
        return self.collective, group.nodes, group.gpus_per_node, self.size_bytes


def sizes(least_bytes: int, most_bytes: int, factor: int = 2) -> tuple[int, ...]:
    """Return sizes from least to most, each ``factor`` times the one before; the most is in it.

    Examples
    --------
    >>> sizes(1024, 10000)
    (1024, 2048, 4096, 8192, 10000)
    """
    found = []
    size = least_bytes
    while size < most_bytes:
        found.append(size)
        size *= factor
    return (*found, most_bytes)


def asked(
    collectives: Sequence[str], groups: Sequence[RankGroup], sizes_bytes: Sequence[int]
) -> Iterator[SweepRequest]:
    """Yield the points in the order measured: group by group, all_reduce first, small to large."""
    for group in groups:
        for collective in collectives:
            if collective in PAIRS and len(group.ranks) != 2:
                continue
            for size in sizes_bytes:
                yield SweepRequest(collective, group, size)


def sweep(
    wire: Backend,
    points: Sequence[SweepRequest],
    rule: SweepRule,
    journal: NetworkJournal | None,
    tell: Callable[[SweepRequest, NetworkPoint | None], None],
) -> None:
    """Measure points; every rank of the job calls it with the same points.

    Parameters
    ----------
    wire : carries the collectives
    points : what is left to measure
    rule : when a point is done
    journal : rank 0's record; None on other ranks
    tell : called on every rank before a point (with None) and on rank 0 with its result
    """
    joined = None
    begun, left = time.perf_counter(), len(points)
    for curve in _curves(points):
        group = curve[0].group
        if group != joined:
            # Who is not in the groups before waits here, not inside a collective with a time-out.
            wire.together()
            wire.join(group)
            joined = group
        if wire.rank not in group.ranks:
            left -= len(curve)
            continue
        taken: list[list[float]] = []
        for point in curve:
            tell(point, None)
            spent = wire.agree(group, time.perf_counter() - begun)
            taken.append(_measure(wire, point, rule.share(spent, left)))
            left -= 1
            _keep(point, taken[-1], journal, tell)
        _look_again(wire, curve, taken, rule, journal)
    wire.together()


def _look_again(
    wire: Backend,
    curve: Sequence[SweepRequest],
    taken: list[list[float]],
    rule: SweepRule,
    journal: NetworkJournal | None,
) -> None:
    """Measure the doubtful points of a curve again, and keep what is shorter."""
    lengths = [point.size_bytes for point in curve]
    for _ in range(LOOKS):
        mended = False
        for place in doubtful(lengths, taken):
            again = _measure(wire, curve[place], rule)
            # What disturbs a message only ever makes it longer.
            if median(again) < median(taken[place]):
                mended = mended or median(again) * BUMP < median(taken[place])
                taken[place] = again
                _keep(curve[place], again, journal, None)
        if not mended:
            return


def doubtful(lengths: Sequence[int], taken: Sequence[Sequence[float]]) -> list[int]:
    """Return the places of a curve that are worth another look.

    Parameters
    ----------
    lengths : messages [B], rising
    taken : repeats of each [s]

    Examples
    --------
    >>> doubtful([1, 2, 4, 8], [[1.0, 1.0], [9.0, 9.1], [4.0, 4.1], [8.0, 8.0]])
    [1]
    >>> doubtful([1, 2], [[1.0] * 8 + [3.0] * 8, [4.0, 4.0]])
    [0]
    >>> doubtful([2, 4, 8], [[26.6], [60.0], [106.0]])
    [1]
    """
    middles = [median(seconds) for seconds in taken]
    places = range(len(taken))
    falls = {place for place in places[:-1] if middles[place] > FALLS * middles[place + 1]}
    wide = {place for place in places if WIDE < half_width(taken[place]) < 1e9}
    bumps = {
        place for place in places[1:-1] if middles[place] > BUMP * _chord(lengths, middles, place)
    }
    return sorted(falls | wide | bumps)


def _chord(lengths: Sequence[int], middles: Sequence[float], place: int) -> float:
    """Return what the neighbours of a place make of it by a straight line [s]."""
    before, after = place - 1, place + 1
    part = (lengths[place] - lengths[before]) / (lengths[after] - lengths[before])
    return middles[before] + part * (middles[after] - middles[before])


def _curves(points: Sequence[SweepRequest]) -> Iterator[list[SweepRequest]]:
    """Yield the points of one collective and group after the other."""
    for _, of in groupby(points, lambda point: (point.group, point.collective)):
        yield list(of)


def _keep(
    point: SweepRequest,
    seconds: Sequence[float],
    journal: NetworkJournal | None,
    tell: Callable[[SweepRequest, NetworkPoint | None], None] | None,
) -> None:
    """Put a point on record, where this rank keeps one."""
    if journal is None:
        return
    group = point.group
    shape = (len(group.ranks), group.nodes, group.gpus_per_node)
    found = NetworkPoint(point.collective, *shape, point.size_bytes, tuple(seconds))
    journal.add(found)
    if tell is not None:
        tell(point, found)


def _measure(wire: Backend, point: SweepRequest, rule: SweepRule) -> list[float]:
    """Repeat one point in growing batches; all ranks see the same times and decide alike."""
    of = point.collective, point.group, point.size_bytes
    begun = time.perf_counter()
    warm = wire.run(*of, 1)
    # A call longer than the whole budget is its own sample: nothing of it is warm-up.
    seconds = warm if warm[0] > rule.budget_s else wire.run(*of, 1)
    batch = min(FIRST, max(1, int(rule.budget_s / 2 / max(seconds[0], 1e-9))))
    while True:
        spent = wire.agree(point.group, time.perf_counter() - begun)
        if settled(seconds, rule.tolerance) or spent >= rule.budget_s or len(seconds) >= rule.most:
            return seconds
        seconds = seconds + wire.run(*of, min(batch, rule.most - len(seconds)))


BACKENDS = ("nccl", "gloo", "mpi")
CALIBRATE_NETWORK_SCHEMA = "perfsim/calibrate-network/1"
LEAST_BYTES = 1024
"""From the issue's range: latency shows below 1 KiB no more than at it."""


@dataclass(frozen=True)
class NetworkRequest:
    """What the user asked for.

    Parameters
    ----------
    out : the network file, NAME.toml; its curves go beside it
    backend : nccl, gloo or mpi; None is nccl where PyTorch sees GPUs, else gloo
    collectives : to measure; empty is all that the library has
    most_bytes : the largest message [B]
    budget_s : of the whole sweep [s]; None lets every point end by its interval or 2 s
    tolerance : half the 90 % interval of a median over it at which a point is done
    nics_per_node : NICs that the ranks of a node share
    transport, title : words for the file
    patience_s : a collective that takes longer is an error [s]
    fresh : measure anew what an interrupted run has left
    force : replace a network file that is there
    """

    out: Path
    backend: str | None = None
    collectives: tuple[str, ...] = ()
    most_bytes: int = 256 * 2**20
    budget_s: float | None = None
    tolerance: float = 0.02
    nics_per_node: int = 1
    transport: str = "unknown"
    title: str | None = None
    patience_s: float = 300.0
    fresh: bool = False
    force: bool = False

    def request(self) -> dict[str, Any]:
        """Return what all ranks must have been asked alike: they decide by it when a point ends."""
        names = ("backend", "collectives", "most_bytes", "budget_s", "tolerance")
        return {name: getattr(self, name) for name in names}


def measure_network(
    wanted: NetworkRequest,
    progress: Callable[
        [Sequence[SweepRequest]], Callable[[SweepRequest, NetworkPoint | None], None]
    ],
    environ: Mapping[str, str] | None = None,
    profiles: str | Path | None = None,
) -> MadeNetwork | None:
    """Measure, fit and write a network; every rank of the job calls it.

    Parameters
    ----------
    wanted : what was asked for
    progress : given the points to measure, returns what is told of each
    environ : variables of the process, None for its own
    profiles : a folder of the user's own profiles

    Returns
    -------
    Made on rank 0, None on the others.

    Raises
    ------
    RequestError
        If this is no job of several ranks, the ranks do not agree in versions or request, or a
        file cannot be written.
    BrokenOffError
        If a rank dies, the network fails or a signal comes; what was measured is kept.
    DataError
        If what was measured tells no link.
    """
    launch = find_launch(os.environ if environ is None else environ)
    check_name(wanted.out.stem, wanted.transport, wanted.nics_per_node)
    wire = open_wire(launch, wanted)
    told = wire.ranks
    hosts = [str(one["host"]) for one in told]
    found = groups(hosts)
    same_request(wire, hosts, wanted.request())
    journal, done = open_journal(wire, wanted.out, fresh=wanted.fresh, force=wanted.force)
    points = [
        point
        for point in asked(_collectives(wire, wanted), found, sizes(LEAST_BYTES, wanted.most_bytes))
        if point.key not in done
    ]
    rule = SweepRule(tolerance=wanted.tolerance)
    if wanted.budget_s is not None and points:
        share = wanted.budget_s / len(points)
        rule = replace(rule, budget_s=share, whole_s=wanted.budget_s)
    with guard(launch, wire, hosts, journal):
        sweep(wire, points, rule, journal, progress(points) if journal else _quiet)
    wire.close()
    if journal is None:
        return None
    made = _made(journal, wire, wanted, _note(told, hosts, rule), profiles)
    journal.remove()
    return made


def _made(
    journal: NetworkJournal,
    wire: Backend,
    wanted: NetworkRequest,
    note: str,
    profiles: str | Path | None,
) -> MadeNetwork:
    """Fit and write; where the fit is impossible the record stays."""
    told = wire.ranks
    try:
        return make_network(
            sorted(curves_of(journal.points, wire, told[0]), key=curve_order),
            wanted.out.stem,
            folder=wanted.out.parent,
            title=wanted.title,
            source=f"{len(told)} ranks, {wire.library} {wire.version}",
            transport=wanted.transport,
            nics_per_node=wanted.nics_per_node,
            date=date.today().isoformat(),
            notes=[note],
            schema=CALIBRATE_NETWORK_SCHEMA,
            force=wanted.force,
            profiles=profiles,
        )
    except DataError as error:
        raise DataError(f"{error}; what was measured is kept in {journal.path}") from None


def open_wire(launch: Launch, wanted: NetworkRequest) -> Backend:
    """Return the library that was asked for, joined to the job."""
    if wanted.backend not in (None, *BACKENDS):
        raise unknown("backend", str(wanted.backend), BACKENDS)
    if wanted.backend == "mpi":
        from perfsim.calibrate.measure.mpi_wire import MpiWire

        return MpiWire(launch.local_rank)
    from perfsim.calibrate.measure.torch_wire import TorchWire

    return TorchWire(launch, wanted.backend, wanted.patience_s)


def _collectives(wire: Backend, wanted: NetworkRequest) -> tuple[str, ...]:
    have = wire.collectives()
    for name in wanted.collectives:
        if name not in have:
            raise unknown("collectives", name, have)
    return wanted.collectives or have


def _note(told: Sequence[Mapping[str, Any]], hosts: Sequence[str], rule: SweepRule) -> str:
    return (
        f"{len(hosts)} ranks on {len(set(hosts))} hosts ({told[0]['system']}), {told[0]['library']}"
        f", perfsim {told[0]['perfsim']}; medians of the slowest rank, each repeated until its"
        f" 90 % interval was within {rule.tolerance:.0%} or {rule.budget_s:.3g} s were spent."
    )


def _quiet(_: SweepRequest, __: NetworkPoint | None) -> None:
    """Tell nothing: only rank 0 speaks."""
