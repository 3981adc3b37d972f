"""CSV tables of others: which column says what, by its name."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsim.calibrate.formats.rows import MOST, GivenFacts, LogRows, LogRun, known
from perfsim.errors import MAX_QUOTED, shown
from perfsim.network.measured import CollectiveCurve

__all__ = ["Time", "head_of", "plain", "read_columns", "time_of"]

SIZES = (
    "size",
    "size_bytes",
    "size_b",
    "bytes",
    "msg_bytes",
    "message_bytes",
    "msg_size",
    "message_size",
    "message_size_bytes",
    "msg_size_bytes",
    "b",
)
ROLES = {
    "collective": ("collective", "collective_name", "op", "operation", "test", "benchmark", "kind"),
    "ranks": (
        "ranks",
        "nranks",
        "world_size",
        "world",
        "gpus",
        "ngpu",
        "ngpus",
        "num_gpus",
        "num_gcds",
    ),
    "nodes": ("nodes", "num_nodes", "nnodes"),
    "gpus_per_node": ("gpus_per_node", "ranks_per_node", "ranksper_node", "rankspernode"),
    "gpus_per_rank": ("gpusperrank",),
    "rank": ("rank",),
    "inplace": ("inplace", "in_place"),
}
UNITS = {
    "us": -6,
    "usec": -6,
    "microseconds": -6,
    "ms": -3,
    "msec": -3,
    "milliseconds": -3,
    "s": 0,
    "sec": 0,
    "seconds": 0,
}
BETTER = ("median", "p50", "avg", "mean", "average", "time", "latency", "lat")
WORSE = re.compile(r"min|max|std|p\d[^0]|p\d\d\d|cpu|total|init|bandwidth|bw|warm")


@dataclass(frozen=True, slots=True)
class Time:
    """A column of times: its place, power of ten of its unit, and that of the bandwidth beside."""

    place: int
    unit: int
    name: str
    busbw: int | None = None


def plain(name: str) -> str:
    """Return a column's name in small letters, its parts joined by underscores.

    Examples
    --------
    >>> plain("Latency(us):p50"), plain("#wrong"), plain("OutPlaceTime(us)")
    ('latency_us_p50', 'wrong', 'outplacetime_us')
    """
    return "_".join(re.findall(r"[a-z0-9]+", name.lower()))


def time_of(name: str) -> int | None:
    """Return the power of ten of a time column's unit, None for one without unit or no time.

    Examples
    --------
    >>> time_of("latency_us"), time_of("avg_ms"), time_of("sec_per_iter"), time_of("time")
    (-6, -3, 0, None)
    """
    parts = name.split("_")
    if WORSE.search(name):
        return None
    units = [UNITS[part] for part in parts if part in UNITS]
    named = any(part in (*BETTER, "iter", "t", "nccl") for part in parts)
    return units[0] if len(units) == 1 and (named or parts[0] in UNITS) else None


def head_of(text: str) -> tuple[int, list[str]]:
    """Return line index and cells of the first line with commas that is no plain comment."""
    for place, line in enumerate(text.splitlines()[:200]):
        cells = _cells(line.lstrip("# "))
        if len(cells) >= 3 and any(plain(cell) in SIZES for cell in cells):
            return place, [cell.strip() for cell in cells]
        if len(cells) >= 2 and {plain(cell) for cell in cells} & {"size_bytes", "message_bytes"}:
            return place, [cell.strip() for cell in cells]
    return 0, []


def _cells(line: str) -> list[str]:
    """Return the cells of one line, none of one that is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell of more than 131,072 letters
        return [] if "," not in line else [line[:MAX_QUOTED]]


def read_columns(
    text: str, path: Path, times: list[Time], source: str, given: GivenFacts, skip_bad: bool
) -> tuple[list[CollectiveCurve], list[str]]:
    """Read a table whose columns of times are known; all others go by their names.

    Where a column ``rank`` tells the ranks of one size apart, the slowest counts: a collective
    has ended when its last rank has.
    """
    rows = LogRows(path, skip_bad)
    start, head = head_of(text)
    names = [plain(name) for name in head]
    size = next(place for place, name in enumerate(names) if name in SIZES)
    skipped = ("op",) if "n" in names else ()  # NCCL 1's op is the reduction, N the count
    roles = {
        role: next(
            (i for i, name in enumerate(names) if name in words and name not in skipped), None
        )
        for role, words in ROLES.items()
    }
    runs: dict[tuple[Any, ...], LogRun] = {}
    slowest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row, line in enumerate(text.splitlines()[start + 1 :], start + 2):
        cells = [cell.strip() for cell in _cells(line)]
        if not cells or line.lstrip().startswith("#") or cells[size : size + 1] == ["0"]:
            continue
        if len(cells) != len(head):
            rows.bad(row, f"{len(cells)} cells, the head has {len(head)} columns")
            continue
        said = {role: cells[place] for role, place in roles.items() if place is not None}
        try:
            facts = _facts(said, source, rows)
            run = runs.setdefault(tuple(facts.items()), LogRun(facts, row=row))
            for time in times:
                if cells[time.place].lower() in ("", "n/a", "nan") and len(times) > 1:
                    continue
                column = time.name + said.get("inplace", "")
                busbw = "" if time.busbw is None else cells[time.busbw]
                run.add(column, row, cells[size], cells[time.place], busbw, time.unit)
                if "rank" in said:
                    _last(run, column, said["rank"], slowest.setdefault((id(run), column), {}))
        except ValueError as error:
            rows.bad(row, str(error))
    curves: list[CollectiveCurve] = []
    for run in runs.values():
        run.place(given, rows)
        curves.extend(run.curves(rows))
    return curves, rows.skipped


def _last(run: LogRun, column: str, rank: str, seen: dict[str, Any]) -> None:
    """Keep, of the ranks of one size and sweep, only the slowest."""
    points = run.columns[column]
    point = points[-1]
    key = f"{point.size_bytes:g}"
    place, ranks = seen.get(key, (None, set()))
    if place is None or rank in ranks:
        seen[key] = (len(points) - 1, {rank})
        return
    points.pop()
    ranks.add(rank)
    if point.seconds > points[place].seconds:
        points[place] = point


def _facts(said: dict[str, str], source: str, rows: LogRows) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": "measured", "source": source}
    if said.get("collective"):
        facts["collective"] = known(said["collective"], rows)
    for role in ("ranks", "nodes", "gpus_per_node", "gpus_per_rank"):
        if role in said:
            if not said[role].isdigit() or not 0 < int(said[role]) < MOST:
                raise ValueError(f"{role} {shown(said[role])} is not a count")
            facts[role] = int(said[role])
    each = facts.pop("gpus_per_rank", 1)
    for role in ("ranks", "gpus_per_node"):
        if role in facts:
            facts[role] *= each
    return facts
