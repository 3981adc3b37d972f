"""nccl-tests' table as CSV, as wrappers and rccl-tests write it.

Forms seen: the columns of the text as they are (``size,count,type,redop,root,time,algbw,busbw,
#wrong,time,algbw,busbw,#wrong``: boeschf/nccl-benchmark-on-alps-2025, job-*.csv), one file for
out of place and one for in place (``...,time,algbw,busbw,wrong``), named pairs (``oop-time ...
ip-time``, ``OutPlaceTime(us) ... InPlaceTime(us)``, ``t_us_out ... t_us_in``), rccl-tests -Z csv
(``numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,time,algbw,
busbw,#wrong``: ROCm/rccl-tests, src/common.cu), and NCCL 1's own tests (``B,N,type,op,oop_time,
...`` with times in milliseconds: NVIDIA/nccl v1, test/single/all_reduce_test.cu).
"""

from __future__ import annotations

import re
from pathlib import Path

from perfsim.calibrate.formats.csv_tables import Time, head_of, plain, read_columns
from perfsim.calibrate.formats.rows import GivenFacts
from perfsim.network.measured import CollectiveCurve

__all__ = ["matches", "read"]

OUT = re.compile(r"time|oop_time|out_?place_?time_us|outplacetime_us|t_us_out")
IN = re.compile(r"ip_time|in_?place_?time_us|inplacetime_us|t_us_in")
BUSBW = re.compile(r"(oop_|ip_)?busbw|(out|in)placebusbw_gb_s|busbw_(out|in)_gbs")
MARKS = ("redop", "type", "wrong", "count", "numcycle", "count_elems", "count_elements", "n")


def matches(text: str, path: Path) -> bool:
    """Say whether a head has nccl-tests' columns of times and bandwidths."""
    del path
    names = [plain(name) for name in head_of(text)[1]]
    marked = any(name in MARKS for name in names)
    return marked and bool(_times(names)) and any(BUSBW.fullmatch(name) for name in names)


def read(
    text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
) -> tuple[list[CollectiveCurve], list[str]]:
    """Read the table: in place and out of place are repeats of one measurement."""
    times = _times([plain(name) for name in head_of(text)[1]])
    return read_columns(text, path, times, f"{path.name} (nccl-tests)", given, skip_bad)


def _times(names: list[str]) -> list[Time]:
    """Return the columns of times, each with the bus bandwidth that follows it."""
    unit = -3 if names[:2] == ["b", "n"] else -6
    found: list[Time] = []
    for place, name in enumerate(names):
        if OUT.fullmatch(name) or IN.fullmatch(name):
            busbw = next(
                (at for at in range(place + 1, len(names)) if BUSBW.fullmatch(names[at])), None
            )
            inside = IN.fullmatch(name) or (name == "time" and found)
            found.append(Time(place, unit, "in place" if inside else "out of place", busbw))
    return found
