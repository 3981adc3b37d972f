"""perfsim's own table of measured collectives (CSV).

Comment lines ``# key: value``, then a head with at least ``collective, ranks, nodes,
gpus_per_node, size_bytes, time_us``. Keys and further columns alike: source, series, gpu,
fabric, library, version, algorithm, protocol, kind, spread; further columns: busbw_GBps (held
against time and size), algbw_GBps, inplace (rows in and out of place are repeats), repeats. A key
``gpu`` may hold several parts:
``GPU; intra-node: ...; inter-node: ...; NCCL: version; algo/proto: ...; tool: ...``.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from perfsim.calibrate.formats.rows import MOST, GivenFacts, LogRows, LogRun, collective_name
from perfsim.data.tables import csv_rows as table_rows
from perfsim.errors import DataError, newer, shown
from perfsim.network.measured import CollectiveCurve

__all__ = ["CURVES_CSV_SCHEMA", "matches", "read"]

CURVES_CSV_SCHEMA = "perfsim/curves/1"
NEEDED = ("collective", "ranks", "nodes", "gpus_per_node", "size_bytes", "time_us")
TEXTS = ("source", "series", "gpu", "fabric", "library", "version", "algorithm", "protocol", "kind")
KEYS = {"scaling series": "series"}
PARTS = re.compile(r";\s*(intra-node|inter-node|NCCL|algo/proto|tool):\s*")
HELD = re.compile(r"^(Ring|Tree|NVLSTree|NVLS|CollNet\w+|PAT)\b(?! enabled)", re.IGNORECASE)
ALGORITHM = re.compile(r"NCCL_ALGO=(\w+)|allreduce_(\w+)", re.IGNORECASE)
PROTOCOL = re.compile(r"NCCL_PROTO=(\w+)|\b(LL128|LL|Simple)\b", re.IGNORECASE)
VERSION = re.compile(r"(?<!\d)\d+\.\d+(?:\.\d+)?")


def matches(text: str, path: Path) -> bool:
    """Say whether the first line without # is the head of our table."""
    del path
    head = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
    return set(NEEDED) <= {cell.strip() for cell in head.split(",")}


def read(
    text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
) -> tuple[list[CollectiveCurve], list[str]]:
    """Read the table: one curve for each measurement and repeat, and the lines left out."""
    rows = LogRows(path, skip_bad)
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip() and line[0] != "#")
    told = _header(lines[:start], path)
    runs: dict[tuple[Any, ...], LogRun] = {}
    for row, cells in _cells(lines, start, rows):
        try:
            facts = _facts(cells, told)
            run = runs.setdefault(tuple(facts.items()), LogRun(facts, row=row))
            column = cells.get("inplace", "")
            busbw = cells.get("busbw_GBps", "")
            run.add(column, row, cells["size_bytes"], cells["time_us"], busbw, -6)
        except ValueError as error:
            rows.bad(row, str(error))
    curves: list[CollectiveCurve] = []
    for run in runs.values():
        run.place(given, rows)
        curves.extend(run.curves(rows))
    return curves, rows.skipped


def _cells(lines: list[str], start: int, rows: LogRows) -> list[tuple[int, dict[str, str]]]:
    """Return line number and cells of every row that has as many as the head."""
    try:
        return list(table_rows(lines, start, NEEDED, rows.path))
    except DataError:
        if not rows.skip_bad:
            raise
    found = []
    for row in range(start + 1, len(lines)):
        if lines[row].strip():
            try:
                pair = [lines[start], lines[row]]
                found += [(row + 1, cells) for _, cells in table_rows(pair, 0, NEEDED, rows.path)]
            except DataError:
                rows.bad(row + 1, "not as many cells as the head has columns")
    return found


def _facts(cells: dict[str, str], told: dict[str, Any]) -> dict[str, Any]:
    """Return what a row says about its measurement; a column goes before the header."""
    facts = dict(told)
    name = collective_name(cells["collective"])
    if not name:
        raise ValueError(f"no collective {shown(cells['collective'])}")
    facts["collective"] = name
    for column in ("ranks", "nodes", "gpus_per_node"):
        facts[column] = _count(cells[column], column)
    nodes, most = facts["nodes"], facts["gpus_per_node"]
    if not nodes <= facts["ranks"] <= nodes * most:
        raise ValueError(f"{facts['ranks']} ranks do not fit on {nodes} nodes of {most} GPUs")
    if cells.get("repeats"):
        _count(cells["repeats"], "repeats")
    facts.update({column: cells[column] for column in TEXTS if cells.get(column)})
    if cells.get("spread"):
        facts["spread"] = _spread(cells["spread"])
    return facts


def _count(text: str, column: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < MOST:
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


def _header(lines: list[str], path: Path) -> dict[str, Any]:
    """Return the fields of a curve that the comment lines say."""
    keys: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.lstrip("#").partition(":")
        if colon:
            keys.setdefault(KEYS.get(key.strip(), key.strip()), value.strip())
    if keys.get("schema", CURVES_CSV_SCHEMA) != CURVES_CSV_SCHEMA:
        found = (
            f"schema is {shown(keys['schema'])}, this perfsim reads '# schema: {CURVES_CSV_SCHEMA}'"
        )
        raise DataError(found + newer(keys["schema"], CURVES_CSV_SCHEMA), path=path)
    told: dict[str, Any] = {"kind": "measured", "source": path.name, "series": path.stem}
    gpu = keys.get("gpu", "")
    if PARTS.search(gpu):
        told.update(_parts(gpu))
        keys.pop("gpu")
    told.update({key: keys[key] for key in TEXTS if key in keys})
    if "spread" in keys:
        try:
            told["spread"] = _spread(keys["spread"])
        except ValueError as error:
            raise DataError(str(error), path=path) from None
    return told


def _parts(text: str) -> dict[str, str]:
    """Return GPU, fabric, library, version, algorithm and protocol of a composite gpu line."""
    pieces = PARTS.split(text)
    part = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    stated, tool = part.get("NCCL", ""), part.get("tool", "")
    words = f"{stated} {tool}".lower()
    library = "mpi" if "mpi" in words else "gloo" if "gloo" in words else "nccl"
    plain = re.sub(r"\([^)]{0,200}\)", "", stated).strip()
    version = VERSION.search(plain)
    held, asked = part.get("algo/proto", ""), None
    first = HELD.match(held)
    named = ALGORITHM.search(f"{held} {tool}")
    if first:
        asked = first[1]
    elif named:
        asked = named[1] or named[2]
    protocol = PROTOCOL.search(held)
    inside, outside = (
        part.get(place, "").strip() or "not stated" for place in ("intra-node", "inter-node")
    )
    return {
        "gpu": pieces[0].strip(),
        "fabric": f"intra-node: {inside}; inter-node: {outside}",
        "library": library,
        "version": version[0] if version else "",
        "algorithm": asked.lower() if asked else "",
        "protocol": (protocol[1] or protocol[2]).lower() if protocol else "",
    }
