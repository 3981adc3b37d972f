"""nccl-tests' JSON output (-J, versions 2.17 on).

An object with ``args``, ``env``, ``nccl_version``, ``config`` (``nthreads``, ``ngpus``,
``devices``: one entry a process, with its first GPU) and ``results``: one object a size with
``size``, ``out_of_place`` and ``in_place`` (``time`` in microseconds, ``bus_bw`` in GB/s).

References
----------
NVIDIA/nccl-tests, src/util.cu of v2.17.2 to v2.19.6 (jsonOutputInit, writeDeviceReport,
writeBenchmarkLinePreamble, writeBenchmarkLineBody).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from perfsim.calibrate.formats.rows import (
    MOST,
    GivenFacts,
    LogRows,
    LogRun,
    held_word,
    known,
    version_of,
)
from perfsim.data.files import printable
from perfsim.errors import shown
from perfsim.network.measured import CollectiveCurve

__all__ = ["matches", "read"]

COLUMNS = ("out_of_place", "in_place")


def matches(text: str, path: Path) -> bool:
    """Say whether the file is a JSON object that names nccl-tests' parts."""
    del path
    begin = text[:1_000_000]
    return begin.lstrip().startswith("{") and '"args"' in begin and '"start_time"' in begin


def read(
    text: str, path: Path, *, given: GivenFacts, skip_bad: bool = False
) -> tuple[list[CollectiveCurve], list[str]]:
    """Read the results: in place and out of place are repeats of one measurement."""
    rows = LogRows(path, skip_bad)
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits as well
        line = getattr(error, "lineno", None)
        what = getattr(error, "msg", "nested too deep, or a number too long")
        raise rows.fatal(
            f"is no whole JSON object ({what}): was the run cut short?", line
        ) from None
    if not isinstance(told, dict) or not isinstance(told.get("results"), list):
        raise rows.fatal("holds no list of results: the run ended before its table")
    facts = _facts(told, rows)
    config = told.get("config") if isinstance(told.get("config"), dict) else {}
    facts.update(_place(config or {}))
    run = LogRun(facts)
    alone = facts.get("ranks") == 1
    for number, result in enumerate(told["results"], 1):
        if not isinstance(result, dict) or result.get("size") == 0:
            if not isinstance(result, dict):
                rows.bad(number, f"result {number} is no object")
            continue
        for column in COLUMNS[:1] if alone else COLUMNS:
            body = result.get(column)
            if body is None:
                continue
            try:
                _add(run, column, number, result, body)
            except ValueError as error:
                rows.bad(number, f"result {number}, {column}: {error}")
    run.place(given, rows)
    return list(run.curves(rows)), rows.skipped


def _add(run: LogRun, column: str, number: int, result: dict[str, Any], body: Any) -> None:
    if not isinstance(body, dict) or "time" not in body:
        cpu = isinstance(body, dict) and "cpu_time" in body
        raise ValueError("cpu_time (-C 1) is the time to launch" if cpu else "holds no time")
    busbw = body.get("bus_bw", "")
    # 0.000000 is what %lf leaves of a small rate; six digits after the point are kept.
    rate = f"{busbw:.6f}" if isinstance(busbw, float) else ""
    run.add(column, number, str(result.get("size")), str(body["time"]), rate, -6)


def _facts(told: dict[str, Any], rows: LogRows) -> dict[str, Any]:
    """Return collective, version and what NCCL was held to."""
    facts: dict[str, Any] = {"kind": "measured", "source": f"{rows.path.name} (nccl-tests)"}
    args = [one for one in _list(told, "args") if isinstance(one, str)]
    if args:
        facts["collective"] = known(Path(args[0]).name, rows)
    code = told.get("nccl_version")
    if isinstance(code, int) and 0 < code < MOST:
        facts["version"] = version_of(code)
    env = dict(
        one.split("=", 1) for one in _list(told, "env") if isinstance(one, str) and "=" in one
    )
    collective = facts.get("collective", "")
    facts["algorithm"] = held_word(env.get("NCCL_ALGO", ""), collective)
    facts["protocol"] = held_word(env.get("NCCL_PROTO", ""), collective)
    return facts


def _list(told: dict[str, Any], key: str) -> list[Any]:
    found = told.get(key)
    return found if isinstance(found, list) else []


def _words(told: object) -> str:
    return " ".join(printable(str(told)).split())


def _place(config: dict[str, Any]) -> dict[str, Any]:
    """Return ranks, nodes, GPUs a node and GPU; each process lists its first GPU only."""
    devices = [one for one in _list(config, "devices") if isinstance(one, dict)]
    each = [config.get("nthreads", 1), config.get("ngpus", 1)]
    if not devices or not all(isinstance(one, int) and 0 < one < MOST for one in each):
        return {}
    gpus = each[0] * each[1]
    hosts = Counter(shown(device.get("hostname")) for device in devices)
    names = dict.fromkeys(_words(device.get("device_info", "")) for device in devices)
    return {
        "ranks": len(devices) * gpus,
        "nodes": len(hosts),
        "gpus_per_node": max(hosts.values()) * gpus,
        "gpu": ", ".join(name for name in names if name),
    }
