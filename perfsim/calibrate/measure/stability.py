"""Rules by which a sweep notices that its network was not one steady network.

A message is compared with itself at another moment (`change_of`), the repeats of a message with
each other (`unsteadiness`), all looks at a message in their order (`drifts`), hosts with hosts
(`slow_hosts`), and a fit with what it was fitted to (`poor_fit`). Each rule knows numbers only;
`network_sweep` and `host_pairs` measure them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import NamedTuple

from perfsim.calibrate.measure.journals import NetworkPoint
from perfsim.calibrate.measure.repeats import MIN_REPEATS
from perfsim.network.network_file import Noticed
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes, format_seconds

__all__ = [
    "Change",
    "ChangePoint",
    "allowed_factor",
    "change_of",
    "change_point",
    "drifts",
    "explained",
    "poor_fit",
    "quartiles",
    "slow_hosts",
    "smallest_difference_s",
    "unsteadiness",
]

SMALLEST_CHANGE = 0.25
"""A median that moves by less is no change, however alike the repeats are. No source: chosen; on a
link of 1 ms without a fault a median moved by 18 %, with TCP's window."""
SMALLEST_CHANGE_OF_FEW = 0.5
"""The same where one side has too few repeats for quartiles (`MIN_REPEATS`). No source: chosen."""

SMALLEST_DIFFERENCE_S, SMALLEST_GPU_DIFFERENCE_S = 5e-4, 50e-6
"""Times that differ by less count as alike: where processes of the CPU carry messages, each
waits for a core; between GPUs only the launch does. No source: chosen; 1 KiB over gloo took 0.12 ms
on an idle machine and 0.32 ms on a busy one."""

DRIFT_LEVEL = 0.01
"""Chance that a sweep over a steady network is said to drift, at most. All messages and all
tests of one share it equally (Bonferroni)."""
MIN_LOOKS_OF_A_SIDE = 2
"""Looks before a step and after it, at least: one look that something disturbed is no step."""

SLOW_HOST_FACTOR = 1.6
"""A host, or a pair of hosts, is slow where its message takes so many times what is usual.
No source: chosen; hosts of one kind on one switch differ by some percent in `calibration_faults`,
and a host on a link of the next lower kind (10 for 25, 50 for 100 Gbit/s) by 2 and more."""

STALL_S = 0.1
"""A call that takes so much longer than the median of its point has stalled. TCP waits 200 ms and
more for a lost segment (TCP_RTO_MIN of Linux's include/net/tcp.h); a scheduler's tick is 1 to
10 ms."""
MAX_WAIT_RATIO = 2.0
"""Calls that are late by no more than so many times what the rank that waited most waited for a
core are late because hosts are busy. No source: chosen."""
STALLS_OF_MEDIAN = 0.5
"""A stall is also this share of the median, where calls take long. No source: chosen."""
MIN_STALLS = 3
"""Stalls that are said; fewer may be the machine's own. No source: chosen."""

UNSTEADY_FACTOR = 2.0
"""Repeats of one message this far apart, from the 10 % to the 90 % point, are not of one network.
No source: chosen."""
UNSTEADY_MIN_S = 0.005
"""Shorter messages are not looked at: a scheduler's ticks (1 to 10 ms) spread them anywhere."""
MIN_UNSTEADY = 2
"""Unsteady points that are said. No source: chosen."""

POOR_RESIDUAL = 0.5
"""A fit off by less is never refused. No source: chosen, above all that was seen without a fault.

Of the 43 rates fitted to the curves of the 41 networks that ship with curves, residuals are 0.8 %
in the median, below 15 % in 42, and 27 % in one (cscs-gh200-slingshot-tcp). On emulated hosts a
sweep that a busy machine disturbed reached 28 %, and Open MPI's all-gather between two 30 %. Rates
that changed tenfold during a sweep reach 54 and 540 % (`calibration_faults.txt`). Between 30 and
54 % nothing says where the line should be. What is below it, such as 45 % where a rate flaps or
26 % where it falls by 30 %, must be noticed by the other rules."""
POOR_OVER_STATED = 3.0
"""A residual is far above the stated error at so many times it. No source: chosen."""


def quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of repeats [s].

    Examples
    --------
    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    if len(seconds) < 2:
        return seconds[0], seconds[0], seconds[0]
    low, middle, high = quantiles(seconds, n=4, method="inclusive")
    return low, middle, high


def allowed_factor(before: Sequence[float], now: Sequence[float]) -> float:
    """Return by how much two medians of one message may differ, as a factor.

    Each side may be off by half the distance of its quartiles, in log time, and both together by
    `SMALLEST_CHANGE`. The quartiles' distance is taken whole, not over the root of the number of
    repeats: those of a burst resemble each other more than those of another moment.

    Examples
    --------
    >>> round(allowed_factor([1.0] * 9, [1.0] * 9), 2)
    1.25
    >>> round(allowed_factor([1.0, 1.0, 2.0, 4.0, 4.0], [1.0] * 9), 2)
    2.5
    """
    few = min(len(before), len(now)) < MIN_REPEATS
    factor = 1.0 + (SMALLEST_CHANGE_OF_FEW if few else SMALLEST_CHANGE)
    for seconds in (before, now):
        low, _, high = quartiles(seconds)
        factor *= math.sqrt(high / low)
    return factor


class Change(NamedTuple):
    """A message whose time is another one than before: medians [s] and what was allowed [s]."""

    before_s: float
    now_s: float
    least_s: float
    most_s: float

    @property
    def factor(self) -> float:
        """How many times as long it takes, or took where that is more."""
        return max(self.now_s / self.before_s, self.before_s / self.now_s)

    @property
    def allowed(self) -> str:
        """The times that would have been no change, in words."""
        return f"{format_seconds(self.least_s)} to {format_seconds(self.most_s)}"


def smallest_difference_s(device: str) -> float:
    """Return by how much times must differ at least, by what holds the buffers [s].

    Examples
    --------
    >>> smallest_difference_s("cpu")
    0.0005
    """
    return SMALLEST_DIFFERENCE_S if device == "cpu" else SMALLEST_GPU_DIFFERENCE_S


def explained(excess_s: float, waited_s: float) -> bool:
    """Say whether a busy host explains that calls took longer, all together [s].

    ``waited_s`` is that of the rank that waited most: where all wait, they do so by turns.

    Examples
    --------
    >>> explained(0.5, 0.3), explained(0.5, 0.01)
    (True, False)
    """
    return excess_s <= MAX_WAIT_RATIO * waited_s


def change_of(before: NetworkPoint, now: NetworkPoint, least_s: float = 0.0) -> Change | None:
    """Return how a message's time changed, None where its repeats explain it.

    A change moves the median by more than `allowed_factor`, and the lower quartile the same way by
    more than `SMALLEST_CHANGE`: what disturbs some calls leaves the quickest as they are, another
    rate does not. Both move by more than ``least_s``, and processes that waited for a core do not
    explain it.

    Parameters
    ----------
    before, now : one message at two moments
    least_s : difference that tells nothing, `smallest_difference_s` [s]
    """
    allowed = allowed_factor(before.seconds, now.seconds)
    low, middle, _ = quartiles(before.seconds)
    low_now, middle_now, _ = quartiles(now.seconds)
    moved, quickest = math.log(middle_now / middle), math.log(low_now / low)
    far = abs(moved) > math.log(allowed)
    if not far or moved * quickest <= 0 or abs(quickest) <= math.log1p(SMALLEST_CHANGE):
        return None
    if min(abs(middle_now - middle), abs(low_now - low)) <= least_s:
        return None
    longer, usual_s = (now, middle) if moved > 0 else (before, middle_now)
    if explained(sum_in_order(longer.seconds) - len(longer.seconds) * usual_s, longer.waited_s):
        return None
    least, most = middle / allowed, middle * allowed
    return Change(middle, middle_now, min(least, middle - least_s), max(most, middle + least_s))


def drifts(looks: Sequence[NetworkPoint], tolerance: float, least_s: float) -> list[Noticed]:
    """Return which messages took more or less time from look to look, by more than looks scatter.

    It notices changes that are too small for `change_of`. Repeats of one look resemble each other
    more than those of another moment, so a look counts once, by the log of its median. Two kinds of
    change are tested by Student's t: a straight line over the looks in their order, and one step
    between two looks (`change_point`). The level, `DRIFT_LEVEL`, holds where looks at a steady
    network scatter independently and normally about one time.

    A difference within ``tolerance`` or ``least_s``, or one that waiting for a core explains, is
    not said. With fewer than 4 looks at a message nothing is said. The first measurement is no
    look: connections may still have been cold.

    Parameters
    ----------
    looks : all looks, in the order in which they were taken
    tolerance : relative difference that tells nothing: how well the sweep asks to know a median
    least_s : difference that tells nothing, `smallest_difference_s` [s]
    """
    by_message: dict[tuple[str, int, int, int], list[NetworkPoint]] = {}
    for look in looks:
        by_message.setdefault(look.key, []).append(look)
    tested = [one for one in by_message.values() if len(one) >= 2 * MIN_LOOKS_OF_A_SIDE]
    return [
        noticed
        for series in tested
        for noticed in _drift(series, DRIFT_LEVEL / len(tested), tolerance, least_s)
    ]


def _drift(
    series: Sequence[NetworkPoint], level: float, tolerance: float, least_s: float
) -> list[Noticed]:
    """Return what is to be said of the looks at one message."""
    found = change_point([look.median_s for look in series])
    before_s, after_s = found.before, found.after
    differs = abs(math.log(after_s / before_s)) > math.log1p(tolerance)
    if found.chance > level or not differs or abs(after_s - before_s) <= least_s:
        return []
    usual_s = min(before_s, after_s)
    excess_s = sum_in_order(
        len(look.seconds) * max(0.0, look.median_s - usual_s) for look in series
    )
    if explained(excess_s, sum_in_order(look.waited_s for look in series)):
        return []
    count, first, last = len(series), format_seconds(before_s), format_seconds(after_s)
    words = (
        f"{first} in the first {found.split} of {count} looks and {last} in the others"
        if found.split
        else f"{first} at first and {last} at last, steadily over {count} looks"
    )
    share = f"{after_s / before_s - 1.0:+.1%}"
    return [
        Noticed("drift", f"{series[0].name} took {words} ({share}); looks alone scatter by less.")
    ]


class ChangePoint(NamedTuple):
    """How values in order change most.

    ``split`` values come before a step; it is 0 where they follow a straight line. ``before`` and
    ``after`` are the values on both sides, or at both ends. ``chance`` is the probability of as
    clear a change where there is none.
    """

    split: int
    before: float
    after: float
    chance: float


_SAME_LOGS = 1e-12
"""Logs that differ by less are the same."""


def change_point(values: Sequence[float]) -> ChangePoint:
    """Return the step, or the straight line, that positive values in order show most clearly.

    The ratio of each contrast to its standard error has Student's t distribution with n - 2
    degrees of freedom, if the logs are normal about one mean. The chance is that of the clearest
    times the number of contrasts.

    Parameters
    ----------
    values : at least two times `MIN_LOOKS_OF_A_SIDE`

    Examples
    --------
    >>> found = change_point([22.0, 22.1, 22.0, 26.6, 26.7, 26.7])
    >>> found.split, round(found.after, 1), found.chance < 1e-5
    (3, 26.7, True)
    >>> found = change_point([22.0, 22.5, 23.0, 23.6, 24.0, 24.6, 25.2])
    >>> found.split, round(found.after, 1), found.chance < 1e-5
    (0, 25.2, True)
    >>> change_point([22.0, 22.1, 22.0, 22.1, 22.1, 22.0]).chance
    1.0
    """
    import numpy as np
    from scipy.special import stdtr

    logs, count = np.log(values), len(values)
    if np.ptp(logs) < _SAME_LOGS:
        return ChangePoint(0, values[0], values[-1], 1.0)
    order = np.arange(count) - (count - 1) / 2.0
    lines = {0: order}
    for split in range(MIN_LOOKS_OF_A_SIDE, count - MIN_LOOKS_OF_A_SIDE + 1):
        step = np.where(np.arange(count) < split, 0.0, 1.0)
        lines[split] = step - step.mean()
    clearest, best, fitted = -1.0, 0, logs
    for split, line in lines.items():
        about = logs.mean() + line * (line @ logs) / (line @ line)
        explained_by = float(((about - logs.mean()) ** 2).sum())
        left = float(((logs - about) ** 2).sum())
        ratio = explained_by / left if left > 0.0 else math.inf if explained_by > 0.0 else 0.0
        if ratio > clearest:
            clearest, best, fitted = ratio, split, about
    student = math.sqrt(clearest * (count - 2))
    chance = min(1.0, 2.0 * len(lines) * float(stdtr(count - 2, -student)))
    return ChangePoint(best, math.exp(fitted[0]), math.exp(fitted[-1]), chance)


def unsteadiness(points: Sequence[NetworkPoint]) -> list[Noticed]:
    """Return what the repeats of points say of the network: stalls, and times of two kinds.

    Parameters
    ----------
    points : all that were measured, those that were replaced or only looked at included
    """
    return [*_stalls(points), *_two_kinds(points)]


def _stalls(points: Sequence[NetworkPoint]) -> list[Noticed]:
    calls = stalled = 0
    longest, where = 0.0, ""
    for point in points:
        usual = point.median_s
        limit = usual + max(STALL_S, STALLS_OF_MEDIAN * usual)
        calls += len(point.seconds)
        late = [one - usual for one in point.seconds if one > limit]
        if explained(sum_in_order(late), point.waited_s):
            continue
        stalled += len(late)
        if max(point.seconds) > limit and max(point.seconds) - usual > longest:
            longest, where = max(point.seconds) - usual, point.name
    if stalled < MIN_STALLS:
        return []
    return [
        Noticed(
            "stalls",
            f"{stalled} of {calls:,} calls took over {format_seconds(STALL_S)} longer than their"
            f" median, up to {format_seconds(longest)} ({where}); the network loses packets, a link"
            " fails at times, or a host halts.",
        )
    ]


def _two_kinds(points: Sequence[NetworkPoint]) -> list[Noticed]:
    looked_at = unsteady = 0
    worst, words = UNSTEADY_FACTOR, ""
    for point in points:
        if len(point.seconds) < MIN_REPEATS:
            continue
        tenths = quantiles(point.seconds, n=10, method="inclusive")
        low, high = tenths[0], tenths[-1]
        if low < UNSTEADY_MIN_S:
            continue
        looked_at += 1
        excess_s = sum_in_order(one - low for one in point.seconds if one > UNSTEADY_FACTOR * low)
        if high <= UNSTEADY_FACTOR * low or explained(excess_s, point.waited_s):
            continue
        unsteady += 1
        if high / low > worst:
            worst = high / low
            words = f"{point.name}: {format_seconds(low)} to {format_seconds(high)}"
    if unsteady < MIN_UNSTEADY:
        return []
    return [
        Noticed(
            "unsteady",
            f"the repeats of {unsteady} of {looked_at} long messages differ by more than a factor"
            f" {UNSTEADY_FACTOR:g} ({words}); a link flaps, or others use the network.",
        )
    ]


def slow_hosts(
    pair_s: Mapping[tuple[str, str], float], size_bytes: int, when: str, least_s: float = 0.0
) -> list[Noticed]:
    """Return which hosts, or pairs of hosts, are slower than the others.

    A host is slow where the best of its pairs is: its neighbours have another pair, which is not.
    A pair is slow where both of its hosts do well in others. Two hosts tell nothing.

    Parameters
    ----------
    pair_s : by the two hosts of a pair, the time of a message there and back [s]; the pairs form a
        ring, or each host has some other ones
    size_bytes : of the message
    when : "at first" or "at last"
    least_s : difference that tells nothing, `smallest_difference_s` [s]

    Examples
    --------
    >>> ring = {("a", "b"): 9.0, ("b", "c"): 9.1, ("c", "d"): 1.0, ("a", "d"): 1.0}
    >>> slow_hosts(ring, 1024, "at first")[0].text.split(",")[0]
    'b is slow: 1.024 kB there and back take 9 s with each neighbour'
    """
    hosts = dict.fromkeys(host for pair in pair_s for host in pair)
    if len(hosts) < 3:
        return []
    best = {host: min(time_s for pair, time_s in pair_s.items() if host in pair) for host in hosts}
    usual = median(best.values())
    limit = max(SLOW_HOST_FACTOR * usual, usual + least_s)
    message = format_bytes(size_bytes)
    slow = [host for host in hosts if best[host] > limit]
    found = [
        Noticed(
            "slow_host",
            f"{host} is slow: {message} there and back take {format_seconds(best[host])} with each"
            f" neighbour, {format_seconds(usual)} among the others ({when}).",
        )
        for host in slow
    ]
    for (first, other), time_s in pair_s.items():
        if time_s > limit and first not in slow and other not in slow:
            text = (
                f"between {first} and {other} {message} there and back take"
                f" {format_seconds(time_s)}, {format_seconds(usual)} between others ({when})."
            )
            found.append(Noticed("slow_host", text))
    return found


def poor_fit(
    residual: float, stated: float, sizes: Sequence[float], residuals: Sequence[float]
) -> str:
    """Return in words how a fit misses what it was fitted to, "" where it does not.

    A fit is poor where its residual is above `POOR_RESIDUAL` and `POOR_OVER_STATED` times the
    stated error.

    Parameters
    ----------
    residual : relative, 90 % of the points are nearer
    stated : relative error that the file states
    sizes, residuals : of each point [B], and how far off it is, relative

    Examples
    --------
    >>> poor_fit(0.1, 0.01, [1.0], [0.1])
    ''
    >>> poor_fit(0.9, 0.01, [1024.0, 2048.0], [0.1, -0.9])
    'residual 90%, stated error 1.0%, worst at 2.048 kB (-90%)'
    """
    if residual <= max(POOR_RESIDUAL, POOR_OVER_STATED * stated):
        return ""
    worst = max(range(len(sizes)), key=lambda index: abs(residuals[index]))
    return (
        f"residual {residual:.0%}, stated error {stated:.1%}, worst at"
        f" {format_bytes(sizes[worst])} ({residuals[worst]:+.0%})"
    )
