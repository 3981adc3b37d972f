"""The collectives of a trace as a table of measured collectives, and a summary of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from perfsim.calibrate.formats.csv_tables import CURVES_CSV_SCHEMA
from perfsim.calibrate.traces.training_trace import TracedCollective, TrainingTrace
from perfsim.collectives import COLLECTIVES
from perfsim.errors import RequestError

__all__ = ["CallsOfSize", "collectives_csv", "collectives_of_job", "summary_by_size"]


def collectives_of_job(
    trace: TrainingTrace, nodes: int, gpus_per_node: int | None
) -> tuple[list[TracedCollective], int]:
    """Return the calls of known size among all ranks of the job, and the GPUs a node.

    A trace does not say on which nodes the ranks of a smaller group run: those calls are left out.

    Raises
    ------
    RequestError
        If the ranks do not fit on the nodes.
    """
    ranks = trace.world or max((call.ranks or 0 for call in trace.collectives), default=0)
    calls = [
        call
        for call in trace.collectives
        if call.size_bytes and call.ranks == ranks > 1 and call.collective in COLLECTIVES
    ]
    most = gpus_per_node or max(1, -(-ranks // nodes))
    if calls and not nodes <= ranks <= nodes * most:
        why = f"the trace's {ranks} ranks do not fit on {nodes} nodes of {most} GPUs."
        raise RequestError("nodes", why, value=nodes)
    return calls, most


def collectives_csv(
    calls: Sequence[TracedCollective],
    nodes: int,
    gpus_per_node: int,
    file_name: str,
    trace: TrainingTrace,
) -> str:
    """Return perfsim's table of measured collectives, a row a call.

    Parameters
    ----------
    calls : see `collectives_of_job`
    nodes, gpus_per_node : of the job
    file_name : of the trace, for the source
    trace : names the library and its version
    """
    text = io.StringIO()
    header = {"schema": CURVES_CSV_SCHEMA, "source": f"trace {file_name}", "kind": "measured"}
    header |= {"library": trace.library, "version": trace.version}
    for key, value in header.items():
        if value:
            text.write(f"# {key}: {' '.join(value.split())}\n")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("collective", "ranks", "nodes", "gpus_per_node", "size_bytes", "time_us"))
    for call in calls:
        shape = (call.collective, call.ranks, nodes, gpus_per_node)
        rows.writerow((*shape, call.size_bytes, f"{call.seconds * 1e6:.3f}"))
    return text.getvalue()


@dataclass(frozen=True, slots=True)
class CallsOfSize:
    """The calls of one collective among as many ranks with as many bytes; None: not stated."""

    collective: str
    ranks: int | None
    size_bytes: int | None
    calls: int
    least_s: float
    median_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def summary_by_size(calls: Iterable[TracedCollective]) -> list[CallsOfSize]:
    """Return the calls by collective, ranks and size: how many, least and median seconds."""
    seconds: dict[tuple[str, int | None, int | None], list[float]] = {}
    for call in calls:
        key = call.collective, call.ranks, call.size_bytes
        seconds.setdefault(key, []).append(call.seconds)
    return [
        CallsOfSize(*key, len(seconds[key]), min(seconds[key]), median(seconds[key]))
        for key in sorted(seconds, key=lambda key: (key[0], key[1] or 0, key[2] or 0))
    ]
