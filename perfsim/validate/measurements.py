"""Predictions beside what others measured: the errors of a table of cases, and their limits.

``cases`` reads the table, ``mapping`` makes a scenario of each case, ``metrics`` reads the metric
off its prediction. Here the errors are counted: all, and by source, method, network, scale and
phase. ``profiles/measurements/limits.csv`` holds what they may be: ``group`` in words, ``ids``
(patterns, spaces between), ``metrics`` (whole iterations, phases, or any), and the greatest
``median`` and ``p90`` of the absolute relative error. The limits are targets, never loosened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from typing import Any, Literal, NamedTuple

from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.errors import RequestError, unknown
from perfsim.interval import NO_METHOD, Moves, Uncertainty, of_ratio, uncertainties
from perfsim.prediction import predict
from perfsim.scenario import Scenario
from perfsim.session import Session
from perfsim.validate.accuracy import Score, score
from perfsim.validate.cases import Case, cases_of
from perfsim.validate.mapping import MappedCase, map_case, rules_of, single_gpu_cases
from perfsim.validate.metrics import PHASE_METRICS, RATIO_METRICS, predicted_metric

__all__ = [
    "LIMITS_FILE",
    "GroupErrors",
    "GroupLimit",
    "MeasurementsReport",
    "Miss",
    "PredictedCase",
    "RankedPairs",
    "Way",
    "group_errors",
    "joined_reports",
    "limits_of",
    "misses",
    "read_limits",
    "validate_measurements",
]

_VALIDATION_SCHEMA = "perfsim/validation/1"
_RANKED_APART = 1.1
"""Factor between measured times above which two methods are ranked."""

_SCALES = ((8, "to 8 GPUs"), (64, "9 to 64 GPUs"), (1 << 30, "above 64 GPUs"))
"""Scales by which rows are grouped: most GPUs, and the group's name."""

_LIMITS_SCHEMA = "perfsim/limits/1"
LIMITS_FILE = "limits.csv"
_LIMITS_COLUMNS = ("group", "ids", "metrics", "median", "p90")
_LIMITED_METRICS = ("whole", "phases", "any")

Way = Literal["blind", "rated"]
"""How a case is asked: by names alone, or with the source's own time on one GPU besides."""


@dataclass(frozen=True, slots=True)
class PredictedCase:
    """One case with its prediction.

    Parameters
    ----------
    case : what was measured
    scenario : what was predicted for it
    predicted, interval : the case's metric as predicted, and its 90 % interval, in its unit
    error : of the time, signed: predicted over measured less one
    breakdown_s : where the time of the predicted iteration goes, by part [s]
    moves : how far the prediction moves with the error of each of its parts
    """

    case: Case
    scenario: Scenario
    predicted: float
    interval: tuple[float, float]
    error: float
    breakdown_s: Mapping[str, float] = field(default_factory=dict)
    moves: Moves = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The method that was predicted."""
        return self.scenario.method

    @property
    def way(self) -> Way:
        """How it was asked."""
        return "blind" if self.scenario.single_gpu is None else "rated"

    @property
    def inside(self) -> bool:
        """Whether the measured value lies inside the predicted 90 % interval."""
        return self.interval[0] <= self.case.value <= self.interval[1]

    @property
    def half_width(self) -> float:
        """Half the interval as a share of the prediction; zero where there is no interval."""
        low, high = self.interval
        return (high - low) / 2 / self.predicted if self.predicted else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "id": self.case.id,
            "role": "test",
            "measured": self.case.value,
            "predicted": self.predicted,
            "interval": list(self.interval),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class GroupErrors:
    """The errors of a group of cases, as fractions.

    Parameters
    ----------
    by, name : what the cases are grouped by, and the group's name
    score : count, median, p90 and worst of the absolute errors
    bias : mean of the signed errors
    coverage, half_width : share of measured values inside the interval, and the interval's median
        half-width, of cases that have an interval
    """

    by: str
    name: str
    score: Score
    bias: float | None
    coverage: float | None
    half_width: float | None

    def figures(self) -> dict[str, float | int | None]:
        """Return the count and the errors by name, as JSON and records have them."""
        return {
            **self.score.to_dict(),
            "bias": self.bias,
            "coverage": self.coverage,
            "half_width": self.half_width,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"by": self.by, "name": self.name, **self.figures()}


class RankedPairs(NamedTuple):
    """Pairs of systems that are measured apart, and how many of them the predictions rank right."""

    pairs: int
    right: int


@dataclass(frozen=True)
class MeasurementsReport:
    """The cases predicted, those that are not with the reason, and limits exceeded."""

    rows: list[PredictedCase]
    left: list[MappedCase]
    missed: list[Miss] = field(default_factory=list)

    @property
    def whole(self) -> list[PredictedCase]:
        """The rows that are whole iterations, whatever the metric."""
        return [row for row in self.rows if row.case.metric not in PHASE_METRICS]

    @property
    def notices(self) -> list[str]:
        """Notices to show with the rows, each with its source."""
        cases = [*(row.case for row in self.rows), *(left.case for left in self.left)]
        notices = sorted({(case.origin, case.notice) for case in cases if case.notice})
        return [f"{origin}: {notice}" for origin, notice in notices]

    @property
    def overall(self) -> GroupErrors:
        """The errors of all whole iterations."""
        return group_errors("all", "whole iterations", self.whole)

    def group_tables(self) -> dict[str, list[GroupErrors]]:
        """Return the errors of every group by what it is grouped by, sorted by name."""
        return {
            by: [group_errors(by, name, rows) for name, rows in sorted(named.items())]
            for by, named in self.groups().items()
        }

    def groups(self) -> dict[str, dict[str, list[PredictedCase]]]:
        """Return the rows grouped by source, method, network, scale and, for phases, metric."""
        keys: dict[str, Callable[[PredictedCase], str]] = {
            "source": lambda row: row.case.group,
            "method": lambda row: row.method,
            "network": lambda row: row.case.network or "none stated",
            "scale": lambda row: next(
                name for most, name in _SCALES if (row.case.whole("gpus") or 0) <= most
            ),
        }
        parts = [row for row in self.rows if row.case.metric in PHASE_METRICS]
        return {by: _grouped(self.whole, key) for by, key in keys.items()} | {
            "phase": _grouped(parts, lambda row: f"{row.case.group} {row.case.metric}")
        }

    def ranking(self) -> RankedPairs:
        """Count the pairs of systems that are measured over 10 % apart, and those ranked right.

        A pair differs in system alone: same source, model, GPUs, network, batch and metric.
        """
        alike = _grouped(self.whole, lambda row: "|".join(_setting(row.case)))
        pairs = right = 0
        for rows in alike.values():
            for row, other in combinations(rows, 2):
                ratio = row.case.value / other.case.value if other.case.value else 0.0
                too_close = 1 / _RANKED_APART <= ratio <= _RANKED_APART
                if row.case.system == other.case.system or too_close:
                    continue
                pairs += 1
                right += (ratio > 1) == (row.predicted > other.predicted)
        return RankedPairs(pairs, right)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {
            "schema": _VALIDATION_SCHEMA,
            "all": self.overall.figures(),
            "groups": [
                errors.to_dict() for table in self.group_tables().values() for errors in table
            ],
            "ranking": self.ranking()._asdict(),
            "notices": self.notices,
            "missing": [{"what": what, "rows": rows} for what, rows in self.missing()],
            "outside_limits": [miss.to_dict() for miss in self.missed],
            "rows": [row.to_dict() for row in self.rows],
            "left_out": [
                {"id": left.case.id, "role": left.role, "reason": left.reason} for left in self.left
            ],
        }

    def reasons(self) -> list[tuple[str, int]]:
        """Return why cases are not predicted although nothing is missing, most frequent first."""
        return Counter(left.reason for left in self.left if left.role != "missing").most_common()

    def missing(self) -> list[tuple[str, int]]:
        """Return what perfsim lacks, with how many cases wait for it, most first."""
        return Counter(left.reason for left in self.left if left.role == "missing").most_common()


def group_errors(by: str, name: str, rows: Sequence[PredictedCase]) -> GroupErrors:
    """Return the errors of a group of cases; coverage and half-width are of those with an interval.

    Parameters
    ----------
    by, name : what the cases are grouped by, and the group's name
    """
    known = [row for row in rows if row.half_width > 0]
    return GroupErrors(
        by,
        name,
        score(abs(row.error) for row in rows),
        bias=mean(row.error for row in rows) if rows else None,
        coverage=mean(row.inside for row in known) if known else None,
        half_width=median(row.half_width for row in known) if known else None,
    )


def validate_measurements(
    path: Path | None = None,
    catalog: Catalog | None = None,
    *,
    cluster: str | None = None,
    method: str | None = None,
) -> MeasurementsReport:
    """Predict every case of a table, or of those that ship, and check the errors against limits.

    A limit is that of a whole group: it is skipped where ``cluster`` or ``method`` leave out some
    of the group.

    Parameters
    ----------
    path : a table of cases; None: what ships
    catalog : where profiles are
    cluster : only cases on this network (between nodes or inside them) or of this source
    method : only cases of this method

    Raises
    ------
    DataError
        If a table, the rules or the limits are damaged.
    RequestError
        If no rules ship, or no case has that cluster or method.
    """
    catalog = catalog or Session()
    cases = cases_of(path, catalog)
    rules = rules_of(catalog)
    singles = single_gpu_cases(cases, rules)
    mapped = [map_case(case, rules, singles, catalog) for case in cases]
    selected = _select(mapped, cluster, method)
    rows, left, known = [], [], uncertainties(catalog)
    for item in selected:
        if item.scenario is None:
            left.append(item)
            continue
        try:
            rows.append(_predict_case(item.case, item.scenario, catalog, known))
        except RequestError as error:
            left.append(MappedCase(item.case, "excluded", reason=str(error)))
    kept = {item.case.id for item in selected}
    aside = [item.case for item in mapped if item.case.id not in kept and item.scenario is not None]
    # A part of a group may be worse than the whole: only limits of whole groups apply.
    limits = [
        limit
        for limit in limits_of(catalog)
        if not any(limit.holds(case.id, case.metric) for case in aside)
    ]
    errors = [(row.case.id, row.case.metric, abs(row.error)) for row in rows]
    return MeasurementsReport(rows, left, misses(limits, errors))


def _predict_case(
    case: Case,
    scenario: Scenario,
    catalog: Catalog,
    known: Mapping[str, Uncertainty],
) -> PredictedCase:
    """Predict a case; its interval was fitted without its own source."""
    prediction = predict(scenario, catalog)
    moves = of_ratio(prediction.moves) if case.metric in RATIO_METRICS else prediction.moves
    own = known.get(case.origin, known.get(NO_METHOD))
    if own is not None:
        interval = own.interval(moves, prediction.iteration_s)
        prediction = replace(prediction, iteration_s_interval=interval)
    (value, low, high), error = predicted_metric(case.metric, case.value, prediction)
    return PredictedCase(case, scenario, value, (low, high), error, prediction.breakdown_s, moves)


def joined_reports(paths: Sequence[Path | None]) -> MeasurementsReport:
    """Return one report of several tables; None is the tables that ship.

    Raises
    ------
    DataError, RequestError
        As `validate_measurements`.
    """
    reports = [validate_measurements(path) for path in paths]
    rows = [row for report in reports for row in report.rows]
    return MeasurementsReport(rows, [left for report in reports for left in report.left])


def _select(
    cases: Sequence[MappedCase], cluster: str | None, method: str | None
) -> list[MappedCase]:
    """Return the cases of a cluster and of a method, where these are given.

    Raises
    ------
    RequestError
        If there are none; the message names the nearest that has some.
    """
    for what, wanted, names in (("cluster", cluster, _clusters), ("method", method, _methods)):
        if wanted is None:
            continue
        known = {name for case in cases for name in names(case) if name}
        if wanted not in known:
            raise unknown(what, wanted, known)
        cases = [case for case in cases if wanted in names(case)]
    return list(cases)


def _clusters(mapped: MappedCase) -> set[str]:
    return {*mapped.cluster, mapped.case.group}


def _methods(mapped: MappedCase) -> set[str]:
    return {mapped.scenario.method} if mapped.scenario else set()


def _setting(case: Case) -> Iterable[str]:
    return (
        case.group,
        case.model,
        case.gpu,
        case.gpus,
        case.gpus_per_node,
        case.network,
        case.batch_per_gpu,
        case.metric,
    )


def _grouped(
    rows: Sequence[PredictedCase], key: Callable[[PredictedCase], str]
) -> dict[str, list[PredictedCase]]:
    groups: dict[str, list[PredictedCase]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


# Limits of the errors.


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """The greatest errors that a group of cases may have."""

    group: str
    ids: tuple[str, ...]
    metrics: str
    median: float
    p90: float

    def holds(self, name: str, metric: str) -> bool:
        """Tell whether a case of this id and metric is in the group."""
        kind = "phases" if metric in PHASE_METRICS else "whole"
        return self.metrics in (kind, "any") and any(fnmatchcase(name, ids) for ids in self.ids)


@dataclass(frozen=True, slots=True)
class Miss:
    """A limit that a group of cases exceeds."""

    group: str
    count: int
    figure: str
    found: float
    limit: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def read_limits(path: Path) -> list[GroupLimit]:
    """Return the limits of a file.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    limits = []
    for row, cells in read_table(path, _LIMITS_SCHEMA, _LIMITS_COLUMNS):
        check_word(cells["metrics"], _LIMITED_METRICS, "metrics", path, row)
        greatest = [
            cell_number(cells[name], name, path, row, positive=True) for name in ("median", "p90")
        ]
        limits.append(
            GroupLimit(cells["group"], tuple(cells["ids"].split()), cells["metrics"], *greatest)
        )
    return limits


def limits_of(catalog: Catalog) -> list[GroupLimit]:
    """Return the limits that the catalog finds; none where there is no file."""
    path = catalog.beside("measurements", "", LIMITS_FILE)
    return [] if path is None else read_limits(path)


def misses(limits: Sequence[GroupLimit], errors: Iterable[tuple[str, str, float]]) -> list[Miss]:
    """Return the limits exceeded; ``errors`` are id, metric and absolute relative error."""
    rows = list(errors)
    exceeded = []
    for limit in limits:
        figures = score(error for name, metric, error in rows if limit.holds(name, metric))
        for figure, value, greatest in (
            ("median", figures.median, limit.median),
            ("p90", figures.p90, limit.p90),
        ):
            if value is not None and value > greatest:
                exceeded.append(Miss(limit.group, figures.count, figure, value, greatest))
    return exceeded
