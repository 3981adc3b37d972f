"""Latency of one hop as a curve over the message size: one alpha cannot serve both ends."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

from perfsim.quantity import Kind, Quantity

__all__ = ["Latency"]


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds a hop at several message sizes, straight in log size between, constant outside.

    ``size_bytes`` rise; the message size is the collective's full n. ``spread``, ``low`` and
    ``high`` are those of a `perfsim.quantity.Quantity`.

    Examples
    --------
    >>> curve = Latency((1e3, 1e5), (2e-5, 4e-5), "fitted", "an example")
    >>> [round(curve.at(size) * 1e6) for size in (1.0, 1e4, 1e9)]
    [20, 30, 40]
    """

    size_bytes: tuple[float, ...]
    alpha_s: tuple[float, ...]
    kind: Kind
    source: str
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    logs: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Take the logarithms once: a prediction asks hundreds of times."""
        object.__setattr__(self, "logs", tuple(math.log(size) for size in self.size_bytes))

    @classmethod
    def constant(cls, alpha: Quantity) -> Latency:
        """Return a curve that is the same at every size."""
        return cls(
            (1.0,), (alpha.value,), alpha.kind, alpha.source, alpha.spread, alpha.low, alpha.high
        )

    def at(self, size_bytes: float) -> float:
        """Return the latency of one hop for a message of this size [s]."""
        right = bisect_right(self.size_bytes, size_bytes)
        if right == 0:
            return self.alpha_s[0]
        if right == len(self.size_bytes):
            return self.alpha_s[-1]
        before, after = self.alpha_s[right - 1], self.alpha_s[right]
        start, end = self.logs[right - 1], self.logs[right]
        return before + (after - before) * (math.log(size_bytes) - start) / (end - start)

    def quantity(self, alpha_s: float) -> Quantity:
        """Return a value of this curve with the curve's origin."""
        return Quantity(alpha_s, "s/hop", self.kind, self.source, self.spread, self.low, self.high)
