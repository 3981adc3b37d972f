"""RCCL: AMD's port of NCCL, with NCCL's algorithms and way of choosing, and figures of its own.

Its tuner compares predicted times as NCCL's does, latency + bytes / bandwidth. The figures depend
on the kind of node; they stand in ``profiles/libraries/rccl_tuner.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from perfsim.data.catalog import shipped
from perfsim.errors import RequestError, unknown
from perfsim.libraries import nccl
from perfsim.libraries.nccl_versions import PROTOCOLS, Triple

__all__ = ["AMD_GENERATIONS", "LIBRARY", "RcclFigures", "RcclTuner", "rccl_figures"]

LIBRARY = nccl.LIBRARY._replace(
    name="rccl", summary="RCCL: AMD's port of NCCL, the same algorithms and the same choice"
)
"""It compares predicted times as NCCL does."""

AMD_GENERATIONS = ("gcn", "cdna", "cdna2", "cdna3", "cdna4")
"""AMD's generations of GPUs: MI50, MI100, MI200, MI300, MI350."""

_NO_TREE_SIMPLE = ("cdna3",)
"""GPUs (gfx94x) on which RCCL takes no Simple tree inside a node."""
_HAS_LL128 = ("cdna2",)
"""GPUs (gfx90a) on which LL128 is on without being asked for."""
_BROADCAST_LL = 1.65
"""What LL's rate of a broadcast or reduce inside a node of gfx94x is multiplied by."""
_OVERHEAD_US = {"amd": 2.0, "intel": 1.0}
"""What a step between nodes costs the CPU at least; under Simple three times that [us]."""


class RcclFigures(NamedTuple):
    """The tuning model's numbers for one kind of node.

    Parameters
    ----------
    tuning : the model's number in RCCL
    generations : of GPUs whose nodes take it; none for all others
    base_us : latency of a call by algorithm
    hop_us : latency of a hop by link (nvlink, here Infinity Fabric; pci; net) and algorithm
    share : of the bus bandwidth by algorithm, up to two nodes and on more
    factor : correction of the bandwidth for 64 B, 128 B, ... by algorithm and protocol
    """

    tuning: int
    generations: tuple[str, ...]
    base_us: Mapping[str, Triple]
    hop_us: Mapping[str, Mapping[str, Triple]]
    share: Mapping[str, tuple[Triple, Triple]]
    factor: Mapping[str, tuple[tuple[float, ...], ...]]


@cache
def _models() -> tuple[RcclFigures, ...]:
    path = shipped() / "libraries" / "rccl_tuner.toml"
    return tuple(
        RcclFigures(**(model | {"generations": tuple(model["generations"])}))
        for model in tomllib.loads(path.read_text(encoding="utf-8"))["model"]
    )


def rccl_figures(generation: str) -> RcclFigures:
    """Return the figures for nodes of a generation of GPUs.

    Raises
    ------
    RequestError
        If it is no generation of AMD's.

    Examples
    --------
    >>> rccl_figures("cdna3").hop_us["net"]["tree"], rccl_figures("cdna").tuning
    ([10.5, 0.0, 25.0], 0)
    """
    if generation not in AMD_GENERATIONS:
        raise unknown("gpu_architecture", generation, AMD_GENERATIONS)
    models = _models()
    named = [model for model in models if generation in model.generations]
    return (named or [model for model in models if not model.generations])[0]


class RcclTuner:
    """RCCL's tuning model for one communicator.

    Parameters
    ----------
    generation : of the GPUs, one of `AMD_GENERATIONS`
    ranks, nodes : GPUs that take part, and their nodes
    cpu : intel, amd, arm or power
    intra : links between the GPUs of a node, nvlink (here Infinity Fabric) or pci
    bus_bandwidth : of all channels together, as the topology search finds it [GB/s]

    Notes
    -----
    The network plug-in's latency is taken as 0. CollNet is left out: AMD's nodes have none.
    MSCCL's all-pairs, which RCCL puts before its tuner on 8 MI300X, is `NodeLaw`'s.

    References
    ----------
    github.com/ROCm/rccl @0cbce2a7, src/graph/tuning.cc, ncclTopoTuneModel, ncclTopoGetAlgoTime.

    Examples
    --------
    >>> tuner = RcclTuner("cdna3", 16, 2, "amd", "nvlink", 350.0)
    >>> tuner.choose("all_reduce", 8e3)[:2], tuner.choose("all_reduce", 1e9)[:2]
    (('tree', 'll'), ('ring', 'simple'))
    """

    def __init__(
        self,
        generation: str,
        ranks: int,
        nodes: int,
        cpu: str,
        intra: str,
        bus_bandwidth: float,
    ) -> None:
        if not (ranks >= nodes >= 1 and bus_bandwidth > 0):
            raise RequestError(
                "tuner",
                f"{ranks} ranks on {nodes} nodes and {bus_bandwidth} GB/s; at least 1 node, a rank"
                " a node and a rate above 0 are needed.",
            )
        self.figures = rccl_figures(generation)
        self.generation, self.ranks, self.nodes = generation, ranks, nodes
        self.cpu, self.intra, self.bus_bandwidth = cpu, intra, bus_bandwidth

    def choose(
        self,
        collective: str,
        size_bytes: float,
        algorithm: str | None = None,
        protocol: str | None = None,
    ) -> nccl.TunerChoice:
        """Return the pair that takes least time, among those that NCCL_ALGO and NCCL_PROTO leave.

        Where no algorithm is left, RCCL takes the ring.
        """
        if self.ranks == 1:
            return nccl.TunerChoice("ring", "simple", 0.0)
        usual = [kind for kind in PROTOCOLS if kind != "ll128" or self.generation in _HAS_LL128]
        found = nccl.fastest_pair(
            (algorithm,) if algorithm else ("tree", "ring"),
            (protocol,) if protocol else usual,
            lambda name, kind: self.time(collective, name, kind, size_bytes),
        )
        return found or self.choose(collective, size_bytes, "ring", protocol)

    def time(
        self, collective: str, algorithm: str, protocol: str, size_bytes: float
    ) -> float | None:
        """Return the time that the tuner expects [s]; None where it leaves the pair out."""
        if collective not in nccl.TUNED_COLLECTIVES:
            raise unknown("collective", collective, nccl.TUNED_COLLECTIVES)
        if algorithm not in ("ring", "tree") or protocol not in PROTOCOLS:
            return None
        if algorithm == "tree" and collective != "all_reduce":
            return None
        index = PROTOCOLS.index(protocol)
        bandwidth = self._bandwidth(collective, algorithm, index, size_bytes)
        if not bandwidth:
            return None
        latency_us = self._latency_us(collective, algorithm, index)
        return (latency_us + size_bytes / (1000.0 * bandwidth)) * 1e-6

    def _bandwidth(self, collective: str, algorithm: str, index: int, size_bytes: float) -> float:
        """Return the algorithm's bandwidth for a message [GB/s], 0 where RCCL has no such pair."""
        inside = self.nodes == 1
        simple, new = PROTOCOLS[index] == "simple", self.generation in _NO_TREE_SIMPLE
        if algorithm == "tree" and simple and inside and new:
            return 0.0
        share = self.figures.share[algorithm][0 if self.nodes <= 2 else 1][index]
        bandwidth = self.bus_bandwidth * share
        if algorithm == "tree":
            bandwidth *= 0.5
        else:
            if (
                inside
                and new
                and PROTOCOLS[index] == "ll"
                and collective in ("broadcast", "reduce")
            ):
                bandwidth *= _BROADCAST_LL
            bandwidth *= self.ranks / nccl.ring_steps(self.ranks, collective)
        if algorithm == "tree" or not inside:
            factors = self.figures.factor[algorithm][index]
            doublings = max(0, (int(size_bytes) >> 6).bit_length() - 1)
            bandwidth *= factors[min(doublings, len(factors) - 1)]
        return bandwidth

    def _latency_us(self, collective: str, algorithm: str, index: int) -> float:
        """Return the latency of one call [us]: the base, then hops by link.

        ring: (k - k_net) intra + k_net net for k steps, 2 N of them between nodes in an all_reduce,
        N - 1 in a gather; broadcast and reduce one hop. tree: 2 ((g-1) intra + floor(log2 N) net).
        """
        figures, nodes = self.figures, self.nodes
        base_us = figures.base_us[algorithm][index]
        inside_us = figures.hop_us[self.intra][algorithm][index]
        net_us = figures.hop_us["net"][algorithm][index]
        if algorithm == "tree":
            doublings = nodes.bit_length() - 1
            return base_us + 2 * ((self.ranks // nodes - 1) * inside_us + doublings * net_us)
        if collective in ("broadcast", "reduce"):
            return base_us + (net_us if nodes > 1 else inside_us)
        crossing = 0
        if nodes > 1:
            crossing = 2 * nodes if collective == "all_reduce" else nodes - 1
            posted_us = _OVERHEAD_US.get(self.cpu, 1.0)
            inside_us = max(inside_us, 3 * posted_us if PROTOCOLS[index] == "simple" else posted_us)
        return (
            base_us
            + (nccl.ring_steps(self.ranks, collective) - crossing) * inside_us
            + crossing * net_us
        )
