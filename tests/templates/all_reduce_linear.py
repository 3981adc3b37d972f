"""Linear all-reduce, an algorithm to start from: all send to one rank, which sends to all."""

from __future__ import annotations

from perfsim.collectives import Hops, Parts, algorithm

__all__ = ["all_reduce_linear", "linear_sent_bytes"]


def linear_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what a GPU sends, mean over ranks: P-1 send n, and the one sends n to each [B].

    Examples
    --------
    >>> linear_sent_bytes(1000.0, Hops.flat(4, 1e-5, 1e-9))
    1500.0
    """
    return 2.0 * (hops.ranks - 1) / hops.ranks * size_bytes


@algorithm(
    "all_reduce",
    "linear",
    latency="ring",  # the latency curve of a link that its hops follow; "tree" for short messages
    automatic=False,  # only where it is named: no library takes it for large messages
    sent_bytes=linear_sent_bytes,
)
def all_reduce_linear(size_bytes: float, hops: Hops) -> Parts:
    """Price a linear all-reduce.

    2 (P-1) (alpha + n beta) + (P-1) n gamma: one rank receives from the others in turn, g - 1 of
    its own node and P - g of other nodes, adds, and sends to each in turn.

    Parameters
    ----------
    size_bytes : n, the buffer of one rank [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_reduce_linear(1e6, Hops.flat(4, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (60, 6000)

    References
    ----------
    Open MPI, ompi/mca/coll/base/coll_base_allreduce.c, ``allreduce_intra_basic_linear``.
    """
    near, far = hops.gpus_per_node - 1, hops.ranks - hops.gpus_per_node
    latency_s = near * hops.alpha_intra_s + far * hops.alpha_inter_s
    wires = near * hops.beta_intra_s_per_byte + far * hops.beta_nic_s_per_byte
    sums = (hops.ranks - 1) * hops.gamma_s_per_byte
    return Parts(2.0 * latency_s, size_bytes * (2.0 * wires + sums))
