"""Pairwise all-to-all: in each step every rank exchanges a block with another partner."""

from __future__ import annotations

from perfsim.collectives.hops import Hops, Parts

__all__ = ["BLOCKS", "FLOWS", "LATENCY", "all_to_all_pairwise", "sent_bytes"]

LATENCY = "ring"

FLOWS = "all_to_all"

BLOCKS = True


def all_to_all_pairwise(size_bytes: float, hops: Hops) -> Parts:
    """Return the time of P-1 exchanges of n/P.

    (P-1) alpha + (P-1)/P n beta. On unequal hops P-g of a GPU's P-1 partners stand on other nodes:
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


def sent_bytes(size_bytes: float, hops: Hops) -> float:
    """Return what each GPU sends: (P-1)/P n [B]."""
    return (hops.ranks - 1) / hops.ranks * size_bytes
