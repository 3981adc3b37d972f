"""predict(): from a scenario to its predicted iteration, with reasons, interval and sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsim.compute.transfer import TransferredProfile
from perfsim.conditions.ranks import over_draws, shown
from perfsim.data.catalog import Catalog
from perfsim.interval import NO_METHOD, Moves, Uncertainty, uncertainties
from perfsim.notes import notes_of
from perfsim.quantity import Quantity, Term
from perfsim.resolve import Setup, resolve
from perfsim.scenario import Scenario, table_columns
from perfsim.schedule.costs import Costs
from perfsim.schedule.plan import CostedGraph, terms_of
from perfsim.schedule.plans import baseline_of, is_baseline, plans_of, run_all
from perfsim.schedule.run import mean_s
from perfsim.session import default_session, jobs_of, uncollected
from perfsim.simulate.timeline import Timeline
from perfsim.what_if import bottleneck, interval, moves, steady_s

if TYPE_CHECKING:
    import pandas

    from perfsim.schedule.run import ContentionResult

__all__ = ["PREDICTION_SCHEMA", "Prediction", "communication_of", "memory_of", "predict", "spent"]

PREDICTION_SCHEMA = "perfsim/prediction/1"

DECODED = ("quantisation", "sparsification")
"""Families whose gathered messages are decoded after the backward pass."""


@dataclass
class Prediction:
    """What perfsim answers; `to_dict` is the object that ``predict --json`` prints.

    ``worth`` is, by cause, the share of the iteration saved if that cause were twice as fast;
    ``timelines`` has one for each round of the method's period, ``counts`` how often each is run in
    it; ``moves`` is how far the iteration moves with each part that it rests on; ``meeting`` how
    this job and those beside it fare, where there are any.
    """

    scenario: dict[str, Any]
    iteration_s: float
    iteration_s_interval: tuple[float, float]
    samples_per_s: float
    scaling_efficiency: float
    baseline_s: float
    breakdown_s: dict[str, float]
    communication: dict[str, float]
    memory_bytes: dict[str, float]
    bottleneck: str
    worth: dict[str, float]
    notes: list[str]
    terms: list[Term]
    timelines: list[Timeline]
    moves: Moves
    counts: list[float]
    meeting: ContentionResult | None = None

    @property
    def speedup(self) -> float:
        """How many times faster than the ssgd baseline."""
        return self.baseline_s / self.iteration_s

    def to_dict(self, *, provenance: bool = True) -> dict[str, Any]:
        """Return the prediction as plain data, by the contract perfsim/prediction/1."""
        result: dict[str, Any] = {
            "schema": PREDICTION_SCHEMA,
            "scenario": self.scenario,
            "iteration_s": self.iteration_s,
            "iteration_s_interval": list(self.iteration_s_interval),
            "samples_per_s": self.samples_per_s,
            "scaling_efficiency": self.scaling_efficiency,
            "baseline": {
                "method": "ssgd",
                "iteration_s": self.baseline_s,
                "speedup": self.speedup,
            },
            "breakdown_s": self.breakdown_s,
            "communication": self.communication,
            "memory_bytes": self.memory_bytes,
            "bottleneck": self.bottleneck,
            "notes": self.notes,
        }
        if self.meeting is not None:
            from perfsim.conditions.words import meeting_block

            result["beside"] = meeting_block(self.scenario, self.meeting)
        if provenance:
            result["provenance"] = [_row(term) for term in self.terms]
        return result

    def to_pandas(self) -> pandas.DataFrame:
        """Return the prediction as a pandas table of one row (see ``perfsim.data.tables``)."""
        from perfsim.data.tables import record, to_frame

        return to_frame([record(self.to_dict(provenance=False), table_columns())])


@uncollected
def predict(scenario: Scenario, catalog: Catalog | None = None) -> Prediction:
    """Return the prediction for one scenario.

    Raises
    ------
    RequestError
        If the scenario names something that does not exist or cannot be combined.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim import Scenario, predict
    >>> found = predict(Scenario(model="resnet50", gpus=16, net="1gbe", method="dgc"))
    >>> found.speedup > 2
    True
    >>> round(sum(found.breakdown_s.values()) / found.iteration_s, 9)
    1.0
    """
    catalog = catalog or default_session()
    resolved, kept = resolve(scenario, catalog), jobs_of(catalog)
    plans = plans_of(resolved, kept)
    timelines, still, met = run_all(plans)
    iteration_s = mean_s(plans, timelines)
    still_s = iteration_s if met is None else steady_s(still)
    draws = [shown(timeline) for timeline in timelines]
    profile = resolved.profile
    memory_bytes, terms = memory_of(resolved, plans), terms_of(plans)
    held_back, worth = bottleneck(still, still_s)
    asked_baseline = is_baseline(resolved)
    baseline_s = iteration_s if asked_baseline else steady_s(baseline_of(resolved, kept))
    samples_per_s = profile.batch * scenario.gpus / iteration_s
    communication = communication_of(plans, timelines, draws)
    moved = moves(still, still_s, worth, resolved.grade, communication["hidden_s"])
    known = uncertainties(catalog).get(NO_METHOD)
    notes = notes_of(resolved, plans, timelines, terms, sum(memory_bytes.values()), known)
    if met is not None:
        from perfsim.conditions.words import meeting_notes

        notes += meeting_notes(resolved, plans, met)
    return Prediction(
        scenario=resolved.fields(),
        iteration_s=iteration_s,
        iteration_s_interval=_interval(known, resolved, still, iteration_s, moved),
        samples_per_s=samples_per_s,
        scaling_efficiency=samples_per_s / (scenario.gpus * profile.batch / resolved.alone_s),
        baseline_s=baseline_s,
        breakdown_s=spent(plans, timelines, draws, Timeline.breakdown),
        communication=communication,
        memory_bytes=memory_bytes,
        bottleneck=held_back,
        worth=worth,
        notes=notes,
        terms=[*_compute_terms(resolved), *terms],
        timelines=[few[0] for few in draws],
        moves=moved,
        counts=[plan.count for plan in plans],
        meeting=met,
    )


def _interval(
    known: Uncertainty | None,
    resolved: Setup,
    plans: Sequence[CostedGraph],
    iteration_s: float,
    moved: Moves,
) -> tuple[float, float]:
    """Return the 90 % interval as the record has it; without one, as costs scatter [s]."""
    if known is None:
        return interval(plans, iteration_s, resolved.carried.quantity.spread)
    return known.interval(moved, iteration_s)


def communication_of(
    plans: Sequence[CostedGraph], timelines: Sequence[Timeline], draws: Sequence[Sequence[Timeline]]
) -> dict[str, float]:
    """Return what a GPU sends in an iteration, and what of that time computation hides."""
    period = sum(plan.iterations for plan in plans)
    return {
        "bytes_per_gpu": sum(plan.count * plan.sent_bytes for plan in plans) / period,
        "calls": sum(plan.count * plan.calls for plan in plans) / period,
        **spent(plans, timelines, draws, Timeline.communication),
    }


def spent(
    plans: Sequence[CostedGraph],
    timelines: Sequence[Timeline],
    draws: Sequence[Sequence[Timeline]],
    what: Callable[[Timeline], dict[str, float]],
) -> dict[str, float]:
    """Return what an iteration spends on each part, over all rounds of the period [s].

    ``draws`` are those of each timeline whose time is divided (see ``shown``).
    """
    pairs = zip(draws, timelines, strict=True)
    parts = [over_draws(few, one.mean_period_s, what) for few, one in pairs]
    total = sum(plan.iterations for plan in plans)
    return {
        key: sum(
            plan.iterations / total * part[key] for plan, part in zip(plans, parts, strict=True)
        )
        for key in parts[0]
    }


def memory_of(resolved: Setup, plans: Sequence[CostedGraph]) -> dict[str, float]:
    """Return what one GPU holds, without activations (fp32, momentum SGD).

    All is kept between iterations but ``messages``: what compressing methods gather of all ranks,
    held until it is decoded after the backward pass.
    """
    profile, cluster, scenario = resolved.profile, resolved.cluster, resolved.scenario
    kept = resolved.method.kept_share(cluster.gpus)
    costs = Costs(resolved.device, cluster, scenario.algorithm, scenario.protocol)
    return {
        **{what: profile.size_bytes * share for what, share in kept.items()},
        "method": resolved.method.memory_in(costs.world(profile)) if cluster.gpus > 1 else 0.0,
        "messages": max(plan.gathered_bytes / plan.graph.iterations for plan in plans)
        if resolved.method.family in DECODED
        else 0.0,
    }


def _compute_terms(resolved: Setup) -> list[Term]:
    if not resolved.parts:
        return _terms_of(resolved.carried)
    return [
        term._replace(term=f"{term.term} on {part.device.name}")
        for part in resolved.parts
        for term in _terms_of(part.carried)
    ]


def _terms_of(carried: TransferredProfile) -> list[Term]:
    profile = carried.profile
    source = profile.header["source"]
    backward = Quantity(profile.backward_s, "s", profile.kinds["ready_ms"], source)
    forward = Quantity(profile.forward_s, "s", profile.kinds["forward_ms"], source)
    optimizer = Quantity(profile.optimizer_s, "s", profile.kinds["optimizer_ms"], source)
    return [
        Term("single-GPU iteration", carried.quantity, carried.extrapolated),
        Term("forward", forward),
        Term("backward", backward),
        Term("update", optimizer),
    ]


def _row(term: Term) -> dict[str, Any]:
    quantity = term.quantity
    bounds = (
        None if quantity.low is None and quantity.high is None else [quantity.low, quantity.high]
    )
    return {
        "term": term.term,
        "value": quantity.value,
        "unit": quantity.unit,
        "kind": quantity.kind,
        "source": quantity.source,
        "range": bounds,
        "range_unit": quantity.range_unit if bounds else None,
        "extrapolated": term.extrapolated,
    }
