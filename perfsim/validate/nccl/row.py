"""One collective predicted beside its measurement."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BANDS", "NcclRow"]

BANDS = (("up to 64 KiB", 65536.0), ("to 4 MiB", 4194304.0), ("above", float("inf")))
"""Message sizes by their upper end [B]."""


@dataclass(frozen=True, slots=True)
class NcclRow:
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
