"""What the page shows, as plain data for its templates: controls, the answer, a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from perfsim.app.answers import Answer
from perfsim.app.controls import (
    FIDELITY,
    MAIN_FIELDS,
    MORE_FIELDS,
    OPTION_SLIDER,
    SLIDERS,
    OptionControl,
    Slider,
    choices_of,
    default_words,
    label_of,
)
from perfsim.data.catalog import Catalog
from perfsim.errors import spelled, spelling
from perfsim.note import briefs
from perfsim.report.html.figure import Figure
from perfsim.report.notebook import Bar
from perfsim.scenario import SCENARIO_FIELDS
from perfsim.units import format_bytes, format_seconds

__all__ = [
    "FIGURES",
    "PANES",
    "Control",
    "answer_view",
    "figure_view",
    "options_view",
    "page_view",
    "plain",
]

PANES = ("a", "b")

FIGURES: Mapping[str, str] = {
    "timeline": "Timeline",
    "scaling": "Scaling",
    "breakeven": "Break-even over bandwidth",
}
"""The figures of a scenario, below its answer."""

EXPORTS: Mapping[str, tuple[str, str]] = {
    "open": ("Open…", "Open a scenario file (TOML)"),
    "toml": ("TOML", "Save this scenario as a file that perfsim predict --scenario reads"),
    "link": ("Copy link", "Copy a link to what is on this page"),
    "csv": ("CSV", "Save the predictions over numbers of GPUs as a table"),
    "html": ("HTML", "Save the page that perfsim predict --html writes"),
}
"""What can be done with a scenario."""

_SLIDERS_OF: Mapping[str, tuple[str, ...]] = {
    "batch": ("batch",),
    "gpus": ("gpus",),
    "net": ("rate", "latency"),
}
"""The sliders below a field."""

_MAX_SEEN = 3
"""So few options of a method are all in sight."""

_MAX_DEFAULT = 14
"""Characters of a default that an empty control shows; a longer one is in its help."""

_BAR_EM = 16.0
"""Width of a card's longest bar (see `perfsim.report.notebook`)."""


class Control(NamedTuple):
    """One control as the template writes it.

    Parameters
    ----------
    key : the field or option
    label, help : what it is, in few words and in a sentence
    default : what it is when left empty, in words
    value : what stands in it
    switch : "true" or "false" where it is on or off, the default; else ""
    names : whether there is a list of names for it
    numeric : whether it takes a number
    sliders : the sliders below it, by name
    """

    key: str
    label: str
    help: str
    default: str = ""
    value: str = ""
    switch: str = ""
    names: bool = False
    numeric: bool = False
    sliders: Sequence[tuple[str, Slider]] = ()


def page_view(catalog: Catalog) -> dict[str, Any]:
    """Return what the page holds before it has an answer."""
    return {
        "panes": PANES,
        "groups": {
            title: [_control(name, catalog) for name in names]
            for title, names in MAIN_FIELDS.items()
        },
        "more": [_control(name, catalog) for name in MORE_FIELDS],
        "names": {name: found for name in SCENARIO_FIELDS if (found := choices_of(name, catalog))},
        "figures": FIGURES,
        "exports": EXPORTS,
    }


def _control(name: str, catalog: Catalog) -> Control:
    field = SCENARIO_FIELDS[name]
    with spelling(label_of):
        help_ = plain(field.help)
    default = default_words(name)
    if default:
        help_ += f" Default: {default}."
    switch = str(field.value).lower() if field.switch and field.value is not None else ""
    return Control(
        name,
        label_of(name),
        help_,
        default if len(default) <= _MAX_DEFAULT else "default",
        switch=switch,
        names=bool(choices_of(name, catalog)),
        numeric=field.min is not None and field.read is None,
        sliders=[(one, SLIDERS[one]) for one in _SLIDERS_OF.get(name, ())],
    )


def options_view(
    controls: Sequence[OptionControl], values: Mapping[str, str]
) -> tuple[list[Control], list[Control]]:
    """Return the options of a method that are in sight, and those that are folded away.

    In sight are those that say how much it sends, and those that have a value.

    Parameters
    ----------
    values : texts by option, as a file or link gave them
    """
    seen: list[Control] = []
    folded: list[Control] = []
    for one in controls:
        value = values.get(one.key, "")
        name = one.key.partition(".")[2]
        sliders = [("density", OPTION_SLIDER)] if one.key == "options.density" else []
        made = Control(one.key, one.label, plain(one.help), one.default, value, sliders=sliders)
        shown = name in FIDELITY or bool(value) or len(controls) <= _MAX_SEEN
        (seen if shown else folded).append(made)
    return seen, folded


def answer_view(answer: Answer) -> dict[str, Any]:
    """Return the answer: its time, the lines of its card, where time and memory go, warnings."""
    prediction, card = answer.prediction, answer.card
    lines = dict(card.answer)
    seconds = format_seconds(prediction.iteration_s)
    known = lines.pop("iteration").removeprefix(seconds).strip(" ()")
    usable = prediction.memory_usable_bytes
    if usable is not None:
        lines["memory held"] += f" of {format_bytes(usable, 3)}"
    with spelling(label_of):
        return {
            "question": plain(card.question),
            "seconds": seconds,
            "known": known,
            "lines": lines,
            "bars": {
                "Where the time goes": [_bar(bar) for bar in card.bars],
                "Memory of a GPU": [_bar(bar) for bar in _memory(prediction.memory_bytes)],
            },
            "warnings": [plain(text) for text in card.warnings],
            "assumed": [plain(text) for text in briefs(prediction.notes, "assumption")],
        }


def _memory(parts: Mapping[str, float]) -> Iterator[Bar]:
    """Yield the parts of what a GPU holds, the largest first."""
    held = sorted(((size, name) for name, size in parts.items() if size), reverse=True)
    for size, name in held:
        width = _BAR_EM * size / held[0][0]
        yield Bar(name.replace("_", " "), format_bytes(size, 3), width, "var(--soft-ink)")


def _bar(bar: Bar) -> dict[str, Any]:
    width = f"{100.0 * bar.width / _BAR_EM:.1f}%"
    return {"name": bar.name, "words": bar.words, "width": width, "colour": bar.colour}


def figure_view(figure: Figure | str) -> dict[str, Any]:
    """Return what the page draws of a figure; a text alone stands in its place."""
    if isinstance(figure, str):
        return {"words": figure}
    return {"words": figure.words, "data": figure.data, "layout": figure.layout}


def plain(text: str) -> str:
    """Return a sentence with fields by their labels and without backticks.

    Examples
    --------
    >>> plain("3 does not divide `gpus`; `perfsim list gpus` lists them.")
    '3 does not divide gpus; perfsim list gpus lists them.'
    """
    return spelled(text).replace("`", "")
