"""Collectives."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from perfsim.calibrate.formats.csv_tables import CURVES_CSV_SCHEMA
from perfsim.calibrate.traces.training_trace import TracedCollective, TrainingTrace
from perfsim.collectives import COLLECTIVES
from perfsim.errors import RequestError

__all__ = ["collectives_csv", "collectives_of_job", "summary_by_size"]


def collectives_of_job(
    traced: TrainingTrace, nodes: int, gpus_per_node: int | None
) -> tuple[list[TracedCollective], int]:
    """Return the calls of known size among all ranks of the job, and the GPUs a node.

    Where the ranks of a part of the job stand, a trace does not say: those calls are left out.

    Raises
    ------
    RequestError
        If the ranks do not fit on the nodes.
    """
    ranks = traced.world or max((one.ranks or 0 for one in traced.seen), default=0)
    whole = [
        one
        for one in traced.seen
        if one.size_bytes and one.ranks == ranks > 1 and one.collective in COLLECTIVES
    ]
    most = gpus_per_node or max(1, -(-ranks // nodes))
    if whole and not nodes <= ranks <= nodes * most:
        raise RequestError(
            "nodes", f"the trace's {ranks} ranks do not fit on {nodes} nodes of {most} GPUs."
        )
    return whole, most


def collectives_csv(
    whole: list[TracedCollective], nodes: int, most: int, file: Path, traced: TrainingTrace
) -> str:
    """Return every call as a row of perfsim's table of measured collectives."""
    text = io.StringIO()
    header = {"schema": CURVES_CSV_SCHEMA, "source": f"trace {file.name}", "kind": "measured"}
    header |= {"library": traced.library, "version": traced.version}
    for key, value in header.items():
        if value:
            text.write(f"# {key}: {' '.join(value.split())}\n")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("collective", "ranks", "nodes", "gpus_per_node", "size_bytes", "time_us"))
    for one in whole:
        time_us = f"{one.seconds * 1e6:.3f}"
        rows.writerow((one.collective, one.ranks, nodes, most, one.size_bytes, time_us))
    return text.getvalue()


def summary_by_size(seen: Iterable[TracedCollective]) -> list[dict[str, Any]]:
    """Return the calls by collective, ranks and size: how many, least and median seconds."""
    found: dict[tuple[str, int | None, int | None], list[float]] = {}
    for one in seen:
        found.setdefault((one.collective, one.ranks, one.size_bytes), []).append(one.seconds)
    order = sorted(found, key=lambda key: (key[0], key[1] or 0, key[2] or 0))
    return [
        {
            "collective": key[0],
            "ranks": key[1],
            "size_bytes": key[2],
            "calls": len(found[key]),
            "least_s": min(found[key]),
            "median_s": median(found[key]),
        }
        for key in order
    ]
