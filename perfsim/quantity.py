"""A number that knows where it came from, the cost of one operation, and limits of numbers."""

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
"""How a number came about: measured here, published by others, fitted to either, or derived."""

KINDS: tuple[Kind, ...] = ("measured", "published", "fitted", "derived")
"""The kinds of number, from the strongest evidence to the weakest."""

Grade = Literal[
    "given",
    "measured",
    "same_gpu",
    "transformer",
    "one_gpu",
    "tuned",
    "carried",
    "derived",
    "modelled",
]
"""What a cost comes from: the user, a measurement of this case, a measurement of another case
carried to this one (``same_gpu``: at another batch; ``one_gpu``: on one GPU alone; ``tuned``: to
software whose input and launches were tuned), or a model of its parts."""


class Quantity(NamedTuple):
    """One value with its unit and its origin.

    Parameters
    ----------
    spread : relative half-width of the 90 % interval, from its repeats or its fit's residuals (0.03
        means +-3 %); None where no measurement shows it
    low, high : bounds of the range in which it holds, in ``range_unit``; for a link the bytes of a
        message
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
        """Write the value with a unit that suits it, and its spread where known.

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
    """The cost of one kernel or collective, and the quantities that it was worked out from.

    Parameters
    ----------
    seconds : its time [s]
    latency_s : the part of it that does not shrink when bandwidth grows [s]
    sent_bytes : the bytes that one GPU sends [B]
    spread : relative half-width of the 90 % interval of ``seconds``; None where unknown
    terms : the quantities used
    grade : whether such a cost was measured here, carried from a measurement elsewhere, derived
        from a node's data sheet by what nodes of other types reach of theirs, or modelled
    """

    seconds: float
    latency_s: float = 0.0
    sent_bytes: float = 0.0
    spread: float | None = None
    terms: tuple[Term, ...] = ()
    grade: Grade = "modelled"


class Timing(NamedTuple):
    """The time of a collective [s] and the bytes that one GPU sends: a cost without its reasons."""

    seconds: float
    sent_bytes: float


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
        """Tell whether a value lies inside; NaN does not."""
        return self.least <= value <= self.most


# Limits of what files and requests may state, far beyond any hardware.

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
