"""Read what nccl-tests and PARAM's comms benchmark print: text logs and JSON.

nccl-tests' text (`NcclText`) takes its columns from each table's head, which has changed: ``bytes N
type op time algbw busbw res`` with times in milliseconds (1.0, as in NCCL 1's own tests), ``size
count type redop time algbw busbw error`` (2.0 on), ``... root ... #wrong`` (2.12 on), per-iteration
columns and a timestamp (2.17 on). Lines may carry labels of mpirun or srun, colours, and NCCL's log
between.

References
----------
NVIDIA/nccl-tests, tags v1.0.0 to v2.19.6: src/common.cu, src/util.cu, src/*.cu (print_header,
writeResultHeader, jsonOutputInit, writeDeviceReport, writeBenchmarkLinePreamble,
writeBenchmarkLineBody); facebookresearch/param, train/comms/pt/comms.py (printPreamble,
reportBenchTimeColl).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsim.calibrate.formats.rows import (
    MAX_DIGITS,
    MAX_RANKS,
    DamagedLines,
    GivenFacts,
    LogFormat,
    LogRow,
    LogRun,
    busbw_factor,
    collective_name,
    decimal_of,
    known_collective,
    log_format,
)
from perfsim.data.files import printable
from perfsim.errors import shown
from perfsim.network.measured import CollectiveCurve

__all__ = ["NcclJson", "NcclText", "ParamText"]

_COLUMNS = ("out of place", "in place")
"""The two groups of times of a table, in the order of its columns."""

_HEAD = re.compile(r"^\s*(?:#\s*)?(size|bytes)\s+(count|N)\s+type\b.*\b(cpu)?time\s+algbw\s+busbw")
_TABLE_ENDS = (
    "# nThread",
    "Using devices",
    "Out of bounds values",
    "Avg bus bandwidth",
    "Collective test concluded",
    "NCCL failure",
    "Test CUDA failure",
    "Test failure",
)
_ROW_START = re.compile(r"^\s*\d+(\s|$)")
_CELL = re.compile(r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?|N/A", re.IGNORECASE)

_LABEL = re.compile(r"^\s*(\[\d+,\d+\](?:<\w+>)?:?|\[\d+\](?=\s)|\[[A-Z]+\]:|\d+:(?!\d))\s?")
_LABEL_INSIDE = re.compile(r"\[\d+,\d+\]<\w+>:?")
_NCCL_LOG = re.compile(
    r"[A-Za-z][\w.-]{0,63}+:\d{1,10}+:\d{1,10}+ \[\d{1,4}\] NCCL (?:INFO|WARN|TRACE).*$"
)
"""What NCCL logs, wherever it begins; a host's name has at most 64 letters (Linux HOST_NAME_MAX),
and without a limit a line that is one long word took minutes."""
_DEVICE_LINE = re.compile(
    r"Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?(?:Pid\s+\d+\s+)?"
    r"(?:on\s+(\S+)\s+device|uses device)\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
_TOOL = re.compile(r"(?:^|[\s/])([a-z_]+?)_perf(?:_mpi)?\b")
_STARTING = re.compile(r"Collective test starting: (\w+)")
_NCCL_VERSION = re.compile(r"\bR?NCCL version (\d+(?:\.\d+)+)")
_LIBRARY_CODE = re.compile(r"nccl-library=(\d{1,9})")
_SETTING = re.compile(r"NCCL_(ALGO|PROTO)(?: set by environment to |=)[\"']?([\w:,;^]+)")
_NETWORK_LINE = re.compile(r"NCCL INFO Using network (.+?)\s*$")
_ALGORITHM_WORDS = {
    "collnetdirect": "collnet_direct",
    "collnetchain": "collnet_chain",
    "nvlstree": "nvls_tree",
}
"""Values of NCCL_ALGO that perfsim writes another way."""

_NO_REDUCTION = ("", "none")
_MIN_PRINTED_RATE = 0.5
"""GB/s from which the printed digits show a bandwidth well enough: two digits are 2 % then."""
_RATIO_TOLERANCE = 0.05
"""How near bus over algorithm bandwidth must be to a collective's factor.

No source: chosen above the rounding of the printed digits (2 %).
"""

_PARAM_LINE = re.compile(r"COMMS-RES-([a-z_]+?)-(\w+?)\s+(\d.*)")
_PARAM_GROUP = re.compile(r"groupSize (0*[1-9]\d{0,8})\b")
_PARAM_CELLS = 9


# What the lines around a table say


def without_label(line: str) -> tuple[str, str]:
    """Return what mpirun or srun put before a line, and the line without labels.

    Examples
    --------
    >>> without_label("[1,0]<stdout>:#  Rank  0 ...")
    ('[1,0]<stdout>:', '#  Rank  0 ...')
    >>> without_label("0:     1024   256  float")
    ('0:', '    1024   256  float')
    """
    line = line.rstrip("\r\n")
    match = _LABEL.match(line)
    label, rest = (match[1], line[match.end() :]) if match else ("", line)
    return label, _LABEL_INSIDE.sub("", rest)


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
    return _ALGORITHM_WORDS.get(word, word) if word.isalnum() else ""


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
class _LogLines:
    """What the lines said since the last table, and what holds for the whole file.

    ``settings`` are those of one run, ``exported`` of the file; ``devices`` hold rank, group,
    host and GPU of each line of the list of devices.
    """

    tool: str = ""
    starting: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    version: str = ""
    network: str = ""
    devices: list[tuple[int, int, str, str]] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Take in a line that is no row of a table."""
        device = _DEVICE_LINE.search(line) if "Rank" in line else None
        if device:
            rank, group = int(device[1]), int(device[2] or 0)
            self.devices.append((rank, group, device[3] or "", device[4].strip()))
        starting = _STARTING.search(line)
        tool = _TOOL.search(line)
        if starting:
            self.starting = starting[1]
        elif tool and "concluded" not in line:
            self.tool = tool[1]
            self.settings = {}
        if "Using devices" in line:
            self.devices = []
        for name, value in _SETTING.findall(line):
            (self.exported if "export " in line else self.settings)[name] = value
        version, library = _NCCL_VERSION.search(line), _LIBRARY_CODE.search(line)
        if version:
            self.version = version[1]
        elif library and int(library[1]) > 0:
            self.version = version_of(int(library[1]))
        network = _NETWORK_LINE.search(line)
        if network:
            self.network = network[1]

    def end_run(self) -> None:
        """Forget what belongs to one run only."""
        self.tool = self.starting = ""
        self.settings = {}

    def doubled(self) -> str:
        """Return what is wrong with the list of devices, '' where nothing is."""
        times = Counter(rank for rank, _, _, _ in self.devices)
        if times and max(times.values()) > 1:
            rank, count = times.most_common(1)[0]
            return (
                f"rank {rank} stands {count} times in the list of devices: nccl-tests was built"
                " without MPI=1, so that every process measured on its own"
            )
        return ""

    def members(self) -> dict[str, Any]:
        """Return ranks, nodes, GPUs a node and the GPU that the device lines say."""
        if not self.devices:
            return {}
        groups = Counter(group for _, group, _, _ in self.devices)
        largest = max(groups, key=lambda group: (groups[group], -group))
        members = [device for device in self.devices if device[1] == largest]
        hosts = Counter(host for _, _, host, _ in members)
        gpus = dict.fromkeys(gpu for *_, gpu in members if gpu)
        return {
            "ranks": len(members),
            "nodes": len(hosts),
            "gpus_per_node": max(hosts.values()),
            "gpu": ", ".join(gpus),
        }


# Text


@dataclass(frozen=True, slots=True)
class _RunFacts:
    """What is known of a run when its table begins."""

    tool: str
    started: bool
    members: dict[str, Any]
    doubled: str
    settings: dict[str, str]


@dataclass(slots=True)
class _PrintedTable:
    """One table of a log: its columns, the run that it prints, and what was said of it.

    ``lead`` names the columns before the times, ``groups`` those of each group of times;
    ``unit`` is the power of ten of the times. ``leads`` hold the cells before the times of each
    row read. ``part`` is a row that other output has cut in two, and ``part_row`` its line.
    """

    lead: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    stamped: bool
    unit: int
    about: _RunFacts
    version: str
    network: str
    run: LogRun
    leads: list[dict[str, str]] = field(default_factory=list)
    part: list[str] = field(default_factory=list)
    part_row: int = 0

    @classmethod
    def from_head(cls, line: str, row: int, log: _LogLines, common: _LogLines) -> _PrintedTable:
        """Read a table's head; ``log`` and ``common`` are of this label and of the file."""
        names = line.lstrip("# ").split()
        stamped = names[-1] == "timestamp"
        names = names[: len(names) - stamped]
        starts = [index for index, name in enumerate(names) if name in ("time", "cputime")]
        ends = [*starts[1:], len(names)]
        return cls(
            lead=tuple(names[: starts[0]]),
            groups=tuple(tuple(names[a:b]) for a, b in zip(starts, ends, strict=True)),
            stamped=stamped,
            unit=-3 if names[0] == "bytes" else -6,
            about=_RunFacts(
                tool=log.starting or log.tool or common.tool,
                started=bool(log.starting),
                members=log.members() or common.members(),
                doubled=log.doubled(),
                settings=common.exported | common.settings | log.exported | log.settings,
            ),
            version=log.version or common.version,
            network=log.network or common.network,
            run=LogRun({}, row=row),
        )

    @property
    def width(self) -> int:
        """Cells of a whole row."""
        return len(self.lead) + sum(len(group) for group in self.groups) + 2 * self.stamped

    def said_later(self, log: _LogLines, common: _LogLines) -> None:
        """Take in what was said after the head; of version and network until the first row."""
        self.about.settings.update(log.settings)
        if not self.leads:
            self.version = log.version or common.version
            self.network = log.network or common.network

    def take(self, cells: list[str], starts: bool, row: int, rows: DamagedLines) -> None:
        """Take a row, or the beginning or the rest of one that NCCL's log cut in two."""
        if starts and len(cells) > 1:
            self.end_part(rows)
            self.part, self.part_row = cells, row
        else:
            self.part = self.part + cells if self.part else cells
            self.part_row = self.part_row or row
        blank = "root" not in self.lead and len(self.part) == self.width - 1
        if len(self.part) == self.width or (blank and _CELL.fullmatch(self.part[3])):
            cells, self.part = self.part, []
            self._add(cells, self.part_row, rows)
        elif len(self.part) > self.width:
            self.end_part(rows)

    def end_part(self, rows: DamagedLines) -> None:
        """Name a row that has not as many cells as the table has columns.

        Where the first row has times out of place only, so have all: some builds print no others.
        """
        if not self.part:
            return
        cells, self.part = self.part, []
        first = len(self.lead) + len(self.groups[0])
        if len(self.groups) > 1 and not self.leads and len(cells) in (first - 1, first):
            self.groups = self.groups[:1]
            if len(cells) == self.width or _CELL.fullmatch(cells[3]):
                self._add(cells, self.part_row, rows)
                return
        rows.bad(self.part_row, f"{len(cells)} cells, the head has {self.width} columns")

    def _add(self, cells: list[str], row: int, rows: DamagedLines) -> None:
        """Add a row, or name its damage; no size means no elements for a rank."""
        if cells[0].strip("0") == "":
            return
        lead = len(cells) - self.width + len(self.lead)
        if not cells[1].isdigit() or _CELL.fullmatch(cells[2]):
            rows.bad(row, f"{shown(' '.join(cells[:3]))} is not size, count and type")
            return
        added, start = LogRun({}), lead
        alone = self.about.members.get("ranks") == 1
        groups = self.groups[:1] if alone else self.groups
        try:
            for name, group in zip(_COLUMNS, groups, strict=False):
                cell = dict(zip(group, cells[start : start + len(group)], strict=True))
                start += len(group)
                if "time" not in cell:
                    raise ValueError("cputime (-C 1) is the time to launch, not of the collective")
                wrong = cell.get("#wrong", "0")
                if wrong.isdigit() and int(wrong) > 0:
                    raise ValueError(
                        f"#wrong is {wrong}: the result was wrong, its time tells nothing"
                    )
                added.add(name, row, cells[0], cell["time"], cell.get("busbw", ""), self.unit)
        except ValueError as error:
            rows.bad(row, str(error))
            return
        for name, points in added.columns.items():
            self.run.columns.setdefault(name, []).extend(points)
        names = self.lead if lead == len(self.lead) else self.lead[:lead]
        self.leads.append(dict(zip(names, cells, strict=False)))

    def curves(self, given: GivenFacts, rows: DamagedLines) -> list[CollectiveCurve]:
        """Return the curves of the run; none of a collective that is not known."""
        if self.about.doubled:
            raise rows.fatal(self.about.doubled, self.run.row)
        members, settings = self.about.members, self.about.settings
        collective = self._collective(members.get("ranks") or given.ranks, given, rows)
        if collective == "":
            return []
        self.run.facts = {
            "collective": collective,
            "kind": "measured",
            "source": f"{rows.path.name} (nccl-tests)",
            "algorithm": held_word(settings.get("ALGO", ""), collective or ""),
            "protocol": held_word(settings.get("PROTO", ""), collective or ""),
            "version": self.version,
            "fabric": f"network {self.network}" if self.network else "",
            **members,
        }
        self.run.settle_ranks(given, rows)
        return list(self.run.curves(rows))

    def _collective(self, ranks: int | None, given: GivenFacts, rows: DamagedLines) -> str | None:
        """Return the collective: as stated, as its columns show, or as its file is named.

        '' leaves out a run of a collective that is not known; None is that nothing says it.
        """
        tool = self.about.tool
        stated = collective_name(tool)
        if self.about.started:
            if not stated:
                if not rows.skip_bad:
                    known_collective(tool.removesuffix("_perf"), rows, self.run.row)
                line = f"{rows.path}:{self.run.row}"
                rows.skipped.append(f"{line}: {tool} is no collective that is known")
            return stated
        possible = _possible_collectives(self.leads[-1], self.run.columns[_COLUMNS[0]], ranks)
        for name in (stated, given.collective or "", *_named_collectives(rows.path)):
            if name and (not possible or name in possible):
                return name
        return possible[0] if len(possible) == 1 else None


def _named_collectives(path: Path) -> list[str]:
    """Return the one collective that a file's name holds, none where it holds several."""
    words = re.findall(
        r"all_?reduce|reduce_?scatter|all_?gather|broadcast|bcast|all_?to_?all|send_?recv",
        path.name.lower(),
    )
    names = list(dict.fromkeys(collective_name(word) for word in words))
    return names if len(names) == 1 else []


def _possible_collectives(
    lead: Mapping[str, str], points: Sequence[LogRow], ranks: int | None
) -> tuple[str, ...]:
    """Return the collectives whose redop, root and bandwidths look like those of the rows."""
    if "redop" not in lead and "op" not in lead and "root" not in lead:
        return ()
    reduces = lead.get("redop", lead.get("op", "")) not in _NO_REDUCTION
    has_root = lead.get("root", "-1") != "-1"
    if reduces and has_root:
        return ("reduce",)
    if reduces:
        ratio = _bandwidth_ratio(points)
        candidates = ("all_reduce", "reduce_scatter", "send_recv")
        if ratio is None or not ranks or ranks < 2:
            return candidates
        return tuple(
            name
            for name in candidates
            if abs(ratio / busbw_factor(name, ranks) - 1) < _RATIO_TOLERANCE
        )
    return ("broadcast",) if has_root else ("all_gather", "all_to_all", "send_recv", "broadcast")


def _bandwidth_ratio(points: Sequence[LogRow]) -> float | None:
    """Return bus bandwidth over size / time where the printed digits suffice."""
    for point in reversed(points):
        rate = decimal_of(point.busbw)
        if (
            rate is not None
            and rate.is_finite()
            and rate >= _MIN_PRINTED_RATE
            and rate.adjusted() <= MAX_DIGITS
        ):
            return float(rate) * 1e9 * point.seconds / point.size_bytes
    return None


@log_format("nccl_text", "nccl-tests' text output (all versions; several runs in a file)")
class NcclText(LogFormat):
    """nccl-tests' text output: all versions, several runs in a file, aborted runs."""

    def matches(self, text: str) -> bool:
        """Say whether a line is the head of an nccl-tests table."""
        return any(
            _HEAD.match(without_label(line)[1]) for line in text.splitlines() if "busbw" in line
        )

    def read(
        self, text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
    ) -> tuple[list[CollectiveCurve], list[str]]:
        """Read every run of the log: one curve for each column and sweep."""
        rows = DamagedLines(path, skip_bad)
        common = _LogLines()
        logs: dict[str, _LogLines] = {"": common}
        tables: list[_PrintedTable] = []
        open_tables: dict[str, _PrintedTable] = {}
        for row, raw in enumerate(text.splitlines(), 1):
            label, line = without_label(raw)
            log = logs.setdefault(label, _LogLines())
            if _HEAD.match(line):
                open_tables[label] = _PrintedTable.from_head(line, row, log, common)
                tables.append(open_tables[label])
                log.end_run()
                continue
            table = open_tables.get(label, open_tables.get(""))
            without_log = _NCCL_LOG.sub("", line)
            cells = without_log.split()
            starts = bool(_ROW_START.match(without_log))
            if table is not None and (starts or (table.part and _all_numbers(cells))):
                table.take(cells, starts, row, rows)
                continue
            if any(end in line for end in _TABLE_ENDS):
                open_tables.pop(label, None)
            log.read(line)
            if table is not None:
                table.said_later(log, common)
        curves: list[CollectiveCurve] = []
        for table in tables:
            table.end_part(rows)
            if table.run.columns:
                curves += table.curves(given, rows)
        return curves, rows.skipped


def _all_numbers(cells: list[str]) -> bool:
    """Say whether a line holds numbers only, as the rest of a row that was cut in two."""
    return bool(cells) and all(_CELL.fullmatch(cell) for cell in cells)


# JSON


@log_format("nccl_json", "nccl-tests' JSON output (-J, versions 2.17 on)")
class NcclJson(LogFormat):
    """nccl-tests' JSON output (-J, versions 2.17 on).

    An object with ``args``, ``env``, ``nccl_version``, ``config`` (``nthreads``, ``ngpus``,
    ``devices``: one entry a process, with its first GPU) and ``results``: one object a size with
    ``size``, ``out_of_place`` and ``in_place`` (``time`` in microseconds, ``bus_bw`` in GB/s).
    """

    def matches(self, text: str) -> bool:
        """Say whether the file is a JSON object that names nccl-tests' parts."""
        begin = text[:1_000_000]
        return begin.lstrip().startswith("{") and '"args"' in begin and '"start_time"' in begin

    def read(
        self, text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
    ) -> tuple[list[CollectiveCurve], list[str]]:
        """Read the results: in place and out of place are repeats of one measurement."""
        rows = DamagedLines(path, skip_bad)
        try:
            output = json.loads(text)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits as well
            line = getattr(error, "lineno", None)
            what = getattr(error, "msg", "nested too deep, or a number too long")
            raise rows.fatal(
                f"is no whole JSON object ({what}): was the run cut short?", line
            ) from None
        if not isinstance(output, dict) or not isinstance(output.get("results"), list):
            raise rows.fatal("holds no list of results: the run ended before its table")
        facts = _json_facts(output, rows)
        config = output.get("config")
        facts.update(_json_members(config if isinstance(config, dict) else {}))
        run = LogRun(facts)
        columns = ("out_of_place",) if facts.get("ranks") == 1 else ("out_of_place", "in_place")
        for number, result in enumerate(output["results"], 1):
            if not isinstance(result, dict):
                rows.bad(number, f"result {number} is no object")
                continue
            if result.get("size") == 0:
                continue
            for column in columns:
                timing = result.get(column)
                if timing is None:
                    continue
                try:
                    _add_json(run, column, number, result, timing)
                except ValueError as error:
                    rows.bad(number, f"result {number}, {column}: {error}")
        run.settle_ranks(given, rows)
        return list(run.curves(rows)), rows.skipped


def _add_json(run: LogRun, column: str, number: int, result: dict[str, Any], timing: Any) -> None:
    """Add the time of one result; raise ValueError where it is damaged."""
    if not isinstance(timing, dict) or "time" not in timing:
        is_cpu = isinstance(timing, dict) and "cpu_time" in timing
        raise ValueError("cpu_time (-C 1) is the time to launch" if is_cpu else "holds no time")
    busbw = timing.get("bus_bw", "")
    # 0.000000 is what %lf leaves of a small rate; six digits after the point are kept.
    rate = f"{busbw:.6f}" if isinstance(busbw, float) else ""
    run.add(column, number, str(result.get("size")), str(timing["time"]), rate, -6)


def _json_facts(output: dict[str, Any], rows: DamagedLines) -> dict[str, Any]:
    """Return collective, version and what NCCL was held to."""
    facts: dict[str, Any] = {"kind": "measured", "source": f"{rows.path.name} (nccl-tests)"}
    args = [word for word in _list(output, "args") if isinstance(word, str)]
    if args:
        facts["collective"] = known_collective(Path(args[0]).name, rows)
    code = output.get("nccl_version")
    if isinstance(code, int) and 0 < code < MAX_RANKS:
        facts["version"] = version_of(code)
    words = [word for word in _list(output, "env") if isinstance(word, str) and "=" in word]
    env = dict(word.split("=", 1) for word in words)
    collective = facts.get("collective", "")
    facts["algorithm"] = held_word(env.get("NCCL_ALGO", ""), collective)
    facts["protocol"] = held_word(env.get("NCCL_PROTO", ""), collective)
    return facts


def _json_members(config: dict[str, Any]) -> dict[str, Any]:
    """Return ranks, nodes, GPUs a node and GPU; each process lists its first GPU only."""
    devices = [device for device in _list(config, "devices") if isinstance(device, dict)]
    each = [config.get("nthreads", 1), config.get("ngpus", 1)]
    if not devices or not all(isinstance(one, int) and 0 < one < MAX_RANKS for one in each):
        return {}
    gpus = each[0] * each[1]
    hosts = Counter(shown(device.get("hostname")) for device in devices)
    names = dict.fromkeys(
        " ".join(printable(str(device.get("device_info", ""))).split()) for device in devices
    )
    return {
        "ranks": len(devices) * gpus,
        "nodes": len(hosts),
        "gpus_per_node": max(hosts.values()) * gpus,
        "gpu": ", ".join(name for name in names if name),
    }


def _list(table: dict[str, Any], key: str) -> list[Any]:
    """Return the list under a key, an empty one where there is none."""
    value = table.get(key)
    return value if isinstance(value, list) else []


# PARAM


@log_format("param_text", "PARAM's comms benchmark, the text that it prints (lines COMMS-RES)")
class ParamText(LogFormat):
    """The text that PARAM's comms benchmark prints (lines COMMS-RES).

    A line is ``COMMS-RES-<collective>-<type><tag>  size (B)  elements per rank  p50  p75  p95  min
    max  AlgBW(GB/s)  BusBW(GB/s)``, times in microseconds over the ranks; the size is that of all
    ranks' blocks. The number of ranks stands in ``groupSize N`` of another line.
    """

    def matches(self, text: str) -> bool:
        """Say whether a line holds a result of PARAM's comms benchmark."""
        return bool(_PARAM_LINE.search(text))

    def read(
        self, text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
    ) -> tuple[list[CollectiveCurve], list[str]]:
        """Read the median over the ranks at each size; rows of one size are repeats."""
        rows = DamagedLines(path, skip_bad)
        common: dict[str, Any] = {"kind": "measured", "source": f"{path.name} (PARAM comms)"}
        runs: dict[str, LogRun] = {}
        for row, raw in enumerate(text.splitlines(), 1):
            line = without_label(raw)[1]
            group, version = _PARAM_GROUP.search(line), _NCCL_VERSION.search(line)
            if group:
                common["ranks"] = int(group[1])
            if version:
                common["version"] = version[1]
            result = _PARAM_LINE.search(line)
            if not result:
                continue
            word = result[1].removesuffix("_base").removesuffix("_single")
            collective = known_collective(word, rows, row)
            cells = result[3].split()
            if len(cells) < _PARAM_CELLS:
                rows.bad(row, f"{len(cells)} cells, a result has {_PARAM_CELLS}")
                continue
            run = runs.setdefault(collective, LogRun({"collective": collective}, row=row))
            try:
                run.add("p50", row, cells[0], cells[2], cells[8], -6)
            except ValueError as error:
                rows.bad(row, str(error))
        curves: list[CollectiveCurve] = []
        for run in runs.values():
            run.facts = common | run.facts
            run.settle_ranks(given, rows)
            curves.extend(run.curves(rows))
        return curves, rows.skipped
