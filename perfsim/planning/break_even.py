"""Break-even: the bandwidth, or the number of GPUs, at which a method and S-SGD take as long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import count
from math import ceil, copysign, exp2, log, log1p, log2
from typing import TYPE_CHECKING, Literal, NamedTuple

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.libraries import AUTO
from perfsim.memory import memory_use
from perfsim.methods.base import Group
from perfsim.network.cluster import Cluster
from perfsim.network.link import Link
from perfsim.network.node_network import DerivedCollectives, node_network
from perfsim.network.node_type import Nics
from perfsim.network.route import Route
from perfsim.prediction import gathered_bytes, holds_gathered
from perfsim.quantity import Cost, Quantity
from perfsim.resolve import Setup, resolve
from perfsim.schedule.rounds import baseline_rounds, baseline_setup, build_rounds
from perfsim.session import JobCache, RememberingCluster, job_cache
from perfsim.what_if import steady_s

if TYPE_CHECKING:
    from perfsim.model_parallel import ModelSplit

__all__ = [
    "MAX_GPUS_SEARCHED",
    "BreakEven",
    "BreakEvenPoint",
    "Scale",
    "TimePair",
    "bandwidth_break_even",
    "crossings",
    "gpu_break_even",
    "on_scaled_network",
    "scaled_network",
    "scaled_rate",
]


MAX_GPUS_SEARCHED = 4096
"""Numbers of GPUs are searched up to here, or up to the scenario's own if that is more."""

_RATE_FACTORS = tuple(2.0**power for power in range(-10, 11))
"""The network's rate is searched from 1/1024 to 1024 times its own."""

_SAME_TIME = 1e-9
"""Times that differ by less than this share are equal."""

_CROSSING_WIDTH = 1e-4
"""Relative accuracy of a crossing's bandwidth."""

_OTHER_JOBS = "other jobs are on the network, and each step would simulate them anew"

_NO_HALVINGS = 1e-9
"""Where fewer halvings are left, rounding alone is: the bracket is narrow enough."""

_SPARE = 1
"""Steps to a crossing that may come on top of bisection's: n0 of the ITP method."""

_BEYOND = 0.2
"""How far beyond the line's crossing the first step goes, as a share of the bracket: kappa1
of the ITP method. Later steps go less far, by the square of the bracket's width (kappa2 = 2)."""

TimePair = tuple[float, float]
"""An iteration of the method and of S-SGD [s]."""


class Scale(NamedTuple):
    """What points there are between two that bracket a crossing.

    Parameters
    ----------
    halvings : how often a bracket must be halved until it is narrow enough; 0 or less where it is
    between : a point near some share of the way through a bracket, None where there is none
    """

    halvings: Callable[[float, float], float]
    between: Callable[[float, float, float], float | None]


@dataclass(frozen=True, slots=True)
class BreakEvenPoint:
    """A place at which the faster of the two changes.

    It changes between the neighbours ``before`` and ``at``: nearly the same rate, or two numbers
    of GPUs. If ``wins_above``, the method is the faster from ``at`` on, else up to ``before``.
    """

    before: float
    at: float
    times_before: TimePair
    times: TimePair
    wins_above: bool


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where a method and S-SGD take as long, between ``low`` and ``high``.

    Parameters
    ----------
    over : "bandwidth" (factors of the network's rate) or "gpus"
    low, high : the ends of the range that was searched
    curve : (factor or GPUs, times) on the grid
    crossings : where the faster of the two changes, from low to high
    rate : the network's rate that a factor multiplies (`scaled_rate`) [B/s]
    unfit, ssgd_unfit : GPUs of the curve among which the method, or S-SGD, does not fit into memory
    why_not : why nothing was searched, else ""
    """

    over: str
    low: float = 0.0
    high: float = 0.0
    curve: tuple[tuple[float, TimePair], ...] = ()
    crossings: tuple[BreakEvenPoint, ...] = ()
    rate: float | None = None
    why_not: str = ""
    unfit: tuple[int, ...] = ()
    ssgd_unfit: tuple[int, ...] = ()

    @property
    def wins(self) -> bool | None:
        """Whether the method is faster wherever the two differ; None if that depends."""
        winners = {_wins(times) for _, times in self.curve} - {None}
        return winners.pop() if len(winners) == 1 else None


def bandwidth_break_even(setup: Setup, jobs: JobCache | None = None) -> BreakEven:
    """Find the break-even over the rate of the network, with all else as asked.

    The network is scaled for the method and S-SGD alike (see `on_scaled_network`); fusion and the
    library choose anew. ``jobs`` are those known already.
    """
    if setup.cluster.gpus == 1:
        return BreakEven("bandwidth", why_not="one GPU uses no network")
    if setup.beside:
        return BreakEven("bandwidth", why_not=_OTHER_JOBS)

    jobs = jobs or JobCache()

    @cache
    def times_at(factor: float) -> TimePair | None:
        return _pair(on_scaled_network(setup, factor), jobs)

    scale = Scale(
        lambda low, high: log2(log(high / low) / log1p(_CROSSING_WIDTH)),
        lambda low, high, share: low * (high / low) ** share,
    )
    result = _along(_RATE_FACTORS, times_at, scale)
    return replace(result, over="bandwidth", rate=scaled_rate(setup))


def gpu_break_even(setup: Setup, catalog: Catalog, jobs: JobCache | None = None) -> BreakEven:
    """Find the break-even over the number of GPUs: powers of two, then between two of them.

    Nodes stay as full as they are; fewer GPUs than a node has are in one node. ``jobs`` are those
    known already.
    """
    scenario, each = setup.scenario, setup.cluster.gpus_per_node
    if setup.beside:
        return BreakEven("gpus", why_not=_OTHER_JOBS)
    if setup.parts:
        return BreakEven("gpus", why_not="the GPUs are of several types")
    if setup.cluster.wide is not None:
        return BreakEven("gpus", why_not="`site` says how many GPUs there are")
    if setup.cluster.uneven:
        return BreakEven("gpus", why_not="`placement` gives nodes different numbers of GPUs")
    jobs = jobs or job_cache(catalog) or JobCache()
    max_gpus = max(MAX_GPUS_SEARCHED, setup.cluster.gpus)
    counts = {2**power for power in range(1, each.bit_length()) if 2**power < each}
    counts |= {each * 2**power for power in range(20) if each * 2**power <= max_gpus}
    counts.discard(1)

    @cache
    def setup_of(count: float) -> Setup:
        update = {"gpus": int(count), "gpus_per_node": min(each, int(count)), "placement": None}
        return resolve(scenario.model_copy(update=update), catalog)

    @cache
    def times_at(count: float) -> TimePair | None:
        try:
            return _pair(setup_of(count), jobs)
        except RequestError:
            return None

    def step(low: float) -> int:
        return each if low >= each else 1

    def between(low: float, high: float, share: float) -> float | None:
        here = step(low)
        middle = low + here * round(share * (high - low) / here)
        middle = min(max(middle, low + here), high - here)
        tried = [middle + sign * here * away for away in range(4) for sign in (1, -1)]
        return next((one for one in tried if low < one < high and times_at(one)), None)

    scale = Scale(lambda low, high: log2((high - low) / step(low)), between)
    result = _along(sorted(counts), times_at, scale)
    setups = {int(gpus): setup_of(gpus) for gpus, _ in result.curve}
    unfit = [gpus for gpus, one in setups.items() if not _fits(one, jobs)]
    ssgd = [gpus for gpus, one in setups.items() if not memory_use(baseline_setup(one)).fits]
    return replace(result, over="gpus", unfit=tuple(unfit), ssgd_unfit=tuple(ssgd))


def _fits(setup: Setup, jobs: JobCache) -> bool:
    """Tell whether a method fits into memory, with what it gathers from all ranks."""
    rounds = build_rounds(setup, jobs, timing_only=True) if holds_gathered(setup) else []
    return memory_use(setup, gathered_bytes(setup, rounds)).fits


def _along(
    points: Iterable[float],
    times_at: Callable[[float], TimePair | None],
    scale: Scale,
) -> BreakEven:
    curve = [(point, times) for point in points if (times := times_at(point)) is not None]
    if not curve:
        return BreakEven("", why_not="the method runs nowhere in the range")
    points_found = crossings(curve, times_at, scale)
    return BreakEven("", curve[0][0], curve[-1][0], tuple(curve), tuple(points_found))


def _pair(setup: Setup, jobs: JobCache | None) -> TimePair | None:
    """Return the iteration of the method and of S-SGD, None where one cannot run [s]."""
    try:
        method_s = steady_s(build_rounds(setup, jobs, timing_only=True))
        return method_s, steady_s(baseline_rounds(setup, jobs, timing_only=True))
    except RequestError:
        return None


def crossings(
    curve: Iterable[tuple[float, TimePair]],
    times_at: Callable[[float], TimePair | None],
    scale: Scale,
) -> list[BreakEvenPoint]:
    """Find where the faster of two changes along a curve.

    Each step to a crossing goes to where a straight line through the logarithms of the ratio of
    times crosses, and somewhat beyond. A smooth curve takes a few steps, no curve more than one
    more than bisection.

    Parameters
    ----------
    curve : points (factor or GPUs) in rising order, with the times there
    times_at : the times at a point, None where there are none
    scale : what points there are between those of the curve

    References
    ----------
    Oliveira & Takahashi, An Enhancement of the Bisection Method Average Performance Preserving
    Minmax Optimality, ACM Transactions on Mathematical Software 47(1), 2021: the ITP method.

    Examples
    --------
    The method takes 1 s everywhere, S-SGD 3 s divided by the point:

    >>> points = [1.0, 2.0, 4.0]
    >>> times = lambda x: (1.0, 3.0 / x)
    >>> from math import log2
    >>> scale = Scale(lambda low, high: log2((high - low) / 1e-6),
    ...               lambda low, high, share: low + share * (high - low))
    >>> found, = crossings([(x, times(x)) for x in points], times, scale)
    >>> round(found.at, 5), found.wins_above
    (3.0, False)
    """
    result: list[BreakEvenPoint] = []
    last: tuple[float, TimePair] | None = None
    for point, times in curve:
        wins = _wins(times)
        if wins is None:  # equal here: the next point decides
            continue
        if last is not None and _wins(last[1]) is not wins:
            low, high = _narrowed(last, (point, times), times_at, scale)
            result.append(BreakEvenPoint(low[0], high[0], low[1], high[1], wins))
        last = (point, times)
    return result


_Place = tuple[float, TimePair]
"""A point and the times there."""


def _narrowed(
    low: _Place, high: _Place, times_at: Callable[[float], TimePair | None], scale: Scale
) -> tuple[_Place, _Place]:
    """Narrow a bracket, between whose ends the faster of two changes, until it is narrow enough."""
    wins, first = _wins(high[1]), scale.halvings(low[0], high[0])
    for steps in count():
        left = scale.halvings(low[0], high[0])
        if left <= _NO_HALVINGS:
            break
        share = _next_share(low[1], high[1], first, steps, left)
        middle = scale.between(low[0], high[0], share)
        here = None if middle is None else times_at(middle)
        if middle is None or here is None:
            break
        if _wins(here) is wins:
            high = middle, here
        else:
            low = middle, here
    return low, high


def _next_share(low: TimePair, high: TimePair, first: float, steps: int, left: float) -> float:
    """Return how far into a bracket the next step goes, as a share of it, by the ITP method.

    Parameters
    ----------
    low, high : times at its ends
    first, left : halvings that bisection needed at first, and needs now
    steps : those taken
    """
    fall, rise = (log(method_s / ssgd_s) for method_s, ssgd_s in (low, high))
    line = min(max(fall / (fall - rise), 0.0), 1.0) if fall != rise else 0.5
    beyond = max(_BEYOND * exp2(left - first), exp2(-left) / 2)  # half of what is narrow enough
    share = line + copysign(beyond, 0.5 - line) if beyond <= abs(0.5 - line) else 0.5
    reach = max(0.0, exp2(ceil(first) + _SPARE - steps - left) - 1.0) / 2.0
    return min(max(share, 0.5 - reach), 0.5 + reach)


def _wins(times: TimePair) -> bool | None:
    """Return whether the method is faster, None if both are equal."""
    method_s, ssgd_s = times
    if abs(method_s - ssgd_s) <= _SAME_TIME * ssgd_s:
        return None
    return method_s < ssgd_s


@dataclass(frozen=True)
class _Scaled(Cluster):
    """The cluster ``plain`` with another rate of its network.

    Formulas take the new rate. A measured curve keeps its latency; the rest of it changes in the
    same ratio as the formula of that collective, so that links inside the nodes limit a faster
    network as they would.
    """

    plain: Cluster | None = None
    factor: float = 1.0

    def served(self, servers: int) -> Cluster:
        """Return the cluster with ``servers`` further machines for pushes and pulls."""
        assert self.plain is not None
        if servers == self.servers:
            return self
        return scaled_network(self.plain.served(servers), self.factor, self.inter)

    def in_one_place(self) -> Cluster:
        """Return the cluster with all nodes at one site, whose links keep their rate."""
        assert self.plain is not None
        return self if self.wide is None else self.plain.in_one_place()

    def by_site(self) -> Cluster:
        """Return the cluster with sites in place of nodes in what groups of the ranks mean."""
        assert self.plain is not None
        return self if self.wide is None else scaled_network(self.plain.by_site(), self.factor)

    def cluster_of(self, group: Group) -> Cluster:
        """Return one group of the ranks as a cluster of its own."""
        assert self.plain is not None
        return _scaled_part(self.plain.cluster_of(group), self, self.factor, self.inter)

    def cost(
        self, collective: str, size_bytes: float, algorithm: str = AUTO, protocol: str = AUTO
    ) -> Cost:
        """Price one collective: what was measured is scaled as the links' formula is."""
        assert self.plain is not None
        if self.known is None or self.wide is not None:
            return super().cost(collective, size_bytes, algorithm, protocol)
        collective = self.runs_as(collective, algorithm)
        cost = self.plain.cost(collective, size_bytes, algorithm, protocol)
        chosen = self.plain.choice(collective, size_bytes, protocol)
        name = chosen if algorithm == AUTO else algorithm
        usual = self.plain.route(collective, name, protocol).cost(size_bytes)
        scaled = self.route(collective, name, protocol).cost(size_bytes)
        usual_s = usual.seconds - usual.latency_s
        ratio = (scaled.seconds - scaled.latency_s) / usual_s if usual_s > 0 else 1.0
        wire_s = (cost.seconds - cost.latency_s) * ratio
        return cost._replace(seconds=cost.latency_s + wire_s)

    def _cost_or_route(
        self, collective: str, size_bytes: float, algorithm: str, protocol: str
    ) -> Cost | Route:
        if self.known is None or self.wide is not None:
            return super()._cost_or_route(collective, size_bytes, algorithm, protocol)
        return self.cost(collective, size_bytes, algorithm, protocol)


class _RememberingScaled(RememberingCluster, _Scaled):
    """The same, with what it costs worked out once."""

    def by_site(self) -> Cluster:
        """Return the cluster with sites in place of nodes, as `_Scaled` does."""
        return _Scaled.by_site(self)

    def in_one_place(self) -> Cluster:
        """Return the cluster with all nodes at one site, as `_Scaled` does."""
        return _Scaled.in_one_place(self)


def on_scaled_network(setup: Setup, factor: float) -> Setup:
    """Return a setup with the rate of its network multiplied by ``factor``.

    The network is what joins its places: the links of sites, without sites the link between nodes,
    and on one node the links inside it. All else keeps its rate. Groups of a divided model that
    send over the network are scaled too, and their pipelines laid out anew. Of a node type the NICs
    are scaled, so that their link and collectives are derived anew, as ``nic`` does. Other jobs
    (``beside``) keep their network. No session keeps anything of it.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> from perfsim.session import default_session
    >>> def asked(**fields):
    ...     scenario = Scenario(model="resnet50", gpus=16, node="dgx-1", **fields)
    ...     return resolve(scenario, default_session())
    >>> slow, same = on_scaled_network(asked(), 0.01), asked(nic="1Gbit/s")
    >>> slow.cluster.seconds("all_reduce", 1e8) == same.cluster.seconds("all_reduce", 1e8)
    True
    """
    cluster, network, inter = setup.cluster, setup.network, None
    node, nics = network.node_type, _scaled_nics(setup)
    if node is not None and nics is not None:
        nics = nics._replace(rate=nics.rate * factor)
        network = node_network(node._replace(nics=nics))
        inter = network.links["inter"]
    scaled = partial(_scaled_part, whole=cluster, factor=factor, inter=inter)
    split, ssgd = _scaled_split(setup.split, scaled), setup.ssgd
    if ssgd is not None:
        ssgd = ssgd._replace(split=_scaled_split(ssgd.split, scaled))
    cluster = scaled_network(cluster, factor, inter)
    return replace(setup, network=network, cluster=cluster, split=split, ssgd=ssgd)


def _scaled_split(
    split: ModelSplit | None, scaled: Callable[[Cluster], Cluster]
) -> ModelSplit | None:
    if split is None:
        return None
    axes = {axis: scaled(part) for axis, part in split.axes.items()}
    return replace(split, data=scaled(split.data), axes=axes)


def scaled_rate(setup: Setup) -> float | None:
    """Return the rate that `on_scaled_network` multiplies [B/s]; None if there is no link.

    It is that of the slowest site's link, of a node type's NIC by its data sheet, of the link
    between nodes, or of the link inside the only node.
    """
    cluster, nics = setup.cluster, _scaled_nics(setup)
    if cluster.wide is not None:
        return cluster.wide.slowest_rate
    if nics is not None:
        return nics.rate
    link = cluster.inter if cluster.nodes > 1 else cluster.intra
    return None if link is None else link.rate.value


def _scaled_nics(setup: Setup) -> Nics | None:
    """Return the NICs that are the network of a setup; None where something else is."""
    cluster, node = setup.cluster, setup.network.node_type
    if node is None or cluster.nodes == 1 or cluster.wide is not None:
        return None
    return node.nics


def _scaled_part(part: Cluster, whole: Cluster, factor: float, inter: Link | None) -> Cluster:
    """Return a group of a cluster's ranks with its network scaled, as it is where it uses none."""
    inside = part.nodes == 1 and whole.nodes > 1
    if whole.wide is not None:
        inside = part.wide is None
    return part if inside else scaled_network(part, factor, inter)


def scaled_network(cluster: Cluster, factor: float, inter: Link | None = None) -> Cluster:
    """Return a cluster with the rate of its network multiplied by ``factor``.

    ``inter`` is the link between nodes at that rate; None: the cluster's, scaled. Where a setup is
    known, `on_scaled_network` scales all of it.

    Examples
    --------
    >>> from perfsim.network.link import custom_link
    >>> wire = custom_link("1GB/s,1ms", "x")
    >>> four = Cluster(4, (1, 1, 1, 1), wire, None)
    >>> [round(scaled_network(four, factor).cost("all_reduce", 1e6, "ring").seconds * 1e3, 2)
    ...  for factor in (0.5, 1.0, 2.0)]
    [9.0, 7.5, 6.75]
    """
    kept = {one.name: getattr(cluster, one.name) for one in fields(Cluster)}
    if cluster.wide is not None:
        kept["wide"] = cluster.wide.faster(factor)
    elif cluster.nodes > 1:
        kept["inter"] = inter or _faster(cluster.inter, factor)
        kept["derived"] = _faster_nodes(cluster.derived, "nic_rate", factor)
    else:
        kept["intra"] = _faster(cluster.intra, factor)
        kept["derived"] = _faster_nodes(cluster.derived, "inside_rate", factor)
    return _RememberingScaled(**kept, plain=cluster, factor=factor)


def _faster_nodes(
    derived: DerivedCollectives | None, what: Literal["nic_rate", "inside_rate"], factor: float
) -> DerivedCollectives | None:
    if derived is None:
        return None
    facts = derived.facts
    rate = {what: getattr(facts, what) * factor}
    return derived._replace(facts=facts._replace(**rate))


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
