"""Routes: one algorithm on the links of one cluster, and what it costs by message size.

First the links are changed to what the algorithm's flows see of them: switches between nodes,
other traffic, the GPUs of a node in use. A `Route` then works out once all that does not depend on
the message size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from perfsim.by_size import slowest_of
from perfsim.collectives import Algorithm, Hops
from perfsim.errors import RequestError
from perfsim.network.line_times import LatencyLines, line_times, rising
from perfsim.network.link import Latency, Link
from perfsim.quantity import Cost, Grade, Quantity, Term
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes

if TYPE_CHECKING:
    from perfsim.network.fabrics.slowdown import Fabric, NodeFabric

__all__ = [
    "ClusterLinks",
    "Route",
    "among_nodes",
    "inside_node",
    "over_nics",
    "through_fabric",
    "with_background",
]


def through_fabric(
    link: Link,
    fabric: Fabric,
    flows: str,
    placement: tuple[int, ...],
    nics: int,
    measured_through: bool = False,
    one_rank: bool = False,
) -> Link:
    """Return the link between nodes as an algorithm's flows see it through a fabric.

    A link that was measured alone takes all of the fabric's slowdown and latency. A link that was
    measured through the fabric has some of it in its numbers. Its rates are divided by the slowdown
    of these flows over that of the measured ring, or tree. Its latencies grow by what these hops
    are longer than the measured ones.

    Parameters
    ----------
    link : what a NIC does, alone or through the fabric
    fabric : switches between the nodes
    flows : what an algorithm sends at once, one of `perfsim.network.routing.PATTERNS`
    placement, nics : GPUs on each node; NICs of a node
    measured_through : whether the link was measured through this fabric, by `Link.ranks` GPUs,
        as many a node as here; without those ranks it counts as measured alone
    one_rank : whether one rank of each node sends to other nodes, over one of its NICs

    Raises
    ------
    RequestError
        If there are no such flows, or the fabric does not hold the nodes.
    """
    crossing = (1,) * len(placement) if one_rank else placement
    slower = fabric.slowdown(flows, crossing, nics)
    longer_s = fabric.extra_latency_s(flows, placement)
    why = f"behind {fabric.words()} (routed {flows} flows: {slower:.3g} times as long a byte"
    if not measured_through or link.ranks is None:
        return _changed(link, (slower, longer_s), (slower, longer_s), f"{why})")
    there = _measured_on(fabric, link.ranks[1], placement)
    ring, tree = (fabric.slowdown(pattern, there, nics) for pattern in ("ring", "tree"))
    ring_s, tree_s = (fabric.extra_latency_s(pattern, there) for pattern in ("ring", "tree"))
    return _changed(
        link,
        (slower / ring, max(0.0, longer_s - ring_s)),
        (slower / tree, max(0.0, longer_s - tree_s)),
        f"{why}; as measured, {ring:.3g} in a ring, {tree:.3g} in a tree)",
    )


def _measured_on(fabric: Fabric, ranks: int, placement: tuple[int, ...]) -> tuple[int, ...]:
    """Return the placement that was measured: full nodes, at least two, that the fabric holds."""
    gpus = max(placement)
    nodes = max(2, ranks // gpus)
    while nodes > len(placement):
        try:
            fabric.hosts(fabric.graph(nodes), nodes)
        except RequestError:  # it has fewer nodes: those measured had more GPUs each
            nodes //= 2
        else:
            break
    return (gpus,) * nodes


def with_background(link: Link, background: float) -> Link:
    """Return the link between nodes beside other traffic that takes a share of it.

    Every byte takes as long as on a link with the rest of the rate; latency stays.

    Examples
    --------
    >>> from perfsim.network.link import custom_link
    >>> with_background(custom_link("10Gbit/s,50us", "net"), 0.2).rate.value
    1000000000.0
    """
    slower = 1.0 / (1.0 - background)
    why = f"{1.0 - background:.0%} of it, beside other traffic"
    changed = _changed(link, (slower, 0.0), (slower, 0.0), why)
    protocols = {
        name: figures._replace(rate=figures.rate._replace(value=figures.rate.value / slower))
        for name, figures in link.protocols.items()
    }
    return replace(changed, protocols=protocols)


def among_nodes(link: Link, nodes: int) -> Link:
    """Return the link between nodes as it is among ``nodes``, where its rates fall with them.

    Examples
    --------
    >>> from perfsim.network.link import NodeExponent, custom_link
    >>> exponent = Quantity(0.5, "", "derived", "an example")
    >>> link = replace(custom_link("8Gbit/s,50us", "net"), falls=NodeExponent(exponent, 2))
    >>> among_nodes(link, 8).rate.value, among_nodes(link, 2).rate.value
    (500000000.0, 1000000000.0)
    """
    if link.falls is None or nodes <= link.falls.nodes:
        return link
    slower, wider = link.falls.slower(nodes), link.falls.spread(nodes)
    why = f"{1.0 / slower:.3g} of it on {nodes} nodes: {link.falls.exponent.source}"
    changed = _changed(link, (slower, 0.0), (slower, 0.0), why)
    return replace(
        changed, rate=_wider(changed.rate, wider), tree_rate=_wider(changed.tree_rate, wider)
    )


def over_nics(link: Link, nics: int) -> Link:
    """Return the link between nodes as each of ``nics`` of a node sees it that send at once.

    Examples
    --------
    >>> from perfsim.network.link import NicSharing, custom_link
    >>> link = replace(custom_link("8Gbit/s,50us", "net"), sharing=NicSharing(0.75, 0.5))
    >>> [round(nics * over_nics(link, nics).rate.value / 1e9, 3) for nics in (1, 2, 1000)]
    [1.0, 1.387, 1.667]
    """
    if link.sharing is None or nics == 1:
        return link
    slower = nics / link.sharing.together(nics)
    why = f"{1.0 / slower:.3g} of it over each of {nics} NICs: the host feeds them all"
    return _changed(link, (slower, 0.0), (slower, 0.0), why)


def _wider(rate: Quantity, spread: float) -> Quantity:
    return rate._replace(spread=math.hypot(rate.spread or 0.0, spread))


def inside_node(link: Link, node: NodeFabric, gpus: int) -> Link:
    """Return the link inside a node for a ring over ``gpus`` of its GPUs."""
    measured = link.ranks[1] if link.ranks else gpus
    if measured == gpus:
        return link
    slower = node.slowdown(gpus, measured)
    why = f"{gpus} GPUs of {node.words()} instead of {measured}: {slower:.3g} times as long a byte"
    return _changed(link, (slower, 0.0), (slower, 0.0), why)


LinkChange = tuple[float, float]
"""How many times longer a byte takes, and how much longer a hop [s]."""


def _changed(link: Link, ring: LinkChange, tree: LinkChange, why: str) -> Link:
    def rate(quantity: Quantity, slower: float) -> Quantity:
        if slower == 1.0:
            return quantity
        source = f"{quantity.source}; {why}"
        return quantity._replace(value=quantity.value / slower, kind="derived", source=source)

    def curve(latency: Latency, longer_s: float) -> Latency:
        if longer_s == 0.0:
            return latency
        alphas = tuple(alpha_s + longer_s for alpha_s in latency.alpha_s)
        return replace(latency, alpha_s=alphas, kind="derived", source=f"{latency.source}; {why}")

    if ring == tree == (1.0, 0.0):
        return link
    return replace(
        link,
        rate=rate(link.rate, ring[0]),
        tree_rate=rate(link.tree_rate, tree[0]),
        ring=curve(link.ring, ring[1]),
        tree=curve(link.tree, tree[1]),
    )


class ClusterLinks(NamedTuple):
    """The ranks of a cluster and the links in use between and inside its nodes.

    Parameters
    ----------
    ranks, nodes, gpus_per_node : P, N, and g on the fullest node
    nics : that share a node's traffic
    inter : None for one node
    intra : None for one GPU a node
    servers : machines without GPUs
    """

    ranks: int
    nodes: int
    gpus_per_node: int
    nics: int
    inter: Link | None
    intra: Link | None
    servers: int = 0

    @property
    def links(self) -> dict[str, Link]:
        """Links in use by class."""
        pairs = (("inter", self.inter), ("intra", self.intra))
        return {link_class: link for link_class, link in pairs if link is not None}

    @property
    def members(self) -> dict[str, int]:
        """GPUs that the hops of each class join, to hold against the range of its fit."""
        return {"inter": self.ranks, "intra": self.gpus_per_node}

    @property
    def stretch(self) -> dict[str, float]:
        """How many times longer the ring is than the longest measured, by class, where it is.

        Between nodes the range of that link decides, in whose fit the hops inside took part; a
        link without a range leaves it to the one inside.
        """
        most = {link_class: link.ranks[1] for link_class, link in self.links.items() if link.ranks}
        if self.ranks <= most.get("inter", most.get("intra", self.ranks)):
            return {}
        return {name: max(1.0, self.ranks / most.get(name, self.ranks)) for name in self.links}

    @property
    def longest_measured(self) -> ClusterLinks | None:
        """The largest cluster of such nodes within the range, or None if one GPU is left."""
        inter, intra = self.inter, self.intra
        nodes = inter.ranks[1] // self.gpus_per_node if inter and inter.ranks else 1
        if nodes > 1:
            return self._replace(ranks=nodes * self.gpus_per_node, nodes=nodes)
        if intra is None:
            return None
        inside = min(self.gpus_per_node, intra.ranks[1] if intra.ranks else self.gpus_per_node)
        return self._replace(ranks=inside, nodes=1, gpus_per_node=inside, inter=None)

    def hops(self) -> Hops:
        """Return the hops without their latency: what does not depend on the message size.

        A ring or tree crosses both classes of link; the busiest one sets its beta.
        """
        inter, intra = self.inter, self.intra
        wire = 1.0 / intra.rate.value if intra else 0.0
        nic = 1.0 / (self.nics * inter.rate.value) if inter else 0.0
        tree_wire = 1.0 / intra.tree_rate.value if intra else 0.0
        # The sum runs where bytes queue: the rate of the slower link includes its own gamma.
        busiest = inter if inter and (intra is None or nic >= wire) else intra
        tree_nic = 1.0 / (self.nics * inter.tree_rate.value) if inter else 0.0
        return Hops(
            ranks=self.ranks,
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            alpha_intra_s=0.0,
            alpha_inter_s=0.0,
            beta_s_per_byte=max(nic, wire),
            tree_beta_s_per_byte=max(tree_nic, tree_wire),
            beta_intra_s_per_byte=wire,
            beta_nic_s_per_byte=nic,
            gamma_s_per_byte=busiest.gamma.value if busiest else 0.0,
            servers=self.servers,
        )


_PROBE_BYTES = 1e6
"""A message to find out which links' numbers a formula uses. No source: chosen; any size does."""

_SLOWER = 1.0 - 1e-6
"""A rate is made so much slower to see whether the formula uses it. No source: chosen."""


class LinkPath:
    """An algorithm over hops, each class of link with one latency curve.

    A latency curve may fall faster than the wire time grows, and the sum would fall with size. A
    larger message never costs less than a smaller one, so ``times`` are the running maximum. Alpha
    is straight in log size: between knots the sum rises or is convex, so its maximum lies at a
    knot. From the last knot on alpha is constant.
    """

    def __init__(self, algorithm: Algorithm, base: Hops, curves: Mapping[str, Latency]) -> None:
        self.algorithm, self.base, self.curves = algorithm, base, curves
        self._intra, self._inter = curves.get("intra"), curves.get("inter")
        latencies = LatencyLines.of(self._intra, self._inter)
        self.knots = latencies.knots
        self._constant_from = self.knots[-1] if self.knots else 0.0
        if algorithm.line is not None and base.ranks > 1:
            self.times = line_times(algorithm.line(base), latencies)
        else:
            self.times = rising(self._formula_s, self.knots)

    @cached_property
    def of_large(self) -> Hops:
        """The hops of all messages from the last knot on."""
        return self._hops(self._constant_from)

    def hops(self, size_bytes: float) -> Hops:
        """Return the hops for a message of this size."""
        if size_bytes >= self._constant_from:
            return self.of_large
        return self._hops(size_bytes)

    def _hops(self, size_bytes: float) -> Hops:
        base = self.base
        return Hops(
            base.ranks,
            base.nodes,
            base.gpus_per_node,
            self._intra.at(size_bytes) if self._intra else 0.0,
            self._inter.at(size_bytes) if self._inter else 0.0,
            base.beta_s_per_byte,
            base.tree_beta_s_per_byte,
            base.beta_intra_s_per_byte,
            base.beta_nic_s_per_byte,
            base.gamma_s_per_byte,
            base.servers,
        )

    def _formula_s(self, size_bytes: float) -> float:
        """Return the time for a message of this size by the formula alone [s]."""
        return self.algorithm.formula(size_bytes, self.hops(size_bytes)).seconds


class Route:
    """The hops that an algorithm takes over the links of a cluster.

    A ring longer than any measured is treated so:

    - its steps carry less than those that the curves were measured with, so the curves are read at
      that size (`Latency.stretched`), less any rise that would let the time fall as GPUs are added
      (`Latency.gentle`);
    - it takes at least the time of the longest ring measured;
    - inside its nodes, where there are several, latency past 64 KiB stays what it is at 64 KiB:
      what it rises by is a wire filling up, which does not show beside a slower one between nodes,
      and with a faster one the ring takes no longer.

    ``node_size_unmeasured`` says that the link between nodes was measured with other numbers of
    GPUs on each node. ``times`` tell the time by the size of the message, and ``seconds`` that of
    one. What a cost says besides its time is worked out where it is asked for.
    """

    def __init__(
        self, algorithm: Algorithm, wiring: ClusterLinks, node_size_unmeasured: bool = False
    ) -> None:
        self.algorithm, self.wiring = algorithm, wiring
        self.node_size_unmeasured = node_size_unmeasured
        self.base = wiring.hops()
        self.curves: dict[str, Latency] = {
            link_class: getattr(link, algorithm.latency)
            for link_class, link in wiring.links.items()
        }
        self.paths = self._paths(wiring)
        self.times = slowest_of([path.times for path in self.paths])
        self.seconds = self.times.of

    @property
    def grade(self) -> Grade:
        """The evidence for its costs: that of the link between nodes, if there is one."""
        links = self.wiring.links
        widest = links.get("inter") or links.get("intra")
        return widest.grade if widest else "measured"

    @cached_property
    def outside(self) -> dict[str, bool]:
        """Whether each class of link is used outside what was measured of it."""
        members = self.wiring.members
        return {
            link_class: (self.node_size_unmeasured and link_class == "inter")
            or (
                link.ranks is not None and not link.ranks[0] <= members[link_class] <= link.ranks[1]
            )
            for link_class, link in self.wiring.links.items()
        }

    def sent_bytes(self, size_bytes: float) -> float:
        """Return what a rank sends of a message of this size: latencies do not count."""
        return self.algorithm.sent_bytes(size_bytes, self.base)

    def cost(self, size_bytes: float) -> Cost:
        """Return the cost for a message of this size, with the numbers that it follows from."""
        hops = self.paths[0].hops(size_bytes)
        parts = self.algorithm.formula(size_bytes, hops)
        seconds = self.seconds(size_bytes)
        latency_s = seconds - parts.transfer_s
        rates = [
            term._replace(extrapolated=True) if _beyond(term.quantity, size_bytes) else term
            for term in self.rates
        ]
        alphas = [self._alpha(link_class, size_bytes, hops) for link_class in self.latencies]
        return Cost(
            seconds,
            latency_s,
            self.algorithm.sent_bytes(size_bytes, hops),
            _spread([(latency_s, alphas), (parts.transfer_s, rates)]),
            (*rates, *alphas),
            self.grade,
        )

    def _wide(self, link_class: str, quantity: Quantity) -> Quantity:
        """Return a link's number with the error of using it outside the ranks measured."""
        if link_class not in self.growth_errors:
            return quantity
        spread = max(quantity.spread or 0.0, self.growth_errors[link_class])
        return quantity._replace(spread=spread)

    @cached_property
    def growth_errors(self) -> dict[str, float]:
        """The error of each class of link that is used outside the ranks measured."""
        outside = [link_class for link_class, is_outside in self.outside.items() if is_outside]
        if not outside:
            return {}
        from perfsim.network.known import growth_error

        return {one: growth_error(self._away(one)) for one in outside}

    def _away(self, link_class: str) -> float:
        """Return how many times the ranks measured of a class of link are in use."""
        measured, members = self.wiring.links[link_class].ranks, self.wiring.members[link_class]
        if measured is None:
            return 1.0
        fewest, most = measured
        return members / (most if members > most else fewest)

    def _paths(self, wiring: ClusterLinks) -> list[LinkPath]:
        """Return the path over all hops; past the range also the longest inside it, as a floor."""
        factors = wiring.stretch if self.algorithm.blocks else {}
        if not factors:
            return [LinkPath(self.algorithm, self.base, self.curves)]
        longer = {
            name: curve.gentle.stretched(factors[name]) for name, curve in self.curves.items()
        }
        if "intra" in longer and self.base.nodes > 1:
            longer["intra"] = self.curves["intra"].held
        paths = [LinkPath(self.algorithm, self.base, longer)]
        measured = wiring.longest_measured
        if measured is not None:
            curves = {link_class: self.curves[link_class] for link_class in measured.links}
            paths.append(LinkPath(self.algorithm, measured.hops(), curves))
        return paths

    def _alpha(self, link_class: str, size_bytes: float, hops: Hops) -> Term:
        alpha_s = hops.alpha_inter_s if link_class == "inter" else hops.alpha_intra_s
        alpha = self._wide(link_class, self.curves[link_class].quantity(alpha_s))
        name = f"{link_class} {self.algorithm.latency} latency at {format_bytes(size_bytes, 3)}"
        return Term(name, alpha, self.outside[link_class] or _beyond(alpha, size_bytes))

    @cached_property
    def rates(self) -> list[Term]:
        """The rates that the formula uses: it slows down when one of them does."""
        wiring, rates = self.wiring, []
        fast_s = self.algorithm.formula(_PROBE_BYTES, self.base).transfer_s
        for link_class, link in wiring.links.items():
            for tree in (False, True):
                slow = wiring.links | {link_class: _slower(link, tree)}
                slowed = wiring._replace(inter=slow.get("inter"), intra=slow.get("intra"))
                if self.algorithm.formula(_PROBE_BYTES, slowed.hops()).transfer_s > fast_s:
                    name = f"{link_class} tree rate" if tree else f"{link_class} rate"
                    rate = self._wide(link_class, link.tree_rate if tree else link.rate)
                    rates.append(Term(name, rate, self.outside[link_class]))
        return rates

    @cached_property
    def latencies(self) -> list[str]:
        """The classes of link whose hops the formula crosses."""
        probes = {
            "inter": self.base._replace(alpha_inter_s=1.0),
            "intra": self.base._replace(alpha_intra_s=1.0),
        }
        formula = self.algorithm.formula
        return [name for name in self.curves if formula(_PROBE_BYTES, probes[name]).latency_s > 0]


def _slower(link: Link, tree: bool) -> Link:
    """Return the link with its rate, or its tree rate, a little lower."""
    if tree:
        return replace(
            link, tree_rate=link.tree_rate._replace(value=link.tree_rate.value * _SLOWER)
        )
    return replace(link, rate=link.rate._replace(value=link.rate.value * _SLOWER))


def _beyond(quantity: Quantity, size_bytes: float) -> bool:
    """Return whether a size lies outside the range in which a quantity holds."""
    low, high = quantity.low, quantity.high
    return (low is not None and size_bytes < low) or (high is not None and size_bytes > high)


def _spread(parts: list[tuple[float, list[Term]]]) -> float | None:
    """Return the relative spread of a sum: each part's widest, weighted by the part."""
    total_s = sum_in_order(part_s for part_s, _ in parts)
    weighted = 0.0
    for part_s, terms in parts:
        spreads = [term.quantity.spread for term in terms if part_s > 0]
        if None in spreads or total_s == 0:
            return None
        weighted += part_s * max((spread for spread in spreads if spread), default=0.0)
    return weighted / total_s
