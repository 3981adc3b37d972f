"""All questions asked of a set of measured curves, the errors, and where the curves come from."""

from __future__ import annotations

import math
import pkgutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.network.measured import CollectiveCurve
from perfsim.validate.accuracy import Score, score
from perfsim.validate.nccl.row import SHOWN_BANDS, NcclRow
from perfsim.validate.node_clusters import family_of, networks_of_files

__all__ = [
    "ERRORS_OVER",
    "MORE_NODES",
    "QUESTION_ORDER",
    "ChoiceErrors",
    "ClusterErrors",
    "CollectiveErrors",
    "CurveFall",
    "NcclReport",
    "QuestionErrors",
    "curves_in_folder",
    "question_names",
    "questions",
    "shipped_curves",
    "validate_nccl",
]


_NCCL_SCHEMA = "perfsim/validation-nccl/1"

QUESTION_ORDER = (
    *("in_range", "scale_2x", "scale_4x", "scale_beyond"),
    *("two_nodes_2x", "two_nodes_4x", "two_nodes", "other_collective"),
    *("data_sheet", "data_sheet_modern", "choice"),
)
"""Questions in the order of print; those of further files come after them."""


MORE_NODES = ("scale_2x", "scale_4x", "scale_beyond")
"""Questions of times extrapolated to more nodes; those of two nodes are some of them, asked
again."""


ERRORS_OVER = " / "
"""Between two predictions' names in a limit on the ratio of their errors."""


@cache
def questions() -> dict[str, ModuleType]:
    """Return name -> module of every question: the files of this folder with a ``QUESTION``."""
    package = __name__.rpartition(".")[0]
    modules = {}
    for module in pkgutil.iter_modules(import_module(package).__path__):
        loaded = import_module(f"{package}.{module.name}")
        if hasattr(loaded, "QUESTION"):
            modules[module.name] = loaded
    return modules


def question_names() -> tuple[str, ...]:
    """Return the name of every question in the order of print.

    Examples
    --------
    >>> question_names()[0]
    'in_range'
    """
    return tuple(dict.fromkeys((*QUESTION_ORDER, *_limits())))


@dataclass(frozen=True, slots=True)
class ClusterErrors:
    """The errors of one question on the curves of one cluster.

    Parameters
    ----------
    score : all sizes
    bands : by band of sizes (see ``BANDS``)
    plain_median : median error of a plain alpha-beta ring fit on the same rows
    """

    cluster: str
    question: str
    score: Score
    bands: dict[str, Score]
    plain_median: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "cluster": self.cluster,
            "question": self.question,
            **self.score.to_dict(),
            "bands": _dicts(self.bands),
            "plain_median": self.plain_median,
        }


@dataclass(frozen=True, slots=True)
class CurveFall:
    """Two sizes of a measured curve [B] between which the time falls, and its share that goes."""

    cluster: str
    curve: str
    from_bytes: float
    to_bytes: float
    drop: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CollectiveErrors:
    """The errors on one collective: of the prediction, and of each further one by name."""

    score: Score
    others: dict[str, Score]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**self.score.to_dict(), "others": _dicts(self.others)}


@dataclass(frozen=True, slots=True)
class QuestionErrors:
    """The errors of one question, and what they may be.

    Parameters
    ----------
    score : of the prediction, on all rows
    bands : of the prediction, by band of sizes (see ``BANDS``)
    plain_ring : of a plain alpha-beta ring fit on the same rows
    others : of each further prediction by its name
    collectives : by collective, where the question has several
    limits : the greatest errors by what they are of
    """

    score: Score
    bands: dict[str, Score]
    plain_ring: Score
    others: dict[str, Score]
    collectives: dict[str, CollectiveErrors]
    limits: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            **self.score.to_dict(),
            "bands": _dicts(self.bands),
            "plain_ring": self.plain_ring.to_dict(),
            "others": _dicts(self.others),
            "collectives": {name: one.to_dict() for name, one in self.collectives.items()},
            "limits": self.limits,
        }


@dataclass(frozen=True, slots=True)
class ChoiceErrors:
    """In how many sizes the faster of ring and tree is named.

    Parameters
    ----------
    right : by perfsim
    always_ring_right, tuner_right : by always naming the ring, and by NCCL's own tuner
    regret_median : median of the time lost by what was named, as a share; None without sizes
    """

    count: int
    right: int
    always_ring_right: int
    tuner_right: int
    regret_median: float | None
    limits: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def _dicts(scores: Mapping[str, Score]) -> dict[str, dict[str, float | int | None]]:
    return {name: one.to_dict() for name, one in scores.items()}


@dataclass(frozen=True)
class NcclReport:
    """The rows of all questions on a set of curves."""

    curves: tuple[tuple[str, CollectiveCurve], ...]
    rows: tuple[NcclRow, ...]

    def of(self, question: str, band: str | None = None) -> list[NcclRow]:
        """Return the rows of one question, of one size band if named."""
        return [
            row
            for row in self.rows
            if row.question == question and (band is None or row.band == band)
        ]

    def score(self, question: str, band: str | None = None) -> Score:
        """Return the errors of one question."""
        return score(row.error for row in self.of(question, band))

    def plain(self, question: str) -> Score:
        """Return the errors that a plain alpha-beta ring fit makes on the same rows."""
        return score(
            abs(row.plain_s / row.measured_s - 1.0)
            for row in self.of(question)
            if row.plain_s is not None
        )

    def others(self, question: str, collective: str | None = None) -> dict[str, Score]:
        """Return the errors of each further prediction on the same rows, of one collective's."""
        errors_by_name: dict[str, list[float]] = {}
        for row in self.of(question):
            if collective is not None and row.collective != collective:
                continue
            for name, seconds in row.others.items():
                errors_by_name.setdefault(name, []).append(abs(seconds / row.measured_s - 1.0))
        return {name: score(errors) for name, errors in errors_by_name.items()}

    def misses(self) -> list[str]:
        """Return a sentence for each limit that the errors exceed."""
        sentences = []
        for question, limits in _limits().items():
            rows = self.of(question)
            if not rows:
                continue
            for what, limit in limits.items():
                reached = self._reached(question, what)
                low = what == "right"
                if reached is not None and (reached < limit if low else reached > limit):
                    bound = "at least" if low else "at most"
                    sentences.append(
                        f"{question}: {what} is {reached:.1%}, the target is {bound} {limit:.0%}"
                    )
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it; errors are fractions."""
        questions: dict[str, QuestionErrors | ChoiceErrors] = {
            name: self.choice() if name == "choice" else self.question(name)
            for name in question_names()
        }
        return {
            "schema": _NCCL_SCHEMA,
            "questions": {name: errors.to_dict() for name, errors in questions.items()},
            "clusters": [errors.to_dict() for errors in self.clusters()],
            "families": self.families(MORE_NODES),
            "falls": [fall.to_dict() for fall in self.falls()],
            "misses": self.misses(),
        }

    def clusters(self) -> list[ClusterErrors]:
        """Return the errors of every cluster by question, with their size bands."""
        errors = []
        for cluster in dict.fromkeys(name for name, _ in self.curves):
            rows = [row for row in self.rows if row.cluster == cluster]
            for question in question_names():
                mine = [row for row in rows if row.question == question]
                if not mine or question == "choice":
                    continue
                bands = {
                    band: score(row.error for row in mine if row.band == band)
                    for band, _ in SHOWN_BANDS
                }
                plain = median(abs((row.plain_s or 0.0) / row.measured_s - 1.0) for row in mine)
                whole = score(row.error for row in mine)
                errors.append(ClusterErrors(cluster, question, whole, bands, plain))
        return errors

    def families(self, questions: Sequence[str]) -> dict[str, int]:
        """Return the rows of questions by family of clusters, most first.

        A family are clusters of one machine, or alike in hardware and place.
        """
        series = {cluster: curve.series for cluster, curve in self.curves}
        counts = Counter(
            family_of(series.get(row.cluster, ""), row.cluster)
            for row in self.rows
            if row.question in questions
        )
        return dict(counts.most_common())

    def falls(self) -> list[CurveFall]:
        """Return where a measured time falls by more than 10 % as the size grows."""
        return [
            CurveFall(cluster, curve.name, *fall)
            for cluster, curve in self.curves
            for fall in curve.falls()
        ]

    def question(self, name: str) -> QuestionErrors:
        """Return the errors of one question other than ``choice``."""
        rows = self.of(name)
        return QuestionErrors(
            self.score(name),
            {band: self.score(name, band) for band, _ in SHOWN_BANDS},
            self.plain(name),
            self.others(name),
            {
                collective: CollectiveErrors(
                    score(row.error for row in rows if row.collective == collective),
                    self.others(name, collective),
                )
                for collective in dict.fromkeys(row.collective for row in rows if row.collective)
            },
            _limits().get(name, {}),
        )

    def choice(self) -> ChoiceErrors:
        """Return how often the faster of ring and tree is named."""
        rows = self.of("choice")
        return ChoiceErrors(
            len(rows),
            sum(row.error == 0.0 for row in rows),
            sum(row.plain_s == row.measured_s for row in rows),
            sum(row.others["NCCL's tuner"] == row.measured_s for row in rows),
            median(row.error for row in rows) if rows else None,
            _limits()["choice"],
        )

    def _reached(self, question: str, what: str) -> float | None:
        if what == "right":
            choice = self.choice()
            return choice.right / choice.count
        if ERRORS_OVER in what:
            names, _, part = what.partition(", ")
            others = self.others(question)
            first, second = (
                getattr(others.get(name), part, None) for name in names.split(ERRORS_OVER)
            )
            if first is None or second is None:
                return None
            return 1.0 if first == second else first / second if second else math.inf
        band = "above" if what.endswith(" above") else None
        return getattr(self.score(question, band), what.partition(" ")[0], None)


def _limits() -> dict[str, dict[str, float]]:
    limits: dict[str, dict[str, float]] = {}
    for module in questions().values():
        limits.update(module.LIMITS)
    return limits


def validate_nccl(
    curves: Sequence[tuple[str, CollectiveCurve]],
    tell: Callable[[int, int, str], None] | None = None,
) -> NcclReport:
    """Ask every question of measured curves.

    Parameters
    ----------
    curves : (cluster, curve): curves of several node counts share their cluster's name
    tell : called before each question with how many are done, of how many, and its name
    """
    rows, every = [], questions()
    for done, (name, module) in enumerate(every.items()):
        if tell is not None:
            tell(done, len(every), name)
        rows += module.predict_rows(curves)
    return NcclReport(tuple(curves), tuple(rows))


# Where the curves come from.


def curves_in_folder(
    folder: Path, *, skip_bad: bool = False
) -> tuple[list[tuple[str, CollectiveCurve]], list[str]]:
    """Return (cluster, curve) of every file of measurements in a folder, and what was left out.

    The cluster is the series that a file names, else the folder below this one that it stands in,
    else the file itself. The series of a curve is the
    measured network that its file belongs to (``networks/clusters.csv``), by which the node type is
    found. Files of no known form are left out, and damaged lines with ``skip_bad``.

    Raises
    ------
    DataError
        If the folder holds none, or a line is damaged.
    """
    from perfsim.calibrate.formats import LOG_SUFFIXES, read_folder

    readings = read_folder(folder, skip_bad=skip_bad)
    networks = networks_of_files()
    curves = [
        (
            _cluster_of(path, curve.series, folder),
            replace(curve, series=networks.get(path.stem, curve.series)),
        )
        for path, reading in readings.items()
        for curve in reading.curves
    ]
    left = [line for reading in readings.values() for line in reading.skipped]
    files = (path for path in folder.rglob("*") if path.is_file() and path not in readings)
    left += [
        f"{path}: no measurements in a form that is known"
        for path in sorted(files)
        if path.suffix.lower() in LOG_SUFFIXES
    ]
    return curves, left


def _cluster_of(path: Path, series: str, folder: Path) -> str:
    """Return the cluster that a file of measurements in a folder is of.

    Examples
    --------
    >>> files = "mine/two.log", "mine/c/two.log", "mine/c/four.log"
    >>> [_cluster_of(Path(name), "", Path("mine")) for name in files]
    ['two', 'c', 'c']
    """
    if series not in ("", path.stem):
        return series
    return path.stem if path.parent == folder else path.parent.relative_to(folder).as_posix()


def shipped_curves(catalog: Catalog) -> list[tuple[str, CollectiveCurve]]:
    """Return (network, curve) of all networks that ship or are the user's.

    The curves are measured ones where a network has them, else the knots of the fitted ones: the
    few measured points of a curve that fitting chose.
    """
    from perfsim.network.network_file import read_network

    curves: list[tuple[str, CollectiveCurve]] = []
    for name, path in catalog.files("networks").items():
        known = read_network(path).known
        if known is not None:
            curves += [(name, curve) for curve in known.curves]
    return curves
