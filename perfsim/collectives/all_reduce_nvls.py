"""NVLS all-reduce: the NVSwitches of one node add."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts, larger
from perfsim.collectives.switch import NVLS_S

__all__ = ["AUTOMATIC", "LATENCY", "NEEDS", "all_reduce_nvls", "refusal", "sent_bytes"]

LATENCY = "ring"

NEEDS = "NVSwitch and Hopper or later (NVLink SHARP)"

AUTOMATIC = False
"""NVSwitch and Hopper or later, which a link does not tell: used only when asked for."""


def refusal(hops: Hops) -> str:
    """Return why these ranks cannot use it, or ""."""
    if hops.gpus_per_node <= 2:
        return "adds inside NVSwitches, for more than 2 GPUs a node"
    return "" if hops.nodes == 1 else "runs inside one node; across nodes take nvls_tree"


def all_reduce_nvls(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of an all-reduce that the switch of one node adds up.

    2 alpha_intra + (g+1)/g n beta_intra: each GPU owns n/g; all send what the switch adds, n in
    all, and get n/g; then each sends its n/g, which the switch hands to all. No GPU adds anything.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Notes
    -----
    Latency is at least NCCL's own figure for such a call, 25 us (`perfsim.collectives.switch`).

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
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    wires_s = sent_bytes(size_bytes, hops) * hops.beta_intra_s_per_byte
    return Parts(larger(2.0 * hops.alpha_intra_s, NVLS_S), wires_s)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends on one node: n to be added and its sum of n/g [B]."""
    if hops.ranks == 1:
        return 0.0 * size_bytes
    return (hops.gpus_per_node + 1) / hops.gpus_per_node * size_bytes
