"""Papers' claims beside what perfsim predicts in the papers' own settings.

A scenario file may hold ``[[claim]]`` tables: ``name`` (claims of one name are one claim over
several scenarios), ``against`` (the fields in which the rival differs; its options are its own; of
several rivals the best counts), ``part`` (what is compared: iteration, throughput, second_order,
communication or bytes; or single_gpu: how many times the work of one GPU is done), ``paper`` (one
or two figures), ``form`` (mean, range, up to, about), ``note`` (whether it was verified) and
``why`` (the likely reason for a difference). A claim is shown, never fitted to; ``perfsim predict``
shows the prediction beside each claim of the scenario file it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.data.toml import TomlTable
from perfsim.errors import DataError, RequestError
from perfsim.methods import load_method
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario
from perfsim.scenario_file import read_scenario
from perfsim.session import Session

__all__ = [
    "Claim",
    "ClaimResult",
    "claim_notes",
    "claims_of",
    "validate_claims",
]

_CLAIM_KEYS = ("name", "against", "part", "paper", "form", "note", "why")
_MAX_FIGURE = 1e12
"""No paper claims a factor above this: a larger number is a slip."""
_FORMS = ("mean", "range", "up to", "about")
_PART_WORDS = {
    "iteration": "as fast as {}",
    "throughput": "the throughput of {}",
    "second_order": "less second-order time than {}",
    "communication": "less communication than {}",
    "bytes": "fewer bytes than {}",
    "single_gpu": "the work of one GPU",
}
_FORM_WORDS = {"mean": "a mean of ", "range": "", "up to": "up to ", "about": "about "}

_REACHED_WITHIN = 0.10
"""Share of the paper's figure within which a mean, a maximum or an "about" is reached."""

_Predict = Callable[[Mapping[str, Any]], Prediction]

_COMPARED: dict[str, Callable[[Prediction], float]] = {
    "iteration": lambda prediction: prediction.iteration_s,
    "throughput": lambda prediction: 1.0 / prediction.samples_per_s,
    "second_order": lambda prediction: prediction.breakdown_s["second_order"],
    "communication": lambda prediction: prediction.communication["busy_s"],
    "bytes": lambda prediction: prediction.communication["bytes_per_gpu"],
}
"""Part of a claim -> its figure; the claim is the rival's figure over the scenario's own."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's claim about one scenario against a rival."""

    name: str
    against: tuple[Mapping[str, Any], ...]
    part: str
    paper: tuple[float, ...]
    form: str
    note: str
    why: str

    def rivals(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the fields of the rivals' scenarios; ``fields`` are the claim's own scenario."""
        bare = {**fields, "options": {}, "fusion_options": {}}
        return [{**bare, **rival} for rival in self.against]

    def words(self) -> str:
        """Return the paper's claim in words."""
        figures = " to ".join(f"{figure:g}" for figure in self.paper)
        how_much = f"{_FORM_WORDS[self.form]}{figures} times"
        rivals = " or ".join(_rival_words(rival) for rival in self.against)
        return f"{how_much} {_PART_WORDS[self.part].format(rivals)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as ``show scenario`` prints it."""
        return {"claim": self.name, "paper": self.words(), "note": self.note, "why": self.why}


def claims_of(name: str, catalog: Catalog) -> list[Claim]:
    """Return the claims of one scenario.

    Raises
    ------
    DataError
        If a claim lacks a key, or a value is not of the form that the module describes.
    """
    path = catalog.scenario(name)
    claims = []
    data = read_scenario(path)
    listed = data.get("claim", [])
    if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
        raise DataError("claim is not a list of tables ([[claim]])", path=path)
    for values in listed:
        table = TomlTable(values, path, "claim: ")
        table.only(_CLAIM_KEYS)
        rivals = table.values.get("against", {})
        against = tuple(rivals) if isinstance(rivals, list) else (rivals,)
        part = table.choice("part", tuple(_PART_WORDS))
        form = table.choice("form", _FORMS)
        paper = table.get("paper")
        numbers = paper if isinstance(paper, list) else [paper]
        if not against or not all(isinstance(rival, Mapping) for rival in against):
            raise table.wrong("against", "is not a table or a list of tables")
        if not 1 <= len(numbers) <= 2 or not all(map(_figure, numbers)):
            raise table.wrong("paper", "is not one or two numbers above zero")
        figures = tuple(map(float, numbers))
        note, why = (table.text(key) if key in table.values else "" for key in ("note", "why"))
        claim = Claim(table.text("name"), against, part, figures, form, note, why)
        try:
            for fields in claim.rivals(data["scenario"]):
                rival = make_scenario(fields)
                load_method(rival.method, rival.options)
        except RequestError as error:
            where = f"{error.field}: " if error.field else ""
            raise table.wrong("against", f"{where}{error.why}") from None
        claims.append(claim)
    return claims


def _rival_words(fields: Mapping[str, Any]) -> str:
    """Return the fields in which a rival differs, in words."""
    words = [
        f"{key} {value}".removeprefix("method ")
        for key, value in fields.items()
        if not isinstance(value, Mapping)
    ]
    words += [
        f"{key} {value}"
        for table in fields.values()
        if isinstance(table, Mapping)
        for key, value in table.items()
    ]
    return ", ".join(words) or "its own default options"


def _figure(value: object) -> bool:
    """Tell whether a value is a number that a paper may claim: above zero, not absurdly large."""
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MAX_FIGURE
    )


@dataclass(frozen=True)
class ClaimResult:
    """One claim with perfsim's figure for each of its scenarios."""

    claim: Claim
    ours: dict[str, float]

    @property
    def low(self) -> float:
        """The smallest of our figures."""
        return min(self.ours.values())

    @property
    def high(self) -> float:
        """The largest of our figures."""
        return max(self.ours.values())

    @property
    def mean(self) -> float:
        """The mean of our figures."""
        return mean(self.ours.values())

    def lands(self) -> str:
        """Say whether our figures reach the paper's."""
        paper = self.claim.paper
        if self.claim.form == "range":
            inside = [min(paper) <= value <= max(paper) for value in self.ours.values()]
            if all(inside):
                return "inside"
            return f"{sum(inside)} of {len(inside)} inside"
        own = {"mean": self.mean, "about": self.mean, "up to": self.high}[self.claim.form]
        off = own / paper[-1] - 1.0
        return (
            f"within {_REACHED_WITHIN:.0%}"
            if abs(off) <= _REACHED_WITHIN
            else f"outside: {off:+.0%}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "claim": self.claim.name,
            "form": self.claim.form,
            "paper": list(self.claim.paper),
            "note": self.claim.note,
            "ours": self.ours,
            "mean": self.mean,
            "lands": self.lands(),
            "why": self.claim.why,
        }


def claim_notes(name: str, catalog: Catalog, asked: Mapping[str, Any] | None) -> list[str]:
    """Return a sentence for each claim of one scenario: the paper's figure and ours.

    Ours is left out where the fields that were ``asked`` are not the file's own.

    Raises
    ------
    DataError
        As ``claims_of``.
    """
    fields = read_scenario(catalog.scenario(name))["scenario"]
    predicted = _predict_once(catalog)
    notes = []
    for claim in claims_of(name, catalog):
        own = "not compared, as the scenario was changed"
        if asked == fields:
            own = f"here {_own_figure(claim, fields, predicted):.2f}"
        notes.append(f"Claim {claim.name!r}: the paper says {claim.words()}; {own}.")
    return notes


def validate_claims(catalog: Catalog | None = None) -> list[ClaimResult]:
    """Return every claim of the scenarios with our figures, in the order of the scenarios."""
    catalog = catalog or Session()
    claims: dict[str, Claim] = {}
    ours: dict[str, dict[str, float]] = {}
    predicted = _predict_once(catalog)
    for name, path in catalog.scenarios().items():
        fields = read_scenario(path)["scenario"]
        for claim in claims_of(name, catalog):
            claims.setdefault(claim.name, claim)
            value = _own_figure(claim, fields, predicted)
            ours.setdefault(claim.name, {})[name] = value
    return [ClaimResult(claims[name], ours[name]) for name in claims]


def _predict_once(catalog: Catalog) -> _Predict:
    """Return a function that predicts each scenario once."""
    known: dict[str, Prediction] = {}

    def predicted(fields: Mapping[str, Any]) -> Prediction:
        key = repr(sorted(fields.items(), key=lambda item: item[0]))
        if key not in known:
            known[key] = predict(make_scenario(fields), catalog)
        return known[key]

    return predicted


def _own_figure(claim: Claim, fields: Mapping[str, Any], predicted: _Predict) -> float:
    """Return perfsim's figure for a claim about one scenario."""
    own = predicted(fields)
    if claim.part == "single_gpu":
        return own.scaling_efficiency * own.scenario.gpus
    read = _COMPARED[claim.part]
    if read(own) <= 0:
        raise RequestError(
            "",
            f"{own.scenario.method} has no {claim.part}, so nothing can be compared with it.",
            source=f"claim {claim.name!r}",
        )
    return min(read(predicted(rival)) for rival in claim.rivals(fields)) / read(own)
