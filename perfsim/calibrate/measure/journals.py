"""The journals of measuring runs: each point is on disk before the next one is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.repeats import Repeats
from perfsim.data.journal import Journal, WrongLineError
from perfsim.errors import shown
from perfsim.network.network_file import NOTICED, Noticed
from perfsim.quantity import (
    COUNT_LIMIT,
    ELEMENTS_LIMIT,
    MESSAGE_LIMIT,
    TIME_LIMIT,
    NumberLimit,
)
from perfsim.units import format_bytes

__all__ = ["KernelJournal", "KernelPoint", "KernelStop", "NetworkJournal", "NetworkPoint"]

KERNEL_JOURNAL_SCHEMA = "perfsim/measured-kernels/1"
NETWORK_JOURNAL_SCHEMA = "perfsim/measured-points/2"
_WIDTH_LIMIT = NumberLimit(0.0, 1e9, "0 to 1e9")
_WAITED_LIMIT = NumberLimit(0.0, 1e9, "0 s to 1e9 s")


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
        If the file is no journal, or a field of a line holds what no run writes.
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
        kernel = _text(line, "kernel")
        key = kernel, _whole(line, "elements", ELEMENTS_LIMIT), _whole(line, "width", _WIDTH_LIMIT)
        if "why" not in line:
            self.points.append(KernelPoint(*key, _times(line)))
            return
        why, final = _text(line, "why"), line["final"]
        if not isinstance(final, bool):
            raise WrongLineError(f"final is {shown(final)}, not true or false")
        if final:
            self.stops.append(KernelStop(*key, why, final=True))


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
    were replaced, and references that were only looked at, which ``looks`` has alone.
    ``noticed`` is what was noticed, ``runs`` a sentence a run that went on with the file.

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
        If the file is no journal, or a field of a line holds what no run writes.
    """

    def __init__(self, path: Path, setting: Mapping[str, Any], *, fresh: bool = False) -> None:
        anew = "`fresh` begins anew"
        super().__init__(path, NETWORK_JOURNAL_SCHEMA, setting, what="a sweep", anew=anew)
        self.points: list[NetworkPoint] = []
        self.attempts: list[NetworkPoint] = []
        self.looks: list[NetworkPoint] = []
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
        self._keep_look(point)

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

    def _keep_look(self, point: NetworkPoint) -> None:
        self.attempts.append(point)
        self.looks.append(point)

    def _take(self, line: Mapping[str, Any]) -> None:
        if "run" in line:
            self.runs.append(str(line["run"]))
        elif "noticed" in line:
            what, text = (_text(line["noticed"], name) for name in ("what", "text"))
            if what not in NOTICED:
                raise WrongLineError(f"what is {shown(what)}, not one of {', '.join(NOTICED)}")
            self.noticed.append(Noticed(what, text))
        elif "look" in line:
            self._keep_look(_point_of(line["look"]))
        else:
            self._keep(_point_of(line))


def _point_of(line: Mapping[str, Any]) -> NetworkPoint:
    """Return the point that a line holds.

    Raises
    ------
    WrongLineError
        If a field holds what no run writes.
    KeyError, TypeError
        If a field is missing, or the line is no table.
    """
    names = ("ranks", "nodes", "gpus_per_node")
    ranks, nodes, gpus = (_whole(line, name, COUNT_LIMIT) for name in names)
    size_bytes, seconds = _whole(line, "size_bytes", MESSAGE_LIMIT), _times(line)
    waited_s = line["waited_s"]
    if not _is_number(waited_s) or not _WAITED_LIMIT.holds(waited_s):
        raise WrongLineError(f"waited_s is {shown(waited_s)}, not a time of {_WAITED_LIMIT.words}")
    collective = _text(line, "collective")
    return NetworkPoint(collective, ranks, nodes, gpus, size_bytes, seconds, float(waited_s))


def _is_number(value: object) -> bool:
    """Tell whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(line: Mapping[str, Any], name: str) -> str:
    """Return a field that is a text."""
    value = line[name]
    if not isinstance(value, str) or not value:
        raise WrongLineError(f"{name} is {shown(value)}, not a text")
    return value


def _whole(line: Mapping[str, Any], name: str, limit: NumberLimit) -> int:
    """Return a field that is a whole number within a limit."""
    value = line[name]
    if not isinstance(value, int) or not _is_number(value) or not limit.holds(value):
        raise WrongLineError(f"{name} is {shown(value)}, not a whole number of {limit.words}")
    return value


def _times(line: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the times of a line's repeats [s]."""
    seconds = line["seconds"]
    if not isinstance(seconds, list) or not seconds:
        raise WrongLineError(f"seconds is {shown(seconds)}, not a list of times")
    for index, one in enumerate(seconds):
        if not _is_number(one) or not TIME_LIMIT.holds(one):
            allowed = f"a time of {TIME_LIMIT.words}"
            raise WrongLineError(f"seconds[{index}] is {shown(one)}, not {allowed}")
    return tuple(map(float, seconds))
