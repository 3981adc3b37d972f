"""Counting for sparsifying methods."""

from __future__ import annotations

import math

__all__ = ["kept"]


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
