"""What NCCL's tuner must know of a communicator, read from what a measured curve says of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfsim.cluster.measured import Curve
from perfsim.library.nccl_figures import figures
from perfsim.library.nccl_record import Figures

__all__ = ["Communicator", "communicator", "figures_of"]

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


def communicator(curve: Curve) -> Communicator:
    """Return version, GPU generation and intra-node links of a curve, as far as it states them.

    Unstated are taken: version 2.21.5, ampere, nvlink (pci for GPUs without NVLink). Versions
    before 2.4 are taken as 2.4.

    Examples
    --------
    >>> curve = Curve("all_reduce", 8, 2, 4, (8.0,), (1e-5,), "measured", "x", gpu="GH200 120GB")
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


def figures_of(of: Communicator) -> tuple[str, Figures]:
    """Return the figures of NCCL's tuner for a communicator, and the version that they are of.

    Examples
    --------
    >>> figures_of(Communicator("2.4.8", "volta", "nvlink"))[0]
    '2.5.6'
    """
    version = FIRST_FIGURES if of.version.startswith("2.4") else of.version
    return version, figures(version)
