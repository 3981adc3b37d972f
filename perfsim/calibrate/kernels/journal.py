"""What a run has measured so far, on disk from the first point on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfsim.calibrate.sweep.steady import Repeats
from perfsim.journal import Record

__all__ = ["Journal", "Point", "Stop"]

SCHEMA = "perfsim/measured-kernels/1"


@dataclass(frozen=True, slots=True)
class Point(Repeats):
    """One kernel at one size, with the seconds of each repeat."""

    kernel: str
    elements: int
    width: int
    seconds: tuple[float, ...]


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
        self.path = path
        self.points: list[Point] = []
        self.stops: list[Stop] = []
        self._record = Record(path, SCHEMA, setting, what="a run", anew="--fresh begins anew")
        self._record.open(self._take, fresh=fresh)

    def add(self, what: Point | Stop) -> None:
        """Append a point or a stop and wait until it is on disk."""
        self._record.add(asdict(what))
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
        self._record.remove()

    def _take(self, line: Mapping[str, Any]) -> None:
        of = str(line["kernel"]), int(line["elements"]), int(line["width"])
        if "why" in line:
            if line["final"]:
                self.stops.append(Stop(*of, str(line["why"]), final=True))
        else:
            self.points.append(Point(*of, tuple(map(float, line["seconds"]))))
