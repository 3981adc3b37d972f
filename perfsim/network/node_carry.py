"""An all-reduce of two nodes carried to more, where the nodes' switches add (NVLSTree).

On two nodes NVLSTree sends each byte once through the NICs, on more nearly twice. So a curve of two
nodes may show what NVLink allows, and says little of the NICs: two times 8 H100 reach 470 GB/s
where the NICs of a node have 400, and 316 to 387 GB/s on more nodes. The law of the node type
(`NodeLaw`) knows both regimes. What the curve has over it on two nodes is carried: as a level for
small and for large messages, and between sizes as a bump of bounded height.
"""

from __future__ import annotations

from math import exp, log
from statistics import median

from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import NodeFacts, NodeLaw

__all__ = ["carried_seconds", "carries"]

_SMALL_BYTES = 2.0**14
_LARGE_BYTES = 2.0**23
"""Messages up to the one and from the other show a latency and a rate; TRIALS of 2026, section
2.2."""
_BUMP = (-0.3, 0.4)
"""How far, in ln, a size may stand out of the level and be carried so: an odd hump of two nodes
(Alps at 512 KiB: 9 times the law on 2 nodes, 1.0 times on 16) is not one of more nodes."""
_HELD = ("", "nvls", "nvlstree", "nvls_tree")
"""What a run may have been held to."""


def carries(facts: NodeFacts | None, last: CollectiveCurve, nodes: int) -> bool:
    """Tell whether the law of the node type carries a curve on, rather than the curve's growth."""
    if facts is None or not facts.nvls or last.collective != "all_reduce":
        return False
    return last.nodes == 2 and nodes > 2 and last.algorithm in _HELD


def carried_seconds(
    law: NodeLaw, facts: NodeFacts, last: CollectiveCurve, nodes: int, size_bytes: float
) -> float:
    """Return the time of an all-reduce on more nodes than a curve of two [s].

    Parameters
    ----------
    last : the curve of two nodes
    nodes : on how many as many GPUs each take part
    """
    held = "nvls" if last.algorithm else ""

    def modelled_s(count: int, size: float) -> float:
        ranks = count * last.gpus_per_node
        call = law.call(facts, "all_reduce", ranks, count, size, held)
        assert call is not None
        return call.seconds

    over = [
        (size, log(seconds / modelled_s(2, size)))
        for size, seconds in zip(last.size_bytes, last.seconds, strict=True)
    ]
    level = _level(over, size_bytes)
    inside = min(max(size_bytes, last.size_bytes[0]), last.size_bytes[-1])
    bump = log(last.at(inside) / modelled_s(2, inside)) - _level(over, inside)
    carried_s = modelled_s(nodes, size_bytes) * exp(level + min(max(bump, _BUMP[0]), _BUMP[1]))
    ranks = nodes * last.gpus_per_node
    return max(carried_s, law.least_s(facts, "all_reduce", ranks, nodes, size_bytes))


def _level(over: list[tuple[float, float]], size_bytes: float) -> float:
    """Return what a curve has over the law, in ln: straight in ln size from small to large."""
    small = [more for size, more in over if size <= _SMALL_BYTES]
    large = [more for size, more in over if size >= _LARGE_BYTES]
    if not small or not large:
        return median(small or large or [more for _, more in over])
    share = log(size_bytes / _SMALL_BYTES) / log(_LARGE_BYTES / _SMALL_BYTES)
    share = min(max(share, 0.0), 1.0)
    return (1.0 - share) * median(small) + share * median(large)
