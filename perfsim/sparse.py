"""What sparsifying methods share: counting, and the exchange of values and places."""

from __future__ import annotations

import math

from perfsim.kernel import FLOAT, INDEX, elementwise, scatter_add
from perfsim.method import Compute, Send, Stage

__all__ = ["gathered", "kept"]


def kept(elements: int, density: float) -> int:
    """Return how many of ``elements`` values a density keeps: at least one, rounded up.

    Examples
    --------
    >>> kept(25557032, 0.001)
    25558
    >>> kept(64, 0.001)
    1
    """
    return max(1, math.ceil(elements * density)) if elements else 0


def gathered(
    elements: int, count: int, ranks: int, value_bytes: int = FLOAT, index_bytes: int = INDEX
) -> list[Stage]:
    """Return the exchange of ``count`` values and their places, and what makes a gradient of it.

    One all-gather of the values and one of the indices; after the backward pass the dense
    gradient of ``elements`` is zeroed, the pairs of all ranks are scatter-added and the mean is
    taken (3 passes).

    Examples
    --------
    >>> [stage.size_bytes for stage in gathered(1000, 10, ranks=4)[:2]]
    [160.0, 160.0]
    """
    return [
        Send("all_gather", float(value_bytes * count * ranks)),
        Send("all_gather", float(index_bytes * count * ranks)),
        Compute(
            (elementwise(elements, 3, 2), scatter_add(count * ranks)),
            "decompress",
            earliest="backward",
        ),
    ]
