"""A number that knows where it came from, and the cost of one operation built from such numbers."""

from __future__ import annotations

from typing import Literal, NamedTuple

from perfsim.units import format_rate, format_seconds

__all__ = [
    "COUNT_LIMIT",
    "ELEMENTS_LIMIT",
    "KINDS",
    "LATENCY_LIMIT",
    "LAUNCH_LIMIT",
    "MATRIX_RATE_LIMIT",
    "MEMORY_LIMIT",
    "MESSAGE_LIMIT",
    "POWER_LIMIT",
    "RATE_LIMIT",
    "REDUCTION_LIMIT",
    "SPREAD_LIMIT",
    "TIME_LIMIT",
    "Cost",
    "Grade",
    "Kind",
    "NumberLimit",
    "Quantity",
    "Term",
    "weakest",
]

Kind = Literal["measured", "published", "fitted", "derived"]
Grade = Literal["given", "measured", "carried", "modelled"]

KINDS: tuple[Kind, ...] = ("measured", "published", "fitted", "derived")
"""From the strongest to the weakest ground for a number."""


class Quantity(NamedTuple):
    """One value with its origin.

    ``spread`` is the relative half-width of the 90 % interval that its repeats or its fit's
    residuals show (0.03 means +-3 %), or None where nothing measured tells. ``low`` and ``high``
    bound the range in which it holds, in ``range_unit`` (for a link: message bytes).
    """

    value: float
    unit: str
    kind: Kind
    source: str
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    range_unit: str = "B"

    def __str__(self) -> str:
        """Return the value with a unit that suits it, and its spread where known.

        Examples
        --------
        >>> str(Quantity(1.173e9, "B/s", "fitted", "a curve", spread=0.006))
        '1.173 GB/s +-0.6%'
        """
        if self.unit == "s":
            text = format_seconds(self.value)
        elif self.unit == "s/hop":
            text = f"{format_seconds(self.value)} a hop"
        elif self.unit == "B/s":
            text = format_rate(self.value)
        else:
            text = f"{self.value:.4g} {self.unit}".strip()
        return text if self.spread is None else f"{text} +-{self.spread:.1%}"


class Term(NamedTuple):
    """One row of a prediction's provenance: a quantity in use, and whether it left its range."""

    term: str
    quantity: Quantity
    extrapolated: bool = False


class Cost(NamedTuple):
    """What one kernel or collective costs: seconds, the part of them that is latency, and why.

    ``latency_s`` is the part that does not shrink when bandwidth grows; ``sent_bytes`` is what
    one GPU sends. ``terms`` names the quantities used; ``spread`` is the relative 90 %
    half-width of ``seconds``, None where unknown; ``grade`` says whether such a cost was measured
    here, carried from where it was, or made of the parts of a model.
    """

    seconds: float
    latency_s: float = 0.0
    sent_bytes: float = 0.0
    spread: float | None = None
    terms: tuple[Term, ...] = ()
    grade: Grade = "modelled"


def weakest(kinds: list[Kind]) -> Kind:
    """Return the weakest of several kinds: a number is no better than its weakest part.

    Examples
    --------
    >>> weakest(["measured", "fitted"])
    'fitted'
    """
    return max(kinds, key=KINDS.index)


class NumberLimit(NamedTuple):
    """The lowest and highest value of a quantity, in SI units, and both in words.

    Examples
    --------
    >>> RATE_LIMIT.holds(1.25e9), RATE_LIMIT.holds(1e-300)
    (True, False)
    """

    least: float
    most: float
    words: str

    def holds(self, value: float) -> bool:
        """Say whether a value lies inside; what is no number does not."""
        return self.least <= value <= self.most


RATE_LIMIT = NumberLimit(1.0, 1e18, "1 B/s to 1e18 B/s")


MATRIX_RATE_LIMIT = NumberLimit(1e6, 1e21, "1e6 FLOP/s to 1e21 FLOP/s")


TIME_LIMIT = NumberLimit(1e-15, 1e9, "1e-15 s to 1e9 s")


LAUNCH_LIMIT = NumberLimit(1e-9, 1.0, "1 ns to 1 s")


LATENCY_LIMIT = NumberLimit(0.0, 10.0, "0 s to 10 s")


REDUCTION_LIMIT = NumberLimit(0.0, 1.0, "0 s/B to 1 s/B")


MEMORY_LIMIT = NumberLimit(1e6, 1e15, "1 MB to 1e15 B")


MESSAGE_LIMIT = NumberLimit(1.0, 1e18, "1 B to 1e18 B")


SPREAD_LIMIT = NumberLimit(0.0, 3.0, "0 % to 300 %")


POWER_LIMIT = NumberLimit(1.0, 1e5, "1 W to 100000 W")


ELEMENTS_LIMIT = NumberLimit(1.0, 1e15, "1 to 1e15")


COUNT_LIMIT = NumberLimit(1.0, 1e9, "1 to 1e9")
