"""Rank every applicable method on one scenario by time to the same accuracy (method "auto")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from perfsim.compute.host_offload import CHECKPOINTS, NOTHING, offloaded
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.interval import NO_METHOD, Uncertainty, uncertainties
from perfsim.methods import method_class, method_names
from perfsim.methods.fusion_settings import WHY_KEPT, check_fusion_options, for_method
from perfsim.methods.learning import same_update
from perfsim.prediction import Prediction, predict_as_read
from perfsim.scenario import Scenario
from perfsim.session import fresh
from perfsim.sums import sum_in_order
from perfsim.time_to_accuracy import (
    AS_MANY_EPOCHS,
    EpochsFactor,
    EpochsFactors,
    check_epochs_of,
    learning_warnings,
)

__all__ = [
    "CAVEAT",
    "RANKING_SCHEMA",
    "Ranking",
    "ReportMethod",
    "few",
    "median_errors",
    "method_of",
    "on_gpus",
    "rank",
    "rank_methods",
    "refusal_reason",
]

RANKING_SCHEMA = "perfsim/ranking/1"

_SAME_TIME = 1e-6
"""Iterations within this part of each other are the same."""

CAVEAT = (
    "Ranked by time to the same accuracy: iteration time times the epochs that a method needs, as a"
    " multiple of S-SGD's, by published runs. Where nothing is known for the model, a method stands"
    " apart, by iteration time only."
)

_WORTH_SAYING = 1.01
"""How many times shorter an iteration is that is named for it."""

_MAX_NAMES = 8
"""Methods that a sentence names; JSON has all."""

_MAX_NAMES_IN_BRIEF = 3
"""Methods that a short sentence names."""

_NOBODY = "but nobody published how many epochs"

ReportMethod = Callable[[int, int, str], None]
"""Called before each prediction with how many are done, of how many, and the method's name."""


@dataclass(frozen=True)
class Ranking:
    """Predictions of all methods that apply, and why the others do not.

    First those whose learning is known, by time to the same accuracy; then the others, by iteration
    time.

    Parameters
    ----------
    predictions : by method, in this order
    refused : methods that do not apply, and why
    errors : the recorded median error of each method, as a fraction
    kept : by setting of fusion, the methods that keep their own instead
    known : the recorded errors of the parts of predictions; None without a record
    learning : what is known of the epochs that each method needs; empty where all are taken to
        need as many
    unfit : methods that need more memory than the GPU (the smallest of several) has
    """

    predictions: dict[str, Prediction]
    refused: dict[str, str]
    errors: dict[str, float] = field(default_factory=dict)
    kept: dict[str, list[str]] = field(default_factory=dict)
    known: Uncertainty | None = None
    learning: dict[str, EpochsFactor] = field(default_factory=dict)
    unfit: frozenset[str] = frozenset()

    @property
    def ranked(self) -> list[str]:
        """The methods whose learning is known; all, if it is known of none."""
        return [name for name in self.predictions if self.factor(name).known] or list(
            self.predictions
        )

    @property
    def by_iteration_only(self) -> list[str]:
        """The methods that stand apart: nothing says how many epochs they need."""
        ranked = set(self.ranked)
        return [name for name in self.predictions if name not in ranked]

    @property
    def winner(self) -> str:
        """The method that is soonest at S-SGD's accuracy."""
        return next(iter(self.predictions))

    @property
    def margin(self) -> float | None:
        """How much longer the next ranked method takes, as a fraction; None if there is none."""
        times = [self.accuracy_s(name) for name in self.ranked]
        return times[1] / times[0] - 1.0 if len(times) > 1 else None

    def factor(self, method: str) -> EpochsFactor:
        """Return what is known of the epochs that a method needs."""
        return self.learning.get(method, AS_MANY_EPOCHS)

    def accuracy_s(self, method: str) -> float:
        """Return the time of the epochs that a method needs, for each iteration of S-SGD's epochs.

        The iteration itself where that is not known.
        """
        return self.predictions[method].iteration_s * (self.factor(method).middle or 1.0)

    def undecided(self) -> list[str]:
        """Return the ranked methods that are too close to the winner to call (see ``sooner``)."""
        return [name for name in self.ranked[1:] if not self.sooner(self.winner, name)]

    def sooner(self, first: str, second: str) -> bool:
        """Say whether a method is surely sooner than another, by all epochs that they may need.

        Methods that make the same update at the same setting need as many epochs, whatever these
        are.
        """
        least, most = self.factor(second), self.factor(first)
        alike = same_update(first) == same_update(second) and least == most
        ratio = 1.0 if alike else (least.low or 1.0) / (most.high or 1.0)
        return self.apart(self.predictions[first], self.predictions[second], ratio)

    def apart(self, faster: Prediction, slower: Prediction, epochs_ratio: float = 1.0) -> bool:
        """Say whether one prediction is surely slower than another of the same scenario.

        The difference must exceed two errors: the 90 % interval of their ratio (see ``reach``;
        without a record, their 90 % intervals must not overlap), and the recorded median error of
        either method, or of all methods if one has no record. ``epochs_ratio`` is how many times
        the epochs of the faster the slower needs.
        """
        behind = epochs_ratio * slower.iteration_s / faster.iteration_s - 1.0
        if behind <= max(self.known_error(method_of(one)) for one in (faster, slower)):
            return False
        if self.known is None:
            least_s = epochs_ratio * slower.iteration_s_interval[0]
            return least_s > faster.iteration_s_interval[1]
        return behind > self.known.reach(faster.moves, slower.moves)

    def known_error(self, method: str) -> float:
        """Return the recorded median error of a method; that of all if it has no record."""
        if method in self.errors:
            return self.errors[method]
        return median(self.errors.values()) if self.errors else 0.0

    @property
    def same_learning(self) -> str | None:
        """The fastest method that changes nothing in training; None if none applies."""
        return next((name for name in self.predictions if not method_class(name).lossy), None)

    def verdict(self) -> str:
        """Say who is first, by how much, how sure that is, and who is fastest of the others."""
        said = self._first(), self._memory(), self._evidence(), self._same(), self._unknown()
        return " ".join(filter(None, said))

    def _memory(self) -> str:
        """Say who is first of those that fit into memory, where the winner does not."""
        if self.winner not in self.unfit:
            return ""
        fitting = [name for name in self.ranked if name not in self.unfit]
        first = f"of those that do, {fitting[0]} is first" if fitting else "none of the ranked does"
        return f"{self.winner} does not fit into the GPU's memory; {first}."

    def _evidence(self) -> str:
        """Say what the winner's epochs rest on, if on published results."""
        factor = self.factor(self.winner)
        if factor.basis != "evidence" or not factor.known:
            return ""
        return f"{self.winner} needs {factor.summary}."

    def _same(self) -> str:
        """Say how long the fastest method takes that changes nothing in training."""
        same = self.same_learning
        if same is None or same in self._rivals()[:2]:  # of the second it is said how far it is
            return ""
        slower = self.accuracy_s(same) / self.accuracy_s(self.winner)
        subject = (
            "S-SGD itself, which changes nothing in training,"
            if same == "ssgd"
            else f"{same}, the fastest that changes nothing in training,"
        )
        return f"{subject} takes {slower:.3g} times as long."

    def _unknown(self) -> str:
        """Say whose iterations are shorter than the winner's, if nothing is known of them."""
        others = self._shorter_unknown()
        if not others:
            return ""
        ahead = self.predictions[self.winner].iteration_s / self.predictions[others[0]].iteration_s
        subject = others[0] if len(others) == 1 else f"{others[0]} and {len(others) - 1} more"
        return (
            f"{subject} {'has' if len(others) == 1 else 'have'} shorter iterations but no published"
            f" result for this model and setting: {others[0]} would be sooner with fewer than"
            f" {ahead:.3g} times S-SGD's epochs."
        )

    def _shorter_unknown(self) -> list[str]:
        """Return the methods with shorter iterations whose epochs nobody published."""
        first_s = self.predictions[self.winner].iteration_s
        return [
            name
            for name in self._as_fitting(self.by_iteration_only)
            if not self.factor(name).short
            and self.predictions[name].iteration_s * _WORTH_SAYING < first_s
        ]

    def _first(self) -> str:
        """Say who is first, how far ahead of the next, and how sure that is."""
        names = self._rivals()
        count = len(self.refused)
        left = f" {count} method{'s are' if count > 1 else ' is'} left out." if count else ""
        if (only := self._without_rival()) is not None:
            alone = len(self.predictions) > 1 and len(names) == 1
            return f"{only}{left if alone else ''}"
        fit = len(names) < len(self.ranked)
        close = [name for name in self.undecided() if name in names]
        first = self._title()
        if first.startswith("first"):
            which = "that fit into memory and whose" if fit else "whose"
            first = f"{first} among the {len(names)} {which} epochs are known"
        elif first == "fastest" and fit:
            first = f"{first} among the {len(names)} that fit into memory"
        return f"{self.winner} is {first}, {self._lead()}. {self._certainty(close)}{left}"

    def brief(self) -> list[str]:
        """Say in at most two short sentences who is first, and what else may change a decision."""
        second = self._memory() or self._unknown_in_brief() or self._same()
        return [self._first_in_brief(), *([second] if second else [])]

    def _first_in_brief(self) -> str:
        """Say who is first and how sure that is, in one sentence."""
        if (only := self._without_rival()) is not None:
            return only
        names = self._rivals()
        close = [name for name in self.undecided() if name in names]
        if close:
            return (
                f"Too close to call: {self.winner} is {self._title()}, but"
                f" {few(close, _MAX_NAMES_IN_BRIEF)} may be as fast."
            )
        lead = self._lead()
        return f"{self.winner} is {self._title()}, {lead}: more than such predictions err."

    def _unknown_in_brief(self) -> str:
        """Say who has shorter iterations than the winner, if nothing is known of their epochs."""
        others = self._shorter_unknown()
        if not others:
            return ""
        if len(others) == 1:
            return f"{others[0]} has shorter iterations, {_NOBODY} it needs here."
        last = others[1] if len(others) == 2 else f"{len(others) - 1} more"
        return f"{others[0]} and {last} have shorter iterations, {_NOBODY} they need here."

    def _without_rival(self) -> str | None:
        """Say that one method is the only one, or that all take the same time; None otherwise."""
        names = self._rivals()
        if len(self.predictions) == 1:
            only = "that applies" if self.refused else "asked for"
            return f"{self.winner} is the only method {only}."
        if len(names) == 1:
            fit = " that fits into memory and" if len(self.ranked) > 1 else ""
            return f"{self.winner} is the only method{fit} whose epochs are known for this model."
        if self.accuracy_s(names[-1]) / self.accuracy_s(self.winner) - 1.0 <= _SAME_TIME:
            others = names[1] if len(names) == 2 else f"{len(names) - 1} others"
            return f"No difference: {self.winner} and {others} take the same time."
        return None

    def _lead(self) -> str:
        """Say how far the winner is ahead of the next."""
        names = self._rivals()
        margin = self.accuracy_s(names[1]) / self.accuracy_s(self.winner) - 1.0
        if margin >= 1.0:
            return f"{1.0 + margin:.3g} times as soon as {names[1]}"
        if margin > _SAME_TIME:
            return f"{margin:.1%} ahead of {names[1]}"
        return f"level with {names[1]}"

    def _title(self) -> str:
        """Say what the winner is: first at the same accuracy, or fastest."""
        if not self.factor(self.winner).known:
            return "fastest by iteration time (nothing is known of its learning)"
        if self.by_iteration_only or any(
            self.factor(name).middle != 1.0 for name in self._rivals()
        ):
            return "first at the same accuracy"
        return "fastest"

    def _rivals(self) -> list[str]:
        """Return the ranked methods; if the winner fits into memory, those that do."""
        return self._as_fitting(self.ranked)

    def _as_fitting(self, names: Sequence[str]) -> list[str]:
        """Return those of some methods that fit into memory, if the winner does, else all."""
        left_out = frozenset() if self.winner in self.unfit else self.unfit
        return [name for name in names if name not in left_out]

    def _certainty(self, close: Sequence[str]) -> str:
        """Say that the lead is sure, or which methods are too close to the winner to call."""
        if not close:
            error = self.known_error(self.winner)
            return f"The lead exceeds the error of such predictions ({error:.0%} median)."
        why = "the difference is within the error of such predictions"
        if self.known is None:
            why = "their 90 % intervals overlap"
        if any(self.factor(name).basis == "evidence" for name in (self.winner, *close)):
            why += " and the spread of epochs"
        return f"Too close to call: {few(close)} may be as fast ({why})."

    def warnings(self) -> list[str]:
        """Return what is known against the learning of methods at their settings."""
        return learning_warnings({name: self.factor(name) for name in self.predictions})

    def left_out(self) -> dict[str, list[str]]:
        """Return the methods that are left out by reason, the most frequent reason first."""
        found: dict[str, list[str]] = {}
        for name, reason in self.refused.items():
            found.setdefault(reason, []).append(name)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def kept_words(self) -> list[str]:
        """Say, for each setting of fusion, which methods it does not apply to."""
        sentences = []
        for setting, names in self.kept.items():
            field = setting.split()[0].strip("`")
            others = sorted(name for name in self.predictions if name not in names)
            which = f"these keep their own: {', '.join(names)}"
            if len(others) < len(names):
                which = f"it goes to {', '.join(others) or 'none'}; the others keep theirs"
            sentences.append(f"{setting} {WHY_KEPT[field]}: {which}.")
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return the ranking with the winner's prediction, by the contract perfsim/ranking/1."""
        return {
            "schema": RANKING_SCHEMA,
            "caveat": CAVEAT,
            "verdict": self.verdict(),
            "winner": self.winner,
            "same_learning": self.same_learning,
            "margin": self.margin,
            "undecided": self.undecided(),
            "iteration_time_only": self.by_iteration_only,
            "does_not_fit": sorted(self.unfit),
            "warnings": self.warnings(),
            "methods": [
                {
                    "method": name,
                    "accuracy_s": self.accuracy_s(name) if self.factor(name).known else None,
                    "learning": self.factor(name).to_dict(),
                    "iteration_s": one.iteration_s,
                    "iteration_s_interval": list(one.iteration_s_interval),
                    "speedup": one.speedup,
                    "bytes_per_gpu": one.communication["bytes_per_gpu"],
                    "lossy": method_class(name).lossy,
                    "needs": method_class(name).needs,
                    "fusion": one.scenario.fusion,
                    "bucket_bytes": one.scenario.bucket_bytes,
                }
                for name, one in self.predictions.items()
            ],
            "left_out": self.refused,
            "kept_own_fusion": self.kept,
            "prediction": self.predictions[self.winner].to_dict(),
        }


def rank(
    scenario: Scenario,
    catalog: Catalog | None = None,
    tell: ReportMethod | None = None,
    epochs_of: Mapping[str, float] | None = None,
) -> Ranking:
    """Predict every method with its own defaults on ``scenario``, soonest at the accuracy first.

    Settings of fusion go to the methods to which they apply (see ``for_method``); ``tell`` is
    called before each prediction; ``epochs_of`` has epochs of methods as multiples of S-SGD's, in
    place of what is known.

    Raises
    ------
    RequestError
        If the scenario sets options of a method, or cannot be predicted whatever the method, or
        none applies.
    """
    if scenario.options:
        names = ", ".join(scenario.options)
        raise RequestError(
            "options",
            f"{names} is for one method; `method` auto compares methods with their defaults.",
        )
    asked = dict.fromkeys(method_names(), scenario)
    ranking = rank_methods(scenario, asked, catalog, tell, epochs_of)
    if not ranking.predictions:
        # Most are refused alike, and told to take one that has a reason of its own.
        alike = {name: why.replace(name, "") for name, why in ranking.refused.items()}
        counts = Counter(alike.values())
        name = min(alike, key=lambda one: counts[alike[one]])
        raise RequestError("method", f"none applies; {name}: {ranking.refused[name]}.")
    return ranking


def on_gpus(scenario: Scenario) -> Scenario:
    """Return a scenario for S-SGD beside others: its code keeps no state on a host."""
    kept = CHECKPOINTS if CHECKPOINTS in offloaded(scenario.offload) else NOTHING
    return scenario.model_copy(update={"offload": kept})


def rank_methods(
    scenario: Scenario,
    asked: Mapping[str, Scenario],
    catalog: Catalog | None = None,
    tell: ReportMethod | None = None,
    epochs_of: Mapping[str, float] | None = None,
) -> Ranking:
    """Predict some methods on ``scenario``, soonest at S-SGD's accuracy first.

    ``asked`` has, by the method's name, the scenario with what is set for it alone; ``scenario``
    itself has what is set for all. ``tell`` is called before each prediction; ``epochs_of`` is as
    for ``rank``.

    Raises
    ------
    RequestError
        If the scenario cannot be predicted whatever the method, or epochs are stated of a method
        that is not asked of.
    """
    catalog = fresh(catalog)
    check_fusion_options(scenario)
    check_epochs_of(epochs_of, asked)
    plain = for_method(on_gpus(scenario), "ssgd")[0]
    plain = plain.model_copy(update={"bucket": scenario.bucket})
    predict_as_read(plain, catalog)  # raises for all of them
    predictions: dict[str, Prediction] = {}
    refused: dict[str, str] = {}
    kept: dict[str, list[str]] = {}
    for done, (name, own) in enumerate(asked.items()):
        if tell is not None:
            tell(done, len(asked), name)
        try:
            its, flags = for_method(own, name)
            predictions[name] = predict_as_read(its, catalog)
        except RequestError as error:
            if error.field.startswith("fusion_options."):  # a wrong value, whatever the method
                raise
            refused[name] = refusal_reason(name, error)
            continue
        for flag in flags:
            kept.setdefault(flag, []).append(name)

    model = next(iter(predictions.values())).scenario.model if predictions else scenario.model
    factors = EpochsFactors(catalog, model, given=epochs_of)
    learning = {name: factors.of_scenario(one.scenario) for name, one in predictions.items()}

    def order(name: str) -> tuple[bool, float, bool, bool, str]:
        factor = learning[name]
        rounded = float(f"{predictions[name].iteration_s * (factor.middle or 1.0):.9g}")
        return not factor.known, rounded, method_class(name).lossy, name != "ssgd", name

    ranked = {name: predictions[name] for name in sorted(predictions, key=order)}
    known = uncertainties(catalog).get(NO_METHOD)
    unfit = frozenset(name for name, one in predictions.items() if not _fits(one))
    return Ranking(ranked, refused, median_errors(catalog), kept, known, learning, unfit)


def _fits(prediction: Prediction) -> bool:
    """Tell whether a prediction fits into the memory of its GPU, of the smallest of several."""
    usable = prediction.memory_usable_bytes
    return usable is None or sum_in_order(prediction.memory_bytes.values()) <= usable


def few(names: Sequence[str], most: int = _MAX_NAMES) -> str:
    """Name some methods, and count the others.

    Examples
    --------
    >>> few(["a", "b"]), few([str(number) for number in range(10)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def median_errors(catalog: Catalog) -> dict[str, float]:
    """Return the recorded median error of each method, as a fraction."""
    from perfsim.validate.accuracy import recorded_accuracy

    return {name: one.median_error for name, one in recorded_accuracy(catalog).items()}


def method_of(prediction: Prediction) -> str:
    """Return the name of the method that was predicted."""
    return prediction.scenario.method


def refusal_reason(name: str, error: RequestError) -> str:
    """Return why a method does not apply, without its name, which stands beside the reason."""
    why = error.why if error.field == "method" else str(error)
    return why.removeprefix(f"{name} ").removesuffix(".")
