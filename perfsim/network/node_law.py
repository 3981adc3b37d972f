"""The time of a collective from the data sheet of its nodes and a few numbers that carry over.

A node type says what joins its GPUs and which NICs it has. `NodeLaw` adds what no data sheet says:
the share of a rate that a collective reaches, and what its start and each of its steps cost. These
numbers were fitted on all measured clusters together (``profiles/nodes/constants.csv``), and are
judged on clusters left out (``perfsim validate nccl``).

NCCL runs one of several algorithms under one of several protocols. The law prices each that the
nodes can run and takes the fastest, as NCCL's tuner means to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from math import hypot, inf, log2
from typing import NamedTuple

from perfsim.collectives import HALVES
from perfsim.data.catalog import shipped
from perfsim.data.tables import cell_number, read_table
from perfsim.network.link import NicSharing

__all__ = [
    "ALL",
    "CONSTANTS_COLUMNS",
    "CONSTANTS_SCHEMA",
    "ERRORS_COLUMNS",
    "ERRORS_FILE",
    "ERRORS_SCHEMA",
    "GENERATIONS",
    "IN_NETWORK",
    "LEFT_OUT_SCHEMA",
    "NVLS_GENERATIONS",
    "NVLS_GPUS",
    "STEP_BYTES",
    "CallTime",
    "NodeFacts",
    "NodeLaw",
    "band_of",
    "class_of",
    "held_as",
    "law_without",
    "node_error",
    "node_law",
]

CONSTANTS_FILE = "nodes/constants.csv"
"""The law's numbers; ``python profiles/build/node_constants.py`` fits and writes them."""
CONSTANTS_SCHEMA = "perfsim/node-constants/1"
CONSTANTS_COLUMNS = ("name", "unit", "value", "start", "prior_sd", "sensitivity", "means", "source")
LEFT_OUT_FILE = "nodes/left_out.csv"
"""The law's numbers with each family of clusters left out."""
LEFT_OUT_SCHEMA = "perfsim/node-constants-left-out/1"
ERRORS_FILE = "nodes/errors.csv"
"""Errors of the law on clusters left out."""
ERRORS_SCHEMA = "perfsim/node-errors/1"
ERRORS_COLUMNS = ("class", "band", "count", "median", "p90", "half_width_ln")

ALL = "all"
"""The class, or the band, of the rows that sum up all of them."""
BANDS = (("small", 65536.0), ("middle", 4194304.0), ("large", inf))
"""Bands of message sizes, in which errors differ, by their upper end [B]."""

IN_NETWORK = "collnet_direct"
"""The algorithm in which switches between nodes add, and gather too if NCCL is held to it."""
_HELD_AS = {
    "nvlstree": "nvls_tree",
    **dict.fromkeys(("sharp", "collnet_chain", "collnetdirect", "collnetchain"), IN_NETWORK),
}
"""Words of NCCL_ALGO and of logs, and the law's own for them."""

_US = 1e-6
_GB = 1e9

_NVLS_NCCL, _NVLS_TREE_NCCL = (2, 17), (2, 18)
"""From these versions on NCCL has NVLS inside a node, and NVLSTree between nodes
(NVIDIA/nccl@5d3ab08b, v2.17.1-1: NCCL_ALGO_NVLS; @d97a32fa, v2.18.1-1: NCCL_ALGO_NVLS_TREE)."""
_PAIR_TREE = (2, 22)
"""From this version on the tree between two nodes runs at the rate of both directions: Polaris has
36 of 50 GB/s on 2 nodes with 2.18 and 2.21, Alps 158 of 100 with 2.23."""
NVLS_GPUS = 8
"""GPUs of a node from which NVLS wins over a ring: 4 of 8 H100 run at the ring's rate
(waynehacking8/nccl-collectives-bench @38c093ed), 8 at 1.3 times it (xxrjun/nccl-tests-cluster
@455de4f8)."""
NVLS_GENERATIONS = ("hopper", "blackwell")
"""GPUs whose NVSwitches add (NVLink SHARP)."""
_ALL_PAIRS = ("cdna3", "cdna4")
"""AMD's GPUs of which every pair in a node is joined: RCCL has MSCCL's all-pairs for them (rome
model 79 of ROCm/rccl@0cbce2a7:src/graph/rome_models.cc)."""
_ALL_PAIRS_GPUS = 8
_ALL_PAIRS_BYTES = 2.0**24
"""Up to which size (ROCm/rccl@0cbce2a7:tools/msccl-algorithms/allreduce-allpairs-8n-*.xml) [B]."""
STEP_BYTES = 4096.0
"""Message size around which a hop gets dearer: NCCL uses more channels, transports leave the eager
path. Slingshot and TCP double there (TRIALS of 2026: curves of Alps, Polaris, AWS)."""
_CHAIN_STEP_BYTES = 2.0**19
"""Bytes that a channel of a broadcast or reduce hands on at once under Simple between nodes, one of
8 steps of a buffer of 4 MiB (NVIDIA/nccl src/include/collectives.h, BROADCAST_CHUNKSTEPS and
REDUCE_CHUNKSTEPS; device.h, NCCL_STEPS; init.cc, DEFAULT_BUFFSIZE). A channel a NIC is assumed."""
_TCP_SHARE = 0.95
"""Share of an Ethernet line that carries TCP's payload: 1448 of 1538 bytes a frame of 1500."""
_OLD_EFA = 100 * _GB
"""EFA below this rate of a node is its first generation (p3dn, p4d, g4dn, g5): it delivers out of
order, so that NCCL cannot use LL over GPUDirect [B/s]."""


class NodeFacts(NamedTuple):
    """What data sheets say of the nodes of a cluster.

    Parameters
    ----------
    generation : of the GPUs, one of `GENERATIONS`
    inside : what joins the GPUs of a node: nvlink2 to nvlink5, xgmi, pcie, host (PCIe without peer
        access), or "" for one GPU
    inside_rate : of one GPU to all others, one way [B/s]
    switch : whether a switch joins all GPUs of a node
    gpus : of a node
    nics, nic_rate : NICs of a node, and the rate of each one way [B/s]
    transport : infiniband, roce, efa, slingshot, tcp, tcpx, or "" where nodes have no network
    gpudirect : whether NICs read the GPUs' memory
    rccl : whether AMD's library runs
    version : of the library, () where it is not stated
    adds_in_network : whether switches between nodes add (SHARP)
    gpus_per_switch : GPUs that share one link into the host, where their copies go through it
    pairs : whether every pair of GPUs has links of its own, as many as any other
    virtual : whether NICs are a cloud's virtual ones, whose TCP packets its hypervisor handles
    in_ring : NICs that rings and trees over all GPUs of a node use, 0 for all
    """

    generation: str
    inside: str
    inside_rate: float
    switch: bool
    gpus: int
    nics: int = 0
    nic_rate: float = 0.0
    transport: str = ""
    gpudirect: bool = True
    rccl: bool = False
    version: tuple[int, ...] = ()
    adds_in_network: bool = False
    gpus_per_switch: int = 1
    pairs: bool = False
    virtual: bool = False
    in_ring: int = 0

    def nics_of(self, gpus: float) -> float:
        """Return the NICs that a ring over so many GPUs of a node uses: their share, at least one.

        NCCL may find channels through fewer (`in_ring`), however many GPUs a ring passes.
        """
        share = self.nics * min(1.0, gpus / self.gpus)
        return max(1.0, min(share, self.in_ring) if self.in_ring else share)

    @property
    def nvls(self) -> bool:
        """Whether the switches inside a node add."""
        new = not self.version or self.version >= _NVLS_NCCL
        able = self.switch and self.generation in NVLS_GENERATIONS
        return able and new and not self.rccl and self.gpus >= NVLS_GPUS

    @property
    def nvls_tree(self) -> bool:
        """Whether a tree between the nodes joins what their switches added."""
        return self.nvls and (not self.version or self.version >= _NVLS_TREE_NCCL)

    @property
    def all_pairs(self) -> bool:
        """Whether RCCL has an all-reduce in which all pairs of a node's GPUs talk at once."""
        return self.rccl and self.generation in _ALL_PAIRS and self.gpus == _ALL_PAIRS_GPUS

    @property
    def wire(self) -> str:
        """The transport, with EFA's first generation as efa1."""
        old = self.transport == "efa" and self.nics * self.nic_rate < _OLD_EFA
        return "efa1" if old else self.transport


class CallTime(NamedTuple):
    """The time of one collective [s], the part that no rate shortens [s], and its algorithm."""

    seconds: float
    latency_s: float
    algorithm: str


class _Nodes(NamedTuple):
    """What a call on certain ranks sees of the nodes: shares applied, seconds and bytes a second.

    ``hop_s`` is that of the whole message, ``block_hop_s`` that of the part that a step of a ring
    sends: a hop grows with what it carries (see `STEP_BYTES`). ``net`` and ``nics`` are what a
    node's NICs reach and what their data sheet says, of those that the ranks in use own.
    ``in_turn`` says whether a ring's last receipt of each block hides behind no send (see
    `_ring_calls`).
    """

    ranks: int
    nodes: int
    per_node: float
    start_s: float
    simple_s: float
    net_simple_s: float
    step_s: float
    hop_s: float
    block_hop_s: float
    inside: float
    net: float
    nics: float
    low_latency: float
    net_low_latency: float
    ordered: bool = True
    pair_tree: bool = True
    in_turn: bool = False

    @property
    def simple_start_s(self) -> float:
        """What a call under Simple takes to start [s]."""
        return self.start_s + self.simple_s + self.net_simple_s

    @property
    def ring(self) -> float:
        """Rate of a ring through all of them [B/s]."""
        if self.nodes == 1:
            return self.inside
        return min(self.inside, self.net) if self.per_node > 1 else self.net

    @property
    def low_latency_ring(self) -> float:
        """Rate of a ring under LL [B/s]: of its slowest part."""
        inside = self.low_latency * self.inside
        if self.nodes == 1:
            return inside
        net = self.net_low_latency * self.net
        return min(inside, net) if self.per_node > 1 else net

    @property
    def inside_steps(self) -> int:
        """Steps of a pass around the ring that stay inside a node."""
        return self.ranks - self.nodes if self.nodes > 1 else self.ranks - 1

    @property
    def hops(self) -> int:
        """Steps of a pass around the ring that leave a node."""
        return self.nodes - 1


class _Way(NamedTuple):
    """One algorithm under one protocol: what it takes before bytes count, and for the bytes [s]."""

    algorithm: str
    latency_s: float
    bytes_s: float
    protocol: str = "simple"


_OLD = dict.fromkeys(("gcn", "kepler", "maxwell", "pascal", "volta", "turing"), "old")
_AMD = ("cdna", "cdna2", "cdna3", "cdna4")
_START = {**_OLD, **dict.fromkeys(_AMD, "cdna"), "ada": "hopper"}
"""Generations that share the start of a call, where its word is not the generation's own."""
_SIMPLE = {**_OLD, **dict.fromkeys((*_AMD, "ada", "hopper", "blackwell"), "new")}
"""Generations that share the start of Simple."""
GENERATIONS = (*_OLD, "ampere", "ada", "hopper", "blackwell", *_AMD)
"""Generations that the law has numbers of."""
_STEP = dict.fromkeys(("nvlink3", "nvlink4", "nvlink5", "xgmi"), "nvlink")
"""Links inside that share a step."""
_RDMA = ("infiniband", "roce", "efa")
_NET_SIMPLE = {
    **dict.fromkeys(("infiniband", "roce"), "rdma"),
    **dict.fromkeys(("efa", "efa1", "slingshot", "tcp", "tcpx"), "other"),
}
"""Wires that share the start of Simple between nodes."""
_NIC_SHARE = dict.fromkeys((*_RDMA, "efa1"), "rdma")
"""Wires that share what is reached of a NIC's data sheet."""
_HOP_GROWTH = {**_NIC_SHARE, "tcpx": "tcp"}
"""Wires whose hops grow alike."""


class NodeLaw(NamedTuple):
    """The law with its numbers.

    Parameters
    ----------
    constants : by name as ``profiles/nodes/constants.csv`` has them, in its units
    """

    constants: Mapping[str, float]

    def call(
        self,
        facts: NodeFacts,
        collective: str,
        ranks: int,
        nodes: int,
        size_bytes: float,
        held: str = "",
        protocol: str = "",
    ) -> CallTime | None:
        """Return the time of one collective, None where the law has no such algorithm or protocol.

        Parameters
        ----------
        facts : of the nodes' data sheets
        collective : all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all or
            send_recv
        ranks, nodes : GPUs that take part, two or more, and the nodes they stand on
        size_bytes : the buffer of one rank; for reduce_scatter, all_gather and all_to_all the
            blocks of all
        held : ring, tree, nvls, nvls_tree or collnet_direct where NCCL_ALGO names one
        protocol : ll or simple where NCCL_PROTO names one; LL128 counts as LL
        """
        if collective != "all_reduce" and held != IN_NETWORK:
            held = ""  # NCCL gathers over rings whatever NCCL_ALGO says
        seen = self._nodes(facts, ranks, nodes, size_bytes)
        ways = [
            way
            for way in self._ways(seen, facts, collective, size_bytes, held)
            if _allowed(way, held) and _PROTOCOLS.get(protocol, protocol) in ("", way.protocol)
        ]
        if not ways:
            return None
        fastest = min(ways, key=lambda way: way.latency_s + way.bytes_s)
        seconds = fastest.latency_s + fastest.bytes_s
        if fastest.algorithm != IN_NETWORK:
            seconds = max(seconds, self.least_s(facts, collective, ranks, nodes, size_bytes))
        return CallTime(seconds, fastest.latency_s, fastest.algorithm)

    def least_s(
        self, facts: NodeFacts, collective: str, ranks: int, nodes: int, size_bytes: float
    ) -> float:
        """Return the time that the data sheet of the NICs bounds a collective by [s].

        It is 0 on one node, and on two, where a tree sends each byte once; for sends between pairs;
        and it does not hold where switches between nodes add.
        """
        if nodes <= 2 or collective in ("send_recv", "all_to_all"):
            return 0.0
        return self.least_ring_s(facts, collective, ranks, nodes, size_bytes)

    def least_ring_s(
        self, facts: NodeFacts, collective: str, ranks: int, nodes: int, size_bytes: float
    ) -> float:
        """Return the time that the data sheet of the NICs bounds a ring over nodes by [s].

        On two nodes too, where a tree may take less: every ring leaves each node once.
        """
        nics, _ = self._net(facts, ranks / nodes, nodes)
        return _ring_volume(collective, ranks, size_bytes) / nics

    def one_process_s(self, gpus: int) -> float:
        """Return what launching takes at least where one process drives all GPUs of a node [s]."""
        return self.constants["one_process"] * _US * gpus

    def net_link(self, facts: NodeFacts) -> tuple[float, float]:
        """Return the rate of one GPU between nodes [B/s] and the latency of a hop of a ring [s]."""
        _, net = self._net(facts, 1.0, 2)
        return net, self._hop_s(facts, 0.0) * self.constants["ring_hop"]

    def nic_sharing(self, facts: NodeFacts) -> NicSharing | None:
        """Return what NICs reach together, those of one GPU as one; None where each adds its rate.

        TCP's limit is of the host: a ring over two NICs of Polaris reaches little more than rings
        over one elsewhere.
        """
        if facts.wire != "tcp":
            return None
        line = _TCP_SHARE * facts.nics_of(1) * facts.nic_rate
        most = self.constants["tcp_most"] * _GB
        return NicSharing(line / most, self.constants["tcp_senders"])

    def inside_link(self, facts: NodeFacts) -> tuple[float, float]:
        """Return the rate of a ring through a whole node [B/s] and the latency of a step [s]."""
        rate = self._get("inside_share", facts.inside) * facts.inside_rate
        if facts.inside == "host" and facts.gpus > 1:
            rate /= _ring_calls(2, facts.gpus)
        return rate / _sharers(facts, facts.gpus), self._get("step", facts.inside, _STEP) * _US

    def _get(self, name: str, word: str, shared: Mapping[str, str] = {}) -> float:
        """Return the number of a word, or of the word that it shares the number of."""
        return self.constants[f"{name}.{shared.get(word, word)}"]

    def _nodes(self, facts: NodeFacts, ranks: int, nodes: int, size_bytes: float) -> _Nodes:
        numbers = self.constants
        per_node = ranks / nodes
        start_s = self._get("start", facts.generation, _START) * _US
        nvlink = facts.inside.startswith("nvlink") or facts.inside == "xgmi"
        low_latency = numbers["low_latency.nvlink" if nvlink else "low_latency.pcie"]
        simple_s = step_s = 0.0
        inside = inf
        if ranks > nodes:
            simple_s = self._get("simple", facts.generation, _SIMPLE) * _US
            step_s = self._get("step", facts.inside, _STEP) * _US
            inside = self._get("inside_share", facts.inside) * facts.inside_rate
            inside *= _links_used(facts, per_node) / _sharers(facts, per_node)
        hop_s = block_hop_s = net_simple_s = 0.0
        net = nics = inf
        if nodes > 1:
            nics, net = self._net(facts, per_node, nodes)
            hop_s = self._hop_s(facts, size_bytes)
            block_hop_s = self._hop_s(facts, size_bytes / ranks)
            net_simple_s = self._get("net_simple", facts.wire, _NET_SIMPLE) * _US
        return _Nodes(
            ranks,
            nodes,
            per_node,
            start_s,
            simple_s,
            net_simple_s,
            step_s,
            hop_s,
            block_hop_s,
            inside,
            net,
            nics,
            low_latency,
            numbers["low_latency.net"],
            not (nodes > 1 and facts.wire == "efa1" and facts.gpudirect),
            not facts.version or facts.version >= _PAIR_TREE,
            nodes == 1 and facts.inside == "host",
        )

    def _net(
        self, facts: NodeFacts, per_node: float, nodes: int, senders: float = 1.0
    ) -> tuple[float, float]:
        """Return the rate of a node's NICs by their data sheet, and the one reached [B/s].

        Parameters
        ----------
        senders : processes of a node that send at once, each through TCP sockets of its own
        """
        numbers, wire = self.constants, facts.wire
        nics = facts.nics_of(per_node) * facts.nic_rate
        if wire == "tcp":
            line, most = _TCP_SHARE * nics, numbers["tcp_most"] * _GB
            most *= senders ** numbers["tcp_senders"]
            net = 1.0 / hypot(1.0 / line, 1.0 / most)
        else:
            share = self._get("nic_share", wire, _NIC_SHARE)
            net = (
                share if facts.gpudirect else min(share, numbers["nic_share.no_gpudirect"])
            ) * nics
        if nodes > 2:
            net *= (2.0 / nodes) ** numbers["congestion"]
        return nics, net

    def _hop_s(self, facts: NodeFacts, size_bytes: float) -> float:
        """Return what one hop between nodes takes under LL, for a message of this size [s]."""
        wire = facts.wire
        hop_s = self._get("hop", wire) * _US
        if wire != "tcp" and not facts.gpudirect:
            hop_s *= self.constants["hop_no_gpudirect"]
        if wire == "tcp" and facts.virtual:
            hop_s *= self.constants["hop_virtual"]
        more = self._get("hop_growth", wire, _HOP_GROWTH)
        large = size_bytes**1.5
        return float(hop_s * (1.0 + more * large / (large + STEP_BYTES**1.5)))

    def _ways(
        self, seen: _Nodes, facts: NodeFacts, collective: str, size_bytes: float, held: str
    ) -> Iterator[_Way]:
        if collective == "all_reduce":
            yield from self._ring(seen, 2, _ring_volume(collective, seen.ranks, size_bytes))
            yield from self._tree(seen, size_bytes)
            if facts.all_pairs and seen.nodes == 1 and seen.ranks == facts.gpus:
                yield from self._all_pairs(seen, size_bytes)
            adds = facts.nvls if seen.nodes == 1 else facts.nvls_tree
            if adds and (seen.per_node >= facts.gpus or held.startswith("nvls")):
                yield self._nvls(seen, facts, size_bytes)
            if seen.nodes > 1 and (facts.adds_in_network or held == IN_NETWORK):
                yield self._in_network(seen, facts, collective, size_bytes)
        elif collective in HALVES:
            yield from self._ring(seen, 1, _ring_volume(collective, seen.ranks, size_bytes))
            if seen.nodes > 1 and held == IN_NETWORK:
                yield self._in_network(seen, facts, collective, size_bytes)
        elif collective in ("broadcast", "reduce"):
            yield from self._chain(seen, facts, size_bytes)
        elif collective == "all_to_all":
            yield from self._pairs(seen, facts, size_bytes)
        elif collective == "send_recv":
            yield from self._pair(seen, facts, size_bytes)

    def _ring(self, seen: _Nodes, passes: int, volume: float) -> Iterator[_Way]:
        """Yield a ring that goes round once (gather, scatter) or twice (all-reduce)."""
        hop = self.constants["ring_hop" if passes == 2 else "gather_hop"]
        inside_s = passes * seen.inside_steps * seen.step_s
        net_s = passes * seen.hops * seen.block_hop_s * hop
        if seen.ordered:
            yield _Way(
                "ring", seen.start_s + inside_s + net_s, volume / seen.low_latency_ring, "ll"
            )
        yield _Way(
            "ring",
            seen.simple_start_s
            + inside_s * self.constants["simple_step"] / 2.0
            + net_s * self.constants["simple_hop"],
            volume / seen.ring * (_ring_calls(passes, seen.ranks) if seen.in_turn else 1.0),
        )

    def _all_pairs(self, seen: _Nodes, size_bytes: float) -> Iterator[_Way]:
        """Yield MSCCL's all-pairs: scatter to all, add, gather from all, each in one step."""
        if size_bytes > _ALL_PAIRS_BYTES:
            return
        steps_s = 2.0 * seen.step_s
        bytes_s = _ring_volume("all_reduce", seen.ranks, size_bytes) / seen.inside
        yield _Way("all_pairs", seen.start_s + steps_s, bytes_s / seen.low_latency, "ll")
        steps_s *= self.constants["simple_step"] / 2.0
        yield _Way("all_pairs", seen.simple_start_s + steps_s, bytes_s)

    def _tree(self, seen: _Nodes, size_bytes: float) -> Iterator[_Way]:
        """Yield NCCL's tree: chains inside the nodes, a double binary tree between them."""
        numbers = self.constants
        chain_s = 2.0 * max(0.0, seen.per_node - 1.0) * seen.step_s
        levels_s = 2.0 * log2(seen.nodes) * seen.hop_s
        volume = _ring_volume("all_reduce", seen.ranks, size_bytes)
        bytes_s = volume / (numbers["tree_inside"] * seen.inside)
        net_s = 0.0
        if seen.nodes == 2:
            net_s = (size_bytes if seen.pair_tree else volume) / seen.net
        elif seen.nodes > 1:
            net_s = 2.0 * size_bytes / (numbers["tree_net"] * seen.net)
        if seen.ordered:
            slow_s = max(bytes_s / seen.low_latency, net_s / seen.net_low_latency)
            yield _Way("tree", seen.start_s + chain_s + levels_s, slow_s, "ll")
        latency_s = seen.simple_start_s
        latency_s += chain_s * numbers["simple_step"] + levels_s * numbers["simple_hop"]
        yield _Way("tree", latency_s, max(bytes_s, net_s))

    def _nvls(self, seen: _Nodes, facts: NodeFacts, size_bytes: float) -> _Way:
        """Return NVLS on one node, NVLSTree on several."""
        numbers = self.constants
        volume = _ring_volume("all_reduce", seen.ranks, size_bytes)
        bytes_s = volume / (self._get("nvls_share", facts.generation) * facts.inside_rate)
        latency_s = seen.start_s + numbers["nvls_start"] * _US
        if seen.nodes == 1:
            return _Way("nvls", latency_s, bytes_s)
        latency_s += numbers["nvls_start"] * _US  # again where it joins nodes
        latency_s += log2(seen.nodes) * seen.hop_s * numbers["simple_hop"]
        net = size_bytes if seen.nodes == 2 else volume / numbers["nvls_tree_net"]
        return _Way("nvls_tree", latency_s, max(bytes_s, net / seen.net))

    def _in_network(
        self, seen: _Nodes, facts: NodeFacts, collective: str, size_bytes: float
    ) -> _Way:
        """Return a collective that switches between nodes add up (SHARP)."""
        numbers = self.constants
        whole = collective == "all_reduce"
        share = numbers["sharp_share.all_reduce" if whole else "sharp_share.all_gather"]
        volume = _ring_volume(collective, seen.ranks, size_bytes)
        fastest = seen.inside
        if facts.nvls:
            fastest = self._get("nvls_share", facts.generation) * facts.inside_rate
        elif facts.switch:
            fastest = self._get("nvls_share", NVLS_GENERATIONS[0]) * facts.inside_rate
        latency_s = seen.start_s + numbers["nvls_start"] * _US + (2 if whole else 1) * seen.hop_s
        bytes_s = max(volume / fastest, volume / (share * seen.nics))
        return _Way(IN_NETWORK, latency_s, bytes_s)

    def _chain(self, seen: _Nodes, facts: NodeFacts, size_bytes: float) -> Iterator[_Way]:
        """Yield a broadcast or reduce: the whole message passes each rank once."""
        inside_s, net_s = seen.inside_steps * seen.step_s, seen.hops * seen.hop_s
        if seen.ordered:
            bytes_s = size_bytes / seen.low_latency_ring
            yield _Way("chain", seen.start_s + inside_s + net_s, bytes_s, "ll")
        latency_s = seen.simple_start_s
        latency_s += inside_s * self.constants["simple_step"] / 2.0
        latency_s += net_s * self.constants["simple_hop"]
        if seen.nodes > 1:
            # A NIC sends whole steps: the first of them takes its time at each hop, one by one.
            lines = facts.nics_of(seen.per_node)
            step_s = min(lines * _CHAIN_STEP_BYTES, size_bytes) / seen.net
            latency_s += (seen.hops - 1) * step_s
        # The last GPU of a chain sends nothing: where all share one link, one fewer does.
        sharers = _sharers(facts, seen.ranks) if seen.nodes == 1 else 1.0
        fewer = (sharers - 1.0) / sharers if sharers == seen.ranks else 1.0
        yield _Way("chain", latency_s, fewer * size_bytes / seen.ring)

    def _pairs(self, seen: _Nodes, facts: NodeFacts, size_bytes: float) -> Iterator[_Way]:
        """Yield an all-to-all: each rank sends to each other one."""
        numbers, peers = self.constants, max(0.0, seen.per_node - 1.0)
        latency_s = seen.start_s + numbers["peer.inside"] * _US * peers
        bytes_s = size_bytes * peers / seen.ranks / seen.inside
        if seen.nodes > 1:
            kind = _PAIR_KINDS.get(facts.transport, facts.transport)
            others = seen.ranks - seen.per_node
            latency_s += self._get("peer", kind) * _US * others
            sent = size_bytes * others / seen.ranks * seen.per_node
            each = facts._replace(in_ring=0)  # to each peer by the NIC nearest to the GPU
            _, net = self._net(each, seen.per_node, seen.nodes, seen.per_node)
            share = 1.0 if kind == "infiniband" else self._get("pairs_share", kind)
            bytes_s = max(bytes_s, sent / (share * net))
            yield _Way("pairwise", latency_s, bytes_s)
            return
        yield _Way("pairwise", latency_s, bytes_s / seen.low_latency, "ll")
        yield _Way("pairwise", latency_s + numbers["pairs_simple"] * seen.simple_s, bytes_s)

    def _pair(self, seen: _Nodes, facts: NodeFacts, size_bytes: float) -> Iterator[_Way]:
        """Yield a send beside a receive; between nodes by the NICs of one rank alone."""
        rate, step_s, share = seen.inside, seen.step_s, seen.low_latency
        if seen.nodes > 1:
            _, rate = self._net(facts, 1.0, seen.nodes)
            step_s, share = seen.hop_s, seen.net_low_latency
        latency_s = seen.start_s + step_s
        simple_s = self.constants["pairs_simple"] * (seen.simple_s + seen.net_simple_s)
        yield _Way("direct", latency_s, size_bytes / (share * rate), "ll")
        yield _Way("direct", latency_s + simple_s, size_bytes / rate)


_PAIR_KINDS = {"roce": "infiniband", "efa": "infiniband", "tcpx": "tcp"}
"""Transports whose all-to-all nobody measured, and those whose numbers stand in."""


def held_as(algorithm: str) -> str:
    """Return the law's own word for an algorithm of NCCL_ALGO or of a log; "" is NCCL's choice.

    Examples
    --------
    >>> held_as("sharp"), held_as("nvlstree"), held_as("ring")
    ('collnet_direct', 'nvls_tree', 'ring')
    """
    return _HELD_AS.get(algorithm, algorithm)


def _ring_calls(passes: int, ranks: int) -> float:
    """Return how many calls one group of threads makes for each block that it sends on a ring.

    It sends, receives and sends on, and at last receives, one after the other (NVIDIA/nccl@0e35f5d3
    src/device/all_reduce.h, runRing), so that the last call hides behind no send. That shows where
    few channels go through the host, under Simple: all-reduces of two boards reach 0.50 of a
    broadcast's rate (occl-4090-pcie-2) and 0.72 of half of it where both share a link
    (rtx2080ti-pcie-2), of eight 1.00 and 0.89 (occl-4090-pcie4-8 and its -lc). With it the times of
    large messages on PCIe are 20 % off on clusters left out (26 without); between NVLink's
    channels, where GPUs read each other's memory over PCIe and under LL it makes them worse.

    Examples
    --------
    >>> _ring_calls(2, 2), round(_ring_calls(2, 8), 3), _ring_calls(1, 2)
    (1.5, 1.071, 2.0)
    """
    return 1.0 + 1.0 / (passes * (ranks - 1))


def _sharers(facts: NodeFacts, per_node: float) -> float:
    """Return how many GPUs of a node send through one link into the host at once."""
    return max(1.0, min(facts.gpus_per_switch, per_node)) if facts.inside == "host" else 1.0


def _links_used(facts: NodeFacts, per_node: float) -> float:
    """Return the share of a GPU's links that lead to those that take part.

    Two of four GH200 of Alps have 6 of 18 NVLinks between them; with fewer than eight MI300X "one
    can only achieve a fraction of the potential bandwidth on the system" (ROCm/rccl pull 1270).

    Examples
    --------
    >>> alps = NodeFacts("hopper", "nvlink4", 450e9, False, 4, pairs=True)
    >>> _links_used(alps, 4), _links_used(alps, 2) == 1 / 3
    (1.0, True)
    """
    peers = facts.gpus - 1
    return min(1.0, max(1.0, per_node - 1) / peers) if facts.pairs and peers else 1.0


_PROTOCOLS = {"ll128": "ll"}
"""Protocols that the law has no number of, and those that stand in."""


def _allowed(way: _Way, held: str) -> bool:
    """Tell whether NCCL_ALGO leaves an algorithm: ``nvls`` leaves NVLSTree too."""
    return way.algorithm == held or (held in ("", "nvls") and way.algorithm.startswith(held))


def _ring_volume(collective: str, ranks: int, size_bytes: float) -> float:
    """Return the bytes that each rank of a ring sends."""
    passes = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}.get(collective)
    return size_bytes if passes is None else passes * (ranks - 1) / ranks * size_bytes


@cache
def node_law() -> NodeLaw:
    """Return the law with the shipped numbers.

    Raises
    ------
    DataError
        If their file is damaged.
    """
    path = shipped() / CONSTANTS_FILE
    return NodeLaw(
        {
            cells["name"]: cell_number(cells["value"], "value", path, row)
            for row, cells in read_table(path, CONSTANTS_SCHEMA, CONSTANTS_COLUMNS)
        }
    )


@cache
def law_without(family: str) -> NodeLaw:
    """Return the law with numbers fitted without one family of measured clusters.

    Raises
    ------
    KeyError
        If nothing was fitted without that family.
    DataError
        If the file is damaged.
    """
    return _laws_without()[family]


@cache
def _laws_without() -> dict[str, NodeLaw]:
    path = shipped() / LEFT_OUT_FILE
    names = tuple(node_law().constants)
    return {
        cells["family"]: NodeLaw(
            {name: cell_number(cells[name], name, path, row) for name in names}
        )
        for row, cells in read_table(path, LEFT_OUT_SCHEMA, ("family", *names))
    }


def band_of(size_bytes: float) -> str:
    """Return the band of a message: small to 64 KiB, middle to 4 MiB, large."""
    return next(name for name, end in BANDS if size_bytes <= end)


def class_of(facts: NodeFacts, nodes: int) -> str:
    """Return the class of network in which the law's errors are alike.

    Examples
    --------
    >>> dgx = NodeFacts("hopper", "nvlink4", 450e9, True, 8, 8, 50e9, "infiniband")
    >>> class_of(dgx, 1), class_of(dgx, 4), class_of(dgx._replace(transport="tcpx"), 2)
    ('nvlink', 'rdma', 'tcp')
    """
    if nodes == 1:
        return "pcie" if facts.inside in ("pcie", "host") else "nvlink"
    if facts.transport in _RDMA:
        return "rdma"
    return "tcp" if facts.transport.startswith("tcp") else facts.transport


@cache
def _node_errors() -> dict[tuple[str, str], float]:
    path = shipped() / ERRORS_FILE
    return {
        (cells["class"], cells["band"]): cell_number(
            cells["half_width_ln"], "half_width_ln", path, row
        )
        for row, cells in read_table(path, ERRORS_SCHEMA, ERRORS_COLUMNS)
    }


def node_error(facts: NodeFacts, nodes: int, size_bytes: float) -> float:
    """Return the 90 % half-width of a time by the law, in ln.

    It is a percentile above the 90th of its errors on clusters left out, of that class and band: a
    cluster of another family falls outside more often than those that the percentile is of. Where
    few families tell, it is at least that of all classes (``profiles/build/node_constants.py``).
    """
    return _node_errors()[class_of(facts, nodes), band_of(size_bytes)]
