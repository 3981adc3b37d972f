"""All-to-all that grows: every rank exchanges a block with every rank of the other nodes."""

from __future__ import annotations

from perfsim.cluster.growth.reach import reach
from perfsim.cluster.measured import Curve

__all__ = ["exchange"]


def exchange(
    curve: Curve, size_bytes: float, ranks: int, gpus_per_node: int, call_s: float
) -> float:
    """Return the time of an all-to-all over more nodes [s].

    call + (P'-g) e(n / P'), where e(m) is what one of the P-g peers on other nodes cost at
    n = m P, (T(n) - call) / (P-g). On one node peers are all others, P-1.

    Parameters
    ----------
    curve : an all_to_all measured over P ranks, g a node
    size_bytes : n, what one rank sends in all
    ranks, gpus_per_node : P' and g
    call_s : what the call costs without any peer [s]

    Notes
    -----
    Blocks to GPUs of the same node cross no NIC and hide behind those that do. On Polaris over
    TCP small messages take 77 us on 8 ranks, 441 us on 32 and 8.24 ms on 512: 16 us a peer.

    Examples
    --------
    >>> curve = Curve("all_to_all", 4, 2, 2, (1e3, 1e6), (1e-5, 1e-3), "measured", "x")
    >>> round(exchange(curve, 2e6, 8, 2, 0.0) * 1e6)  # six peers of a quarter megabyte
    3000
    """
    before = _peers(curve.ranks, curve.nodes, curve.gpus_per_node)
    after = ranks - (gpus_per_node if curve.nodes > 1 else 1)
    whole = size_bytes * curve.ranks / ranks
    return call_s + after / before * max(reach(curve, whole) - call_s, 0.0)


def _peers(ranks: int, nodes: int, gpus_per_node: int) -> int:
    return ranks - (gpus_per_node if nodes > 1 else 1)
