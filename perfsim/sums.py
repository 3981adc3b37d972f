"""Sums of floats that are the same number on every Python, and what rounding leaves of them."""

from __future__ import annotations

import sys
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SUM_ROUNDING", "sum_in_order"]

SUM_ROUNDING = 1e-12
"""A part below this share of a sum is what rounding leaves where it should be 0."""


def _one_by_one(values: Iterable[Any], start: Any = 0) -> Any:
    """Add values to ``start`` from the first to the last, each sum rounded to a float.

    Since Python 3.12 ``sum`` keeps what each addition of floats loses (Neumaier's compensated sum;
    CPython issue 100425), so that its last digits are others than Python 3.11's, and than those of
    a column of numpy. A tie that such a digit decides can move an iteration by far more.

    >>> _one_by_one([0.1] * 10)
    0.9999999999999999
    """
    return reduce(add, values, start)


if sys.version_info >= (3, 12):
    sum_in_order = _one_by_one
else:
    sum_in_order = sum  # adds one by one, and faster
