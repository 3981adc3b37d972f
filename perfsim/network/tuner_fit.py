"""NCCL's choice among ring and tree on a cluster, its unknown switches set by measured curves."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from perfsim.libraries.nccl_figures import figures
from perfsim.libraries.nccl_record import VersionFigures
from perfsim.libraries.nccl_tuner import NcclTuner
from perfsim.network.measured import CollectiveCurve

__all__ = [
    "LABELS",
    "Communicator",
    "Label",
    "TunedChoice",
    "bus_bandwidth",
    "communicator",
    "figures_of",
    "tune",
]

USUAL_VERSION = "2.21.5"
"""Where no version is stated: the last with the figures of 2.19 to 2.22, the middle of our data."""

FIRST_TUNED = (2, 4)

FIRST_FIGURES = "2.5.6"
"""NCCL 2.4 has no figures a hop; the first that has them."""

GENERATIONS = (
    ("blackwell", r"\b(G?B[23]00|RTX PRO 6000)\b"),
    ("hopper", r"\b(G?H[128]00|GH200)\b"),
    ("ada", r"\b(RTX ?40\d\d|4090|L40S?|L4)\b"),
    ("ampere_rtx", r"\b(RTX ?30\d\d|3090|A40|A10G?|RTX A\d000)\b"),
    ("ampere", r"\bA[138]00\b"),
    ("turing", r"\b(T4|RTX ?20\d\d|2080)\b"),
    ("volta", r"\bV100\b"),
    ("pascal", r"\bP(100|40|102)\b"),
    ("kepler", r"\bK80\b"),
)


@dataclass(frozen=True, slots=True)
class Communicator:
    """NCCL's version, the generation of the GPUs, and the links inside a node."""

    version: str
    architecture: str
    intra: str


def communicator(curve: CollectiveCurve) -> Communicator:
    """Return version, GPU generation and intra-node links of a curve, as far as it states them.

    Unstated are taken: version 2.21.5, ampere, nvlink (pci for GPUs without NVLink). Versions
    before 2.4 are taken as 2.4.

    Examples
    --------
    >>> curve = CollectiveCurve("all_reduce", 8, 2, 4, (8.0,), (1e-5,), "measured", "x", gpu="GH200 120GB")
    >>> communicator(curve)
    Communicator(version='2.21.5', architecture='hopper', intra='nvlink')
    """
    found = re.match(r"v?(\d+)\.(\d+)", curve.version)
    version = USUAL_VERSION
    if found:
        number = int(found[1]), int(found[2])
        version = curve.version if number >= FIRST_TUNED else "2.4.8"
    words = f"{curve.gpu} {curve.fabric}"
    generation = next(
        (name for name, pattern in GENERATIONS if re.search(pattern, words, re.IGNORECASE)),
        "ampere",
    )
    inside = curve.fabric.partition("inter-node")[0] or words
    without = generation in ("turing", "ada", "ampere_rtx", "pascal", "kepler")
    slot = re.search(r"PCI", f"{curve.gpu} {inside}", re.IGNORECASE)
    link = re.search(r"NVLink|NVSwitch", inside, re.IGNORECASE)
    pci = bool(slot or without) and not link
    return Communicator(version, generation, "pci" if pci else "nvlink")


def figures_of(of: Communicator) -> tuple[str, VersionFigures]:
    """Return the figures of NCCL's tuner for a communicator, and the version that they are of.

    Examples
    --------
    >>> figures_of(Communicator("2.4.8", "volta", "nvlink"))[0]
    '2.5.6'
    """
    version = FIRST_FIGURES if of.version.startswith("2.4") else of.version
    return version, figures(version)


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


@lru_cache(maxsize=256)  # of numbers alone: it cannot go stale
def _tuner(
    of: Communicator, ranks: int, nodes: int, rate: float, near_nic: bool, plain_tree: bool
) -> NcclTuner:
    return NcclTuner(
        of.version,
        ranks,
        nodes,
        of.architecture,
        "intel",
        of.intra,
        rate,
        CHANNELS,
        near_nic=near_nic,
        plain_tree=plain_tree,
    )


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

    @property
    def seconds_per_byte(self) -> float:
        """What a byte of a ring costs on the busiest link, 1 / bus bandwidth [s/B]."""
        return 1e-9 / self.bus_bandwidth

    def tuner(self, ranks: int, nodes: int, searched: float = 1.0) -> NcclTuner:
        """Return the tuner of a communicator whose search found ``searched`` times the rate."""
        rate = self.bus_bandwidth * searched * (self.two_nodes if nodes == 2 else 1.0)
        return _tuner(self.of, ranks, nodes, rate, self.near_nic, self.plain_tree)

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

    def labels(self, curve: CollectiveCurve) -> list[Label]:
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


def tune(curves: Sequence[CollectiveCurve]) -> TunedChoice:
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


def bus_bandwidth(curves: Sequence[CollectiveCurve], tree_on_two: bool) -> float:
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


def _penalty(choice: TunedChoice, curve: CollectiveCurve) -> float:
    penalty = 0.0
    sizes = curve.size_bytes
    pairs = [choice.tuner(curve.ranks, curve.nodes).choose("all_reduce", size) for size in sizes]
    for place in range(1, len(sizes)):
        if pairs[place][:2] != pairs[place - 1][:2]:
            penalty += SWITCH
            continue
        penalty += _step(curve, place)
    return penalty


def _step(curve: CollectiveCurve, place: int) -> float:
    """Return how far a curve's log slope up to a point is from what one algorithm can do."""
    sizes, seconds = curve.size_bytes, curve.seconds
    rise = math.log(seconds[place] / seconds[place - 1])
    slope = rise / math.log(sizes[place] / sizes[place - 1])
    return max(0.0, slope - STEEP) ** 2 + max(0.0, -slope - FALLING) ** 2


def _near(curve: CollectiveCurve, place: int) -> bool:
    """Whether the size after a place is at most twice it."""
    return curve.size_bytes[place + 1] <= 2.0 * curve.size_bytes[place]
