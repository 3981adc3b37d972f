"""What readers of measurement files share: where a run stood, its rows, and what damages them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

from perfsim.collectives import COLLECTIVES
from perfsim.errors import DataError, RequestError, nearest, shown
from perfsim.network.measured import CollectiveCurve
from perfsim.quantity import MESSAGE_LIMIT, TIME_LIMIT

__all__ = [
    "DIGITS",
    "MOST",
    "NAMES",
    "GivenFacts",
    "Log",
    "LogRow",
    "LogRows",
    "LogRun",
    "busbw_factor",
    "clean",
    "collective_name",
    "decimal_of",
    "held_word",
    "known",
    "named",
    "seconds_of",
    "shape",
    "size_of",
    "version_of",
]

LEAST_S = 1e-7
"""No collective has ever taken less than 0.1 us."""
DIGITS = 30
"""Powers of ten beyond which no time, size or rate lies."""

NAMES = {collective.replace("_", ""): collective for collective in COLLECTIVES} | {
    "reducescattertensor": "reduce_scatter",
    "allgatherintotensor": "all_gather",
    "allgatherbase": "all_gather",
    "bcast": "broadcast",
    "alltoallsingle": "all_to_all",
}
"""What tools and libraries call a collective, in letters only."""


def collective_name(text: str) -> str:
    """Return perfsim's name of a collective, '' where it knows none.

    Examples
    --------
    >>> collective_name("alltoall"), collective_name("All-Reduce"), collective_name("hypercube")
    ('all_to_all', 'all_reduce', '')
    """
    plain = re.sub(r"[^a-z]", "", text.lower())
    return NAMES.get(plain.removeprefix("nccl").removesuffix("mpi").removesuffix("perf"), "")


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
    if not number.is_finite() or abs(number.adjusted()) > DIGITS:
        raise ValueError(f"time {shown(text)} cannot be: it is finite and at least 0.1 us")
    seconds = float(number.scaleb(unit_exponent))
    if not math.isfinite(seconds) or not LEAST_S <= seconds <= TIME_LIMIT.most:
        raise ValueError(f"time {shown(text)} cannot be: it is finite and at least 0.1 us")
    return seconds


def decimal_of(text: str) -> Decimal | None:
    """Return a cell's number as it is written, None where it is none."""
    try:
        return Decimal(text) if text.isascii() and "_" not in text else None
    except (ArithmeticError, ValueError):
        return None


def size_of(text: str) -> float:
    """Return the bytes of a cell; refuses what is no positive number."""
    number = decimal_of(text)
    if number is None:
        raise ValueError(f"size {shown(text)} is not a number of bytes")
    if (
        not number.is_finite()
        or abs(number.adjusted()) > DIGITS
        or not MESSAGE_LIMIT.holds(float(number))
    ):
        raise ValueError(f"size {shown(text)} is not within {MESSAGE_LIMIT.words}")
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


LABEL = re.compile(r"^\s*(\[\d+,\d+\](?:<\w+>)?:?|\[\d+\](?=\s)|\[[A-Z]+\]:|\d+:(?!\d))\s?")
INSIDE = re.compile(r"\[\d+,\d+\]<\w+>:?")
CHATTER = re.compile(
    r"[A-Za-z][\w.-]{0,63}+:\d{1,10}+:\d{1,10}+ \[\d{1,4}\] NCCL (?:INFO|WARN|TRACE).*$"
)
"""What NCCL logs, wherever it begins; a host's name has at most 64 letters (Linux HOST_NAME_MAX),
and without a limit a line that is one long word took minutes."""
DEVICE = re.compile(
    r"Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?(?:Pid\s+\d+\s+)?"
    r"(?:on\s+(\S+)\s+device|uses device)\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
TOOL = re.compile(r"(?:^|[\s/])([a-z_]+?)_perf(?:_mpi)?\b")
STARTING = re.compile(r"Collective test starting: (\w+)")
VERSION = re.compile(r"\bR?NCCL version (\d+(?:\.\d+)+)")
LIBRARY = re.compile(r"nccl-library=(\d{1,9})")
SETTING = re.compile(r"NCCL_(ALGO|PROTO)(?: set by environment to |=)[\"']?([\w:,;^]+)")
NETWORK = re.compile(r"NCCL INFO Using network (.+?)\s*$")
WORDS = {
    "collnetdirect": "collnet_direct",
    "collnetchain": "collnet_chain",
    "nvlstree": "nvls_tree",
}


def clean(line: str) -> tuple[str, str]:
    """Return what mpirun or srun put before a line, and the line without labels.

    Examples
    --------
    >>> clean("[1,0]<stdout>:#  Rank  0 ..."), clean("0:     1024   256  float")
    (('[1,0]<stdout>:', '#  Rank  0 ...'), ('0:', '    1024   256  float'))
    """
    line = line.rstrip("\r\n")
    found = LABEL.match(line)
    label, rest = (found[1], line[found.end() :]) if found else ("", line)
    return label, INSIDE.sub("", rest)


def held_word(text: str, collective: str = "") -> str:
    """Return the one algorithm or protocol that NCCL was held to, '' where it had a choice.

    Examples
    --------
    >>> held_word("Ring"), held_word("ring,tree"), held_word("allreduce:tree", "all_reduce")
    ('ring', '', 'tree')
    """
    of, colon, word = text.strip().lower().rpartition(":")
    if colon and collective_name(of) != collective:
        return ""
    return WORDS.get(word, word) if word.isalnum() else ""


def version_of(code: int) -> str:
    """Return NCCL's version number as text.

    Examples
    --------
    >>> version_of(22703), version_of(2804)
    ('2.27.3', '2.8.4')
    """
    thousand = 10000 if code >= 10000 else 1000
    return f"{code // thousand}.{code % thousand // 100}.{code % 100}"


@dataclass(slots=True)
class Log:
    """What has been said since the last table, and what holds for the file."""

    tool: str = ""
    starting: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    version: str = ""
    network: str = ""
    devices: list[tuple[int, int, str, str]] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Take in a line that is no row of a table."""
        device = DEVICE.search(line) if "Rank" in line else None
        if device:
            rank, group = int(device[1]), int(device[2] or 0)
            self.devices.append((rank, group, device[3] or "", device[4].strip()))
        starting = STARTING.search(line)
        tool = TOOL.search(line)
        if starting:
            self.starting = starting[1]
        elif tool and "concluded" not in line:
            self.tool = tool[1]
            self.settings = {}
        if "Using devices" in line:
            self.devices = []
        for what, value in SETTING.findall(line):
            (self.exported if "export " in line else self.settings)[what] = value
        version, library = VERSION.search(line), LIBRARY.search(line)
        if version:
            self.version = version[1]
        elif library and int(library[1]) > 0:
            self.version = version_of(int(library[1]))
        network = NETWORK.search(line)
        if network:
            self.network = network[1]

    def close(self) -> None:
        """Forget what belongs to one run only."""
        self.tool = self.starting = ""
        self.settings = {}

    def doubled(self) -> str:
        """Return what is wrong with the list of devices, '' where nothing is."""
        told = Counter(rank for rank, _, _, _ in self.devices)
        if told and max(told.values()) > 1:
            rank, times = told.most_common(1)[0]
            return (
                f"rank {rank} stands {times} times in the list of devices: nccl-tests was built"
                " without MPI=1, so that every process measured on its own"
            )
        return ""

    def place(self) -> dict[str, Any]:
        """Return ranks, nodes, GPUs a node and the GPU that the device lines say."""
        if not self.devices:
            return {}
        groups = Counter(group for _, group, _, _ in self.devices)
        group = max(groups, key=lambda one: (groups[one], -one))
        members = [device for device in self.devices if device[1] == group]
        hosts = Counter(host for _, _, host, _ in members)
        gpus = dict.fromkeys(gpu for *_, gpu in members if gpu)
        return {
            "ranks": len(members),
            "nodes": len(hosts),
            "gpus_per_node": max(hosts.values()),
            "gpu": ", ".join(gpus),
        }

    def held(self, collective: str) -> dict[str, str]:
        """Return the algorithm and protocol that NCCL was held to."""
        both = self.exported | self.settings
        return {
            "algorithm": held_word(both.get("ALGO", ""), collective),
            "protocol": held_word(both.get("PROTO", ""), collective),
        }


OFF = 0.1
"""A bus bandwidth further than this from its time and size is a damaged line."""
CONFLICT = 10.0
"""Repeats of one size this many times apart contradict each other."""
MOST = 10**9
"""No cluster has as many GPUs."""
CHECKED = 5
"""Rows whose bandwidth can be checked before all of a run is doubted."""


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
            if count is not None and not 0 < count < MOST:
                option = name.replace("_", "-")
                raise RequestError(f"--{option}: {count} is not a count; at least 1.")


@dataclass(slots=True)
class LogRows:
    """The damaged lines of one file: the first is an error, unless they are to be left out."""

    path: Path
    skip_bad: bool = False
    skipped: list[str] = field(default_factory=list)

    def bad(self, row: int, what: str) -> None:
        """Note a damaged line.

        Raises
        ------
        DataError
            Unless damaged lines are skipped; it names file, line and what was found.
        """
        if not self.skip_bad:
            raise DataError(f"{what} (`skip_bad` leaves such lines out)", path=self.path, row=row)
        self.skipped.append(f"{self.path}:{row}: {what}")

    def fatal(self, what: str, row: int | None = None) -> DataError:
        """Return the error for what no skipping mends."""
        return DataError(what, path=self.path, row=row)


def known(text: str, rows: LogRows, row: int | None = None) -> str:
    """Return perfsim's name of a collective; refuses one that it does not know."""
    name = collective_name(text)
    if not name:
        allowed = sorted(set(NAMES.values()))
        match = nearest(text, allowed)
        hint = f"; did you mean {match!r}?" if match else ""
        raise rows.fatal(f"no collective {shown(text)}{hint} (allowed: {', '.join(allowed)})", row)
    return name


@dataclass(frozen=True, slots=True)
class LogRow:
    """One time of one size: where it stands, and the bus bandwidth printed beside it ('' none)."""

    row: int
    size_bytes: float
    seconds: float
    busbw: str = ""


@dataclass(slots=True)
class LogRun:
    """Rows measured in one go: ``columns`` are out of place, in place or whatever was repeated.

    ``facts`` are the fields of `CollectiveCurve` that the file says about it, but for the points.
    """

    facts: dict[str, Any]
    columns: dict[str, list[LogRow]] = field(default_factory=dict)
    row: int | None = None

    def add(self, column: str, row: int, size: str, time: str, busbw: str, unit: int) -> None:
        """Add a time; raises ValueError where it is damaged."""
        found = LogRow(row, size_of(size), seconds_of(time, unit), busbw)
        self.columns.setdefault(column, []).append(found)

    def place(self, given: GivenFacts, rows: LogRows) -> None:
        """Settle ranks, nodes and GPUs a node from the file and the user."""
        facts = self.facts
        for name in ("collective", "ranks", "nodes", "gpus_per_node"):
            told, stated = getattr(given, name), facts.get(name)
            if told is not None and stated is not None and told != stated:
                option = name.replace("_", "-")
                raise rows.fatal(f"says {name} {stated}, --{option} says {told}", self.row)
            if stated is None:
                facts[name] = told
        if facts["collective"] is None:
            raise rows.fatal("does not say which collective it measured: `collective`", self.row)
        ranks, nodes, most = facts["ranks"], facts["nodes"], facts["gpus_per_node"]
        if ranks is None and nodes is not None and most is not None:
            ranks = nodes * most
        if nodes is None and ranks is not None and most is not None:
            nodes = -(-ranks // most)
        if ranks is None or nodes is None:
            lacks = "ranks and nodes: `ranks` and `nodes`" if ranks is None else "nodes: `nodes`"
            raise rows.fatal(f"does not say the number of {lacks}", self.row)
        facts.update(ranks=ranks, nodes=nodes, gpus_per_node=most or -(-ranks // nodes))

    def curves(self, rows: LogRows) -> Iterable[CollectiveCurve]:
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

    def _drop_contradicted(self, rows: LogRows) -> None:
        """Name rows whose bus bandwidth contradicts time and size; doubt the run if most do."""
        collective, ranks = self.facts["collective"], self.facts["ranks"]
        factor = busbw_factor(collective, ranks)
        tested = [
            (point, _agrees(point, factor)) for points in self.columns.values() for point in points
        ]
        told = [agrees for _, agrees in tested if agrees is not None]
        if len(told) >= CHECKED and sum(told) < len(told) / 2:
            raise rows.fatal(
                f"its bus bandwidths are not those of {collective} on {ranks} ranks; is this"
                " the collective, and the number of ranks?",
                self.row,
            )
        wrong = {id(point) for point, agrees in tested if agrees is False}
        for name, points in self.columns.items():
            for point in points:
                if id(point) in wrong:
                    rate = factor * point.size_bytes / point.seconds / 1e9
                    rows.bad(
                        point.row,
                        f"bus bandwidth {shown(point.busbw)[1:-1]} GB/s, but"
                        f" {point.size_bytes:g} B in {point.seconds * 1e6:g} us are"
                        f" {rate:.4g} GB/s",
                    )
            self.columns[name] = [point for point in points if id(point) not in wrong]


def _agrees(point: LogRow, factor: float) -> bool | None:
    """Say whether a bus bandwidth fits time and size; None where it says nothing."""
    printed = decimal_of(point.busbw)
    if printed is None or not printed.is_finite() or factor == 0:
        return None
    exponent = printed.as_tuple().exponent
    if abs(printed.adjusted()) > DIGITS or not isinstance(exponent, int):
        return False
    last_digit = 10.0**exponent
    rate = factor * point.size_bytes / point.seconds / 1e9
    if rate < last_digit and float(printed) <= last_digit:
        return None
    return abs(float(printed) - rate) <= OFF * rate + 0.51 * last_digit


def _sweeps(points: list[LogRow], rows: LogRows) -> list[list[LogRow]]:
    """Return the points in sweeps of rising size: the nth time of a size is in the nth sweep."""
    by_size: dict[float, list[LogRow]] = {}
    for point in points:
        same = by_size.setdefault(point.size_bytes, [])
        if same and not 1 / CONFLICT <= point.seconds / same[0].seconds <= CONFLICT:
            rows.bad(
                point.row,
                f"{point.size_bytes:g} B in {point.seconds * 1e6:g} us, but line {same[0].row} says"
                f" {same[0].seconds * 1e6:g} us",
            )
            continue
        same.append(point)
    ordered = [by_size[size] for size in sorted(by_size)]
    return [[point for point in nth if point] for nth in zip_longest(*ordered)]


NONE = ("", "none")
LEAST = 0.5
"""GB/s from which the digits printed tell a bandwidth well enough."""
CLOSE = 0.05
"""How near bus over algorithm bandwidth must be to a collective's, as far as digits go."""


def named(path: Path) -> list[str]:
    """Return the collective that a file's name holds."""
    found = re.findall(
        r"all_?reduce|reduce_?scatter|all_?gather|broadcast|bcast|all_?to_?all|send_?recv",
        path.name.lower(),
    )
    names = list(dict.fromkeys(collective_name(one) for one in found))
    return names if len(names) == 1 else []


def shape(lead: Mapping[str, str], points: Sequence[LogRow], ranks: int | None) -> tuple[str, ...]:
    """Return the collectives whose redop, root and bandwidths look like those of the rows."""
    reduces = lead.get("redop", lead.get("op", "")) not in NONE
    root = lead.get("root", "-1") != "-1"
    if "redop" not in lead and "op" not in lead and "root" not in lead:
        return ()
    ratio = _ratio(points)
    if reduces and root:
        return ("reduce",)
    if reduces:
        fits = [
            name
            for name in ("all_reduce", "reduce_scatter", "send_recv")
            if ratio is None or not ranks or ranks < 2 or _near(ratio, busbw_factor(name, ranks))
        ]
        return tuple(fits)
    return ("broadcast",) if root else ("all_gather", "all_to_all", "send_recv", "broadcast")


def _near(ratio: float, factor: float) -> bool:
    return abs(ratio / factor - 1) < CLOSE


def _ratio(points: Sequence[LogRow]) -> float | None:
    """Return bus bandwidth over size / time where the printed digits suffice."""
    for point in reversed(points):
        rate = decimal_of(point.busbw)
        if rate is not None and rate.is_finite() and rate >= LEAST and rate.adjusted() <= DIGITS:
            return float(rate) * 1e9 * point.seconds / point.size_bytes
    return None
