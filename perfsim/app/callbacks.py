"""What happens when something on the page changes: each callback one step from text to picture.

From a control to its answer there is one request. Figures follow once nothing has changed for a
while. Steps that need no prediction run in the page (``assets/app.js``).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, no_update

from perfsim.app.answers import Answer, Desk, SupersededError, refusal
from perfsim.app.comparison import compared_figure, compared_words
from perfsim.app.controls import DEFAULT_TEXTS, Texts, label_of, option_controls, texts_of
from perfsim.app.layout import FIGURES, PANES, answer_view, figure_data, options_view
from perfsim.app.sharing import link_of, read_link, read_opened
from perfsim.data.tables import to_csv
from perfsim.errors import PerfsimError, spelling
from perfsim.report.html.figure import figure_label
from perfsim.units import format_seconds

__all__ = ["add_callbacks"]


def add_callbacks(app: Dash, desk: Desk, start: Texts) -> None:
    """Add all callbacks.

    Parameters
    ----------
    start : the texts of the scenario that a page without a link begins with
    """
    _add_loading(app, desk, start)
    for pane in PANES:
        _add_controls(app, desk, pane)
        _add_answer(app, desk, pane)
        _add_figures(app, desk, pane)
    _add_comparison(app, desk)
    _add_exports(app, desk)


def _in_page(app: Dash, name: str, *parts: Any, **more: Any) -> None:
    """Add a step that the page does by itself."""
    app.clientside_callback(ClientsideFunction("perfsim", name), *parts, **more)


def _when(app: Dash, step: Callable[..., Any], *parts: Any, **more: Any) -> None:
    """Add a step of the server: what it writes, what it waits for, and what else it reads."""
    app.callback(*parts, **more)(step)


def _loaded(texts: Texts, compare: bool | None = None) -> dict[str, Any]:
    """Return what fills the controls of a pane; its number tells one loading from the next."""
    told = {} if compare is None else {"compare": compare}
    return {"texts": dict(texts), "number": time.time_ns(), **told}


def _add_loading(app: Dash, desk: Desk, start: Texts) -> None:
    _in_page(
        app,
        "start",
        Output("page", "data"),
        Output("scheme", "data"),
        Input("url", "pathname"),
    )

    def load_link(query: str | None) -> tuple[Any, Any, str]:
        """Fill the controls from the link that the page was opened by."""
        with spelling(label_of):
            linked = read_link(query or "")
        if not linked.first and not linked.second:
            return _loaded(start or DEFAULT_TEXTS, False), no_update, linked.wrong
        texts, wrong = [], linked.wrong
        with spelling(label_of):
            for one in (linked.first or dict(start or DEFAULT_TEXTS), linked.second):
                kept, why = desk.readable.shared(one, desk.session)
                texts.append(kept)
                wrong = wrong or why
        second = _loaded(texts[1]) if texts[1] else no_update
        return _loaded(texts[0], bool(texts[1])), second, wrong

    _when(
        app,
        load_link,
        Output("loaded-a", "data"),
        Output("loaded-b", "data"),
        Output("notice", "children"),
        Input("url", "search"),
    )

    def load_file(opened: Mapping[str, Any]) -> tuple[Any, Any, str]:
        """Fill the controls of a pane from a file that was opened in it."""
        try:
            given = texts_of(read_opened(str(opened["name"]), str(opened["text"])))
        except PerfsimError as error:
            return no_update, no_update, refusal(error).sentence
        with spelling(label_of):
            linked = read_link(link_of(given))
            texts, why = desk.readable.shared(linked.first, desk.session)
        made = _loaded(texts)
        panes = [made if pane == opened["pane"] else no_update for pane in PANES]
        return panes[0], panes[1], linked.wrong or why or f"{opened['name']} is open."

    _when(
        app,
        load_file,
        Output("loaded-a", "data", allow_duplicate=True),
        Output("loaded-b", "data", allow_duplicate=True),
        Output("notice", "children", allow_duplicate=True),
        Input("opened", "data"),
        prevent_initial_call=True,
    )


def _add_controls(app: Dash, desk: Desk, pane: str) -> None:
    fields, switches = {"pane": pane, "field": ALL}, {"pane": pane, "switch": ALL, "on": ALL}
    options, sliders = {"pane": pane, "option": ALL, "of": ALL}, {"pane": pane, "slider": ALL}
    _in_page(
        app,
        "fill",
        Output(fields, "value"),
        Output(switches, "value"),
        Input(f"loaded-{pane}", "data"),
        State(fields, "id"),
        State(switches, "id"),
    )
    _in_page(
        app,
        "gather",
        Output(f"asked-{pane}", "data"),
        Input(fields, "value"),
        Input(switches, "value"),
        Input(options, "value"),
        State(fields, "id"),
        State(switches, "id"),
        State(options, "id"),
        State(f"loaded-{pane}", "data"),
    )
    _in_page(app, "slide", Input(sliders, "value"), State(sliders, "id"))

    def show_options(method: str, fusion: str, loaded: Mapping[str, Any] | None) -> Any:
        """Show the options of the method and of the fusion policy."""
        if loaded is None:
            return no_update
        texts = {"method": method or "", "fusion": fusion or ""}
        with desk.turns.take(desk.turns.ANSWER):
            controls = option_controls(texts, desk.session)
        same = loaded["texts"].get("method", "") == texts["method"]
        owner = f"{texts['method']}/{texts['fusion']}"
        return options_view(pane, owner, controls, loaded["texts"] if same else {})

    _when(
        app,
        show_options,
        Output(f"options-{pane}", "children"),
        Input({"pane": pane, "field": "method"}, "value"),
        Input({"pane": pane, "field": "fusion"}, "value"),
        Input(f"loaded-{pane}", "data"),
    )


def _add_answer(app: Dash, desk: Desk, pane: str) -> None:
    def answer(asked: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Answer the scenario that stands in the controls, or say what is wrong with it."""
        texts, number = asked["texts"], int(asked["number"])
        try:
            found = desk.answer(texts, f"{asked['page']} {pane}", number)
        except SupersededError:
            return no_update, no_update, no_update
        if isinstance(found, Answer):
            told = {
                "pane": pane,
                "texts": texts,
                "number": number,
                "placed": dict(found.placed),
                "taken": dict(found.taken),
            }
            time_words = format_seconds(found.prediction.iteration_s)
            right = {"pane": pane, "field": "", "sentence": "", "time": time_words}
            return answer_view(found), told, right
        wrong = {"pane": pane, "field": found.field, "sentence": found.sentence}
        return no_update, no_update, wrong

    _when(
        app,
        answer,
        Output(f"answer-{pane}", "children"),
        Output(f"answered-{pane}", "data"),
        Output(f"verdict-{pane}", "data"),
        Input(f"asked-{pane}", "data"),
        prevent_initial_call=True,
    )

    _in_page(app, "mark", Output(f"wrong-{pane}", "children"), Input(f"verdict-{pane}", "data"))
    _in_page(app, "place", Input(f"answered-{pane}", "data"), Input(f"options-{pane}", "children"))
    _in_page(app, "settle", Output(f"settled-{pane}", "data"), Input(f"answered-{pane}", "data"))


def _add_figures(app: Dash, desk: Desk, pane: str) -> None:
    makers = {
        "timeline": desk.timeline,
        "scaling": desk.scaling_figure,
        "breakeven": desk.break_even,
    }
    for name, make in makers.items():

        def draw(settled: Mapping[str, Any], make: Any = make, name: str = name) -> dict[str, Any]:
            """Draw one figure of the last answer."""
            texts = settled["texts"]
            try:
                drawn = figure_data(make(texts))
            except PerfsimError as error:
                return {"words": refusal(error).sentence}
            heading = f"{FIGURES[name]}: {', '.join(texts.get(key, '') for key in _HEADING)}"
            return drawn | {"heading": figure_label(heading)}

        _when(
            app,
            draw,
            Output(f"drawn-{name}-{pane}", "data"),
            Input(f"settled-{pane}", "data"),
            prevent_initial_call=True,
        )

        _in_page(
            app,
            "draw",
            Output(f"caption-{name}-{pane}", "children"),
            Input(f"drawn-{name}-{pane}", "data"),
            Input("scheme", "data"),
            State(f"plot-{name}-{pane}", "id"),
        )
        _in_page(
            app,
            "picture",
            Input({"pane": pane, "png": name}, "n_clicks"),
            State(f"drawn-{name}-{pane}", "data"),
            State({"pane": pane, "png": name}, "id"),
        )


_HEADING = ("model", "method", "gpus")
"""The texts that name a picture."""


def _add_comparison(app: Dash, desk: Desk) -> None:
    _in_page(
        app,
        "toggle",
        Output("loaded-b", "data", allow_duplicate=True),
        Input("compare", "n_clicks"),
        State("loaded-b", "data"),
        State("answered-a", "data"),
        prevent_initial_call=True,
    )

    def compare(first: Any, second: Any, comparing: bool | None) -> tuple[Any, Any]:
        """Say how B stands beside A."""
        if not (first and second and comparing):
            return no_update, no_update
        try:
            one, other = (desk.prediction(each["texts"]) for each in (first, second))
        except PerfsimError as error:
            return refusal(error).sentence, no_update
        return compared_words(one, other), figure_data(compared_figure(one, other))

    _when(
        app,
        compare,
        Output("compared", "children"),
        Output("compared-drawn", "data"),
        Input("settled-a", "data"),
        Input("settled-b", "data"),
        Input("comparing", "data"),
        prevent_initial_call=True,
    )

    _in_page(
        app,
        "draw",
        Output("compared-caption", "children"),
        Input("compared-drawn", "data"),
        Input("scheme", "data"),
        State("plot-compared", "id"),
    )


def _add_exports(app: Dash, desk: Desk) -> None:
    buttons = {"pane": ALL, "export": ALL}
    _in_page(
        app,
        "take",
        Output("notice", "children", allow_duplicate=True),
        Input(buttons, "n_clicks"),
        prevent_initial_call=True,
    )

    def export(_: Any, first: Any, second: Any, comparing: bool | None) -> tuple[Any, Any]:
        """Save a scenario, its page, or the rows of all scenarios in sight."""
        asked = ctx.triggered_id
        if not asked or not ctx.triggered[0]["value"] or asked["export"] not in _MADE:
            return no_update, no_update
        panes = {"A": first, **({"B": second} if comparing and second else {})}
        held = {name: one["texts"] for name, one in panes.items() if one}
        texts = held.get(str(asked["pane"]).upper())
        if texts is None:
            return no_update, "There is no answer to save yet."
        name = _file_name(texts)
        try:
            if asked["export"] == "toml":
                made = dcc.send_string(desk.toml(texts), f"{name}.toml", type="application/toml")
            elif asked["export"] == "csv":
                made = dcc.send_string(to_csv(desk.rows(held)), f"{name}.csv", type="text/csv")
            else:
                made = dcc.send_string(desk.page(texts), f"{name}.html", type="text/html")
        except PerfsimError as error:
            return no_update, refusal(error).sentence
        return made, f"{made['filename']} is saved."

    _when(
        app,
        export,
        Output("download", "data"),
        Output("notice", "children", allow_duplicate=True),
        Input(buttons, "n_clicks"),
        State("answered-a", "data"),
        State("answered-b", "data"),
        State("comparing", "data"),
        prevent_initial_call=True,
    )


_MADE = ("toml", "csv", "html")
"""What the server makes."""


def _file_name(texts: Texts) -> str:
    """Return a file's name that says what it is of.

    Examples
    --------
    >>> _file_name({"model": "own/config.json", "gpus": "8"})
    'perfsim-own-config-json-ssgd-8'
    """
    words = [texts.get("model", ""), texts.get("method", "ssgd"), texts.get("gpus", "")]
    plain = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())[:60]
    return f"perfsim-{plain.strip('-')}"
