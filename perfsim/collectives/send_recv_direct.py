"""One message from one GPU to another."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts

__all__ = ["FLOWS", "LATENCY", "send_recv_direct", "sent_bytes"]

LATENCY = "ring"

FLOWS = "pairs"


def send_recv_direct(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of one message: alpha + n beta, between nodes if there are several.

    Parameters
    ----------
    size_bytes : n, the message [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = send_recv_direct(1e6, Hops.flat(2, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (10, 1000)

    References
    ----------
    Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel
    Computing 1994, equation 1.
    """
    if hops.ranks == 1:
        return Parts(0.0, 0.0 * size_bytes)
    if hops.nodes > 1:
        return Parts(hops.alpha_inter_s, size_bytes * hops.beta_nic_s_per_byte)
    return Parts(hops.alpha_intra_s, size_bytes * hops.beta_intra_s_per_byte)


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what the sender sends: n, or 0 where there is nobody to send to [B]."""
    return size_bytes if hops.ranks > 1 else 0.0 * size_bytes
