"""Latency of one hop as a curve over the message size: one alpha cannot serve both ends."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace

from perfsim.quantity import Kind, Quantity

__all__ = ["Latency"]

SMALL_BYTES = 65536.0
"""Up to here a hop's latency does not follow the message of one step."""


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

    def stretched(self, factor: float) -> Latency:
        """Return the curve of a ring that is ``factor`` times as long as the one measured.

        A step of a ring of P carries n / P, so the longer ring meets at n what the shorter one met
        at n / factor. Up to 64 KiB the curve stays; from there on it is the one at
        max(64 KiB, n / factor). On Polaris, all_gather carried from 8 to 128 nodes, the 90th
        percentile of the error falls from 294 to 22 % between 64 KB and 16 MB.

        Examples
        --------
        >>> long = Latency((1e5, 1e6), (2e-5, 4e-5), "fitted", "an example").stretched(10.0)
        >>> [round(long.at(size) * 1e6) for size in (1e6, 1e7)]
        [20, 40]
        """
        sizes = [size for size in self.size_bytes if size < SMALL_BYTES]
        alphas = [*self.alpha_s[: len(sizes)], self.at(SMALL_BYTES), self.at(SMALL_BYTES)]
        sizes += [SMALL_BYTES, SMALL_BYTES * factor]
        if factor == 1.0:
            del sizes[-1], alphas[-1]
        for size, alpha_s in zip(self.size_bytes, self.alpha_s, strict=True):
            if size > SMALL_BYTES:
                sizes.append(size * factor)
                alphas.append(alpha_s)
        return replace(self, size_bytes=tuple(sizes), alpha_s=tuple(alphas))

    def gentle(self) -> Latency:
        """Return the highest curve at or below this one that rises no faster than its size.

        On such a curve P alpha(n / P) never falls as P grows. From one knot to the next, straight
        in log size, that is alpha_1 <= alpha_0 (1 + ln(size_1 / size_0)).

        Examples
        --------
        >>> steep = Latency((1e3, math.e * 1e3), (1e-5, 5e-5), "fitted", "an example")
        >>> [round(alpha_s * 1e6) for alpha_s in steep.gentle().alpha_s]
        [10, 20]
        """
        alphas = [self.alpha_s[0]]
        for start, end, alpha_s in zip(self.logs, self.logs[1:], self.alpha_s[1:], strict=False):
            alphas.append(min(alpha_s, alphas[-1] * (1.0 + end - start)))
        return replace(self, alpha_s=tuple(alphas))

    def held(self) -> Latency:
        """Return the curve that keeps the value of 64 KiB at all larger sizes.

        Examples
        --------
        >>> curve = Latency((1e3, 65536.0, 1e6), (2e-5, 4e-5, 6e-5), "fitted", "an example")
        >>> curve.held().alpha_s
        (2e-05, 4e-05)
        """
        kept = sum(size < SMALL_BYTES for size in self.size_bytes)
        sizes = (*self.size_bytes[:kept], SMALL_BYTES)
        return replace(self, size_bytes=sizes, alpha_s=(*self.alpha_s[:kept], self.at(SMALL_BYTES)))

    def quantity(self, alpha_s: float) -> Quantity:
        """Return a value of this curve with the curve's origin."""
        return Quantity(alpha_s, "s/hop", self.kind, self.source, self.spread, self.low, self.high)
