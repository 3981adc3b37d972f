"""Papers' claims beside what perfsim predicts in the papers' own settings.

A scenario file may hold ``[[claim]]`` tables:

- ``name``: claims of one name are one claim over several scenarios;
- ``against``: the fields in which the rival differs. Its options are its own; of several rivals
  the best counts;
- ``vary``: scenario fields and their values. The claim is then asked in every combination, with
  the same fields on all sides;
- ``part``: what is compared: iteration, throughput, second_order, communication, exposed or bytes;
  or a figure of the scenario alone: single_gpu (how many times the work of one GPU is done) or
  hidden (the share of communication that computation hides);
- ``paper``: one or two figures;
- ``form``: mean, range, up to, about, at least (in every setting), or somewhere (at least the
  figure in one setting or more);
- ``note``: where the paper says so, and whether that was read;
- ``unstated``: what the paper does not state about its setting, and what is taken instead;
- ``era``: where the software of the paper is known from, in words;
- ``software``: the software era that all sides are priced for, where it is not the scenario's;
- ``why``: the likely reason for a difference.

Claims that perfsim cannot ask stand in ``profiles/measurements/claims_not_asked.toml``, each with
what is missing. A claim is shown, never fitted to; ``perfsim predict`` shows the prediction beside
each claim of the scenario file it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from statistics import mean
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from perfsim.data.catalog import Catalog
from perfsim.data.files import read_text
from perfsim.data.toml import (
    Text,
    TomlModel,
    WrongValue,
    check_toml,
    one_of,
    read_toml,
    toml_refusal,
)
from perfsim.errors import RequestError, shown
from perfsim.interval import NO_METHOD, Uncertainty, uncertainties
from perfsim.methods import load_method
from perfsim.prediction import PredictedIteration, predict_iteration
from perfsim.resolve import ResolvedScenario
from perfsim.scenario import make_scenario
from perfsim.scenario_file import read_scenario
from perfsim.session import Session, fresh

__all__ = [
    "Claim",
    "ClaimNotAsked",
    "ClaimResult",
    "claim_notes",
    "claims_not_asked",
    "claims_of",
    "validate_claims",
]

_MAX_FIGURE = 1e12
"""No paper claims a factor above this: a larger number is a slip."""
_MAX_SETTINGS = 1000
"""Settings that one claim of a file may vary: no paper measures more, and each is predicted."""
_FORM_WORDS = {
    "mean": "a mean of ",
    "range": "",
    "up to": "up to ",
    "about": "about ",
    "at least": "at least ",
    "somewhere": "somewhere at least ",
}
_PART_WORDS = {
    "iteration": "as fast as {}",
    "throughput": "the throughput of {}",
    "second_order": "less second-order time than {}",
    "communication": "less communication than {}",
    "exposed": "less exposed communication than {}",
    "bytes": "fewer bytes than {}",
    "single_gpu": "the work of one GPU",
    "hidden": "of its communication hidden",
}

NOT_ASKED_FILE = "claims_not_asked.toml"
"""The claims that perfsim cannot ask, beside the measurements."""
_NOT_ASKED_SCHEMA = "perfsim/claims-not-asked/1"

_REACHED_WITHIN = 0.10
"""Share of the paper's figure within which a mean, a maximum or an "about" is reached."""

_SHORT_OF_FIGURE = 1e-9
"""Share by which rounding may leave a figure below one that it equals."""

_OF_EACH = ("range", "at least", "somewhere")
"""Forms that are judged in each setting by itself."""

_Predict = Callable[[Mapping[str, Any]], PredictedIteration]

_COMPARED: dict[str, Callable[[PredictedIteration], float]] = {
    "iteration": lambda prediction: prediction.iteration_s,
    "throughput": lambda prediction: 1.0 / prediction.samples_per_s,
    "second_order": lambda prediction: prediction.breakdown_s["second_order"],
    "communication": lambda prediction: prediction.communication["busy_s"],
    "exposed": lambda prediction: prediction.breakdown_s["communication_exposed"],
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
    note: str = ""
    why: str = ""
    unstated: str = ""
    era: str = ""
    software: str = ""
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def settings(self, fields: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield words for each setting and the fields of its scenario: all that ``vary`` spans."""
        if self.software:
            fields = {**fields, "software": self.software}
        for values in product(*self.vary.values()):
            varied = dict(zip(self.vary, values, strict=True))
            yield ", ".join(map(str, values)), {**fields, **varied}

    def rivals(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the fields of the rivals' scenarios; ``fields`` are the claim's own scenario."""
        bare = {**fields, "options": {}, "fusion_options": {}}
        return [{**bare, **rival} for rival in self.against]

    def figures(self) -> str:
        """Return the paper's figures in words."""
        unit = ".0%" if self.part == "hidden" else "g"
        return _FORM_WORDS[self.form] + " to ".join(format(figure, unit) for figure in self.paper)

    def words(self) -> str:
        """Return the paper's claim in words."""
        times = "" if self.part == "hidden" else " times"
        rivals = " or ".join(_rival_words(rival) for rival in self.against)
        return f"{self.figures()}{times} {_PART_WORDS[self.part].format(rivals)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as ``show scenario`` prints it."""
        return {
            "claim": self.name,
            "paper": self.words(),
            "note": self.note,
            "unstated": self.unstated,
            "era": self.era,
            "software": self.software,
            "vary": "; ".join(
                f"{name}: {', '.join(map(str, values))}" for name, values in self.vary.items()
            ),
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class ClaimNotAsked:
    """A paper's claim that perfsim cannot ask: what it says, and what is missing to ask it."""

    name: str
    paper: str
    setting: str
    note: str
    missing: str

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain data, with the keys of a claim that is asked."""
        return {
            "claim": self.name,
            "form": None,
            "paper": [],
            "says": self.paper,
            "note": self.note,
            "setting": self.setting,
            "unstated": "",
            "era": "",
            "ours": {},
            "mean": None,
            "settings": 0,
            "reaching": None,
            "close": None,
            "landed": None,
            "lands": "not asked",
            "why": self.missing,
        }


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


def _varied(value: object) -> Mapping[str, tuple[Any, ...]]:
    if not isinstance(value, dict) or not all(
        isinstance(values, list) and values for values in value.values()
    ):
        raise WrongValue(f"found {shown(value)}, allowed is a table of fields and their values")
    spanned = prod(map(len, value.values()))
    if spanned > _MAX_SETTINGS:
        raise WrongValue(f"spans {spanned:,} settings, allowed are at most {_MAX_SETTINGS:,}")
    return {name: tuple(values) for name, values in value.items()}


class _ClaimTable(TomlModel):
    """The keys of a ``[[claim]]``; without ``against``, the rival has its own default options."""

    name: Text
    against: Annotated[tuple[Mapping[str, Any], ...], PlainValidator(_rivals)] = ({},)
    part: Annotated[Text, one_of(tuple(_PART_WORDS))]
    paper: Annotated[tuple[float, ...], PlainValidator(_figures)]
    form: Annotated[Text, one_of(tuple(_FORM_WORDS))]
    note: Text = ""
    why: Text = ""
    unstated: Text = ""
    era: Text = ""
    software: Text = ""
    vary: Annotated[Mapping[str, tuple[Any, ...]], PlainValidator(_varied)] = Field(
        default_factory=dict
    )


class _ClaimTables(TomlModel):
    """The claims of a scenario file."""

    claim: list[_ClaimTable]


class _NotAskedTable(TomlModel):
    """The keys of a ``[[claim]]`` that perfsim cannot ask."""

    name: Text
    paper: Text
    setting: Text
    note: Text
    missing: Text


class _NotAskedFile(TomlModel):
    """The file of claims that perfsim cannot ask."""

    SCHEMA = _NOT_ASKED_SCHEMA
    claim: list[_NotAskedTable]


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
        claim = Claim(**table.model_dump())
        key = "vary"
        try:
            for _, setting in claim.settings(data["scenario"]):
                key = "vary"
                make_scenario(setting)
                key = "against"
                for rival_fields in claim.rivals(setting):
                    rival = make_scenario(rival_fields)
                    load_method(rival.method, rival.options)
        except RequestError as error:
            where = f"{error.field}: " if error.field else ""
            why, at = f"{where}{error.why}", ("claim", index, key)
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
    """One claim with perfsim's figure for each of its settings, and these settings in words.

    ``close`` are the settings in which the 90 % interval of the ratio of two iterations holds the
    paper's figure, so that ours may lie on either side of it.
    """

    claim: Claim
    ours: dict[str, float]
    setting: str = ""
    close: tuple[str, ...] = ()

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

    @property
    def reaching(self) -> int:
        """In how many settings our figure lies in the paper's range, or is no less than it says."""
        paper = self.claim.paper
        if self.claim.form == "range":
            return sum(min(paper) <= value <= max(paper) for value in self.ours.values())
        return sum(value >= paper[-1] * (1.0 - _SHORT_OF_FIGURE) for value in self.ours.values())

    @property
    def off(self) -> float:
        """Our figure over the paper's, less one: the mean, the largest or the smallest of ours."""
        figures = {
            "mean": self.mean,
            "about": self.mean,
            "up to": self.high,
            "at least": self.low,
            "somewhere": self.high,
        }
        return figures[self.claim.form] / self.claim.paper[-1] - 1.0

    @property
    def landed(self) -> bool:
        """Whether our figures reach the paper's."""
        if self.claim.form == "somewhere":
            return self.reaching > 0
        if self.claim.form in _OF_EACH:
            return self.reaching == len(self.ours)
        return abs(self.off) <= _REACHED_WITHIN

    def lands(self) -> str:
        """Say whether our figures reach the paper's."""
        if self.claim.form == "range":
            return "inside" if self.landed else f"{self.reaching} of {len(self.ours)} inside"
        if self.claim.form in _OF_EACH and len(self.ours) > 1:
            count = len(self.ours)
            failing = f"fails in {count - self.reaching} of {count}"
            text = f"holds in {self.reaching} of {count}" if self.landed else failing
            return f"{text}, {len(self.close)} too close to call" if self.close else text
        if self.claim.form in _OF_EACH and self.landed:
            return "reached"
        return f"within {_REACHED_WITHIN:.0%}" if self.landed else f"outside: {self.off:+.0%}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "claim": self.claim.name,
            "form": self.claim.form,
            "paper": list(self.claim.paper),
            "says": self.claim.words(),
            "note": self.claim.note,
            "setting": self.setting,
            "unstated": self.claim.unstated,
            "era": self.claim.era,
            "ours": self.ours,
            "mean": self.mean,
            "settings": len(self.ours),
            "reaching": self.reaching,
            "close": len(self.close),
            "landed": self.landed,
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


def validate_claims(
    catalog: Catalog | None = None, tell: Callable[[int, int, str], None] | None = None
) -> list[ClaimResult | ClaimNotAsked]:
    """Return every claim of the scenarios with our figures, then the claims not asked.

    They stand in the order of the scenarios. A claim that varies one scenario has a figure for
    each combination. ``tell`` is called before each scenario with how many are done, of how many,
    and its name.
    """
    catalog = fresh(catalog or Session())
    claims: dict[str, Claim] = {}
    ours: dict[str, dict[str, float]] = {}
    settings: dict[str, list[ResolvedScenario]] = {}
    close: dict[str, list[str]] = {}
    known = uncertainties(catalog).get(NO_METHOD)
    predicted = _predict_once(catalog)
    scenarios = catalog.scenarios()
    for done, (name, path) in enumerate(scenarios.items()):
        if tell is not None:
            tell(done, len(scenarios), name)
        fields = read_scenario(path)["scenario"]
        for claim in claims_of(name, catalog):
            claims.setdefault(claim.name, claim)
            for words, setting in claim.settings(fields):
                key = f"{name} ({words})" if words else name
                value = _own_figure(claim, setting, predicted)
                ours.setdefault(claim.name, {})[key] = value
                if known is not None and _too_close(claim, setting, predicted, known):
                    close.setdefault(claim.name, []).append(key)
                settings.setdefault(claim.name, []).append(predicted(setting).scenario)
    results: list[ClaimResult | ClaimNotAsked] = [
        ClaimResult(
            claims[name],
            ours[name],
            _setting_words(settings[name]),
            tuple(close.get(name, ())),
        )
        for name in claims
    ]
    return [*results, *claims_not_asked(catalog)]


def claims_not_asked(catalog: Catalog) -> list[ClaimNotAsked]:
    """Return the claims that perfsim cannot ask, each with what is missing.

    Raises
    ------
    DataError
        If their file is damaged.
    """
    path = catalog.beside("measurements", "", NOT_ASKED_FILE)
    if path is None:
        return []
    return [
        ClaimNotAsked(table.name, table.paper, table.setting, table.note, table.missing)
        for table in read_toml(path, _NotAskedFile).claim
    ]


def _setting_words(scenarios: Sequence[ResolvedScenario]) -> str:
    """Return the settings of a claim in words: models with batches, GPUs, networks."""
    models = _distinct(f"{scenario.model} (batch {scenario.batch})" for scenario in scenarios)
    gpus = _distinct(str(count) for count in sorted(scenario.gpus for scenario in scenarios))
    nodes = _distinct(f"{scenario.gpu}, {scenario.gpus_per_node} a node" for scenario in scenarios)
    nets = _distinct(str(scenario.net) for scenario in scenarios)
    return f"{models}; {gpus} {nodes}; {nets}"


def _distinct(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _predict_once(catalog: Catalog) -> _Predict:
    """Return a function that predicts each scenario once."""
    known: dict[str, PredictedIteration] = {}

    def predicted(fields: Mapping[str, Any]) -> PredictedIteration:
        key = repr(sorted(fields.items(), key=lambda item: item[0]))
        if key not in known:
            known[key] = predict_iteration(make_scenario(fields), catalog)
        return known[key]

    return predicted


def _own_figure(claim: Claim, fields: Mapping[str, Any], predicted: _Predict) -> float:
    """Return perfsim's figure for a claim about one scenario."""
    own = predicted(fields)
    if claim.part == "single_gpu":
        return own.scaling_efficiency * own.scenario.gpus
    part = "communication" if claim.part == "hidden" else claim.part
    read = _COMPARED[part]
    if read(own) <= 0:
        what = "exposed communication" if part == "exposed" else part
        raise RequestError(
            "",
            f"{own.scenario.method} has no {what}, so nothing can be compared with it.",
            source=f"claim {claim.name!r}",
        )
    if claim.part == "hidden":
        return own.communication["hidden_s"] / read(own)
    return min(read(predicted(rival)) for rival in claim.rivals(fields)) / read(own)


def _too_close(
    claim: Claim, fields: Mapping[str, Any], predicted: _Predict, known: Uncertainty
) -> bool:
    """Tell whether the interval of a ratio of iterations holds the paper's figure."""
    if claim.part != "iteration" or claim.form not in _OF_EACH or len(claim.paper) > 1:
        return False
    own = predicted(fields)
    rival = min(map(predicted, claim.rivals(fields)), key=lambda one: one.iteration_s)
    ratio = rival.iteration_s / own.iteration_s / claim.paper[0]
    faster, slower = (own, rival) if ratio > 1.0 else (rival, own)
    return max(ratio, 1.0 / ratio) - 1.0 <= known.reach(faster.moves, slower.moves)
