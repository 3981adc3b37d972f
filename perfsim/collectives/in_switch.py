"""All-reduce in the network: NVSwitches (NVLS) or switches between nodes (CollNet, SHARP) add.

A link's latency is fitted on rings of many hops, over which the start of a call is spread. The
two or three hops of these algorithms hold too little of it. So their latency is at least NCCL's
own figure for the start of such a call.

References
----------
github.com/NVIDIA/nccl, src/graph/tuning.cc, hwLat: v2.21.5-1 for NVLS on NVLink, v2.19.3-1 to
v2.30.7-1 for CollNet between nodes.
"""

from __future__ import annotations

from perfsim.collectives import Hops, Parts, algorithm
from perfsim.collectives.hops import ceil_log2, maximum

__all__ = [
    "all_reduce_collnet_chain",
    "all_reduce_collnet_direct",
    "all_reduce_nvls",
    "all_reduce_nvls_tree",
]

NVLS_S = 25e-6
"""NVLS inside a node: switch multicast set up, one reduction, one broadcast."""

COLLNET_DIRECT_S = 31e-6
"""CollNet direct between nodes: up to the switches that add, and back."""

COLLNET_CHAIN_S = 30e-6
"""CollNet chain between nodes."""

NVLINK_SHARP = "NVSwitch and Hopper or later (NVLink SHARP)"
COLLNET = "switches that add (SHARP) and a CollNet plug-in"


def nvls_refusal(hops: Hops) -> str:
    """Return why the NVSwitches of these nodes cannot do it, or ""."""
    if hops.gpus_per_node <= 2:
        return "adds inside NVSwitches, for more than 2 GPUs a node"
    return "" if hops.nodes == 1 else "runs inside one node; across nodes take nvls_tree"


def nvls_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends on one node: n to be added and its sum of n/g [B]."""
    return (hops.gpus_per_node + 1) / hops.gpus_per_node * size_bytes


@algorithm(
    "all_reduce",
    "nvls",
    automatic=False,
    needs=NVLINK_SHARP,
    refusal=nvls_refusal,
    sent_bytes=nvls_sent_bytes,
)
def all_reduce_nvls(size_bytes: float, hops: Hops) -> Parts:
    """Price an all-reduce that the NVSwitches of one node add up.

    2 alpha_intra + (g+1)/g n beta_intra: each GPU owns n/g; all send what the switch adds, n in
    all, and get n/g; then each sends its n/g, which the switch hands to all. No GPU adds anything.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    The latency is at least NCCL's own figure for such a call, 25 us.

    Examples
    --------
    >>> hops = Hops(8, 1, 8, 2e-6, 0.0, 1e-11, 1e-11, 1e-11, 0.0)
    >>> parts = all_reduce_nvls(1e8, hops)
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (25, 1125)

    References
    ----------
    Klenk, Jiang, Thorson & Dennison, An in-network architecture for accelerating shared-memory
    multiprocessor collectives, ISCA 2020; NCCL since 2.17, src/transport/nvls.cc. The counts of
    bytes and hops are derived here.
    """
    wires_s = nvls_sent_bytes(size_bytes, hops) * hops.beta_intra_s_per_byte
    return Parts(maximum(2.0 * hops.alpha_intra_s, NVLS_S), wires_s)


def nvls_tree_refusal(hops: Hops) -> str:
    """Return why the NVSwitches of these nodes cannot do it, or ""."""
    if hops.gpus_per_node <= 2:
        return "adds inside NVSwitches, for more than 2 GPUs a node"
    return "" if hops.nodes > 1 else "joins nodes, and there is one; take nvls"


def nvls_tree_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends [B]: (g+1)/g n to the switch, 2 (N-1)/N n/g to other nodes."""
    inside, nodes = hops.gpus_per_node, hops.nodes
    local = (inside + 1) / inside if inside > 1 else 0.0
    return (local + 2.0 * (nodes - 1) / nodes / inside) * size_bytes


@algorithm(
    "all_reduce",
    "nvls_tree",
    latency="tree",
    flows="tree",
    automatic=False,
    needs=NVLINK_SHARP,
    refusal=nvls_tree_refusal,
    sent_bytes=nvls_tree_sent_bytes,
)
def all_reduce_nvls_tree(size_bytes: float, hops: Hops) -> Parts:
    """Price an all-reduce over NVSwitches inside nodes and a double binary tree between them.

    2 alpha_intra + 2 ceil(log2 N) alpha_inter; the larger of 2 n beta_nic (the tree sends n up and
    n down through each node's NICs) and (g+1)/g n beta_intra, which run at once; n/g gamma.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    The latency is at least NCCL's own figure for such a call, 25 us.

    Examples
    --------
    >>> hops = Hops(32, 4, 8, 2e-6, 1e-5, 1e-10, 1e-10, 1e-11, 1e-10)
    >>> parts = all_reduce_nvls_tree(1e7, hops)
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (44, 2000)

    References
    ----------
    NCCL since 2.18, src/graph/tuning.cc and src/device/all_reduce.h; Sanders, Speck & Träff,
    Parallel Computing 2009, for the tree. The counts of bytes are derived here.
    """
    inside, nodes = hops.gpus_per_node, hops.nodes
    latency_s = 2.0 * ceil_log2(nodes) * hops.alpha_inter_s
    inside_s = across_s = sums_s = 0.0 * size_bytes
    if inside > 1:
        latency_s = latency_s + 2.0 * hops.alpha_intra_s
        inside_s = (inside + 1) / inside * size_bytes * hops.beta_intra_s_per_byte
    if nodes > 1:
        across_s = 2.0 * size_bytes * hops.beta_nic_s_per_byte
        sums_s = size_bytes / inside * hops.gamma_s_per_byte
    return Parts(maximum(latency_s, NVLS_S), maximum(inside_s, across_s) + sums_s)


def collnet_refusal(hops: Hops) -> str:
    """Return why these ranks have no switches between them that add, or ""."""
    return "" if hops.nodes > 1 else "adds in switches between nodes, and there is one node"


def collnet_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over a node's [B]: 2 (g-1)/g n inside, n/g to the switches."""
    inside = hops.gpus_per_node
    across = 1.0 / inside if hops.nodes > 1 else 0.0
    return (2.0 * (inside - 1) / inside + across) * size_bytes


@algorithm(
    "all_reduce",
    "collnet_direct",
    automatic=False,
    needs=COLLNET,
    refusal=collnet_refusal,
    sent_bytes=collnet_sent_bytes,
)
def all_reduce_collnet_direct(size_bytes: float, hops: Hops) -> Parts:
    """Price an all-reduce whose sum the GPUs of a node share out and the network's switches add.

    2 alpha_intra + alpha_inter; the larger of 2 (g-1)/g n beta_intra (each GPU collects a shard of
    n/g from the others and hands out its sum) and n beta_nic (the shards go up and come back once,
    both ways at a time); (g-1)/g n gamma.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    The latency is at least NCCL's own figure for such a call, 31 us.

    Examples
    --------
    >>> hops = Hops(32, 4, 8, 2e-6, 1e-5, 1e-10, 1e-10, 1e-11, 1e-10)
    >>> parts = all_reduce_collnet_direct(1e7, hops)
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (31, 1000)

    References
    ----------
    Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP), COMHPC 2016; NCCL since
    2.14, src/graph/tuning.cc, for the hops. The counts of bytes are derived here.
    """
    inside = hops.gpus_per_node
    share = (inside - 1) / inside * size_bytes
    latency_s, across_s = _across_switches(size_bytes, hops)
    if inside > 1:
        latency_s = latency_s + 2.0 * hops.alpha_intra_s
    wires_s = maximum(2.0 * share * hops.beta_intra_s_per_byte, across_s)
    return Parts(maximum(latency_s, COLLNET_DIRECT_S), wires_s + share * hops.gamma_s_per_byte)


@algorithm(
    "all_reduce",
    "collnet_chain",
    automatic=False,
    needs=COLLNET,
    refusal=collnet_refusal,
    sent_bytes=collnet_sent_bytes,
)
def all_reduce_collnet_chain(size_bytes: float, hops: Hops) -> Parts:
    """Price an all-reduce over a chain inside each node and switches that add between nodes.

    2 (g-1) alpha_intra + alpha_inter; the larger of 2 n beta_intra (n goes down the chain and n
    comes back, so that a GPU in it receives 2 n) and n beta_nic; n gamma where a node adds.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    The latency is at least NCCL's own figure for such a call, 30 us.

    Examples
    --------
    >>> hops = Hops(32, 4, 8, 2e-6, 1e-5, 1e-10, 1e-10, 1e-11, 1e-10)
    >>> parts = all_reduce_collnet_chain(1e7, hops)
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (38, 1000)

    References
    ----------
    Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP), COMHPC 2016; NCCL since
    2.14, src/graph/tuning.cc, for the hops. The counts of bytes are derived here.
    """
    inside = hops.gpus_per_node
    latency_s, across_s = _across_switches(size_bytes, hops)
    if inside == 1:
        return Parts(maximum(latency_s, COLLNET_CHAIN_S), across_s)
    latency_s = latency_s + 2.0 * (inside - 1) * hops.alpha_intra_s
    wires_s = maximum(2.0 * size_bytes * hops.beta_intra_s_per_byte, across_s)
    return Parts(maximum(latency_s, COLLNET_CHAIN_S), wires_s + size_bytes * hops.gamma_s_per_byte)


def _across_switches(size_bytes: float, hops: Hops) -> tuple[float, float]:
    """Return latency and time on the wires to the switches that add, 0 on one node [s]."""
    if hops.nodes == 1:
        return 0.0, 0.0 * size_bytes
    return hops.alpha_inter_s, size_bytes * hops.beta_nic_s_per_byte
