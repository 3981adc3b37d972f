"""CollNet direct all-reduce: GPUs of a node share out the sum, switches add between nodes."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, larger
from perfsim.collectives.switch import COLLNET_DIRECT_S

__all__ = ["AUTOMATIC", "LATENCY", "NEEDS", "all_reduce_collnet_direct", "refusal", "sent_bytes"]

LATENCY = "ring"

NEEDS = "switches that add (SHARP) and a CollNet plug-in"

AUTOMATIC = False
"""Switches that add (SHARP) and a plug-in, which a link does not tell: only when asked for."""


def refusal(hops: Hops) -> str:
    """Return why these ranks cannot use it, or ""."""
    return "" if hops.nodes > 1 else "adds in switches between nodes, and there is one node"


def all_reduce_collnet_direct(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of an all-reduce that the network's switches add up.

    2 alpha_intra + alpha_inter; the larger of 2 (g-1)/g n beta_intra (each GPU collects a shard of
    n/g from the others and hands out its sum) and n beta_nic (the shards go up and come back once,
    both ways at a time); (g-1)/g n gamma.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    Latency is at least NCCL's own figure for such a call, 31 us (`perfsim.collectives.switch`).

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
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    inside = hops.gpus_per_node
    share = (inside - 1) / inside * size_bytes
    wires_s = 2.0 * share * hops.beta_intra_s_per_byte
    latency_s = 2.0 * min(1, inside - 1) * hops.alpha_intra_s
    if hops.nodes > 1:
        wires_s = larger(wires_s, size_bytes * hops.beta_nic_s_per_byte)
        latency_s = latency_s + hops.alpha_inter_s
    return Parts(larger(latency_s, COLLNET_DIRECT_S), wires_s + share * hops.gamma_s_per_byte)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over a node's [B]: 2 (g-1)/g n inside, n/g to the switches."""
    inside = hops.gpus_per_node
    across = 1.0 / inside if hops.nodes > 1 else 0.0
    return (2.0 * (inside - 1) / inside + across) * size_bytes
