"""A bench: one kernel's name, the sizes it is measured at, and what makes a call of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfsim.calibrate.kernels.place import Place
from perfsim.kernel import Kernel

__all__ = ["Bench", "Call", "Size", "by_rank", "scalars", "squares"]

Call = Callable[[], Any]
"""Runs a kernel once; what it returns is dropped."""

LEAST = 2**10
STEP = 4
SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Size:
    """What a point is keyed on (``elements``, ``width``), and the shape that is run there."""

    elements: int
    width: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """One kernel to measure.

    Parameters
    ----------
    name : as `perfsim.kernel.Kernel` calls it, or a name that no method reads
    does : what is run, in a few words: the note of its points
    sizes : gives the sizes for the most fp32 values that an input may hold, rising in each width
    make : gives the call for a size
    loop : calls between two marks; more than 1 where kernels wait behind others of their kind
    growth : power of ``elements`` that the time is expected to grow with
    counted : what perfsim takes instead where no point is known; None where it has no such rule
    only : "cuda" where a GPU must be there; "host" where it runs on the CPU, GPU or not
    """

    name: str
    does: str
    sizes: Callable[[int], Sequence[Size]]
    make: Callable[[Place, Size], Call]
    loop: int = 1
    growth: float = 1.0
    counted: Callable[[Size], Sequence[Kernel]] | None = None
    only: str = ""


def scalars(most: int) -> list[Size]:
    """Return 2^10, 2^12, ... values.

    Examples
    --------
    >>> [size.elements for size in scalars(20000)]
    [1024, 4096, 16384]
    """
    sizes = []
    count = LEAST
    while count <= most:
        sizes.append(Size(count, 0, (count,)))
        count *= STEP
    return sizes


def squares(most: int) -> list[Size]:
    """Return n x n matrices, n from 64 to 8192, keyed on n * n.

    Examples
    --------
    >>> [size.shape for size in squares(20000)]
    [(64, 64), (128, 128)]
    """
    return [Size(side * side, 0, (side, side)) for side in SIDES if side * side <= most]


def by_rank(rows: Sequence[int], ranks: Sequence[int], most: int) -> list[Size]:
    """Return rows x rank matrices, rank by rank, keyed on rows with the rank as width.

    Examples
    --------
    >>> [(size.elements, size.width) for size in by_rank((4, 8), (1, 2), 10)]
    [(4, 1), (8, 1), (4, 2)]
    """
    return [
        Size(count, rank, (count, rank))
        for rank in ranks
        for count in rows
        if rank <= count and count * rank <= most
    ]
