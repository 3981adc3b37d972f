"""Read CSV tables of measured collectives: perfsim's own, nccl-tests' and PyTorch-style ones.

Tables of others are read by the names of their columns (`read_columns`).
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from perfsim.calibrate.formats.rows import (
    MAX_RANKS,
    DamagedLines,
    GivenFacts,
    LogFormat,
    LogRun,
    collective_name,
    known_collective,
    log_format,
)
from perfsim.data.files import write_text
from perfsim.data.tables import MAX_COMMAS, is_too_wide
from perfsim.data.tables import csv_rows as table_rows
from perfsim.errors import MAX_QUOTED, DataError, newer, shown
from perfsim.network.measured import CollectiveCurve

__all__ = [
    "CURVES_CSV_SCHEMA",
    "NcclCsv",
    "OwnCsv",
    "PytorchCsv",
    "own_csv_text",
    "write_own_csv",
]

# perfsim's own table

CURVES_CSV_SCHEMA = "perfsim/curves/1"

_OWN_COLUMNS = ("collective", "ranks", "nodes", "gpus_per_node", "size_bytes", "time_us")
"""Columns that perfsim's own table must have."""

_OWN_TEXTS = (
    "source", "series", "gpu", "fabric", "library", "version", "algorithm", "protocol", "kind",
)  # fmt: skip
"""Texts that stand in its header or in further columns."""

_OLD_KEYS = {"scaling series": "series"}
"""Keys of older tables, as they are called today."""

_GPU_PARTS = re.compile(r";\s*(intra-node|inter-node|NCCL|algo/proto|tool):\s*")
_HELD_FIRST = re.compile(r"^(Ring|Tree|NVLSTree|NVLS|CollNet\w+|PAT)\b(?! enabled)", re.IGNORECASE)
_HELD_ALGORITHM = re.compile(r"NCCL_ALGO=(\w+)|allreduce_(\w+)", re.IGNORECASE)
_HELD_PROTOCOL = re.compile(r"NCCL_PROTO=(\w+)|\b(LL128|LL|Simple)\b", re.IGNORECASE)
_VERSION_NUMBER = re.compile(r"(?<!\d)\d+\.\d+(?:\.\d+)?")


@log_format("own_csv", "perfsim's own table of measured collectives (CSV)")
class OwnCsv(LogFormat):
    """perfsim's own table of measured collectives (CSV).

    Comment lines ``# key: value``, then a head with at least ``collective, ranks, nodes,
    gpus_per_node, size_bytes, time_us``. Keys and further columns alike: source, series, gpu,
    fabric, library, version, algorithm, protocol, kind, spread; further columns: busbw_GBps (held
    against time and size), algbw_GBps, inplace (rows in and out of place are repeats), repeats. A
    key ``gpu`` may hold several parts:
    ``GPU; intra-node: ...; inter-node: ...; NCCL: version; algo/proto: ...; tool: ...``.
    """

    def matches(self, text: str) -> bool:
        """Say whether the first line without # is the head of our table."""
        head = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
        return set(_OWN_COLUMNS) <= {cell.strip() for cell in head.split(",", MAX_COMMAS)}

    def read(
        self, text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
    ) -> tuple[list[CollectiveCurve], list[str]]:
        """Read the table: one curve for each measurement and repeat, and the lines left out."""
        rows = DamagedLines(path, skip_bad)
        lines = text.splitlines()
        start = next(index for index, line in enumerate(lines) if line.strip() and line[0] != "#")
        header = _own_header(lines[:start], path)
        runs: dict[tuple[Any, ...], LogRun] = {}
        for row, cells in _own_rows(lines, start, rows):
            try:
                facts = _own_facts(cells, header)
                run = runs.setdefault(tuple(facts.items()), LogRun(facts, row=row))
                column, busbw = cells.get("inplace", ""), cells.get("busbw_GBps", "")
                run.add(column, row, cells["size_bytes"], cells["time_us"], busbw, -6)
            except ValueError as error:
                rows.bad(row, str(error))
        return _curves(runs.values(), given, rows), rows.skipped


def _curves(runs: Iterable[LogRun], given: GivenFacts, rows: DamagedLines) -> list[CollectiveCurve]:
    """Return the curves of all runs."""
    curves: list[CollectiveCurve] = []
    for run in runs:
        run.settle_ranks(given, rows)
        curves.extend(run.curves(rows))
    return curves


def _own_rows(lines: list[str], start: int, rows: DamagedLines) -> list[tuple[int, dict[str, str]]]:
    """Return line number and cells of every row that has as many as the head."""
    try:
        return list(table_rows(lines, start, _OWN_COLUMNS, rows.path))
    except DataError:
        if not rows.skip_bad:
            raise
    numbered: list[tuple[int, dict[str, str]]] = []
    for index in range(start + 1, len(lines)):
        if lines[index].strip():
            try:
                pair = [lines[start], lines[index]]
                read = table_rows(pair, 0, _OWN_COLUMNS, rows.path)
                numbered += [(index + 1, cells) for _, cells in read]
            except DataError:
                rows.bad(index + 1, "not as many cells as the head has columns")
    return numbered


def _own_facts(cells: dict[str, str], header: dict[str, Any]) -> dict[str, Any]:
    """Return what a row says about its measurement; a column goes before the header."""
    facts = dict(header)
    name = collective_name(cells["collective"])
    if not name:
        raise ValueError(f"no collective {shown(cells['collective'])}")
    facts["collective"] = name
    for column in ("ranks", "nodes", "gpus_per_node"):
        facts[column] = _count(cells[column], column)
    ranks, nodes, per_node = facts["ranks"], facts["nodes"], facts["gpus_per_node"]
    if not nodes <= ranks <= nodes * per_node:
        raise ValueError(f"{ranks} ranks do not fit on {nodes} nodes of {per_node} GPUs")
    if cells.get("repeats"):
        _count(cells["repeats"], "repeats")
    facts.update({column: cells[column] for column in _OWN_TEXTS if cells.get(column)})
    if cells.get("spread"):
        facts["spread"] = _spread(cells["spread"])
    return facts


def _count(text: str, column: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < MAX_RANKS:
        raise ValueError(f"{column} {shown(text)} is not a count")
    return int(text)


def _spread(text: str) -> float:
    try:
        spread = float(text)
    except ValueError:
        spread = -1.0
    if not 0 <= spread < math.inf:
        raise ValueError(f"spread {shown(text)} is not a fraction of 0 or more")
    return spread


def _own_header(lines: list[str], path: Path) -> dict[str, Any]:
    """Return the fields of a curve that the comment lines say."""
    keys: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.lstrip("#").partition(":")
        if colon:
            keys.setdefault(_OLD_KEYS.get(key.strip(), key.strip()), value.strip())
    schema = keys.get("schema", CURVES_CSV_SCHEMA)
    if schema != CURVES_CSV_SCHEMA:
        why = f"schema is {shown(schema)}, this perfsim reads '# schema: {CURVES_CSV_SCHEMA}'"
        raise DataError(why + newer(schema, CURVES_CSV_SCHEMA), path=path)
    fields: dict[str, Any] = {"kind": "measured", "source": path.name, "series": path.stem}
    if _GPU_PARTS.search(keys.get("gpu", "")):
        fields.update(_gpu_parts(keys.pop("gpu")))
    fields.update({key: keys[key] for key in _OWN_TEXTS if key in keys})
    if "spread" in keys:
        try:
            fields["spread"] = _spread(keys["spread"])
        except ValueError as error:
            raise DataError(str(error), path=path) from None
    return fields


def _gpu_parts(text: str) -> dict[str, str]:
    """Return GPU, fabric, library, version, algorithm and protocol of a composite gpu line."""
    pieces = _GPU_PARTS.split(text)
    part = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    stated, tool = part.get("NCCL", ""), part.get("tool", "")
    words = f"{stated} {tool}".lower()
    library = next((name for name in ("mpi", "gloo", "rccl") if name in words), "nccl")
    version = _VERSION_NUMBER.search(re.sub(r"\([^)]{0,200}\)", "", stated).strip())
    held, algorithm = part.get("algo/proto", ""), ""
    first = _HELD_FIRST.match(held)
    named = _HELD_ALGORITHM.search(f"{held} {tool}")
    if first:
        algorithm = first[1]
    elif named:
        algorithm = named[1] or named[2]
    protocol = _HELD_PROTOCOL.search(held)
    inside, outside = (
        part.get(key, "").strip() or "not stated" for key in ("intra-node", "inter-node")
    )
    return {
        "gpu": pieces[0].strip(),
        "fabric": f"intra-node: {inside}; inter-node: {outside}",
        "library": library,
        "version": version[0] if version else "",
        "algorithm": algorithm.lower(),
        "protocol": (protocol[1] or protocol[2]).lower() if protocol else "",
    }


_WRITTEN_FIELDS = (
    "source", "kind", "series", "gpu", "fabric", "library", "version", "algorithm", "protocol",
    "spread",
)  # fmt: skip
"""Fields of a curve that are written to the header where all share them, else to a column."""

_OPTIONAL_FIELDS = ("algorithm", "protocol", "version", "gpu", "fabric", "spread")
"""Fields that the header leaves out where they are empty."""


def own_csv_text(curves: Sequence[CollectiveCurve]) -> str:
    """Return perfsim's own table: what all curves share in the header, what differs in columns.

    Raises
    ------
    DataError
        If there is no curve, or a text holds a line break.

    Examples
    --------
    >>> points = {"size_bytes": (8.0,), "seconds": (1.25e-05,)}
    >>> about = {"kind": "measured", "source": "here", "series": "two"}
    >>> print(own_csv_text([CollectiveCurve("reduce", 2, 2, 1, **points, **about)]), end="")
    # schema: perfsim/curves/1
    # source: here
    # kind: measured
    # series: two
    # library: nccl
    collective,ranks,nodes,gpus_per_node,size_bytes,time_us
    reduce,2,2,1,8,12.5
    """
    if not curves:
        raise DataError("there is no curve to write")
    values = {
        field: [_text(getattr(curve, field)) for curve in curves] for field in _WRITTEN_FIELDS
    }
    shared = {field: texts[0] for field, texts in values.items() if len(set(texts)) == 1}
    differing = [field for field in _WRITTEN_FIELDS if field not in shared]
    out = io.StringIO()
    out.write(f"# schema: {CURVES_CSV_SCHEMA}\n")
    for field, text in shared.items():
        if text or field not in _OPTIONAL_FIELDS:
            out.write(f"# {field}: {text}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_OWN_COLUMNS, *differing])
    for index, curve in enumerate(curves):
        ranks = [curve.collective, curve.ranks, curve.nodes, curve.gpus_per_node]
        rest = [values[field][index] for field in differing]
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
            writer.writerow([*ranks, _size(size), _microseconds(seconds), *rest])
    return out.getvalue()


def write_own_csv(curves: Sequence[CollectiveCurve], path: Path | str) -> None:
    """Write perfsim's own table to a file, whole or not at all.

    Raises
    ------
    RequestError
        If the file cannot be written.
    """
    write_text(Path(path), own_csv_text(curves))


def _text(value: Any) -> str:
    """Return a field as a cell; refuse a text of several lines."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value).strip()
    if len(text.splitlines()) > 1:
        raise DataError(f"{text.splitlines()[0]!r}...: a text with a line break has no cell")
    return text


def _size(size: float) -> str:
    return str(int(size)) if size == int(size) and size < 2**53 else repr(size)


def _microseconds(seconds: float) -> str:
    """Return the microseconds to the last digit, so that reading gives the same seconds."""
    return format(Decimal(repr(seconds)).scaleb(6).normalize(), "f")


# Tables of others, by the names of their columns

_SIZE_NAMES = (
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

_ROLE_NAMES = {
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
"""What a column says -> the names that it has been seen under."""

_TIME_UNITS = {
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
"""Units as they stand in names of columns -> power of ten of a second."""

_TIME_NAMES = ("median", "p50", "avg", "mean", "average", "time", "latency", "lat")
"""Names of a usual time, the best first."""

_OTHER_TIMES = re.compile(r"min|max|std|p\d[^0]|p\d\d\d|cpu|total|init|bandwidth|bw|warm")
"""Names of extremes, spreads and rates, which are no usual time."""

_HEAD_LINES = 200
"""Lines in which the head of a table is looked for. No source: more than any banner seen."""

_MAX_HEAD_CHARACTERS = 10_000
"""Characters of a head. No source: chosen, a hundred times those seen; a megabyte of commas takes
a second."""


@dataclass(frozen=True, slots=True)
class _TimeColumn:
    """A column of times: its index, the power of ten of its unit, and the bus bandwidth's index."""

    index: int
    unit: int
    name: str
    busbw: int | None = None


def column_name(title: str) -> str:
    """Return a column's name in small letters, its parts joined by underscores.

    Examples
    --------
    >>> column_name("Latency(us):p50"), column_name("#wrong"), column_name("OutPlaceTime(us)")
    ('latency_us_p50', 'wrong', 'outplacetime_us')
    """
    return "_".join(re.findall(r"[a-z0-9]+", title.lower()))


def time_exponent(name: str) -> int | None:
    """Return the power of ten of a time column's unit, None for one without unit or no time.

    Examples
    --------
    >>> [time_exponent(name) for name in ("latency_us", "avg_ms", "sec_per_iter", "time")]
    [-6, -3, 0, None]
    """
    parts = name.split("_")
    if _OTHER_TIMES.search(name):
        return None
    units = [_TIME_UNITS[part] for part in parts if part in _TIME_UNITS]
    is_time = any(part in (*_TIME_NAMES, "iter", "t", "nccl") for part in parts)
    return units[0] if len(units) == 1 and (is_time or parts[0] in _TIME_UNITS) else None


def head_of(text: str) -> tuple[int, list[str]]:
    """Return line index and cells of the first line with commas that names a column of sizes."""
    for index, line in enumerate(text.splitlines()[:_HEAD_LINES]):
        if len(line) > _MAX_HEAD_CHARACTERS:
            continue
        cells = [cell.strip() for cell in _cells(line.lstrip("# "))]
        names = {column_name(cell) for cell in cells}
        if len(cells) >= 3 and names & set(_SIZE_NAMES):
            return index, cells
        if len(cells) >= 2 and names & {"size_bytes", "message_bytes"}:
            return index, cells
    return 0, []


def _cells(line: str) -> list[str]:
    """Return the cells of one line, none of one that is no CSV."""
    if is_too_wide(line):
        return []
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell of more than 131,072 letters
        return [] if "," not in line else [line[:MAX_QUOTED]]


def read_columns(
    text: str,
    path: Path,
    times: list[_TimeColumn],
    source: str,
    given: GivenFacts,
    skip_bad: bool,
) -> tuple[list[CollectiveCurve], list[str]]:
    """Read a table whose columns of times are known; all others go by their names.

    Where a column ``rank`` distinguishes the ranks of one size, the slowest counts: a collective
    has ended when its last rank has.
    """
    rows = DamagedLines(path, skip_bad)
    start, head = head_of(text)
    names = [column_name(title) for title in head]
    size = next(index for index, name in enumerate(names) if name in _SIZE_NAMES)
    skipped = ("op",) if "n" in names else ()  # NCCL 1's op is the reduction, N the count
    roles = {
        role: next(
            (
                index
                for index, name in enumerate(names)
                if name in known_names and name not in skipped
            ),
            None,
        )
        for role, known_names in _ROLE_NAMES.items()
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
        said = {role: cells[index] for role, index in roles.items() if index is not None}
        try:
            facts = _column_facts(said, source, rows)
            key = tuple(facts.items())
            run = runs.setdefault(key, LogRun(facts, row=row))
            for time in times:
                if cells[time.index].lower() in ("", "n/a", "nan") and len(times) > 1:
                    continue
                column = time.name + said.get("inplace", "")
                busbw = "" if time.busbw is None else cells[time.busbw]
                run.add(column, row, cells[size], cells[time.index], busbw, time.unit)
                if "rank" in said:
                    sweep = slowest.setdefault((key, column), {})
                    _keep_slowest(run, column, said["rank"], sweep)
        except ValueError as error:
            rows.bad(row, str(error))
    return _curves(runs.values(), given, rows), rows.skipped


def _keep_slowest(run: LogRun, column: str, rank: str, sweep: dict[str, Any]) -> None:
    """Keep, of the ranks of one size and sweep, only the slowest."""
    points = run.columns[column]
    point = points[-1]
    size = f"{point.size_bytes:g}"
    index, ranks = sweep.get(size, (None, set()))
    if index is None or rank in ranks:
        sweep[size] = (len(points) - 1, {rank})
        return
    points.pop()
    ranks.add(rank)
    if point.seconds > points[index].seconds:
        points[index] = point


def _column_facts(said: dict[str, str], source: str, rows: DamagedLines) -> dict[str, Any]:
    """Return what a row's columns say about its measurement."""
    facts: dict[str, Any] = {"kind": "measured", "source": source}
    if said.get("collective"):
        facts["collective"] = known_collective(said["collective"], rows)
    for role in ("ranks", "nodes", "gpus_per_node", "gpus_per_rank"):
        if role in said:
            if not said[role].isdigit() or not 0 < int(said[role]) < MAX_RANKS:
                raise ValueError(f"{role} {shown(said[role])} is not a count")
            facts[role] = int(said[role])
    each = facts.pop("gpus_per_rank", 1)
    for role in ("ranks", "gpus_per_node"):
        if role in facts:
            facts[role] *= each
    return facts


_OUT_OF_PLACE = re.compile(r"time|oop_time|out_?place_?time_us|outplacetime_us|t_us_out")
_IN_PLACE = re.compile(r"ip_time|in_?place_?time_us|inplacetime_us|t_us_in")
_BUSBW_NAME = re.compile(r"(oop_|ip_)?busbw|(out|in)placebusbw_gb_s|busbw_(out|in)_gbs")
_NCCL_NAMES = ("redop", "type", "wrong", "count", "numcycle", "count_elems", "count_elements", "n")
"""Columns that only nccl-tests' tables have."""


@log_format("nccl_csv", "nccl-tests' table as CSV, as wrappers and rccl-tests write it")
class NcclCsv(LogFormat):
    """nccl-tests' table as CSV, as wrappers and rccl-tests write it.

    Forms seen: the columns of the text as they are (``size,count,type,redop,root,time,algbw,busbw,
    #wrong,time,algbw,busbw,#wrong``: boeschf/nccl-benchmark-on-alps-2025, job-*.csv), one file for
    out of place and one for in place (``...,time,algbw,busbw,wrong``), named pairs (``oop-time ...
    ip-time``, ``OutPlaceTime(us) ... InPlaceTime(us)``, ``t_us_out ... t_us_in``), rccl-tests -Z
    csv (``numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,time,
    algbw,busbw,#wrong``: ROCm/rccl-tests, src/common.cu), and NCCL 1's own tests (``B,N,type,op,
    oop_time,...`` with times in milliseconds: NVIDIA/nccl v1, test/single/all_reduce_test.cu).
    """

    def matches(self, text: str) -> bool:
        """Say whether a head has nccl-tests' columns of times and bandwidths."""
        names = [column_name(title) for title in head_of(text)[1]]
        marked = any(name in _NCCL_NAMES for name in names)
        has_busbw = any(_BUSBW_NAME.fullmatch(name) for name in names)
        return marked and has_busbw and bool(self._times(names))

    def read(
        self, text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
    ) -> tuple[list[CollectiveCurve], list[str]]:
        """Read the table: in place and out of place are repeats of one measurement."""
        times = self._times([column_name(title) for title in head_of(text)[1]])
        return read_columns(text, path, times, f"{path.name} (nccl-tests)", given, skip_bad)

    @staticmethod
    def _times(names: list[str]) -> list[_TimeColumn]:
        """Return the columns of times, each with the bus bandwidth that follows it."""
        unit = -3 if names[:2] == ["b", "n"] else -6
        times: list[_TimeColumn] = []
        for index, name in enumerate(names):
            if _OUT_OF_PLACE.fullmatch(name) or _IN_PLACE.fullmatch(name):
                after = range(index + 1, len(names))
                busbw = next(
                    (other for other in after if _BUSBW_NAME.fullmatch(names[other])), None
                )
                inside = _IN_PLACE.fullmatch(name) or (name == "time" and times)
                times.append(
                    _TimeColumn(index, unit, "in place" if inside else "out of place", busbw)
                )
        return times


@log_format(
    "pytorch_csv",
    "A CSV of a PyTorch-style benchmark: a size in bytes and a time whose name says its unit",
)
class PytorchCsv(LogFormat):
    """A CSV of a PyTorch-style benchmark: a size in bytes and a time whose name says its unit.

    Forms seen in public benchmarks of torch.distributed and NCCL: ``size_bytes,latency_us,
    busbw_gbps``; ``collective,world_size,rank,message_bytes,latency_us,effective_gbps``; ``op,
    msg_bytes,lat_ms,algBW_GBps,busBW_GBps``; ``kind,size_bytes,world,sec_per_iter,algbw_GBps,
    busbw_GBps,extra``; ``benchmark,num_gcds,run,size_bytes,latency_us``. Of several columns of
    times the median goes before the mean. Sizes in MB are refused: some mean 1e6 bytes, others
    2**20. For all_gather, reduce_scatter and all_to_all the size must be that of all ranks' blocks.
    """

    def matches(self, text: str) -> bool:
        """Say whether a head has a size in bytes and a time with a unit, and no other form's."""
        if OwnCsv().matches(text) or NcclCsv().matches(text):
            return False
        return bool(self._times(head_of(text)[1]))

    def read(
        self, text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
    ) -> tuple[list[CollectiveCurve], list[str]]:
        """Read the table: rows of one size are repeats, or ranks where a column says so."""
        times = self._times(head_of(text)[1])
        return read_columns(text, path, times, path.name, given, skip_bad)

    @staticmethod
    def _times(head: list[str]) -> list[_TimeColumn]:
        """Return the one column of times, with a bus bandwidth whose unit is surely GB/s."""
        ranked: list[tuple[int, _TimeColumn]] = []
        sure = [index for index, title in enumerate(head) if "GBps" in title or "GB/s" in title]
        busbw = next((index for index in sure if "busbw" in column_name(head[index])), None)
        for index, title in enumerate(head):
            name = column_name(title)
            unit = time_exponent(name)
            if unit is not None:
                rank = next(
                    (place for place, word in enumerate(_TIME_NAMES) if word in name),
                    len(_TIME_NAMES),
                )
                ranked.append((rank, _TimeColumn(index, unit, "time", busbw)))
        best = min(ranked, key=lambda pair: (pair[0], pair[1].index), default=None)
        return [] if best is None else [best[1]]
