"""What the readers of measurement files share: rows of times, and what makes a line damaged.

A reader collects `LogRun`s (rows measured in one go, with what the file says about them) and turns
them into curves; `DamagedLines` decides whether a damaged line is an error or left out. Each format
is a class with `log_format` above it.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from perfsim.collectives import COLLECTIVES
from perfsim.errors import DataError, RequestError, nearest, shown, spelled
from perfsim.network.measured import CollectiveCurve
from perfsim.quantity import MESSAGE_LIMIT, TIME_LIMIT

__all__ = [
    "LOG_FORMATS",
    "MAX_DIGITS",
    "MAX_RANKS",
    "DamagedLines",
    "GivenFacts",
    "LogFormat",
    "LogRow",
    "LogRun",
    "busbw_factor",
    "collective_name",
    "decimal_of",
    "known_collective",
    "log_format",
    "seconds_of",
    "size_of",
]

MAX_RANKS = 10**9
"""No cluster has as many GPUs."""

MAX_DIGITS = 30
"""Powers of ten beyond which no time, size or rate lies."""

_MIN_S = 1e-7
"""No collective has ever taken less than 0.1 us."""

_MAX_BUSBW_ERROR = 0.1
"""A bus bandwidth further than this from its time and size is a damaged line.

No source: chosen well above the rounding of the printed digits.
"""

_MAX_REPEAT_RATIO = 10.0
"""Repeats of one size this many times apart contradict each other. No source: chosen so that
slow first runs are kept."""

_MIN_CHECKED_ROWS = 5
"""Rows whose bandwidth can be checked before all of a run is doubted. No source: one or two
damaged lines should not doubt a run."""

_NAMES = {collective.replace("_", ""): collective for collective in COLLECTIVES} | {
    "reducescattertensor": "reduce_scatter",
    "allgatherintotensor": "all_gather",
    "allgatherbase": "all_gather",
    "bcast": "broadcast",
    "alltoallsingle": "all_to_all",
}
"""What tools and libraries call a collective, in letters only."""


# What the user says, and which lines are damaged


@dataclass(frozen=True, slots=True)
class GivenFacts:
    """What the user says about a file that does not say it itself."""

    collective: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None

    def __post_init__(self) -> None:
        """Refuse counts that cannot be."""
        for name in ("ranks", "nodes", "gpus_per_node"):
            count = getattr(self, name)
            if count is not None and not 0 < count < MAX_RANKS:
                why = f"{count} is not allowed: it must be 1 to {MAX_RANKS - 1:,}."
                raise RequestError(name, why, value=count)


MAX_SKIPPED = 10_000
"""Damaged lines that are left out and named. No source: chosen."""


@dataclass(slots=True)
class DamagedLines:
    """The damaged lines of one file: the first is an error, unless they are to be left out."""

    path: Path
    skip_bad: bool = False
    skipped: list[str] = field(default_factory=list)

    def bad(self, row: int, what: str) -> None:
        """Note a damaged line.

        Raises
        ------
        DataError
            Unless damaged lines are skipped; it names file, line and what was found. Also if there
            are more than `MAX_SKIPPED`: then the file is another than it seems.
        """
        if not self.skip_bad:
            hint = spelled(" (`skip_bad` leaves such lines out)")
            raise DataError(f"{what}{hint}", path=self.path, row=row)
        if len(self.skipped) == MAX_SKIPPED:
            raise self.fatal(f"has more than {MAX_SKIPPED:,} damaged lines", row)
        self.skipped.append(f"{self.path}:{row}: {what}")

    def fatal(self, what: str, row: int | None = None) -> DataError:
        """Return the error for what no skipping mends."""
        return DataError(what, path=self.path, row=row)


# The formats


class LogFormat(ABC):
    """One format of measured collectives: how to recognise a file of it, and how to read one."""

    title: ClassVar[str]
    """What the format is, in a few words."""

    @abstractmethod
    def matches(self, text: str) -> bool:
        """Say whether a file's text is of this format."""

    @abstractmethod
    def read(
        self, text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
    ) -> tuple[list[CollectiveCurve], list[str]]:
        """Read the curves, one for each measurement and repeat, and the damaged lines left out."""


LOG_FORMATS: dict[str, LogFormat] = {}
"""Formats by name; `perfsim.calibrate.formats.formats` gives them in the order of trial."""

_AnyFormat = TypeVar("_AnyFormat", bound=type[LogFormat])


def log_format(name: str, title: str) -> Callable[[_AnyFormat], _AnyFormat]:
    """Register a format under a name, with a title for messages."""

    def register(kind: _AnyFormat) -> _AnyFormat:
        kind.title = title
        LOG_FORMATS[name] = kind()
        return kind

    return register


# Cells


def collective_name(text: str) -> str:
    """Return perfsim's name of a collective, '' where it knows none.

    Examples
    --------
    >>> collective_name("alltoall"), collective_name("All-Reduce"), collective_name("hypercube")
    ('all_to_all', 'all_reduce', '')
    """
    letters = re.sub(r"[^a-z]", "", text.lower())
    return _NAMES.get(letters.removeprefix("nccl").removesuffix("mpi").removesuffix("perf"), "")


def known_collective(text: str, rows: DamagedLines, row: int | None = None) -> str:
    """Return perfsim's name of a collective; refuse one that it does not know."""
    name = collective_name(text)
    if not name:
        allowed = sorted(set(_NAMES.values()))
        match = nearest(text, allowed)
        hint = f"; did you mean {match!r}?" if match else ""
        raise rows.fatal(f"no collective {shown(text)}{hint} (allowed: {', '.join(allowed)})", row)
    return name


def decimal_of(text: str) -> Decimal | None:
    """Return a cell's number as it is written, None where it is none."""
    try:
        return Decimal(text) if text.isascii() and "_" not in text else None
    except (ArithmeticError, ValueError):
        return None


def seconds_of(text: str, unit_exponent: int = -6) -> float:
    """Return the seconds that a cell says in microseconds (or another power of ten).

    Raises
    ------
    ValueError
        If it is no number, not finite, or below 0.1 us; the message says what was found.

    Examples
    --------
    >>> seconds_of("35.93")
    3.593e-05
    """
    number = decimal_of(text)
    if number is None:
        raise ValueError(f"time {shown(text)} is not a number")
    if number.is_finite() and abs(number.adjusted()) <= MAX_DIGITS:
        seconds = float(number.scaleb(unit_exponent))
        if math.isfinite(seconds) and _MIN_S <= seconds <= TIME_LIMIT.most:
            return seconds
    raise ValueError(f"time {shown(text)} is not allowed: it must be 0.1 us to 1e9 s")


def size_of(text: str) -> float:
    """Return the bytes of a cell; refuse what is no positive number."""
    number = decimal_of(text)
    if number is None:
        raise ValueError(f"size {shown(text)} is not a number of bytes")
    if (
        not number.is_finite()
        or abs(number.adjusted()) > MAX_DIGITS
        or not MESSAGE_LIMIT.holds(float(number))
    ):
        raise ValueError(f"size {shown(text)} is not allowed: it must be {MESSAGE_LIMIT.words}")
    return float(number)


def busbw_factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth over size / time, as nccl-tests defines it (doc/PERFORMANCE.md).

    Examples
    --------
    >>> busbw_factor("all_reduce", 4), busbw_factor("all_gather", 4), busbw_factor("reduce", 4)
    (1.5, 0.75, 1.0)
    """
    share = (ranks - 1) / ranks
    if collective == "all_reduce":
        return 2 * share
    return share if collective in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


# Runs


@dataclass(frozen=True, slots=True)
class LogRow:
    """One time of one size, its line, and the bus bandwidth printed beside it ('' none)."""

    row: int
    size_bytes: float
    seconds: float
    busbw: str = ""


@dataclass(slots=True)
class LogRun:
    """Rows measured in one go.

    ``facts`` are the fields of `CollectiveCurve` that the file says about it, but for the points;
    ``columns`` hold its times: out of place, in place, or whatever was repeated.
    """

    facts: dict[str, Any]
    columns: dict[str, list[LogRow]] = field(default_factory=dict)
    row: int | None = None

    def add(self, column: str, row: int, size: str, time: str, busbw: str, unit: int) -> None:
        """Add a time; raise ValueError where it is damaged."""
        added = LogRow(row, size_of(size), seconds_of(time, unit), busbw)
        self.columns.setdefault(column, []).append(added)

    def settle_ranks(self, given: GivenFacts, rows: DamagedLines) -> None:
        """Settle collective, ranks, nodes and GPUs a node from the file and the user."""
        facts = self.facts
        for name in ("collective", "ranks", "nodes", "gpus_per_node"):
            asked, stated = getattr(given, name), facts.get(name)
            if asked is not None and stated is not None and asked != stated:
                field_ = spelled(f"`{name}`")
                raise rows.fatal(f"says {name} {stated}, but {field_} is {asked}", self.row)
            if stated is None:
                facts[name] = asked
        if facts["collective"] is None:
            asks = "give `collective`, or name the file after it"
            why = spelled(f"does not say which collective it measured; {asks}")
            raise rows.fatal(why, self.row)
        ranks, nodes, per_node = facts["ranks"], facts["nodes"], facts["gpus_per_node"]
        if ranks is None and nodes is not None and per_node is not None:
            ranks = nodes * per_node
        if nodes is None and ranks is not None and per_node is not None:
            nodes = -(-ranks // per_node)
        if ranks is None or nodes is None:
            lacks = "ranks and nodes; give `ranks` and `nodes`" if ranks is None else ""
            why = spelled(f"does not say the number of {lacks or 'nodes; give `nodes`'}")
            raise rows.fatal(why, self.row)
        facts.update(ranks=ranks, nodes=nodes, gpus_per_node=per_node or -(-ranks // nodes))

    def curves(self, rows: DamagedLines) -> Iterable[CollectiveCurve]:
        """Give one curve for each column and each repeat of its sweep."""
        self._drop_contradicted(rows)
        for points in self.columns.values():
            for sweep in _sweeps(points, rows):
                sizes = tuple(point.size_bytes for point in sweep)
                seconds = tuple(point.seconds for point in sweep)
                try:
                    yield CollectiveCurve(size_bytes=sizes, seconds=seconds, **self.facts)
                except DataError as error:
                    raise rows.fatal(str(error), self.row) from None

    def _drop_contradicted(self, rows: DamagedLines) -> None:
        """Name rows whose bus bandwidth contradicts time and size; doubt the run if most do."""
        collective, ranks = self.facts["collective"], self.facts["ranks"]
        factor = busbw_factor(collective, ranks)
        agreements = {
            name: [_agrees(point, factor) for point in points]
            for name, points in self.columns.items()
        }
        checked = [
            agrees for column in agreements.values() for agrees in column if agrees is not None
        ]
        if len(checked) >= _MIN_CHECKED_ROWS and sum(checked) < len(checked) / 2:
            raise rows.fatal(
                f"its bus bandwidths are not those of {collective} on {ranks} ranks; is this"
                " the collective, and the number of ranks?",
                self.row,
            )
        for name, points in self.columns.items():
            kept = []
            for point, agrees in zip(points, agreements[name], strict=True):
                if agrees is not False:
                    kept.append(point)
                    continue
                rate = factor * point.size_bytes / point.seconds / 1e9
                rows.bad(
                    point.row,
                    f"bus bandwidth {shown(point.busbw)[1:-1]} GB/s, but"
                    f" {point.size_bytes:g} B in {point.seconds * 1e6:g} us are"
                    f" {rate:.4g} GB/s",
                )
            self.columns[name] = kept


def _agrees(point: LogRow, factor: float) -> bool | None:
    """Say whether a bus bandwidth fits time and size; None where it says nothing."""
    printed = decimal_of(point.busbw)
    if printed is None or not printed.is_finite() or factor == 0:
        return None
    exponent = printed.as_tuple().exponent
    if abs(printed.adjusted()) > MAX_DIGITS or not isinstance(exponent, int):
        return False
    last_digit = 10.0**exponent
    rate = factor * point.size_bytes / point.seconds / 1e9
    if rate < last_digit and float(printed) <= last_digit:
        return None
    return abs(float(printed) - rate) <= _MAX_BUSBW_ERROR * rate + 0.51 * last_digit


def _sweeps(points: list[LogRow], rows: DamagedLines) -> list[list[LogRow]]:
    """Return the points in sweeps of rising size: the nth time of a size is in the nth sweep."""
    by_size: dict[float, list[LogRow]] = {}
    for point in points:
        same = by_size.setdefault(point.size_bytes, [])
        ratio = point.seconds / same[0].seconds if same else 1.0
        if not 1 / _MAX_REPEAT_RATIO <= ratio <= _MAX_REPEAT_RATIO:
            rows.bad(
                point.row,
                f"{point.size_bytes:g} B in {point.seconds * 1e6:g} us, but line {same[0].row} says"
                f" {same[0].seconds * 1e6:g} us",
            )
            continue
        same.append(point)
    ordered = [by_size[size] for size in sorted(by_size)]
    return [[point for point in nth if point] for nth in zip_longest(*ordered)]
