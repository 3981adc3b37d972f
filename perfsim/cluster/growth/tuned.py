"""NCCL's all-reduce that grows: ring and tree, each by its own law, where its tuner takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfsim.cluster.growth.choice import CHANNELS, Label, TunedChoice, bus_bandwidth
from perfsim.cluster.growth.lines import look
from perfsim.cluster.growth.reach import reach
from perfsim.cluster.growth.ring import step
from perfsim.cluster.measured import Curve

__all__ = ["TunedAllReduce", "wire_bytes"]

LEAST_S = 1e-6
"""No level of a tree between nodes was ever measured faster; it keeps logarithms finite."""

PIPELINED = 0.5
"""How a tree level's time grows beyond what was measured: as the root of n, the optimum of a
pipeline (Chan et al. 2007: chunks c = sqrt((P-2) n beta / alpha), time 2 sqrt(alpha n beta))."""

FULL_BYTES = CHANNELS * 4194304.0
"""A message of which every channel's buffer of 4 MiB (NCCL_BUFFSIZE) is full: what is beyond it
streams behind, at the wire's rate, and makes no level longer."""


def wire_bytes(nodes: int, size_bytes: float) -> float:
    """Return what the busiest node's NICs carry each way for a double binary tree [B].

    Two nodes: each tree is one edge, n / 2 up and n / 2 down, n together. More: an inner node has
    two children and a parent in one tree and is a leaf in the other, 2 n together.

    Examples
    --------
    >>> wire_bytes(2, 1e6), wire_bytes(8, 1e6)
    (1000000.0, 2000000.0)
    """
    return size_bytes * (1.0 if nodes == 2 else 2.0)


class TunedAllReduce:
    """All-reduce of a cluster measured at some numbers of nodes, at any larger or other number.

    Each measured time goes to the label that NCCL's tuner takes there. A ring gives the time of a
    step by its message n / P; a tree the time of a level, (T - call - wire) / log2 N, by n. The
    time at another number of nodes puts 2 (P-1) steps or log2 N levels together, weighed by how
    likely the tuner takes each.

    Parameters
    ----------
    curves : all-reduces on two or more nodes, all with the same GPUs a node
    choice : the cluster's tuner
    call_s : what a call costs without any hop between nodes [s]
    """

    def __init__(self, curves: Sequence[Curve], choice: TunedChoice, call_s: float) -> None:
        self.curves = sorted(curves, key=lambda curve: curve.nodes)
        self.choice, self.call_s = choice, call_s
        # A tuner of an earlier fit may stand for less than these curves show the wire to carry.
        shown = bus_bandwidth(self.curves, choice.two_nodes > 1.0)
        self.wire_s_per_byte = 1e-9 / max(choice.bus_bandwidth, shown)
        self.points: dict[Label, dict[int, list[tuple[float, float]]]] = {}
        for curve in self.curves:
            for size, label in zip(curve.size_bytes, choice.labels(curve), strict=True):
                of_label = self.points.setdefault(label, {}).setdefault(curve.nodes, [])
                if label[0] == "ring":
                    cost = step(curve, size, call_s)
                    of_label.append((math.log(size / curve.ranks), math.log(cost)))
                else:
                    of_label.append((math.log(size), math.log(self._level(curve, size))))

    def seconds(self, ranks: int, nodes: int, size_bytes: float) -> float:
        """Return the time over ``ranks`` on ``nodes`` [s]."""
        weights = self.choice.weights(ranks, nodes, size_bytes)
        mean = 0.0
        for label, weight in weights.items():
            one = self._ring if label[0] == "ring" else self._tree
            mean += weight * math.log(one(label, ranks, nodes, size_bytes))
        return math.exp(mean)

    def _ring(self, label: Label, ranks: int, nodes: int, size_bytes: float) -> float:
        steps = 2.0 * (ranks - 1)
        found = self._look(label, size_bytes / ranks, 1.0, self.wire_s_per_byte)
        if found is None:
            last = self.curves[-1]
            found = math.log(step(last, size_bytes * last.ranks / ranks, self.call_s))
        wire_s = steps / ranks * size_bytes * self.wire_s_per_byte
        return self.call_s + max(steps * math.exp(found), wire_s)

    def _tree(self, label: Label, ranks: int, nodes: int, size_bytes: float) -> float:
        # Where the curve shows no tree, what it shows is still an upper bound of a level.
        level = math.log(self._level(self.curves[-1], size_bytes))
        shown = (line[-1][0] for line in self.points.get(label, {}).values())
        full = max(FULL_BYTES, *map(math.exp, shown), 0.0)
        found = self._look(label, min(size_bytes, full), PIPELINED, 0.0)
        if found is not None:
            level = min(level, found)
        wire_s = wire_bytes(nodes, size_bytes) * self.wire_s_per_byte
        return self.call_s + wire_s + math.log2(nodes) * math.exp(level)

    def _level(self, curve: Curve, size_bytes: float) -> float:
        wire_s = wire_bytes(curve.nodes, size_bytes) * self.wire_s_per_byte
        rest_s = reach(curve, size_bytes) - self.call_s - wire_s
        return max(rest_s / math.log2(curve.nodes), LEAST_S)

    def _look(
        self, label: Label, size_bytes: float, slope: float, wire_s_per_byte: float
    ) -> float | None:
        """Return the log of a label's cost, of a step or a level; see `look`."""
        other = (label[0], "simple" if label[1] == "low_latency" else "low_latency")
        own, others = self.points.get(label, {}), self.points.get(other, {})
        return look(own, others, math.log(size_bytes), slope, wire_s_per_byte)
