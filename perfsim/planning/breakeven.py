"""Break-even: the bandwidth and the number of GPUs at which a method and S-SGD take as long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from perfsim.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.kept_jobs import KeptJobs
from perfsim.planning.scaled_network import scaled_network, scaled_rate
from perfsim.plans import baseline_of, plans_of
from perfsim.resolve import Resolved, resolve
from perfsim.session import jobs_of
from perfsim.whatif import steady_s

__all__ = ["MOST_GPUS", "BreakEven", "Crossing", "Pair", "bandwidth", "crossings", "gpus"]

FACTORS = tuple(2.0**power for power in range(-10, 11))
"""The network's rate is looked at from 1/1024 to 1024 times what it is, in steps of 2."""

MOST_GPUS = 4096
"""Numbers of GPUs are looked at up to here, or up to what was asked where that is more."""

SAME = 1e-9
"""Times nearer than this share count as equal: neither is faster."""

CLOSE = 1e-4
"""Share of the factor to which a crossing is found."""

BESIDE = "other jobs are on the network, which a search would follow anew at every step"

Pair = tuple[float, float]
"""An iteration of the method and of S-SGD [s]."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where the faster of the two changes: the method is, from ``at`` on or up to there.

    ``before`` and ``at`` are the neighbours between which it changes (nearly the same for a rate;
    the numbers of GPUs on either side), with the times at both.
    """

    before: float
    at: float
    times_before: Pair
    times: Pair
    wins_above: bool


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What was found between ``low`` and ``high``.

    Parameters
    ----------
    over : "bandwidth" (factors of the network's rate) or "gpus"
    low, high : the ends of what was looked at
    curve : (factor or GPUs, times) on the grid
    crossings : where the faster of the two changes, from low to high
    rate : the network's rate that a factor multiplies [B/s]
    why_not : why nothing was looked for, else ""
    """

    over: str
    low: float = 0.0
    high: float = 0.0
    curve: tuple[tuple[float, Pair], ...] = ()
    crossings: tuple[Crossing, ...] = ()
    rate: float | None = None
    why_not: str = ""

    @property
    def wins(self) -> bool | None:
        """Whether the method is faster wherever the two differ; None if that depends or never."""
        found = {_wins(times) for _, times in self.curve} - {None}
        return found.pop() if len(found) == 1 else None


def _wins(times: Pair) -> bool | None:
    """Return whether the method is faster, None if both are equal."""
    method_s, ssgd_s = times
    if abs(method_s - ssgd_s) <= SAME * ssgd_s:
        return None
    return method_s < ssgd_s


def crossings(
    curve: Iterable[tuple[float, Pair]],
    times_at: Callable[[float], Pair | None],
    between: Callable[[float, float], float | None],
) -> list[Crossing]:
    """Return where the faster of two changes along a curve, each place found by bisection.

    Parameters
    ----------
    curve : places, rising, with the times there
    times_at : the times at a place, None where there are none
    between : a place between two, None where they are near enough

    Examples
    --------
    The method takes 1 s whatever the place, S-SGD 3 s divided by it:

    >>> places = [1.0, 2.0, 4.0]
    >>> times = lambda x: (1.0, 3.0 / x)
    >>> middle = lambda low, high: (low + high) / 2 if high - low > 1e-6 else None
    >>> found, = crossings([(x, times(x)) for x in places], times, middle)
    >>> round(found.at, 5), found.wins_above
    (3.0, False)
    """
    found: list[Crossing] = []
    last: tuple[float, Pair] | None = None
    for place, times in curve:
        wins = _wins(times)
        if wins is None:  # equal: who is faster beyond will tell
            continue
        if last is not None and _wins(last[1]) is not wins:
            low, high = last, (place, times)
            while (middle := between(low[0], high[0])) is not None:
                here = times_at(middle)
                if here is None:
                    break
                if _wins(here) is wins:
                    high = middle, here
                else:
                    low = middle, here
            found.append(Crossing(low[0], high[0], low[1], high[1], wins))
        last = (place, times)
    return found


def bandwidth(resolved: Resolved) -> BreakEven:
    """Return the break-even over the rate of the network, all else as it is.

    The rate of the link between nodes is scaled, for the method and S-SGD alike (see
    ``scaled_network``); fusion and the library choose anew.
    """
    cluster = resolved.cluster
    if cluster.gpus == 1:
        return BreakEven("bandwidth", why_not="one GPU uses no network")
    if resolved.beside:
        return BreakEven("bandwidth", why_not=BESIDE)

    kept = KeptJobs()

    @cache
    def times_at(factor: float) -> Pair | None:
        return _pair(replace(resolved, cluster=scaled_network(cluster, factor)), kept)

    def between(low: float, high: float) -> float | None:
        return (low * high) ** 0.5 if high > low * (1.0 + CLOSE) else None

    found = _along(FACTORS, times_at, between)
    return replace(found, over="bandwidth", rate=scaled_rate(cluster))


def gpus(resolved: Resolved, catalog: Catalog) -> BreakEven:
    """Return the break-even over the number of GPUs: powers of two, then between two of them.

    Nodes stay as full as they are; fewer GPUs than on one stand on one node.
    """
    scenario, each = resolved.scenario, resolved.cluster.gpus_per_node
    if resolved.beside:
        return BreakEven("gpus", why_not=BESIDE)
    if resolved.parts:
        return BreakEven("gpus", why_not="GPUs are of several types, so many of each")
    if resolved.cluster.uneven:
        return BreakEven("gpus", why_not="GPUs stand unevenly on the nodes as --placement says")
    most = max(MOST_GPUS, resolved.cluster.gpus)
    counts = {2**power for power in range(1, each.bit_length()) if 2**power < each}
    counts |= {each * 2**power for power in range(20) if each * 2**power <= most}
    counts.discard(1)

    @cache
    def times_at(count: float) -> Pair | None:
        update = {"gpus": int(count), "gpus_per_node": min(each, int(count)), "placement": None}
        try:
            return _pair(resolve(scenario.model_copy(update=update), catalog), jobs_of(catalog))
        except RequestError:
            return None

    def between(low: float, high: float) -> float | None:
        step = each if low >= each else 1
        middle = low + step * ((high - low) // (2 * step))
        tried = [middle + sign * step * away for away in range(4) for sign in (1, -1)]
        return next((one for one in tried if low < one < high and times_at(one)), None)

    return replace(_along(sorted(counts), times_at, between), over="gpus")


def _along(
    places: Iterable[float],
    times_at: Callable[[float], Pair | None],
    between: Callable[[float, float], float | None],
) -> BreakEven:
    curve = [(place, times) for place in places if (times := times_at(place)) is not None]
    if not curve:
        return BreakEven("", why_not="the method runs at none of the places looked at")
    found = crossings(curve, times_at, between)
    return BreakEven("", curve[0][0], curve[-1][0], tuple(curve), tuple(found))


def _pair(resolved: Resolved, kept: KeptJobs | None) -> Pair | None:
    """Return the iteration of the method and of S-SGD, None where one cannot run [s]."""
    try:
        method_s = steady_s(plans_of(resolved, kept))
        return method_s, steady_s(baseline_of(resolved, kept))
    except RequestError:
        return None
