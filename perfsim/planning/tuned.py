"""One thing tuned: its curve, the fastest value and the one to take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perfsim.planning.knob import Knob, Value

__all__ = ["FLAT", "Tuned"]

FLAT = 0.01
"""Times within this share of the least are as good."""

NOTHING = 1e-9
"""Times nearer than this share are the same."""


@dataclass(frozen=True)
class Tuned:
    """One thing tuned, all else as asked.

    Parameters
    ----------
    knob : what it is
    asked, asked_s : its value in the scenario, and the iteration then [s]
    curve : (value, iteration [s]), by value; names fastest first
    fastest, fastest_s : the value with the shortest iteration, of names those that need nothing
    advised, advised_s : the same; where the value changes convergence, the gentlest value whose
        iteration is within 1 % of the shortest
    low, high : ends of the range around the fastest that is within 1 %; None for names
    beside : fusion policies that size buckets themselves, with their iterations [s]
    refused : names that cannot be used here, and why
    needs : names that the library does not take by itself, and what each needs; never advised
    """

    knob: Knob
    asked: Value
    asked_s: float
    curve: list[tuple[Value, float]]
    fastest: Value
    fastest_s: float
    advised: Value
    advised_s: float
    low: float | None
    high: float | None
    beside: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    needs: dict[str, str] = field(default_factory=dict)

    @property
    def flat(self) -> bool:
        """Whether the optimum is flat: a factor of two in the value, or several names, tell 1 %."""
        if self.low is not None and self.high is not None:
            return self.high >= 2.0 * self.low
        return len(self.as_good) > 1

    @property
    def as_good(self) -> list[Value]:
        """The values at hand whose iteration is within 1 % of the shortest."""
        limit_s = self.fastest_s * (1.0 + FLAT)
        return [
            value
            for value, seconds in self.curve
            if seconds <= limit_s and str(value) not in self.needs
        ]

    @property
    def faster_elsewhere(self) -> list[tuple[Value, float]]:
        """The values that would be faster, had the cluster or the program what they need."""
        return [one for one in self.curve if str(one[0]) in self.needs and one[1] < self.fastest_s]

    @property
    def idle(self) -> bool:
        """Whether it makes no difference at all."""
        times = [seconds for _, seconds in self.curve]
        return max(times) <= min(times) * (1.0 + NOTHING)

    @property
    def at_end(self) -> bool:
        """Whether the fastest is an end of what was looked at."""
        ends = (self.curve[0][0], self.curve[-1][0])
        return self.low is not None and self.fastest in ends

    @property
    def gain(self) -> float:
        """Share of the iteration that the advised value saves over the one asked for."""
        return 1.0 - self.advised_s / self.asked_s

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; ``value_unit`` is that of every value."""
        return {
            "name": self.knob.name,
            "value_unit": self.knob.unit,
            "asked": {"value": self.asked, "iteration_s": self.asked_s},
            "fastest": {"value": self.fastest, "iteration_s": self.fastest_s},
            "advised": {"value": self.advised, "iteration_s": self.advised_s},
            "flat": self.flat,
            "within_1_percent": None if self.low is None else [self.low, self.high],
            "changes_convergence": bool(self.knob.gentle),
            "caution": self.knob.why,
            "curve": [{"value": value, "iteration_s": seconds} for value, seconds in self.curve],
            "beside": [{"fusion": name, "iteration_s": one} for name, one in self.beside.items()],
            "refused": self.refused,
            "needs": self.needs,
        }
