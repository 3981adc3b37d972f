"""Messages between pairs: all-to-all (every rank to every other) and send-recv (one to one)."""

from __future__ import annotations

from perfsim.collectives import Hops, Parts, algorithm
from perfsim.collectives.all_gather import bruck_rounds
from perfsim.collectives.hops import ceil_log2, other_blocks_bytes

__all__ = ["all_to_all_bruck", "all_to_all_pairwise", "send_recv_direct"]


@algorithm("all_to_all", "pairwise", flows="all_to_all", blocks=True, sent_bytes=other_blocks_bytes)
def all_to_all_pairwise(size_bytes: float, hops: Hops) -> Parts:
    """Price a pairwise all-to-all: in each step every rank swaps a block with another partner.

    (P-1) alpha + (P-1)/P n beta. On unequal hops P-g of a GPU's P-1 partners are on other nodes:
    (P-g) alpha_inter + (g-1) alpha_intra + g (P-g)/P n beta_nic + (g-1)/P n beta_intra, as the g
    GPUs of a node share its NICs.

    Parameters
    ----------
    size_bytes : n, what each rank sends in all, P blocks of n/P (its own stays) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> hops = Hops(8, 2, 4, 1e-6, 1e-5, 1e-9, 1e-9, 1e-10, 1e-9)
    >>> parts = all_to_all_pairwise(8e5, hops)
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (43, 1630)

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.4 (pairwise exchange); NCCL sends each
    block as one send and one receive.
    """
    ranks, inside = hops.ranks, hops.gpus_per_node
    far, near = ranks - inside, inside - 1
    latency_s = far * hops.alpha_inter_s + near * hops.alpha_intra_s
    beta = inside * far * hops.beta_nic_s_per_byte + near * hops.beta_intra_s_per_byte
    return Parts(latency_s, size_bytes / ranks * beta)


def bruck_sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: ceil(log2 P) n/2 [B]."""
    return ceil_log2(hops.ranks) * size_bytes / 2.0


@algorithm(
    "all_to_all",
    "bruck",
    latency="tree",
    flows="bruck_exchange",
    automatic=False,  # Open MPI takes it for small messages; NCCL has no such algorithm
    sent_bytes=bruck_sent_bytes,
)
def all_to_all_bruck(size_bytes: float, hops: Hops) -> Parts:
    """Price Bruck's all-to-all: in each round half of all blocks moves, twice as far.

    ceil(log2 P) (alpha + n/2 beta). In round k each rank sends half of its blocks to the rank 2^k
    before it.

    Parameters
    ----------
    size_bytes : n, what each rank sends in all, P blocks of n/P (its own stays) [B]
    hops : ranks, nodes and the cost of their hops

    Examples
    --------
    >>> parts = all_to_all_bruck(1e6, Hops.flat(8, alpha_s=1e-5, beta_s_per_byte=1e-9))
    >>> round(parts.latency_s * 1e6), round(parts.transfer_s * 1e6)
    (30, 1500)

    References
    ----------
    Bruck et al., Efficient algorithms for all-to-all communications in multiport message-passing
    systems, IEEE TPDS 1997; Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.4.
    """
    distances = [2**k for k in range(ceil_log2(hops.ranks))]
    return bruck_rounds(size_bytes, [0.5] * len(distances), distances, hops)


def message_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what the sender sends: n [B]."""
    return size_bytes


@algorithm("send_recv", "direct", flows="pairs", one_rank=True, sent_bytes=message_bytes)
def send_recv_direct(size_bytes: float, hops: Hops) -> Parts:
    """Price one message from one GPU to another, on another node if there are several.

    alpha + n beta, beta that of one NIC: whoever calls this gives `Hops` of the one NIC that a rank
    sends through (`Algorithm.one_rank`).

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
    if hops.nodes > 1:
        return Parts(hops.alpha_inter_s, size_bytes * hops.beta_nic_s_per_byte)
    return Parts(hops.alpha_intra_s, size_bytes * hops.beta_intra_s_per_byte)
