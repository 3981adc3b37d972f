"""NCCL's tuner: which algorithm and protocol it takes for a call, and the time it expects."""

from __future__ import annotations

from typing import NamedTuple

from perfsim.errors import RequestError, unknown
from perfsim.libraries import nccl_threshold
from perfsim.libraries.nccl_bandwidth import algorithm_bandwidth
from perfsim.libraries.nccl_figures import (
    ALGORITHMS,
    ARCHITECTURES,
    PROTOCOLS,
    figures,
    parse_version,
)
from perfsim.libraries.nccl_latency import call_latency_us
from perfsim.libraries.nccl_shape import CommunicatorShape
from perfsim.libraries.nccl_size import plateau, tree_factor

__all__ = ["NcclTuner", "TunerChoice"]

TUNED = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")
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
    ranks, nodes : GPUs that take part, nodes they stand on
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
    v2.5.6-1 to v2.30.7-1; for 2.4 see `perfsim.libraries.nccl_threshold`.

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
                f"tuner: {ranks} ranks on {nodes} nodes, {channels} channels and"
                f" {bus_bandwidth} GB/s; at least 1 node, a rank a node, 1 channel and a rate above"
                " 0 are needed."
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
        self.figures = figures(version) if self.number >= (2, 5) else None
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
        if collective not in TUNED:
            raise unknown("collective", collective, TUNED)
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
        if collective not in TUNED:
            raise unknown("collective", collective, TUNED)
        _check(algorithm or "ring", protocol or "ll")
        if self.shape.ranks == 1:
            return TunerChoice("ring", "simple", 0.0)
        if self.figures is None:
            return self._by_threshold(collective, size_bytes, algorithm, protocol)
        found: list[tuple[float, int, TunerChoice]] = []
        for name in (algorithm,) if algorithm else ALGORITHMS:
            for kind in (protocol,) if protocol else PROTOCOLS:
                if protocol is None and kind == "ll128":
                    seconds = self.time(collective, name, kind, size_bytes)
                else:
                    seconds = self._time(collective, name, kind, size_bytes)
                if seconds is not None:
                    found.append((seconds, len(found), TunerChoice(name, kind, seconds)))
        if not found:
            return self.choose(collective, size_bytes, "ring", protocol)
        return min(found)[2]

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
            return nccl_threshold.line_s(
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
            limit = nccl_threshold.tree_threshold_bytes(
                shape.ranks, shape.nodes, shape.nvlink, shape.channels
            )
            name = "tree" if collective == "all_reduce" and size_bytes <= limit else "ring"
        if collective != "all_reduce" or self._time(collective, name, "ll", size_bytes) is None:
            name = "ring"
        kind = protocol if protocol in ("ll", "simple") else None
        if kind is None:
            limit = nccl_threshold.low_latency_bytes(
                name, size_bytes, shape.ranks, shape.nodes, shape.channels, shape.capability
            )
            kind = "ll" if size_bytes <= limit else "simple"
        return TunerChoice(name, kind, self._time(collective, name, kind, size_bytes))


def _check(algorithm: str, protocol: str) -> None:
    if algorithm not in ALGORITHMS:
        raise unknown("algorithm", algorithm, ALGORITHMS)
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
