"""NVLS tree all-reduce: NVSwitches add inside each node, a double binary tree between them."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, larger, log2_steps
from perfsim.collectives.switch import NVLS_S

__all__ = [
    "AUTOMATIC",
    "FLOWS",
    "LATENCY",
    "NEEDS",
    "all_reduce_nvls_tree",
    "refusal",
    "sent_bytes",
]

LATENCY = "tree"

NEEDS = "NVSwitch and Hopper or later (NVLink SHARP)"

FLOWS = "tree"

AUTOMATIC = False
"""NVSwitch and Hopper or later, which a link does not tell: used only when asked for."""


def refusal(hops: Hops) -> str:
    """Return why these ranks cannot use it, or ""."""
    if hops.gpus_per_node <= 2:
        return "adds inside NVSwitches, for more than 2 GPUs a node"
    return "" if hops.nodes > 1 else "joins nodes, and there is one; take nvls"


def all_reduce_nvls_tree(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of an all-reduce over switches inside nodes and a tree between them.

    2 alpha_intra + 2 ceil(log2 N) alpha_inter; the larger of 2 n beta_nic (the tree sends n up and
    n down through each node's NICs) and (g+1)/g n beta_intra, which run at once; n/g gamma.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    Latency is at least NCCL's own figure for such a call, 25 us (`perfsim.collectives.switch`).

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
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    inside, nodes = hops.gpus_per_node, hops.nodes
    latency_s, wires_s = 2.0 * log2_steps(nodes) * hops.alpha_inter_s, 0.0 * size_bytes
    if inside > 1:
        latency_s = latency_s + 2.0 * hops.alpha_intra_s
        wires_s = (inside + 1) / inside * size_bytes * hops.beta_intra_s_per_byte
    if nodes > 1:
        wires_s = larger(wires_s, 2.0 * size_bytes * hops.beta_nic_s_per_byte)
        wires_s = wires_s + size_bytes / inside * hops.gamma_s_per_byte
    return Parts(larger(latency_s, NVLS_S), wires_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends [B]: (g+1)/g n to the switch, 2 (N-1)/N n/g to other nodes."""
    inside, nodes = hops.gpus_per_node, hops.nodes
    local = (inside + 1) / inside if inside > 1 else 0.0
    return (local + 2.0 * (nodes - 1) / nodes / inside) * size_bytes
