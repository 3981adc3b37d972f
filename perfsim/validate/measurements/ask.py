"""A case as a scenario: words by the rules, numbers by the columns, computation by its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.prediction import predict
from perfsim.resolve import resolve
from perfsim.scenario import Scenario, make_scenario
from perfsim.validate.measurements.answer import METRICS, answer
from perfsim.validate.measurements.case import Case
from perfsim.validate.measurements.fields import nested, parse
from perfsim.validate.measurements.rules import MappingRule
from perfsim.validate.measurements.single import ADDED, PHASES, Singles, is_single

__all__ = ["AskedCase", "Told", "ask", "scenario_of", "singles_of", "told_of"]

NEEDED = ("model", "gpu", "method")
COMPUTATION = "calibrates computation"


class Told(NamedTuple):
    """What a case is for (calibration, test, excluded), why, and the fields of its scenario."""

    role: str
    reason: str
    fields: dict[str, Any]


class AskedCase(NamedTuple):
    """The scenario of a case, or why there is none."""

    case: Case
    role: str
    scenario: Scenario | None = None
    reason: str = ""

    @property
    def cluster(self) -> tuple[str, str]:
        """Its networks: between nodes, where there are several, and inside a node."""
        asked = self.scenario
        if asked is None:
            return "", ""
        several = asked.gpus > (asked.gpus_per_node or asked.gpus)
        return (asked.net or "") if several else "", asked.intra_net or ""


def told_of(case: Case, rules: Sequence[MappingRule]) -> Told:
    """Return what a case is for and its fields: as its row states, else as the rules have it."""
    if case.scenario:
        return Told(case.role or "test", case.reason, parse(case.scenario, case.id))
    if case.role in ("calibration", "excluded"):
        return Told(case.role, case.reason or "its row says so", {})
    if is_single(case):
        return Told("calibration", COMPUTATION, {})
    fields, exclude, calibrates = _ruled(case, rules)
    if case.seen_or_memory == "MEMORY":
        exclude = "recalled, never verified"
    if exclude:
        return Told("excluded", exclude, fields)
    if calibrates:
        return Told("calibration", f"calibrates {calibrates}", fields)
    return Told("test", "", fields)


def _ruled(case: Case, rules: Sequence[MappingRule]) -> tuple[dict[str, Any], str, str]:
    """Return the fields that the rules have of a case, why to leave it out, what it calibrates."""
    fields: dict[str, Any] = {}
    exclude = calibrates = ""
    for rule in rules:
        if rule.fits(case):
            rule.apply(case, fields)
            exclude = rule.exclude or exclude
            calibrates = rule.calibrates or calibrates
    return fields, exclude, calibrates


def singles_of(cases: Sequence[Case], rules: Sequence[MappingRule]) -> Singles:
    """Return what the cases tell of computation, with those that their rows or the rules mark."""
    marked = {case.id for case in cases if _calibrates(case, rules)}
    return Singles(cases, marked)


def _calibrates(case: Case, rules: Sequence[MappingRule]) -> bool:
    role = case.role if case.scenario else told_of(case, rules).role
    return role == "calibration"


def ask(case: Case, rules: Sequence[MappingRule], singles: Singles, catalog: Catalog) -> AskedCase:
    """Return the scenario that predicts a case."""
    try:
        told = told_of(case, rules)
        if told.role != "test":
            return AskedCase(case, told.role, reason=told.reason)
        return AskedCase(case, "test", scenario_of(case, told, rules, singles, catalog))
    except RequestError as error:
        return AskedCase(case, "excluded", reason=str(error))


def scenario_of(
    case: Case, told: Told, rules: Sequence[MappingRule], singles: Singles, catalog: Catalog
) -> Scenario:
    """Return the scenario of a case, whatever it is for.

    Raises
    ------
    RequestError
        If the case cannot be asked; the message says why.
    """
    fields = nested(told.fields, catalog)
    lacking = _unasked(case, fields)
    if lacking:
        raise RequestError(lacking)
    return _with_compute(case, fields, rules, singles, catalog)


def _unasked(case: Case, fields: dict[str, Any]) -> str:
    """Return why a case cannot be asked, or ""; puts its numbers into ``fields``."""
    if case.metric not in METRICS:
        return f"metric {case.metric} is not one that a prediction states"
    if case.value == 0:
        return "its value is 0, of which no relative error can be taken"
    missing = [name for name in NEEDED if name not in fields]
    if missing:
        words = ", ".join(f"{name} {getattr(case, _COLUMN[name])!r}" for name in missing)
        return f"no rule for {words}"
    gpus = case.whole("gpus")
    if gpus is None:
        return f"gpus {case.gpus!r} is not a whole number above zero"
    fields.setdefault("gpus", gpus)
    each = case.whole("gpus_per_node")
    if each and "gpus_per_node" not in fields:
        fields["gpus_per_node"] = min(each, gpus)
    batch = case.whole("batch_per_gpu")
    if batch:
        fields.setdefault("batch", batch)
    if gpus > fields.get("gpus_per_node", gpus) and "net" not in fields:
        return f"no rule for network {case.network!r}"
    return ""


_COLUMN = {"model": "model", "gpu": "gpu", "method": "system"}


def _with_compute(
    case: Case,
    fields: dict[str, Any],
    rules: Sequence[MappingRule],
    singles: Singles,
    catalog: Catalog,
) -> Scenario:
    scenario = make_scenario(fields, case.id)
    seconds = singles.iteration_s(case)
    if seconds is None:
        phase_s = singles.phase_s(case)
        if phase_s is not None:
            profile = resolve(scenario, catalog).profile
            seconds = phase_s + profile.optimizer_s
    if seconds is None and scenario.single_gpu is None:
        ratio = singles.ratio(case, lambda one: _ratio(one, rules, catalog))
        if ratio is not None:
            seconds = ratio * resolve(scenario, catalog).profile.iteration_s
    told = {"single_gpu": seconds, "single_gpu_kernels": singles.kernels_s(case)}
    given = {name: f"{value:.9g}s" for name, value in told.items() if value is not None}
    return make_scenario(fields | given, case.id) if given else scenario


def _ratio(case: Case, rules: Sequence[MappingRule], catalog: Catalog) -> float | None:
    """Return measured over predicted time of a case that calibrates computation, else None.

    A rate of one GPU and a compute phase are held against the estimate of one GPU; a run of
    several, as those inside one node, against its own prediction.
    """
    role, reason, told = told_of(case, rules)
    if role != "calibration" or not reason.startswith(COMPUTATION):
        return None
    fields = told if case.scenario else _ruled(case, rules)[0]
    try:
        return _measured_over_predicted(case, nested(fields, catalog), catalog)
    except RequestError:
        return None


def _measured_over_predicted(case: Case, fields: dict[str, Any], catalog: Catalog) -> float | None:
    if case.metric == ADDED:
        return None
    if is_single(case):
        kept = {name: fields[name] for name in ("model", "gpu", "precision") if name in fields}
        batch = case.whole("batch_per_gpu")
        if len({"model", "gpu"} & set(kept)) < 2 or batch is None or case.value <= 0:
            return None
        alone = make_scenario(kept | {"gpus": 1, "batch": batch}, case.id)
        profile = resolve(alone, catalog).profile
        seconds = batch / case.value if case.metric == "throughput" else case.value
        own_s = profile.optimizer_s if case.metric in PHASES else 0.0
        return (seconds + own_s) / profile.iteration_s
    if _unasked(case, fields) or "single_gpu" in fields:
        return None
    prediction = predict(make_scenario(fields, case.id), catalog)
    return 1.0 / (1.0 + answer(case.metric, case.value, prediction)[1])
