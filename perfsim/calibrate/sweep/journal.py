"""What a sweep has measured so far, on disk from the first point on: a run can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from perfsim.calibrate.sweep.steady import half_width
from perfsim.errors import DataError, RequestError

__all__ = ["Journal", "Point"]

SCHEMA = "perfsim/measured-points/1"


@dataclass(frozen=True, slots=True)
class Point:
    """One collective, group and size [B] with the seconds of each repeat, slowest rank."""

    collective: str
    ranks: int
    nodes: int
    gpus_per_node: int
    size_bytes: int
    seconds: tuple[float, ...]

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Collective, nodes, ranks a node and size: what a point is of."""
        return self.collective, self.nodes, self.gpus_per_node, self.size_bytes

    @property
    def median_s(self) -> float:
        """The median repeat [s]."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the median's 90 % interval over the median."""
        return half_width(self.seconds)


class Journal:
    """A file of JSON lines: the setting first, then a point a line, each on disk when it returns.

    Parameters
    ----------
    path : of the file
    setting : what must agree for points to belong together (library, version, ranks, nodes, ...)
    resume : go on with the file if it is there; else it must not hold anything

    Raises
    ------
    RequestError
        If the file cannot be written, or holds points of another setting.
    DataError
        If the file is no journal.
    """

    def __init__(self, path: Path, setting: Mapping[str, Any], *, resume: bool = True) -> None:
        self.path, self.setting = path, dict(setting)
        self.points: list[Point] = []
        if not (resume and path.exists() and self._read()):
            self._write(json.dumps({"schema": SCHEMA, **self.setting}), "w")

    def add(self, point: Point) -> None:
        """Append a point and wait until it is on disk."""
        self._write(json.dumps(asdict(point)), "a")
        self._take(point)

    def _take(self, point: Point) -> None:
        """Hold a point; a second look replaces the first."""
        self.points = [one for one in self.points if one.key != point.key] + [point]

    def done(self) -> set[tuple[str, int, int, int]]:
        """Return what has been measured."""
        return {point.key for point in self.points}

    def remove(self) -> None:
        """Delete the file, once its points stand in a network file."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> bool:
        """Take over what the file holds; False where its run was killed before the first line."""
        try:
            text = self.path.read_text(encoding="utf-8")
            if "\n" not in text:
                return False
            head, *lines = text.splitlines()
            setting = json.loads(head)
            begun = {name: setting.get(name) for name in self.setting}
            if setting.get("schema") != SCHEMA:
                raise ValueError
            # The last line may be half a point, of a run that was killed as it wrote.
            whole = lines if text.endswith("\n") else lines[:-1]
            for line in whole:
                self._take(_point(json.loads(line)))
        except (OSError, ValueError, TypeError, AttributeError):
            raise DataError(
                "is no record of a sweep that can be gone on with; delete it or name another --out",
                path=self.path,
            ) from None
        for name, given in self.setting.items():
            if begun[name] != given:
                raise RequestError(
                    f"--out: {self.path} was begun with {name} {begun[name]}, now it is {given};"
                    " delete it or name another --out."
                )
        if whole is not lines:
            # Shortened in place: writing it anew could lose all on a disk that is still full.
            os.truncate(self.path, len(text[: text.rindex("\n") + 1].encode()))
        return True

    def _write(self, line: str, mode: str) -> None:
        try:
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RequestError(
                f"--out: {self.path} cannot be written: {error.strerror}; what was measured"
                " before stands in it, and the same command goes on from there."
            ) from None


def _point(line: Mapping[str, Any]) -> Point:
    seconds: Sequence[Any] = line["seconds"]
    ranks, nodes, gpus, size = (
        int(line[name]) for name in ("ranks", "nodes", "gpus_per_node", "size_bytes")
    )
    return Point(str(line["collective"]), ranks, nodes, gpus, size, tuple(map(float, seconds)))
