"""Papers' claims as scenario files state them.

A scenario file may hold ``[[claim]]`` tables: ``name`` (claims of one name are one claim over
several scenarios), ``against`` (the fields in which the rival differs; its options are its own;
of several rivals the best counts), ``part`` (what is compared: iteration, throughput,
second_order, communication or bytes; or single_gpu: how many times the work of one GPU is done),
``paper`` (one or two figures), ``form`` (mean, range, up to, about), ``note`` (whether it was
verified) and ``why`` (what is thought to set our figure apart). A claim is shown, never fitted to;
``perfsim predict --scenario`` says of each what is predicted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.data.toml import TomlTable
from perfsim.errors import DataError, RequestError
from perfsim.methods import load_method
from perfsim.scenario import make_scenario, read_scenario

__all__ = ["Claim", "claims_of"]

KEYS = ("name", "against", "part", "paper", "form", "note", "why")
HIGHEST = 1e12
FORMS = ("mean", "range", "up to", "about")
PART_WORDS = {
    "iteration": "as fast as {}",
    "throughput": "the throughput of {}",
    "second_order": "less second-order time than {}",
    "communication": "less communication than {}",
    "bytes": "fewer bytes than {}",
    "single_gpu": "the work of one GPU",
}
FORM_WORDS = {"mean": "a mean of ", "range": "", "up to": "up to ", "about": "about "}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper claims of one scenario against a rival."""

    name: str
    against: tuple[Mapping[str, Any], ...]
    part: str
    paper: tuple[float, ...]
    form: str
    note: str
    why: str

    def rivals(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rivals' scenarios; ``fields`` are the claim's own."""
        bare = {**fields, "options": {}, "fusion_options": {}}
        return [{**bare, **rival} for rival in self.against]

    def words(self) -> str:
        """Return what the paper says."""
        figures = " to ".join(f"{figure:g}" for figure in self.paper)
        how_much = f"{FORM_WORDS[self.form]}{figures} times"
        rivals = " or ".join(_rival_words(one) for one in self.against)
        return f"{how_much} {PART_WORDS[self.part].format(rivals)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as ``show scenario`` prints it."""
        return {"claim": self.name, "paper": self.words(), "note": self.note, "why": self.why}


def claims_of(name: str, catalog: Catalog) -> list[Claim]:
    """Return the claims of one scenario.

    Raises
    ------
    DataError
        If a claim lacks something, or is not of the form above.
    """
    path = catalog.scenario(name)
    found = []
    data = read_scenario(path)
    listed = data.get("claim", [])
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise DataError("claim is not a list of tables ([[claim]])", path=path)
    for values in listed:
        table = TomlTable(values, path, "claim: ")
        table.only(KEYS)
        rivals = table.values.get("against", {})
        against = tuple(rivals) if isinstance(rivals, list) else (rivals,)
        part = table.choice("part", tuple(PART_WORDS))
        form = table.choice("form", FORMS)
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
            raise table.wrong("against", str(error)) from None
        found.append(claim)
    return found


def _rival_words(fields: Mapping[str, Any]) -> str:
    """Return in what a rival differs."""
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
    """Tell whether a value is a number above zero that a paper may claim."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < HIGHEST
