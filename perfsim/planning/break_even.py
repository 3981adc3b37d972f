"""Break-even: the bandwidth and the number of GPUs at which a method and S-SGD take as long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cache

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.libraries import AUTO
from perfsim.methods.base import Group
from perfsim.network.cluster import Cluster
from perfsim.network.link import Link
from perfsim.quantity import Cost, Quantity
from perfsim.resolve import Setup, resolve
from perfsim.schedule.rounds import baseline_rounds, build_rounds
from perfsim.session import JobCache, RememberingCluster, job_cache
from perfsim.what_if import steady_s

__all__ = [
    "MOST_GPUS",
    "BreakEven",
    "BreakEvenPoint",
    "Pair",
    "bandwidth",
    "crossings",
    "gpus",
    "scaled_network",
    "scaled_rate",
]


@dataclass(frozen=True)
class _Scaled(Cluster):
    """``plain`` with another rate of its link between nodes (or, of one node, inside).

    Links' formulas take the new rate. A measured curve keeps its latency, and the rest of it
    changes as the links' formula of that collective does, so that a faster network is held up by
    the links inside the nodes as it would be.
    """

    plain: Cluster | None = None
    factor: float = 1.0

    def served(self, servers: int) -> Cluster:
        """Return the cluster with so many machines more that serve pushes and pulls."""
        assert self.plain is not None
        if servers == self.servers:
            return self
        return scaled_network(self.plain.served(servers), self.factor)

    def cluster_of(self, group: Group) -> Cluster:
        """Return one group of the ranks as a cluster of its own."""
        assert self.plain is not None
        part = self.plain.cluster_of(group)
        # Groups inside a node use its own links, which keep their rate.
        inside = part.nodes == 1 and self.nodes > 1
        return part if inside else scaled_network(part, self.factor)

    def cost(
        self, collective: str, size_bytes: float, algorithm: str = AUTO, protocol: str = AUTO
    ) -> Cost:
        """Return what one collective costs: the measured part scaled as the links' formula is."""
        assert self.plain is not None
        if self.known is None:
            return super().cost(collective, size_bytes, algorithm, protocol)
        found = self.plain.cost(collective, size_bytes, algorithm, protocol)
        chosen = self.plain.choice(collective, size_bytes, protocol)
        name = chosen if algorithm == AUTO else algorithm
        usual = self.plain.route(collective, name, protocol).cost(size_bytes)
        scaled = self.route(collective, name, protocol).cost(size_bytes)
        usual_s = usual.seconds - usual.latency_s
        ratio = (scaled.seconds - scaled.latency_s) / usual_s if usual_s > 0 else 1.0
        wire_s = (found.seconds - found.latency_s) * ratio
        return found._replace(seconds=found.latency_s + wire_s)


class _RememberingScaled(RememberingCluster, _Scaled):
    """The same, and what it costs is worked out once."""


def scaled_network(cluster: Cluster, factor: float) -> Cluster:
    """Return the cluster with its network ``factor`` times as fast, in bytes a second.

    The network is the link between nodes; where all GPUs stand on one node, the link inside it.

    Examples
    --------
    >>> from perfsim.network.link import custom_link
    >>> wire = custom_link("1GB/s,1ms", "x")
    >>> four = Cluster(4, (1, 1, 1, 1), wire, None)
    >>> [round(scaled_network(four, factor).cost("all_reduce", 1e6, "ring").seconds * 1e3, 2)
    ...  for factor in (0.5, 1.0, 2.0)]
    [9.0, 7.5, 6.75]
    """
    kept = {
        one.name: getattr(cluster, one.name)
        for one in fields(cluster)
        if one.name not in ("plain", "factor")
    }
    if cluster.nodes > 1:
        kept["inter"] = _faster(cluster.inter, factor)
    else:
        kept["intra"] = _faster(cluster.intra, factor)
    return _RememberingScaled(**kept, plain=cluster, factor=factor)


def scaled_rate(cluster: Cluster) -> float | None:
    """Return the rate that ``scaled_network`` multiplies [B/s]; None where there is no link."""
    link = cluster.inter if cluster.nodes > 1 else cluster.intra
    return None if link is None else link.rate.value


def _faster(link: Link | None, factor: float) -> Link | None:
    if link is None:
        return None
    held = {
        name: one._replace(rate=_times(one.rate, factor)) for name, one in link.protocols.items()
    }
    return replace(
        link,
        rate=_times(link.rate, factor),
        tree_rate=_times(link.tree_rate, factor),
        protocols=held,
    )


def _times(rate: Quantity, factor: float) -> Quantity:
    return rate._replace(value=rate.value * factor)


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
class BreakEvenPoint:
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
    crossings: tuple[BreakEvenPoint, ...] = ()
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
) -> list[BreakEvenPoint]:
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
    found: list[BreakEvenPoint] = []
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
            found.append(BreakEvenPoint(low[0], high[0], low[1], high[1], wins))
        last = (place, times)
    return found


def bandwidth(resolved: Setup) -> BreakEven:
    """Return the break-even over the rate of the network, all else as it is.

    The rate of the link between nodes is scaled, for the method and S-SGD alike (see
    ``scaled_network``); fusion and the library choose anew.
    """
    cluster = resolved.cluster
    if cluster.gpus == 1:
        return BreakEven("bandwidth", why_not="one GPU uses no network")
    if resolved.beside:
        return BreakEven("bandwidth", why_not=BESIDE)

    kept = JobCache()

    @cache
    def times_at(factor: float) -> Pair | None:
        return _pair(replace(resolved, cluster=scaled_network(cluster, factor)), kept)

    def between(low: float, high: float) -> float | None:
        return (low * high) ** 0.5 if high > low * (1.0 + CLOSE) else None

    found = _along(FACTORS, times_at, between)
    return replace(found, over="bandwidth", rate=scaled_rate(cluster))


def gpus(resolved: Setup, catalog: Catalog) -> BreakEven:
    """Return the break-even over the number of GPUs: powers of two, then between two of them.

    Nodes stay as full as they are; fewer GPUs than on one stand on one node.
    """
    scenario, each = resolved.scenario, resolved.cluster.gpus_per_node
    if resolved.beside:
        return BreakEven("gpus", why_not=BESIDE)
    if resolved.parts:
        return BreakEven("gpus", why_not="GPUs are of several types, so many of each")
    if resolved.cluster.uneven:
        return BreakEven("gpus", why_not="GPUs stand unevenly on the nodes as `placement` says")
    most = max(MOST_GPUS, resolved.cluster.gpus)
    counts = {2**power for power in range(1, each.bit_length()) if 2**power < each}
    counts |= {each * 2**power for power in range(20) if each * 2**power <= most}
    counts.discard(1)

    @cache
    def times_at(count: float) -> Pair | None:
        update = {"gpus": int(count), "gpus_per_node": min(each, int(count)), "placement": None}
        try:
            return _pair(resolve(scenario.model_copy(update=update), catalog), job_cache(catalog))
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


def _pair(resolved: Setup, kept: JobCache | None) -> Pair | None:
    """Return the iteration of the method and of S-SGD, None where one cannot run [s]."""
    try:
        method_s = steady_s(build_rounds(resolved, kept))
        return method_s, steady_s(baseline_rounds(resolved, kept))
    except RequestError:
        return None
