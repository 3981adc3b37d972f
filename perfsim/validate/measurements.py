"""DOC"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.errors import RequestError, unknown
from perfsim.interval import NO_METHOD, Moves, Uncertainty, of_ratio, uncertainties
from perfsim.prediction import predict
from perfsim.scenario import Scenario
from perfsim.session import Session
from perfsim.validate.accuracy import score
from perfsim.validate.cases import Case, cases_of
from perfsim.validate.mapping import RULES_FILE, MappedCase, map_case, read_rules, single_gpu_cases
from perfsim.validate.metrics import PHASE_METRICS, RATIO_METRICS, predicted_metric

__all__ = [
    "LIMITS_FILE",
    "_VALIDATION_SCHEMA",
    "ComparedCase",
    "GroupLimit",
    "MeasurementsReport",
    "Miss",
    "joined_reports",
    "limits_of",
    "misses",
    "read_limits",
    "validate_measurements",
]

_LIMITS_SCHEMA = "perfsim/limits/1"
LIMITS_FILE = "limits.csv"
_LIMITS_COLUMNS = ("group", "ids", "metrics", "median", "p90")
_LIMITED_METRICS = ("whole", "phases", "any")


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """What the errors of a group of cases may be."""

    group: str
    ids: tuple[str, ...]
    metrics: str
    median: float
    p90: float

    def holds(self, name: str, metric: str) -> bool:
        """Tell whether a case of this id and metric is in the group."""
        kind = "phases" if metric in PHASE_METRICS else "whole"
        return self.metrics in (kind, "any") and any(fnmatchcase(name, one) for one in self.ids)


@dataclass(frozen=True, slots=True)
class Miss:
    """A limit that a group is outside of."""

    group: str
    count: int
    figure: str
    found: float
    limit: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return asdict(self)


def read_limits(path: Path) -> list[GroupLimit]:
    """Return the limits of a file.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    found = []
    for row, cells in read_table(path, _LIMITS_SCHEMA, _LIMITS_COLUMNS):
        check_word(cells["metrics"], _LIMITED_METRICS, "metrics", path, row)
        most = [
            cell_number(cells[name], name, path, row, positive=True) for name in ("median", "p90")
        ]
        found.append(
            GroupLimit(cells["group"], tuple(cells["ids"].split()), cells["metrics"], *most)
        )
    return found


def limits_of(catalog: Catalog) -> list[GroupLimit]:
    """Return the limits that the catalog finds; none where there is no file."""
    path = catalog.beside("measurements", "", LIMITS_FILE)
    return [] if path is None else read_limits(path)


def misses(limits: Sequence[GroupLimit], errors: Iterable[tuple[str, str, float]]) -> list[Miss]:
    """Return what is outside its limit; ``errors`` are id, metric and absolute relative error."""
    rows = list(errors)
    found = []
    for limit in limits:
        figures = score(error for name, metric, error in rows if limit.holds(name, metric))
        for figure, value, most in (
            ("median", figures.median, limit.median),
            ("p90", figures.p90, limit.p90),
        ):
            if value is not None and value > most:
                found.append(Miss(limit.group, figures.count, figure, value, most))
    return found


_VALIDATION_SCHEMA = "perfsim/validation/1"
_RANKED_APART = 1.1
"""Methods whose measured times differ by more than this factor are ranked."""

_SCALES = ((8, "to 8 GPUs"), (64, "9 to 64 GPUs"), (1 << 30, "above 64 GPUs"))


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """One case with what is predicted for it; ``error`` is that of the time, signed.

    ``cluster`` names its networks: the one between nodes, the one inside a node; ``moves`` is how
    far what is predicted moves with each part that it rests on.
    """

    case: Case
    method: str
    cluster: tuple[str, str]
    predicted: float
    interval: tuple[float, float]
    error: float
    moves: Moves = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Whether the measured value lies inside the predicted 90 % interval."""
        return self.interval[0] <= self.case.value <= self.interval[1]

    @property
    def half_width(self) -> float:
        """Half the interval, as a part of what is predicted; zero where none is known."""
        low, high = self.interval
        return (high - low) / 2 / self.predicted if self.predicted else 0.0


@dataclass(frozen=True)
class MeasurementsReport:
    """The rows predicted, and the cases that are not, with the reason."""

    rows: list[ComparedCase]
    left: list[MappedCase]
    missed: list[Miss] = field(default_factory=list)

    @property
    def whole(self) -> list[ComparedCase]:
        """The rows that are whole iterations, whatever the metric."""
        return [row for row in self.rows if row.case.metric not in PHASE_METRICS]

    @property
    def notices(self) -> list[str]:
        """What is said of the rows wherever they are shown, with the sources it is said of."""
        cases = [*(row.case for row in self.rows), *(asked.case for asked in self.left)]
        told = sorted({(one.group, one.notice) for one in cases if one.notice})
        return [f"{group}: {notice}" for group, notice in told]

    def groups(self) -> dict[str, dict[str, list[ComparedCase]]]:
        """Return the rows by what they are grouped by, and by name; phases apart by metric."""
        keys: dict[str, Callable[[ComparedCase], str]] = {
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

    def ranking(self) -> tuple[int, int]:
        """Return pairs of methods that measure more than 10 % apart, and how many are ranked right.

        Pairs differ in system alone: same source, model, GPUs, network, batch and metric.
        """
        alike = _grouped(self.whole, lambda row: "|".join(_setting(row.case)))
        pairs = right = 0
        for rows in alike.values():
            for one, other in combinations(rows, 2):
                apart = one.case.value / other.case.value if other.case.value else 0.0
                if (
                    one.case.system == other.case.system
                    or 1 / _RANKED_APART <= apart <= _RANKED_APART
                ):
                    continue
                pairs += 1
                right += (apart > 1) == (one.predicted > other.predicted)
        return pairs, right

    def to_dict(self) -> dict[str, Any]:
        """Return the report as ``--json`` prints it."""
        pairs, right = self.ranking()
        return {
            "schema": _VALIDATION_SCHEMA,
            "all": error_figures(self.whole),
            "groups": [
                {"by": by, "name": name, **error_figures(rows)}
                for by, named in self.groups().items()
                for name, rows in sorted(named.items())
            ],
            "ranking": {"pairs": pairs, "right": right},
            "notices": self.notices,
            "outside_limits": [miss.to_dict() for miss in self.missed],
            "rows": [
                {
                    "id": row.case.id,
                    "role": "test",
                    "measured": row.case.value,
                    "predicted": row.predicted,
                    "interval": list(row.interval),
                    "error": row.error,
                }
                for row in self.rows
            ],
            "left_out": [
                {"id": asked.case.id, "role": asked.role, "reason": asked.reason}
                for asked in self.left
            ],
        }

    def reasons(self) -> list[tuple[str, int]]:
        """Return why cases are not predicted, most frequent first."""
        return Counter(asked.reason for asked in self.left).most_common()


def error_figures(rows: Sequence[ComparedCase]) -> dict[str, float | int | None]:
    """Return count, median, p90 and worst absolute error, signed bias, coverage and half-width.

    Coverage and the median half-width of the interval are those of rows that have one.
    """
    known = [row for row in rows if row.half_width > 0]
    return {
        **score(abs(row.error) for row in rows).to_dict(),
        "bias": mean(row.error for row in rows) if rows else None,
        "coverage": mean(row.inside for row in known) if known else None,
        "half_width": median(row.half_width for row in known) if known else None,
    }


def validate_measurements(
    path: Path | None = None,
    catalog: Catalog | None = None,
    *,
    cluster: str | None = None,
    method: str | None = None,
) -> MeasurementsReport:
    """Predict every case of a table, or of those that ship, and hold the errors to their limits.

    A limit is that of a whole group: where ``cluster`` or ``method`` leave some of it aside, it is
    not asked for.

    Parameters
    ----------
    path : a table of cases; None: what ships
    catalog : where profiles are
    cluster : only cases on this network (between nodes or inside them), or of this source
    method : only cases of this method

    Raises
    ------
    DataError
        If a table, the rules or the limits are damaged.
    RequestError
        If no rules ship, or no case is on the cluster or of the method that is asked for.
    """
    catalog = catalog or Session()
    cases = cases_of(path, catalog)
    beside = catalog.beside("measurements", "", RULES_FILE)
    if beside is None:
        raise RequestError(
            "measurements", f"no measurements/{RULES_FILE} in any folder of profiles."
        )
    rules = read_rules(beside)
    singles = single_gpu_cases(cases, rules)
    asked = [map_case(case, rules, singles, catalog) for case in cases]
    everything = asked
    asked = _select(asked, cluster, method)
    rows, left, known = [], [], uncertainties(catalog)
    for one in asked:
        if one.scenario is None:
            left.append(one)
            continue
        try:
            rows.append(_row(one.case, one.cluster, one.scenario, catalog, known))
        except RequestError as error:
            left.append(MappedCase(one.case, "excluded", reason=str(error)))
    report = MeasurementsReport(rows, left)
    found = [(row.case.id, row.case.metric, abs(row.error)) for row in rows]
    kept = {one.case.id for one in asked}
    aside = [one.case for one in everything if one.case.id not in kept and one.scenario is not None]
    # A limit is one of a whole group: a part of it may be worse, and is held to nothing.
    whole = [
        limit
        for limit in limits_of(catalog)
        if not any(limit.holds(case.id, case.metric) for case in aside)
    ]
    report.missed.extend(misses(whole, found))
    return report


def _row(
    case: Case,
    cluster: tuple[str, str],
    scenario: Scenario,
    catalog: Catalog,
    known: Mapping[str, Uncertainty],
) -> ComparedCase:
    """Return a case with its prediction, whose interval its own source had no part in."""
    prediction = predict(scenario, catalog)
    moves = of_ratio(prediction.moves) if case.metric in RATIO_METRICS else prediction.moves
    own = known.get(case.origin, known.get(NO_METHOD))
    if own is not None:
        interval = own.interval(moves, prediction.iteration_s)
        prediction = replace(prediction, iteration_s_interval=interval)
    (value, low, high), off = predicted_metric(case.metric, case.value, prediction)
    return ComparedCase(case, scenario.method, cluster, value, (low, high), off, moves)


def joined_reports(paths: Sequence[Path | None]) -> MeasurementsReport:
    """Return the report of several tables as one; None stands for what ships.

    Raises
    ------
    DataError, RequestError
        As `validate_measurements`.
    """
    reports = [validate_measurements(path) for path in paths]
    rows = [row for report in reports for row in report.rows]
    return MeasurementsReport(rows, [asked for report in reports for asked in report.left])


def _select(
    asked: Sequence[MappedCase], cluster: str | None, method: str | None
) -> list[MappedCase]:
    """Return the cases of a cluster and a method, where these are given.

    Raises
    ------
    RequestError
        If there are none; the message names the nearest of those that there are.
    """
    for flag, wanted, names in (("cluster", cluster, _clusters), ("method", method, _methods)):
        if wanted is None:
            continue
        every = {name for one in asked for name in names(one) if name}
        if wanted not in every:
            raise unknown(flag, wanted, every)
        asked = [one for one in asked if wanted in names(one)]
    return list(asked)


def _clusters(asked: MappedCase) -> set[str]:
    return {*asked.cluster, asked.case.group}


def _methods(asked: MappedCase) -> set[str]:
    return {asked.scenario.method} if asked.scenario else set()


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
    rows: Sequence[ComparedCase], key: Callable[[ComparedCase], str]
) -> dict[str, list[ComparedCase]]:
    found: dict[str, list[ComparedCase]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
