"""Limits of the numbers in data files: what lies beyond is a slip, or breaks the arithmetic."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "COUNT",
    "ELEMENTS",
    "LATENCY",
    "LAUNCH",
    "LONGEST",
    "MATRIX_RATE",
    "MEMORY",
    "MESSAGE",
    "POWER",
    "RATE",
    "REDUCTION",
    "SPREAD",
    "TIME",
    "Limit",
    "shown",
]

LONGEST = 60
"""Characters of a wrong value that a message repeats."""


class Limit(NamedTuple):
    """The lowest and highest value of a quantity, in SI units, and both in words.

    Examples
    --------
    >>> RATE.holds(1.25e9), RATE.holds(1e-300)
    (True, False)
    """

    least: float
    most: float
    words: str

    def holds(self, value: float) -> bool:
        """Say whether a value lies inside; what is no number does not."""
        return self.least <= value <= self.most


RATE = Limit(1.0, 1e18, "1 B/s to 1e18 B/s")
MATRIX_RATE = Limit(1e6, 1e21, "1e6 FLOP/s to 1e21 FLOP/s")
TIME = Limit(1e-15, 1e9, "1e-15 s to 1e9 s")
LAUNCH = Limit(1e-9, 1.0, "1 ns to 1 s")
LATENCY = Limit(0.0, 10.0, "0 s to 10 s")
REDUCTION = Limit(0.0, 1.0, "0 s/B to 1 s/B")
MEMORY = Limit(1e6, 1e15, "1 MB to 1e15 B")
MESSAGE = Limit(1.0, 1e18, "1 B to 1e18 B")
SPREAD = Limit(0.0, 3.0, "0 % to 300 %")
POWER = Limit(1.0, 1e5, "1 W to 100000 W")
ELEMENTS = Limit(1.0, 1e15, "1 to 1e15")
COUNT = Limit(1.0, 1e9, "1 to 1e9")


def shown(value: object) -> str:
    """Return a wrong value as a message repeats it: quoted, on one line, cut where it is long.

    Examples
    --------
    >>> shown("1 h"), len(shown("9" * 400))
    ("'1 h'", 63)
    """
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
    except RecursionError:
        return "tables in tables in tables"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
