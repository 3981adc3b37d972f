"""Journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.repeats import Repeats
from perfsim.data.journal import Journal

__all__ = ["KernelJournal", "KernelPoint", "KernelStop", "NetworkJournal", "NetworkPoint"]

KERNEL_JOURNAL_SCHEMA = "perfsim/measured-kernels/1"


@dataclass(frozen=True, slots=True)
class KernelPoint(Repeats):
    """One kernel at one size, with the seconds of each repeat."""

    kernel: str
    elements: int
    width: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class KernelStop:
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


class KernelJournal:
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
        self.points: list[KernelPoint] = []
        self.stops: list[KernelStop] = []
        self._record = Journal(
            path, KERNEL_JOURNAL_SCHEMA, setting, what="a run", anew="`fresh` begins anew"
        )
        self._record.open(self._take, fresh=fresh)

    def add(self, what: KernelPoint | KernelStop) -> None:
        """Append a point or a stop and wait until it is on disk."""
        self._record.add(asdict(what))
        if isinstance(what, KernelPoint):
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
                self.stops.append(KernelStop(*of, str(line["why"]), final=True))
        else:
            self.points.append(KernelPoint(*of, tuple(map(float, line["seconds"]))))


NETWORK_JOURNAL_SCHEMA = "perfsim/measured-points/1"


@dataclass(frozen=True, slots=True)
class NetworkPoint(Repeats):
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


class NetworkJournal:
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
        self.path, self.points = path, list[NetworkPoint]()
        self._record = Journal(
            path,
            NETWORK_JOURNAL_SCHEMA,
            setting,
            what="a sweep",
            anew="delete it or name another `out`",
        )
        self._record.open(lambda line: self._take(_point(line)), fresh=not resume)

    def add(self, point: NetworkPoint) -> None:
        """Append a point and wait until it is on disk."""
        self._record.add(asdict(point))
        self._take(point)

    def done(self) -> set[tuple[str, int, int, int]]:
        """Return what has been measured."""
        return {point.key for point in self.points}

    def remove(self) -> None:
        """Delete the file, once its points stand in a network file."""
        self._record.remove()

    def _take(self, point: NetworkPoint) -> None:
        """Hold a point; a second look replaces the first."""
        self.points = [one for one in self.points if one.key != point.key] + [point]


def _point(line: Mapping[str, Any]) -> NetworkPoint:
    seconds: Sequence[Any] = line["seconds"]
    ranks, nodes, gpus, size = (
        int(line[name]) for name in ("ranks", "nodes", "gpus_per_node", "size_bytes")
    )
    return NetworkPoint(
        str(line["collective"]), ranks, nodes, gpus, size, tuple(map(float, seconds))
    )
