"""A trace in Chrome's JSON, plain or gzipped, read event by event: never whole in memory."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from perfsim.errors import DataError

__all__ = ["EVENTS", "is_trace", "microseconds", "read_head", "trace_entries"]

EVENTS = "traceEvents"
CHUNK = 1 << 20
"""Characters read at once."""
LARGEST = 16 << 20
"""Characters of one event or setting; if more do not make a JSON value, the file is damaged."""
HEAD = 1 << 20
SMALL = 64 << 20
MOST_PACKED = 200
"""Characters unpacked, and those beyond which they may be at most so many times the packed size."""
GZIP = b"\x1f\x8b"
SPACE = " \t\r\n"


def is_trace(path: Path) -> bool:
    """Say whether a file is a trace, damaged or not: gzipped, or JSON with a list of events.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    with _opened(path, raw=True) as file:
        start = file.read(2)
    if start.encode("latin-1") == GZIP:
        return True
    text = read_head(path)
    return text[:1] in ("[", "{") and (f'"{EVENTS}"' in text or '"ph"' in text)


def read_head(path: Path) -> str:
    """Return the first characters of a trace, without leading space.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    with _opened(path) as file:
        return file.read(HEAD).lstrip("\ufeff" + SPACE)


def trace_entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Give every event as ("traceEvents", event) and every other setting as (key, value).

    The file is an object with a list ``traceEvents``, or that list alone; such a list may lack
    its end, as Chrome's format allows and as writers leave it that are killed.

    Raises
    ------
    DataError
        If the file cannot be read or is no such JSON; names the character where it breaks.
    """
    with _opened(path) as file:
        text = _Text(file, path)
        if text.next() == "[":
            yield from ((EVENTS, event) for event in text.list(endless=True))
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


def microseconds(event: Mapping[str, Any], key: str, place: str) -> float:
    """Return a moment or length of an event [us].

    Raises
    ------
    DataError
        If it is no finite number; says which event, as ``place`` names it.

    Examples
    --------
    >>> microseconds({"ts": 12.5}, "ts", "t.json: event 1")
    12.5
    """
    value = event.get(key)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{place}: is damaged: {key!r} is {value!r:.40}, not a number") from None
    if not math.isfinite(number):
        raise DataError(f"{place}: is damaged: {key!r} is {value!r:.40}, not finite")
    return number


class _Text:
    """JSON taken from a file piece by piece."""

    def __init__(self, file: TextIO | _Bounded, path: Path) -> None:
        self._file, self._path = file, path
        self._held, self._place, self._before = "", 0, 0
        self._decoder = json.JSONDecoder(strict=False)

    def next(self) -> str:
        """Return the next character that is no space, '' at the end; leave it there."""
        while True:
            held, place = self._held, self._place
            while place < len(held) and (held[place] in SPACE or held[place] == "\ufeff"):
                place += 1
            self._place = place
            if place < len(held):
                return held[place]
            if not self._more():
                return ""

    def took(self, mark: str) -> bool:
        """Take a mark if it comes next."""
        if self.next() != mark:
            return False
        self._place += 1
        return True

    def take(self, mark: str) -> None:
        """Take a mark that must come next."""
        if not self.took(mark):
            found = self.next()
            raise self._damaged(f"{found!r} stands" if found else "it ends", f"{mark!r} is needed")

    def list(self, *, endless: bool = False) -> Iterator[Any]:
        """Give the values of the list that comes next."""
        self.take("[")
        while not self.took("]"):
            if endless and not self.next():
                return
            yield self.value()
            if not self.took(","):
                if endless and not self.next():
                    return
                self.take("]")
                return

    def value(self) -> Any:
        """Return the value that comes next."""
        while True:
            self.next()
            try:
                found, place = self._decoder.raw_decode(self._held, self._place)
            except (ValueError, RecursionError) as error:
                long = len(self._held) - self._place > LARGEST
                if isinstance(error, RecursionError) or long or not self._more():
                    raise self._damaged("a damaged value begins", "JSON is needed") from None
                continue
            # A number that ends with what is held may go on in the file.
            if place < len(self._held) or not self._more():
                self._place = place
                return found

    def _more(self) -> bool:
        text = self._file.read(max(CHUNK, len(self._held) - self._place))
        self._before += self._place
        self._held, self._place = self._held[self._place :] + text, 0
        return bool(text)

    def _damaged(self, found: str, needed: str) -> DataError:
        place = self._before + self._place + 1
        return DataError(
            f"is a damaged trace: at character {place} {found} where {needed}", path=self._path
        )


class _Bounded:
    """An unpacked text that ends where no trace would be: past so many times its packed size."""

    def __init__(self, text: TextIO, path: Path) -> None:
        self._text, self._path, self._given = text, path, 0
        self._most = max(SMALL, MOST_PACKED * path.stat().st_size)

    def read(self, count: int) -> str:
        """Return the next characters.

        Raises
        ------
        DataError
            If there are more than any trace packs into such a file.
        """
        text = self._text.read(count)
        self._given += len(text)
        if self._given > self._most:
            told = f"unpacks to more than {MOST_PACKED} times its size, which no trace does"
            raise DataError(told, path=self._path)
        return text


@contextmanager
def _opened(path: Path, *, raw: bool = False) -> Iterator[TextIO | _Bounded]:
    """Open a file, gzipped or not, as text; errors while it is read are its damage."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        if raw:
            with path.open(encoding="latin-1") as text:
                yield text
        elif packed:
            with gzip.open(path, "rt", encoding="utf-8-sig", errors="replace") as text:
                yield _Bounded(text, path)
        else:
            with path.open(encoding="utf-8-sig", errors="replace") as text:
                yield text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"is a damaged gzip file: {error}", path=path) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None
