"""The errors of many predictions in a few numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Score", "score"]


@dataclass(frozen=True, slots=True)
class Score:
    """How many predictions, and their absolute relative errors as fractions."""

    count: int
    median: float | None
    p90: float | None
    worst: float | None

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the four numbers by name."""
        return {
            "count": self.count,
            "median": self.median,
            "p90": self.p90,
            "worst": self.worst,
        }


def score(errors: Iterable[float]) -> Score:
    """Return count, median, 90th percentile (linear between ranks) and worst of errors.

    Examples
    --------
    >>> score([0.1, 0.3, 0.2])
    Score(count=3, median=0.2, p90=0.28, worst=0.3)
    """
    found = sorted(errors)
    if not found:
        return Score(0, None, None, None)
    return Score(len(found), _quantile(found, 0.5), _quantile(found, 0.9), found[-1])


def _quantile(sorted_values: Sequence[float], share: float) -> float:
    place = share * (len(sorted_values) - 1)
    low = int(place)
    high = min(low + 1, len(sorted_values) - 1)
    part = place - low
    return round(sorted_values[low] * (1.0 - part) + sorted_values[high] * part, 12)
