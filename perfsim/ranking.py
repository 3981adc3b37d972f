"""Rank every applicable method on one scenario by time per iteration (method "auto")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.interval import NO_METHOD, Uncertainty, uncertainties
from perfsim.methods import method_class, method_names
from perfsim.methods.describe import WHY_KEPT, check_fusion_options, for_method
from perfsim.prediction import Prediction, predict
from perfsim.scenario import Scenario
from perfsim.session import default_session

__all__ = [
    "CAVEAT",
    "RANKING_SCHEMA",
    "Ranking",
    "ReportMethod",
    "median_errors",
    "method_of",
    "rank",
    "rank_methods",
    "refusal_reason",
]

RANKING_SCHEMA = "perfsim/ranking/1"

_SAME_TIME = 1e-6
"""Iterations within this part of each other are the same."""

CAVEAT = (
    "Ranked by iteration time only; methods that learn differently from ssgd may need more"
    " iterations."
)

ReportMethod = Callable[[int, int, str], None]
"""Called before each prediction with how many are done, of how many, and the method's name."""


@dataclass(frozen=True)
class Ranking:
    """Predictions of all methods that apply, fastest first, and why the others do not.

    Parameters
    ----------
    predictions : by method, fastest first
    refused : methods that do not apply, and why
    errors : the recorded median error of each method, as a fraction
    kept : by setting of fusion, the methods that keep their own instead
    known : the recorded errors of the parts of predictions; None without a record
    """

    predictions: dict[str, Prediction]
    refused: dict[str, str]
    errors: dict[str, float] = field(default_factory=dict)
    kept: dict[str, list[str]] = field(default_factory=dict)
    known: Uncertainty | None = None

    @property
    def winner(self) -> str:
        """The method with the shortest iteration."""
        return next(iter(self.predictions))

    @property
    def margin(self) -> float | None:
        """How much longer the next method's iteration is, as a fraction; None if there is none."""
        times = [prediction.iteration_s for prediction in self.predictions.values()]
        return times[1] / times[0] - 1.0 if len(times) > 1 else None

    def undecided(self) -> list[str]:
        """Return the methods that are too close to the winner to call (see ``apart``)."""
        first, *others = self.predictions.values()
        return [method_of(one) for one in others if not self.apart(first, one)]

    def apart(self, faster: Prediction, slower: Prediction) -> bool:
        """Say whether one prediction is surely slower than another of the same scenario.

        The difference must exceed two errors: the 90 % interval of their ratio (see ``reach``;
        without a record, their 90 % intervals must not overlap), and the recorded median error of
        either method, or of all methods if one has no record.
        """
        behind = slower.iteration_s / faster.iteration_s - 1.0
        if behind <= max(self.known_error(method_of(one)) for one in (faster, slower)):
            return False
        if self.known is None:
            return slower.iteration_s_interval[0] > faster.iteration_s_interval[1]
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
        """Say who is fastest, by how much, how sure that is, and who of those that learn alike."""
        same = self.same_learning
        if same is None or same == self.winner:
            return self._fastest()
        slower = self.predictions[same].iteration_s / self.predictions[self.winner].iteration_s
        subject = (
            "S-SGD itself, which changes nothing in training,"
            if same == "ssgd"
            else f"{same}, the fastest that changes nothing in training,"
        )
        return f"{self._fastest()} {subject} takes {slower:.3g} times as long."

    def _fastest(self) -> str:
        names = list(self.predictions)
        if self.margin is None:
            return f"{self.winner} is the only method that applies."
        close = self.undecided()
        if self.margin <= _SAME_TIME and len(close) == len(names) - 1:
            return f"No difference: {self.winner} and {len(close)} others take the same time."
        text = f"{self.winner} is fastest, {self.margin:.1%} ahead of {names[1]}."
        left = f" {len(self.refused)} methods are left out." if self.refused else ""
        if close:
            why = "the difference is within the error of such predictions"
            if self.known is None:
                why = "their 90 % intervals overlap"
            return f"{text} Too close to call: {', '.join(close)} may be as fast ({why}).{left}"
        error = self.known_error(self.winner)
        return f"{text} The lead exceeds the error of such predictions ({error:.0%} median).{left}"

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
            "methods": [
                {
                    "method": name,
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
    scenario: Scenario, catalog: Catalog | None = None, tell: ReportMethod | None = None
) -> Ranking:
    """Predict every method with its own defaults on ``scenario``, fastest first.

    Settings of fusion go to the methods to which they apply (see ``for_method``); ``tell`` is
    called before each prediction.

    Raises
    ------
    RequestError
        If the scenario sets options of a method, or cannot be predicted whatever the method.
    """
    if scenario.options:
        names = ", ".join(scenario.options)
        raise RequestError(
            "options",
            f"{names} is for one method; `method` auto compares methods with their defaults.",
        )
    return rank_methods(scenario, dict.fromkeys(method_names(), scenario), catalog, tell)


def rank_methods(
    scenario: Scenario,
    asked: Mapping[str, Scenario],
    catalog: Catalog | None = None,
    tell: ReportMethod | None = None,
) -> Ranking:
    """Predict some methods on ``scenario``, fastest first.

    ``asked`` has, by the method's name, the scenario with what is set for it alone; ``scenario``
    itself has what is set for all. ``tell`` is called before each prediction.

    Raises
    ------
    RequestError
        If the scenario cannot be predicted whatever the method.
    """
    catalog = catalog or default_session()
    check_fusion_options(scenario)
    plain = for_method(scenario, "ssgd")[0].model_copy(update={"bucket": scenario.bucket})
    predict(plain, catalog)  # raises for all of them
    predictions: dict[str, Prediction] = {}
    refused: dict[str, str] = {}
    kept: dict[str, list[str]] = {}
    for done, (name, own) in enumerate(asked.items()):
        if tell is not None:
            tell(done, len(asked), name)
        try:
            its, flags = for_method(own, name)
            predictions[name] = predict(its, catalog)
        except RequestError as error:
            if error.field.startswith("fusion_options."):  # a wrong value, whatever the method
                raise
            refused[name] = refusal_reason(name, error)
            continue
        for flag in flags:
            kept.setdefault(flag, []).append(name)

    def order(name: str) -> tuple[float, bool, bool, str]:
        rounded = float(f"{predictions[name].iteration_s:.9g}")
        return rounded, method_class(name).lossy, name != "ssgd", name

    ranked = {name: predictions[name] for name in sorted(predictions, key=order)}
    known = uncertainties(catalog).get(NO_METHOD)
    return Ranking(ranked, refused, median_errors(catalog), kept, known)


def median_errors(catalog: Catalog) -> dict[str, float]:
    """Return the recorded median error of each method, as a fraction."""
    from perfsim.validate.accuracy import ACCURACY_FILE, read_accuracy

    path = catalog.beside("methods", "", ACCURACY_FILE)
    return {line.method: line.median_error for line in read_accuracy(path)} if path else {}


def method_of(prediction: Prediction) -> str:
    """Return the name of the method that was predicted."""
    return prediction.scenario.method


def refusal_reason(name: str, error: RequestError) -> str:
    """Return why a method does not apply, without its name, which stands beside the reason."""
    why = error.why if error.field == "method" else str(error)
    return why.removeprefix(f"{name} ").removesuffix(".")
