"""A parameter of a fit, and the refusal of one that the points cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfsim.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["Parameter", "Unidentified", "identify"]

FLAT = 1e-7
"""A direction in which the curve moves this much less than in the steepest cannot be told."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a model: where the search starts, its limits, and afterwards its error.

    ``stderr`` is the standard error [unit], None before a fit and for a number that was held.
    """

    name: str
    value: float
    unit: str = ""
    stderr: float | None = None
    low: float = -math.inf
    high: float = math.inf
    fixed: bool = False

    def __post_init__(self) -> None:
        """Refuse a start outside the limits."""
        if not (math.isfinite(self.value) and self.low <= self.value <= self.high):
            raise ValueError(f"{self.name}: start {self.value} is not in {self.low} to {self.high}")


class Unidentified(DataError):  # noqa: N818 - it says what the data leave open
    """The points cannot tell a parameter; ``names`` says which, the message what would tell it."""

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


def identify(
    fitted: Sequence[Parameter], jacobian: Array, scale: Array, needs: Mapping[str, str]
) -> None:
    """Refuse what the points leave open.

    Parameters
    ----------
    fitted : all parameters, with their errors
    jacobian, scale : derivative of the residuals by each free one, and the size of each
    needs : name -> sentence that says which measurement would tell it

    Raises
    ------
    Unidentified
        If one or several together leave the residuals as they are, or a standard error exceeds
        the value of a parameter that cannot be negative.
    """
    import numpy as np

    free = [one for one in fitted if not one.fixed]
    if not free:
        return
    slopes = jacobian * scale
    lengths = np.linalg.norm(slopes, axis=0)
    steepest = float(lengths.max(initial=0.0))
    open_ = [one for one, length in zip(free, lengths, strict=True) if length <= FLAT * steepest]
    why = "changing it leaves every point where it is"
    if not open_:
        _, singular, directions = np.linalg.svd(slopes / lengths, full_matrices=False)
        if singular[-1] < FLAT * singular[0]:
            parts = zip(free, np.abs(directions[-1]), strict=True)
            open_ = [one for one, part in parts if part > 0.3]
            why = "changing them together leaves every point where it is"
    if not open_:
        open_ = [
            one
            for one in free
            if one.low >= 0 and one.stderr is not None and one.stderr > abs(one.value)
        ]
        why = "its standard error is larger than its value"
    if open_:
        told = "; ".join(
            f"{one.name} = {one.value:.3g} +- {one.stderr:.2g} {one.unit}".rstrip() for one in open_
        )
        extra = " ".join(needs[one.name] for one in open_ if one.name in needs)
        names = tuple(one.name for one in open_)
        raise Unidentified(
            f"the points cannot tell {' and '.join(names)} ({told}): {why}."
            f" {extra or 'Measure where it has more weight, or hold it.'}",
            names,
        )
