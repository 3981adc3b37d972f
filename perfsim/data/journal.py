"""The journal of a long run: JSON lines on disk, each there when the call that adds it returns.

A run that is killed resumes from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfsim.data.files import decoded
from perfsim.errors import DataError, RequestError, shown, spelled

__all__ = ["Journal"]


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
        try:
            return b"\n" in self.path.read_bytes()
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a file that cannot be read is refused, not overwritten

    def _begin(self) -> None:
        """Write the setting, and overwrite whatever the file holds."""
        self._write(json.dumps({"schema": self._schema, **self._setting}), "w")

    def _resume(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Give every whole line to ``take``, and cut off the half line that a killed run left."""
        try:
            text = decoded(self.path.read_bytes(), self.path, f"; {spelled(self._anew)}.")
            head, *lines = text.splitlines()
            setting = json.loads(head)
            if setting.get("schema") != self._schema:
                raise ValueError
            whole = lines if text.endswith("\n") else lines[:-1]
            for line in whole:
                take(json.loads(line))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            why = f"is no record of {self._what} that can be gone on with; {self._anew}."
            raise DataError(spelled(why), path=self.path) from None
        for name, given in self._setting.items():
            if setting.get(name) != given:
                differs = _difference(name, setting.get(name), given)
                raise RequestError("out", f"{self.path} was begun with {differs}; {self._anew}.")
        if whole is not lines:
            # Shortened in place, as writing it anew could lose everything on a full disk.
            os.truncate(self.path, len(text[: text.rindex("\n") + 1].encode()))

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
    return f"{name} {before}, now it is {now}"
