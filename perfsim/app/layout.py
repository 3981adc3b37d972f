"""The page: controls, the answer and its figures, of one scenario or of two side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dash import dcc, html

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
from perfsim.scenario import SCENARIO_FIELDS
from perfsim.units import format_bytes, format_seconds

__all__ = ["FIGURES", "PANES", "answer_view", "figure_data", "options_view", "page_view"]

PANES = ("a", "b")

FIGURES: Mapping[str, str] = {
    "timeline": "Timeline",
    "scaling": "Scaling",
    "breakeven": "Break-even over bandwidth",
}
"""The figures of a scenario, below its answer."""

EXPORTS: Mapping[str, tuple[str, str]] = {
    "open": ("Open…", "Open a scenario file (TOML)"),
    "toml": ("TOML", "Save this scenario as a file that `perfsim predict --scenario` reads"),
    "link": ("Copy link", "Copy a link to what is on this page"),
    "csv": ("CSV", "Save the predictions over numbers of GPUs as a table"),
    "html": ("HTML", "Save the page that `perfsim predict --html` writes (takes a second)"),
}
"""What can be done with a scenario."""

_BAR_WIDTH_EM = 16.0
"""Width of a card's longest bar (see `perfsim.report.notebook`)."""

_MAX_SEEN = 3
"""So few options of a method are all in sight."""


def page_view(catalog: Catalog) -> html.Div:
    """Return the page before it has a scenario."""
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="page"),
            dcc.Store(id="opened"),
            dcc.Store(id="scheme"),
            dcc.Store(id="comparing", data=False),
            dcc.Store(id="compared-drawn"),
            dcc.Download(id="download"),
            *_name_lists(catalog),
            html.Header(
                [
                    html.H1(["perfsim ", html.Small("what if?")]),
                    html.Div(id="notice", role="status", className="notice"),
                    html.Button("Compare two", id="compare", className="wide"),
                ]
            ),
            html.Div(
                [html.Span(id=f"readout-{pane}") for pane in PANES],
                className="readout",
                **{"aria-hidden": "true"},
            ),
            html.Main(
                [
                    html.Section(
                        [
                            html.P(id="compared", role="status"),
                            html.Figure(
                                [
                                    _plot("plot-compared", "A beside B"),
                                    html.Figcaption(id="compared-caption", className="unseen"),
                                ]
                            ),
                        ],
                        className="compared",
                        **{"aria-label": "A beside B"},
                    ),
                    html.Div([_pane(pane) for pane in PANES], className="panes"),
                ]
            ),
        ],
        id="app",
        className="app",
    )


def _name_lists(catalog: Catalog) -> list[html.Datalist]:
    """Return the names that controls offer."""
    return [
        html.Datalist([html.Option(value=name) for name in names], id=f"names-{field}")
        for field in SCENARIO_FIELDS
        if (names := choices_of(field, catalog))
    ]


def _pane(pane: str) -> html.Section:
    sliders = {"batch": ("batch",), "gpus": ("gpus",), "net": ("rate", "latency")}
    groups = [
        html.Fieldset(
            [
                html.Legend(title),
                *(
                    part
                    for name in names
                    for part in (
                        _field(pane, name),
                        *(_slider(pane, one, SLIDERS[one]) for one in sliders.get(name, ())),
                        *(
                            [html.Div(id=f"options-{pane}", className="options")]
                            if name == "method"
                            else []
                        ),
                    )
                ),
            ]
        )
        for title, names in MAIN_FIELDS.items()
    ]
    more = html.Details(
        [
            html.Summary("All other settings"),
            html.Div([_field(pane, name) for name in MORE_FIELDS], className="fields"),
        ]
    )
    letter = pane.upper()
    return html.Section(
        [
            *(
                dcc.Store(id=f"{name}-{pane}")
                for name in ("loaded", "asked", "verdict", "answered", "settled")
            ),
            *(dcc.Store(id=f"drawn-{name}-{pane}") for name in FIGURES),
            html.H2(letter, className="letter"),
            html.Div([*groups, more], className="controls"),
            html.Div(
                [
                    html.Div(
                        [
                            html.Button(
                                words,
                                id={"pane": pane, "export": name},
                                title=help_,
                                type="button",
                                **{"aria-label": f"{help_}, scenario {letter}"},
                            )
                            for name, (words, help_) in EXPORTS.items()
                        ],
                        className="exports",
                    ),
                    html.Div(
                        [
                            html.Div(id=f"wrong-{pane}", className="wrong-all", role="status"),
                            html.Div(
                                id=f"answer-{pane}", className="answer", **{"aria-live": "polite"}
                            ),
                        ],
                        className="answered",
                    ),
                    *(_figure(pane, name, title) for name, title in FIGURES.items()),
                ],
                className="seen",
            ),
        ],
        id=f"pane-{pane}",
        className=f"pane {pane}",
        **{"aria-label": f"Scenario {letter}"},
    )


def _field(pane: str, name: str) -> html.Div:
    """Return the control of a field: its label, what is typed, and where a refusal stands."""
    field = SCENARIO_FIELDS[name]
    with spelling(label_of):
        help_ = plain(field.help)
    if field.switch and field.value is not None:
        return _switch(pane, name, help_)
    number = field.min is not None and not field.read
    return _control(
        pane,
        {"pane": pane, "field": name},
        f"{pane}-{name}",
        name,
        label_of(name),
        default_words(name).partition(";")[0],
        help_,
        names=f"names-{name}",
        numeric=number,
    )


def _control(
    pane: str,
    identity: dict[str, str],
    anchor: str,
    key: str,
    label: str,
    default: str,
    help_: str,
    *,
    names: str = "",
    numeric: bool = False,
    value: str = "",
) -> html.Div:
    return html.Div(
        [
            html.Label(
                [
                    html.Span(label, className="label"),
                    dcc.Input(
                        id=identity,
                        type="text",
                        value=value,
                        placeholder=default,
                        list=names or None,
                        autoComplete="off",
                        spellCheck="false",
                        inputMode="numeric" if numeric else None,
                        debounce=False,
                    ),
                ],
                title=help_,
            ),
            html.Span(className="wrong", id=f"wrong-{anchor}"),
        ],
        className="field",
        **{"data-key": f"{pane}:{key}"},
    )


def _switch(pane: str, name: str, help_: str) -> html.Div:
    """Return the control of a field that is on or off."""
    return html.Div(
        [
            dcc.Checklist(
                id={"pane": pane, "switch": name, "on": str(SCENARIO_FIELDS[name].value).lower()},
                options=[{"label": label_of(name), "value": "on", "title": help_}],
                value=[],
            ),
            html.Span(className="wrong", id=f"wrong-{pane}-{name}"),
        ],
        className="field switch",
        **{"data-key": f"{pane}:{name}"},
    )


def _slider(pane: str, name: str, slider: Slider) -> html.Div:
    return html.Div(
        html.Label(
            [
                html.Span(slider.label, className="unseen"),
                html.Span(_SHORT.get(name, ""), className="label"),
                dcc.Input(
                    id={"pane": pane, "slider": name},
                    type="range",
                    min=slider.low,
                    max=slider.high,
                    step=slider.step,
                    value=slider.low,
                    debounce=False,
                ),
                html.Output(id=f"at-{pane}-{name}", className="at"),
            ],
        ),
        className="slider",
    )


_SHORT = {"rate": "bandwidth", "latency": "latency"}
"""What is seen beside a slider that is not just below its own field."""


def options_view(
    pane: str, owner: str, controls: Sequence[OptionControl], values: Mapping[str, str]
) -> list[Any]:
    """Return the controls of a method's options: how much it sends, the others folded away.

    Parameters
    ----------
    owner : the method and fusion policy that they are of
    values : texts by option, as a file or link gave them
    """
    seen: list[Any] = []
    folded: list[Any] = []
    for one in controls:
        value = values.get(one.key, "")
        asks = one.key.partition(".")[2] in FIDELITY or bool(value) or len(controls) <= _MAX_SEEN
        (seen if asks else folded).append(
            _control(
                pane,
                {"pane": pane, "option": one.key, "of": owner},
                f"{pane}-{one.key.replace('.', '-')}",
                one.key,
                one.label,
                one.default,
                one.help,
                value=value,
            )
        )
        if one.key == "options.density":
            seen.append(_slider(pane, "density", OPTION_SLIDER))
    if folded:
        summary = html.Summary(f"{len(folded)} more options of {owner.partition('/')[0]}")
        seen.append(html.Details([summary, *folded]))
    return seen


def _figure(pane: str, name: str, title: str) -> html.Figure:
    return html.Figure(
        [
            html.Div(
                [
                    html.H3(title),
                    html.Button(
                        "PNG",
                        id={"pane": pane, "png": name},
                        type="button",
                        title="Save this figure as a picture",
                        **{"aria-label": f"Save {title.lower()} of {pane.upper()} as PNG"},
                    ),
                ],
                className="titled",
            ),
            _plot(f"plot-{name}-{pane}", title),
            html.Figcaption(id=f"caption-{name}-{pane}"),
        ],
        className=f"drawn {name}",
    )


def _plot(identity: str, title: str) -> html.Div:
    """Return the place where the page draws a figure; what it shows stands below it in words."""
    return html.Div(id=identity, className="plot", role="img", **{"aria-label": title})


def figure_data(figure: Figure | str) -> dict[str, Any]:
    """Return what the page draws of a figure; a text alone stands in its place."""
    if isinstance(figure, str):
        return {"words": figure}
    return {
        "title": figure.title,
        "words": figure.words,
        "data": figure.data,
        "layout": figure.layout,
    }


def answer_view(answer: Answer) -> list[Any]:
    """Return the answer: its time, the lines of its card, where time and memory go, warnings."""
    prediction, card = answer.prediction, answer.card
    with spelling(label_of):
        warnings = [plain(text) for text in card.warnings]
        assumed = [plain(text) for text in briefs(prediction.notes, "assumption")]
    lines = dict(card.answer)
    main = lines.pop("iteration")
    seconds = format_seconds(prediction.iteration_s)
    memory = lines.pop("memory held")
    usable = prediction.memory_usable_bytes
    held = f"{memory} of {format_bytes(usable, 3)}" if usable else memory
    return [
        html.P(plain(card.question), className="question"),
        html.Div(
            [
                html.Strong(seconds),
                html.Span(main.removeprefix(seconds).strip(" ()")),
            ],
            className="hero",
        ),
        html.Dl(
            [
                html.Div([html.Dt(name), html.Dd(words)])
                for name, words in {**lines, "memory held": held}.items()
            ]
        ),
        _bars("Where the time goes", ((b.name, b.words, b.width, b.colour) for b in card.bars)),
        _bars("Memory of a GPU", _memory(prediction.memory_bytes)),
        *([html.Ul([html.Li(text) for text in warnings], className="warnings")] * bool(warnings)),
        *([html.P(f"Assumed: {', '.join(assumed)}.", className="assumed")] * bool(assumed)),
    ]


def plain(text: str) -> str:
    """Return a sentence with fields by their labels and without backticks.

    Examples
    --------
    >>> plain("3 does not divide `gpus`; `perfsim list gpus` lists them.")
    '3 does not divide gpus; perfsim list gpus lists them.'
    """
    return spelled(text).replace("`", "")


def _memory(parts: Mapping[str, float]) -> Iterable[tuple[str, str, float, str]]:
    """Yield the parts of what a GPU holds as bars, the largest first."""
    held = sorted(((size, name) for name, size in parts.items() if size), reverse=True)
    for size, name in held:
        width = _BAR_WIDTH_EM * size / held[0][0]
        yield name.replace("_", " "), format_bytes(size, 3), width, "var(--soft-ink)"


def _bars(title: str, bars: Iterable[tuple[str, str, float, str]]) -> html.Div:
    return html.Div(
        [
            html.H3(title),
            html.Div(
                [
                    html.Div(
                        [
                            html.Span(name),
                            html.Span(words, className="number"),
                            html.Div(
                                html.I(
                                    style={
                                        "width": f"{100 * width / _BAR_WIDTH_EM:.1f}%",
                                        "background": colour,
                                    }
                                ),
                                className="track",
                            ),
                        ],
                        className="bar",
                    )
                    for name, words, width, colour in bars
                ]
            ),
        ],
        className="bars",
    )
