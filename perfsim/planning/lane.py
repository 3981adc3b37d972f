"""A number that stands for many: one pass of the prediction's own code evaluates all of them.

A ``Lane`` takes part in arithmetic like a float, with an array of values behind it. Where code
asks which of two is larger, the answer is that of one scenario, and the trace notes
for which others it is the same: for those the pass holds, to the last bit; the others need a pass
of their own. Whatever an array cannot follow exactly (a logarithm, rounding, a key) is refused by
``Escaped``, and the scenarios are predicted one by one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

__all__ = ["Escaped", "Lane", "Trace"]

Operation = Callable[[Any, Any], Any]


class Escaped(TypeError):
    """An array cannot follow what is asked of a number."""


class Trace:
    """For which scenarios all comparisons so far had the answer of one, which is ``shown``.

    Examples
    --------
    >>> trace = Trace(3)
    >>> alpha = trace.lane(np.array([1.0, 2.0, 3.0]))
    >>> max(alpha * 2.0, 4.5).at, trace.agreed().tolist()
    (4.5, [True, True, False])
    """

    def __init__(self, count: int, shown: int = 0) -> None:
        self.shown = shown
        self._agree = np.ones(count, bool)
        self._keys: list[Lane] = []

    def lane(self, values: Any) -> Lane:
        """Return a number that has one value a scenario."""
        return Lane(self, values)

    def note(self, same: Any) -> None:
        """Remember for which scenarios a comparison had the same answer."""
        self._agree &= same

    def key(self, lane: Lane) -> None:
        """Remember a number that was a key of a set or table."""
        self._keys.append(lane)

    def agreed(self) -> Any:
        """Return for which scenarios the pass holds: keys must be as different there as here."""
        keys = sorted(self._keys, key=lambda lane: lane.at)
        for one, other in zip(keys, keys[1:], strict=False):
            _ = one == other if one.at == other.at else one < other
        return self._agree


class Lane:
    """One number of many scenarios; ``at`` is that of the one shown."""

    __slots__ = ("at", "trace", "values")
    __array_ufunc__ = None

    def __init__(self, trace: Trace, values: Any) -> None:
        self.trace, self.values, self.at = trace, values, float(values[trace.shown])

    def _with(self, other: Any, operation: Operation, *, turned: bool = False) -> Any:
        if not isinstance(other, Lane | float | int | np.floating):
            return NotImplemented
        values = other.values if isinstance(other, Lane) else float(other)
        pair = (values, self.values) if turned else (self.values, values)
        return Lane(self.trace, operation(*pair))

    def _asked(self, other: Any, operation: Operation) -> Any:
        if not isinstance(other, Lane | float | int | np.floating):
            return NotImplemented
        at, values = (other.at, other.values) if isinstance(other, Lane) else (other, other)
        answer = operation(self.at, at)
        self.trace.note(operation(self.values, values) == answer)
        return np.bool_(answer)

    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, operator.add, turned=True)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, operator.sub, turned=True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, operator.mul, turned=True)

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, operator.truediv)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, operator.truediv, turned=True)

    def __neg__(self) -> Lane:
        return Lane(self.trace, -self.values)

    def __lt__(self, other: Any) -> Any:
        return self._asked(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._asked(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._asked(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._asked(other, operator.ge)

    def __eq__(self, other: object) -> Any:
        return self._asked(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._asked(other, operator.ne)

    def __bool__(self) -> bool:
        return bool(self != 0.0)

    def __hash__(self) -> int:
        self.trace.key(self)
        return hash(self.at)

    def __format__(self, spec: str) -> str:
        return format(self.at, spec)

    def __float__(self) -> NoReturn:
        raise Escaped("a float is asked for")

    __int__ = __index__ = __ceil__ = __floor__ = __trunc__ = __float__

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise Escaped("a rounded number is asked for")
