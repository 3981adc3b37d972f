"""NCCL's choice among ring and tree on a cluster, its unknown switches set by measured curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from perfsim.cluster.growth.communicator import Communicator, communicator
from perfsim.cluster.measured import Curve
from perfsim.library.nccl_tuner import NcclTuner

__all__ = ["LABELS", "Label", "TunedChoice", "tune"]

Label = tuple[str, str]
"""Algorithm (ring or tree) and kind of protocol (low_latency for LL and LL128, or simple)."""

PAIRS = (
    ("ring", "ll"),
    ("ring", "ll128"),
    ("ring", "simple"),
    ("tree", "ll"),
    ("tree", "ll128"),
    ("tree", "simple"),
)
LABELS: tuple[Label, ...] = tuple(
    (algorithm, "simple" if protocol == "simple" else "low_latency")
    for algorithm, protocol in PAIRS
)

CHANNELS = 16
"""Channels that the bandwidth is spread over: enough for no cap a channel to bind."""

SHARPNESS = 8.0
"""Exponent of the weight of a pair, (least time / its time)^8: 10 % slower counts half."""

STEEP = 1.05
"""Log slope that no single algorithm exceeds: time grows at most with the size."""
FALLING = 0.05
"""Log slope by which one algorithm may fall: noise."""
SWITCH = 0.05
"""What a switch costs in the penalty, so that a step is not explained by a switch a point."""
UNUSUAL = 0.02
"""What a switch setting off NCCL's usual one costs: it must be told by the curve."""


@dataclass(frozen=True)
class TunedChoice:
    """NCCL's tuner on one cluster.

    ``bus_bandwidth`` in GB/s between nodes; ``two_nodes`` is what the topology search finds on two
    nodes over what it finds on more; ``plain_tree`` and ``near_nic`` as in `NcclTuner`.
    """

    of: Communicator
    bus_bandwidth: float
    two_nodes: float
    plain_tree: bool
    near_nic: bool
    _tuners: dict[tuple[int, int], NcclTuner] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def seconds_per_byte(self) -> float:
        """What a byte of a ring costs on the busiest link, 1 / bus bandwidth [s/B]."""
        return 1e-9 / self.bus_bandwidth

    def tuner(self, ranks: int, nodes: int) -> NcclTuner:
        """Return the tuner of a communicator."""
        found = self._tuners.get((ranks, nodes))
        if found is None:
            rate = self.bus_bandwidth * (self.two_nodes if nodes == 2 else 1.0)
            found = self._tuners[ranks, nodes] = NcclTuner(
                self.of.version,
                ranks,
                nodes,
                self.of.architecture,
                "intel",
                self.of.intra,
                rate,
                CHANNELS,
                near_nic=self.near_nic,
                plain_tree=self.plain_tree,
            )
        return found

    def weights(self, ranks: int, nodes: int, size_bytes: float) -> dict[Label, float]:
        """Return how likely each label serves an all-reduce; they sum to 1.

        The tuner's own times are uncertain by some 10 %, so near a switch both sides count.
        """
        if self.of.version.startswith("2.4"):
            return {self.label(ranks, nodes, size_bytes): 1.0}
        tuner = self.tuner(ranks, nodes)
        times = [tuner.time("all_reduce", *pair, size_bytes) for pair in PAIRS]
        least = min(time_s for time_s in times if time_s is not None)
        found: dict[Label, float] = {}
        for label, time_s in zip(LABELS, times, strict=True):
            if time_s is not None:
                weight = (least / time_s) ** SHARPNESS
                found[label] = max(found.get(label, 0.0), weight)
        total = sum(found.values())
        return {label: weight / total for label, weight in found.items()}

    def label(self, ranks: int, nodes: int, size_bytes: float) -> Label:
        """Return what the tuner takes."""
        return _label(self.tuner(ranks, nodes).choose("all_reduce", size_bytes)[:2])


def _label(pair: tuple[str, str]) -> Label:
    return pair[0], "simple" if pair[1] == "simple" else "low_latency"


def tune(curves: Sequence[Curve]) -> TunedChoice:
    """Return the tuner whose choices explain the steps of measured all-reduces best.

    A curve does not tell what the topology search found. Its bandwidth between nodes is taken
    from the largest message (of a tree on two nodes every node's NIC carries n, so the bus
    bandwidth there is not the ring's). Three switches are set so that, within what one algorithm
    serves, time neither falls nor grows faster than the size: whether two nodes have twice the
    bandwidth (the search takes the intra-node rate there), whether the tree has the plain
    pattern, and whether LL128 serves between nodes.
    """
    of = communicator(curves[-1])
    hopper = of.architecture in ("hopper", "blackwell")
    best: tuple[float, TunedChoice] | None = None
    for two_nodes, plain, near in product((1.0, 2.0), (False, True), (False, True)):
        rate = _bus_bandwidth(curves, two_nodes > 1.0)
        choice = TunedChoice(of, rate, two_nodes, plain, near)
        penalty = UNUSUAL * ((two_nodes > 1.0) != hopper) + UNUSUAL * plain + UNUSUAL * near
        penalty += sum(_penalty(choice, curve) for curve in curves)
        if best is None or penalty < best[0]:
            best = penalty, choice
    assert best is not None
    return best[1]


def _bus_bandwidth(curves: Sequence[Curve], tree_on_two: bool) -> float:
    """Return the ring's bus bandwidth between nodes [GB/s], from the largest messages."""
    more = [curve for curve in curves if curve.nodes > 2]
    curve = max(more or curves, key=lambda one: one.nodes)
    bytes_a_second = curve.size_bytes[-1] / curve.seconds[-1]
    on_two = curve.nodes == 2 and tree_on_two and curve.gpus_per_node > 1
    factor = 1.0 if on_two else 2.0 * (curve.ranks - 1) / curve.ranks
    return factor * bytes_a_second / 1e9


def _penalty(choice: TunedChoice, curve: Curve) -> float:
    penalty = 0.0
    sizes, seconds = curve.size_bytes, curve.seconds
    pairs = [choice.tuner(curve.ranks, curve.nodes).choose("all_reduce", size) for size in sizes]
    for place in range(1, len(sizes)):
        if pairs[place][:2] != pairs[place - 1][:2]:
            penalty += SWITCH
            continue
        rise = math.log(seconds[place] / seconds[place - 1])
        slope = rise / math.log(sizes[place] / sizes[place - 1])
        penalty += max(0.0, slope - STEEP) ** 2 + max(0.0, -slope - FALLING) ** 2
    return penalty
