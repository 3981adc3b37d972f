"""Plain output for screen readers and logs: a line a fact, no bars, columns or drawings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["is_plain", "plain_output"]

_PLAIN: ContextVar[bool] = ContextVar("plain_output", default=False)


@contextmanager
def plain_output(asked: bool) -> Iterator[None]:
    """Print plain text within the block, if ``asked``.

    Examples
    --------
    >>> with plain_output(True):
    ...     is_plain()
    True
    """
    token = _PLAIN.set(asked)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def is_plain() -> bool:
    """Tell whether plain text was asked for."""
    return _PLAIN.get()
