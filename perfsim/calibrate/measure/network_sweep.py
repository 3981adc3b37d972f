"""``perfsim calibrate network``: measure collectives on the ranks of a job and fit a network file.

Every collective, group and size is repeated until its median is known or its time is up. Sizes are
measured out of order, and one of them again and again (the reference), so that a network that
changes on the way is told from one whose times grow with size.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from perfsim.calibrate.measure.host_pairs import measure_pairs
from perfsim.calibrate.measure.job import Backend, RankGroup, rank_groups
from perfsim.calibrate.measure.journals import NetworkJournal, NetworkPoint
from perfsim.calibrate.measure.launch import Launch, find_launch
from perfsim.calibrate.measure.rendezvous import check_same_request, open_journal
from perfsim.calibrate.measure.repeats import MIN_REPEATS, ReportProgress, half_width, settled
from perfsim.calibrate.measure.stability import (
    change_of,
    drifts,
    quartiles,
    smallest_difference_s,
    unsteadiness,
)
from perfsim.calibrate.measure.watch import guard_sweep
from perfsim.calibrate.network_fit import curve_order
from perfsim.calibrate.write_network import MadeNetwork, check_name, make_network
from perfsim.collectives import COLLECTIVES
from perfsim.data.files import today
from perfsim.errors import DataError, RequestError, unknown
from perfsim.network.measured import CollectiveCurve
from perfsim.network.network_file import Noticed
from perfsim.units import format_bytes, format_seconds

__all__ = [
    "BACKENDS",
    "NetworkRequest",
    "SweepPoint",
    "SweepRule",
    "check_kept_points",
    "doubtful_indices",
    "measure_network",
    "measured_curves",
    "message_sizes",
    "open_wire",
    "points_to_measure",
    "run_sweep",
    "shortened",
]

BACKENDS = ("nccl", "gloo", "mpi")
CALIBRATE_NETWORK_SCHEMA = "perfsim/calibrate-network/1"
SMALLEST_MESSAGE_BYTES = 1024
"""Latency shows below 1 KiB no more than at it. No source: chosen."""
PAIR_COLLECTIVES = frozenset({"send_recv"})
"""Collectives of two ranks."""
REPEATS_PER_BATCH = 10
"""Repeats between two looks at the interval, where calls are short. No source: chosen."""

FALL_RATIO = 1.1
WIDE_INTERVAL = 0.10
BUMP_RATIO = 1.04
"""A point is measured again where its time is `FALL_RATIO` times the next larger size's, where its
interval is wider than `WIDE_INTERVAL`, or where its time is `BUMP_RATIO` times what a straight line
between its neighbours gives. Latency, rate and a burst that a network lets through make no such
bump. No source: chosen."""
MAX_SECOND_ROUNDS = 3
"""Rounds of second measurements: a mended point may show that its neighbour is doubtful.
No source: chosen."""
LOOKS_PER_CURVE = 3
"""Looks at a curve's reference that are compared with its first time, in equal distances, the last
one at its end. Looks between them, after each size, only show whether it drifts (`drifts`).
No source: chosen."""
LOOK_SHARE = 0.15
"""Share of its time that a curve gives to looking at its reference again, at most: a look that
would cost more, because the reference takes long beside the points, is put off to the next.
No source: chosen."""
REFERENCE_SHARE = 8
"""A reference is at most this part of the largest message, so that looking again costs little.
No source: chosen."""
MIN_DRIFT_REPEATS = 3
"""Repeats of a look that only shows drift, at least: their median stands one disturbed call."""
MAX_LOOK_REPEATS = 20
"""Repeats of a look, at most. No source: chosen."""
PAIR_SHARE = 0.02
"""Share of a sweep's time for one message of one pair of hosts. No source: chosen."""
_MAX_KNOWN_SPREAD = 10.0
"""Points with too few repeats have an infinite spread, which no curve states."""


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
    force : replace a network file that is there, and write one whose fit is poor
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

    def in_words(self) -> str:
        """Return the options that change how points are measured."""
        named = ", ".join(self.collectives) or "all collectives"
        budget = "no budget" if self.budget_s is None else f"{format_seconds(self.budget_s)} in all"
        return f"{named}, to {format_bytes(self.most_bytes)}, {self.tolerance:.3g} or {budget}"

    def common_options(self) -> dict[str, Any]:
        """Return the options that all ranks must share: by them they decide when a point ends."""
        names = ("backend", "collectives", "most_bytes", "budget_s", "tolerance")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class SweepRule:
    """When a point is done.

    Parameters
    ----------
    tolerance : half the median's 90 % interval over the median at which a point is done
    budget_s : a point's time, after which it ends however few its repeats are [s]
    most : repeats at most
    whole_s : of all points; what early ones leave of their share goes to those after them [s].
        Those have their own share in any case: a shaped link lets the first large messages through
        at once, so that a few repeats tell of a faster one
    """

    tolerance: float = 0.02
    budget_s: float = 2.0
    most: int = 200
    whole_s: float | None = None

    def share(self, spent_s: float, left: int) -> SweepRule:
        """Return the rule of the next point, of ``left`` points, after ``spent_s`` seconds."""
        if self.whole_s is None:
            return self
        return replace(self, budget_s=max(self.budget_s, (self.whole_s - spent_s) / left))


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point to measure."""

    collective: str
    group: RankGroup
    size_bytes: int

    @property
    def key(self) -> tuple[str, int, int, int]:
        """As `NetworkPoint.key`."""
        group = self.group
        return self.collective, group.nodes, group.gpus_per_node, self.size_bytes

    @property
    def curve(self) -> tuple[RankGroup, str]:
        """Whose curve it is on, and of which collective."""
        return self.group, self.collective


def measure_network(
    request: NetworkRequest,
    report_progress: ReportProgress,
    environ: Mapping[str, str] | None = None,
    profiles: str | Path | None = None,
) -> MadeNetwork | None:
    """Measure, fit and write a network; every rank of the job calls it.

    Parameters
    ----------
    request : what was asked for
    report_progress : called on rank 0, before each point and with its result
    environ : variables of the process, None for its own
    profiles : a folder of the user's own profiles

    Returns
    -------
    The network on rank 0, None on the others.

    Raises
    ------
    RequestError
        If this is no job of several ranks, the ranks do not agree in versions or request, or a
        file cannot be written.
    BrokenOffError
        If a rank dies, the network fails or a signal comes; what was measured is kept.
    DataError
        If no link can be fitted to what was measured, or the fit misses it by far.
    """
    launch = find_launch(os.environ if environ is None else environ)
    check_name(request.out.stem, request.transport, request.nics_per_node)
    wire = open_wire(launch, request)
    hosts = [str(rank["host"]) for rank in wire.ranks]
    groups = rank_groups(hosts)
    check_same_request(wire, hosts, request.common_options())
    collectives = _collectives(wire, request)
    journal, measured = open_journal(wire, request.out, fresh=request.fresh, force=request.force)
    sizes_bytes = message_sizes(SMALLEST_MESSAGE_BYTES, request.most_bytes)
    asked = list(points_to_measure(collectives, groups, sizes_bytes))
    points = [point for point in asked if point.key not in measured]
    rule = SweepRule(tolerance=request.tolerance)
    if request.budget_s is not None and points:
        share = request.budget_s / len(points)
        rule = replace(rule, budget_s=share, whole_s=request.budget_s)
    if journal is not None:
        _note_run(journal, request)
    pair_s = PAIR_SHARE * (request.budget_s or rule.budget_s * len(points))
    pairs = hosts, request.most_bytes, pair_s
    with guard_sweep(launch, wire, hosts, journal):
        _note_all(journal, measure_pairs(wire, *pairs, "at first"))
        check_kept_points(
            wire, groups, [one for one in asked if one.key in measured], rule, journal
        )
        run_sweep(wire, points, rule, journal, report_progress)
        _note_all(journal, measure_pairs(wire, *pairs, "at last"))
    wire.close()
    if journal is None:
        return None
    _note_all(journal, unsteadiness(journal.attempts))
    if not any(one.what == "change" for one in journal.noticed):
        least_s = smallest_difference_s(wire.device)
        _note_all(journal, drifts(journal.looks, rule.tolerance, least_s))
    network = _fit_and_write(journal, wire, request, _note(wire, hosts, rule, journal), profiles)
    journal.remove()
    return network


def open_wire(launch: Launch, request: NetworkRequest) -> Backend:
    """Return the library that was asked for, joined to the job.

    Raises
    ------
    RequestError
        If there is no such library, or it cannot join the job.
    """
    if request.backend not in (None, *BACKENDS):
        raise unknown("backend", str(request.backend), BACKENDS)
    if request.backend == "mpi":
        from perfsim.calibrate.measure.mpi_wire import MpiWire

        return MpiWire(launch.local_rank)
    from perfsim.calibrate.measure.torch_wire import TorchWire

    return TorchWire(launch, request.backend, request.patience_s)


def _collectives(wire: Backend, request: NetworkRequest) -> tuple[str, ...]:
    """Return what is measured: what was asked for, or all that the library has.

    Raises
    ------
    RequestError
        If the library lacks one; the job is left in good order before, since all ranks refuse it.
    """
    available = wire.collectives()
    for name in request.collectives:
        if name not in available:
            wire.close()
            if name not in COLLECTIVES:
                raise unknown("collectives", name, available)
            why = f"{wire.library} has no {name}. Allowed: {', '.join(sorted(available))}."
            raise RequestError("collectives", why, value=name)
    return request.collectives or available


def message_sizes(least_bytes: int, most_bytes: int, factor: int = 2) -> tuple[int, ...]:
    """Return sizes from least to most, each ``factor`` times the one before; the most is in it.

    Examples
    --------
    >>> message_sizes(1024, 10000)
    (1024, 2048, 4096, 8192, 10000)
    """
    sizes = []
    size = least_bytes
    while size < most_bytes:
        sizes.append(size)
        size *= factor
    return (*sizes, most_bytes)


def points_to_measure(
    collectives: Sequence[str], groups: Sequence[RankGroup], sizes_bytes: Sequence[int]
) -> Iterator[SweepPoint]:
    """Yield the points in the order measured: group by group, then collective, small to large."""
    for group in groups:
        for collective in collectives:
            if collective in PAIR_COLLECTIVES and len(group.ranks) != 2:
                continue
            for size in sizes_bytes:
                yield SweepPoint(collective, group, size)


def check_kept_points(
    wire: Backend,
    groups: Sequence[RankGroup],
    kept: Sequence[SweepPoint],
    rule: SweepRule,
    journal: NetworkJournal | None,
) -> None:
    """Measure some points of an interrupted sweep again; all ranks call it.

    Of each collective and group these are the smallest, the largest and one between.

    Parameters
    ----------
    wire : carries the collectives
    groups : all groups of the job, in the order in which ranks join them
    kept : points that the journal holds
    rule : when a point is done
    journal : rank 0's journal; None on other ranks

    Raises
    ------
    RequestError
        On all ranks if a time is not the one that was kept.
    """
    curves, least_s = list(_by_curve(kept)), smallest_difference_s(wire.device)
    changed = ""
    for group in groups:
        again = [curve for curve in curves if curve[0].group == group]
        if not again:
            continue
        wire.wait_for_all()
        wire.join(group)
        if wire.rank not in group.ranks:
            continue
        for curve in again:
            for index in sorted({0, len(curve) // 2, len(curve) - 1}):
                now = _look(wire, curve[index], rule, rule.budget_s / 2)
                if journal is not None and not changed:
                    changed = _changed_since(journal, now, least_s)
    changed = wire.gather(changed)[0]
    if changed:
        raise RequestError("out", changed)


def _changed_since(journal: NetworkJournal, now: NetworkPoint, least_s: float) -> str:
    """Return in words how a point differs from the one that a journal keeps, "" if it does not."""
    kept = next(one for one in journal.points if one.key == now.key)
    change = change_of(kept, now, least_s)
    if change is None:
        return ""
    return (
        f"{journal.path} cannot be gone on with: {kept.name} took"
        f" {format_seconds(change.before_s)}, now it takes {format_seconds(change.now_s)} (allowed"
        f" by the repeats: {change.allowed}), so the network is another one; `fresh` begins anew."
    )


@dataclass
class _Reference:
    """The message of a curve that is measured again and again.

    ``measured`` are its repeats at first, or those since which it takes another time, and
    ``since`` says when they were.
    """

    point: SweepPoint
    measured: NetworkPoint
    since: str = "at first"
    looked: float = field(default_factory=time.perf_counter)


def run_sweep(
    wire: Backend,
    points: Sequence[SweepPoint],
    rule: SweepRule,
    journal: NetworkJournal | None,
    report_progress: ReportProgress,
) -> None:
    """Measure points; every rank of the job calls it with the same points.

    Parameters
    ----------
    wire : carries the collectives
    points : what is left to measure
    rule : when a point is done
    journal : rank 0's journal; None on other ranks
    report_progress : called on rank 0, before each point and with its result
    """
    begun, left = time.perf_counter(), len(points)
    joined: RankGroup | None = None
    references: list[_Reference] = []

    def join(group: RankGroup) -> None:
        nonlocal joined
        if group != joined:
            # Ranks outside the groups before wait here, not inside a collective with a time-out.
            wire.wait_for_all()
            wire.join(group)
            joined = group

    for curve in _by_curve(points):
        group = curve[0].group
        join(group)
        if wire.rank not in group.ranks:
            left -= len(curve)
            continue
        first = _reference_index(wire, curve, rule)
        order = [first, *(index for index in _out_of_order(len(curve)) if index != first)]
        looks = [-(-len(curve) * look // LOOKS_PER_CURVE) for look in range(1, LOOKS_PER_CURVE + 1)]
        measured: dict[int, NetworkPoint] = {}
        for count, index in enumerate(order, 1):
            point = curve[index]
            done = len(points) - left
            if journal is not None:
                report_progress(done, len(points), _words(point))
            spent_s = wire.greatest(group, time.perf_counter() - begun)
            measured[index] = _measure(wire, point, rule.share(spent_s, left))
            left -= 1
            if journal is not None:
                journal.add_point(measured[index])
                words = f"{_words(point)}: {format_seconds(measured[index].median_s)}"
                report_progress(done + 1, len(points), words)
            if count == 1:
                references.append(_Reference(point, measured[index]))
            else:
                when = f"after {count} of {len(curve)} sizes"
                due, last = count >= looks[0], count == len(curve)
                looked = _look_again(
                    wire, references[-1], rule, when, journal, compares=due, last=last
                )
                if looked and due:
                    looks = [one for one in looks if one > count]
        in_order = [measured[index] for index in range(len(curve))]
        _measure_doubtful_again(wire, curve, in_order, rule, journal)
    for reference in references:
        # Of the last curve there was a look just now, by all ranks that are in it.
        if reference.point.curve != points[-1].curve:
            _look_again(wire, reference, rule, "at the end of the sweep", journal, last=True)
    wire.wait_for_all()


def _out_of_order(count: int) -> list[int]:
    """Return the indices of a curve in the order measured: every second one, then the others.

    A network that changes on the way then stands in the curve as a zigzag, which no growth with
    size explains.

    Examples
    --------
    >>> _out_of_order(5)
    [0, 2, 4, 1, 3]
    """
    return [*range(0, count, 2), *range(1, count, 2)]


def _reference_index(wire: Backend, curve: Sequence[SweepPoint], rule: SweepRule) -> int:
    """Return the index of the largest message that may be measured again and again.

    It is at most the part `REFERENCE_SHARE` of the largest one, and short enough that a look fits
    into the share of the points between two looks (`LOOK_SHARE`).
    """
    between = len(curve) / LOOKS_PER_CURVE
    longest_s = LOOK_SHARE * rule.budget_s * between / (MIN_REPEATS + 1)
    chosen = 0
    for index, point in enumerate(curve):
        if point.size_bytes * REFERENCE_SHARE > curve[-1].size_bytes:
            break
        (time_s,) = wire.run(point.collective, point.group, point.size_bytes, 1)
        if time_s > longest_s:
            break
        chosen = index
    return chosen


def _look(
    wire: Backend, point: SweepPoint, rule: SweepRule, budget_s: float, least: int = MIN_REPEATS
) -> NetworkPoint:
    """Repeat a point only to compare: a few times, after a call that does not count."""
    what = point.collective, point.group, point.size_bytes
    wire.waited_s(point.group)
    seconds = wire.run(*what, 1)
    if seconds[0] <= rule.budget_s:
        most = int(budget_s / max(seconds[0], 1e-9))
        seconds = wire.run(*what, max(least, min(MAX_LOOK_REPEATS, most)))
    return _network_point(point, seconds, wire.waited_s(point.group))


def _look_again(
    wire: Backend,
    reference: _Reference,
    rule: SweepRule,
    when: str,
    journal: NetworkJournal | None,
    *,
    compares: bool = True,
    last: bool,
) -> bool:
    """Measure a reference again and note on rank 0 if it has changed; its group calls it.

    Parameters
    ----------
    wire, rule, journal : as of `run_sweep`
    reference : the message
    when : for the sentence
    compares : compare it with its first time; else keep the look only
    last : look also where it costs more than its share

    Returns
    -------
    Whether it was measured.
    """
    group = reference.point.group
    if wire.rank not in group.ranks:
        return False
    spent_s = wire.greatest(group, time.perf_counter() - reference.looked)
    budget_s = LOOK_SHARE * spent_s
    least = MIN_REPEATS if compares else MIN_DRIFT_REPEATS
    if not last and (least + 1) * reference.measured.median_s > 2 * budget_s:
        return False
    now = _look(wire, reference.point, rule, budget_s, least)
    reference.looked = time.perf_counter()
    if journal is not None:
        journal.add_look(now)
    if not compares:
        return True
    change = change_of(reference.measured, now, smallest_difference_s(wire.device))
    if change is not None:
        longer = "as long" if change.now_s > change.before_s else "as fast"
        text = (
            f"{now.name} took {format_seconds(change.before_s)} {reference.since} and"
            f" {format_seconds(change.now_s)} {when}: {change.factor:.1f} times {longer} (allowed"
            f" by the repeats: {change.allowed})."
        )
        _note_all(journal, [Noticed("change", text)])
        reference.measured, reference.since = now, when
    return True


def _note_all(journal: NetworkJournal | None, noticed: Sequence[Noticed]) -> None:
    """Write what was noticed to rank 0's journal, once each."""
    if journal is not None:
        for one in noticed:
            if one not in journal.noticed:
                journal.add_noticed(one)


def _note_run(journal: NetworkJournal, request: NetworkRequest) -> None:
    """Write to a journal that a run begins or goes on now, and how it was asked."""
    verb = "gone on" if journal.runs else "begun"
    now = datetime.now().astimezone().isoformat(sep=" ", timespec="minutes")
    journal.add_run(f"{verb} {now} ({request.in_words()})")


def _by_curve(points: Sequence[SweepPoint]) -> Iterator[list[SweepPoint]]:
    """Yield the points of one collective and group after the other."""
    for _, curve in groupby(points, attrgetter("curve")):
        yield list(curve)


def _words(point: SweepPoint) -> str:
    return f"{point.collective}, {point.group.name}, {format_bytes(point.size_bytes)}"


def _measure(wire: Backend, point: SweepPoint, rule: SweepRule) -> NetworkPoint:
    """Repeat one point in growing batches; all ranks see the same times and decide alike."""
    what = point.collective, point.group, point.size_bytes
    begun = time.perf_counter()
    wire.waited_s(point.group)
    warm_up = wire.run(*what, 1)
    # A call longer than the whole budget is its own sample: it needs no warm-up.
    seconds = warm_up if warm_up[0] > rule.budget_s else wire.run(*what, 1)
    batch = min(REPEATS_PER_BATCH, max(1, int(rule.budget_s / 2 / max(seconds[0], 1e-9))))
    while True:
        spent_s = wire.greatest(point.group, time.perf_counter() - begun)
        enough = len(seconds) >= rule.most
        if settled(seconds, rule.tolerance) or spent_s >= rule.budget_s or enough:
            return _network_point(point, seconds, wire.waited_s(point.group))
        seconds = seconds + wire.run(*what, min(batch, rule.most - len(seconds)))


def _network_point(point: SweepPoint, seconds: Sequence[float], waited_s: float) -> NetworkPoint:
    """Return a point as the journal holds it."""
    group = point.group
    shape = (len(group.ranks), group.nodes, group.gpus_per_node)
    return NetworkPoint(point.collective, *shape, point.size_bytes, tuple(seconds), waited_s)


def _measure_doubtful_again(
    wire: Backend,
    curve: Sequence[SweepPoint],
    measured: list[NetworkPoint],
    rule: SweepRule,
    journal: NetworkJournal | None,
) -> None:
    """Measure the doubtful points of a curve again, and keep the shorter times.

    Where only the slower calls differ, the repeats are put together: both are of one network, and
    to choose the shorter of two alike would make its times too short.
    """
    sizes = [point.size_bytes for point in curve]
    for _ in range(MAX_SECOND_ROUNDS):
        mended = False
        for index in doubtful_indices(sizes, [point.seconds for point in measured]):
            again = _measure(wire, curve[index], rule)
            before = measured[index]
            quick, usual = quartiles(again.seconds), quartiles(before.seconds)
            # What disturbs a message only ever makes it longer.
            if all(
                now * BUMP_RATIO < then
                for now, then in zip(
                    quartiles(again.seconds), quartiles(before.seconds), strict=True
                )
            ):
                mended = True
                measured[index] = again
            elif again.spread <= WIDE_INTERVAL < before.spread:
                measured[index] = again  # it can be measured steadily: the first was disturbed
            elif quick[0] <= usual[0] * BUMP_RATIO:
                both = (*before.seconds, *again.seconds)
                waited_s = before.waited_s + again.waited_s
                measured[index] = replace(before, seconds=both, waited_s=waited_s)
            else:
                continue
            if journal is not None:
                journal.add_point(measured[index])
        if not mended:
            return


def doubtful_indices(sizes_bytes: Sequence[int], seconds: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of a curve's points that should be measured again.

    Parameters
    ----------
    sizes_bytes : of the messages, rising [B]
    seconds : repeats of each [s]

    Examples
    --------
    >>> doubtful_indices([1, 2, 4, 8], [[1.0, 1.0], [9.0, 9.1], [4.0, 4.1], [8.0, 8.0]])
    [1]
    >>> doubtful_indices([1, 2], [[1.0] * 8 + [3.0] * 8, [4.0, 4.0]])
    [0]
    >>> doubtful_indices([2, 4, 8], [[26.6], [60.0], [106.0]])
    [1]
    """
    medians = [median(repeats) for repeats in seconds]
    indices = range(len(seconds))
    falls = {index for index in indices[:-1] if medians[index] > FALL_RATIO * medians[index + 1]}
    wide = {index for index in indices if WIDE_INTERVAL < half_width(seconds[index]) < 1e9}
    bumps = {
        index
        for index in indices[1:-1]
        if medians[index] > BUMP_RATIO * _between_neighbours(sizes_bytes, medians, index)
    }
    return sorted(falls | wide | bumps)


def _between_neighbours(sizes: Sequence[int], medians: Sequence[float], index: int) -> float:
    """Return the time that a straight line between a point's neighbours gives [s]."""
    before, after = index - 1, index + 1
    share = (sizes[index] - sizes[before]) / (sizes[after] - sizes[before])
    return medians[before] + share * (medians[after] - medians[before])


def measured_curves(
    points: Sequence[NetworkPoint], wire: Backend, fabric: str
) -> list[CollectiveCurve]:
    """Return the curves of measured points, one a collective and group, sizes rising.

    A time is the mean of the repeats, as nccl-tests gives it too.

    Parameters
    ----------
    points : in any order
    wire : the library that carried them
    fabric : the network interface in use
    """
    grouped: dict[tuple[str, int, int, int], list[NetworkPoint]] = {}
    for point in sorted(points, key=lambda point: point.size_bytes):
        shape = (point.collective, point.ranks, point.nodes, point.gpus_per_node)
        grouped.setdefault(shape, []).append(point)
    return [
        CollectiveCurve(
            collective,
            ranks,
            nodes,
            gpus,
            tuple(float(point.size_bytes) for point in curve),
            tuple(point.mean_s for point in curve),
            "measured",
            f"perfsim calibrate network, {today()}",
            spread=_median_spread(curve),
            algorithm=wire.held(collective)[0],
            protocol=wire.held(collective)[1],
            library=wire.library,
            version=wire.version,
            gpu=wire.device,
            fabric=fabric,
        )
        for (collective, ranks, nodes, gpus), curve in grouped.items()
    ]


def _median_spread(points: Sequence[NetworkPoint]) -> float | None:
    known = sorted(point.spread for point in points if point.spread < _MAX_KNOWN_SPREAD)
    return known[len(known) // 2] if known else None


def _fit_and_write(
    journal: NetworkJournal,
    wire: Backend,
    request: NetworkRequest,
    note: str,
    profiles: str | Path | None,
) -> MadeNetwork:
    """Fit and write; if the fit is impossible the journal stays."""
    curves = measured_curves(journal.points, wire, str(wire.ranks[0]["interface"]))
    try:
        return make_network(
            sorted(curves, key=curve_order),
            request.out.stem,
            folder=request.out.parent,
            title=request.title,
            source=f"{len(wire.ranks)} ranks, {wire.library} {wire.version}",
            transport=request.transport,
            nics_per_node=request.nics_per_node,
            date=today(),
            notes=[note],
            schema=CALIBRATE_NETWORK_SCHEMA,
            noticed=journal.noticed,
            checks_fit=True,
            force=request.force,
            profiles=profiles,
        )
    except DataError as error:
        said = [
            one.text.rstrip(".") for one in journal.noticed[:1] if one.text[:-1] not in str(error)
        ]
        why = "; ".join([str(error).rstrip("."), *said])
        raise DataError(f"{why}; what was measured is kept in {journal.path}") from None


def _note(wire: Backend, hosts: Sequence[str], rule: SweepRule, journal: NetworkJournal) -> str:
    """Return what the network file says of how it was measured."""
    first = wire.ranks[0]
    named = ", ".join(dict.fromkeys(hosts))
    where = f"{first['interface']} {first['speed']}".strip()
    return (
        f"{len(hosts)} ranks on {len(set(hosts))} hosts ({shortened(named)}; {first['system']};"
        f" {first['processor']}; interface {where or 'not known'}), {first['library']}"
        f", perfsim {first['perfsim']}; means of the slowest rank, each repeated until its"
        f" median's 90 % interval was within {rule.tolerance:.0%} or {rule.budget_s:.3g} s were"
        f" spent; {'; '.join(journal.runs)}."
    )


def shortened(text: str, most: int = 120) -> str:
    """Return a text cut to a length, with dots where it was cut.

    Examples
    --------
    >>> shortened("host1, host2, host3", 12)
    'host1, ho...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."
