"""The journals of measuring runs: each point is on disk before the next one is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.repeats import Repeats
from perfsim.data.journal import Journal
from perfsim.network.network_file import NOTICED, Noticed
from perfsim.units import format_bytes

__all__ = ["KernelJournal", "KernelPoint", "KernelStop", "NetworkJournal", "NetworkPoint"]

KERNEL_JOURNAL_SCHEMA = "perfsim/measured-kernels/1"
NETWORK_JOURNAL_SCHEMA = "perfsim/measured-points/2"


@dataclass(frozen=True, slots=True)
class KernelPoint(Repeats):
    """One kernel at one size, with the seconds of each repeat."""

    kernel: str
    elements: int
    width: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class KernelStop:
    """Why a kernel was not measured from a size on, at one width.

    ``final`` if a later run would end alike: memory ran out or the library refused. A kernel that
    ran out of time is tried again.
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


class KernelJournal(Journal):
    """The points and stops of a run of kernels.

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
        anew = "`fresh` begins anew"
        super().__init__(path, KERNEL_JOURNAL_SCHEMA, setting, what="a run", anew=anew)
        self.points: list[KernelPoint] = []
        self.stops: list[KernelStop] = []
        self.open(self._take, fresh=fresh)

    def add_point(self, entry: KernelPoint | KernelStop) -> None:
        """Append a point or a stop and wait until it is on disk."""
        self.add(asdict(entry))
        if isinstance(entry, KernelPoint):
            self.points.append(entry)
        else:
            self.stops.append(entry)

    def has(self, kernel: str, elements: int, width: int) -> bool:
        """Say whether this point is measured already."""
        wanted = kernel, elements, width
        return any((point.kernel, point.elements, point.width) == wanted for point in self.points)

    def stopped(self, kernel: str, elements: int, width: int) -> bool:
        """Say whether a kernel was stopped at this size or below it."""
        return any(
            (stop.kernel, stop.width) == (kernel, width) and stop.elements <= elements
            for stop in self.stops
        )

    def _take(self, line: Mapping[str, Any]) -> None:
        key = str(line["kernel"]), int(line["elements"]), int(line["width"])
        if "why" not in line:
            self.points.append(KernelPoint(*key, tuple(map(float, line["seconds"]))))
        elif line["final"]:
            self.stops.append(KernelStop(*key, str(line["why"]), final=True))


@dataclass(frozen=True, slots=True)
class NetworkPoint(Repeats):
    """One collective, group and size [B], with the slowest rank's seconds of each repeat.

    ``waited_s`` is how long a rank's process was ready to run meanwhile and had no core, of the
    rank that waited most.
    """

    collective: str
    ranks: int
    nodes: int
    gpus_per_node: int
    size_bytes: int
    seconds: tuple[float, ...]
    waited_s: float = 0.0

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Collective, nodes, ranks a node and size: what identifies the point."""
        return self.collective, self.nodes, self.gpus_per_node, self.size_bytes

    @property
    def name(self) -> str:
        """The point in words."""
        shape = f"{self.ranks} ranks ({self.nodes} x {self.gpus_per_node})"
        return f"{self.collective} on {shape} at {format_bytes(self.size_bytes)}"


class NetworkJournal(Journal):
    """The points of a sweep of collectives, and what was noticed on the way.

    ``points`` are the points as they stand, ``attempts`` all that were ever measured: those that
    were replaced, and references that were only looked at. ``noticed`` is what was noticed,
    ``runs`` a sentence a run that went on with the file.

    Parameters
    ----------
    path : of the file
    setting : what must agree for points to belong together (hosts, interfaces, versions, ...)
    fresh : begin anew even if the file is there

    Raises
    ------
    RequestError
        If the file cannot be written, or was begun with another setting.
    DataError
        If the file is no journal.
    """

    def __init__(self, path: Path, setting: Mapping[str, Any], *, fresh: bool = False) -> None:
        anew = "`fresh` begins anew"
        super().__init__(path, NETWORK_JOURNAL_SCHEMA, setting, what="a sweep", anew=anew)
        self.points: list[NetworkPoint] = []
        self.attempts: list[NetworkPoint] = []
        self.noticed: list[Noticed] = []
        self.runs: list[str] = []
        self.open(self._take, fresh=fresh)

    def add_point(self, point: NetworkPoint) -> None:
        """Append a point and wait until it is on disk; it replaces an earlier one of its key."""
        self.add(asdict(point))
        self._keep(point)

    def add_look(self, point: NetworkPoint) -> None:
        """Append repeats of a point that were taken only to compare: they replace nothing."""
        self.add({"look": asdict(point)})
        self.attempts.append(point)

    def add_noticed(self, noticed: Noticed) -> None:
        """Append what was noticed; the network file says it in the end."""
        self.add({"noticed": noticed._asdict()})
        self.noticed.append(noticed)

    def add_run(self, words: str) -> None:
        """Append when a run began or went on, and with which options."""
        self.add({"run": words})
        self.runs.append(words)

    def measured_keys(self) -> set[tuple[str, int, int, int]]:
        """Return the keys of the points that have been measured."""
        return {point.key for point in self.points}

    def _keep(self, point: NetworkPoint) -> None:
        self.attempts.append(point)
        self.points = [other for other in self.points if other.key != point.key] + [point]

    def _take(self, line: Mapping[str, Any]) -> None:
        if "run" in line:
            self.runs.append(str(line["run"]))
        elif "noticed" in line:
            what, text = (str(line["noticed"][name]) for name in ("what", "text"))
            if what not in NOTICED:
                raise ValueError(what)
            self.noticed.append(Noticed(what, text))
        elif "look" in line:
            self.attempts.append(_point_of(line["look"]))
        else:
            self._keep(_point_of(line))


def _point_of(line: Mapping[str, Any]) -> NetworkPoint:
    """Return the point that a line holds.

    Raises
    ------
    ValueError, KeyError, TypeError
        If it is no point: numbers are missing, or its times are none.
    """
    names = ("ranks", "nodes", "gpus_per_node", "size_bytes")
    ranks, nodes, gpus, size = (int(line[name]) for name in names)
    seconds = tuple(map(float, line["seconds"]))
    if not seconds or not all(0.0 < one < math.inf for one in seconds):
        raise ValueError("no times")
    waited_s = float(line["waited_s"])
    if not 0.0 <= waited_s < math.inf:
        raise ValueError("no time of waiting")
    return NetworkPoint(str(line["collective"]), ranks, nodes, gpus, size, seconds, waited_s)
