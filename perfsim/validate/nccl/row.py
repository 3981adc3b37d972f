"""One prediction beside its measurement, and the errors of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["BANDS", "Row", "Score", "score"]

BANDS = (("up to 64 KiB", 65536.0), ("to 4 MiB", 4194304.0), ("above", float("inf")))
"""Message sizes by their upper end [B]."""


@dataclass(frozen=True, slots=True)
class Row:
    """One time predicted and measured [s].

    Parameters
    ----------
    question : scale_2x, in_range, ...
    cluster : series or file of the measurement
    what : the curve, in a few words
    size_bytes : message
    measured_s, predicted_s : times
    plain_s : what a two-parameter alpha-beta ring fit gives from the same data
    others : further predictions by name, for comparison
    collective : of the message, where the question tells several apart
    """

    question: str
    cluster: str
    what: str
    size_bytes: float
    measured_s: float
    predicted_s: float
    plain_s: float | None = None
    others: dict[str, float] = field(default_factory=dict)
    collective: str = ""

    @property
    def error(self) -> float:
        """Absolute relative error of the prediction."""
        return abs(self.predicted_s / self.measured_s - 1.0)

    @property
    def band(self) -> str:
        """The size band that the message falls in."""
        return next(name for name, most in BANDS if self.size_bytes <= most)


@dataclass(frozen=True, slots=True)
class Score:
    """How many predictions, and their absolute relative errors as fractions."""

    count: int
    median: float | None
    p90: float | None
    worst: float | None

    def as_dict(self) -> dict[str, float | int | None]:
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
