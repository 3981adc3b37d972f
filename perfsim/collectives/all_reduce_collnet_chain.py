"""CollNet chain all-reduce: a chain inside each node, switches add between nodes."""

from __future__ import annotations

from perfsim.collectives.all_reduce_collnet_direct import refusal, sent_bytes
from perfsim.collectives.hops import Hops, Parts, larger
from perfsim.collectives.switch import COLLNET_CHAIN_S

__all__ = ["AUTOMATIC", "LATENCY", "NEEDS", "all_reduce_collnet_chain", "refusal", "sent_bytes"]

LATENCY = "ring"

NEEDS = "switches that add (SHARP) and a CollNet plug-in"

AUTOMATIC = False
"""Switches that add (SHARP) and a plug-in, which a link does not tell: only when asked for."""


def all_reduce_collnet_chain(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of an all-reduce over chains inside nodes and adding switches.

    2 (g-1) alpha_intra + alpha_inter; the larger of 2 n beta_intra (n goes down the chain and n
    comes back, so that a GPU in it receives 2 n) and n beta_nic; n gamma where a node adds.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    Latency is at least NCCL's own figure for such a call, 30 us (`perfsim.collectives.switch`).

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
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    inside = hops.gpus_per_node
    wires_s, latency_s = 0.0 * size_bytes, 2.0 * (inside - 1) * hops.alpha_intra_s
    if inside > 1:
        wires_s = 2.0 * size_bytes * hops.beta_intra_s_per_byte
    if hops.nodes > 1:
        wires_s = larger(wires_s, size_bytes * hops.beta_nic_s_per_byte)
        latency_s = latency_s + hops.alpha_inter_s
    if inside > 1:
        wires_s = wires_s + size_bytes * hops.gamma_s_per_byte
    return Parts(larger(latency_s, COLLNET_CHAIN_S), wires_s)
