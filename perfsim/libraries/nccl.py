"""NCCL: its tuner's model of the time of a call, by which it chooses algorithm and protocol.

The model is latency + bytes / bandwidth for each collective, algorithm and protocol, corrected by
size for trees and large rings. Version 2.4 has two lines and a threshold instead. The figures are
in `perfsim.libraries.nccl_versions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from perfsim.collectives import HALVES
from perfsim.errors import RequestError, unknown
from perfsim.libraries import AUTO, Library
from perfsim.libraries.nccl_versions import (
    ARCHITECTURES,
    PROTOCOLS,
    TUNED_ALGORITHMS,
    FigureRows,
    VersionFigures,
    parse_version,
    version_figures,
)

__all__ = [
    "DEFAULT_VERSION",
    "LIBRARY",
    "CommunicatorShape",
    "NcclTuner",
    "TunerChoice",
    "algorithm_bandwidth",
    "call_latency_us",
    "check_protocol",
    "fastest_pair",
    "line_s",
    "low_latency_bytes",
    "plateau",
    "protocol_factors",
    "ring_steps",
    "tree_factor",
    "tree_threshold_bytes",
]


def choose(collective: str, size_bytes: float, ranks: int, /) -> str | None:
    """Return None: NCCL compares predicted times (src/graph/tuning.cc), and so does a cluster.

    `NcclTuner` is NCCL's own prediction by version.

    Examples
    --------
    >>> choose("all_reduce", 1e6, 8)
    """
    return None


def hop_factor(collective: str, algorithm: str, /) -> float:
    """Return 1: the links' latencies were fitted on NCCL."""
    return 1.0


LIBRARY = Library(
    name="nccl",
    summary="NCCL: the algorithm with the least predicted time, rings and trees",
    has=None,  # every algorithm by name, also those that NCCL lacks: what if it had them
    choose=choose,
    hop_factor=hop_factor,
    protocols=True,
)


DEFAULT_VERSION = "2.21.5"
"""The version whose figures a link takes that names none."""

LINK_CLASSES = ("nvlink", "pci", "net")

PROTOCOL_BANDWIDTH = {"ll": 0.5, "ll128": 0.92, "simple": 1.0}
"""LL sends a 4 B flag with every 4 B; LL128 8 B with every 120 B, 0.92 in NCCL's tuner."""


def check_protocol(name: str, library: str, has: bool) -> None:
    """Refuse a protocol that does not exist, or that a library does not have.

    Raises
    ------
    RequestError
        If so; lists those there are.

    Examples
    --------
    >>> check_protocol("ll128", "nccl", True)
    """
    if name not in (AUTO, *PROTOCOLS):
        raise unknown("protocol", name, (AUTO, *PROTOCOLS))
    if name != AUTO and not has:
        raise RequestError(
            "protocol",
            f"{name!r} is a protocol of NCCL, and {library} has none; leave it out, or"
            " take `library` nccl.",
        )


@cache
def protocol_factors(
    protocol: str, version: str = DEFAULT_VERSION, link_class: str = "net", algorithm: str = "ring"
) -> tuple[float, float]:
    """Return the factors on latency and bandwidth of a link when a protocol is fixed.

    Latency: the tuner's hop latency of the protocol over that of LL, which NCCL takes for small
    messages by itself. Bandwidth: 0.5, 0.92 and 1, over that of Simple, which it takes for large.

    Parameters
    ----------
    protocol : ll, ll128 or simple
    version : of NCCL, 2.5 or later (2.4 takes the figures of 2.5)
    link_class : nvlink, pci or net
    algorithm : ring or tree, whose hops they are

    Raises
    ------
    RequestError
        If a name is unknown.

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, hop latencies and shares of bandwidth by version.

    Examples
    --------
    >>> [round(factor, 2) for factor in protocol_factors("simple", "2.21.5", "net")]
    [5.19, 1.0]
    >>> protocol_factors("ll", "2.21.5", "nvlink")
    (1.0, 0.5)
    """
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
    if link_class not in LINK_CLASSES:
        raise unknown("link class", link_class, LINK_CLASSES)
    known = version_figures("2.5" if version.startswith("2.4") else version)
    hops = known.hop_us[link_class][algorithm]
    return hops[PROTOCOLS.index(protocol)] / hops[0], PROTOCOL_BANDWIDTH[protocol]


class CommunicatorShape(NamedTuple):
    """Ranks, nodes, GPUs, CPU and links of a communicator, as the tuner sees them.

    ``capability`` is the GPU's compute capability, ``bus_bandwidth`` in GB/s over all channels.
    """

    ranks: int
    nodes: int
    capability: int
    cpu: str
    intra: str
    bus_bandwidth: float
    channels: int
    nvswitch: bool
    in_network: bool
    near_nic: bool
    plain_tree: bool

    @property
    def nvlink(self) -> bool:
        """Whether GPUs of a node are joined by NVLink."""
        return self.intra == "nvlink"

    @property
    def per_node(self) -> int:
        """GPUs a node as NCCL counts hops: whole ones."""
        return self.ranks // self.nodes

    @property
    def mean_per_node(self) -> float:
        """GPUs a node as NCCL weighs bandwidth."""
        return self.ranks / self.nodes

    @property
    def span(self) -> int:
        """Index in a triple by nodes: one, two, more."""
        return min(self.nodes, 3) - 1

    @property
    def nvls(self) -> bool:
        """Whether the switch inside a node reduces: NVSwitch, Hopper or later, above two GPUs."""
        return self.nvswitch and self.capability >= 90 and self.per_node > 2

    def row(self, since: tuple[int, int]) -> int:
        """Return the row of a table by generation: Volta and older, Ampere, Hopper, Blackwell.

        Up to 2.16 only compute capability 8.0 (and 9.0 from 2.14) leave the first row.
        """
        if since < (2, 17):
            return {80: 1, 90: 2 if since >= (2, 14) else 0}.get(self.capability, 0)
        return sum(self.capability >= least for least in (80, 90, 100))


TUNED_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")
INTRA = ("nvlink", "pci")
CPUS = ("intel", "amd", "arm", "power")


class TunerChoice(NamedTuple):
    """What NCCL takes for a call, and the time that its tuner expects [s].

    ``seconds`` is None where there is none: NCCL 2.4, other collectives than all_reduce.
    """

    algorithm: str
    protocol: str
    seconds: float | None


class NcclTuner:
    """NCCL's tuning model for one communicator.

    Parameters
    ----------
    version : of NCCL, 2.4 or later, such as 2.18.3
    ranks, nodes : GPUs that take part, and their nodes
    gpu_architecture : kepler, maxwell, pascal, volta, turing, ampere (A100), ampere_rtx, ada,
        hopper or blackwell
    cpu : intel, amd, arm or power
    intra : links between the GPUs of a node, nvlink or pci
    bus_bandwidth : of all channels together, as the topology search finds it [GB/s]
    channels : that the rate is spread over
    nvswitch : GPUs of a node joined by NVSwitch: NVLS from Hopper on
    in_network : a CollNet plug-in (SHARP switches) is loaded
    near_nic : each GPU reaches its NIC over PCIe switches alone, which LL128 between nodes needs
    plain_tree : the tree leaves a node by the GPU it enters by; None: with one GPU a node

    Notes
    -----
    The network plug-in's latency is taken as 0, as NCCL's own for sockets and InfiniBand report.
    All algorithms get the one bus bandwidth. One call at a time: no aggregated operations.

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, ncclTopoTuneModel and ncclTopoGetAlgoTime, from
    v2.5.6-1 to v2.30.7-1; for 2.4 see `line_s`.

    Raises
    ------
    RequestError
        If a name is unknown, a number is not positive, or the version is older than 2.4.

    Examples
    --------
    >>> tuner = NcclTuner("2.21.5", 32, 8, "turing", "intel", "pci", 1.2, 1)
    >>> tuner.choose("all_reduce", 8e3)[:2], tuner.choose("all_reduce", 256e6)[:2]
    (('tree', 'll'), ('ring', 'simple'))
    """

    def __init__(
        self,
        version: str,
        ranks: int,
        nodes: int,
        gpu_architecture: str,
        cpu: str,
        intra: str,
        bus_bandwidth: float,
        channels: int,
        *,
        nvswitch: bool = False,
        in_network: bool = False,
        near_nic: bool = True,
        plain_tree: bool | None = None,
    ) -> None:
        for field, name, choices in (
            ("gpu_architecture", gpu_architecture, tuple(ARCHITECTURES)),
            ("cpu", cpu, CPUS),
            ("intra", intra, INTRA),
        ):
            if name not in choices:
                raise unknown(field, name, choices)
        if not (ranks >= nodes >= 1 and channels >= 1 and bus_bandwidth > 0):
            raise RequestError(
                "tuner",
                f"{ranks} ranks on {nodes} nodes, {channels} channels and {bus_bandwidth} GB/s;"
                " at least 1 node, a rank a node, 1 channel and a rate above 0 are needed.",
            )
        self.number = parse_version(version)
        self.shape = CommunicatorShape(
            ranks,
            nodes,
            ARCHITECTURES[gpu_architecture],
            cpu,
            intra,
            bus_bandwidth,
            channels,
            nvswitch,
            in_network,
            near_nic,
            ranks == nodes if plain_tree is None else plain_tree,
        )
        self.figures = version_figures(version) if self.number >= (2, 5) else None
        self._table: dict[tuple[str, str, str], tuple[float, float] | None] = {}

    def time(
        self, collective: str, algorithm: str, protocol: str, size_bytes: float
    ) -> float | None:
        """Return the time that the tuner expects [s]; None where it leaves the pair out.

        latency + n / bandwidth of the collective, algorithm and protocol.

        Parameters
        ----------
        collective : all_reduce, reduce_scatter, all_gather, broadcast or reduce
        algorithm : tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree or pat
        protocol : ll, ll128 or simple
        size_bytes : n; for reduce_scatter and all_gather the blocks of all ranks [B]
        """
        if collective not in TUNED_COLLECTIVES:
            raise unknown("collective", collective, TUNED_COLLECTIVES)
        _check(algorithm, protocol)
        if protocol == "ll128" and not self._ll128_by_default(collective, algorithm):
            return None
        return self._time(collective, algorithm, protocol, size_bytes)

    def choose(
        self,
        collective: str,
        size_bytes: float,
        algorithm: str | None = None,
        protocol: str | None = None,
    ) -> TunerChoice:
        """Return the pair that takes least time, among those that NCCL_ALGO and NCCL_PROTO leave.

        ``algorithm`` and ``protocol`` are such restrictions. Where no algorithm is left, NCCL
        takes the ring: NCCL_ALGO=tree still gathers over rings.
        """
        if collective not in TUNED_COLLECTIVES:
            raise unknown("collective", collective, TUNED_COLLECTIVES)
        _check(algorithm or "ring", protocol or "ll")
        if self.shape.ranks == 1:
            return TunerChoice("ring", "simple", 0.0)
        if self.figures is None:
            return self._by_threshold(collective, size_bytes, algorithm, protocol)

        def seconds(name: str, kind: str) -> float | None:
            time = self.time if protocol is None and kind == "ll128" else self._time
            return time(collective, name, kind, size_bytes)

        names = (algorithm,) if algorithm else TUNED_ALGORITHMS
        found = fastest_pair(names, (protocol,) if protocol else PROTOCOLS, seconds)
        return found or self.choose(collective, size_bytes, "ring", protocol)

    def _time(
        self, collective: str, algorithm: str, protocol: str, size_bytes: float
    ) -> float | None:
        shape = self.shape
        if shape.ranks == 1:
            return 0.0
        if self.figures is None:
            if algorithm not in ("ring", "tree") or protocol == "ll128":
                return None
            if collective != "all_reduce":
                return None
            return line_s(
                algorithm, size_bytes, shape.ranks, shape.nodes, shape.nvlink, shape.channels
            )
        key = (collective, algorithm, protocol)
        if key not in self._table:
            bandwidth = algorithm_bandwidth(self.figures, shape, *key)
            latency = call_latency_us(self.figures, shape, *key) if bandwidth else 0.0
            self._table[key] = (latency, bandwidth) if bandwidth else None
        row = self._table[key]
        if row is None:
            return None
        latency_us, bandwidth = row
        if collective == "all_reduce":
            number = self.number
            bandwidth *= tree_factor(self.figures, shape, number, algorithm, protocol, size_bytes)
            latency_us *= plateau(shape, number, algorithm, protocol, size_bytes)
        return (latency_us + size_bytes / (1000.0 * bandwidth)) * 1e-6

    def _ll128_by_default(self, collective: str, algorithm: str) -> bool:
        """Say whether LL128 is on without being asked for: tested GPUs, NVLink, near NICs."""
        shape, number = self.shape, self.number
        if not shape.nvlink or (shape.nodes > 1 and not shape.near_nic):
            return False
        if number >= (2, 27):
            return shape.capability >= 70
        tested = {70}
        tested |= {80} if number >= (2, 7) else set()
        tested |= {90} if number >= (2, 15) else set()
        tested |= {100} if number >= (2, 25) else set()
        return shape.capability in tested

    def _by_threshold(
        self, collective: str, size_bytes: float, algorithm: str | None, protocol: str | None
    ) -> TunerChoice:
        shape = self.shape
        name = algorithm if algorithm in ("ring", "tree") else None
        if name is None:
            limit = tree_threshold_bytes(shape.ranks, shape.nodes, shape.nvlink, shape.channels)
            name = "tree" if collective == "all_reduce" and size_bytes <= limit else "ring"
        if collective != "all_reduce" or self._time(collective, name, "ll", size_bytes) is None:
            name = "ring"
        kind = protocol if protocol in ("ll", "simple") else None
        if kind is None:
            limit = low_latency_bytes(
                name, size_bytes, shape.ranks, shape.nodes, shape.channels, shape.capability
            )
            kind = "ll" if size_bytes <= limit else "simple"
        return TunerChoice(name, kind, self._time(collective, name, kind, size_bytes))


def fastest_pair(
    algorithms: Iterable[str],
    protocols: Sequence[str],
    seconds: Callable[[str, str], float | None],
) -> TunerChoice | None:
    """Return the algorithm and protocol that take least time, None where there is no such pair.

    Parameters
    ----------
    seconds : the time of a pair [s], None where the library does not have it
    """
    times = {
        (name, kind): time_s
        for name in algorithms
        for kind in protocols
        if (time_s := seconds(name, kind)) is not None
    }
    if not times:
        return None
    fastest = min(times, key=lambda pair: times[pair])
    return TunerChoice(*fastest, times[fastest])


def _check(algorithm: str, protocol: str) -> None:
    if algorithm not in TUNED_ALGORITHMS:
        raise unknown("algorithm", algorithm, TUNED_ALGORITHMS)
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)


def algorithm_bandwidth(
    figures: VersionFigures,
    shape: CommunicatorShape,
    collective: str,
    algorithm: str,
    protocol: str,
) -> float:
    """Return the bandwidth by which the tuner divides a call's bytes [GB/s]; 0: left out.

    The bus bandwidth, less the protocol's and the algorithm's share and at most their caps, times
    what turns bus into algorithm bandwidth: P / steps for a ring, 1/2 for a tree and CollNet, 5/6
    (from 2.28 P / steps) for NVLS.

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, ncclTopoTuneModel, from v2.5.6-1 on.
    """
    if not _has_pair(figures, shape, collective, algorithm, protocol):
        return 0.0
    if algorithm == "ring":
        return (
            _ring(figures, shape, collective, protocol)
            * shape.ranks
            / ring_steps(shape.ranks, collective)
        )
    if algorithm == "tree":
        return _tree(figures, shape, collective, protocol) * 0.5
    if algorithm == "pat":
        return shape.bus_bandwidth * (figures.pat_share or 0.0)
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls(figures, shape, collective, algorithm)
    return _collnet(figures, shape, algorithm) * 0.5


def ring_steps(ranks: int, collective: str) -> int:
    """Return the steps of a ring as the tuner counts them."""
    if collective == "all_reduce":
        return 2 * (ranks - 1)
    return ranks - 1 if collective in HALVES else ranks


def _has_pair(
    figures: VersionFigures,
    shape: CommunicatorShape,
    collective: str,
    algorithm: str,
    protocol: str,
) -> bool:
    """Say whether a version has the pair on such a cluster, NCCL_ALGO and NCCL_PROTO unset."""
    if algorithm not in figures.base_us:
        return False
    if algorithm in ("ring", "tree"):
        return algorithm == "ring" or collective == "all_reduce"
    if protocol != "simple":
        return False
    if algorithm == "pat":
        # One GPU a node; its atomics need compute capability 6.0.
        return collective in HALVES and shape.ranks == shape.nodes and shape.capability >= 60
    if algorithm in ("nvls", "nvls_tree"):
        return shape.nvls and _switch_reduces(figures, shape, collective, algorithm)
    fits = algorithm == "collnet_chain" or shape.nvswitch or figures.since < (2, 14)
    return fits and collective == "all_reduce" and shape.in_network and shape.nodes > 1


def _switch_reduces(
    figures: VersionFigures, shape: CommunicatorShape, collective: str, algorithm: str
) -> bool:
    if algorithm == "nvls_tree":
        return shape.nodes > 1 and collective == "all_reduce"
    if shape.nodes == 1:
        gathers = collective in HALVES and figures.since != (2, 18)
        return gathers or collective == "all_reduce"
    return collective == "all_reduce" and shape.in_network and figures.since >= (2, 18)


def _bus(figures: VersionFigures, shape: CommunicatorShape) -> float:
    cap = figures.bus_cap.get(shape.row(figures.since))
    return min(shape.bus_bandwidth, cap) if cap else shape.bus_bandwidth


def _capped(
    bandwidth: float, rows: FigureRows | None, figures: VersionFigures, shape: CommunicatorShape
) -> float:
    """Return at most the cap a channel of this generation and number of nodes."""
    if rows is None:
        return bandwidth
    return min(bandwidth, shape.channels * rows[shape.row(figures.since)][shape.span])


def _ll_cap(bandwidth: float, figures: VersionFigures, shape: CommunicatorShape) -> float:
    """Return at most what LL can move: by GPU on one node, by CPU across several."""
    if figures.ll_cap is None:
        return bandwidth
    row = shape.row(figures.since) if shape.nodes == 1 else int(shape.cpu == "amd")
    return min(bandwidth, figures.ll_cap[row][shape.span])


def _ring(
    figures: VersionFigures, shape: CommunicatorShape, collective: str, protocol: str
) -> float:
    bus = _bus(figures, shape)
    if protocol == "ll":
        reduces = shape.nodes > 1 or collective in ("all_reduce", "reduce")
        return _ll_cap(bus * figures.ring_ll[0 if reduces else 1], figures, shape)
    if protocol == "ll128":
        share = figures.ring_ll128[0 if shape.mean_per_node < 2 else 1]
        if figures.ll128_by_collective:
            channels = shape.channels if figures.ll128_per_channel else 1
            return min(bus * share, figures.ll128_by_collective[collective] * channels)
        return _capped(bus * share, figures.ring_ll128_cap, figures, shape)
    return bus


def _tree(
    figures: VersionFigures, shape: CommunicatorShape, collective: str, protocol: str
) -> float:
    bus = _bus(figures, shape) * figures.tree
    if figures.tree_total_cap is not None:
        ampere = figures.tree_total_ll128_ampere
        fast = ampere is not None and protocol == "ll128" and shape.row(figures.since) == 1
        total = ampere if fast and ampere is not None else figures.tree_total_cap
        bus = min(bus, total[shape.span])
    bus = _capped(bus, figures.tree_cap, figures, shape)
    if protocol == "ll":
        bus = _ll_cap(bus * figures.tree_ll, figures, shape)
    if protocol == "ll128":
        bus *= figures.tree_ll128[0 if shape.nodes == 1 else 1]
        if figures.tree_ll128_scale is not None:
            cap = figures.ll128_by_collective[collective] * shape.channels
            bus = min(bus, cap * figures.tree_ll128_scale)
        bus = _capped(bus, figures.tree_ll128_cap, figures, shape)
    return bus * (0.85 if shape.plain_tree and figures.since >= (2, 18) else 1.0)


def _nvls(
    figures: VersionFigures, shape: CommunicatorShape, collective: str, algorithm: str
) -> float:
    bus, nodes = _bus(figures, shape), shape.nodes
    inside = shape.mean_per_node
    if figures.nvls_efficiency is not None:
        if shape.channels < 2:
            return 0.0
        usable = figures.nvls_efficiency[shape.row(figures.since)]
        local = bus * usable * (shape.channels - 1) / shape.channels
        local *= 2.0 if collective == "all_reduce" else (inside - 1) / inside
        bus = min(local, bus * (2 if algorithm == "nvls_tree" and nodes <= 2 else 1))
        if algorithm == "nvls_tree":
            bus = _capped(bus, figures.nvls_tree_cap, figures, shape)
        return (
            bus if collective in HALVES else bus * shape.ranks / ring_steps(shape.ranks, collective)
        )
    if algorithm == "nvls_tree":
        if figures.since < (2, 19):
            return bus * 0.70 * nodes / (2 * (nodes - 1))
        return bus * (0.5 if nodes > 2 else 1.0) * 5 / 6
    if collective in HALVES and figures.since >= (2, 23):
        return bus
    return bus * (0.75 if figures.since < (2, 18) else 5 / 6)


def _collnet(figures: VersionFigures, shape: CommunicatorShape, algorithm: str) -> float:
    bus = _bus(figures, shape)
    if algorithm == "collnet_chain":
        if figures.since < (2, 10):
            return bus * 0.9
        return bus * (0.75 if figures.since < (2, 18) else 1.0)
    if figures.since < (2, 14):
        return bus
    # Above one GPU a NIC, a GPU without a NIC of its own slows the whole.
    gpus_per_nic = shape.mean_per_node / shape.channels
    bus /= gpus_per_nic - (gpus_per_nic - 1) / 2
    return bus * (0.85 if shape.capability >= 90 and figures.since >= (2, 18) else 1.0)


def call_latency_us(
    figures: VersionFigures,
    shape: CommunicatorShape,
    collective: str,
    algorithm: str,
    protocol: str,
) -> float:
    """Return the latency of one call [us]: the base, then hops by link.

    ring: (k - k_net) intra + k_net net for k steps, k_net = 2 (N-1) of them between nodes in an
    all_reduce (2 N in 2.12 to 2.22), N-1 otherwise; broadcast and reduce one hop, as channels
    share one ring order. tree: 2 ((g-1) intra + floor(log2 N) net). CollNet chain: 2 (g-1) intra
    + net; direct: 2 (min(1, g-1) intra + 0.4 (g-1)) + net. NVLS: intra + net; NVLS tree:
    intra + 2 floor(log2 N) net. PAT: floor(log2 N) net / 3.5 + 2.8 P.

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, ncclTopoTuneModel, from v2.5.6-1 on.
    """
    index = PROTOCOLS.index(protocol)
    since, nodes = figures.since, shape.nodes
    intra_us = figures.hop_us[shape.intra][algorithm][index]
    net_us = figures.hop_us["net"][algorithm][index]
    power = shape.cpu == "power" and shape.intra == "pci" and since >= (2, 10)
    if power and (algorithm, protocol) == ("tree", "simple"):
        intra_us = figures.hop_us["pci"]["ring"][index]
    if since >= (2, 23) and shape.ranks == nodes:
        net_us = figures.hop_us["net"]["tree"][index]
    if (2, 7) <= since < (2, 18) and nodes > 1 and protocol == "ll":
        intra_us *= 1.8
    base_us = figures.base_us[algorithm][index]
    if algorithm == "ring":
        return base_us + _ring_latency_us(figures, shape, collective, protocol, intra_us, net_us)
    return base_us + _other_latency_us(since, shape, algorithm, intra_us, net_us)


def _other_latency_us(
    since: tuple[int, int], shape: CommunicatorShape, algorithm: str, intra_us: float, net_us: float
) -> float:
    nodes, inside = shape.nodes, shape.per_node
    doublings = nodes.bit_length() - 1
    if algorithm == "tree":
        return 2 * ((inside - 1) * intra_us + doublings * net_us)
    if algorithm == "collnet_direct":
        serial_us = 0.5 if since < (2, 19) else 0.4
        return 2 * (min(1, inside - 1) * intra_us + (inside - 1) * serial_us) + net_us
    if algorithm == "collnet_chain":
        without_net = (2, 14) <= since < (2, 18)
        return 2 * (inside - 1) * intra_us + (0.0 if without_net else net_us)
    if algorithm == "nvls":
        return intra_us + (net_us if nodes > 1 else 0.0)
    if algorithm == "nvls_tree":
        return intra_us + 2 * (nodes - 1 if since < (2, 19) else doublings) * net_us
    return doublings * (net_us / 3.5) + 2.8 * shape.ranks


def _ring_latency_us(
    figures: VersionFigures,
    shape: CommunicatorShape,
    collective: str,
    protocol: str,
    intra_us: float,
    net_us: float,
) -> float:
    since, nodes = figures.since, shape.nodes
    count = ring_steps(shape.ranks, collective)
    if collective in ("broadcast", "reduce"):
        index = PROTOCOLS.index(protocol)
        return figures.hop_us["net" if nodes > 1 else shape.intra]["ring"][index]
    if since < (2, 7):
        return count * (net_us if nodes > 1 else intra_us)
    if nodes == 1:
        crossing = 0
    elif collective in HALVES:
        crossing = nodes - 1
    else:
        crossing = 2 * nodes if (2, 12) <= since < (2, 23) else 2 * (nodes - 1)
    if since >= (2, 18) and nodes > 1:
        # Every step of a ring across nodes is posted to the network by the CPU.
        overhead_us = (2.0 if shape.cpu == "amd" else 1.0) * (3 if protocol == "simple" else 1)
        intra_us = max(intra_us, overhead_us)
    return (count - crossing) * intra_us + crossing * net_us


PLATEAU_BYTES = 64
"""Bytes a channel and rank from which a Simple ring pays the plateau factor, from 2.18 on."""


def tree_factor(
    figures: VersionFigures,
    shape: CommunicatorShape,
    number: tuple[int, int],
    algorithm: str,
    protocol: str,
    size_bytes: float,
) -> float:
    """Return the factor on a tree's bandwidth: one for each doubling from 64 B on.

    From 2.29 on NVLS trees of Blackwell beside x86 CPUs have it too, one entry longer.
    """
    factors = figures.tree_factor[PROTOCOLS.index(protocol)]
    if algorithm == "nvls_tree":
        x86 = shape.cpu in ("intel", "amd")
        if number < (2, 29) or shape.capability < 100 or not x86:
            return 1.0
        factors = (*factors, factors[-1])
    elif algorithm != "tree":
        return 1.0
    step = (int(size_bytes) >> 6).bit_length() - 1
    if step < 0 and number < (2, 22):
        step = 0
    return factors[step] if 0 <= step < len(factors) else 1.0


def plateau(
    shape: CommunicatorShape,
    number: tuple[int, int],
    algorithm: str,
    protocol: str,
    size_bytes: float,
) -> float:
    """Return the factor on the latency of a large Simple ring across nodes, from 2.7 on."""
    ring = (algorithm, protocol) == ("ring", "simple")
    if not ring or shape.nodes == 1 or number < (2, 7):
        return 1.0
    if number >= (2, 18):
        large = size_bytes // (shape.channels * shape.ranks) >= PLATEAU_BYTES
        factor = 1.9 if shape.capability < 80 else 1.4
    else:
        large = size_bytes >= shape.ranks / 16.0 * 65536
        factor = 1.5 if number >= (2, 17) and shape.capability >= 90 else 1.9
    return factor if large else 1.0


RING_BYTES_PER_US = 5000.0
"""What 2.4 takes a ring to move: a channel over NVLink, in all without it (MB/s)."""

RING_HOP_US, TREE_INTRA_HOP_US, TREE_INTER_HOP_US = 6.0, 4.0, 15.0
MIN_THREADS, MAX_THREADS = 64, 256
BYTES_BEFORE_MORE = 8
"""Bytes a thread before 2.4 takes more threads, then more channels."""


def line_s(
    algorithm: str, size_bytes: float, ranks: int, nodes: int, nvlink: bool, channels: int
) -> float | None:
    """Return the time that 2.4's threshold takes a ring or a tree to need [s].

    ring 6 us (P-1) + n / R, tree 15 us log2 N + 4 us (P/N - 1) + n / T, where R is 5 GB/s a channel
    (5 in all without NVLink) and T 3/4 of it (2/3 without NVLink; 3/2 on two nodes with it). None
    where 2.4 takes no tree: on one node, and where its latency is not below the ring's.

    References
    ----------
    github.com/NVIDIA/nccl v2.4.7-1, src/init.cc, ncclTreeThreshold.

    Examples
    --------
    >>> round(line_s("ring", 50e3, 8, 8, False, 1) * 1e6)  # 6 x 7 + 50000 / 5000
    52
    """
    ring_rate = RING_BYTES_PER_US * (channels if nvlink else 1)
    ring_us = RING_HOP_US * (ranks - 1)
    if algorithm == "ring":
        return (ring_us + size_bytes / ring_rate) * 1e-6
    share = 2 / 3 if not nvlink else 3 / 2 if nodes == 2 else 3 / 4
    tree_us = TREE_INTER_HOP_US * math.log2(nodes) + TREE_INTRA_HOP_US * (ranks // nodes - 1)
    if nodes < 2 or ring_us <= tree_us:
        return None
    return (tree_us + size_bytes / (ring_rate * share)) * 1e-6


def tree_threshold_bytes(ranks: int, nodes: int, nvlink: bool, channels: int) -> float:
    """Return the size up to which 2.4 reduces over trees: where the two lines of `line_s` meet [B].

    R T / (R - T) (ring latency - tree latency); 0 where no tree is taken, infinite where the tree
    is taken to be the faster at every size.

    Examples
    --------
    >>> tree_threshold_bytes(8, 8, nvlink=False, channels=1)  # latencies 42 and 45 us
    0.0
    >>> tree_threshold_bytes(32, 8, nvlink=False, channels=1)  # 10000 x (186 - 57)
    1290000.0
    >>> tree_threshold_bytes(16, 2, nvlink=True, channels=2)
    inf
    """
    at_zero, at_one = (
        [line_s(name, size, ranks, nodes, nvlink, channels) for name in ("ring", "tree")]
        for size in (0.0, 1e12)
    )
    if at_zero[1] is None or at_one[1] is None or at_zero[0] is None or at_one[0] is None:
        return 0.0
    gain_s = at_zero[0] - at_zero[1]
    loss_s_per_byte = ((at_one[1] - at_zero[1]) - (at_one[0] - at_zero[0])) / 1e12
    return math.inf if loss_s_per_byte <= 0 else round(gain_s / loss_s_per_byte, 3)


def low_latency_bytes(
    algorithm: str, size_bytes: float, ranks: int, nodes: int, channels: int, capability: int
) -> float:
    """Return the size up to which 2.4 sends a message of this size by LL [B].

    channels x threads x chunks x 64 B (32 B before Volta), twice that on several nodes, four times
    for trees; as many threads (64 to 256) and channels as 8 B a thread and chunk need. A ring has
    one chunk a rank.

    References
    ----------
    github.com/NVIDIA/nccl v2.4.7-1, src/enqueue.cc, getKernelInfo; src/init.cc,
    ncclThreadThreshold.

    Examples
    --------
    >>> low_latency_bytes("ring", 1e6, 8, 2, channels=2, capability=70)  # 2 x 256 x 8 x 128
    524288.0
    """
    chunks = 1 if algorithm == "tree" else ranks
    threads = MIN_THREADS
    while math.ceil(size_bytes / (threads * chunks)) > BYTES_BEFORE_MORE and threads < MAX_THREADS:
        threads *= 2
    used = min(channels, max(1, math.ceil(size_bytes / (threads * chunks * BYTES_BEFORE_MORE))))
    a_thread = (64 if capability >= 70 else 32) * (2 if nodes > 1 else 1)
    return float(used * threads * chunks * a_thread * (4 if algorithm == "tree" else 1))
