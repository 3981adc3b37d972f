"""explain(): why an iteration takes as long as it does, and what would change that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from perfsim.catalog import Catalog
from perfsim.methods import method_class
from perfsim.plan import Plan
from perfsim.planning import breakeven
from perfsim.planning.breakeven import BreakEven, Crossing
from perfsim.planning.critical_path import Step, critical_path, periods_shown
from perfsim.planning.exposed import Exposed, exposed
from perfsim.planning.sensitivity import Improvement, improvements
from perfsim.plans import plans_of
from perfsim.prediction import Prediction, predict
from perfsim.resolve import resolve
from perfsim.run import run
from perfsim.scenario import Scenario
from perfsim.session import standing
from perfsim.simulate.timeline import Timeline
from perfsim.whatif import steady_s

__all__ = ["SCHEMA", "Explanation", "Path", "explain"]

SCHEMA = "perfsim/explain/1"


@dataclass(frozen=True, slots=True)
class Path:
    """The critical path of one of the method's rounds.

    ``count`` is how often the round is run in the method's period, ``iterations`` how many
    iterations the path covers.
    """

    count: float
    iterations: int
    steps: list[Step]

    @property
    def length_s(self) -> float:
        """From the start of the first step to the end of the last [s]."""
        return self.steps[-1].end_s if self.steps else 0.0

    def by_kind(self) -> dict[str, float]:
        """Return the seconds of each kind of task on the path, longest first; they sum to it."""
        found: dict[str, float] = {}
        for step in self.steps:
            found[step.kind] = found.get(step.kind, 0.0) + step.end_s - step.start_s
        return dict(sorted(found.items(), key=lambda one: -one[1]))


@dataclass(frozen=True)
class Explanation:
    """What perfsim says of one prediction; `to_dict` is what ``explain --json`` prints.

    ``paths`` has one for each round of the method's period; ``improvements`` come most worth
    first.
    """

    prediction: Prediction
    paths: list[Path]
    exposed: list[Exposed]
    improvements: list[Improvement]
    bandwidth: BreakEven
    gpus: BreakEven
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, by the contract perfsim/explain/1."""
        said = self.prediction
        return {
            "schema": SCHEMA,
            "scenario": said.scenario,
            "iteration_s": said.iteration_s,
            "iteration_s_interval": list(said.iteration_s_interval),
            "baseline": {"method": "ssgd", "iteration_s": said.baseline_s, "speedup": said.speedup},
            "bottleneck": said.bottleneck,
            "breakdown_s": said.breakdown_s,
            "critical_path": [
                {
                    "count": path.count,
                    "iterations": path.iterations,
                    "length_s": path.length_s,
                    "by_kind_s": path.by_kind(),
                    "steps": [asdict(step) for step in path.steps],
                }
                for path in self.paths
            ],
            "exposed": [asdict(one) for one in self.exposed],
            "sensitivity": [asdict(one) for one in self.improvements],
            "break_even": {
                "bandwidth": _break_even(self.bandwidth),
                "gpus": _break_even(self.gpus),
            },
            "notes": [*self.notes, *said.notes],
        }


def _break_even(found: BreakEven) -> dict[str, Any]:
    """Return a break-even as plain data; places are factors of the rate, or GPUs."""
    over = "factor" if found.over == "bandwidth" else "gpus"
    result: dict[str, Any] = {
        "searched": None if found.why_not else [found.low, found.high],
        "method_faster": found.wins,
        "crossings": [_crossing(one, over, found.rate) for one in found.crossings],
        "curve": [
            {over: place, "iteration_s": times[0], "ssgd_s": times[1]}
            for place, times in found.curve
        ],
    }
    if found.over == "bandwidth":
        result["rate_bytes_per_s"] = found.rate
    if found.why_not:
        result["why_not"] = found.why_not
    return result


def _crossing(one: Crossing, over: str, rate: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        over: one.at,
        "iteration_s": one.times[0],
        "ssgd_s": one.times[1],
        "method_faster": "above" if one.wins_above else "below",
        f"{over}_before": one.before,
        "iteration_before_s": one.times_before[0],
        "ssgd_before_s": one.times_before[1],
    }
    if rate is not None:
        row["rate_bytes_per_s"] = one.at * rate
    return row


def explain(scenario: Scenario, catalog: Catalog | None = None) -> Explanation:
    """Return why the iteration of one scenario takes as long as it does.

    Raises
    ------
    RequestError
        If the scenario names something that does not exist or cannot be combined.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> found = explain(Scenario(model="resnet50", gpus=64, net="1gbe"))
    >>> found.improvements[0].what
    'bandwidth'
    >>> round(sum(found.paths[0].by_kind().values()) / found.prediction.iteration_s, 9)
    1.0
    """
    catalog = catalog or standing()
    prediction = predict(scenario, catalog)
    resolved = resolve(scenario, catalog)
    plans = plans_of(resolved)
    timelines = [run(plan) for plan in plans]
    still, scale = plans, 1.0
    if resolved.beside:
        from perfsim.conditions.beside import held

        still = held(plans, timelines)
        scale = prediction.iteration_s / steady_s(still)
    along_bandwidth = breakeven.bandwidth(resolved)
    along_gpus = breakeven.gpus(resolved, catalog)
    return Explanation(
        prediction,
        [
            Path(
                plan.count,
                plan.graph.iterations * periods_shown(timeline),
                critical_path(timeline),
            )
            for plan, timeline in zip(plans, timelines, strict=True)
        ],
        exposed(plans, timelines),
        improvements(resolved, still, prediction.iteration_s, scale),
        along_bandwidth,
        along_gpus,
        _notes(scenario, plans, timelines, along_gpus),
    )


def _notes(
    scenario: Scenario,
    plans: Sequence[Plan],
    timelines: Sequence[Timeline],
    along_gpus: BreakEven,
) -> list[str]:
    notes = [
        "What is twice as good leaves buckets, algorithms and what the method decided as they are;"
        " gpu is the model's computation and the method's kernels together."
    ]
    if method_class(scenario.method).lossy:
        notes.append(
            f"Break-even is of time alone: {scenario.method} changes what is learnt, so that the"
            " iterations to a target may differ."
        )
    if not along_gpus.why_not:
        notes.append(
            "Break-even over GPUs carries the network's costs beyond the ranks on which they were"
            " measured; predict at the number found for what that rests on."
        )
    if scenario.beside:
        notes.append(
            "Beside other jobs the path is that of one iteration of one start, and exposed time"
            " that of one start, nearest to the mean; buckets of another size meet the others anew."
        )
    elif any(timeline.shape for timeline in timelines):
        notes.append(
            "Where GPUs vary by chance, the path is that of one period, and exposed time that of"
            " one draw, nearest to the mean."
        )
    if len(plans) > 1:
        notes.append("The method has rounds of different kinds; each has its own critical path.")
    return notes
