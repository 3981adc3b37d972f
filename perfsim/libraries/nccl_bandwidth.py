"""The bandwidth that NCCL's tuner gives a collective, algorithm and protocol."""

from __future__ import annotations

from perfsim.libraries.nccl_figures import FigureRows, VersionFigures
from perfsim.libraries.nccl_shape import CommunicatorShape

__all__ = ["algorithm_bandwidth"]

GATHERING = ("all_gather", "reduce_scatter")


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
    if not _available(figures, shape, collective, algorithm, protocol):
        return 0.0
    if algorithm == "ring":
        return _ring(figures, shape, collective, protocol) * shape.ranks / steps(shape, collective)
    if algorithm == "tree":
        return _tree(figures, shape, collective, protocol) * 0.5
    if algorithm == "pat":
        return shape.bus_bandwidth * (figures.pat_share or 0.0)
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls(figures, shape, collective, algorithm)
    return _collnet(figures, shape, algorithm) * 0.5


def steps(shape: CommunicatorShape, collective: str) -> int:
    """Return the steps of a ring as the tuner counts them."""
    if collective == "all_reduce":
        return 2 * (shape.ranks - 1)
    return shape.ranks - 1 if collective in GATHERING else shape.ranks


def _available(
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
        return collective in GATHERING and shape.ranks == shape.nodes and shape.capability >= 60
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
        gathers = collective in GATHERING and figures.since != (2, 18)
        return gathers or collective == "all_reduce"
    return collective == "all_reduce" and shape.in_network and figures.since >= (2, 18)


def _bus(figures: VersionFigures, shape: CommunicatorShape) -> float:
    cap = figures.bus_cap.get(shape.row(figures.since))
    return min(shape.bus_bandwidth, cap) if cap else shape.bus_bandwidth


def _capped(
    busy: float, rows: FigureRows | None, figures: VersionFigures, shape: CommunicatorShape
) -> float:
    """Return at most the cap a channel of this generation and number of nodes."""
    if rows is None:
        return busy
    return min(busy, shape.channels * rows[shape.row(figures.since)][shape.span])


def _ll_cap(busy: float, figures: VersionFigures, shape: CommunicatorShape) -> float:
    """Return at most what LL can move: by GPU on one node, by CPU across several."""
    if figures.ll_cap is None:
        return busy
    row = shape.row(figures.since) if shape.nodes == 1 else int(shape.cpu == "amd")
    return min(busy, figures.ll_cap[row][shape.span])


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
        return bus if collective in GATHERING else bus * shape.ranks / steps(shape, collective)
    if algorithm == "nvls_tree":
        if figures.since < (2, 19):
            return bus * 0.70 * nodes / (2 * (nodes - 1))
        return bus * (0.5 if nodes > 2 else 1.0) * 5 / 6
    if collective in GATHERING and figures.since >= (2, 23):
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
    # GPUs a NIC: above one a GPU without a NIC of its own slows the whole.
    crowd = shape.mean_per_node / shape.channels
    bus /= crowd - (crowd - 1) / 2
    return bus * (0.85 if shape.capability >= 90 and figures.since >= (2, 18) else 1.0)
