"""nccl-tests' text output (all versions; several runs in a file; aborted runs).

Columns are taken from each table's head, which has changed: ``bytes N type op time algbw busbw
res`` with times in milliseconds (1.0, as in NCCL 1's own tests), ``size count type redop time
algbw busbw error`` (2.0 on), ``... root ... #wrong`` (2.12 on), per-iteration columns and a
timestamp (2.17 on). Lines may carry labels of mpirun or srun, colours, and NCCL's log between.

References
----------
NVIDIA/nccl-tests, tags v1.0.0 to v2.19.6: src/common.cu, src/util.cu, src/*.cu (print_header,
writeResultHeader, writeBenchmarkLineBody, writeDeviceReport).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsim.calibrate.formats.rows import (
    CHATTER,
    GivenFacts,
    Log,
    LogRows,
    LogRun,
    clean,
    collective_name,
    known,
    named,
    shape,
)
from perfsim.errors import shown
from perfsim.network.measured import CollectiveCurve

__all__ = ["matches", "read"]

HEAD = re.compile(r"^\s*(?:#\s*)?(size|bytes)\s+(count|N)\s+type\b.*\b(cpu)?time\s+algbw\s+busbw")
ENDS = (
    "# nThread",
    "Using devices",
    "Out of bounds values",
    "Avg bus bandwidth",
    "Collective test concluded",
    "NCCL failure",
    "Test CUDA failure",
    "Test failure",
)
CANDIDATE = re.compile(r"^\s*\d+(\s|$)")
COLUMNS = ("out of place", "in place")
NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?|N/A", re.IGNORECASE)


@dataclass(slots=True)
class PrintedTable:
    """The head of a table: columns before the times, and those of each group of times.

    ``part`` is a row that other output has cut in two, and ``part_row`` its line.
    """

    lead: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    stamped: bool
    unit: int
    run: LogRun
    leads: list[dict[str, str]] = field(default_factory=list)
    part: list[str] = field(default_factory=list)
    part_row: int = 0

    @property
    def width(self) -> int:
        """Cells of a whole row."""
        return len(self.lead) + sum(len(group) for group in self.groups) + 2 * self.stamped


def matches(text: str, path: Path) -> bool:
    """Say whether a line is the head of an nccl-tests table."""
    del path
    return any(HEAD.match(clean(line)[1]) for line in text.splitlines() if "busbw" in line)


def read(
    text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
) -> tuple[list[CollectiveCurve], list[str]]:
    """Read every run of the log: one curve for each column and sweep, and the lines left out."""
    rows = LogRows(path, skip_bad)
    common = Log()
    logs: dict[str, Log] = {"": common}
    tables: list[PrintedTable] = []
    open_: dict[str, PrintedTable] = {}
    for row, raw in enumerate(text.splitlines(), 1):
        label, line = clean(raw)
        log = logs.setdefault(label, Log())
        if HEAD.match(line):
            open_[label] = _table(line, row, _said(log, common))
            tables.append(open_[label])
            log.close()
            continue
        table = open_.get(label, open_.get(""))
        whole = CHATTER.sub("", line)
        cells = whole.split()
        if table is not None and (CANDIDATE.match(whole) or (table.part and _numbers(cells))):
            _take(table, cells, bool(CANDIDATE.match(whole)), row, rows)
            continue
        if any(end in line for end in ENDS):
            open_.pop(label, None)
        log.read(line)
        if table is not None:
            table.run.facts["settings"].update(log.settings)
            if not table.leads:
                table.run.facts.update(_library(log, common))
    curves: list[CollectiveCurve] = []
    for table in tables:
        _broken(table, rows)
        if table.run.columns:
            curves += _curves(table, given, rows)
    return curves, rows.skipped


def _said(log: Log, common: Log) -> dict[str, Any]:
    """Return what is known of a run when its table begins."""
    return {
        "tool": log.starting or log.tool or common.tool,
        "started": bool(log.starting),
        "place": log.place() or common.place(),
        "doubled": log.doubled(),
        "settings": common.exported | common.settings | log.exported | log.settings,
        **_library(log, common),
    }


def _library(log: Log, common: Log) -> dict[str, str]:
    """Return the version of NCCL and the network, as last said."""
    return {"version": log.version or common.version, "network": log.network or common.network}


def _table(line: str, row: int, said: dict[str, Any]) -> PrintedTable:
    """Read a table's head."""
    names = line.lstrip("# ").split()
    stamped = names[-1] == "timestamp"
    names = names[: len(names) - stamped]
    starts = [place for place, name in enumerate(names) if name in ("time", "cputime")]
    ends = [*starts[1:], len(names)]
    groups = tuple(tuple(names[a:b]) for a, b in zip(starts, ends, strict=True))
    unit = -3 if names[0] == "bytes" else -6
    return PrintedTable(tuple(names[: starts[0]]), groups, stamped, unit, LogRun(said, row=row))


def _numbers(cells: list[str]) -> bool:
    """Say whether a line holds numbers only, as the rest of a row that was cut in two."""
    return bool(cells) and all(NUMBER.fullmatch(cell) for cell in cells)


def _take(table: PrintedTable, cells: list[str], starts: bool, row: int, rows: LogRows) -> None:
    """Take a row, or the beginning or the rest of one that NCCL's log cut in two."""
    if starts and len(cells) > 1:
        _broken(table, rows)
        table.part, table.part_row = cells, row
    else:
        table.part = table.part + cells if table.part else cells
        table.part_row = table.part_row or row
    blank = "root" not in table.lead and len(table.part) == table.width - 1
    if len(table.part) == table.width or (blank and NUMBER.fullmatch(table.part[3])):
        cells, table.part = table.part, []
        _row(table, cells, table.part_row, rows)
    elif len(table.part) > table.width:
        _broken(table, rows)


def _broken(table: PrintedTable, rows: LogRows) -> None:
    """Name a row that has not as many cells as the table has columns.

    Where the first row has times out of place only, so have all: some builds print no others.
    """
    if not table.part:
        return
    cells, table.part = table.part, []
    first = len(table.lead) + len(table.groups[0])
    if len(table.groups) > 1 and not table.leads and len(cells) in (first - 1, first):
        table.groups = table.groups[:1]
        if len(cells) == table.width or NUMBER.fullmatch(cells[3]):
            _row(table, cells, table.part_row, rows)
            return
    rows.bad(table.part_row, f"{len(cells)} cells, the head has {table.width} columns")


def _row(table: PrintedTable, cells: list[str], row: int, rows: LogRows) -> None:
    """Add a row to its table, or name its damage; no size means no elements for a rank."""
    if cells[0].strip("0") == "":
        return
    lead = len(cells) - table.width + len(table.lead)
    if not cells[1].isdigit() or NUMBER.fullmatch(cells[2]):
        rows.bad(row, f"{shown(' '.join(cells[:3]))} is not size, count and type")
        return
    kept, place = LogRun({}), lead
    alone = table.run.facts["place"].get("ranks") == 1
    try:
        for name, group in zip(COLUMNS, table.groups[:1] if alone else table.groups, strict=False):
            told = dict(zip(group, cells[place : place + len(group)], strict=True))
            place += len(group)
            if "time" not in told:
                raise ValueError("cputime (-C 1) is the time to launch, not of the collective")
            wrong = told.get("#wrong", "0")
            if wrong.isdigit() and int(wrong) > 0:
                raise ValueError(f"#wrong is {wrong}: the result was wrong, its time tells nothing")
            kept.add(name, row, cells[0], told["time"], told.get("busbw", ""), table.unit)
    except ValueError as error:
        rows.bad(row, str(error))
        return
    for name, points in kept.columns.items():
        table.run.columns.setdefault(name, []).extend(points)
    names = table.lead if lead == len(table.lead) else table.lead[:lead]
    table.leads.append(dict(zip(names, cells, strict=False)))


def _curves(table: PrintedTable, given: GivenFacts, rows: LogRows) -> list[CollectiveCurve]:
    run, said = table.run, table.run.facts
    if said["doubled"]:
        raise rows.fatal(said["doubled"], run.row)
    place = said["place"]
    collective = _collective(table, place.get("ranks") or given.ranks, given, rows)
    if collective == "":
        return []
    network = said["network"]
    run.facts = {
        "collective": collective,
        "kind": "measured",
        "source": f"{rows.path.name} (nccl-tests)",
        **Log(settings=said["settings"]).held(collective or ""),
        "version": said["version"],
        "fabric": f"network {network}" if network else "",
        **place,
    }
    run.place(given, rows)
    return list(run.curves(rows))


def _collective(
    table: PrintedTable, ranks: int | None, given: GivenFacts, rows: LogRows
) -> str | None:
    """Return the collective of a run: as stated, as its columns show, or as its file is named.

    '' leaves out a run of a collective that is not known; None says that nothing tells.
    """
    said = table.run.facts
    tool = said["tool"]
    stated = collective_name(tool)
    if said["started"] and not stated:
        if not rows.skip_bad:
            known(tool.removesuffix("_perf"), rows, table.run.row)
        rows.skipped.append(f"{rows.path}:{table.run.row}: {tool} is no collective that is known")
        return ""
    if said["started"]:
        return stated
    looks = shape(table.leads[-1], table.run.columns[COLUMNS[0]], ranks)
    for name in (stated, given.collective or "", *named(rows.path)):
        if name and (not looks or name in looks):
            return name
    return looks[0] if len(looks) == 1 else None
