"""PARAM's comms benchmark, the text that it prints (lines COMMS-RES).

A line is ``COMMS-RES-<collective>-<type><tag>  size (B)  elements per rank  p50  p75  p95  min
max  AlgBW(GB/s)  BusBW(GB/s)``, times in microseconds over the ranks; the size is that of all
ranks' blocks. The number of ranks stands in ``groupSize N`` of another line.

References
----------
facebookresearch/param, train/comms/pt/comms.py (printPreamble, reportBenchTimeColl).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from perfsim.calibrate.formats.rows import VERSION, GivenFacts, LogRows, LogRun, clean, known
from perfsim.network.measured import CollectiveCurve

__all__ = ["matches", "read"]

LINE = re.compile(r"COMMS-RES-([a-z_]+?)-(\w+?)\s+(\d.*)")
GROUP = re.compile(r"groupSize (0*[1-9]\d{0,8})\b")
CELLS = 9


def matches(text: str, path: Path) -> bool:
    """Say whether a line holds a result of PARAM's comms benchmark."""
    del path
    return bool(LINE.search(text))


def read(
    text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
) -> tuple[list[CollectiveCurve], list[str]]:
    """Read the median over the ranks at each size; rows of one size are repeats."""
    rows = LogRows(path, skip_bad)
    said: dict[str, Any] = {"kind": "measured", "source": f"{path.name} (PARAM comms)"}
    runs: dict[str, LogRun] = {}
    for row, raw in enumerate(text.splitlines(), 1):
        line = clean(raw)[1]
        group, version, found = GROUP.search(line), VERSION.search(line), LINE.search(line)
        if group:
            said["ranks"] = int(group[1])
        if version:
            said["version"] = version[1]
        if not found:
            continue
        collective = known(found[1].removesuffix("_base").removesuffix("_single"), rows, row)
        cells = found[3].split()
        if len(cells) < CELLS:
            rows.bad(row, f"{len(cells)} cells, a result has {CELLS}")
            continue
        run = runs.setdefault(collective, LogRun({"collective": collective}, row=row))
        try:
            run.add("p50", row, cells[0], cells[2], cells[8], -6)
        except ValueError as error:
            rows.bad(row, str(error))
    curves: list[CollectiveCurve] = []
    for run in runs.values():
        run.facts = said | run.facts
        run.place(given, rows)
        curves.extend(run.curves(rows))
    return curves, rows.skipped
