"""A number that stands for many: one pass of the prediction's own code evaluates all of them.

A ``Lane`` takes part in arithmetic like a float, with an array of values behind it. Where code
asks which of two is larger, the answer is that of one scenario, and the trace notes
for which others it is the same: for those the pass holds, to the last bit; the others need a pass
of their own. Whatever an array cannot follow exactly (a logarithm, rounding, a key) is refused by
``EscapedError``, and the scenarios are predicted one by one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

__all__ = ["EscapedError", "Lane", "Trace"]

Operation = Callable[[Any, Any], Any]


class EscapedError(TypeError):
    """An array cannot follow what is asked of a number."""


class Trace:
    """For which scenarios all comparisons so far had the answer of one, which is ``shown``.

    Examples
    --------
    >>> trace = Trace(3)
    >>> alpha = trace.lane(np.array([1.0, 2.0, 3.0]))
    >>> max(4.0 - alpha, 1.5).at, trace.agreed().tolist()
    (3.0, [True, True, False])
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
        """Remember a number that was a key of a set or table, beside others and 0."""
        self.note((lane.values == 0.0) == (lane.at == 0.0))
        self._keys.append(lane)

    def agreed(self) -> Any:
        """Return for which scenarios the pass holds: keys must be as different there as here."""
        keys = sorted(self._keys, key=lambda lane: lane.at)
        for one, other in pairwise(keys):
            _ = one == other if one.at == other.at else one < other
        return self._agree


def _arithmetic(operation: Operation, *, turned: bool = False) -> Callable[[Lane, Any], Any]:
    def method(self: Lane, other: Any) -> Any:
        if not isinstance(other, NUMBERS):
            return NotImplemented
        values = other.values if isinstance(other, Lane) else float(other)
        pair = (values, self.values) if turned else (self.values, values)
        return Lane(self.trace, operation(*pair))

    return method


def _comparison(operation: Operation) -> Callable[[Lane, Any], Any]:
    def method(self: Lane, other: Any) -> Any:
        if not isinstance(other, NUMBERS):
            return NotImplemented
        at, values = (other.at, other.values) if isinstance(other, Lane) else (other, other)
        answer = operation(self.at, at)
        self.trace.note(operation(self.values, values) == answer)
        return np.bool_(answer)

    return method


class Lane:
    """One number of many scenarios; ``at`` is that of the one shown."""

    __slots__ = ("at", "trace", "values")
    __array_ufunc__ = None

    def __init__(self, trace: Trace, values: Any) -> None:
        self.trace, self.values, self.at = trace, values, float(values[trace.shown])

    __add__ = _arithmetic(operator.add)
    __radd__ = _arithmetic(operator.add, turned=True)
    __sub__ = _arithmetic(operator.sub)
    __rsub__ = _arithmetic(operator.sub, turned=True)
    __mul__ = _arithmetic(operator.mul)
    __rmul__ = _arithmetic(operator.mul, turned=True)
    __truediv__ = _arithmetic(operator.truediv)
    __rtruediv__ = _arithmetic(operator.truediv, turned=True)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)

    def __neg__(self) -> Lane:
        """Return all values with the other sign."""
        return Lane(self.trace, -self.values)

    def __bool__(self) -> bool:
        """Say whether it is not zero."""
        return bool(self != 0.0)

    def __hash__(self) -> int:
        """Return the hash of the one shown; the trace holds keys apart."""
        self.trace.key(self)
        return hash(self.at)

    def __format__(self, spec: str) -> str:
        """Return the one shown, for words."""
        return format(self.at, spec)

    def __float__(self) -> NoReturn:
        """Refuse to be one number."""
        raise EscapedError("a float is asked for")

    __int__ = __index__ = __ceil__ = __floor__ = __trunc__ = __float__

    def __round__(self, digits: int | None = None) -> NoReturn:
        """Refuse to be rounded."""
        raise EscapedError("a rounded number is asked for")


NUMBERS = (Lane, float, int, np.floating)
