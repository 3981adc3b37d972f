"""compare(): methods side by side on one scenario, by time to the same accuracy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perfsim.compute.mixed_precision import IN_16_BITS, in_16_bits
from perfsim.compute.software import ERAS, NEWEST
from perfsim.data.catalog import Catalog
from perfsim.data.tables import flat_record
from perfsim.display import Displayed
from perfsim.errors import RequestError, shown, unknown
from perfsim.libraries import AUTO
from perfsim.methods import AUTO_METHOD, load_method, method_class, method_name, method_names
from perfsim.methods.base import FAMILIES
from perfsim.methods.fusion_settings import for_method
from perfsim.note import of_grade, warning
from perfsim.planning.equal_bytes import EqualBytes, settings_of
from perfsim.planning.equal_bytes import equal_bytes as set_equal_bytes
from perfsim.planning.gpu_counts import gpu_counts, thinned
from perfsim.prediction import Prediction, predict
from perfsim.ranking import CAVEAT, Ranking, ReportMethod, few, on_gpus, rank_methods
from perfsim.resolve import resolve
from perfsim.scenario import Scenario, as_scenario, table_columns
from perfsim.schedule.rounds import build_rounds
from perfsim.session import fresh, job_cache
from perfsim.sums import sum_in_order
from perfsim.time_to_accuracy import learning_notes
from perfsim.units import format_bytes, format_seconds
from perfsim.what_if import steady_s

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = [
    "BY_ACCURACY",
    "COMPARISON_SCHEMA",
    "SORTS",
    "Comparison",
    "Side",
    "Standing",
    "chosen_methods",
    "compare",
    "comparison_notes",
    "options_of_each",
    "own_method",
    "scaling_of",
]

COMPARISON_SCHEMA = "perfsim/compare/1"

_BASELINE = "ssgd"

_DELAYED = "delayed updates"
"""What methods are called whose updates use older gradients."""

_FAMILY_WORDS = {"dense": "lower precision"}
"""Families whose name does not say why their lossy methods learn differently."""

_EPOCHS_RULE = (
    "To be sooner at the same accuracy, it must be so even if it needs the most epochs of its"
    " published runs, and the other the least."
)

_MAX_NAMES = 3
"""Methods that share an option's value are named up to this number, then counted."""

_MAX_CURVES = 3
"""Methods whose scaling is predicted: S-SGD, the fastest, and the scenario's own or the next."""

BY_ACCURACY = "accuracy"
"""The order of the ranks: by time to the same accuracy, then what is known by iteration only."""

SORTS: dict[str, Callable[[Prediction], Any]] = {
    BY_ACCURACY: lambda one: 0.0,
    "time": lambda one: one.iteration_s,
    "high": lambda one: one.iteration_s_interval[1],
    "exposed": lambda one: one.breakdown_s["communication_exposed"],
    "sent": lambda one: one.communication["bytes_per_gpu"],
    "memory": lambda one: sum_in_order(one.memory_bytes.values()),
    "name": lambda one: one.scenario.method,
}
"""What rows can be sorted by: time to the same accuracy, the iteration, the upper end of its
interval, exposed communication, bytes that a GPU sends, memory, the method's name. Ranks are always
by time to the same accuracy."""

Side = Literal["faster", "slower", "not told apart"]
"""How a method compares with S-SGD, by what predictions can say."""


class Standing(NamedTuple):
    """One method's place in a comparison.

    Parameters
    ----------
    method, rank : the rank is by time to the same accuracy, from 1; None where nothing is known of
        the epochs that it needs
    behind_first_ratio : how much longer than the first it takes to the same accuracy, as a
        fraction; its iteration alone where the epochs are not known
    next_behind_ratio : how much longer the next method takes; None for the last of those with a
        rank, and of those without
    told_apart : whether the next is surely slower; None where there is none
    may_be_fastest : whether the first is not surely sooner than it
    against_ssgd : its iteration; None for S-SGD itself
    learns_as_ssgd : whether it changes nothing in training
    compression : its density, rank or bits in words; "" where it has none
    epochs_ratio, epochs_least_ratio, epochs_most_ratio : epochs that it needs, as a multiple of
        S-SGD's, and between which ends; None where not known, or where the upper end is open
    epochs_basis : where they are from: same arithmetic, evidence, given, none
    accuracy_speedup_ratio : how many times sooner than S-SGD it is at the same accuracy; None where
        not known
    """

    method: str
    rank: int | None
    behind_first_ratio: float
    next_behind_ratio: float | None
    told_apart: bool | None
    may_be_fastest: bool
    against_ssgd: Side | None
    learns_as_ssgd: bool
    compression: str
    epochs_ratio: float | None
    epochs_least_ratio: float | None
    epochs_most_ratio: float | None
    epochs_basis: str
    accuracy_speedup_ratio: float | None


def own_method(scenario: Scenario) -> str | None:
    """Return the method that a scenario states, None where it states none or ``auto``.

    Examples
    --------
    >>> own_method(Scenario(model="resnet50", gpus=8, method="DGC"))
    'dgc'
    >>> own_method(Scenario(model="resnet50", gpus=8)) is None
    True
    """
    if "method" not in scenario.model_fields_set or scenario.method.lower() == AUTO_METHOD:
        return None
    return method_name(scenario.method)


def chosen_methods(given: str | Iterable[str] | None, own: str | None) -> list[str]:
    """Return the methods to compare: all, or those named and the scenario's own.

    Raises
    ------
    RequestError
        If one does not exist, or none is named.

    Examples
    --------
    >>> chosen_methods("topk, DGC,topk", "ssgd")
    ['topk', 'dgc', 'ssgd']
    """
    if given is None:
        return method_names()
    listed = given.split(",") if isinstance(given, str) else given
    texts = list(listed) if isinstance(listed, Iterable) else [listed]
    if not all(isinstance(text, str) for text in texts):
        why = f"{shown(given)} is not a list of names, such as ssgd,topk,dgc."
        raise RequestError("methods", why, value=given)
    texts = [text.strip() for text in texts]
    if not any(texts):
        raise RequestError(
            "methods",
            f"{given!r} names no method; a list such as ssgd,topk,dgc is needed.",
            value=given,
        )
    if any(text.lower() == AUTO_METHOD for text in texts):
        raise RequestError(
            "methods", "auto is not a method; leave `methods` out to compare all.", value=given
        )
    named = [method_name(text, "methods") for text in texts if text]
    return list(dict.fromkeys([*named, own] if own else named))


def options_of_each(
    scenario: Scenario, own: str | None, names: Sequence[str], options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the options that each method is compared with.

    The scenario's options are for its own method. In ``options``, ``name`` goes to all methods that
    have it and ``method.name`` to one; the latter wins.

    Raises
    ------
    RequestError
        If no method has an option, or none that has it allows its value.
    """
    every = {**({} if own else scenario.options), **options}
    result = {name: dict(scenario.options) if name == own else {} for name in names}
    holders = {}
    for option in sorted(every, key=lambda option: "." in option):
        holders[option] = _holders(option, names)
        for name in holders[option]:
            result[name][option.rpartition(".")[2]] = every[option]
    refusals = {name: error for name in names if (error := _refusal(name, result[name]))}
    if own in refusals and scenario.options:
        raise refusals[own]
    for having in holders.values():
        if all(name in refusals for name in having):
            raise refusals[having[0]]
    return result


def _holders(option: str, names: Sequence[str]) -> list[str]:
    """Return the methods that an option is for: it is written ``name`` or ``method.name``."""
    owner, _, plain = option.rpartition(".")
    if owner:
        name = method_name(owner, "options")
        if name not in names:
            raise RequestError(f"options.{option}", f"{name} is not among the methods compared.")
        load_method(name, {})
        having = [name] if plain in method_class(name).model_fields else []
        choices = sorted(method_class(name).model_fields)
    else:
        having = [name for name in names if plain in method_class(name).model_fields]
        choices = sorted({field for name in names for field in method_class(name).model_fields})
    if not having:
        raise unknown("options", plain, choices)
    return having


def _refusal(name: str, options: Mapping[str, Any]) -> RequestError | None:
    try:
        load_method(name, options)
    except RequestError as error:
        return error
    return None


@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
    """Predictions of several methods on one scenario.

    Parameters
    ----------
    ranking : methods by time to the same accuracy, which are left out, and why
    rows : predictions as they are sorted by ``sort``, one of ``SORTS``
    own : the method that the scenario states, if any
    baseline : S-SGD with DDP's buckets and overlap, which speed-ups are relative to
    notes : what to know before deciding by the table
    asked : the scenario of each method
    catalog : what more is asked of than the predictions
    """

    ranking: Ranking
    rows: list[Prediction]
    sort: str
    own: str | None
    baseline: Prediction
    notes: list[str]
    asked: Mapping[str, Scenario]
    catalog: Catalog = field(compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what it holds, with what more is asked of the files as they are here and now."""
        return {**vars(self), "winners": self.winners}

    @cached_property
    def winners(self) -> Mapping[str, str]:
        """By software era of eager PyTorch, the first method if its kernels ran."""
        return _winners(self.ranking, self.asked, self.catalog)

    def __repr__(self) -> str:
        """Return the question and the answer on one line."""
        first = self.ranking.predictions[self.ranking.winner]
        low, high = first.iteration_s_interval
        close = len(self.ranking.undecided())
        alike = f" ({close} too close to call)" if close else ""
        return (
            f"<Comparison {first.scenario.place}: {self.ranking.winner} is first of"
            f" {len(self.rows)} methods{alike}, {format_seconds(first.iteration_s)} an iteration"
            f" ({format_seconds(low, 3)} to {format_seconds(high, 3)}), {first.speedup:.2f}x S-SGD>"
        )

    @property
    def rule(self) -> str:
        """When one method counts as faster than another, in words."""
        error = "the median error of such predictions against published runs"
        if self.ranking.known is None:
            return (
                "One method counts as faster than another if their 90 % intervals do not overlap"
                f" and the difference exceeds {error}. {_EPOCHS_RULE}"
            )
        return (
            "One method counts as faster than another if the difference exceeds the 90 % interval"
            f" of their ratio and {error}. Errors that both share, in computation or in links,"
            " cancel in the ratio; so two methods can differ although their own intervals overlap."
            f" {_EPOCHS_RULE}"
        )

    def standings(self) -> list[Standing]:
        """Return each method's rank, margins and what is sure, in the ranking's order."""
        ranking = self.ranking
        close = {ranking.winner, *ranking.undecided()}
        apart = set(ranking.by_iteration_only)
        followed = dict(pairwise(ranking.ranked)) | dict(pairwise(ranking.by_iteration_only))
        first_s = ranking.accuracy_s(ranking.winner)
        result = []
        for index, (name, one) in enumerate(ranking.predictions.items()):
            after, factor = followed.get(name), ranking.factor(name)
            own_s = ranking.accuracy_s(name)
            result.append(
                Standing(
                    method=name,
                    rank=None if name in apart else index + 1,
                    behind_first_ratio=own_s / first_s - 1.0,
                    next_behind_ratio=ranking.accuracy_s(after) / own_s - 1.0 if after else None,
                    told_apart=ranking.sooner(name, after) if after else None,
                    may_be_fastest=name in close,
                    against_ssgd=self._side(one),
                    learns_as_ssgd=not method_class(name).lossy,
                    compression=settings_of(one.scenario.options),
                    epochs_ratio=factor.middle,
                    epochs_least_ratio=factor.low,
                    epochs_most_ratio=None if factor.high == inf else factor.high,
                    epochs_basis=factor.basis,
                    accuracy_speedup_ratio=self.baseline.iteration_s / own_s
                    if factor.known
                    else None,
                )
            )
        return result

    def _side(self, prediction: Prediction) -> Side | None:
        """Compare one method with S-SGD; None for S-SGD itself."""
        if (
            prediction.scenario.method == _BASELINE
            and prediction.iteration_s == self.baseline.iteration_s
        ):
            return None
        ahead = prediction.iteration_s < self.baseline.iteration_s
        pair = (prediction, self.baseline) if ahead else (self.baseline, prediction)
        if not self.ranking.apart(*pair):
            return "not told apart"
        return "faster" if ahead else "slower"

    def sides(self) -> dict[Side, list[str]]:
        """Return the methods that are faster than S-SGD, slower, and too close to call."""
        result: dict[Side, list[str]] = {"faster": [], "not told apart": [], "slower": []}
        for standing in self.standings():
            if standing.against_ssgd is not None:
                result[standing.against_ssgd].append(standing.method)
        return result

    def verdict(self) -> list[str]:
        """Say who is fastest and how sure that is, who beats S-SGD, and the scenario's method."""
        sides = self.sides()
        others = sum(map(len, sides.values()))
        lines = [self.ranking.verdict()]
        if others:
            close = sides["not told apart"]
            text = (
                f"By iteration time, {len(sides['faster'])} of {others} are faster than S-SGD and"
                f" {len(sides['slower'])} slower; {len(close)} too close to call"
            )
            lines.append(f"{text}: {few(close)}." if close else f"{text}.")
        return [*lines, *self._era_verdict(), *self._own_verdict()]

    def brief(self) -> list[str]:
        """Say in two short sentences who is first, and what else may change a decision.

        That is how the method does that the scenario states, if it states one that is not first.
        """
        first, *others = self.ranking.brief()
        own = self._own_verdict() if self.own != self.ranking.winner else []
        return [first, *(own or others)]

    def _era_verdict(self) -> list[str]:
        """Say which method would win in other software eras, where it is another one."""
        eras: dict[str, list[str]] = {}
        for era, winner in self.winners.items():
            if winner != self.ranking.winner:
                eras.setdefault(winner, []).append(era)
        return [f"In {', '.join(names)}, {winner} would win." for winner, names in eras.items()]

    def _own_verdict(self) -> list[str]:
        own, ranking = self.own, self.ranking
        if own is None or len(ranking.predictions) == 1:
            return []
        if own not in ranking.predictions:
            return [f"Your method {own} is left out: {ranking.refused[own]}."]
        standing = next(one for one in self.standings() if one.method == own)
        if standing.rank is None:
            return [f"Your method {own} has no rank: {ranking.factor(own).why}."]
        text = f"Your method {own} has rank {standing.rank} of {len(ranking.ranked)}"
        if standing.rank == 1:
            return [f"{text}."]
        times = f"{1.0 + standing.behind_first_ratio:.2f} times as long as {ranking.winner}"
        sure = "; too close to call" if standing.may_be_fastest else ""
        return [f"{text}: it takes {times}{sure}."]

    def records(self) -> list[dict[str, Any]]:
        """Return each row as a flat record: standing, then prediction (see ``flat_record``).

        `to_pandas` has them as a table.
        """
        columns = table_columns()
        standings = {one.method: one._asdict() for one in self.standings()}
        return [
            {
                **standings[one.scenario.method],
                **flat_record(one.to_dict(provenance=False), columns, one.memory_usable_bytes),
            }
            for one in self.rows
        ]

    def plot(self, kind: Literal["ranking", "breakdown", "scaling"] = "ranking") -> Figure:
        """Draw the comparison with Plotly; times are in s, ms or us, by their size.

        Parameters
        ----------
        kind : "ranking": iterations with their intervals, in order of the time to the same
            accuracy; "breakdown": what each iteration is made of, in per cent of it; "scaling":
            samples a second over GPUs of S-SGD, the first and one more, predicted now (see
            `scaling_of`)

        Raises
        ------
        RequestError
            If Plotly is not installed, or there is no such kind.

        Examples
        --------
        >>> from perfsim import Scenario, compare
        >>> found = compare(Scenario(model="resnet50", gpus=16, net="1gbe"), ["ssgd", "dgc"])
        >>> list(found.plot("breakdown").data[0].y)
        ['dgc', 'ssgd']
        """
        return self._plotted(kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, by the contract perfsim/compare/1."""
        return {
            "schema": COMPARISON_SCHEMA,
            "caveat": CAVEAT,
            "verdict": self.verdict(),
            "rule": self.rule,
            "winner": self.ranking.winner,
            "margin": self.ranking.margin,
            "winners_by_software": dict(self.winners),
            "undecided": self.ranking.undecided(),
            "iteration_time_only": self.ranking.by_iteration_only,
            "warnings": self.ranking.warnings(),
            "learning": {
                name: self.ranking.factor(name).to_dict() for name in self.ranking.predictions
            },
            "same_learning": self.ranking.same_learning,
            "own": self.own,
            "baseline": {"method": _BASELINE, "iteration_s": self.baseline.iteration_s},
            "standings": [one._asdict() for one in self.standings()],
            "sort": self.sort,
            "rows": [one.to_dict(provenance=False) for one in self.rows],
            "left_out": self.ranking.refused,
            "kept_own_fusion": self.ranking.kept,
            "notes": self.notes,
        }


def comparison_notes(
    ranking: Ranking,
    options: Mapping[str, Any],
    given: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Say who learns differently, who does not fit, which options go where, and common notes.

    ``options`` are those set for all methods, ``given`` those of each.
    """
    notes = [*_learning(ranking, given), *_memory(ranking), *_in_16_bits(ranking)]
    notes += _unlike_intervals(ranking, given)
    for option, value in options.items():
        if "." not in option:
            having = [name for name in sorted(given) if option in given[name]]
            notes.append(
                f"`options` {option}={value} goes to the methods that have it: {', '.join(having)}."
            )
    notes += [*_workers(ranking, given), *_different_values(ranking), *ranking.kept_words()]
    first, *others = ranking.predictions.values()
    if not others:
        return notes + of_grade(first.notes, "assumption")
    common = set(first.notes).intersection(*(one.notes for one in others))
    return notes + [note for note in first.notes if note in common]


def _learning(ranking: Ranking, given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say which methods change what is learnt and why, and what is known of each."""
    reasons: dict[str, list[str]] = {}
    for name in sorted(ranking.predictions):
        family = method_class(name).family
        if load_method(name, given[name]).delay():
            reasons.setdefault(_DELAYED, []).append(name)
        elif method_class(name).lossy:
            reasons.setdefault(_FAMILY_WORDS.get(family, family), []).append(name)
    if not reasons:
        return []
    order = [*(_FAMILY_WORDS.get(family, family) for family in FAMILIES), _DELAYED]
    groups = "; ".join(
        f"{group} ({', '.join(reasons[group])})" for group in order if group in reasons
    )
    notes: list[str] = [
        warning(
            "These methods learn differently from ssgd; they may need more epochs for the same"
            f" accuracy, or not reach it: {groups}.",
            "methods with * learn differently from S-SGD; epochs says what is known of how many"
            " they need",
        )
    ]
    factors = {name: ranking.factor(name) for name in ranking.predictions}
    return [*notes, *learning_notes(factors)]


def _in_16_bits(ranking: Ranking) -> list[str]:
    """Say which methods compute in 16 bits where others cast the values of an fp32 model."""
    names = [
        name
        for name, one in sorted(ranking.predictions.items())
        if any(IN_16_BITS in note for note in one.notes)
    ]
    others = "the others" if len(names) < len(ranking.predictions) else "S-SGD"
    return [in_16_bits(names, others)] if names else []


def _workers(ranking: Ranking, given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say where some methods have a node, others a GPU that trains by itself in between."""
    asked = next(iter(ranking.predictions.values())).scenario
    if asked.gpus == asked.nodes:
        return []
    of_node: dict[bool, list[str]] = {True: [], False: []}
    for name in sorted(ranking.predictions):
        method = load_method(name, given[name])
        if method.interval_option:
            of_node[method.sites_are_nodes].append(name)
    if not (of_node[True] and of_node[False]):
        return []
    return [
        "What trains by itself between two exchanges: each node or site, whose GPUs exchange in"
        f" every iteration ({', '.join(of_node[True])}); each GPU ({', '.join(of_node[False])})."
    ]


def _unlike_intervals(ranking: Ranking, given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warn where the two first methods exchange after different numbers of iterations."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name in list(ranking.predictions)[:2]:
        method = load_method(name, given[name])
        if method.interval_option:
            interval = int(getattr(method, method.interval_option))
            found.setdefault(method.interval_option, []).append((name, interval))
    notes: list[str] = []
    for option, several in found.items():
        if len({interval for _, interval in several}) > 1:
            words = ", ".join(f"{name} after {interval}" for name, interval in several)
            text = (
                f"They exchange after different numbers of iterations, each by its default or as"
                f" asked: {words}. `options` {option}=N sets one for both."
            )
            brief = (
                f"they exchange after unlike iterations ({words}); `options` {option}=N for both"
            )
            notes.append(warning(text, brief))
    return notes


def _different_values(ranking: Ranking) -> list[str]:
    """Say which options of one name (density, bits, interval) differ between the methods."""
    values: dict[str, dict[str, list[str]]] = {}
    for name in sorted(ranking.predictions):
        for option, value in ranking.predictions[name].scenario.options.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values.setdefault(option, {}).setdefault(f"{value:g}", []).append(name)
    different = [
        f"{option} {', '.join(f'{value} ({_few(names)})' for value, names in sorted(each.items()))}"
        for option, each in sorted(values.items())
        if len(each) > 1
    ]
    if not different:
        return []
    return [f"Options that differ (`options` sets one value for all): {'; '.join(different)}."]


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _MAX_NAMES else f"{len(names)} methods"


def _memory(ranking: Ranking) -> list[str]:
    """Say which methods need more than the smallest GPU's memory."""
    names = [name for name in ranking.predictions if name in ranking.unfit]
    gpu = ranking.predictions[ranking.winner].scenario.gpu
    return [f"These do not fit into {gpu}'s memory: {', '.join(names)}."] if names else []


def compare(
    scenario: Scenario | Mapping[str, Any],
    methods: str | Iterable[str] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    sort: str = BY_ACCURACY,
    catalog: Catalog | None = None,
    tell: ReportMethod | None = None,
    equal_bytes: str | None = None,
    epochs_of: Mapping[str, float] | None = None,
) -> Comparison:
    """Predict methods side by side on one scenario.

    Parameters
    ----------
    scenario : a scenario or a dict of its fields; its options and ``single_gpu_kernels`` are for
        the method that it states
    methods : names, as a list or with commas between; None for all. The scenario's own is added.
    options : by name, for all methods that have it, or by ``method.name``, for one
    sort : what rows are sorted by, one of ``SORTS``
    tell : called before each prediction
    equal_bytes : a method, or a ratio to S-SGD's bytes: density, rank or bits of each method that
        compresses are set so that it sends as much (see `perfsim.planning.equal_bytes`)
    epochs_of : epochs of methods as multiples of S-SGD's, in place of what is known

    Raises
    ------
    RequestError
        If the scenario cannot be predicted, a name does not exist, or no method applies.

    Examples
    --------
    >>> from perfsim import Scenario, compare
    >>> asked = Scenario(model="resnet50", gpus=16, net="1gbe")
    >>> found = compare(asked, ["ssgd", "topk", "dgc"], options={"density": 0.01})
    >>> [one.scenario.method for one in found.rows]
    ['dgc', 'ssgd', 'topk']
    >>> found.rows[0].speedup > 2
    True
    >>> [(row["against_ssgd"], row["epochs_ratio"]) for row in found.records()]
    [('faster', 1.0), (None, 1.0), ('faster', None)]
    """
    if sort not in SORTS:
        raise unknown("sort", str(sort), SORTS)
    scenario, catalog = as_scenario(scenario), fresh(catalog)
    own = own_method(scenario)
    names = chosen_methods(methods, own)
    given = options_of_each(scenario, own, names, options or {})
    plain = scenario.model_copy(
        update={"method": _BASELINE, "options": {}, "single_gpu_kernels": None}
    )
    asked = _asked(scenario, plain, own, given)
    equal = EqualBytes(asked, {}, [])
    if equal_bytes is not None:
        equal = set_equal_bytes(equal_bytes, asked, plain, catalog)
        asked = equal.asked
    ranking = rank_methods(plain, asked, catalog, tell, epochs_of)
    ranking.refused.update(equal.refused)
    if not ranking.predictions:
        why = "; ".join(f"{name}: {reason}" for name, reason in ranking.refused.items())
        raise RequestError("methods", f"none of them applies: {why}.")
    rows = list(ranking.predictions.values())
    rows.sort(key=SORTS[sort])  # ties keep the ranking's order
    notes = [*equal.notes, *_not_equal(ranking, equal.unset)]
    notes += comparison_notes(ranking, options or {}, given)
    baseline = _baseline(ranking, plain, catalog)
    return Comparison(ranking, rows, sort, own, baseline, notes, asked, catalog)


def _not_equal(ranking: Ranking, unset: Collection[str]) -> list[str]:
    """Warn of the methods but S-SGD that `equal_bytes` leaves as they are: no compressors."""
    names = [name for name in ranking.predictions if name in unset and name != _BASELINE]
    if not names:
        return []
    sent = {
        name: format_bytes(ranking.predictions[name].communication["bytes_per_gpu"], 3)
        for name in names
    }
    text = (
        "Not set by `equal_bytes`, which sets compressors of gradients alone:"
        f" {', '.join(f'{name} {size}' for name, size in sent.items())}."
    )
    return [warning(text, f"not at equal bytes, as no compressors of gradients: {few(names)}")]


def _winners(ranking: Ranking, asked: Mapping[str, Scenario], catalog: Catalog) -> dict[str, str]:
    """Return the fastest method by software era of eager PyTorch, that asked for among them.

    Not asked of varying or shared conditions, whose runs take long.
    """
    scenario = next(iter(asked.values()))
    if len(ranking.predictions) == 1 or scenario.jitter or scenario.beside:
        return {}
    own = scenario.software or NEWEST
    eras = [own, *(era for era in ERAS if ERAS[era].framework == "pytorch" and era != own)]
    return {
        era: ranking.winner if era == own else _winner_in(era, ranking, asked, catalog)
        for era in eras
    }


def _winner_in(era: str, ranking: Ranking, asked: Mapping[str, Scenario], catalog: Catalog) -> str:
    """Return the fastest method in another software era.

    Passes are shorter in it by a known part, and a method saves at most all that its kernels and
    updates take; one that would be slower even so is not asked for.
    """
    first = ranking.winner
    share = _shortest_share(for_method(asked[first], first)[0], era, catalog)
    least = {}
    for name in ranking.ranked:
        one = ranking.predictions[name]
        free_s = max(0.0, share * one.iteration_s - _beside_passes_s(one))
        least[name] = free_s * (ranking.factor(name).middle or 1.0)
    best = inf
    for name in sorted(ranking.ranked, key=lambda name: least[name]):
        if least[name] >= best:
            break
        method = for_method(asked[name], name)[0]
        seconds = _iteration_s(method, era, catalog) * (ranking.factor(name).middle or 1.0)
        order = ranking.ranked.index
        if seconds < best or (seconds == best and order(name) < order(first)):
            best, first = seconds, name
    return first


def _shortest_share(scenario: Scenario, era: str, catalog: Catalog) -> float:
    """Return how long any pass takes in another era at least, as a share of what it takes here."""
    own = resolve(scenario, catalog)
    there = resolve(scenario.model_copy(update={"software": era}), catalog)
    if own.split is not None:
        return 0.0
    pairs = [
        (getattr(one, part), getattr(other, part))
        for one, other in zip(own.profile_in_node.layers, there.profile_in_node.layers, strict=True)
        for part in ("forward_s", "backward_s")
    ]
    pairs.append((own.profile_in_node.other_s, there.profile_in_node.other_s))
    return float(min(1.0, *(then_s / now_s for now_s, then_s in pairs if now_s > 0)))


def _beside_passes_s(prediction: Prediction) -> float:
    """Return how long kernels of the method and updates take in an iteration [s]."""
    kinds = ("compress", "decompress", "second_order", "update")
    total_s = iterations = 0.0
    for count, timeline in zip(prediction.counts, prediction.timelines, strict=True):
        tasks = timeline.graph.tasks
        total_s += count * sum_in_order(float(one.duration_s) for one in tasks if one.kind in kinds)
        iterations += count * timeline.graph.iterations
    return total_s / iterations


def _iteration_s(scenario: Scenario, software: str, catalog: Catalog) -> float:
    """Return an iteration [s] in another software era, and nothing else of its prediction."""
    setup = resolve(scenario.model_copy(update={"software": software}), catalog)
    return steady_s(build_rounds(setup, job_cache(catalog), timing_only=True))


def _asked(
    scenario: Scenario, plain: Scenario, own: str | None, given: Mapping[str, Mapping[str, Any]]
) -> dict[str, Scenario]:
    """Return the scenario for each method: ``plain`` with its options, and its kernels' time."""
    kernels = scenario.single_gpu_kernels
    if own is None and kernels is not None:
        raise RequestError(
            "single_gpu_kernels", "is for one method; name it by `method`, or leave it out."
        )
    return {
        name: plain.model_copy(
            update={"options": options, "single_gpu_kernels": kernels if name == own else None}
        )
        for name, options in given.items()
    }


def _baseline(ranking: Ranking, plain: Scenario, catalog: Catalog) -> Prediction:
    """Return S-SGD as DDP runs it by default, whatever is asked of the others."""
    own = ranking.predictions.get(_BASELINE)
    if own is not None and own.iteration_s == own.baseline_s:
        return own
    changes: dict[str, Any] = {"fusion": None, "bucket": None, "fusion_options": {}}
    changes |= {"overlap": True, "algorithm": AUTO, "protocol": AUTO}
    return predict(on_gpus(plain).model_copy(update=changes), catalog)


def scaling_of(
    comparison: Comparison, catalog: Catalog | None = None, tell: ReportMethod | None = None
) -> dict[str, dict[int, Prediction]]:
    """Return predictions by GPUs of S-SGD, the fastest method, and the scenario's own or the next.

    All else is as it was compared; nodes stay as full as they are. ``tell`` is called before each
    method.

    Examples
    --------
    >>> from perfsim import Scenario, compare
    >>> found = compare(Scenario(model="resnet18", gpus=2, net="1gbe"), ["ssgd", "dgc"])
    >>> {name: list(curve) for name, curve in scaling_of(found).items()}
    {'ssgd': [1, 2, 4, 8, 16, 32, 64], 'dgc': [1, 2, 4, 8, 16, 32, 64]}
    """
    catalog = fresh(catalog or comparison.catalog)
    predictions = comparison.ranking.predictions
    order = (_BASELINE, comparison.ranking.winner, comparison.own, *predictions)
    names = [name for name in dict.fromkeys(order) if name in predictions][:_MAX_CURVES]
    curves = {}
    for done, name in enumerate(names):
        if tell is not None:
            tell(done, len(names), f"scaling of {name}")
        curves[name] = _curve(comparison, name, catalog)
    return curves


def _curve(comparison: Comparison, name: str, catalog: Catalog) -> dict[int, Prediction]:
    known = comparison.ranking.predictions[name]
    own, each = known.scenario.gpus, known.scenario.gpus_per_node
    curve: dict[int, Prediction] = {}
    for gpus in thinned(gpu_counts(own, each), known):
        changes = {"gpus": gpus, "gpus_per_node": min(gpus, each), "placement": None}
        asked = comparison.asked[name].model_copy(update=changes)
        try:
            curve[gpus] = known if gpus == own else predict(for_method(asked, name)[0], catalog)
        except RequestError:
            continue  # the method does not run on so many
    return curve
