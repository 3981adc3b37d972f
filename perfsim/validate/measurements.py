"""Predictions beside what others measured: every case of a table, asked in three ways.

``cases`` reads the table, ``mapping`` makes the scenarios of each case, ``metrics`` reads the
metric off its prediction, ``groups`` counts the errors. What the source published itself is left
out of every prediction: its whole iterations on one GPU do not set the computation (`Session`'s
``without``), and its rows do not set the interval. ``profiles/measurements/limits.csv`` holds what
errors may be: ``group`` in words, ``ids`` (patterns, spaces between), ``metrics`` (whole
iterations, phases, or any), and the greatest ``median`` and ``p90`` of the absolute relative error.
The limits are targets, never loosened; missing one is shown and is no error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from math import isclose
from pathlib import Path
from typing import Any

from perfsim.compute.device import measured_kernels
from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.errors import DataError, RequestError, unknown
from perfsim.interval import NO_METHOD, Uncertainty, of_ratio, uncertainties
from perfsim.prediction import PredictedIteration, predict_iteration
from perfsim.scenario import Scenario
from perfsim.session import Session, SourceSession, fresh
from perfsim.validate.accuracy import score
from perfsim.validate.calibration import (
    FACTORS_FILE,
    CalibratedNetwork,
    CalibratingRow,
    ClusterKey,
    calibrating_rows,
    network_of,
    on_preset,
    read_clusters,
    read_hardware,
)
from perfsim.validate.cases import Case, cases_of, same_source
from perfsim.validate.groups import (
    ROUNDING,
    GroupErrors,
    PredictedCase,
    RankedPairs,
    WayErrors,
    best_known,
    group_errors,
    group_tables,
    ranking,
    width_rank,
)
from perfsim.validate.mapping import (
    WAYS,
    MappedCase,
    MappingRule,
    SourceCases,
    Way,
    map_case,
    rules_of,
)
from perfsim.validate.metrics import PHASE_METRICS, RATIO_METRICS, predicted_metric

__all__ = [
    "LEFT_OUT",
    "LIMITS_FILE",
    "GroupLimit",
    "MeasurementsReport",
    "Miss",
    "joined_reports",
    "limits_of",
    "misses",
    "read_limits",
    "validate_measurements",
]

LEFT_OUT = "only the source itself measured an iteration of this model on one GPU"
"""Why a case is not asked in a way that must not know its source."""

_VALIDATION_SCHEMA = "perfsim/validation/1"

_LIMITS_SCHEMA = "perfsim/limits/1"
LIMITS_FILE = "limits.csv"
_LIMITS_COLUMNS = ("group", "ids", "metrics", "median", "p90")
_LIMITED_METRICS = ("whole", "phases", "any")

Progress = Callable[[int, int], None]
"""Told how many cases are done, and of how many."""


@dataclass(frozen=True)
class MeasurementsReport:
    """The cases predicted, those that are not with the reason, bad rows and limits exceeded.

    ``rows`` has a case once for each way in which it was asked. ``not_asked`` has ids and ways in
    which it was not, since only the judged source knows how long one GPU takes.
    """

    rows: list[PredictedCase]
    left: list[MappedCase]
    missed: list[Miss] = field(default_factory=list)
    bad: list[DataError] = field(default_factory=list)
    not_asked: list[tuple[str, Way]] = field(default_factory=list)

    def of_way(self, way: Way) -> list[PredictedCase]:
        """Return the whole iterations that were asked in one way."""
        return [row for row in self.rows if row.way == way and row.whole]

    @property
    def best(self) -> list[PredictedCase]:
        """Each test case once, asked in the way that knows most of it."""
        return best_known(self.rows)

    @property
    def whole(self) -> list[PredictedCase]:
        """The rows of ``best`` that are whole iterations, whatever the metric."""
        return [row for row in self.best if row.whole]

    @property
    def notices(self) -> list[str]:
        """Notices to show with the rows, each with its source."""
        cases = [*(row.case for row in self.rows), *(left.case for left in self.left)]
        notices = sorted({(case.origin, case.notice) for case in cases if case.notice})
        return [f"{origin}: {notice}" for origin, notice in notices]

    @property
    def overall(self) -> GroupErrors:
        """The errors of all whole iterations, each asked in the way that knows most of it."""
        return group_errors("all", "whole iterations", self.whole)

    @cached_property
    def ways(self) -> dict[Way, WayErrors]:
        """What is counted of all whole iterations by way of asking."""
        return {
            way: WayErrors(group_errors("way", way, rows, way), ranking(rows), width_rank(rows))
            for way in WAYS
            if (rows := self.of_way(way))
        }

    @cached_property
    def group_tables(self) -> dict[str, list[GroupErrors]]:
        """The errors of every group and way by what it is grouped by."""
        return group_tables(self.rows)

    def ranking(self) -> RankedPairs:
        """Count the pairs of systems of ``best`` that measure over 10 % apart, and those right."""
        return ranking(self.best)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {
            "schema": _VALIDATION_SCHEMA,
            "all": self.overall.figures(),
            "ways": [found.to_dict() for found in self.ways.values()],
            "groups": [
                errors.to_dict() for table in self.group_tables.values() for errors in table
            ],
            "ranking": self.ranking()._asdict(),
            "notices": self.notices,
            "outside_limits": [miss.to_dict() for miss in self.missed],
            "rows": [row.to_dict() for row in self.rows],
            "left_out": [
                {"id": left.case.id, "role": left.role, "reason": left.reason} for left in self.left
            ],
            "not_asked": [{"id": name, "way": way} for name, way in self.not_asked],
            "missing": [{"what": what, "rows": rows} for what, rows in self.missing()],
            "bad_rows": [str(error) for error in self.bad],
        }

    def missing(self) -> list[tuple[str, int]]:
        """Return what perfsim lacks to predict cases, and how many, most frequent first."""
        return Counter(one.reason for one in self.left if one.role == "missing").most_common()

    def reasons(self) -> list[tuple[str, int]]:
        """Return why other cases are not predicted, most frequent first."""
        return Counter(one.reason for one in self.left if one.role != "missing").most_common()


def validate_measurements(
    path: Path | None = None,
    catalog: Catalog | None = None,
    *,
    cluster: str | None = None,
    method: str | None = None,
    rules_path: Path | None = None,
    progress: Progress | None = None,
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
    rules_path : rules that are added to those that ship, and come after them
    progress : told how many cases are predicted

    Raises
    ------
    DataError
        If a table, the rules or the limits are damaged; a bad row is listed, and the rest
        predicted.
    RequestError
        If no rules ship, or no case has that cluster or method.
    """
    catalog = fresh(catalog or Session())
    bad: list[DataError] = []
    cases = cases_of(path, catalog, bad)
    rules = rules_of(catalog, rules_path)
    if any(cluster in (case.group, case.origin) for case in cases):
        chosen = [case for case in cases if cluster in (case.group, case.origin)]
    else:
        chosen = cases
    mapped: list[tuple[MappedCase, _Judge]] = []
    rows, left, not_asked, known = [], [], [], uncertainties(catalog)
    clusters = catalog.beside("measurements", "", FACTORS_FILE)
    stored = {} if clusters is None else read_clusters(clusters)
    whole = catalog if isinstance(catalog, Session) else Session(catalog.given)
    for own, owners in _by_source(chosen, cases):
        judge = _Judge(own, rules, whole, owners, known, stored)
        mapped += [(judge.map(case), judge) for case in own]
    selected = _select([item for item, _ in mapped], cluster, method)
    kept = {item.case.id for item in selected}
    # Cases of the same scenarios come one after the other, so that these are predicted once.
    for done, (item, judge) in enumerate(sorted(mapped, key=lambda pair: _asked(pair[0]))):
        if progress is not None:
            progress(done, len(mapped))
        if item.case.id not in kept:
            continue
        if not item.scenarios:
            left.append(item)
            continue
        try:
            found = judge.predict(item)
        except RequestError as error:
            left.append(MappedCase(item.case, "excluded", reason=str(error)))
            continue
        rows += found
        asked = {row.way for row in found}
        not_asked += [(item.case.id, way) for way in item.scenarios if way not in asked]
    place = {item.case.id: at for at, (item, _) in enumerate(mapped)}
    rows.sort(key=lambda row: place[row.case.id])
    left.sort(key=lambda item: place[item.case.id])
    aside = {case.id for case in cases} - kept
    # A part of a group may be worse than the whole: only limits of whole groups apply.
    limits = [
        limit
        for limit in limits_of(catalog)
        if not any(limit.holds(case.id, case.metric) for case in cases if case.id in aside)
    ]
    best = best_known(rows)
    errors = [(row.case.id, row.case.metric, abs(row.error)) for row in best]
    return MeasurementsReport(rows, left, misses(limits, errors), bad, not_asked)


def _asked(item: MappedCase) -> list[str]:
    """Return what a case asks for in each way, as text."""
    return [scenario.model_dump_json() for scenario in item.scenarios.values()]


def _by_source(
    chosen: Sequence[Case], cases: Sequence[Case]
) -> Iterable[tuple[list[Case], set[str]]]:
    """Yield the sources of cases, each with the owners of its repositories."""
    sources = same_source(cases)
    owners: dict[str, set[str]] = {}
    grouped: dict[str, list[Case]] = {}
    for case in cases:
        owners.setdefault(sources[case.origin], set()).add(case.owner)
    for case in chosen:
        grouped.setdefault(sources[case.origin], []).append(case)
    for source, own in grouped.items():
        yield own, owners[source] - {""}


class _Judge:
    """Predicts the cases of one source with nothing that was fitted on what is judged.

    A case takes over the predictions of the case before it, where it asks for the same.

    Parameters
    ----------
    cases : all cases of the source, those that calibrate among them
    whole : a session that leaves out nothing, for what files say
    owners : of the source's repositories: what these published is left out
    known : how wrong predictions have been, by source left out
    stored : the networks of clusters that were fitted before
    """

    def __init__(
        self,
        cases: Sequence[Case],
        rules: Sequence[MappingRule],
        whole: Session,
        owners: Collection[str],
        known: Mapping[str, Uncertainty],
        stored: Mapping[tuple[ClusterKey, str], CalibratedNetwork],
    ) -> None:
        self._whole, self._owners = whole, owners
        self._session = SourceSession(whole, owners, owners) if owners else whole
        self._source = SourceCases(cases, rules, self._session)
        self._known, self._stored = known, stored
        self._networks: dict[CalibratedNetwork, Session] = {}
        self._before: dict[tuple[Session, str], PredictedIteration] = {}
        self._predictions = self._before

    def map(self, case: Case) -> MappedCase:
        """Return the scenarios of a case."""
        return map_case(case, self._source)

    @cached_property
    def _calibrating(self) -> list[CalibratingRow]:
        """The rows that show the network of a cluster."""
        return calibrating_rows(self._source)

    @cached_property
    def _with_kernels(self) -> Session:
        """The session with the kernels that the source measured, for the calibrated way."""
        measured = measured_kernels(self._session, self._owners)
        return SourceSession(self._whole, self._owners) if measured else self._session

    def predict(self, item: MappedCase) -> list[PredictedCase]:
        """Predict a case in each way in which it can be asked without its own source.

        Raises
        ------
        RequestError
            If a scenario cannot be predicted.
        """
        self._before, self._predictions = self._predictions, {}
        rows = [
            self._predicted(
                item, way, scenario, self._with_kernels if way == "calibrated" else self._session
            )
            for way, scenario in item.scenarios.items()
        ]
        if not rows:
            raise RequestError("", LEFT_OUT)
        if item.role == "test" and item.scenario and "calibrated" not in item.scenarios:
            rows += self._calibrated(item, item.scenario, rows[-1])
        return rows

    def _calibrated(
        self, item: MappedCase, scenario: Scenario, before: PredictedCase
    ) -> list[PredictedCase]:
        """Predict a case with the cluster's own network and kernels, if it has any.

        ``before`` is the case asked with less; kernels that change nothing in it count for none.
        """
        session = self._with_kernels
        network = network_of(item.case, scenario, self._calibrating, self._session, self._stored)
        if network is not None:
            scenario = on_preset(scenario, session)
            session = self._networks.setdefault(network, network.session(session))
        elif session is self._session:
            return []
        found = self._predicted(item, "calibrated", scenario, session)
        same = isclose(found.predicted, before.predicted, rel_tol=ROUNDING)
        return [found] if network is not None or not same else []

    def _predicted(
        self, item: MappedCase, way: Way, scenario: Scenario, session: Session
    ) -> PredictedCase:
        """Predict a case in one way; its interval was fitted without its own source."""
        case = item.case
        own = self._known.get(case.origin, self._known.get(NO_METHOD))
        asked = session, scenario.model_dump_json()
        prediction = self._before.get(asked) or predict_iteration(scenario, session)
        self._predictions[asked] = prediction
        moves = of_ratio(prediction.moves) if case.metric in RATIO_METRICS else prediction.moves
        if own is not None:
            interval = own.interval(moves, prediction.iteration_s)
            prediction = prediction.stating(iteration_s_interval=interval)
        (value, low, high), error = predicted_metric(case.metric, case.value, prediction)
        return PredictedCase(
            case,
            scenario,
            value,
            (low, high),
            error,
            way,
            prediction.breakdown_s,
            moves,
            calibrates=item.role == "calibration",
            own_preset=self._is_own_preset(item, scenario),
        )

    def _is_own_preset(self, item: MappedCase, scenario: Scenario) -> bool:
        """Tell whether a scenario's preset was measured on the cluster of the case itself."""
        own = item.scenarios.get("calibrated")
        return own is not None and any(
            row.basis == "preset" and (row.network, row.preset) == (own.net, scenario.net)
            for row in read_hardware(self._session)
        )


def joined_reports(paths: Sequence[Path | None]) -> MeasurementsReport:
    """Return one report of several tables; None is the tables that ship.

    Raises
    ------
    DataError, RequestError
        As `validate_measurements`.
    """
    reports = [validate_measurements(path) for path in paths]
    rows = [row for report in reports for row in report.rows]
    left = [item for report in reports for item in report.left]
    not_asked = [pair for report in reports for pair in report.not_asked]
    return MeasurementsReport(rows, left, not_asked=not_asked)


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
    return {*mapped.clusters, mapped.case.group, mapped.case.origin}


def _methods(mapped: MappedCase) -> set[str]:
    return {mapped.scenario.method} if mapped.scenario else set()


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
