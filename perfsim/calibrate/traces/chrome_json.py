"""Chrome's JSON of a trace, plain or gzipped: read event by event, never whole in memory.

Python's json decodes each event; this file only finds where events begin and end. json.load would
hold the whole trace in more than four times its size, and traces of hundreds of MiB are usual.
ijson refuses what profilers write all the same (NaN, control characters in names), and a damaged
file of a hundred thousand open brackets makes it run out of memory.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from perfsim.data.files import reading, too_large
from perfsim.errors import DataError

__all__ = ["EVENTS", "is_trace", "microseconds", "read_head", "trace_entries"]

EVENTS = "traceEvents"
"""Key of a trace's list of events (Chrome's Trace Event Format)."""
CHUNK_CHARACTERS = 1 << 20
"""Characters read at once. No source: chosen."""
HEAD_CHARACTERS = 1 << 20
"""Characters that show a trace's format. No source: chosen."""
MAX_VALUE_CHARACTERS = 16 << 20
"""Characters of one event or setting; more that make no value are damage. No source: chosen."""
MAX_PACKING = 200
"""A gzipped trace may unpack to this many times its size. No source: chosen, beyond what a trace
packs to."""
ALWAYS_UNPACKED_CHARACTERS = 64 << 20
"""Characters that any gzipped trace may unpack to. No source: chosen."""
MAX_TRACE_BYTES = 1 << 30
"""Bytes of a trace, and characters of a gzipped one. No source: chosen, some million events."""
_GZIP = b"\x1f\x8b"
_SPACE = " \t\r\n"
_BYTE_ORDER_MARK = "\ufeff"


def is_trace(path: Path) -> bool:
    """Say whether a file is a trace, damaged or not: gzipped, or JSON with a list of events.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    with reading(path) as file:
        if file.read(2) == _GZIP:
            return True
    head = read_head(path)
    return head[:1] in ("[", "{") and (f'"{EVENTS}"' in head or '"ph"' in head)


def read_head(path: Path) -> str:
    """Return the first characters of a trace, without leading space.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    with _opened(path) as file:
        return file.read(HEAD_CHARACTERS).lstrip(_BYTE_ORDER_MARK + _SPACE)


def trace_entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield every event as ("traceEvents", event) and every other setting as (key, value).

    The file is an object with a list ``traceEvents``, or that list alone. Such a list may lack
    its end: Chrome's format allows it, and profilers that are killed leave it so.

    Raises
    ------
    DataError
        If the file cannot be read or is no such JSON; names the character where it breaks.
    """
    with _opened(path) as file:
        text = _JsonText(file, path)
        if text.next() == "[":
            yield from ((EVENTS, event) for event in text.list(may_lack_end=True))
            return
        text.take("{")
        while not text.took("}"):
            key = text.value()
            text.take(":")
            if key == EVENTS and text.next() == "[":
                yield from ((EVENTS, event) for event in text.list())
            else:
                yield str(key), text.value()
            if not text.took(","):
                text.take("}")
                return


def microseconds(event: Mapping[str, Any], key: str, where: str) -> float:
    """Return a moment or length of an event [us].

    Parameters
    ----------
    event : as the trace holds it
    key : of the moment or length
    where : file and event, for the error

    Raises
    ------
    DataError
        If it is no finite number.

    Examples
    --------
    >>> microseconds({"ts": 12.5}, "ts", "t.json: event 1")
    12.5
    """
    value = event.get(key)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{where}: is damaged: {key!r} is {value!r:.40}, not a number") from None
    if not math.isfinite(number):
        raise DataError(f"{where}: is damaged: {key!r} is {value!r:.40}, not finite")
    return number


class _JsonText:
    """JSON taken from a file piece by piece: marks one by one, values whole."""

    def __init__(self, file: TextIO | _Unpacked, path: Path) -> None:
        self._file, self._path = file, path
        self._buffer, self._at, self._read_before = "", 0, 0
        self._decoder = json.JSONDecoder(strict=False)

    def next(self) -> str:
        """Return the next character that is no space, "" at the end, without taking it."""
        while True:
            buffer, at = self._buffer, self._at
            while at < len(buffer) and (buffer[at] in _SPACE or buffer[at] == _BYTE_ORDER_MARK):
                at += 1
            self._at = at
            if at < len(buffer):
                return buffer[at]
            if not self._read_more():
                return ""

    def took(self, mark: str) -> bool:
        """Take a mark if it comes next, and say whether it did."""
        if self.next() != mark:
            return False
        self._at += 1
        return True

    def take(self, mark: str) -> None:
        """Take a mark that must come next."""
        if not self.took(mark):
            character = self.next()
            found = f"{character!r} stands" if character else "it ends"
            raise self._damage(found, f"{mark!r} is needed")

    def list(self, *, may_lack_end: bool = False) -> Iterator[Any]:
        """Yield the values of the list that comes next."""
        self.take("[")
        while not self.took("]"):
            if may_lack_end and not self.next():
                return
            yield self.value()
            if not self.took(","):
                if may_lack_end and not self.next():
                    return
                self.take("]")
                return

    def value(self) -> Any:
        """Return the value that comes next."""
        while True:
            self.next()
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError) as error:
                long = len(self._buffer) - self._at > MAX_VALUE_CHARACTERS
                if isinstance(error, RecursionError) or long or not self._read_more():
                    raise self._damage("a damaged value begins", "JSON is needed") from None
                continue
            # A number at the end of the buffer may go on in the file: 12 with .5, 12. with 5.
            rest = self._buffer[end : end + 3]
            complete = len(rest) > 2 or bool(rest and rest[0] not in ".eE")
            if complete or not self._read_more():
                self._at = end
                return value

    def _read_more(self) -> bool:
        """Drop what was taken and read on; doubling keeps the time of long values linear."""
        text = self._file.read(max(CHUNK_CHARACTERS, len(self._buffer) - self._at))
        self._read_before += self._at
        self._buffer, self._at = self._buffer[self._at :] + text, 0
        return bool(text)

    def _damage(self, found: str, needed: str) -> DataError:
        character = self._read_before + self._at + 1
        return DataError(
            f"is a damaged trace: at character {character} {found} where {needed}",
            path=self._path,
        )


class _Unpacked:
    """The text of a gzipped file, refused where it grows beyond what a trace packs into it."""

    def __init__(self, text: TextIO, path: Path) -> None:
        self._text, self._path, self._read = text, path, 0
        most = max(ALWAYS_UNPACKED_CHARACTERS, MAX_PACKING * path.stat().st_size)
        self._most = min(most, MAX_TRACE_BYTES)

    def read(self, count: int) -> str:
        """Return the next characters.

        Raises
        ------
        DataError
            If there are more than any trace packs into such a file.
        """
        text = self._text.read(count)
        self._read += len(text)
        if self._read > self._most:
            why = f"unpacks to more than {MAX_PACKING} times its size, which no trace does"
            if self._most == MAX_TRACE_BYTES:
                why = f"unpacks to more than {MAX_TRACE_BYTES >> 20} MiB"
            raise DataError(why, path=self._path)
        return text


@contextmanager
def _opened(path: Path) -> Iterator[TextIO | _Unpacked]:
    """Open a file, gzipped or not, as text.

    Raises
    ------
    DataError
        If it cannot be read, is a damaged gzip file, or is larger than a trace may be.
    """
    with reading(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_TRACE_BYTES:
            raise too_large(path, MAX_TRACE_BYTES)
        packed = file.read(2) == _GZIP
        file.seek(0)
        try:
            if packed:
                with gzip.open(file, "rt", encoding="utf-8-sig", errors="replace") as text:
                    yield _Unpacked(text, path)
            else:
                yield TextIOWrapper(file, encoding="utf-8-sig", errors="replace")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"is a damaged gzip file: {error}", path=path) from None
