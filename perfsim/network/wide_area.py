"""Sites: parts of a cluster that a wide area network joins, and what collectives cost over it.

The ranks of a site come one after another, site by site in the order in which a ring visits them.
Inside a site the cluster is what it is without sites; a group of ranks that stays in one site costs
what it costs there. A group over several sites costs

    latency inside + latency between sites + max(transfer inside, transfer between sites).

What is inside is the cost of the same collective with all its ranks in one place. The library
chooses its algorithm by that: it knows nothing of the distance. Inside and between sites bytes move
at once, and the slower of both transfers sets the pace: what waits between sites for a chunk or a
segment to be sent waits at that pace. Between sites count

- the bytes that the algorithm sends over the uplink, the downlink and the connection of the slowest
  site (`perfsim.network.routing`), each at its rate, and a connection at what TCP reaches; each
  pair of nodes, or of ranks that exchange by themselves, has a connection, and each ring of ranks
  with the same place in their nodes;
- the one-way delays on its longest chain of messages;
- what libraries have on its way at a time, which over a long path is less than the path holds:
  NCCL's rings go round again for every chunk of 2 MiB of each rank and channel, of which a slice is
  sent on while the next is on its way; gloo's rings have two segments of up to 1 MiB on their way,
  each of which waits for a notice that the receiver is ready.

Left out: slow start (a connection that was idle begins with 10 segments a flow and doubles that
every round trip), what packet headers take, flows of others but those of `background`.

References
----------
NVIDIA/nccl src/include/collectives.h (NCCL_STEPS, ALLREDUCE_SLICESTEPS, ALLREDUCE_CHUNKSTEPS),
src/init.cc (DEFAULT_BUFFSIZE); facebookincubator/gloo@1d9e62af gloo/allreduce.cc, @55b6bf77
gloo/reduce.cc, gloo/broadcast.cc, gloo/transport/tcp/pair.cc.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from perfsim.collectives import Algorithm, Hops
from perfsim.collectives.all_reduce import torus_grid
from perfsim.collectives.hops import ceil_log2
from perfsim.libraries import library as find_library
from perfsim.network.routing import Flow, Pattern, all_to_all_flows, flows
from perfsim.network.wide_link import SitePath, WideLink
from perfsim.quantity import Cost, Quantity, Term
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.methods.base import Group

__all__ = ["GroupOverSites", "WideArea", "group_over_sites", "wide_cost"]

_CHANNELS = 2
"""Rings of NCCL over a NIC: it doubles the one that it finds (NVIDIA/nccl src/graph/connect.cc)."""
_STEP_BYTES = 2**19
"""A slot of NCCL's buffers: 4 MiB in NCCL_STEPS = 8."""
_CHUNK_STEPS, _SLICES = 4, 2
"""Slots of a chunk of a ring (NCCL_STEPS / 2), and slices in which a chunk is sent on."""
_SEGMENT_BYTES = 2**20
"""The most of one message of a ring of gloo (kMaxSegmentSize in its options)."""
_SEGMENTS = 2
"""Messages that a rank of gloo's ring has on their way: one is added up while another comes."""

_SPREAD = 0.24
"""Relative half width of the 90 % interval of what sites add: within it are nine of ten of 322
published times of NCCL and gloo over shaped links (profiles/build/wide_area_record.py). No number
here is fitted to them, but which mechanisms count was seen in them: elsewhere it may be wider."""

_NCCL = ("nccl", "rccl")
_GIVEN = "given by the user (wan)"


@dataclass(frozen=True)
class WideArea:
    """The sites on which the ranks of a cluster stand.

    Parameters
    ----------
    links : of each site
    parts : GPUs on each node, site by site
    leaving_site : of a group of ranks, groups that send out of a site at once, this one among them
    by_site : whether a group's "node" is a site
    """

    links: tuple[WideLink, ...]
    parts: tuple[tuple[int, ...], ...]
    leaving_site: int = 1
    by_site: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """GPUs of each site."""
        return tuple(map(sum, self.parts))

    @property
    def nodes(self) -> tuple[int, ...]:
        """GPUs on each node, of all sites."""
        return tuple(gpus for part in self.parts for gpus in part)

    @property
    def placement(self) -> tuple[int, ...]:
        """GPUs on each node, or of each site where a site counts as a node."""
        return self.sizes if self.by_site else self.nodes

    def faster(self, factor: float) -> WideArea:
        """Return the sites with the rates of all their links multiplied."""
        return replace(self, links=tuple(link.faster(factor) for link in self.links))

    def shared(self, part: float) -> WideArea:
        """Return the sites with a part of each link; what a TCP flow reaches stays."""
        return self if part == 1.0 else self.faster(part)

    @property
    def slowest_rate(self) -> float:
        """Rate of the slowest uplink or downlink [B/s]."""
        return min(min(link.up, link.down) for link in self.links)

    def paths(self) -> Iterator[SitePath]:
        """Yield the paths from each site to each other."""
        for tail, one in enumerate(self.links):
            for head, other in enumerate(self.links):
                if head != tail:
                    yield one.path(other)


# Groups of ranks


class GroupOverSites(NamedTuple):
    """One group of the ranks, the one that is spread widest.

    Parameters
    ----------
    links, parts : of the sites that it is on, as of `WideArea`
    leaving_node, leaving_site : groups that send out of a node, or out of a site, at once
    """

    links: tuple[WideLink, ...]
    parts: tuple[tuple[int, ...], ...]
    leaving_node: int
    leaving_site: int


def group_over_sites(wide: WideArea, group: Group) -> GroupOverSites:
    """Return a group of the ranks as it stands on nodes and sites.

    Examples
    --------
    >>> link = WideLink(1e8, 1e8, 0.01)
    >>> wide = WideArea((link, link), ((4, 4), (4,)))
    >>> for group in ("node", "across", 8):
    ...     print(group_over_sites(wide, group)[1:])
    (((4,),), 1, 1)
    (((1, 1), (1,)), 4, 4)
    (((4, 4),), 1, 1)
    """
    return widest_group(wide, tuple(_groups(group, wide.placement)))


def _groups(group: Group, units: Sequence[int]) -> Iterator[list[int]]:
    """Yield all groups of a kind, each the ranks that it has."""
    ranks = sum(units)
    starts = [0, *accumulate(units)]
    if group == "all":
        yield list(range(ranks))
    elif group == "leaders":
        yield starts[:-1]
    elif group == "node":
        for start, gpus in zip(starts, units, strict=False):
            yield list(range(start, start + gpus))
    elif group == "across":
        for place in range(max(units)):
            yield [
                start + place for start, gpus in zip(starts, units, strict=False) if place < gpus
            ]
    else:
        assert isinstance(group, int | tuple)  # groups by axis are clusters of their own
        count, stride = group if isinstance(group, tuple) else (group, 1)
        for block in range(0, ranks, count * stride):
            end = min(ranks, block + count * stride)
            yield from (
                list(range(first, end, stride)) for first in range(block, min(end, block + stride))
            )


def widest_group(wide: WideArea, groups: Sequence[Sequence[int]]) -> GroupOverSites:
    """Return the group on most sites, then with the slowest link, then with most ranks.

    Parameters
    ----------
    groups : ranks of each group
    """
    node_of = [node for node, gpus in enumerate(wide.nodes) for _ in range(gpus)]
    site_of = [site for site, gpus in enumerate(wide.sizes) for _ in range(gpus)]

    def width(ranks: Sequence[int]) -> tuple[int, float, int, int]:
        sites = {site_of[rank] for rank in ranks}
        slowest = min(min(wide.links[site][:2]) for site in sites)
        return len(sites), -slowest if len(sites) > 1 else 0.0, len(ranks), -ranks[0]

    chosen = max(groups, key=width)
    parts: list[tuple[int, ...]] = []
    links = []
    for site in sorted({site_of[rank] for rank in chosen}):
        nodes = Counter(node_of[rank] for rank in chosen if site_of[rank] == site)
        parts.append(tuple(nodes[node] for node in sorted(nodes)))
        links.append(wide.links[site])
    return GroupOverSites(
        tuple(links), tuple(parts), _leaving(groups, node_of), _leaving(groups, site_of)
    )


def _leaving(groups: Iterable[Sequence[int]], place_of: Sequence[int]) -> int:
    """Return how many groups send out of the place that most of them send out of."""
    leaving: Counter[int] = Counter()
    for ranks in groups:
        places = {place_of[rank] for rank in ranks}
        if len(places) > 1:
            leaving.update(places)
    return max(leaving.values(), default=1)


# Costs over sites


class _Crossing(NamedTuple):
    """What an algorithm sends between sites.

    Parameters
    ----------
    sent : bytes over a link of a ring, a byte of the message
    s_per_byte : transfer of a byte of the message, phases added up, were nothing else a limit [s/B]
    chain_s : one-way delays on the longest chain of messages [s]
    last_s : the longest one-way delay of one message [s]
    """

    sent: float
    s_per_byte: float
    chain_s: float
    last_s: float


def wide_cost(
    inside: Cost,
    algorithm: Algorithm,
    size_bytes: float,
    wide: WideArea,
    library: str,
    servers: int = 0,
    background: float = 0.0,
) -> Cost:
    """Return what a collective costs among ranks on several sites.

    Parameters
    ----------
    inside : its cost with all ranks at one place
    algorithm : as the library runs it
    size_bytes : as of `perfsim.network.cluster.Cluster.cost`
    servers, background : machines that serve pushes and pulls; share that other traffic takes

    Notes
    -----
    The grade is "carried" where each site's link was measured, unless most of the time passes
    inside a site on links that were not. Rates fitted on the cluster itself have that grade, and
    formulas on links that were known missed published times by less (`_SPREAD`). Else it is
    "modelled", as of networks that are known by their names.

    Examples
    --------
    Two sites of one GPU, 1 GB/s and 100 ms one way. A tree over two sends 10 GB each way; what
    comes back was sent 200 ms before.

    >>> far = WideLink(1e9, 1e9, 0.1)
    >>> tree = find_library("nccl").algorithm("all_reduce", "tree")
    >>> wide_cost(Cost(0.0), tree, 1e10, WideArea((far, far), ((1,), (1,))), "nccl").seconds
    10.2
    """
    shared = wide.shared((1.0 - background) / wide.leaving_site)
    inside_s = inside.seconds - inside.latency_s
    latency_s, transfer_s = _between(algorithm, size_bytes, library, servers, shared, inside_s)
    seconds = inside.latency_s + latency_s + transfer_s
    known = _SPREAD if inside.spread is None else inside.spread
    spread_s = _SPREAD * (seconds - inside.seconds) + known * inside.seconds
    return inside._replace(
        seconds=seconds,
        latency_s=inside.latency_s + latency_s,
        spread=spread_s / seconds if seconds > 0 else None,
        terms=(*inside.terms, *_terms(wide)),
        grade="carried" if _mostly_measured(inside, seconds, wide) else "modelled",
    )


def _mostly_measured(inside: Cost, seconds: float, wide: WideArea) -> bool:
    """Tell whether the links between sites were measured, and most of the time is known by that."""
    known = inside.grade in ("measured", "carried") or inside.seconds <= seconds / 2.0
    return known and all(link.measured for link in wide.links)


@lru_cache(maxsize=256)
def _terms(wide: WideArea) -> tuple[Term, ...]:
    """Return the slowest connection and the longest round trip, for a prediction's provenance."""
    paths = list(wide.paths())
    rate = min(path.reached for path in paths)
    rtt_s = max(path.rtt_s for path in paths)
    return (
        Term("rate of a connection between sites", Quantity(rate, "B/s", "derived", _GIVEN)),
        Term("round trip between sites", Quantity(rtt_s, "s", "derived", _GIVEN)),
    )


def _between(
    algorithm: Algorithm,
    size_bytes: float,
    library: str,
    servers: int,
    wide: WideArea,
    inside_s: float,
) -> tuple[float, float]:
    """Return latency between sites, and the transfer, which takes ``inside_s`` at least [s]."""
    sites = len(wide.sizes)
    crossing = _crossing(algorithm.collective, algorithm.name, servers, library, wide)
    transfer_s = size_bytes * crossing.s_per_byte
    ring = algorithm.blocks and algorithm.flows == "ring"
    if library in _NCCL and ring and algorithm.name in ("ring", "hierarchical"):
        return _chunked(algorithm, size_bytes, crossing, max(inside_s, transfer_s), wide)
    if library == "gloo" and ring:
        return _noticed(algorithm, size_bytes, crossing, inside_s, wide)
    latency_s = crossing.chain_s
    if library in _NCCL and algorithm.name == "chain":
        step_s = min(_CHANNELS * _STEP_BYTES, size_bytes) * crossing.s_per_byte
        transfer_s += max(0, sites - 2) * step_s
    if library == "gloo" and algorithm.name == "binomial":
        # The root's first message waits for its receiver's notice; those of later rounds have come.
        latency_s += crossing.last_s
        transfer_s = size_bytes * _all_at_once(wide)
    return latency_s, max(inside_s, transfer_s)


def _chunked(
    algorithm: Algorithm, size_bytes: float, crossing: _Crossing, transfer_s: float, wide: WideArea
) -> tuple[float, float]:
    """Return latency and transfer of NCCL's ring, which goes round again for each chunk of a rank.

    Every rank sends a chunk while another comes, so that the wire is full, unless the ring is too
    long: a chunk goes on after all delays, and after each site has sent a slice of it.

    Parameters
    ----------
    transfer_s : of the slowest link of the ring, between sites or inside one [s]
    """
    ranks, delays_s = sum(wide.sizes), [path.one_way_s for path in _ring(wide)]
    if algorithm.name == "hierarchical":  # rings of the ranks with the same place in their nodes
        size_bytes, ranks = size_bytes / max(wide.nodes), len(wide.nodes)
    loops = max(1.0, size_bytes / (_CHANNELS * ranks * _CHUNK_STEPS * _STEP_BYTES))
    chunk_s = transfer_s / (loops * crossing.sent * ranks)
    waiting_s = crossing.chain_s + (loops - 1.0) * crossing.sent * sum_in_order(delays_s)
    waiting_s += len(delays_s) / ranks / _SLICES * transfer_s + (1.0 - 1.0 / _SLICES) * chunk_s
    seconds = max(transfer_s + crossing.last_s, waiting_s)
    latency_s = max(0.0, seconds - transfer_s)
    return latency_s, seconds - latency_s


def _noticed(
    algorithm: Algorithm,
    size_bytes: float,
    crossing: _Crossing,
    inside_s: float,
    wide: WideArea,
) -> tuple[float, float]:
    """Return latency and transfer of gloo's ring, whose segments wait for the receiver's notice.

    A segment takes a round trip and its own time c, and two are on their way. The notice for the
    next stands in line behind what its sender sends: c/2 in the share of time in which it sends,
    which is 2 c of a cycle t of two segments. So t = RTT + c + c c / t. Between two ranks the
    notice takes the very connection of the segments that its sender sends, and the whole next one
    is in line before it: t = RTT + 2 c. A wire that is never idle still has one round trip: the
    first notice and the last segment. A reduce ends with a gather in which every rank sends its
    block to the root, as many bytes as the ring before it. Where links inside a site are slower,
    c and the gather take what they take there.
    """
    ranks, gathers = sum(wide.sizes), algorithm.name == "ring_gather"
    size_bytes = max(size_bytes, 1.0)  # ranks wait for an empty message as for one of a byte
    segment = size_bytes / (_SEGMENTS * ranks)
    if algorithm.collective != "all_gather":
        segment = min(segment, float(_SEGMENT_BYTES))
    passes = 2.0 if gathers else 1.0
    sent, inside_s = size_bytes * crossing.sent / passes, inside_s / passes
    transfer_s = seconds = 0.0
    for path in _ring(wide):
        wire_s = max(segment / path.reached, segment / sent * inside_s)
        trip_s = path.rtt_s + wire_s
        in_line_s = (math.hypot(trip_s, 2.0 * wire_s) - trip_s) / 2.0
        cycle_s = trip_s + (wire_s if ranks == 2 else in_line_s)
        transfer_s = max(transfer_s, sent / segment * wire_s)
        full_s = sent / segment * wire_s + path.rtt_s
        seconds = max(seconds, full_s, sent / segment * cycle_s / _SEGMENTS)
    latency_s = seconds - transfer_s
    if not gathers:
        return latency_s, transfer_s
    gather_s, longest_s = inside_s, 0.0
    root, block = wide.links[0], size_bytes / ranks
    for link, gpus in zip(wide.links[1:], wide.sizes[1:], strict=True):
        path = link.path(root)
        gather_s = max(gather_s, gpus * block / link.up, block / path.connection_rate)
        longest_s = max(longest_s, path.rtt_s)
    gather_s = max(gather_s, (ranks - wide.sizes[0]) * block / root.down)
    return latency_s + longest_s, transfer_s + gather_s


def _all_at_once(wide: WideArea) -> float:
    """Return the transfer of gloo's broadcast [s/B]: each rank sends to all its children at once.

    With k = ceil(log2 S) rounds over S sites the root's uplink carries k messages, that of its
    largest child k - 1, and so on: k (k+1) / 2 in all, where the uplink is what holds them. The
    first rounds are those inside a site, so that every rank of it sends a message over the uplink
    in each of the later ones (gloo/broadcast.cc).
    """
    up = min(link.up for link in wide.links) / max(wide.sizes)
    one = 1.0 / min(path.reached for path in wide.paths())
    return sum_in_order(max(count / up, one) for count in range(1, ceil_log2(len(wide.sizes)) + 1))


def _ring(wide: WideArea) -> list[SitePath]:
    """Return the path from each site to the next."""
    after = (*wide.links[1:], wide.links[0])
    return [one.path(other) for one, other in zip(wide.links, after, strict=True)]


@lru_cache(maxsize=4096)
def _crossing(collective: str, name: str, servers: int, library: str, wide: WideArea) -> _Crossing:
    """Return what an algorithm sends between sites, for a group that has the links to itself.

    The pattern of its flows, which knows nothing of sites, says what crosses from site to site.
    """
    algorithm = find_library(library).algorithm(collective, name)
    nodes, sites = wide.nodes, wide.sizes
    hops = _only_between(nodes, servers)
    sent = algorithm.formula(1.0, hops).transfer_s
    steps = algorithm.formula(0.0, hops._replace(alpha_inter_s=1.0)).latency_s
    paths = {
        (a, b): one.path(other)
        for a, one in enumerate(wide.links)
        for b, other in enumerate(wide.links)
        if a != b
    }
    last_s = max(path.one_way_s for path in paths.values())
    if algorithm.flows == "pairs":
        slowest = min(path.reached for path in paths.values())
        return _Crossing(sent, sent / slowest, steps * last_s, last_s)
    if algorithm.flows == "all_to_all":
        scale = sent / max(gpus * (1.0 - gpus / sum(nodes)) for gpus in nodes)
        many = {
            (a, b): path._replace(flows=path.flows * sites[a] * sites[b])
            for (a, b), path in paths.items()
        }
        s_per_byte = scale * _transfer(all_to_all_flows(sites), wide, many)
        return _Crossing(sent, s_per_byte, steps * last_s, last_s)
    if algorithm.flows == "ring":
        return _around(algorithm, wide, paths, sent, steps)
    if algorithm.flows == "tree" and collective != "all_reduce":
        # Broadcasts and reduces go over the sites first, each round as slow as the slowest path.
        sent_far = algorithm.formula(1.0, _only_between(sites)).transfer_s
        slowest = min(path.reached for path in paths.values())
        depth = max((len(chain) for chain in flows("tree", nodes).chains), default=1)
        chain_s = steps / depth * _longest_s(flows("tree", sites), paths)
        return _Crossing(sent, sent_far / slowest, chain_s, last_s)
    # The ranks do not know of sites, and each pair of nodes or ranks has a connection of its own.
    places = [len(part) for part in wide.parts] if algorithm.flows == "tree" else sites
    site_of = [site for site, count in enumerate(places) for _ in range(count)]
    there = _between_places(flows(algorithm.flows, (1,) * len(site_of)), site_of)
    back = _reversed(there)
    if collective == "all_reduce" and algorithm.flows == "tree":  # its flows are both ways
        return _Crossing(
            sent, _transfer(there, wide, paths), 2.0 * _longest_s(there, paths), last_s
        )
    passes = [back] if collective == "reduce_scatter" else [there]
    if collective == "all_reduce" and algorithm.flows == "halving":
        passes = [there, back]
    s_per_byte = sum_in_order(_transfer(one, wide, paths) for one in passes)
    chain_s = sum_in_order(_longest_s(one, paths) for one in passes)
    return _Crossing(sent, s_per_byte, chain_s, last_s)


def _longest_s(pattern: Pattern, paths: dict[tuple[int, int], SitePath]) -> float:
    """Return the one-way delays on the longest chain of messages [s]."""
    return max(sum_in_order(paths[hop].one_way_s for hop in chain) for chain in pattern.chains)


def _reversed(pattern: Pattern) -> Pattern:
    """Return the messages of a pattern run backwards."""
    phases = (
        tuple(Flow(target, source, weight) for source, target, weight in phase)
        for phase in reversed(pattern.phases)
    )
    chains = (
        tuple((target, source) for source, target in reversed(chain)) for chain in pattern.chains
    )
    return Pattern(tuple(phases), tuple(chains))


def _only_between(nodes: Sequence[int], servers: int = 0) -> Hops:
    """Return hops of which bytes between nodes alone take time: a second each, and no latency."""
    return Hops(
        *(sum(nodes), len(nodes), max(nodes), 0.0, 0.0, 1.0, 1.0, 0.0, 1.0),
        servers=servers,
    )


def _around(
    algorithm: Algorithm,
    wide: WideArea,
    paths: dict[tuple[int, int], SitePath],
    sent: float,
    steps: float,
) -> _Crossing:
    """Return what a ring sends from site to site; parameters as in `_Crossing` and `_crossing`.

    The GPUs of a node have rings of their own, each over connections of its own, where every one
    sends its part between nodes.
    """
    nodes, sites = wide.nodes, wide.sizes
    near, far = flows("ring", nodes), flows("ring", sites)
    rings = 1
    if algorithm.name == "hierarchical":
        rings = max(nodes)
    if algorithm.name == "torus2d" and torus_grid(len(nodes), max(nodes))[0] == max(nodes):
        rings = max(nodes)
    phases = tuple(
        tuple(flow._replace(weight=flow.weight / rings) for flow in phase) * rings
        for phase in far.phases
    )
    scale = sent / _busiest(near)
    s_per_byte = scale * _transfer(replace(far, phases=phases), wide, paths)
    delays_s = [path.one_way_s for path in _ring(wide)]
    last_s = max(path.one_way_s for path in paths.values())
    if not algorithm.blocks:
        return _Crossing(sent, s_per_byte, steps / len(nodes) * sum_in_order(delays_s), last_s)
    if algorithm.name == "neighbor":  # every step waits for its slowest pair
        between = _only_between(sites)._replace(alpha_inter_s=1.0)
        crossings = algorithm.formula(0.0, between).latency_s
        return _Crossing(sent, s_per_byte, crossings * last_s, last_s)
    turns = 2 if sent > 1.0 or algorithm.collective == "all_reduce" else 1
    members = tuple(map(len, wide.parts)) if algorithm.name == "hierarchical" else sites
    chain_s = turns * sum_in_order(delays_s) - _skipped(delays_s, members, turns)
    factor = steps / max(1, turns * (len(nodes) - 1))  # gloo's round trips, others' 1
    return _Crossing(sent, s_per_byte, factor * chain_s, last_s)


def _between_places(pattern: Pattern, place_of: Sequence[int]) -> Pattern:
    """Return the flows of a pattern that leave a place; those of two nodes stay two.

    Examples
    --------
    >>> [[flow[:2] for flow in phase] for phase in
    ...  _between_places(flows("halving", (1, 1, 1, 1)), (0, 0, 1, 1)).phases]
    [[(0, 1), (0, 1), (1, 0), (1, 0)]]
    """
    phases = (
        tuple(
            Flow(place_of[source], place_of[target], weight)
            for source, target, weight in phase
            if place_of[source] != place_of[target]
        )
        for phase in pattern.phases
    )
    chains = (
        tuple(
            (place_of[source], place_of[target])
            for source, target in chain
            if place_of[source] != place_of[target]
        )
        for chain in pattern.chains
    )
    return Pattern(tuple(filter(None, phases)), tuple({chain for chain in chains if chain}))


def _skipped(delays_s: Sequence[float], members: Sequence[int], turns: int) -> float:
    """Return the delays that a chunk does not meet: it ends one hop short of each turn of the ring.

    Where ``turns`` hops that follow each other can all be inside a site, it meets all of them.

    Examples
    --------
    >>> [_skipped((0.1, 0.1), (gpus, gpus), 2) for gpus in (1, 2, 3)]
    [0.2, 0.1, 0.0]
    """
    if max(members) > turns:
        return 0.0
    edges = [
        delay_s
        for delay_s, count in zip(delays_s, members, strict=True)
        for delay_s in (*(0.0,) * (count - 1), delay_s)
    ]
    around = [*edges, *edges[: turns - 1]]
    return min(sum_in_order(around[at : at + turns]) for at in range(len(edges)))


def _loads(phase: Iterable[Flow]) -> tuple[dict[int, float], dict[int, float]]:
    """Return what each place sends and receives in a phase, a byte of the message."""
    out: dict[int, float] = defaultdict(float)
    into: dict[int, float] = defaultdict(float)
    for source, target, weight in phase:
        out[source] += weight
        into[target] += weight
    return out, into


def _busiest(pattern: Pattern) -> float:
    """Return the load of the busiest node in each phase, added up."""
    loads = map(_loads, pattern.phases)
    return sum_in_order(max(*out.values(), *into.values()) for out, into in loads)


def _transfer(pattern: Pattern, wide: WideArea, paths: dict[tuple[int, int], SitePath]) -> float:
    """Return the time of the busiest link or connection in each phase, added up [s/B]."""
    total_s = 0.0
    for phase in pattern.phases:
        out, into = _loads(phase)
        sent = (load / wide.links[site].up for site, load in out.items())
        received = (load / wide.links[site].down for site, load in into.items())
        held = (weight / paths[source, target].connection_rate for source, target, weight in phase)
        total_s += max(*sent, *received, *held)
    return total_s
