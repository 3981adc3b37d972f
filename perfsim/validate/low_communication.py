"""Cases from a table of runs that communicate less: local steps, compressed messages, slow links.

Such a table has the columns of a table of training runs (`perfsim.validate.training`) without ids,
and besides them the method and its baseline, the rate of the links, the steps between two
exchanges and what one GPU computes a step. It is recognised by these columns
(`LOW_COMMUNICATION_COLUMNS`). A row becomes a case as a training run does, with three additions:

1. Where a fact (``training_facts.toml``) gives the latency of a hop (``link_latency``), the rate of
   the row is that of a link: the network is ``shaped, 5Gbit/s,50us``.
2. The time that a GPU computes a step is a case of its own that calibrates computation. Facts say
   what it holds (``computed``): ``step``, the optimizer's update too, or ``passes``, without it.
3. A row that states a speed-up over its baseline and no time is a ratio to another run. Such
   figures are asked as claims (`perfsim.validate.claims`).

The id of a row is its source in short, a hyphen and its place in the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perfsim.data.tables import csv_rows
from perfsim.errors import DataError
from perfsim.validate.training import TRAINING_COLUMNS, TrainingRun, training_case, with_facts

__all__ = [
    "LOW_COMMUNICATION_COLUMNS",
    "RATIO_METRIC",
    "is_low_communication_table",
    "read_low_communication_rows",
]

LOW_COMMUNICATION_COLUMNS = (
    *(column for column in TRAINING_COLUMNS if column != "id"),
    *("method", "baseline", "bandwidth_gbps", "sync_period_H", "compute_ms"),
    "speedup_vs_baseline",
)
"""Columns by which a table of runs that communicate less is recognised; others are those of a table
of training runs. An empty cell is unknown."""

RATIO_METRIC = "speedup_vs_baseline"
"""Metric of a row that states how many times as fast as its baseline it is, and no time."""

_COMPUTED = {"step": "iteration_s", "passes": "compute_s"}
"""What ``compute_ms`` holds -> the metric that says so: a step of one GPU, or its passes alone."""

_UNSTATED = "not stated"


def is_low_communication_table(columns: Iterable[str]) -> bool:
    """Tell whether columns are those of a table of runs that communicate less."""
    return set(LOW_COMMUNICATION_COLUMNS) <= set(columns)


def read_low_communication_rows(
    path: Path, lines: list[str], start: int, bad: list[DataError] | None = None
) -> list[dict[str, Any]]:
    """Return the fields of the `Case`s of each row below the head.

    Parameters
    ----------
    path, lines : the table
    start : index of the line that is the head
    bad : takes rows that cannot be read, which are then left out; None refuses the whole table

    Raises
    ------
    DataError
        If the table lacks a column or holds no case.
    """
    cases: list[dict[str, Any]] = []
    for row, cells in csv_rows(lines, start, LOW_COMMUNICATION_COLUMNS, path, bad):
        cases += _cases(cells | {"id": str(row - start - 1)})
    if not cases:
        raise DataError("holds no case", path=path)
    return cases


def _cases(cells: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the run of a row and, where it is stated, what it computes."""
    stated = {
        name: "" if text.strip().lower().startswith(_UNSTATED) else text
        for name, text in cells.items()
    }
    strategy = stated.get("strategy") or stated["method"]
    steps = stated["sync_period_H"]
    stated["strategy"] = f"{strategy}, H {steps}" if steps else strategy
    run = with_facts(stated)
    rate, latency = run.number("bandwidth_gbps"), run.text("link_latency")
    if rate and latency:
        stated["network"] = f"shaped, {rate:g}Gbit/s,{latency}"
    case = training_case(stated)
    if not case["value"]:
        case |= _ratio(run) or {}
    computed = _computed(run, case)
    return [case, *filter(None, [computed])]


def _ratio(run: TrainingRun) -> dict[str, Any] | None:
    """Return what a row without a time says of its baseline; None where it says nothing."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})?(?!\d)", run.text(RATIO_METRIC))
    if found is None or not float(found[0]):
        return None
    reason = f"ratio to another run: {run.text(RATIO_METRIC)} times as fast as its baseline"
    changed = {"metric": RATIO_METRIC, "value": float(found[0])}
    return changed | {"role": "excluded", "reason": reason, "missing": ""}


def _computed(run: TrainingRun, case: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the case of what a GPU computes a step; None where it is not stated or known."""
    milliseconds, metric = run.number("compute_ms"), _COMPUTED.get(run.text("computed"))
    if milliseconds is None or metric is None:
        return None
    alone = {"gpus": "1", "gpus_per_node": "1"} if metric == "iteration_s" else {}
    return {
        **case,
        **alone,
        "id": f"{case['id']}c",
        "metric": metric,
        "value": milliseconds / 1e3,
        "missing": "",
    }
