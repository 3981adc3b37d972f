"""tune(): the value of each thing that can be set which makes an iteration shortest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from perfsim import fusion
from perfsim.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.methods import method_class
from perfsim.planning.knob import (
    KNOBS,
    Knob,
    Value,
    choices,
    current,
    first_bucket,
    knobs,
    refuse,
    with_value,
)
from perfsim.planning.search import Curve, edge, log_grid, refine
from perfsim.planning.tuned import FLAT, Tuned
from perfsim.plans import plans_of
from perfsim.prediction import Prediction, predict
from perfsim.resolve import Resolved, resolve
from perfsim.scenario import Scenario
from perfsim.session import standing
from perfsim.whatif import steady_s

__all__ = ["FLAT", "SCHEMA", "Tuned", "Tuning", "tune", "with_best"]

SCHEMA = "perfsim/tune/1"

STEPS = 16
"""Places that are tried between those of the coarse grid."""

BESIDE = ("mgwfbp", "optimal")
"""Fusion policies that size buckets by themselves, shown beside the best size."""


@dataclass(frozen=True)
class Tuning:
    """What `tune` found; `to_dict` is what ``tune --json`` prints."""

    scenario: dict[str, Any]
    iteration_s: float
    tuned: list[Tuned]
    notes: list[str]

    @property
    def best(self) -> Tuned:
        """The one change that saves most, the first of several."""
        return max(self.tuned, key=lambda one: one.gain)

    def to_dict(self) -> dict[str, Any]:
        """Return the tuning as plain data, by the contract perfsim/tune/1."""
        return {"schema": SCHEMA, **asdict(replace(self, tuned=[]))} | {
            "tuned": [one.to_dict() for one in self.tuned]
        }


def tune(scenario: Scenario, over: Sequence[str] = (), catalog: Catalog | None = None) -> Tuning:
    """Return the best value of each of ``over``, one at a time (default: all the method has).

    Sizes, densities, ranks and intervals are tried on a coarse grid in their logarithm, then by
    golden section between the neighbours of the best; algorithms all.

    Raises
    ------
    RequestError
        If the scenario cannot be predicted, or has nothing of a name in ``over``.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> found = tune(Scenario(model="resnet50", gpus=64, net="1gbe"), ["bucket"]).tuned[0]
    >>> found.fastest_s <= min(seconds for _, seconds in found.curve)
    True
    """
    resolved = resolve(scenario, catalog or standing())
    has = {knob.name: knob for knob in knobs(resolved)}
    for name in over:
        if name not in has:
            raise refuse(name, resolved)
    if resolved.cluster.gpus == 1:
        raise RequestError("--gpus: 1 GPU exchanges nothing, so that there is nothing to tune.")
    asked_s = _iteration_s(resolved)
    names = [name for name in KNOBS if name in (over or has)]
    tuned, notes = [], []
    for name in names:
        try:
            tuned.append(_tuned(resolved, has[name], asked_s))
        except RequestError as error:
            if over:
                raise
            notes.append(f"{name} is left out: {error}")
    return Tuning(resolved.fields(), asked_s, tuned, [*notes, *_notes(resolved, tuned)])


def with_best(scenario: Scenario, found: Tuning, catalog: Catalog | None = None) -> Prediction:
    """Return the prediction of a scenario with the one change that saves most.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> asked = Scenario(model="resnet50", gpus=64, net="1gbe", method="powersgd")
    >>> found = tune(asked, ["rank"])
    >>> with_best(asked, found).iteration_s == found.best.advised_s
    True
    """
    catalog = catalog or Catalog()
    knob, value = found.best.knob, found.best.advised
    changed = with_value(resolve(scenario, catalog), knob, value).scenario
    if knob.name == "bucket" and value != found.best.asked:
        changed = changed.model_copy(update={"bucket": f"{float(value)!r}B"})
    return predict(changed if value != found.best.asked else scenario, catalog)


def _iteration_s(resolved: Resolved) -> float:
    return steady_s(plans_of(resolved))


def _tuned(resolved: Resolved, knob: Knob, asked_s: float) -> Tuned:
    return (_names if knob.name == "algorithm" else _numbers)(resolved, knob, asked_s)


def _names(resolved: Resolved, knob: Knob, asked_s: float) -> Tuned:
    """Return the algorithms, fastest first."""
    curve: list[tuple[Value, float]] = []
    refused: dict[str, str] = {}
    needs = {name: why for name, why in choices(resolved).items() if why}
    for name in choices(resolved):
        try:
            curve.append((name, _iteration_s(with_value(resolved, knob, name))))
        except RequestError as error:
            refused[name] = str(error).removeprefix("--algorithm: ").removesuffix(".")
    curve.sort(key=lambda one: one[1])
    asked = current(resolved, knob)
    at_hand = [one for one in curve if one[0] not in needs]
    # A name must be worth it: where nothing is gained, the asked one stays.
    advised = (asked, asked_s)
    if at_hand and at_hand[0][1] < asked_s / (1.0 + FLAT):
        advised = at_hand[0]
    fastest = (at_hand or curve)[0]
    return Tuned(
        knob, asked, asked_s, curve, *fastest, *advised, None, None, refused=refused, needs=needs
    )


def _numbers(resolved: Resolved, knob: Knob, asked_s: float) -> Tuned:
    """Return the curve over numbers, its least value and the range within 1 % of it."""
    why: list[RequestError] = []

    def value_at(value: float) -> float | None:
        try:
            return _iteration_s(with_value(resolved, knob, value))
        except RequestError as error:
            why.append(error)
            return None

    asked = float(current(resolved, knob))
    curve: Curve = {}
    for place in (*log_grid(knob.low, knob.high, knob.factor), asked):
        one = float(round(place)) if knob.whole else place
        if one not in curve:
            curve[one] = value_at(one)
    if all(found is None for found in curve.values()):
        raise why[0]
    refine(curve, value_at, STEPS, whole=knob.whole)
    least_s = min(found for found in curve.values() if found is not None)
    limit = least_s * (1.0 + FLAT)
    search = partial(edge, curve, value_at, limit, steps=STEPS, whole=knob.whole)
    low, high = search(rising=False), search(rising=True)
    held = sorted((place, found) for place, found in curve.items() if found is not None)
    fastest, fastest_s = min(held, key=lambda one: (one[1], one[0]))
    times = dict(held)
    advised = {"high": high, "low": low, "": fastest}[knob.gentle]
    beside = _beside(resolved) if knob.name == "bucket" else {}
    return Tuned(
        knob,
        asked,
        asked_s,
        [*held],
        fastest,
        fastest_s,
        advised,
        times[advised],
        low,
        high,
        beside,
    )


def _beside(resolved: Resolved) -> dict[str, float]:
    """Return the iteration with fusion policies that size buckets by themselves [s]."""
    found = {}
    for name in BESIDE:
        scenario = resolved.scenario.model_copy(update={"fusion_options": {}})
        other = replace(
            resolved,
            scenario=scenario,
            policy_name=name,
            policy=fusion.load(name),
            limit_bytes=None,
        )
        try:
            found[name] = _iteration_s(other)
        except RequestError:
            continue
    return found


def _notes(resolved: Resolved, tuned: Sequence[Tuned]) -> list[str]:
    notes = ["Each is tuned alone, all else as asked."] if len(tuned) > 1 else []
    if any(one.knob.name == "bucket" for one in tuned) and first_bucket(resolved) is not None:
        notes.append(
            "The first bucket stays at 1 MiB, as in PyTorch's default; --bucket alone would change"
            " it too: add --set fusion.first_bucket=1MiB."
        )
    if resolved.scenario.single_gpu_kernels and any(one.knob.gentle for one in tuned):
        notes.append(
            "The kernels take what --single-gpu-kernels says at every value; leave it out to let"
            " them change."
        )
    if any(one.knob.gentle for one in tuned):
        notes.append(
            "What changes convergence is advised at its gentlest value within 1 % of the shortest"
            " iteration; whether it learns as well is for training to say."
        )
    elif method_class(resolved.scenario.method).lossy:
        notes.append("Time per iteration only: the method changes what is learnt.")
    return [*notes, *resolved.notes]
