"""Cells of measurement files: collectives by the names that tools give them, times, sizes."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from perfsim.collectives import COLLECTIVES
from perfsim.limits import MESSAGE, TIME, shown

__all__ = [
    "DIGITS",
    "NAMES",
    "busbw_factor",
    "collective_name",
    "decimal_of",
    "seconds_of",
    "size_of",
]

LEAST_S = 1e-7
"""No collective has ever taken less than 0.1 us."""
DIGITS = 30
"""Powers of ten beyond which no time, size or rate lies."""

NAMES = {collective.replace("_", ""): collective for collective in COLLECTIVES} | {
    "reducescattertensor": "reduce_scatter",
    "allgatherintotensor": "all_gather",
    "allgatherbase": "all_gather",
    "bcast": "broadcast",
    "alltoallsingle": "all_to_all",
}
"""What tools and libraries call a collective, in letters only."""


def collective_name(text: str) -> str:
    """Return perfsim's name of a collective, '' where it knows none.

    Examples
    --------
    >>> collective_name("alltoall"), collective_name("All-Reduce"), collective_name("hypercube")
    ('all_to_all', 'all_reduce', '')
    """
    plain = re.sub(r"[^a-z]", "", text.lower())
    return NAMES.get(plain.removeprefix("nccl").removesuffix("mpi").removesuffix("perf"), "")


def seconds_of(text: str, unit_exponent: int = -6) -> float:
    """Return the seconds that a cell says in microseconds (or another power of ten).

    Raises
    ------
    ValueError
        If it is no number, not finite, or below 0.1 us; the message says what was found.

    Examples
    --------
    >>> seconds_of("35.93")
    3.593e-05
    """
    number = decimal_of(text)
    if number is None:
        raise ValueError(f"time {shown(text)} is not a number")
    if not number.is_finite() or abs(number.adjusted()) > DIGITS:
        raise ValueError(f"time {shown(text)} cannot be: it is finite and at least 0.1 us")
    seconds = float(number.scaleb(unit_exponent))
    if not math.isfinite(seconds) or not LEAST_S <= seconds <= TIME.most:
        raise ValueError(f"time {shown(text)} cannot be: it is finite and at least 0.1 us")
    return seconds


def decimal_of(text: str) -> Decimal | None:
    """Return a cell's number as it is written, None where it is none."""
    try:
        return Decimal(text) if text.isascii() and "_" not in text else None
    except (ArithmeticError, ValueError):
        return None


def size_of(text: str) -> float:
    """Return the bytes of a cell; refuses what is no positive number."""
    number = decimal_of(text)
    if number is None:
        raise ValueError(f"size {shown(text)} is not a number of bytes")
    if (
        not number.is_finite()
        or abs(number.adjusted()) > DIGITS
        or not MESSAGE.holds(float(number))
    ):
        raise ValueError(f"size {shown(text)} is not within {MESSAGE.words}")
    return float(number)


def busbw_factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth over size / time, as nccl-tests defines it (doc/PERFORMANCE.md).

    Examples
    --------
    >>> busbw_factor("all_reduce", 4), busbw_factor("all_gather", 4), busbw_factor("reduce", 4)
    (1.5, 0.75, 1.0)
    """
    share = (ranks - 1) / ranks
    if collective == "all_reduce":
        return 2 * share
    return share if collective in ("all_gather", "reduce_scatter", "all_to_all") else 1.0
