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
from typing import Annotated, Any

from pydantic import PlainValidator

from perfsim.data.catalog import Catalog
from perfsim.data.files import read_text
from perfsim.data.toml import Text, TomlModel, WrongValue, check_toml, one_of, toml_refusal
from perfsim.errors import RequestError, shown
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


def _rivals(value: object) -> tuple[Mapping[str, Any], ...]:
    rivals = value if isinstance(value, list) else [value]
    if not rivals or not all(isinstance(rival, dict) for rival in rivals):
        raise WrongValue(f"found {shown(value)}, allowed is a table or a list of tables")
    return tuple(rivals)


def _figures(value: object) -> tuple[float, ...]:
    """Return one or two numbers that a paper may claim: above zero, not absurdly large."""
    figures = value if isinstance(value, list) else [value]
    numbers = [one for one in figures if isinstance(one, int | float) and not isinstance(one, bool)]
    sound = len(numbers) == len(figures) and all(0 < number < _MAX_FIGURE for number in numbers)
    if not sound or not 1 <= len(figures) <= 2:
        allowed = f"one or two numbers above zero and below {_MAX_FIGURE:g}"
        raise WrongValue(f"found {shown(value)}, allowed are {allowed}")
    return tuple(map(float, numbers))


class _ClaimTable(TomlModel):
    """The keys of a ``[[claim]]``; without ``against``, the rival has its own default options."""

    name: Text
    against: Annotated[tuple[Mapping[str, Any], ...], PlainValidator(_rivals)] = ({},)
    part: Annotated[Text, one_of(tuple(_PART_WORDS))]
    paper: Annotated[tuple[float, ...], PlainValidator(_figures)]
    form: Annotated[Text, one_of(_FORMS)]
    note: Text = ""
    why: Text = ""


class _ClaimTables(TomlModel):
    """The claims of a scenario file."""

    claim: list[_ClaimTable]


def claims_of(name: str, catalog: Catalog) -> list[Claim]:
    """Return the claims of one scenario.

    Raises
    ------
    DataError
        If a claim lacks a key, or a value is not of the form that the module describes.
    """
    path = catalog.scenario(name)
    data = read_scenario(path)
    if "claim" not in data:
        return []
    text = read_text(path)
    claims = []
    tables = check_toml(_ClaimTables, {"claim": data["claim"]}, path, text=text).claim
    for index, table in enumerate(tables):
        claim = Claim(
            table.name, table.against, table.part, table.paper, table.form, table.note, table.why
        )
        try:
            for fields in claim.rivals(data["scenario"]):
                rival = make_scenario(fields)
                load_method(rival.method, rival.options)
        except RequestError as error:
            where = f"{error.field}: " if error.field else ""
            why, at = f"{where}{error.why}", ("claim", index, "against")
            raise toml_refusal(why, at, path, text) from None
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
