"""Garbage collection paused while objects are made by the hundred thousand."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["uncollected"]

P = ParamSpec("P")
T = TypeVar("T")


def uncollected(work: Callable[P, T]) -> Callable[P, T]:
    """Return a function that does the same with garbage collection paused, if it was on.

    A prediction makes tens of thousands of objects and no cycles: Python would look through them
    dozens of times, and now and then through all that profiles and networks hold, for nothing.

    Examples
    --------
    >>> uncollected(gc.isenabled)(), gc.isenabled()
    (False, True)
    """

    @wraps(work)
    def paused(*args: P.args, **named: P.kwargs) -> T:
        if not gc.isenabled():
            return work(*args, **named)
        gc.disable()
        try:
            return work(*args, **named)
        finally:
            gc.enable()

    return paused
