"""Data files as they were read, and whether one has changed since."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

__all__ = ["Stamp", "changed", "note", "noting", "stamp"]

Stamp = tuple[int, int, int] | None
"""When a file or folder was written, its size and its number on the disk; None: not there."""

_NOTED: ContextVar[dict[str, Stamp] | None] = ContextVar("_NOTED", default=None)


def stamp(path: str) -> Stamp:
    """Return the stamp of a file or folder as it is now."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # also a name with a zero byte
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def changed(noted: Mapping[str, Stamp]) -> bool:
    """Tell whether one of the files is another now than when it was noted."""
    return any(stamp(path) != before for path, before in noted.items())


@contextmanager
def noting(into: dict[str, Stamp]) -> Iterator[None]:
    """Note the data files that are read meanwhile, as they were before that."""
    token = _NOTED.set(into)
    try:
        yield
    finally:
        _NOTED.reset(token)


def note(path: Path) -> None:
    """Note a data file that is about to be read, if it is asked which ones are."""
    noted = _NOTED.get()
    if noted is not None:
        noted.setdefault(str(path), stamp(str(path)))
