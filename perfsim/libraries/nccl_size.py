"""What NCCL's tuner corrects by the size of an all-reduce: trees in the middle, large rings."""

from __future__ import annotations

from perfsim.libraries.nccl_figures import PROTOCOLS, VersionFigures
from perfsim.libraries.nccl_shape import CommunicatorShape

__all__ = ["plateau", "tree_factor"]

PLATEAU_BYTES = 64
"""Bytes a channel and rank from which a Simple ring pays the plateau factor, from 2.18 on."""


def tree_factor(
    figures: VersionFigures,
    shape: CommunicatorShape,
    number: tuple[int, int],
    algorithm: str,
    protocol: str,
    size_bytes: float,
) -> float:
    """Return the factor on a tree's bandwidth: one for each doubling from 64 B on.

    From 2.29 on NVLS trees of Blackwell beside x86 CPUs have it too, one entry longer.
    """
    factors = figures.tree_factor[PROTOCOLS.index(protocol)]
    if algorithm == "nvls_tree":
        x86 = shape.cpu in ("intel", "amd")
        if number < (2, 29) or shape.capability < 100 or not x86:
            return 1.0
        factors = (*factors, factors[-1])
    elif algorithm != "tree":
        return 1.0
    step = (int(size_bytes) >> 6).bit_length() - 1
    if step < 0 and number < (2, 22):
        step = 0
    return factors[step] if 0 <= step < len(factors) else 1.0


def plateau(
    shape: CommunicatorShape,
    number: tuple[int, int],
    algorithm: str,
    protocol: str,
    size_bytes: float,
) -> float:
    """Return the factor on the latency of a large Simple ring across nodes, from 2.7 on."""
    ring = (algorithm, protocol) == ("ring", "simple")
    if not ring or shape.nodes == 1 or number < (2, 7):
        return 1.0
    if number >= (2, 18):
        large = size_bytes // (shape.channels * shape.ranks) >= PLATEAU_BYTES
        factor = 1.9 if shape.capability < 80 else 1.4
    else:
        large = size_bytes >= shape.ranks / 16.0 * 65536
        factor = 1.5 if number >= (2, 17) and shape.capability >= 90 else 1.9
    return factor if large else 1.0
