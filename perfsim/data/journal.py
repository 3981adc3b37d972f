"""The journal of a long run: JSON lines on disk, each there when the call that adds it returns.

A run that is killed resumes from it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfsim.data.files import decoded_text, reading
from perfsim.errors import MAX_QUOTED, DataError, RequestError, newer, shown, spelled

__all__ = ["Journal", "WrongLineError"]

MAX_LINE_BYTES = 64 * 2**20
"""Bytes of a line. No source: chosen, tens of times those of a sweep's longest."""


class WrongLineError(ValueError):
    """A line that no run can have written; its text says what was found."""


class Journal:
    """A file whose first line is the setting of a run, and whose other lines are its results.

    Parameters
    ----------
    path : of the file
    schema : of the lines
    setting : what must agree for results to belong together (device, versions, ranks, ...)
    what, anew : the run in words ("a sweep"), and how the user begins anew
    """

    def __init__(
        self, path: Path, schema: str, setting: Mapping[str, Any], *, what: str, anew: str
    ) -> None:
        self.path, self._setting = path, dict(setting)
        self._schema, self._what, self._anew = schema, what, anew

    def open(self, take: Callable[[Mapping[str, Any]], None], *, fresh: bool = False) -> None:
        """Resume the file and give each of its lines to ``take``, or begin it.

        It begins anew if ``fresh``, or if a run was killed before its first line was whole.

        Raises
        ------
        DataError
            If the file is no journal of this schema.
        RequestError
            If it was begun with another setting, or cannot be written.
        """
        if fresh or not self._begun():
            self._begin()
        else:
            self._resume(take)

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line and wait until it is on disk.

        Raises
        ------
        RequestError
            If the file cannot be written.
        """
        self._write(json.dumps(line), "a")

    def remove(self) -> None:
        """Delete the file, once its results are written elsewhere."""
        self.path.unlink(missing_ok=True)

    def _begun(self) -> bool:
        """Say whether there is a first line; a file that cannot be read has one, and is refused."""
        if not os.path.exists(self.path):
            return False
        with reading(self.path) as file:
            line = file.readline(MAX_LINE_BYTES)
        return line.endswith(b"\n") or len(line) == MAX_LINE_BYTES

    def _begin(self) -> None:
        """Write the setting, and overwrite whatever the file holds."""
        self._write(json.dumps({"schema": self._schema, **self._setting}), "w")

    def _resume(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Give every whole line to ``take``, and cut off the half line that a killed run left."""
        number, size, kept = 1, os.path.getsize(self.path), 0
        with reading(self.path) as file:
            try:
                self._check_setting(_read_line(file.readline(MAX_LINE_BYTES)))
                kept = file.tell()
                while line := file.readline(MAX_LINE_BYTES):
                    if not line.endswith(b"\n") and file.tell() == size:
                        break
                    number += 1
                    take(_read_line(line))
                    kept = file.tell()
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                file.seek(0)
                decoded_text(file.read(MAX_LINE_BYTES), self.path, f"; {spelled(self._anew)}.")
                why = f"is no record of {self._what} that can be gone on with"
                if isinstance(error, WrongLineError):
                    why = str(error)
                why = spelled(f"{why}; {self._anew}.")
                raise DataError(why, path=self.path, row=number) from None
        if kept < size:
            # Shortened in place, as writing it anew could lose everything on a full disk.
            os.truncate(self.path, kept)

    def _check_setting(self, setting: Mapping[str, Any]) -> None:
        """Refuse the journal of another run."""
        later = newer(setting.get("schema"), self._schema)
        if later:
            found = f"schema: found {shown(setting['schema'])}, this perfsim reads"
            raise DataError(f"{found} {self._schema!r}{later}", path=self.path, row=1)
        if setting.get("schema") != self._schema or not setting.keys() >= self._setting.keys():
            raise ValueError
        for name, given in self._setting.items():
            if setting.get(name) != given:
                differs = _difference(name, setting.get(name), given)
                raise RequestError("out", f"{self.path} was begun with {differs}; {self._anew}.")

    def _write(self, line: str, mode: str) -> None:
        try:
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            kept = "; what was done before stands in it, and the same command goes on from there"
            if mode == "w":
                kept = ""
                with suppress(OSError):
                    self.remove()
            raise RequestError(
                "out", f"{self.path} cannot be written: {error.strerror}{kept}."
            ) from None


def _difference(name: str, before: object, now: object) -> str:
    """Return in words what differs between two values of a setting; of lists the first item.

    Examples
    --------
    >>> _difference("ranks", 2, 4)
    'ranks 2, now it is 4'
    >>> _difference("host", ["a", "b"], ["a", "c"])
    "host 'b' at rank 1, now it is 'c'"
    """
    if isinstance(before, list) and isinstance(now, list):
        for rank, (old, new) in enumerate(zip(before, now, strict=False)):
            if old != new:
                return f"{name} {shown(old)} at rank {rank}, now it is {shown(new)}"
        return f"{name} of {len(before)} ranks, now of {len(now)}"
    return f"{name} {_plain(before)}, now it is {_plain(now)}"


def _plain(value: object) -> str:
    """Return a short text or a number as it is, anything else as `shown` repeats it."""
    if isinstance(value, str) and value.isprintable() and len(value) <= MAX_QUOTED:
        return value
    return shown(value)


def _read_line(line: bytes) -> Any:
    """Return a line's values.

    Raises
    ------
    ValueError
        If it is no JSON, or holds a number that is not finite.
    """
    return json.loads(line.decode(), parse_constant=_not_finite, parse_float=_finite)


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _not_finite(digits)


def _not_finite(word: str) -> float:
    raise WrongLineError(f"holds {shown(word)[1:-1]}, which is no finite number")
