"""Papers' claims beside what perfsim predicts in the papers' own settings (``[[claim]]``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario, read_scenario
from perfsim.session import Session
from perfsim.validate.claim import Claim, claims_of

__all__ = ["Claim", "Result", "claim_notes", "claims_of", "validate_claims"]

NEAR = 0.10
"""A mean, a maximum or an "about" within this part of the paper's figure counts as reached."""

Predict = Callable[[Mapping[str, Any]], Prediction]

PARTS: dict[str, Callable[[Prediction], float]] = {
    "iteration": lambda one: one.iteration_s,
    "throughput": lambda one: 1.0 / one.samples_per_s,
    "second_order": lambda one: one.breakdown_s["second_order"],
    "communication": lambda one: one.communication["busy_s"],
    "bytes": lambda one: one.communication["bytes_per_gpu"],
}
"""What is compared, the smaller the better: the rival's over the scenario's own."""


@dataclass(frozen=True)
class Result:
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
        """Return whether our figures are where the paper's are, in words."""
        paper = self.claim.paper
        if self.claim.form == "range":
            inside = [min(paper) <= value <= max(paper) for value in self.ours.values()]
            if all(inside):
                return "inside"
            return f"{sum(inside)} of {len(inside)} inside"
        own = {"mean": self.mean, "about": self.mean, "up to": self.high}[self.claim.form]
        off = own / paper[-1] - 1.0
        return f"within {NEAR:.0%}" if abs(off) <= NEAR else f"outside: {off:+.0%}"

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

    Ours is left out where the fields ``asked`` for are not the file's own.

    Raises
    ------
    DataError
        As ``claims_of``.
    """
    fields = read_scenario(catalog.scenario(name))["scenario"]
    predicted = _memory(catalog)
    found = []
    for claim in claims_of(name, catalog):
        own = "not compared, as flags change the scenario"
        if asked == fields:
            own = f"here {_own_figure(claim, fields, predicted):.2f}"
        found.append(f"Claim {claim.name!r}: the paper says {claim.words()}; {own}.")
    return found


def validate_claims(catalog: Catalog | None = None) -> list[Result]:
    """Return every claim of the scenarios with our figures, in the order of the scenarios."""
    catalog = catalog or Session()
    claims: dict[str, Claim] = {}
    ours: dict[str, dict[str, float]] = {}
    predicted = _memory(catalog)
    for name, path in catalog.scenarios().items():
        fields = read_scenario(path)["scenario"]
        for claim in claims_of(name, catalog):
            claims.setdefault(claim.name, claim)
            value = _own_figure(claim, fields, predicted)
            ours.setdefault(claim.name, {})[name] = value
    return [Result(claims[name], ours[name]) for name in claims]


def _memory(catalog: Catalog) -> Predict:
    """Return what predicts scenarios and remembers them."""
    known: dict[str, Prediction] = {}

    def predicted(fields: Mapping[str, Any]) -> Prediction:
        key = repr(sorted(fields.items(), key=lambda item: item[0]))
        if key not in known:
            known[key] = predict(make_scenario(fields), catalog)
        return known[key]

    return predicted


def _own_figure(claim: Claim, fields: Mapping[str, Any], predicted: Predict) -> float:
    """Return perfsim's figure for what a claim says of one scenario."""
    own = predicted(fields)
    if claim.part == "single_gpu":
        return own.scaling_efficiency * int(own.scenario["gpus"])
    read = PARTS[claim.part]
    if read(own) <= 0:
        raise RequestError(
            f"claim {claim.name!r}: {own.scenario['method']} has no {claim.part}, so nothing can be"
            " compared with it."
        )
    return min(read(predicted(rival)) for rival in claim.rivals(fields)) / read(own)
