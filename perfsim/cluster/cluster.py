"""A cluster: GPUs on nodes, and what a collective costs among them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from perfsim.cluster.groups import crowd, placed
from perfsim.cluster.layout import Layout
from perfsim.cluster.route import Route
from perfsim.errors import RequestError
from perfsim.library import AUTO
from perfsim.library import library as find_library
from perfsim.quantity import Cost, Quantity, Term
from perfsim.stage import Group

__all__ = ["Cluster"]

FREE = Cost(0.0)


@dataclass(frozen=True)
class Cluster(Layout):
    """A layout of GPUs on links, and what collectives cost on it.

    Costs are kept, as are those of its parts (groups of the ranks; the same with servers).
    Parameters are ``Layout``'s.
    """

    _costs: dict[tuple[str, float, str, str], Cost] = field(
        default_factory=dict, repr=False, compare=False
    )
    _seconds: dict[tuple[str, float, str, str], float] = field(
        default_factory=dict, repr=False, compare=False
    )
    _parts: dict[Group, Cluster] = field(default_factory=dict, repr=False, compare=False)
    _served: dict[int, Cluster] = field(default_factory=dict, repr=False, compare=False)

    def cost(
        self, collective: str, size_bytes: float, algorithm: str = AUTO, protocol: str = AUTO
    ) -> Cost:
        """Return what one collective of ``size_bytes`` costs.

        ``auto`` takes what the library takes: NCCL the algorithm with the least predicted time
        among those that it considers (for all_reduce ring and tree; others only when named), gloo
        always the same, Open MPI by size and ranks.

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
        key = (collective, size_bytes, algorithm, protocol)
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = self._cost(*key)
        return cost

    def of(
        self,
        group: Group,
        collective: str,
        size_bytes: float,
        algorithm: str = AUTO,
        protocol: str = AUTO,
    ) -> Cost:
        """Return what one collective costs among a group of the ranks (see ``Group``).

        Arguments as ``cost``'s; ``size_bytes`` is that of one group. Groups whose ranks stand apart
        share the nodes' NICs: each sees its share of them, as if its message were that much longer
        on the wire; its hops take what they do for its own size, but no more than for the longer
        message.

        Examples
        --------
        >>> from perfsim.cluster.link import custom_link
        >>> wire, bus = custom_link("1GB/s,1ms", "x"), custom_link("10GB/s,1us", "x")
        >>> eight = Cluster(8, (4, 4), wire, bus)
        >>> [round(eight.of(group, "send_recv", 1e6).seconds * 1e3, 1)
        ...  for group in ("node", "leaders", "across")]
        [0.1, 2.0, 5.0]
        """
        if group == "all":
            return self.cost(collective, size_bytes, algorithm, protocol)
        part = self._part(group)
        met = crowd(group, self.gpus_per_node) * part.nics_in_use / self.nics_in_use
        if part.nodes == 1 or met <= 1.0:
            return part.cost(collective, size_bytes, algorithm, protocol)
        crowded = part.cost(collective, size_bytes * met, algorithm, protocol)
        latency_s = crowded.latency_s
        named = algorithm != AUTO
        if named or part._alike(collective, size_bytes, size_bytes * met, protocol):
            alone = part.cost(collective, size_bytes, algorithm, protocol)
            latency_s = min(latency_s, alone.latency_s)
        return crowded._replace(
            seconds=crowded.seconds - crowded.latency_s + latency_s,
            latency_s=latency_s,
            sent_bytes=crowded.sent_bytes / met,
        )

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
        served = self._served.get(servers)
        if served is None:
            served = self._served[servers] = replace(self, servers=servers, **_nothing_kept())
        return served

    def with_part(self, part: float) -> Cluster:
        """Return the cluster with a part of what is left of the links between its nodes."""
        if part == 1.0:
            return self
        return replace(self, background=1.0 - (1.0 - self.background) * part, **_nothing_kept())

    def _part(self, group: Group) -> Cluster:
        part = self._parts.get(group)
        if part is None:
            placement = placed(group, self.gpus, self.nodes, self.gpus_per_node)
            part = self._parts[group] = replace(
                self,
                gpus=sum(placement),
                placement=placement,
                inter=self.inter if len(placement) > 1 else None,
                intra=self.intra if max(placement) > 1 else None,
                **_nothing_kept(),
            )
        return part

    @property
    def _shared(self) -> bool:
        """Whether other traffic takes a part of what is used of the network."""
        return self.background > 0 and self.inter is not None and self.gpus > 1

    @cached_property
    def _quiet(self) -> Cluster:
        """The cluster without other traffic; kept, as its routes are."""
        return replace(self, background=0.0, **_nothing_kept())

    def _beside(self, collective: str, size_bytes: float, algorithm: str, protocol: str) -> Cost:
        """Return what a collective costs beside other traffic.

        What it costs alone, times the links' formula with what is left of their rate over that
        with all of it; the algorithm stays the one that the library takes, which knows nothing of
        other traffic.
        """
        quiet = self._quiet
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
        """Return the time of one collective [s], as ``cost`` has it, without what it rests on."""
        key = (collective, size_bytes, algorithm, protocol)
        found = self._seconds.get(key)
        if found is None:
            if self._shared:
                found = self._beside(*key).seconds
            else:
                cost, route = self._told(*key)
                found = route.seconds(size_bytes) if cost is None else cost.seconds
            self._seconds[key] = found
        return found

    def _cost(self, collective: str, size_bytes: float, algorithm: str, protocol: str) -> Cost:
        if self._shared:
            return self._beside(collective, size_bytes, algorithm, protocol)
        cost, route = self._told(collective, size_bytes, algorithm, protocol)
        if cost is not None:
            return cost
        cost = route.cost(size_bytes)
        if self.library == self.fitted_on:
            return cost
        return cost._replace(
            terms=tuple(_derived(term, self.library, self.fitted_on) for term in cost.terms)
        )

    def _told(
        self, collective: str, size_bytes: float, algorithm: str, protocol: str
    ) -> tuple[Cost | None, Route]:
        """Return what measured curves tell, if anything, and the route whose formula does else."""
        if protocol != AUTO:
            from perfsim.library.protocols import check_protocol

            check_protocol(protocol, self.library, find_library(self.library).protocols)
        name = self.choice(collective, size_bytes, protocol) if algorithm == AUTO else algorithm
        route = self.route(collective, name, protocol)
        if self.gpus == 1:
            return FREE, route
        refusal = route.algorithm.refusal(route.base)
        if refusal:
            raise RequestError(
                f"--algorithm: {collective} {route.algorithm.name} {refusal}; here are {self.gpus}"
                f" GPUs on {self.nodes} {'node' if self.nodes == 1 else 'nodes'}."
            )
        known = self._known(collective, size_bytes, route, algorithm, protocol)
        if known is None:
            known = self._changed(collective, size_bytes, route)
        return known, route

    def _known(
        self, collective: str, size_bytes: float, route: Route, algorithm: str, protocol: str
    ) -> Cost | None:
        """Return what measured curves tell; behind a fabric only of the ranks that were measured.

        The laws that carry a curve on know nothing of a fabric that narrows as it grows. A curve
        of an algorithm held fixed also stands for ``auto`` where the library has no other choice.
        """
        if self.known is None or self.narrowed:
            return None
        if self.fabric is not None and not self.known.measured(self.placement):
            return None
        library = find_library(self.library)
        bound = library.choose(collective, size_bytes, self.gpus) is not None
        bound = bound or len(library.considered(collective)) == 1
        name = route.algorithm.name
        only = bound and name == self.choice(collective, size_bytes, protocol)
        held = ("", name) if only else ("" if algorithm == AUTO else name,)
        return self.known.cost(
            collective, size_bytes, self.placement, self.library, held, protocol, route.seconds
        )

    @cached_property
    def _as_measured(self) -> Cluster:
        """The cluster without its fabric; kept, as its routes are."""
        if self.fabric is None:
            return self
        return replace(self, fabric=None, narrowed=False, **_nothing_kept())

    def _changed(self, collective: str, size_bytes: float, route: Route) -> Cost | None:
        """Return what curves tell of the cluster as it was measured, times what is changed.

        Another algorithm or protocol, or a fabric: the links' formula with it over that without.
        So a worse network is never faster than its own curve, whatever the links alone say.
        """
        if self.known is None or self.library != self.fitted_on:
            return None
        plain = self._as_measured
        usual = plain.route(collective, plain.choice(collective, size_bytes))
        found = plain._known(collective, size_bytes, usual, AUTO, AUTO)
        usual_s = usual.seconds(size_bytes)
        if found is None or usual_s <= 0:
            return None
        ratio = route.seconds(size_bytes) / usual_s
        (term,) = found.terms
        what = f"{collective} {route.algorithm.name}"
        quantity = term.quantity._replace(
            value=found.seconds * ratio,
            kind="derived",
            source=f"{term.quantity.source}; times {ratio:.3g}, the links' formulas of {what} as"
            " asked for over those of the network as measured",
        )
        return found._replace(
            seconds=found.seconds * ratio,
            latency_s=found.latency_s * ratio,
            terms=(term._replace(quantity=quantity, extrapolated=True),),
            grade="carried",
        )


def _derived(term: Term, library: str, fitted_on: str) -> Term:
    """Return a link's number as another library takes it over from NCCL."""
    quantity = term.quantity
    if quantity.kind == "derived":
        return term
    source = f"taken over for {library} from {fitted_on}: {quantity.source}"
    return term._replace(quantity=quantity._replace(kind="derived", source=source))


def _nothing_kept() -> dict[str, Any]:
    """Return what a changed cluster must not take over from the one it was made of."""
    return {"_routes": {}, "_costs": {}, "_seconds": {}, "_parts": {}, "_served": {}}
