"""What a sweep has measured so far, on disk from the first point on: a run can be resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfsim.calibrate.sweep.steady import Repeats
from perfsim.journal import Record

__all__ = ["Journal", "Point"]

SCHEMA = "perfsim/measured-points/1"


@dataclass(frozen=True, slots=True)
class Point(Repeats):
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
        self.path, self.points = path, list[Point]()
        self._record = Record(
            path, SCHEMA, setting, what="a sweep", anew="delete it or name another --out"
        )
        self._record.open(lambda line: self._take(_point(line)), fresh=not resume)

    def add(self, point: Point) -> None:
        """Append a point and wait until it is on disk."""
        self._record.add(asdict(point))
        self._take(point)

    def done(self) -> set[tuple[str, int, int, int]]:
        """Return what has been measured."""
        return {point.key for point in self.points}

    def remove(self) -> None:
        """Delete the file, once its points stand in a network file."""
        self._record.remove()

    def _take(self, point: Point) -> None:
        """Hold a point; a second look replaces the first."""
        self.points = [one for one in self.points if one.key != point.key] + [point]


def _point(line: Mapping[str, Any]) -> Point:
    seconds: Sequence[Any] = line["seconds"]
    ranks, nodes, gpus, size = (
        int(line[name]) for name in ("ranks", "nodes", "gpus_per_node", "size_bytes")
    )
    return Point(str(line["collective"]), ranks, nodes, gpus, size, tuple(map(float, seconds)))
