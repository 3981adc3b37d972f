"""Where a field of the command line's scenario was given: in the scenario file, or by a flag."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["FileFields", "file_fields_noted", "note_file_fields"]


@dataclass(slots=True)
class FileFields:
    """The fields that a scenario file gives and no flag replaces."""

    file: str = ""
    names: frozenset[str] = frozenset()


_NOTED: ContextVar[FileFields | None] = ContextVar("_NOTED", default=None)


@contextmanager
def file_fields_noted() -> Iterator[FileFields]:
    """Note which fields the scenario file gives in the block: a refusal names it for these alone.

    Examples
    --------
    >>> with file_fields_noted() as given:
    ...     note_file_fields("mine.toml", {"gpus"})
    >>> given
    FileFields(file='mine.toml', names=frozenset({'gpus'}))
    """
    noted = FileFields()
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def note_file_fields(file: str, names: Collection[str]) -> None:
    """Note the fields that a scenario file gives, where that is asked for."""
    noted = _NOTED.get()
    if noted is not None:
        noted.file, noted.names = file, frozenset(names)
