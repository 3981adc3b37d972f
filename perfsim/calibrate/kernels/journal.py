"""What a run has measured so far, on disk from the first point on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from perfsim.calibrate.sweep.steady import half_width
from perfsim.errors import DataError, RequestError

__all__ = ["Journal", "Point", "Stop"]

SCHEMA = "perfsim/measured-kernels/1"


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel at one size, with the seconds of each repeat."""

    kernel: str
    elements: int
    width: int
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median repeat [s]."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the median's 90 % interval over the median; infinite of fewer than 5 repeats."""
        return half_width(self.seconds)


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a kernel was not measured at a size and above, at one width.

    ``final`` where a later run would fare alike: memory or library said no, not time.
    """

    kernel: str
    elements: int
    width: int
    why: str
    final: bool

    def __str__(self) -> str:
        """Return kernel, size and reason."""
        width = f", width {self.width}" if self.width else ""
        return f"{self.kernel} from {self.elements:,} on{width}: {self.why}"


class Journal:
    """A file of JSON lines: the setting first, then a point or a stop a line.

    Parameters
    ----------
    path : of the file
    setting : what must agree for points to belong together (device, software)
    fresh : begin anew even if the file is there

    Raises
    ------
    RequestError
        If the file cannot be written, or was begun with another setting.
    DataError
        If the file is no journal.
    """

    def __init__(self, path: Path, setting: Mapping[str, str], *, fresh: bool = False) -> None:
        self.path, self.setting = path, dict(setting)
        self.points: list[Point] = []
        self.stops: list[Stop] = []
        if not fresh and path.exists() and path.stat().st_size:
            self._read()
        else:
            self._write(json.dumps({"schema": SCHEMA, **self.setting}), "w")

    def add(self, what: Point | Stop) -> None:
        """Append a point or a stop and wait until it is on disk."""
        self._write(json.dumps(asdict(what)), "a")
        if isinstance(what, Point):
            self.points.append(what)
        else:
            self.stops.append(what)

    def has(self, kernel: str, elements: int, width: int) -> bool:
        """Say whether a point is there already."""
        wanted = kernel, elements, width
        return any((one.kernel, one.elements, one.width) == wanted for one in self.points)

    def stopped(self, kernel: str, elements: int, width: int) -> bool:
        """Say whether a kernel was stopped at this size or below it."""
        return any(
            (one.kernel, one.width) == (kernel, width) and one.elements <= elements
            for one in self.stops
        )

    def remove(self) -> None:
        """Delete the file, once all its points stand in the file of kernels."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> None:
        try:
            text = self.path.read_text(encoding="utf-8")
            head, *lines = text.splitlines()
            setting = json.loads(head)
            if setting.get("schema") != SCHEMA:
                raise ValueError
            # The last line may be half a point, of a run that was killed as it wrote.
            whole = lines if text.endswith("\n") else lines[:-1]
            for line in map(json.loads, whole):
                self._take(line)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise DataError(
                "is no record of a run that can be gone on with; --fresh begins anew",
                path=self.path,
            ) from None
        for name, given in self.setting.items():
            if setting.get(name) != given:
                raise RequestError(
                    f"--out: {self.path} was begun with {name} {setting.get(name)}, now it is"
                    f" {given}; --fresh begins anew."
                )
        if whole is not lines:
            self._write("\n".join([head, *whole]), "w")

    def _take(self, line: Mapping[str, Any]) -> None:
        of = str(line["kernel"]), int(line["elements"]), int(line["width"])
        if "why" in line:
            if line["final"]:
                self.stops.append(Stop(*of, str(line["why"]), final=True))
        else:
            self.points.append(Point(*of, tuple(map(float, line["seconds"]))))

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
