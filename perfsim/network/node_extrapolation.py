"""Extrapolating measured collectives to more nodes, with what the data sheet of the nodes says.

`ScalingLaw` knows what was measured, `NodeLaw` what the nodes can. Where their switches add
(NVLSTree), each byte crosses the NICs once on two nodes, and nearly twice on more. So a curve of
two nodes may show what NVLink allows, and says little of the NICs: two times 8 H100 reach 470 GB/s
where the NICs of a node have 400, and 316 to 387 GB/s on more nodes. The law of the node type knows
both regimes and extrapolates such a curve alone.

What a curve has over the law of the node type on two nodes is kept: as a level for small and for
large messages, and between sizes as a bump of bounded height. Other curves grow by their own law: a
part of the node type's in it is nearer for Alps and Polaris, and further for p3dn and B200. No time
is below what the NICs' data sheet allows.
"""

from __future__ import annotations

from math import exp, log
from statistics import median
from typing import NamedTuple

from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import IN_NETWORK, NodeFacts, NodeLaw, held_as
from perfsim.network.scaling_laws import ScalingLaw

__all__ = ["ExtrapolatedTime", "extrapolate_nodes", "extrapolated_seconds", "law_extrapolates"]

_SMALL_BYTES = 2.0**14
_LARGE_BYTES = 2.0**23
"""Messages up to the one and from the other show a latency and a rate; TRIALS of 2026, section
2.2. Half or twice as much moves no error by over 0.2 points."""
_BUMP = (-0.3, 0.4)
"""How far, in ln, a size may stand out of the level and be kept so: an odd hump of two nodes
(Alps at 512 KiB: 9 times the law on 2 nodes, 1.0 times on 16) is not one of more nodes. Half or
twice as much moves errors from two nodes by 0.6 points in the median and 1.2 at the 90th
percentile."""
_HELD = ("", "nvls", "nvls_tree")
"""What a run may have been held to."""


class ExtrapolatedTime(NamedTuple):
    """A time on more nodes [s], and whether the law of the node type alone extrapolated it."""

    seconds: float
    by_node_type: bool


def extrapolate_nodes(
    growth: ScalingLaw,
    facts: NodeFacts | None,
    law: NodeLaw | None,
    nodes: int,
    size_bytes: float,
) -> ExtrapolatedTime:
    """Return the time of a collective on more or fewer nodes than were measured.

    Parameters
    ----------
    growth : the scaling law of what was measured
    facts, law : data sheet of the nodes and the law of node types; None where nobody states them
    nodes : on how many as many GPUs each take part
    """
    last = growth.last
    ranks = nodes * last.gpus_per_node
    if facts is None or law is None:
        return ExtrapolatedTime(growth.seconds(ranks, nodes, size_bytes), False)
    if law_extrapolates(facts, last, nodes):
        return ExtrapolatedTime(extrapolated_seconds(law, facts, last, nodes, size_bytes), True)
    seconds = growth.seconds(ranks, nodes, size_bytes)
    whole = last.library in ("nccl", "rccl") and last.gpus_per_node == facts.gpus
    summed = facts.adds_in_network or held_as(last.algorithm) == IN_NETWORK
    if whole and nodes > last.nodes and not summed:
        seconds = max(seconds, law.least_s(facts, last.collective, ranks, nodes, size_bytes))
    return ExtrapolatedTime(seconds, False)


def law_extrapolates(facts: NodeFacts | None, last: CollectiveCurve, nodes: int) -> bool:
    """Tell whether the law of the node type alone extrapolates a curve."""
    if facts is None or not facts.nvls_tree or last.collective != "all_reduce":
        return False
    return last.nodes == 2 and nodes > 2 and held_as(last.algorithm) in _HELD


def extrapolated_seconds(
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
    extrapolated_s = modelled_s(nodes, size_bytes) * exp(level + min(max(bump, _BUMP[0]), _BUMP[1]))
    ranks = nodes * last.gpus_per_node
    return max(extrapolated_s, law.least_s(facts, "all_reduce", ranks, nodes, size_bytes))


def _level(over: list[tuple[float, float]], size_bytes: float) -> float:
    """Return what a curve has over the law, in ln: straight in ln size from small to large."""
    small = [more for size, more in over if size <= _SMALL_BYTES]
    large = [more for size, more in over if size >= _LARGE_BYTES]
    if not small or not large:
        return median(small or large or [more for _, more in over])
    share = log(size_bytes / _SMALL_BYTES) / log(_LARGE_BYTES / _SMALL_BYTES)
    share = min(max(share, 0.0), 1.0)
    return (1.0 - share) * median(small) + share * median(large)
