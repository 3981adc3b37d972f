"""NCCL's tuner on one cluster: what measured all-reduces tell of its settings.

NCCL picks algorithm and protocol by a model of its own (`perfsim.libraries.nccl`), RCCL by one of
the same form (`perfsim.libraries.rccl`). It asks for figures that a curve does not state: the
bandwidth that the topology search found, and three settings. `fit_tuner` sets them so that the
tuner's switches explain the steps of the curves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from perfsim.libraries.nccl import NcclTuner
from perfsim.libraries.nccl_versions import VersionFigures, version_figures
from perfsim.libraries.rccl import AMD_GENERATIONS, RcclTuner
from perfsim.network.measured import CollectiveCurve
from perfsim.sums import sum_in_order

__all__ = [
    "Communicator",
    "Label",
    "TunedChoice",
    "bus_bandwidth",
    "communicator",
    "fit_tuner",
    "tuner_figures",
]

_ASSUMED_VERSION = "2.21.5"
"""NCCL where a curve states no version.

No source: chosen as the last with the figures of 2.19 to 2.22, the middle of our data."""

_FIRST_TUNED = (2, 4)
"""The first version with trees between nodes, and so with a choice among algorithms."""

_FIRST_FIGURES = "2.5.6"
"""The first version with figures a hop; NCCL 2.4 has none."""

_GENERATIONS = (
    ("blackwell", r"\b(G?B[23]00|GB10|RTX PRO \d{4}|RTX ?50[5-9]0)\b"),
    ("hopper", r"\b(G?H[128]00|GH200|H20)\b"),
    ("ada", r"\b(RTX ?40\d\d|4090|RTX ?\d\d00 ?Ada|L40S?|L20|L4)\b"),
    ("ampere_rtx", r"\b(RTX ?30\d\d|3090|A40|A10G?|RTX A\d000)\b"),
    ("ampere", r"\bA[138]00\b"),
    ("turing", r"\b(T4|RTX ?20\d\d|2080)\b"),
    ("volta", r"\bV100\b"),
    ("pascal", r"\bP(100|40|102)\b"),
    ("kepler", r"\bK80\b"),
    ("cdna4", r"\bMI35\d"),
    ("cdna3", r"\bMI3[0-2]\d"),
    ("cdna2", r"\bMI2\d\d"),
    ("cdna", r"\bMI100\b"),
    ("gcn", r"\bMI(50|60)\b"),
)


class Communicator(NamedTuple):
    """NCCL's version, the generation of the GPUs, and the links inside a node.

    GPUs of AMD run RCCL, whose figures go by the generation; Infinity Fabric counts as nvlink.
    """

    version: str
    architecture: str
    intra: str

    @property
    def library(self) -> str:
        """Whose tuner it is: NCCL's or RCCL's."""
        return "RCCL" if self.architecture in AMD_GENERATIONS else "NCCL"


def communicator(curve: CollectiveCurve) -> Communicator:
    """Return version, GPU generation and intra-node links of a curve, as far as it states them.

    Where it states nothing: version 2.21.5, ampere, and nvlink (pci for GPUs without NVLink).
    Versions before 2.4 count as 2.4.

    Examples
    --------
    >>> shape, points = ("all_reduce", 8, 2, 4), ((8.0,), (1e-5,))
    >>> communicator(CollectiveCurve(*shape, *points, "measured", "x", gpu="GH200 120GB"))
    Communicator(version='2.21.5', architecture='hopper', intra='nvlink')
    """
    stated = re.match(r"v?(\d+)\.(\d+)", curve.version)
    version = _ASSUMED_VERSION
    if stated:
        number = int(stated[1]), int(stated[2])
        version = curve.version if number >= _FIRST_TUNED else "2.4.8"
    words = f"{curve.gpu} {curve.fabric}"
    generation = next(
        (name for name, pattern in _GENERATIONS if re.search(pattern, words, re.IGNORECASE)),
        "ampere",
    )
    inside = curve.fabric.partition("inter-node")[0] or words
    boards = generation in ("turing", "ada", "ampere_rtx", "pascal", "kepler")
    without = boards or re.search(r"\bRTX", curve.gpu, re.IGNORECASE)
    slot = re.search(r"PCI", f"{curve.gpu} {inside}", re.IGNORECASE)
    link = re.search(r"NVLink|NVSwitch", inside, re.IGNORECASE)
    pci = bool(slot or without) and not link
    return Communicator(version, generation, "pci" if pci else "nvlink")


def tuner_figures(of: Communicator) -> tuple[str, VersionFigures]:
    """Return NCCL's figures of a call and a hop, and the version that they are of.

    They serve RCCL too: its own weigh the choice (a hop of Simple rings between nodes of MI300X is
    320 us there), and are no latencies.

    Examples
    --------
    >>> tuner_figures(Communicator("2.4.8", "volta", "nvlink"))[0]
    '2.5.6'
    """
    version = _FIRST_FIGURES if of.version.startswith("2.4") else of.version
    return version, version_figures(version)


Label = tuple[str, str]
"""Algorithm (ring or tree) and kind of protocol (low_latency for LL and LL128, or simple)."""

CHANNELS = 16
"""Channels that the bandwidth is spread over. No source: chosen so that no cap a channel binds."""

_AMD_CPU = "amd"
"""CPU beside AMD's GPUs. No source: what AMD's own servers have."""

_SWITCH_PENALTY = 0.05
"""What a switch of algorithm costs in the fit, so that not every step is explained by one.

No source: chosen; it is a slope 0.22 too steep, squared. Without it the 90th percentile of |ln
of predicted / measured| of times extrapolated to less than a fourth of the nodes is 77 % where it
is 70, and no median moves by over 0.1 points. Half or twice as much: 0.4 points at twice the nodes,
1.1 above 4 MiB there (``profiles/build/growth_errors.py --sensitivity``)."""


@lru_cache(maxsize=256)  # of numbers alone: it cannot go stale
def _tuner(
    of: Communicator, ranks: int, nodes: int, rate: float, near_nic: bool, plain_tree: bool
) -> NcclTuner | RcclTuner:
    if of.library == "RCCL":
        return RcclTuner(of.architecture, ranks, nodes, _AMD_CPU, of.intra, rate)
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


class TunedChoice(NamedTuple):
    """NCCL's tuner on one cluster.

    Parameters
    ----------
    of : version, GPU generation and links
    bus_bandwidth : of a ring between nodes [GB/s]
    two_nodes : what the topology search finds on two nodes over what it finds on more
    plain_tree, near_nic : as in `NcclTuner`
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

    def tuner(self, ranks: int, nodes: int) -> NcclTuner | RcclTuner:
        """Return the tuner of a communicator."""
        rate = self.bus_bandwidth * (self.two_nodes if nodes == 2 else 1.0)
        return _tuner(self.of, ranks, nodes, rate, self.near_nic, self.plain_tree)

    def label(self, ranks: int, nodes: int, size_bytes: float) -> Label:
        """Return what the tuner takes."""
        return _label(self.tuner(ranks, nodes).choose("all_reduce", size_bytes)[:2])

    def labels(self, curve: CollectiveCurve) -> list[Label]:
        """Return what serves each size of a measured curve.

        The curve may show a step that no single algorithm makes one size, at most twofold, away
        from where the tuner switches. Then the curve is right: the bandwidth that the search found
        is known no better.
        """
        taken = [self.label(curve.ranks, curve.nodes, size) for size in curve.size_bytes]
        labels = list(taken)
        for index in range(1, len(taken)):
            if taken[index] == taken[index - 1]:
                continue
            steps = {index: _step(curve, index) + _SWITCH_PENALTY}
            for other in (index - 1, index + 1):
                nearby = other in range(1, len(taken)) and taken[other] == taken[other - 1]
                if nearby and _near(curve, min(index, other)):
                    steps[other] = _step(curve, other)
            best = max(steps, key=lambda index: steps[index])
            if best < index:
                labels[best] = taken[index]
            elif best > index:
                labels[index] = taken[index - 1]
        return labels


def _label(pair: tuple[str, str]) -> Label:
    return pair[0], "simple" if pair[1] == "simple" else "low_latency"


def fit_tuner(curves: Sequence[CollectiveCurve]) -> TunedChoice:
    """Return the tuner whose choices explain the steps of measured all-reduces best.

    The bandwidth between nodes that the topology search found is read from the largest messages.
    In a tree on two nodes every node's NIC carries n, so the bus bandwidth is not the ring's.
    Three settings are chosen so that time, while one algorithm serves, neither falls nor grows
    faster than the size:

    - whether two nodes have twice the bandwidth (the search takes the intra-node rate there);
    - whether the tree has the plain pattern;
    - whether LL128 serves between nodes.

    Of settings that explain the curves alike, the most usual ones are taken.
    """
    of = communicator(curves[-1])
    hopper = of.architecture in ("hopper", "blackwell")
    best: tuple[tuple[float, int], TunedChoice] | None = None
    for two_nodes, plain, near in product((1.0, 2.0), (False, True), (False, True)):
        rate = bus_bandwidth(curves, two_nodes > 1.0)
        choice = TunedChoice(of, rate, two_nodes, plain, near)
        unusual = ((two_nodes > 1.0) != hopper) + plain + near
        penalty = sum_in_order(_penalty(choice, curve) for curve in curves)
        against = round(penalty, 9), unusual
        if best is None or against < best[0]:
            best = against, choice
    assert best is not None
    return best[1]


def bus_bandwidth(curves: Sequence[CollectiveCurve], tree_on_two: bool) -> float:
    """Return the ring's bus bandwidth between nodes [GB/s].

    The best of the messages down to a sixteenth of the largest, on the most nodes. A wire carries
    at least what it was seen to carry; one slow message says nothing of it.
    """
    more = [curve for curve in curves if curve.nodes > 2]
    curve = max(more or curves, key=lambda curve: curve.nodes)
    bytes_a_second = max(size / seconds for size, seconds in curve.large())
    on_two = curve.nodes == 2 and tree_on_two and curve.gpus_per_node > 1
    factor = 1.0 if on_two else 2.0 * (curve.ranks - 1) / curve.ranks
    return factor * bytes_a_second / 1e9


def _penalty(choice: TunedChoice, curve: CollectiveCurve) -> float:
    """Return what speaks against a tuner: its switches, and a curve's steps between them."""
    sizes = curve.size_bytes
    pairs = [choice.tuner(curve.ranks, curve.nodes).choose("all_reduce", size) for size in sizes]
    return sum_in_order(
        _step(curve, index) if pairs[index][:2] == pairs[index - 1][:2] else _SWITCH_PENALTY
        for index in range(1, len(sizes))
    )


def _step(curve: CollectiveCurve, index: int) -> float:
    """Return how far a curve's log slope up to a point is from what one algorithm can do, squared.

    Its time neither falls nor grows faster than the size: a slope of 0 to 1.
    """
    sizes, seconds = curve.size_bytes, curve.seconds
    rise = math.log(seconds[index] / seconds[index - 1])
    slope = rise / math.log(sizes[index] / sizes[index - 1])
    return max(0.0, slope - 1.0, -slope) ** 2


def _near(curve: CollectiveCurve, index: int) -> bool:
    """Tell whether the next size is at most twice this one."""
    return curve.size_bytes[index + 1] <= 2.0 * curve.size_bytes[index]
