"""NCCL's choice among ring and tree on a cluster, its unknown switches set by measured curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from perfsim.cluster.growth.communicator import Communicator, communicator
from perfsim.cluster.measured import Curve
from perfsim.library.nccl_tuner import NcclTuner

__all__ = ["LABELS", "Label", "TunedChoice", "bus_bandwidth", "tune"]

Label = tuple[str, str]
"""Algorithm (ring or tree) and kind of protocol (low_latency for LL and LL128, or simple)."""

LABELS: tuple[Label, ...] = tuple(product(("ring", "tree"), ("low_latency", "simple")))

CHANNELS = 16
"""Channels that the bandwidth is spread over: enough for no cap a channel to bind."""

SEARCHED = (0.8, 1.0, 1.25)
"""Bandwidths that the search may have found, over the measured: a step of its grid either way."""

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
    _tuners: dict[tuple[int, int, float], NcclTuner] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def seconds_per_byte(self) -> float:
        """What a byte of a ring costs on the busiest link, 1 / bus bandwidth [s/B]."""
        return 1e-9 / self.bus_bandwidth

    def tuner(self, ranks: int, nodes: int, searched: float = 1.0) -> NcclTuner:
        """Return the tuner of a communicator whose search found ``searched`` times the rate."""
        key = ranks, nodes, searched
        found = self._tuners.get(key)
        if found is None:
            rate = self.bus_bandwidth * searched * (self.two_nodes if nodes == 2 else 1.0)
            found = self._tuners[key] = NcclTuner(
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

        The tuner is exact, the bandwidth that it was given is not: the share of `SEARCHED`.
        """
        found: dict[Label, float] = {}
        for searched in SEARCHED:
            tuner = self.tuner(ranks, nodes, searched)
            label = _label(tuner.choose("all_reduce", size_bytes)[:2])
            found[label] = found.get(label, 0.0) + 1.0 / len(SEARCHED)
        return found

    def label(self, ranks: int, nodes: int, size_bytes: float) -> Label:
        """Return what the tuner takes."""
        return _label(self.tuner(ranks, nodes).choose("all_reduce", size_bytes)[:2])

    def labels(self, curve: Curve) -> list[Label]:
        """Return what serves each size of a measured curve.

        Where the tuner switches one size, at most twofold, off a step that no single algorithm
        makes, the curve is right: the bandwidth that the search found is known no better.
        """
        taken = [self.label(curve.ranks, curve.nodes, size) for size in curve.size_bytes]
        found = list(taken)
        for place in range(1, len(taken)):
            if taken[place] == taken[place - 1]:
                continue
            steps = {place: _step(curve, place) + SWITCH}
            for other in (place - 1, place + 1):
                nearby = other in range(1, len(taken)) and taken[other] == taken[other - 1]
                if nearby and _near(curve, min(place, other)):
                    steps[other] = _step(curve, other)
            best = max(steps, key=lambda at: steps[at])
            if best < place:
                found[best] = taken[place]
            elif best > place:
                found[place] = taken[place - 1]
        return found


def _label(pair: tuple[str, str]) -> Label:
    return pair[0], "simple" if pair[1] == "simple" else "low_latency"


def tune(curves: Sequence[Curve]) -> TunedChoice:
    """Return the tuner whose choices explain the steps of measured all-reduces best.

    A curve does not tell what the topology search found. Its bandwidth between nodes is taken
    from the largest messages (of a tree on two nodes every node's NIC carries n, so the bus
    bandwidth there is not the ring's). Three switches are set so that, within what one algorithm
    serves, time neither falls nor grows faster than the size: whether two nodes have twice the
    bandwidth (the search takes the intra-node rate there), whether the tree has the plain
    pattern, and whether LL128 serves between nodes.
    """
    of = communicator(curves[-1])
    hopper = of.architecture in ("hopper", "blackwell")
    best: tuple[float, TunedChoice] | None = None
    for two_nodes, plain, near in product((1.0, 2.0), (False, True), (False, True)):
        rate = bus_bandwidth(curves, two_nodes > 1.0)
        choice = TunedChoice(of, rate, two_nodes, plain, near)
        penalty = UNUSUAL * ((two_nodes > 1.0) != hopper) + UNUSUAL * plain + UNUSUAL * near
        penalty += sum(_penalty(choice, curve) for curve in curves)
        if best is None or penalty < best[0]:
            best = penalty, choice
    assert best is not None
    return best[1]


def bus_bandwidth(curves: Sequence[Curve], tree_on_two: bool) -> float:
    """Return the ring's bus bandwidth between nodes [GB/s].

    The best among messages down to a sixteenth of the largest, of the most nodes: a wire carries
    at least what it was seen to carry, and one slow message says nothing of it.
    """
    more = [curve for curve in curves if curve.nodes > 2]
    curve = max(more or curves, key=lambda one: one.nodes)
    bytes_a_second = max(size / seconds for size, seconds in curve.large())
    on_two = curve.nodes == 2 and tree_on_two and curve.gpus_per_node > 1
    factor = 1.0 if on_two else 2.0 * (curve.ranks - 1) / curve.ranks
    return factor * bytes_a_second / 1e9


def _penalty(choice: TunedChoice, curve: Curve) -> float:
    penalty = 0.0
    sizes = curve.size_bytes
    pairs = [choice.tuner(curve.ranks, curve.nodes).choose("all_reduce", size) for size in sizes]
    for place in range(1, len(sizes)):
        if pairs[place][:2] != pairs[place - 1][:2]:
            penalty += SWITCH
            continue
        penalty += _step(curve, place)
    return penalty


def _step(curve: Curve, place: int) -> float:
    """Return how far a curve's log slope up to a point is from what one algorithm can do."""
    sizes, seconds = curve.size_bytes, curve.seconds
    rise = math.log(seconds[place] / seconds[place - 1])
    slope = rise / math.log(sizes[place] / sizes[place - 1])
    return max(0.0, slope - STEEP) ** 2 + max(0.0, -slope - FALLING) ** 2


def _near(curve: Curve, place: int) -> bool:
    """Whether the size after a place is at most twice it."""
    return curve.size_bytes[place + 1] <= 2.0 * curve.size_bytes[place]
