"""Clusters: GPUs on nodes, the links between them, and what a collective costs among them.

A cluster takes measured curves where the network has some (`MeasuredCollectives`), and else the
links' formulas (`Route`). `make_cluster` builds one for a network and a placement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from perfsim.by_size import Timer, TimesBySize, fastest_of, one_by_one
from perfsim.collectives import Algorithm, algorithms, find_algorithm
from perfsim.errors import RequestError
from perfsim.libraries import AUTO, DEFAULT_LIBRARY
from perfsim.libraries import library as find_library
from perfsim.methods.base import Group
from perfsim.network.link import Latency, Link, custom_link
from perfsim.network.network_file import CUSTOM, Network, load_network, read_network
from perfsim.network.route import (
    ClusterLinks,
    Route,
    among_nodes,
    over_nics,
)
from perfsim.quantity import Cost, Quantity, Term, Timing
from perfsim.simulate.task import LinkUse

if TYPE_CHECKING:
    from perfsim.network.fabrics.slowdown import Fabric, NodeFabric
    from perfsim.network.known import MeasuredCollectives
    from perfsim.network.node_network import DerivedCollectives
    from perfsim.network.wide_area import GroupOverSites, WideArea

__all__ = [
    "DEFAULT_GPUS_PER_NODE",
    "_PROBE_SHARES",
    "Cluster",
    "Latency",
    "Link",
    "Network",
    "custom_link",
    "group_placement",
    "groups_per_nic",
    "link_use",
    "load_network",
    "make_cluster",
    "node_placement",
    "read_network",
]


DEFAULT_GPUS_PER_NODE = 4
"""GPUs of a node where neither the user nor the network says. No source: chosen."""

_MAX_NODE_SIZE = 64
"""Divisors above this are no node sizes and would only lengthen the message. No source: chosen."""

_PROBE_SHARES = (2.0**-11, 2.0**-12)
"""Shares of the link so small that every link inside a node is faster. No source: chosen."""

_NO_DIFFERENCE = 1e-9
"""Share of a message's time below which a difference is rounding. No source: chosen."""

_FREE = Cost(0.0)
"""What a collective of one GPU costs."""


def group_placement(group: Group, gpus: int, nodes: int, gpus_per_node: int) -> tuple[int, ...]:
    """Return how many ranks of one group are on each of its nodes.

    Where nodes are uneven, the fullest counts for all.

    Examples
    --------
    >>> [group_placement(group, 8, 2, 4) for group in ("all", "node", "leaders", "across")]
    [(4, 4), (4,), (1, 1), (1, 1)]
    >>> group_placement(2, 8, 2, 4), group_placement((4, 2), 8, 2, 4)
    ((2,), (2, 2))
    """
    if group in ("leaders", "across"):
        return (1,) * nodes
    each = gpus_per_node
    if isinstance(group, tuple):
        count, stride = group
        each = max(1, each // stride)
    elif isinstance(group, int):
        count = group
    else:
        count = each if group == "node" else gpus
    if count <= each:
        return (count,)
    whole, rest = divmod(min(count, gpus), each)
    return (each,) * whole + ((rest,) if rest else ())


def groups_per_nic(group: Group, gpus_per_node: int) -> int:
    """Return how many groups send out of a node at once.

    Examples
    --------
    >>> [groups_per_nic(group, 4) for group in ("leaders", "across", 8, (4, 2), (2, 8))]
    [1, 4, 1, 2, 4]
    """
    if group == "across":
        return gpus_per_node
    return min(group[1], gpus_per_node) if isinstance(group, tuple) else 1


@dataclass(frozen=True)
class Cluster:
    """GPUs on nodes, the link between nodes, the one inside them, and what collectives cost there.

    Parameters
    ----------
    gpus : P, all GPUs
    placement : GPUs on each node, uneven allowed
    inter : link between nodes; None when all GPUs stand on one
    intra : link between the GPUs of a node; None when every node has one GPU
    nics_per_node : NICs that the GPUs of a node share
    library : nccl, rccl, gloo or mpi; it has the algorithms and chooses among them for ``auto``
    fitted_on : the library with which the links were measured
    known : curves measured on the network; they come before the links' formulas
    fabric, node : switches between the nodes, links inside one; None where only NICs and the fitted
        link count
    narrowed : whether the fabric is narrower than the one that the links were measured through
    servers : machines without GPUs, each with a node's NICs, that serve pushes and pulls
    background : share of every link between nodes that other traffic takes
    derived : what collectives cost by the data sheet of the nodes, where the network is a node type
    leaving_node : of a group of ranks, groups that send out of a node at once, this one among them
    shared_nics : NICs that these groups share; 0 where it is no group
    wide : the sites that the ranks are on, where these are several
    """

    gpus: int
    placement: tuple[int, ...]
    inter: Link | None
    intra: Link | None
    nics_per_node: int = 1
    library: str = DEFAULT_LIBRARY
    fitted_on: str = DEFAULT_LIBRARY
    known: MeasuredCollectives | None = None
    fabric: Fabric | None = None
    node: NodeFabric | None = None
    narrowed: bool = False
    servers: int = 0
    background: float = 0.0
    derived: DerivedCollectives | None = None
    leaving_node: int = 1
    shared_nics: int = 0
    wide: WideArea | None = None

    @property
    def nodes(self) -> int:
        """N, the nodes in use."""
        return len(self.placement)

    @cached_property
    def gpus_per_node(self) -> int:
        """g, the GPUs on the fullest node."""
        return max(self.placement)

    @cached_property
    def uneven(self) -> tuple[int, ...]:
        """GPUs on each node where nodes differ; () where all have as many."""
        return self.placement if min(self.placement) < self.gpus_per_node else ()

    @property
    def nics_in_use(self) -> int:
        """NICs of the scarcest node that carry traffic: a GPU drives at most one at a time."""
        return min(self.nics_per_node, *self.placement)

    @property
    def node_size_unmeasured(self) -> bool:
        """Whether the network was measured between nodes, but with none of so many GPUs."""
        if self.known is None or self.nodes == 1:
            return False
        across = [curve.gpus_per_node for curve in self.known.curves if curve.nodes > 1]
        return bool(across) and self.gpus_per_node not in across

    def runs_as(self, collective: str, algorithm: str = AUTO) -> str:
        """Return the collective that the library runs in place of this one, or this one.

        One whose algorithm is named is run as it is. A curve of this very collective, measured with
        the library here, shows that it has one.

        Examples
        --------
        >>> from perfsim.network.link import custom_link
        >>> two = Cluster(2, (1, 1), custom_link("1GB/s,1ms", "net"), None, library="gloo")
        >>> two.runs_as("reduce_scatter"), two.runs_as("all_gather")
        ('all_reduce', 'all_gather')
        """
        if algorithm != AUTO:
            return collective
        other = find_library(self.library).runs_as.get(collective, collective)
        if other == collective or self.known is None:
            return other
        own = (
            curve.collective == collective and curve.library == self.library
            for curve in self.known.curves
        )
        return collective if any(own) else other

    def choice(self, collective: str, size_bytes: float, protocol: str = AUTO) -> str:
        """Return the algorithm that ``auto`` takes for this collective and size."""
        if self.wide is not None:  # the library knows nothing of sites
            return self.in_one_place().choice(collective, size_bytes, protocol)
        if collective not in algorithms():
            find_algorithm(collective, AUTO)  # raises, with the collectives there are
        library = find_library(self.library)
        fixed = library.choose(collective, size_bytes, self.gpus)
        if fixed is not None:
            return fixed
        names = library.considered(collective)
        if len(names) == 1:
            return names[0]
        return min(
            names, key=lambda name: self.route(collective, name, protocol).seconds(size_bytes)
        )

    def route(self, collective: str, name: str, protocol: str = AUTO) -> Route:
        """Return an algorithm of a collective over the links here."""
        algorithm = find_library(self.library).algorithm(collective, name)
        inter, intra = self._links(algorithm)
        if protocol != AUTO:
            inter, intra = self._held(inter, intra, protocol)
        wiring = ClusterLinks(
            self.gpus,
            self.nodes,
            self.gpus_per_node,
            self._nics_crossed(algorithm),
            inter,
            intra,
            self.servers,
        )
        return Route(algorithm, wiring, self.node_size_unmeasured)

    def _held(
        self, inter: Link | None, intra: Link | None, protocol: str
    ) -> tuple[Link | None, Link | None]:
        """Return the links as one of NCCL's protocols sees them."""
        from perfsim.libraries.nccl import DEFAULT_VERSION
        from perfsim.network.link import under_protocol

        tuner = self.known.tuner if self.known is not None else None
        version = tuner.of.version if tuner is not None else DEFAULT_VERSION
        return (
            under_protocol(inter, protocol, "inter", version) if inter else None,
            under_protocol(intra, protocol, "intra", version) if intra else None,
        )

    def _one_rank_sends(self, collective: str) -> bool:
        """Tell whether of a node's ranks one alone sends to another node, whatever is chosen."""
        library = find_library(self.library)
        names = library.considered(collective)
        return all(library.algorithm(collective, name).one_rank for name in names)

    def _nics_crossed(self, algorithm: Algorithm) -> int:
        """Return the NICs of a node that an algorithm's messages leave it through."""
        return 1 if algorithm.one_rank else self.nics_in_use

    def _links(self, algorithm: Algorithm) -> tuple[Link | None, Link | None]:
        """Return the links between and inside nodes as the flows of an algorithm see them."""
        inter = self.inter if self.nodes > 1 else None
        intra = self.intra if self.gpus_per_node > 1 else None
        if inter is not None and inter.falls is not None:
            inter = among_nodes(inter, self.nodes)
        if inter is not None:
            inter = over_nics(inter, self._nics_crossed(algorithm))
        if inter is not None and self.fabric is not None:
            from perfsim.network.route import through_fabric

            inter = through_fabric(
                inter,
                self.fabric,
                algorithm.flows,
                self.placement,
                self.nics_in_use,
                measured_through=not self.narrowed,
                one_rank=algorithm.one_rank,
            )
        if inter is not None and self.background > 0:
            from perfsim.network.route import with_background

            inter = with_background(inter, self.background)
        if intra is not None and self.node is not None:
            from perfsim.network.route import inside_node

            intra = inside_node(intra, self.node, self.gpus_per_node)
        return inter, intra

    def cost(
        self, collective: str, size_bytes: float, algorithm: str = AUTO, protocol: str = AUTO
    ) -> Cost:
        """Return what one collective of ``size_bytes`` costs.

        ``auto`` takes what the library takes. NCCL takes the algorithm with the least predicted
        time among those that it considers (for all_reduce ring and tree; others only when named).
        Gloo always takes the same. Open MPI chooses by size and ranks. Where the library runs
        another collective in place of this one, that one is priced (`runs_as`).

        Parameters
        ----------
        collective : all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all,
            send_recv, push or pull
        size_bytes : the buffer of one rank; for reduce_scatter, all_gather and all_to_all the
            blocks of all
        algorithm : its name, or ``auto``
        protocol : ll, ll128 or simple as NCCL_PROTO fixes it, or ``auto``

        Raises
        ------
        RequestError
            If there is no such collective, algorithm or protocol, or these ranks or this library
            cannot use it; lists those there are.
        """
        collective = self.runs_as(collective, algorithm)
        if self.wide is not None:
            return self._over_sites_cost(collective, size_bytes, algorithm, protocol)
        beside = self._beside_groups(collective, size_bytes, algorithm, protocol)
        if beside is not None:
            return beside
        if self._shared:
            return self._beside(collective, size_bytes, algorithm, protocol)
        cost, route = self._cost_and_route(collective, size_bytes, algorithm, protocol)
        if cost is not None:
            return cost
        cost = route.cost(size_bytes)
        if self.library == self.fitted_on:
            return cost
        return cost._replace(
            terms=tuple(_derived(term, self.library, self.fitted_on) for term in cost.terms)
        )

    def of(
        self,
        group: Group,
        collective: str,
        size_bytes: float,
        algorithm: str = AUTO,
        protocol: str = AUTO,
    ) -> Cost:
        """Return what one collective costs among a group of the ranks (see ``Group``).

        Arguments are ``cost``'s; ``size_bytes`` is that of one group. Groups whose ranks are on
        several nodes share the nodes' NICs. Each sees its share of them, as if its message were
        that much longer on the wire. Its hops take what they take for its own size, but no more
        than for the longer message.

        Examples
        --------
        >>> from perfsim.network.link import custom_link
        >>> wire, bus = custom_link("1GB/s,1ms", "x"), custom_link("10GB/s,1us", "x")
        >>> eight = Cluster(8, (4, 4), wire, bus)
        >>> [round(eight.of(group, "send_recv", 1e6).seconds * 1e3, 1)
        ...  for group in ("node", "leaders", "across")]
        [0.1, 2.0, 5.0]
        """
        if group == "all":
            return self.cost(collective, size_bytes, algorithm, protocol)
        return self.cluster_of(group).cost(collective, size_bytes, algorithm, protocol)

    def _beside_groups(
        self, collective: str, size_bytes: float, algorithm: str, protocol: str
    ) -> Cost | None:
        """Return what a collective costs beside those of the other groups of its nodes.

        None where it has the NICs to itself. Ranks of other groups are other processes, with
        sockets of their own where the host holds the NICs of a node.
        """
        if self.nodes == 1 or self.leaving_node == 1:
            return None
        priced, together = self._nics_priced(collective), float(self.shared_nics)
        sharing = self.inter.sharing if self.inter is not None else None
        if sharing is not None:
            priced = sharing.together(priced)
            together = sharing.together(together, senders=self.leaving_node)
        longer = self.leaving_node * priced / together
        if longer <= 1.0:
            return None
        part = self.by_itself()
        beside = part.cost(collective, size_bytes * longer, algorithm, protocol)
        latency_s = beside.latency_s
        named = algorithm != AUTO
        if named or part._alike(collective, size_bytes, size_bytes * longer, protocol):
            alone = part.cost(collective, size_bytes, algorithm, protocol)
            latency_s = min(latency_s, alone.latency_s)
        return beside._replace(
            seconds=beside.seconds - beside.latency_s + latency_s,
            latency_s=latency_s,
            sent_bytes=beside.sent_bytes / longer,
        )

    def _nics_priced(self, collective: str) -> float:
        """Return the NICs of a node that a collective of this group alone has in its price.

        Those that one GPU drives count as one, as everywhere here.
        """
        if self._one_rank_sends(collective):
            return 1.0
        if self.derived is not None:
            facts = self.derived.facts
            return facts.nics_of(min(self.placement)) / max(1.0, facts.nics / facts.gpus)
        return self.nics_in_use

    def by_itself(self) -> Cluster:
        """Return the group as if no other sent out of its nodes."""
        return replace(self, leaving_node=1)

    def _alike(
        self, collective: str, size_bytes: float, larger_bytes: float, protocol: str
    ) -> bool:
        """Tell whether the library takes one algorithm for both sizes."""
        sizes = size_bytes, larger_bytes
        return len({self.choice(collective, size, protocol) for size in sizes}) == 1

    def served(self, servers: int) -> Cluster:
        """Return the cluster with so many machines more that serve pushes and pulls."""
        if servers == self.servers:
            return self
        return replace(self, servers=servers)

    def with_part(self, part: float) -> Cluster:
        """Return the cluster with a part of what is left of the links between its nodes."""
        if part == 1.0:
            return self
        return replace(self, background=1.0 - (1.0 - self.background) * part)

    def cluster_of(self, group: Group) -> Cluster:
        """Return one group of the ranks as a cluster of its own."""
        if self.wide is not None:
            from perfsim.network.wide_area import group_over_sites

            return self.over_sites(group_over_sites(self.wide, group))
        placement = group_placement(group, self.gpus, self.nodes, self.gpus_per_node)
        return self.placed(placement, groups_per_nic(group, self.gpus_per_node))

    def over_sites(self, group: GroupOverSites) -> Cluster:
        """Return a group of the ranks, on one site or several, as a cluster of its own."""
        nodes = tuple(gpus for part in group.parts for gpus in part)
        part = self.in_one_place().placed(nodes, group.leaving_node)
        if self.wide is None or len(group.parts) == 1:
            return part
        leaving = self.wide.leaving_site * group.leaving_site
        return replace(
            part,
            wide=replace(
                self.wide, links=group.links, parts=group.parts, leaving_site=leaving, by_site=False
            ),
        )

    def _over_sites_cost(
        self, collective: str, size_bytes: float, algorithm: str, protocol: str
    ) -> Cost:
        """Return what a collective costs among ranks on several sites; parameters as of `cost`."""
        from perfsim.network.wide_area import wide_cost

        assert self.wide is not None
        flat, library = self.in_one_place(), find_library(self.library)
        inside = flat.cost(collective, size_bytes, algorithm, protocol)
        name = flat.choice(collective, size_bytes, protocol) if algorithm == AUTO else algorithm
        found = library.algorithm(collective, name)
        return wide_cost(
            inside, found, size_bytes, self.wide, self.library, self.servers, self.background
        )

    def in_one_place(self) -> Cluster:
        """Return the cluster with all nodes at one site."""
        if self.wide is None:
            return self
        return replace(self, placement=self.wide.nodes, wide=None)

    @property
    def gpus_of_host(self) -> int:
        """GPUs on the fullest node where sites take the place of nodes; else 0."""
        return max(self.wide.nodes) if self.wide is not None and self.wide.by_site else 0

    def by_site(self) -> Cluster:
        """Return the cluster with sites in place of nodes in what groups of the ranks mean."""
        if self.wide is None or self.wide.by_site:
            return self
        wide = replace(self.wide, by_site=True)
        return replace(self, placement=wide.placement, wide=wide)

    def placed(self, placement: tuple[int, ...], leaving_node: int = 1) -> Cluster:
        """Return a group of the ranks with so many on each of its nodes, as a cluster of its own.

        Parameters
        ----------
        leaving_node : groups like it that send out of a node at once, it among them
        """
        return replace(
            self,
            gpus=sum(placement),
            placement=placement,
            inter=self.inter if len(placement) > 1 else None,
            intra=self.intra if max(placement) > 1 else None,
            leaving_node=self.leaving_node * leaving_node,
            shared_nics=self.shared_nics or self.nics_in_use,
        )

    @property
    def _shared(self) -> bool:
        """Whether other traffic takes a part of what is used of the network."""
        return self.background > 0 and self.inter is not None and self.gpus > 1

    def without_traffic(self) -> Cluster:
        """Return the cluster without other traffic."""
        return replace(self, background=0.0)

    def _beside(self, collective: str, size_bytes: float, algorithm: str, protocol: str) -> Cost:
        """Return what a collective costs beside other traffic.

        Its cost alone is multiplied by a ratio: the links' formula with the rate that is left, over
        that with all of it. The algorithm is the one that the library takes without the traffic, of
        which it knows nothing.
        """
        quiet = self.without_traffic()
        alone = quiet.cost(collective, size_bytes, algorithm, protocol)
        name = quiet.choice(collective, size_bytes, protocol) if algorithm == AUTO else algorithm
        alone_s = quiet.route(collective, name, protocol).seconds(size_bytes)
        if alone_s <= 0:
            return alone
        ratio = self.route(collective, name, protocol).seconds(size_bytes) / alone_s
        left = Quantity(
            1.0 - self.background, "", "derived", "given with the scenario (background)"
        )
        share = Term("share of the network between nodes", left)
        return alone._replace(seconds=alone.seconds * ratio, terms=(*alone.terms, share))

    def seconds(
        self, collective: str, size_bytes: float, algorithm: str = AUTO, protocol: str = AUTO
    ) -> float:
        """Return the time of one collective [s] as ``cost`` does, without its provenance."""
        return self.by_size(collective, algorithm, protocol).of(size_bytes)

    def by_size(self, collective: str, algorithm: str = AUTO, protocol: str = AUTO) -> TimesBySize:
        """Return what tells the time of a collective by its size [s], as `seconds` does.

        Examples
        --------
        >>> from perfsim.network.link import custom_link
        >>> two = Cluster(2, (1, 1), custom_link("1GB/s,1ms", "net"), None)
        >>> [round(two.by_size("all_gather", "ring").of(size), 6) for size in (0.0, 2e6)]
        [0.001, 0.002]
        """
        routes = self.compared_routes(collective, algorithm, protocol)
        if routes:
            return fastest_of([route.times for route in routes])
        timer = self.timer(collective, algorithm, protocol)
        return one_by_one(lambda size_bytes: timer(size_bytes).seconds)

    def timing(
        self, collective: str, size_bytes: float, algorithm: str = AUTO, protocol: str = AUTO
    ) -> Timing:
        """Return the time of one collective and what a rank sends, without their provenance."""
        return self.timer(collective, algorithm, protocol)(size_bytes)

    def timer(self, collective: str, algorithm: str = AUTO, protocol: str = AUTO) -> Timer:
        """Return the function of a size that tells what `timing` does."""
        routes = self.compared_routes(collective, algorithm, protocol)

        def of_fastest(size_bytes: float) -> Timing:
            fastest, seconds = first, first.seconds(size_bytes)
            for route in others:
                other_s = route.seconds(size_bytes)
                if other_s < seconds:
                    fastest, seconds = route, other_s
            return Timing(seconds, fastest.sent_bytes(size_bytes))

        def of_known(size_bytes: float) -> Timing:
            known = self._cost_or_route(collective, size_bytes, algorithm, protocol)
            if isinstance(known, Route):
                return Timing(known.seconds(size_bytes), known.sent_bytes(size_bytes))
            return Timing(known.seconds, known.sent_bytes)

        if not routes:
            return of_known
        first, *others = routes
        return of_fastest

    def _cost_or_route(
        self, collective: str, size_bytes: float, algorithm: str, protocol: str
    ) -> Cost | Route:
        """Return what tells a collective's time where it is no matter of comparing routes."""
        if self._more_than_links:
            return self.cost(collective, size_bytes, algorithm, protocol)
        collective = self.runs_as(collective, algorithm)
        cost, route = self._cost_and_route(collective, size_bytes, algorithm, protocol)
        return route if cost is None else cost

    @property
    def _more_than_links(self) -> bool:
        """Whether sites, other groups or other traffic have a say in what a collective takes."""
        return (self.leaving_node > 1 and self.nodes > 1) or self.wide is not None or self._shared

    def compared_routes(
        self, collective: str, algorithm: str = AUTO, protocol: str = AUTO
    ) -> tuple[Route, ...]:
        """Return the routes of which the fastest tells a collective's time, whatever its size.

        () where more than their formulas tells it: measured curves, the nodes' data sheet, sites,
        other traffic, a protocol that is named, a library that chooses by size.
        """
        if self.known is not None or self.derived is not None or self._more_than_links:
            return ()
        collective, library = self.runs_as(collective, algorithm), find_library(self.library)
        by_size = algorithm == AUTO and not library.compares_times
        if by_size or protocol != AUTO or self.gpus == 1:
            return ()
        names = library.considered(collective) if algorithm == AUTO else (algorithm,)
        routes = tuple(self.route(collective, name) for name in names)
        return () if any(route.algorithm.refusal(route.base) for route in routes) else routes

    def _cost_and_route(
        self, collective: str, size_bytes: float, algorithm: str, protocol: str
    ) -> tuple[Cost | None, Route]:
        """Return the cost from measured curves, None without any, and the route for its formula."""
        if protocol != AUTO:
            from perfsim.libraries.nccl import check_protocol

            check_protocol(protocol, self.library, find_library(self.library).protocols)
        name = self.choice(collective, size_bytes, protocol) if algorithm == AUTO else algorithm
        route = self.route(collective, name, protocol)
        if self.gpus == 1:
            return _FREE, route
        refusal = route.algorithm.refusal(route.base)
        if refusal:
            raise RequestError(
                "algorithm",
                f"{collective} {route.algorithm.name} {refusal}; here are {self.gpus}"
                f" GPUs on {self.nodes} {'node' if self.nodes == 1 else 'nodes'}.",
            )
        known = self._known(collective, size_bytes, route, algorithm, protocol)
        if known is None:
            known = self._changed(collective, size_bytes, route)
        return known, route

    def _known(
        self, collective: str, size_bytes: float, route: Route, algorithm: str, protocol: str
    ) -> Cost | None:
        """Return the cost from measured curves, or from the nodes' data sheet; None from neither.

        Through a fabric it is from curves of measured ranks alone.

        The scaling laws know nothing of a fabric that narrows as it grows. A curve of one fixed
        algorithm also counts for ``auto`` where the library has no other choice.
        """
        if self.narrowed:
            return None
        name = route.algorithm.name
        if self.derived is not None and protocol == AUTO:
            asked = "" if algorithm == AUTO else name
            return self.derived.cost(collective, size_bytes, self.placement, self.library, asked)
        if self.known is None:
            return None
        if self.fabric is not None and not self.known.measured(self.placement):
            return None
        library = find_library(self.library)
        bound = library.choose(collective, size_bytes, self.gpus) is not None
        bound = bound or len(library.considered(collective)) == 1
        only = bound and name == self.choice(collective, size_bytes, protocol)
        held = ("", name) if only else ("" if algorithm == AUTO else name,)
        return self.known.cost(
            collective, size_bytes, self.placement, self.library, held, protocol, route.seconds
        )

    def as_measured(self) -> Cluster:
        """Return the cluster without its fabric."""
        if self.fabric is None:
            return self
        return replace(self, fabric=None, narrowed=False)

    def _changed(self, collective: str, size_bytes: float, route: Route) -> Cost | None:
        """Return the cost from curves of the cluster as measured, corrected for what is changed.

        The correction for another algorithm, protocol or fabric is the links' formula with it over
        that without. So a worse network is never faster than its own curve.
        """
        if (self.known is None and self.derived is None) or self.library != self.fitted_on:
            return None
        plain = self.as_measured()
        usual = plain.route(collective, plain.choice(collective, size_bytes))
        cost = plain._known(collective, size_bytes, usual, AUTO, AUTO)
        usual_s = usual.seconds(size_bytes)
        if cost is None or usual_s <= 0:
            return None
        ratio = route.seconds(size_bytes) / usual_s
        (term,) = cost.terms
        what = f"{collective} {route.algorithm.name}"
        quantity = term.quantity._replace(
            value=cost.seconds * ratio,
            kind="derived",
            source=f"{term.quantity.source}; times {ratio:.3g}, the links' formulas of {what} as"
            " asked for over those of the network as measured",
        )
        return cost._replace(
            seconds=cost.seconds * ratio,
            latency_s=cost.latency_s * ratio,
            terms=(term._replace(quantity=quantity, extrapolated=True),),
            grade="carried" if cost.grade == "measured" else cost.grade,
        )


def _derived(term: Term, library: str, fitted_on: str) -> Term:
    """Return a link's number, measured with one library, as used for another."""
    quantity = term.quantity
    if quantity.kind == "derived":
        return term
    source = f"taken over for {library} from {fitted_on}: {quantity.source}"
    return term._replace(quantity=quantity._replace(kind="derived", source=source))


def node_placement(
    gpus: int,
    gpus_per_node: int | None,
    placement: tuple[int, ...] | None,
    stated: int | None = None,
) -> tuple[int, ...]:
    """Return the GPUs on each node.

    Parameters
    ----------
    gpus : all GPUs
    gpus_per_node : as asked for, a divisor of ``gpus``. None: ``stated``, else 4, cut to the
        largest divisor of ``gpus``
    placement : GPUs on each node, as asked for
    stated : GPUs a node of the network's file

    Raises
    ------
    RequestError
        If a number is not positive or the numbers contradict each other.

    Examples
    --------
    >>> node_placement(8, 4, None), node_placement(10, None, None), node_placement(8, None, (3, 5))
    ((4, 4), (2, 2, 2, 2, 2), (3, 5))
    """
    if gpus < 1:
        raise RequestError("gpus", f"{gpus} is not allowed: it must be 1 or more.")
    if placement is not None:
        if not placement or min(placement) < 1:
            raise RequestError(
                "placement",
                f"{_shown(placement)} has a node without a GPU; give at least 1 for every node.",
            )
        if sum(placement) != gpus:
            raise RequestError(
                "placement",
                f"{_shown(placement)} places {sum(placement)} GPUs, `gpus` says"
                f" {gpus}; the two must agree.",
            )
        if gpus_per_node is not None and gpus_per_node != max(placement):
            raise RequestError(
                "gpus_per_node",
                f"{gpus_per_node} contradicts `placement` {_shown(placement)};"
                " give one of the two.",
            )
        return tuple(placement)
    if gpus_per_node is None:
        most = min(stated or DEFAULT_GPUS_PER_NODE, gpus)
        gpus_per_node = next(size for size in range(most, 0, -1) if gpus % size == 0)
    if gpus_per_node < 1:
        raise RequestError(
            "gpus_per_node", f"{gpus_per_node} is not allowed: it must be 1 or more."
        )
    if gpus % gpus_per_node:
        divisors = [size for size in range(1, min(gpus, _MAX_NODE_SIZE) + 1) if gpus % size == 0]
        raise RequestError(
            "gpus_per_node",
            f"{gpus} GPUs do not divide by {gpus_per_node}; allowed for {gpus}:"
            f" {', '.join(map(str, divisors))}, or `placement` for uneven nodes.",
        )
    return (gpus_per_node,) * (gpus // gpus_per_node)


def _shown(placement: tuple[int, ...]) -> str:
    return repr(",".join(map(str, placement)))


def make_cluster(
    gpus: int,
    gpus_per_node: int | None,
    placement: tuple[int, ...] | None,
    net: Network,
    intra_net: Network | None = None,
    library: str | None = None,
    oversubscription: float | None = None,
    measured: bool = True,
    background: float = 0.0,
    derived: DerivedCollectives | None = None,
) -> Cluster:
    """Return the cluster of ``gpus`` GPUs on a network.

    Parameters
    ----------
    gpus : all GPUs
    gpus_per_node : GPUs a node; None takes the network's, else 4, cut to a divisor of ``gpus``
    placement : GPUs on each node, instead of ``gpus_per_node``
    net : its ``inter`` link joins the nodes; its ``intra`` link, if any, the GPUs of a node
    intra_net : its ``intra`` link joins the GPUs of a node instead
    library : nccl, rccl, gloo or mpi; None is the one that the network was measured with
    oversubscription : how many times narrower than the nodes' NICs the uplinks are, instead of
        what the network's file says of its fabric
    measured : let curves measured on the network come before its links' formulas; those of
        another fabric than asked for, or with other links inside the nodes, do not
    background : share of the network between nodes that other traffic takes
    derived : what the data sheet of the nodes says of collectives, before the links' formulas

    Raises
    ------
    RequestError
        If the numbers do not fit each other, there is no such library, a network lacks the link
        that is needed, or it was measured with another library that says nothing of this one.

    Examples
    --------
    >>> from perfsim.data.catalog import Catalog
    >>> from perfsim.network.network_file import load_network
    >>> net = load_network("10Gbit/s,50us", Catalog(), "net")
    >>> cluster = make_cluster(8, 4, None, net)
    >>> cluster.placement
    (4, 4)
    >>> round(cluster.cost("all_reduce", 1e6, "ring").seconds * 1e6)
    2100
    """
    chosen = find_library(library or net.library)  # raises, with the libraries there are
    library = chosen.name
    if chosen.own_links and gpus > 1 and library != net.library and net.transport != CUSTOM:
        raise RequestError(
            "library",
            f"{net.name!r} was measured with {net.library}, which says nothing of {library}; take a"
            f" network of {library}, such as 10gbe-{library}, 100gbe-{library} or ib100-{library}"
            " (`perfsim list networks`), or your own rate,latency.",
            value=library,
        )
    nodes = node_placement(gpus, gpus_per_node, placement, net.gpus_per_node)
    intra = None
    if max(nodes) > 1:
        if intra_net is None and "intra" not in net.links:
            raise RequestError(
                "intra_net",
                f"{net.name!r} says nothing of the link between the GPUs of a node;"
                " name one, such as pcie3.",
            )
        intra = (intra_net or net).link("intra", "intra_net")
    inter = net.link("inter", "net") if len(nodes) > 1 else None
    fabric, node = net.fabric, net.node if intra_net is None else None
    narrowed = False
    if oversubscription is not None and oversubscription > 1.0 and len(nodes) > 1:
        from perfsim.network.fabrics.slowdown import oversubscribed

        fabric, narrowed = oversubscribed(oversubscription), True
    return Cluster(
        gpus,
        nodes,
        inter,
        intra,
        net.nics_per_node,
        library,
        net.library,
        net.known if measured else None,
        fabric if len(nodes) > 1 else None,
        node,
        narrowed=narrowed,
        background=background,
        derived=derived,
    )


def link_use(seconds: Callable[[float], float]) -> LinkUse | None:
    """Return how a message uses the link between nodes, None where it does not.

    Parameters
    ----------
    seconds : the message's time with a share of that link [s]

    Examples
    --------
    1 s of latency, then 2 s on the wire; and 4 s where the links inside the nodes are as slow:

    >>> link_use(lambda part: 1.0 + 2.0 / part)
    LinkUse(off_s=1.0, need=1.0)
    >>> link_use(lambda part: 1.0 + max(4.0, 2.0 / part))
    LinkUse(off_s=1.0, need=0.5)
    """
    wide_s, narrow_s = (seconds(share) for share in _PROBE_SHARES)
    wire_s = (narrow_s - wide_s) / (1.0 / _PROBE_SHARES[1] - 1.0 / _PROBE_SHARES[0])
    whole_s = seconds(1.0)
    if wire_s <= _NO_DIFFERENCE * whole_s:
        return None
    off_s = min(max(0.0, wide_s - wire_s / _PROBE_SHARES[0]), whole_s - min(wire_s, whole_s))
    return LinkUse(off_s, min(1.0, wire_s / (whole_s - off_s)))
