"""A row of a sweep: a prediction object, or flat columns with units in their names.

The object follows the contract perfsim/prediction/1, without provenance. By default a row has
timing only: it leaves out what takes several predictions more (``iteration_s_interval``,
``bottleneck``) and the notes. All other figures come from the row's own run and, once for all
methods, from that of S-SGD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsim.conditions.ranks import shown_draws
from perfsim.errors import PerfsimError, unspelled
from perfsim.memory import UNFIT
from perfsim.prediction import (
    PREDICTION_SCHEMA,
    baseline_of,
    communication_of,
    memory_of,
    predict,
    spent,
)
from perfsim.resolve import ResolvedScenario, Setup, resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph, RoundTimes
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import mean_s, run_all
from perfsim.session import Session
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order
from perfsim.throughput import setup_throughput

if TYPE_CHECKING:
    from perfsim.schedule.run import ContentionResult

__all__ = [
    "FULL_SWEEP_COLUMNS",
    "SWEEP_COLUMNS",
    "PredictionObject",
    "SweepRow",
    "flat_row",
    "refused_row",
    "row_figures",
    "timing_only_object",
    "whole_object",
]

SWEEP_COLUMNS = (
    "iteration_s",
    "samples_per_s",
    "scaling_efficiency",
    "sent_bytes_per_gpu",
    "reason",
)
"""Columns after the values of the axes; ``reason`` is why a row could not be predicted."""

FULL_SWEEP_COLUMNS = (
    "iteration_s",
    "iteration_s_low",
    "iteration_s_high",
    "samples_per_s",
    "scaling_efficiency",
    "sent_bytes_per_gpu",
    "ssgd_iteration_s",
    "speedup",
    "forward_s",
    "backward_s",
    "compression_s",
    "second_order_s",
    "communication_exposed_s",
    "update_s",
    "other_s",
    "memory_bytes",
    "fits",
    "bottleneck",
    "reason",
)
"""Columns after the values of the axes where rows are whole predictions; ``fits`` says whether the
GPU has as much memory."""

SweepRow = tuple[Any, ...]
"""The columns of a row after the values of the axes.

Tuples, not lists: the garbage collector does not look into tuples of numbers, and a sweep keeps
up to millions."""

PredictionObject = dict[str, Any]
"""A prediction by the contract perfsim/prediction/1, or a scenario and why it has none."""


def refused_row(error: PerfsimError) -> SweepRow:
    """Return the columns of a row that cannot be predicted."""
    return *[None] * (len(SWEEP_COLUMNS) - 1), unspelled(error)


def row_figures(
    setup: Setup,
    plans: Sequence[CostedGraph | RoundTimes],
    iteration_s: Any,
    single_s: Any,
) -> list[Any]:
    """Return a row's figures, as ``predict()`` computes them: floats, or arrays of floats."""
    batch, gpus = setup.samples, setup.scenario.gpus
    samples_per_s = batch * setup.replicas / iteration_s
    efficiency = samples_per_s / (gpus * batch / single_s)
    period = sum_in_order(plan.iterations for plan in plans)
    sent_bytes = sum_in_order(plan.count * plan.sent_bytes for plan in plans) / period
    return [iteration_s, samples_per_s, efficiency, sent_bytes]


def timing_only_object(fields: Mapping[str, Any], session: Session) -> PredictionObject:
    """Predict one scenario with the keys of a prediction that its own run gives.

    Examples
    --------
    >>> row = timing_only_object({"model": "resnet50", "gpus": 16, "method": "dgc"}, Session())
    >>> [name for name in row if name not in ("schema", "scenario")]  # doctest: +ELLIPSIS
    ['iteration_s', 'samples_per_s', 'scaling_efficiency', 'throughput', 'baseline', ...]
    >>> timing_only_object({"model": "resnet50", "gpus": 0}, Session())["error"]
    '`gpus`: 0 is not allowed: it must be 1 or more.'
    """
    try:
        setup = resolve(make_scenario(fields), session)
        plans = build_rounds(setup, session.jobs)
        timelines, _, met = run_all(plans)
        iteration_s = mean_s(plans, timelines)
        baseline = baseline_of(setup, iteration_s, session)
    except PerfsimError as error:
        return _failed(fields, error)
    draws = [shown_draws(timeline) for timeline in timelines]
    _, samples_per_s, efficiency, _ = row_figures(setup, plans, iteration_s, setup.alone_s)
    asked = setup.resolved_scenario()
    return {
        "schema": PREDICTION_SCHEMA,
        "scenario": asked.to_dict(),
        "iteration_s": iteration_s,
        "samples_per_s": samples_per_s,
        "scaling_efficiency": efficiency,
        "throughput": setup_throughput(setup, samples_per_s).to_dict(),
        "baseline": baseline.to_dict(iteration_s),
        "breakdown_s": spent(plans, timelines, draws, Timeline.breakdown),
        "communication": communication_of(plans, timelines, draws),
        "memory_bytes": memory_of(setup, plans),
        **({"beside": _beside(asked, met)} if met is not None else {}),
    }


def whole_object(fields: Mapping[str, Any], session: Session) -> PredictionObject:
    """Predict one scenario whole, without provenance."""
    try:
        return predict(make_scenario(fields), session).to_dict(provenance=False)
    except PerfsimError as error:
        return _failed(fields, error)


def flat_row(row: PredictionObject, columns: Sequence[str]) -> SweepRow:
    """Flatten an object to columns; a row without a prediction has only its reason.

    Examples
    --------
    >>> flat_row({"scenario": {}, "error": "gpus: ..."}, ("iteration_s", "reason"))
    (None, 'gpus: ...')
    """
    if "error" in row:
        return *[None] * (len(columns) - 1), row["error"]
    low, high = row.get("iteration_s_interval", (None, None))
    every = {
        **row,
        "iteration_s_low": low,
        "iteration_s_high": high,
        "sent_bytes_per_gpu": row["communication"]["bytes_per_gpu"],
        "ssgd_iteration_s": row["baseline"]["iteration_s"],
        "speedup": row["baseline"]["speedup"],
        **{f"{part}_s": seconds for part, seconds in row["breakdown_s"].items()},
        "memory_bytes": sum_in_order(row["memory_bytes"].values()),
        "fits": not any(note.startswith(UNFIT) for note in row.get("notes", ())),
        "reason": "",
    }
    return tuple(every[name] for name in columns)


def _failed(fields: Mapping[str, Any], error: PerfsimError) -> PredictionObject:
    return {"scenario": dict(fields), "error": unspelled(error)}


def _beside(asked: ResolvedScenario, met: ContentionResult) -> PredictionObject:
    from perfsim.conditions.words import contention_block

    return contention_block(asked, met)
