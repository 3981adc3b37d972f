"""A row of a sweep as a prediction object, and that as flat columns with units in their names.

The object is what ``predict --json`` prints, without provenance. A sweep leaves out what takes
several predictions more a row (``iteration_s_interval``, ``bottleneck``) and the notes, unless
whole predictions are asked for: all that remains comes from the row's own run and, once for all
methods, from that of S-SGD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsim.conditions.ranks import shown_draws
from perfsim.errors import PerfsimError
from perfsim.prediction import PREDICTION_SCHEMA, communication_of, memory_of, predict, spent
from perfsim.resolve import ResolvedScenario, Setup, resolve
from perfsim.scenario import Scenario, make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import baseline_rounds, build_rounds, is_baseline
from perfsim.schedule.run import mean_s, run, run_all
from perfsim.session import Session
from perfsim.simulate.timeline import Timeline
from perfsim.what_if import steady_s

if TYPE_CHECKING:
    from perfsim.schedule.run import ContentionResult

__all__ = [
    "COLUMNS",
    "FULL",
    "Object",
    "SweepRow",
    "figures",
    "flat",
    "light_object",
    "light_row",
    "whole_object",
]

COLUMNS = ("iteration_s", "samples_per_s", "scaling_efficiency", "sent_bytes_per_gpu", "reason")
"""What a row tells after the values of its axes; ``reason`` is why it could not be predicted."""

SweepRow = list[Any]


def light_row(fields: Mapping[str, Any], catalog: Session) -> SweepRow:
    """Return the columns of one scenario; what cannot be predicted has only its reason.

    Examples
    --------
    >>> from perfsim.session import Session
    >>> light_row({"model": "resnet50", "gpus": 0}, Session())
    [None, None, None, None, '--gpus: 0 is not allowed: at least 1 is needed.']
    """
    try:
        scenario = make_scenario(fields)
        resolved = resolve(scenario, catalog)
        plans = build_rounds(resolved, catalog.jobs)
        iteration_s = mean_s(plans, [run(plan, brief=True) for plan in plans])
    except PerfsimError as error:
        return [*[None] * (len(COLUMNS) - 1), str(error)]
    return [*figures(resolved, plans, iteration_s, resolved.alone_s), ""]


def figures(
    resolved: Setup, plans: Sequence[CostedGraph], iteration_s: Any, single_s: Any
) -> list[Any]:
    """Return the figures of iterations, as ``predict()`` has them: floats, or arrays of them."""
    batch, gpus = resolved.profile.batch, resolved.scenario.gpus
    samples_per_s = batch * gpus / iteration_s
    efficiency = samples_per_s / (gpus * batch / single_s)
    period = sum(plan.iterations for plan in plans)
    sent_bytes = sum(plan.count * plan.sent_bytes for plan in plans) / period
    return [iteration_s, samples_per_s, efficiency, sent_bytes]


FULL = (
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
    "bottleneck",
    "reason",
)
"""Columns after the values of the axes where rows are whole predictions."""

METHODS = (
    "method",
    "options",
    "fusion",
    "fusion_options",
    "bucket",
    "overlap",
    "single_gpu_kernels",
)
"""Fields of a scenario that S-SGD beside it does not depend on."""

BASE = tuple(name for name in Scenario.model_fields if name not in METHODS)

Object = dict[str, Any]
"""A prediction by the contract perfsim/prediction/1, or a scenario and why it has none."""


def whole_object(fields: Mapping[str, Any], session: Session) -> Object:
    """Return a row as ``predict --json`` has it, without provenance."""
    try:
        return predict(make_scenario(fields), session).to_dict(provenance=False)
    except PerfsimError as error:
        return _failed(fields, error)


def light_object(fields: Mapping[str, Any], session: Session) -> Object:
    """Return a row with those keys of a prediction that its own run gives.

    Examples
    --------
    >>> found = light_object({"model": "resnet50", "gpus": 16, "method": "dgc"}, Session())
    >>> [name for name in found if name not in ("schema", "scenario")]  # doctest: +ELLIPSIS
    ['iteration_s', 'samples_per_s', 'scaling_efficiency', 'baseline', 'breakdown_s', ...]
    >>> light_object({"model": "resnet50", "gpus": 0}, Session())["error"]
    '--gpus: 0 is not allowed: at least 1 is needed.'
    """
    try:
        resolved = resolve(make_scenario(fields), session)
        plans = build_rounds(resolved, session.jobs)
        timelines, _, met = run_all(plans)
        iteration_s = mean_s(plans, timelines)
        baseline_s = _baseline_s(resolved, iteration_s, session)
    except PerfsimError as error:
        return _failed(fields, error)
    draws = [shown_draws(timeline) for timeline in timelines]
    _, samples_per_s, efficiency, _ = figures(resolved, plans, iteration_s, resolved.alone_s)
    asked = resolved.resolved_scenario()
    return {
        "schema": PREDICTION_SCHEMA,
        "scenario": asked.to_dict(),
        "iteration_s": iteration_s,
        "samples_per_s": samples_per_s,
        "scaling_efficiency": efficiency,
        "baseline": {
            "method": "ssgd",
            "iteration_s": baseline_s,
            "speedup": baseline_s / iteration_s,
        },
        "breakdown_s": spent(plans, timelines, draws, Timeline.breakdown),
        "communication": communication_of(plans, timelines, draws),
        "memory_bytes": memory_of(resolved, plans),
        **({"beside": _beside(asked, met)} if met is not None else {}),
    }


def _beside(asked: ResolvedScenario, met: ContentionResult) -> Object:
    from perfsim.conditions.words import meeting_block

    return meeting_block(asked, met)


def _baseline_s(resolved: Setup, iteration_s: float, session: Session) -> float:
    """Return the iteration of S-SGD with DDP's buckets and overlap, once for all methods [s]."""
    if is_baseline(resolved):
        return iteration_s
    key = "baseline", *(getattr(resolved.scenario, name) for name in BASE)
    return session.once(key, lambda: steady_s(baseline_rounds(resolved, session.jobs)))


def _failed(fields: Mapping[str, Any], error: PerfsimError) -> Object:
    return {"scenario": dict(fields), "error": str(error)}


def flat(found: Object, columns: Sequence[str]) -> SweepRow:
    """Return an object as columns, in order; what has no prediction has only its reason.

    Examples
    --------
    >>> flat({"scenario": {}, "error": "--gpus: ..."}, ("iteration_s", "reason"))
    [None, '--gpus: ...']
    """
    if "error" in found:
        return [*[None] * (len(columns) - 1), found["error"]]
    low, high = found.get("iteration_s_interval", (None, None))
    every = {
        **found,
        "iteration_s_low": low,
        "iteration_s_high": high,
        "sent_bytes_per_gpu": found["communication"]["bytes_per_gpu"],
        "ssgd_iteration_s": found["baseline"]["iteration_s"],
        "speedup": found["baseline"]["speedup"],
        **{f"{part}_s": seconds for part, seconds in found["breakdown_s"].items()},
        "memory_bytes": sum(found["memory_bytes"].values()),
        "reason": "",
    }
    return [every[name] for name in columns]
