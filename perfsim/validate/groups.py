"""Errors of predicted cases by group: by way of asking, source, scale, GPU and evidence.

Two weights stand beside each other: rows weigh alike, or sources weigh alike, however many rows
each has. Cases where communication matters are a group of their own, as those whose computation is
given and whose communication hardly shows say little about a network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isclose
from statistics import correlation, mean, median
from typing import Any, NamedTuple

from perfsim.interval import GRADES, Moves
from perfsim.scenario import DEFAULT_GPU, Scenario, parse_types
from perfsim.sums import sum_in_order
from perfsim.validate.accuracy import Score, score
from perfsim.validate.cases import Case
from perfsim.validate.mapping import WAYS, Way
from perfsim.validate.metrics import PHASE_METRICS

__all__ = [
    "ROUNDING",
    "AlikeErrors",
    "GroupErrors",
    "PredictedCase",
    "RankedPairs",
    "WayErrors",
    "best_known",
    "group_errors",
    "group_tables",
    "rank_correlation",
    "ranking",
    "weighted_quantile",
    "width_rank",
]

ROUNDING = 1e-9
"""Predictions that differ by less than this share of the larger one are the same."""

_RANKED_APART = 1.1
"""Factor between measured times above which two methods are ranked."""

_MATTERS = 0.2
"""Communication matters where computation alone misses the measured time by more than this share.

No source: chosen, as issue 18 states it."""

_COMPUTING = ("forward", "backward", "update")
"""Parts of an iteration that a GPU without peers has too."""

_SCALES = (
    (1, "1 GPU"),
    (8, "2 to 8 GPUs"),
    (32, "9 to 32 GPUs"),
    (64, "33 to 64 GPUs"),
    (1 << 30, "above 64 GPUs"),
)
"""Scales by which rows are grouped: most GPUs, and the group's name."""

_GENERATIONS = {
    "k": "Kepler",
    "m": "Maxwell",
    "p": "Pascal",
    "titan": "Pascal",
    "gtx10": "Pascal",
    "v": "Volta",
    "t": "Turing",
    "titan-rtx": "Turing",
    "titan-v": "Volta",
    "rtx20": "Turing",
    "rtx6000": "Turing",
    "rtx8000": "Turing",
    "rtx30": "Ampere",
    "a": "Ampere",
    "rtx40": "Ada",
    "rtx6000ada": "Ada",
    "rtx5000ada": "Ada",
    "rtx4500ada": "Ada",
    "rtx4000ada": "Ada",
    "rtx2000ada": "Ada",
    "l": "Ada",
    "rtx50": "RTX Blackwell",
    "rtxpro": "RTX Blackwell",
    "h": "Hopper",
    "gh": "Hopper",
    "b": "Blackwell",
    "gb": "Blackwell",
    "gb10": "RTX Blackwell",
    "mi": "CDNA",
}
"""How a GPU's name begins, and its generation (NVIDIA's and AMD's product pages)."""


@dataclass(frozen=True, slots=True)
class PredictedCase:
    """One case with its prediction, asked in one way.

    Parameters
    ----------
    case : what was measured
    scenario : what was predicted for it
    predicted, interval : the case's metric as predicted, and its 90 % interval, in its unit
    error : of the time, signed: predicted over measured less one
    way : how it was asked
    breakdown_s : where the time of the predicted iteration goes, by part [s]
    moves : how far the prediction moves with the error of each of its parts
    calibrates : whether the case calibrates what other ways of asking know
    own_preset : whether the preset of its network was measured on the cluster that is judged
    """

    case: Case
    scenario: Scenario
    predicted: float
    interval: tuple[float, float]
    error: float
    way: Way = "blind"
    breakdown_s: Mapping[str, float] = field(default_factory=dict)
    moves: Moves = field(default_factory=dict)
    calibrates: bool = False
    own_preset: bool = False

    @property
    def method(self) -> str:
        """The method that was predicted."""
        return self.scenario.method

    @property
    def inside(self) -> bool:
        """Whether the measured value lies inside the predicted 90 % interval."""
        return self.interval[0] <= self.case.value <= self.interval[1]

    @property
    def half_width(self) -> float:
        """Half the interval as a share of the prediction; zero where there is no interval."""
        low, high = self.interval
        return (high - low) / 2 / self.predicted if self.predicted else 0.0

    @property
    def whole(self) -> bool:
        """Whether it is a whole iteration, whatever the metric."""
        return self.case.metric not in PHASE_METRICS

    @property
    def communication_matters(self) -> bool:
        """Whether forward, backward and update alone miss the measured time by over 20 %.

        A metric that compares with one GPU's time (efficiency, speed-up) is judged the same way:
        its error is that of the iteration's time.
        """
        total_s = sum_in_order(self.breakdown_s.values())
        if not total_s or not self.whole:
            return False
        computing_s = sum_in_order(self.breakdown_s.get(part, 0.0) for part in _COMPUTING)
        measured_s = total_s / (1.0 + self.error)
        return abs(computing_s / measured_s - 1.0) > _MATTERS

    @property
    def generation(self) -> str:
        """The generation of its GPU; of several types the first."""
        types = parse_types(self.scenario.gpu)
        name = (types[0][0] if types else self.scenario.gpu or DEFAULT_GPU).lower()
        matching = [start for start in _GENERATIONS if name.startswith(start)]
        return _GENERATIONS[max(matching, key=len)] if matching else "other"

    @property
    def evidence(self) -> str:
        """The evidence behind the prediction: of computation, and of the network if any."""
        words = []
        for cause in ("compute", "network"):
            moves = {
                grade: max(self.moves[f"{cause}_{grade}"])
                for grade in GRADES[cause]
                if f"{cause}_{grade}" in self.moves
            }
            grade = max(moves, key=lambda one: moves[one], default="")
            if grade and moves[grade] > 0:
                words.append(f"{cause} {grade}")
        return ", ".join(words) or "none"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "id": self.case.id,
            "role": "calibration" if self.calibrates else "test",
            "way": self.way,
            "method": self.method,
            "metric": self.case.metric,
            "measured": self.case.value,
            "predicted": self.predicted,
            "interval": list(self.interval),
            "error": self.error,
            "breakdown_s": dict(self.breakdown_s),
            "scenario": self.scenario.model_dump(mode="json", exclude_defaults=True),
        }


@dataclass(frozen=True, slots=True)
class GroupErrors:
    """The errors of a group of cases asked in one way, as fractions.

    Parameters
    ----------
    by, name, way : what the cases are grouped by, the group's name, and how they were asked
    score : count, median, p90 and worst of the absolute errors
    bias : mean of the signed errors
    coverage, half_width : share of measured values inside the interval, and the interval's median
        half-width, of cases that have an interval
    sources : how many there are
    alike : median, p90, bias and coverage where every source weighs the same
    """

    by: str
    name: str
    way: Way | None
    score: Score
    bias: float | None
    coverage: float | None
    half_width: float | None
    sources: int
    alike: AlikeErrors

    def figures(self) -> dict[str, Any]:
        """Return the count and the errors by name, as JSON and records have them."""
        return {
            **self.score.to_dict(),
            "bias": self.bias,
            "coverage": self.coverage,
            "half_width": self.half_width,
            "sources": self.sources,
            "sources_alike": self.alike._asdict(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"by": self.by, "name": self.name, "way": self.way, **self.figures()}


class AlikeErrors(NamedTuple):
    """Errors where every source weighs the same, as fractions; None without rows."""

    median: float | None = None
    p90: float | None = None
    bias: float | None = None
    coverage: float | None = None


class RankedPairs(NamedTuple):
    """Pairs of systems that are measured apart, and how many of them the predictions rank right."""

    pairs: int
    right: int


class WayErrors(NamedTuple):
    """What is counted of all whole iterations asked in one way.

    ``width_rank`` is the rank correlation of half widths and errors (see `width_rank`).
    """

    errors: GroupErrors
    pairs: RankedPairs
    width_rank: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "way": self.errors.way,
            **self.errors.figures(),
            "ranking": self.pairs._asdict(),
            "width_rank": self.width_rank,
        }


def width_rank(rows: Sequence[PredictedCase]) -> float | None:
    """Return Spearman's rank correlation of half widths and absolute errors.

    It says whether intervals know when they are wrong: 1 where wider ones always hold larger
    errors, 0 where width says nothing. None where all widths or all errors are the same.
    """
    return rank_correlation([row.half_width for row in rows], [abs(row.error) for row in rows])


def rank_correlation(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None where all values, or all others, are the same.

    Examples
    --------
    >>> rank_correlation([1.0, 5.0, 9.0], [0.1, 0.2, 0.3]), rank_correlation([1.0, 1.0], [0.1, 0.2])
    (1.0, None)
    """
    if len(set(values)) < 2 or len(set(others)) < 2:
        return None
    return correlation(_ranks(values), _ranks(others))


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones share the mean of theirs."""
    ranks, before = {}, 0
    for value, count in sorted(Counter(values).items()):
        ranks[value] = before + (count + 1) / 2
        before += count
    return [ranks[value] for value in values]


def group_errors(
    by: str, name: str, rows: Sequence[PredictedCase], way: Way | None = None
) -> GroupErrors:
    """Return the errors of a group of cases; coverage and half-width are of those with an interval.

    Parameters
    ----------
    by, name : what the cases are grouped by, and the group's name
    way : how all of them were asked, for the record; None where each was asked as it is known best
    """
    known = [row for row in rows if row.half_width > 0]
    return GroupErrors(
        by,
        name,
        way,
        score(abs(row.error) for row in rows),
        bias=mean(row.error for row in rows) if rows else None,
        coverage=mean(row.inside for row in known) if known else None,
        half_width=median(row.half_width for row in known) if known else None,
        sources=len({row.case.origin for row in rows}),
        alike=_alike(rows),
    )


def _alike(rows: Sequence[PredictedCase]) -> AlikeErrors:
    """Return the errors where every source weighs the same."""
    by_source = _grouped(rows, lambda row: row.case.origin)
    if not by_source:
        return AlikeErrors()
    weighted = [
        (abs(row.error), 1.0 / len(same) / len(by_source))
        for same in by_source.values()
        for row in same
    ]
    held = [[row.inside for row in same if row.half_width > 0] for same in by_source.values()]
    shares = [mean(inside) for inside in held if inside]
    return AlikeErrors(
        weighted_quantile(weighted, 0.5),
        weighted_quantile(weighted, 0.9),
        mean(mean(row.error for row in same) for same in by_source.values()),
        mean(shares) if shares else None,
    )


def weighted_quantile(weighted: Iterable[tuple[float, float]], share: float) -> float:
    """Return the least value that holds at least a share of the weight; weights sum to 1.

    Examples
    --------
    >>> weighted_quantile([(0.3, 0.5), (0.1, 0.25), (0.2, 0.25)], 0.5)
    0.2
    """
    held, reached = 0.0, 0.0
    for value, weight in sorted(weighted):
        reached, held = value, held + weight
        if held >= share - 1e-9:
            break
    return reached


def best_known(rows: Iterable[PredictedCase]) -> list[PredictedCase]:
    """Return each test case once, asked in the way that knows most of it."""
    best: dict[str, PredictedCase] = {}
    for row in rows:
        if row.calibrates:
            continue
        other = best.get(row.case.id)
        if other is None or WAYS.index(row.way) > WAYS.index(other.way):
            best[row.case.id] = row
    return list(best.values())


def group_tables(rows: Sequence[PredictedCase]) -> dict[str, list[GroupErrors]]:
    """Return the errors by what cases are grouped by; a group has a line for each way.

    Whole iterations are grouped by whether communication matters, source, method, network, where
    its preset was measured, scale, generation of the GPU and evidence; parts of an iteration by
    source and metric.
    """
    whole = [row for row in rows if row.whole]
    parts = [row for row in rows if not row.whole]
    keys: dict[str, Callable[[PredictedCase], str]] = {
        "communication": lambda row: (
            "matters (computation alone misses by over 20 %)"
            if row.communication_matters
            else "hardly shows"
        ),
        "scale": lambda row: next(
            name for most, name in _SCALES if (row.case.whole("gpus") or 0) <= most
        ),
        "generation": lambda row: row.generation,
        "evidence": lambda row: row.evidence,
        "source": lambda row: row.case.group,
        "method": lambda row: row.method,
        "network": lambda row: row.case.network or "none stated",
        "preset": lambda row: (
            f"measured {'on the judged cluster' if row.own_preset else 'elsewhere'}"
        ),
    }
    tables = {by: _table(by, whole, key) for by, key in keys.items()}
    order = [name for _, name in _SCALES]
    tables["scale"].sort(key=lambda errors: order.index(errors.name))
    tables["phase"] = _table("phase", parts, lambda row: f"{row.case.group} {row.case.metric}")
    return tables


def _table(
    by: str, rows: Sequence[PredictedCase], key: Callable[[PredictedCase], str]
) -> list[GroupErrors]:
    """Return a line for each group and way, sorted by group."""
    return [
        group_errors(by, name, asked, way)
        for name, same in sorted(_grouped(rows, key).items())
        for way in WAYS
        if (asked := [row for row in same if row.way == way])
    ]


def ranking(rows: Sequence[PredictedCase]) -> RankedPairs:
    """Count the pairs of systems that are measured over 10 % apart, and those ranked right.

    A pair differs in system alone: same source, model, GPUs, network, batch and metric, asked in
    the same way. A pair of which the same is predicted, but for rounding, is not ranked right.
    """
    alike = _grouped(
        [row for row in rows if row.whole], lambda row: "|".join((row.way, *_setting(row.case)))
    )
    pairs = right = 0
    for same in alike.values():
        for row, other in combinations(same, 2):
            ratio = row.case.value / other.case.value if other.case.value else 0.0
            too_close = 1 / _RANKED_APART <= ratio <= _RANKED_APART
            if row.case.system == other.case.system or too_close:
                continue
            pairs += 1
            same_time = isclose(row.predicted, other.predicted, rel_tol=ROUNDING)
            right += not same_time and (ratio > 1) == (row.predicted > other.predicted)
    return RankedPairs(pairs, right)


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
    rows: Iterable[PredictedCase], key: Callable[[PredictedCase], str]
) -> dict[str, list[PredictedCase]]:
    groups: dict[str, list[PredictedCase]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
