"""From a published case to the scenario that predicts it.

Three steps, in the order of this file:

1. Rules say what the words of a table mean to perfsim. ``map.toml`` holds ``[[rule]]`` tables, read
   from top to bottom. ``when`` names columns and the text (with the wildcards ``*`` and ``?``) that
   each must have; every rule that fits applies, later ones over earlier ones. ``set`` gives fields
   of the scenario as a newcomer knows them ("options.x" the method's, "fusion_options.x" the
   policy's). ``rated`` and ``calibrated`` give fields that only these ways of asking add; the
   value "" takes a field away. ``number`` takes one from a column by a pattern with one group
   (`perfsim.validate.cell_pattern`).
   ``exclude`` begins with the criterion by which a case is not judged
   (`perfsim.validate.criteria`), ``missing`` says what perfsim lacks to predict it, ``calibrates``
   what it was used to fit; an empty text lifts an earlier one.
   Where no rule gives a field, a cell with a name of perfsim's own does.
2. What the source itself measured on one GPU sets the computation of its other cases
   (``SingleGpuCases``), so that they test the communication.
3. ``map_case`` makes the scenarios: words by the rules, numbers by the columns, computation by the
   source. A case is asked in three ways (`WAYS`), each of which knows more than the one before.

`SourceCases` holds what the first two steps say of all cases of a source.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, PlainValidator

from perfsim.compute.device import device_named
from perfsim.compute.node_load import node_load
from perfsim.data.catalog import Catalog
from perfsim.data.toml import Tables, TomlModel, WrongValue, read_toml
from perfsim.errors import MAX_QUOTED, RequestError, nearest, shown
from perfsim.methods import method_class, method_name
from perfsim.models import all_models, takes_tokens
from perfsim.models.specification import is_specified
from perfsim.prediction import predict_iteration
from perfsim.resolve import resolve
from perfsim.scenario import SCENARIO_FIELDS, Scenario, is_field, make_scenario
from perfsim.validate.cases import CASE_COLUMNS, Case, nested_fields, parse_fields
from perfsim.validate.cell_pattern import MAX_CELL_CHARACTERS, cell_pattern
from perfsim.validate.criteria import (
    EXCLUSION_CRITERIA,
    NO_BATCH,
    OWN_ROW,
    RECALLED,
    criterion_of,
    measured_criteria,
    said_criterion,
)
from perfsim.validate.metrics import METRICS, predicted_metric
from perfsim.validate.training import gpu_of, still_missing

__all__ = [
    "ADDED_METRIC",
    "COMPUTE_METRICS",
    "EXPOSED_METRIC",
    "RULES_FILE",
    "WAYS",
    "CaseRole",
    "MappedCase",
    "MappingRule",
    "SingleGpuCases",
    "SourceCases",
    "Way",
    "is_single_gpu",
    "map_case",
    "rated_scenario",
    "read_rules",
    "role_of",
    "rules_of",
    "scenario_of",
    "several_nodes",
]

Way = Literal["blind", "rated", "calibrated"]
WAYS: tuple[Way, ...] = get_args(Way)
"""How a case is asked.

- blind: model, GPU, network and method by name, as a newcomer asks.
- rated: besides with the source's own time on one GPU or one node.
- calibrated: besides with the cluster's own microbenchmarks or calibrating rows."""

RULES_FILE = "map.toml"
"""The rules that ship, ``profiles/measurements/map.toml``."""
_RULES_SCHEMA = "perfsim/measurement-map/1"

ADDED_METRIC = "compress_plus_comm_s"
"""What a method adds to an iteration; on one GPU, its kernels alone.

The source's other cases of the same system take the time of its kernels from it. It is also taken
off the iteration of the same run, so that the rest is the computation that every method shares."""

COMPUTE_METRICS = ("compute_s", "fwd_bwd_s", "breakdown_fwd_bwd_s")
"""Metrics that are the time of forward and backward, without what communication adds."""

_PASS_METRICS = ("forward_s", "backward_s")
"""Metrics of one run that together are the time of its computation."""

_STEP_METRIC, EXPOSED_METRIC = "iteration_s", "exposed_comm_s"
"""Metrics of one run whose difference is its step without communication."""

_NOTED_RATE = re.compile(r"single-GPU value is (\d+(?:\.\d+)?)")
"""A rate on one GPU [samples/s] in a case's notes."""

_COMPUTATION = "calibrates computation"
"""How the reason begins of a case that sets the computation of others."""
_COLUMN_OF_FIELD = {"model": "model", "gpu": "gpu", "method": "system"}
"""Fields that the rules must give -> the table's column that holds their words."""


# 1. Rules.


@dataclass(frozen=True)
class MappingRule:
    """The fields, numbers and role of the cases that fit ``when``.

    ``rated`` and ``calibrated`` are fields that only these ways of asking know. ``exclude``,
    ``missing`` and ``calibrates`` are None where the rule says nothing, "" where it lifts what an
    earlier rule says.
    """

    when: Mapping[str, str]
    fields: Mapping[str, Any]
    numbers: Mapping[str, tuple[str, re.Pattern[str]]]
    exclude: str | None = None
    calibrates: str | None = None
    rated: Mapping[str, Any] = field(default_factory=dict)
    calibrated: Mapping[str, Any] = field(default_factory=dict)
    missing: str | None = None

    @cached_property
    def _tests(self) -> list[tuple[str, Callable[[str], object]]]:
        """What each column's text must pass; a rule meets hundreds of cases."""
        return [(column, _test_of(text)) for column, text in self.when.items()]

    def fits(self, case: Case) -> bool:
        """Tell whether the rule applies to a case."""
        for column, test in self._tests:  # noqa: SIM110 (half the time of all())
            if not test(getattr(case, column)):
                return False
        return True

    def apply(self, case: Case, fields: dict[str, Any]) -> None:
        """Put into ``fields`` what the rule says of a case; the value "" takes a field away."""
        fields.update(self.fields)
        for name in [name for name, value in self.fields.items() if value == ""]:
            del fields[name]
        for name, (column, pattern) in self.numbers.items():
            match = pattern.search(getattr(case, column), 0, MAX_CELL_CHARACTERS)
            if match:
                fields[name] = match[1]


def _test_of(text: str) -> Callable[[str], object]:
    """Return what tells whether a cell is a text, in which * and ? stand for others."""
    wildcards = {*"*?["}
    if wildcards.isdisjoint(text):
        return text.__eq__
    begins = text[:-1]
    if text[-1] == "*" and wildcards.isdisjoint(begins):
        return methodcaller("startswith", begins)  # hundreds of patterns need not be compiled
    return re.compile(translate(text)).match


def read_rules(path: Path) -> list[MappingRule]:
    """Return the rules of a file.

    Raises
    ------
    DataError
        If the file cannot be read, a key or column is unknown, or a pattern is none.
    """
    return [
        MappingRule(
            rule.when,
            rule.set,
            rule.number,
            rule.exclude,
            rule.calibrates,
            rule.rated,
            rule.calibrated,
            rule.missing,
        )
        for rule in read_toml(path, RulesFile).rule
    ]


def rules_of(catalog: Catalog, more: Path | None = None) -> list[MappingRule]:
    """Return the rules of every folder of measurements, those that ship first, then ``more``.

    A folder of the user's counts where it is named (`Catalog.folders_of`).
    Later rules come over earlier ones, so that a user's map adds to the shipped one: an exclusion
    is lifted by a rule that fits the case and has ``exclude = ""``.

    Raises
    ------
    DataError
        If a file is damaged.
    RequestError
        If there is none.
    """
    paths = [
        path
        for folder in reversed(catalog.folders_of("measurements"))
        for path in sorted((folder / "measurements").glob(f"*{RULES_FILE}"))
    ]
    if not paths:
        raise RequestError(
            "measurements", f"no measurements/{RULES_FILE} in any folder of profiles."
        )
    return [rule for path in (*paths, *filter(None, [more])) for rule in read_rules(path)]


_RULE_COLUMNS = (*CASE_COLUMNS, "split")
"""What `when` may ask of: a case's columns, and how a training run's model is split."""


def _columns(when: object) -> dict[str, str]:
    """Check columns and the text that each must have."""
    values = _plain_values(when)
    for column, text in values.items():
        if not isinstance(text, str):
            raise WrongValue("is not a text", column)
        if column not in _RULE_COLUMNS or column == "value":
            raise WrongValue(f"no column {shown(column)}; columns: {', '.join(_RULE_COLUMNS)}")
    return values


def _rule_fields(value: object) -> dict[str, Any]:
    """Check fields of a scenario with a value each, those of a group as ``group.name``."""
    values = _plain_values(value)
    for name, item in values.items():
        if name != "scenario" and not is_field(name):
            match = nearest(name[:MAX_QUOTED], SCENARIO_FIELDS)
            hint = f"did you mean {match!r}?" if match else 'options are such as "options.density".'
            raise WrongValue(f"a scenario has no field {shown(name)}; {hint}")
        parts = item if isinstance(item, list) else [item]
        if any(isinstance(part, Mapping | list) for part in parts):
            raise WrongValue("is a table, not a value", name)
    return values


def _patterns(value: object) -> dict[str, tuple[str, re.Pattern[str]]]:
    r"""Check fields whose value a pattern finds in a column, such as "setting: (\d+) GPUs"."""
    numbers = {}
    for name, pair in _rule_fields(value).items():
        column, _, text = str(pair).partition(":")
        pattern = cell_pattern(text.strip())
        if column not in CASE_COLUMNS or pattern.groups != 1:
            raise WrongValue(f"{shown(pair)} is not 'column: pattern with one group'")
        numbers[name] = (column, pattern)
    return numbers


def _exclusion(value: object) -> str:
    """Check a reason: it begins with a criterion, so that no misfit can be one."""
    text = str(value)
    if text and criterion_of(text) is None:
        names = "; ".join(EXCLUSION_CRITERIA)
        raise WrongValue(f"{shown(text)} does not begin with a criterion; criteria: {names}")
    return text


def _plain_values(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongValue("is not a table")
    for name, item in value.items():
        if isinstance(item, float) and not math.isfinite(item):
            raise WrongValue(f"found {item}, not a finite number", name)
    return value


class RuleTable(TomlModel):
    """The keys of a ``[[rule]]``."""

    when: Annotated[dict[str, str], PlainValidator(_columns)] = Field(default_factory=dict)
    set: Annotated[dict[str, Any], PlainValidator(_rule_fields)] = Field(default_factory=dict)
    rated: Annotated[dict[str, Any], PlainValidator(_rule_fields)] = Field(default_factory=dict)
    calibrated: Annotated[dict[str, Any], PlainValidator(_rule_fields)] = Field(
        default_factory=dict
    )
    number: Annotated[dict[str, tuple[str, re.Pattern[str]]], PlainValidator(_patterns)] = Field(
        default_factory=dict
    )
    exclude: Annotated[str | None, PlainValidator(_exclusion)] = None
    calibrates: Annotated[str | None, PlainValidator(str)] = None
    missing: Annotated[str | None, PlainValidator(str)] = None


class RulesFile(TomlModel):
    """The keys of a file of rules."""

    SCHEMA = _RULES_SCHEMA
    title: Any = ""
    rule: Tables[RuleTable]


# 2. What the source measured on one GPU.

_Key = tuple[str, ...]


class _Published(NamedTuple):
    """One time of a source: where it is published, its seconds, and the GPUs a node in use."""

    where: str
    seconds: float
    gpus_per_node: int = 1


_Known = dict[_Key, list[_Published]]
"""Cases that share a key -> the times that the source publishes."""


class GpuSeconds(NamedTuple):
    """A time of computation [s], and of how many GPUs of a node that trained on all of them."""

    seconds: float
    gpus_per_node: int


def is_single_gpu(case: Case) -> bool:
    """Tell whether a case calibrates the computation of others."""
    return case.metric in (*COMPUTE_METRICS, *_PASS_METRICS) or (
        case.gpus == "1" and case.metric in ("throughput", "iteration_s", ADDED_METRIC)
    )


class SingleGpuCases:
    """What a source measured of computation: its single-GPU rates and its compute phases.

    Such a case calibrates: it sets the computation of the source's other cases, and is never
    counted as a test. The nearest one serves: of the same ranks and network, else of the same
    system, else of the same model, GPU and batch. Of several, those nearest in the source serve:
    the longest common beginning of their ``provenance`` (same folder, same session). A rate of
    one GPU comes before a compute phase. Before both comes a step on several GPUs less its
    exposed communication, where both rows are marked as calibration: several GPUs may compute at
    another pace than one.

    Where the source calibrates computation at other batches only, perfsim's own estimate is
    scaled: by as much as the source took longer there than predicted (``ratio``).

    ``steps`` are the cases from which such a step without communication comes. ``unfit`` are the
    cases that a criterion over measured values meets, with the reason.

    Parameters
    ----------
    cases : all cases of the table
    marked : ids of those that their row or a rule marks as calibration
    """

    def __init__(self, cases: Sequence[Case], marked: Collection[str] = ()) -> None:
        self.unfit = measured_criteria(cases)
        pairs = _steps([case for case in cases if case.id in marked])
        self.steps = {case.id for pair in pairs for case in pair}
        self._without = _without_communication(pairs)
        self._whole: _Known = defaultdict(list)
        self._phase: _Known = defaultdict(list)
        self._alike: dict[_Key, list[Case]] = defaultdict(list)
        self._ratios: dict[str, float | None] = {}
        self._added: _Known = defaultdict(list)
        added = {_run(case): case.value for case in cases if case.metric == ADDED_METRIC}
        for forward, backward in _pairs(cases, *_PASS_METRICS):
            for key in _keys(forward):
                self._phase[key].append(_published(forward, forward.value + backward.value))
        for case in cases:
            self._alike[_what(case)].append(case)
            batch = case.whole("batch_per_gpu")
            noted = _NOTED_RATE.search(case.notes)
            if case.metric == ADDED_METRIC and case.gpus == "1" and case.value > 0:
                self._added[_program(case)].append(_published(case, case.value))
            for key in _keys(case):
                if noted and batch:
                    alone = _Published(case.provenance, batch / float(noted[1]))
                    self._whole[key].append(alone)
                elif case.metric in COMPUTE_METRICS:
                    self._phase[key].append(_published(case, case.value))
                elif is_single_gpu(case) and case.value > 0:
                    if case.metric == "iteration_s":
                        seconds = case.value - added.get(_run(case), 0.0)
                        self._whole[key].append(_published(case, seconds))
                    elif batch and case.metric == "throughput":
                        self._whole[key].append(_published(case, batch / case.value))

    def iteration(self, case: Case) -> GpuSeconds | None:
        """Return the source's iteration without communication, the median of several."""
        step = self._nearest(self._without, case, _keys(case))
        return self._nearest(self._whole, case, _keys(case)) if step is None else step

    def phase(self, case: Case) -> GpuSeconds | None:
        """Return the source's forward and backward, the median of several."""
        return self._nearest(self._phase, case, _keys(case))

    def ratio(self, case: Case, ratio_of: Callable[[Case], float | None]) -> float | None:
        """Return measured over predicted time of the source's computation, at the nearest batch.

        Of the same system if any, else of the same model and GPU; of several at that batch, the
        median of those nearest in the source. None where the source does not calibrate it.

        Parameters
        ----------
        ratio_of : measured over predicted time of a case that calibrates computation, else None
        """
        batch = case.whole("batch_per_gpu")
        if batch is None:
            return None
        known = [other for other in self._alike[_what(case)] if self._ratio(other, ratio_of)]
        known = [other for other in known if other.system == case.system] or known
        if not known:
            return None

        def distance(other: Case) -> tuple[float, int]:
            own = other.whole("batch_per_gpu") or batch
            shared = _shared_letters(case.provenance, other.provenance)
            return abs(math.log(own / batch)), -shared

        nearest = min(map(distance, known))
        return median(
            self._ratio(other, ratio_of) or 1.0 for other in known if distance(other) == nearest
        )

    def _ratio(self, case: Case, ratio_of: Callable[[Case], float | None]) -> float | None:
        if case.id not in self._ratios:
            whole = case.whole("batch_per_gpu")
            self._ratios[case.id] = ratio_of(case) if whole else None
        return self._ratios[case.id]

    def kernels_s(self, case: Case) -> float | None:
        """Return what the same system added to an iteration on one GPU [s], the median."""
        added = self._nearest(self._added, case, [_program(case)])
        return None if added is None else added.seconds

    def _nearest(self, known: _Known, case: Case, keys: Sequence[_Key]) -> GpuSeconds | None:
        key = next((key for key in keys if key in known), None)
        if key is None:
            return None
        shared = [_shared_letters(case.provenance, one.where) for one in known[key]]
        near = max(shared)
        nearest = [one for one, length in zip(known[key], shared, strict=True) if length == near]
        return GpuSeconds(
            median(one.seconds for one in nearest), max(one.gpus_per_node for one in nearest)
        )


def _published(case: Case, seconds: float) -> _Published:
    gpus = case.whole("gpus") or 1
    return _Published(case.provenance, seconds, min(case.whole("gpus_per_node") or gpus, gpus))


def _what(case: Case) -> _Key:
    return case.group, case.model, case.gpu, _framework(case)


def _framework(case: Case) -> str:
    """Return the framework of a training run, which its system begins with; "" for other cases."""
    return case.system.partition(",")[0] if case.publisher else ""


def _without_communication(pairs: Sequence[tuple[Case, Case]]) -> _Known:
    """Return steps on several GPUs less their exposed communication."""
    known: _Known = defaultdict(list)
    for step, exposed in pairs:
        for key in _keys(step):
            known[key].append(_published(step, step.value - exposed.value))
    return known


def _steps(cases: Sequence[Case]) -> list[tuple[Case, Case]]:
    """Return the steps on several GPUs with their exposed communication, where both are known."""
    several = [case for case in cases if case.gpus != "1"]
    pairs = _pairs(several, _STEP_METRIC, EXPOSED_METRIC)
    return [(step, exposed) for step, exposed in pairs if step.value > exposed.value]


def _pairs(cases: Sequence[Case], metric: str, other: str) -> list[tuple[Case, Case]]:
    """Return the cases of two metrics, for each run that has both."""
    runs: dict[_Key, dict[str, Case]] = defaultdict(dict)
    for case in cases:
        if case.metric in (metric, other):
            runs[_run(case)][case.metric] = case
    return [(run[metric], run[other]) for run in runs.values() if len(run) == 2]


def _run(case: Case) -> _Key:
    """Return the cells that cases of one run share."""
    return (
        *(case.provenance, case.system, case.model, case.gpu, case.gpus, case.gpus_per_node),
        *(case.network, case.batch_per_gpu, case.fusion, case.rank_or_density),
    )


def _program(case: Case) -> _Key:
    what = (case.group, case.system, case.model, case.gpu, case.batch_per_gpu)
    return (*what, case.fusion, case.rank_or_density)


def _keys(case: Case) -> list[_Key]:
    what = (*_what(case), case.batch_per_gpu)
    return [(*what, case.gpus, case.network), (*what, case.system), what]


def _shared_letters(text: str, other: str) -> int:
    """Return how many letters two texts have in common from their beginning."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(text), len(other)))


# 3. The scenario of a case.


class CaseRole(NamedTuple):
    """The role of a case (calibration, test, excluded, missing), why, and its fields.

    ``fields`` are known in every way; ``rated`` and ``calibrated`` are added in these, and take a
    field away where they give it the value "".
    """

    role: str
    reason: str
    fields: dict[str, Any]
    rated: dict[str, Any] = {}  # noqa: RUF012 - never changed
    calibrated: dict[str, Any] = {}  # noqa: RUF012


class MappedCase(NamedTuple):
    """A case with its scenario in each way that it can be asked, or why there is none.

    A case that calibrates is asked in the ways that do not use it: one that sets computation blind,
    one that sets the network blind and rated.
    """

    case: Case
    role: str
    scenarios: Mapping[Way, Scenario] = {}
    reason: str = ""

    @property
    def scenario(self) -> Scenario | None:
        """The scenario of the way that knows most; None where there is none."""
        return next((self.scenarios[way] for way in reversed(WAYS) if way in self.scenarios), None)

    @property
    def clusters(self) -> set[str]:
        """Its networks: between nodes, where there are several, and inside a node."""
        names: set[str] = set()
        for scenario in self.scenarios.values():
            between = scenario.net if several_nodes(scenario) else ""
            names |= {between, scenario.intra_net or ""}
        return names - {""}


def several_nodes(scenario: Scenario) -> bool:
    """Tell whether a scenario states GPUs on more than one node."""
    return scenario.gpus > (scenario.gpus_per_node or scenario.gpus)


def role_of(case: Case, rules: Sequence[MappingRule], catalog: Catalog | None = None) -> CaseRole:
    """Return a case's role and fields: as its row states, else by the rules and what it says.

    A row whose fields cannot be read is missing. What several cases say together is judged by
    `map_case`. With a ``catalog``, names that are perfsim's own need no rule.
    """
    if case.missing:
        return CaseRole("missing", case.missing, {})
    if case.scenario:
        try:
            fields = parse_fields(case.scenario, case.id)
            rated, calibrated = (
                parse_fields(text, case.id, may_be_empty=True)
                for text in (case.rated, case.calibrated)
            )
        except RequestError as error:
            return CaseRole("missing", str(error), {})
        return CaseRole(case.role or "test", case.reason, fields, rated, calibrated)
    found = _ruled(case, rules, catalog)
    if case.role and case.role != "test":
        return found._replace(role=case.role, reason=case.reason or OWN_ROW)
    return found


def _ruled(case: Case, rules: Sequence[MappingRule], catalog: Catalog | None) -> CaseRole:
    """Return a case's role, reason and fields by the rules, and by what the case says of itself."""
    fields: dict[str, Any] = {}
    rated: dict[str, Any] = {}
    calibrated: dict[str, Any] = {}
    exclude: str | None = None
    missing = calibrates = ""
    for rule in rules:
        if rule.fits(case):
            rule.apply(case, fields)
            rated.update(rule.rated)
            calibrated.update(rule.calibrated)
            exclude = exclude if rule.exclude is None else rule.exclude
            missing = missing if rule.missing is None else rule.missing
            calibrates = calibrates if rule.calibrates is None else rule.calibrates
    if catalog is not None:
        fields |= _named(case, fields, catalog)
    if case.split:
        calibrates = ""
    models = (rule.when.get("model", "") for rule in rules if "model" in rule.fields)
    lacking = "" if case.role else still_missing(case, fields, models)
    if lacking:
        return CaseRole("missing", lacking, {})
    if exclude is None and case.role != "test" and not calibrates:
        exclude = said_criterion(case)
    if is_single_gpu(case) and exclude != RECALLED:
        return CaseRole("calibration", _COMPUTATION, fields, rated, calibrated)
    for role, reason in (
        ("excluded", exclude),
        ("missing", missing),
        ("calibration", calibrates and f"calibrates {calibrates}"),
    ):
        if reason:
            return CaseRole(role, reason, fields, rated, calibrated)
    return CaseRole("test", "", fields, rated, calibrated)


_SETTING = re.compile(r"(?:(\w{1,20})[ =])?(\d[\d.e-]{0,20}%?)")
"""A method's setting in a cell: "density 0.01", "rank=4", "1%", "4"."""

_NAMED_SETTINGS = ("rank", "density")
"""Options that a number alone in the column ``rank_or_density`` may be of."""


_TOKENS = re.compile(r"(\d{1,9}) tokens")
"""The tokens of a sample in a model's words."""


def _named(case: Case, fields: Collection[str], catalog: Catalog) -> dict[str, Any]:
    """Return the fields whose cells have perfsim's own names, of those that no rule gives."""
    named: dict[str, Any] = {}
    if "model" not in fields:
        models = all_models(catalog.files("models"))
        family, tokens = case.model.partition(",")[0].lower(), _TOKENS.search(case.model)
        if case.model in models or is_specified(case.model):
            named["model"] = case.model
        elif family in models and takes_tokens(family) == bool(tokens):
            # Rows of training runs have family, words, tokens a sample.
            named |= {"model": family} | ({"seq": int(tokens[1])} if tokens else {})
    if "gpu" not in fields:
        words = gpu_of(case)
        gpu = catalog.once(("gpu of words", words), lambda: device_named(words, catalog))
        if gpu:
            named["gpu"] = gpu
    if not {"net", "node"} & set(fields):
        kinds = {"net": "networks", "node": "nodes"}
        known = [name for name, kind in kinds.items() if case.network in catalog.files(kind)]
        named |= dict.fromkeys(known[:1], case.network)
    if "method" not in fields:
        named |= _named_method(case)
    return named


def _named_method(case: Case) -> dict[str, Any]:
    """Return the method that a case's system is by its name, with the setting that its row has.

    Nothing where there is no such method, or the setting is none of it.
    """
    try:
        name = method_name(case.system)
    except RequestError:
        return {}
    setting = case.rank_or_density.strip()
    if not setting:
        return {"method": name}
    match = _SETTING.fullmatch(setting)
    options = method_class(name).model_fields
    asked = [match[1]] if match and match[1] else [one for one in _NAMED_SETTINGS if one in options]
    if match is None or len(asked) != 1 or asked[0] not in options:
        return {}
    return {"method": name, f"options.{asked[0]}": match[2]}


class SourceCases:
    """The cases of one source with their roles, and what they say of computation.

    Parameters
    ----------
    cases : all of them, those that calibrate others among them
    rules : what their words mean
    catalog : where profiles are
    """

    def __init__(
        self, cases: Sequence[Case], rules: Sequence[MappingRule], catalog: Catalog
    ) -> None:
        self.cases, self.catalog = cases, catalog
        self.roles = {case.id: role_of(case, rules, catalog) for case in cases}
        marked = {name for name, role in self.roles.items() if role.role == "calibration"}
        self.singles = SingleGpuCases(cases, marked)


def map_case(case: Case, source: SourceCases) -> MappedCase:
    """Return the scenarios that predict a case of a source, one a way.

    A case that several measured values exclude together is no test; one that calibrates may still
    calibrate. A row that states its role keeps it. What perfsim refuses to predict is missing.
    """
    try:
        role, singles = source.roles[case.id], source.singles
        unfit = singles.unfit.get(case.id, "")
        if unfit and role.role == "test" and not case.role:
            return MappedCase(case, "excluded", reason=unfit)
        calibrates_only = unfit and role.role == "calibration"
        ways = () if calibrates_only else _ways_of(case, role, singles)
        scenarios = {}
        for way in ways:
            scenario = scenario_of(case, role, source, way)
            if scenario is not None:
                scenarios[way] = scenario
        if role.role == "test" and not scenarios:
            return MappedCase(case, "excluded", reason=NO_BATCH)
        return MappedCase(case, role.role, scenarios, role.reason)
    except RequestError as error:
        return MappedCase(case, "missing", reason=str(error))


def _ways_of(case: Case, role: CaseRole, singles: SingleGpuCases) -> Sequence[Way]:
    """Return the ways in which a case is a test: those that do not use it themselves.

    What calibrates need not be fit to be judged: an all-reduce alone calibrates a network.
    """
    if role.role == "test":
        return WAYS
    if role.role != "calibration" or is_single_gpu(case) or not role.fields:
        return ()
    if said_criterion(case):
        return ()
    own = role.reason.startswith(_COMPUTATION) or case.id in singles.steps
    return ("blind",) if own else ("blind", "rated")


def scenario_of(
    case: Case, role: CaseRole, source: SourceCases, way: Way = "calibrated"
) -> Scenario | None:
    """Return the scenario of a case asked in one way, whatever its role.

    None where this way knows no more than the one before: nothing of the source's own computation
    (rated), or no network of its own cluster (calibrated). A case without a batch can be asked only
    with the time of its computation.

    Raises
    ------
    RequestError
        If the case cannot be asked; the message says why.
    """
    asked = dict(role.fields)
    if way != "blind":
        asked |= role.rated
    if way == "calibrated":
        if not role.calibrated:
            return None
        asked |= role.calibrated
    fields = nested_fields(
        {name: item for name, item in asked.items() if item != ""}, source.catalog
    )
    why_not = _fill_numbers(case, fields)
    if why_not:
        raise RequestError("", why_not)
    if way == "blind":
        return make_scenario(fields, case.id) if "batch" in fields else None
    scenario = _with_compute(case, fields, source)
    if "batch" not in fields and scenario.single_gpu is None:
        return None
    known = scenario.single_gpu is not None or scenario.single_gpu_kernels is not None
    return scenario if known or way == "calibrated" else None


def rated_scenario(case: Case, role: CaseRole, source: SourceCases) -> Scenario:
    """Return the scenario of a case with all that its source says of computation.

    Raises
    ------
    RequestError
        If the case cannot be asked; the message says why.
    """
    scenario = scenario_of(case, role, source, "rated") or scenario_of(case, role, source, "blind")
    if scenario is None:
        raise RequestError("", f"{NO_BATCH}.")
    return scenario


def _fill_numbers(case: Case, fields: dict[str, Any]) -> str:
    """Put a case's numbers into ``fields``; return why it cannot be predicted, or ""."""
    if case.metric not in METRICS:
        near = nearest(case.metric, METRICS)
        instead = f"; did you mean {near!r}?" if near else "."
        return (
            f"metric {case.metric} is not one that a prediction states{instead} Allowed:"
            f" {', '.join(METRICS)}"
        )
    if case.value == 0:
        return "its value is 0, of which no relative error can be taken"
    missing = [name for name in _COLUMN_OF_FIELD if name not in fields]
    if missing:
        words = ", ".join(f"{name} {getattr(case, _COLUMN_OF_FIELD[name])!r}" for name in missing)
        if "method" in missing and case.rank_or_density:
            words += f" with {case.rank_or_density!r}"
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
    if case.whole("accumulate"):
        fields.setdefault("accumulate", case.whole("accumulate"))
    if case.recompute:
        fields.setdefault("recompute", case.recompute)
    for name, text in parse_fields(case.split, case.id).items():
        fields.setdefault(name, text)
    if gpus > fields.get("gpus_per_node", gpus) and not {"net", "node"} & set(fields):
        return f"no rule for network {case.network!r}"
    return ""


def _with_compute(case: Case, fields: dict[str, Any], source: SourceCases) -> Scenario:
    scenario, singles, catalog = make_scenario(fields, case.id), source.singles, source.catalog
    if case.split:
        return scenario  # a GPU that has a part of the model is not what others measured
    seconds = None
    whole, passes = singles.iteration(case), singles.phase(case)
    if whole is not None:
        seconds = _alone_s(whole, scenario, catalog)
    elif passes is not None:
        optimizer_s = resolve(scenario, catalog).profile.optimizer_s
        seconds = _alone_s(passes, scenario, catalog) + optimizer_s
    if seconds is None and scenario.single_gpu is None:
        ratio = singles.ratio(case, lambda other: _computation_ratio(other, source))
        if ratio is not None:
            seconds = ratio * resolve(scenario, catalog).profile.iteration_s
    measured = {"single_gpu": seconds, "single_gpu_kernels": singles.kernels_s(case)}
    given = {name: f"{value:.9g}s" for name, value in measured.items() if value is not None}
    return make_scenario(fields | given, case.id) if given else scenario


def _alone_s(known: GpuSeconds, scenario: Scenario, catalog: Catalog) -> float:
    """Return a time of computation as on a GPU whose node trains on no other [s]."""
    if known.gpus_per_node == 1:
        return known.seconds
    return known.seconds / node_load(resolve(scenario, catalog).input, known.gpus_per_node)


def _computation_ratio(case: Case, source: SourceCases) -> float | None:
    """Return measured over predicted time of a case that calibrates computation, else None.

    A rate of one GPU and a compute phase are compared with the estimate of one GPU; a run of
    several GPUs with its own prediction.
    """
    role, catalog = source.roles[case.id], source.catalog
    if role.role != "calibration" or not role.reason.startswith(_COMPUTATION):
        return None
    try:
        return _measured_over_predicted(case, nested_fields(role.fields, catalog), catalog)
    except RequestError:
        return None


_COMPUTED_BY = (
    *("model", "gpu", "precision", "autocast", "seq", "software", "recompute", "optimizer"),
)
"""Fields that decide the computation of a single GPU, besides its batch."""


def _measured_over_predicted(case: Case, fields: dict[str, Any], catalog: Catalog) -> float | None:
    if case.metric in (ADDED_METRIC, *_PASS_METRICS):
        return None
    if is_single_gpu(case):
        kept = {name: fields[name] for name in _COMPUTED_BY if name in fields}
        batch = case.whole("batch_per_gpu")
        if len({"model", "gpu"} & set(kept)) < 2 or batch is None or case.value <= 0:
            return None
        alone = make_scenario(kept | {"gpus": 1, "batch": batch}, case.id)
        profile = resolve(alone, catalog).profile
        seconds = batch / case.value if case.metric == "throughput" else case.value
        own_s = profile.optimizer_s if case.metric in COMPUTE_METRICS else 0.0
        return (seconds + own_s) / profile.iteration_s
    if _fill_numbers(case, fields) or "single_gpu" in fields:
        return None
    scenario = make_scenario(fields, case.id)
    alone_s = resolve(scenario, catalog).profile.iteration_s
    given = make_scenario(fields | {"single_gpu": f"{alone_s:.9g}s"}, case.id)
    prediction = predict_iteration(given, catalog)
    return 1.0 / (1.0 + predicted_metric(case.metric, case.value, prediction)[1])
