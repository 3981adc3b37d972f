"""The latency that NCCL's tuner gives a collective, algorithm and protocol."""

from __future__ import annotations

from perfsim.libraries.nccl_bandwidth import GATHERING, steps
from perfsim.libraries.nccl_figures import PROTOCOLS, VersionFigures
from perfsim.libraries.nccl_shape import CommunicatorShape

__all__ = ["call_latency_us"]


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
    place = PROTOCOLS.index(protocol)
    since, nodes = figures.since, shape.nodes
    intra_us = figures.hop_us[shape.intra][algorithm][place]
    net_us = figures.hop_us["net"][algorithm][place]
    power = shape.cpu == "power" and shape.intra == "pci" and since >= (2, 10)
    if power and (algorithm, protocol) == ("tree", "simple"):
        intra_us = figures.hop_us["pci"]["ring"][place]
    if since >= (2, 23) and shape.ranks == nodes:
        net_us = figures.hop_us["net"]["tree"][place]
    if (2, 7) <= since < (2, 18) and nodes > 1 and protocol == "ll":
        intra_us *= 1.8
    base_us = figures.base_us[algorithm][place]
    if algorithm == "ring":
        return base_us + _ring_us(figures, shape, collective, protocol, intra_us, net_us)
    return base_us + _others_us(since, shape, algorithm, intra_us, net_us)


def _others_us(
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


def _ring_us(
    figures: VersionFigures,
    shape: CommunicatorShape,
    collective: str,
    protocol: str,
    intra_us: float,
    net_us: float,
) -> float:
    since, nodes = figures.since, shape.nodes
    count = steps(shape, collective)
    if collective in ("broadcast", "reduce"):
        place = PROTOCOLS.index(protocol)
        return figures.hop_us["net" if nodes > 1 else shape.intra]["ring"][place]
    if since < (2, 7):
        return count * (net_us if nodes > 1 else intra_us)
    if nodes == 1:
        crossing = 0
    elif collective in GATHERING:
        crossing = nodes - 1
    else:
        crossing = 2 * nodes if (2, 12) <= since < (2, 23) else 2 * (nodes - 1)
    if since >= (2, 18) and nodes > 1:
        # Every step of a ring across nodes is posted to the network by the CPU.
        overhead_us = (2.0 if shape.cpu == "amd" else 1.0) * (3 if protocol == "simple" else 1)
        intra_us = max(intra_us, overhead_us)
    return (count - crossing) * intra_us + crossing * net_us
