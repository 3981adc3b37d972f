"""What the page asks of the server, and what it gets: each route one question.

Questions are JSON by POST. A scenario is its texts, by field. An answer that is a refusal says so
in a sentence, with the field that it is about; no question ends in an error of the server.
"""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsim.app.answers import Desk, Refusal, refusal
from perfsim.app.comparison import compared_figure, compared_words
from perfsim.app.controls import ControlTexts, first_texts, label_of, option_controls, texts_of
from perfsim.app.sharing import link_of, read_link, read_opened
from perfsim.app.view import FIGURES, answer_view, figure_view, options_view, page_view, plain
from perfsim.data.tables import to_csv
from perfsim.errors import PerfsimError, spelling
from perfsim.report.html.figure import figure_label
from perfsim.report.html.render import PLOTLY_SCRIPT

if TYPE_CHECKING:
    from flask import Flask, Response

__all__ = ["add_routes"]

_ASSETS = Path(__file__).parent / "assets"
_CACHED_S = 86_400
"""How long a browser keeps Plotly's script [s]."""

_MAX_TEXT = 4_000
"""Characters of a text of a control that are read: a model can be written in some hundreds."""

_MAX_TEXTS = 200
"""Texts of a scenario that are read."""


def add_routes(flask: Flask, desk: Desk, start: ControlTexts) -> None:
    """Add all routes.

    Parameters
    ----------
    start : the texts of the scenario that a page without a link begins with
    """
    _add_files(flask)
    _add_page(flask, desk, start or first_texts())
    _add_answer(flask, desk)
    _add_exports(flask, desk)


def _add_files(flask: Flask) -> None:
    from flask import send_file

    def plotly_script() -> Response:
        """Return Plotly's script, which the page fetches once it has an answer."""
        return send_file(PLOTLY_SCRIPT, max_age=_CACHED_S)

    def own_file(name: str) -> Callable[[], Response]:
        return lambda: send_file(_ASSETS / name, max_age=0)

    flask.add_url_rule("/plotly.js", "plotly", plotly_script)
    for name in ("app.js", "app.css"):
        flask.add_url_rule(f"/{name}", name, own_file(name))


def _add_page(flask: Flask, desk: Desk, start: ControlTexts) -> None:
    from flask import render_template, request

    view = page_view(desk.session)

    def page() -> str:
        """Return the page, with the scenarios of the link that it was opened by."""
        with spelling(label_of):
            linked = read_link(request.query_string.decode("utf-8", "replace"))
            scenarios, notice = {}, linked.wrong
            for pane, texts in {"a": linked.first or dict(start), "b": linked.second}.items():
                scenarios[pane], wrong = desk.readable.shared(texts, desk.session)
                notice = notice or wrong
        made: str = render_template("page.html", **view, notice=plain(notice), state=scenarios)
        return made

    flask.add_url_rule("/", "page", page)


def _ask(flask: Flask, where: str, answer: Callable[[dict[str, Any]], Any]) -> None:
    """Add a question: the page sends JSON, and gets JSON whatever happens."""
    from flask import request

    def asked() -> Any:
        try:
            given = request.get_json(silent=True) if request.is_json else None
        except RecursionError:  # tables in tables in tables
            given = None
        if not isinstance(given, dict):
            return {"field": "", "sentence": "The page sent no JSON."}, 400
        try:
            return answer(given)
        except PerfsimError as error:
            return vars(refusal(error))
        except Exception as error:
            if os.environ.get("PERFSIM_DEBUG"):
                traceback.print_exc(file=sys.stderr)
            name = type(error).__name__
            why = f"internal error ({name}: {error}); PERFSIM_DEBUG=1 shows where."
            return vars(Refusal("", why))

    flask.add_url_rule(where, where, asked, methods=["POST"])


def _texts(given: Mapping[str, Any], name: str = "texts") -> dict[str, str]:
    """Return the texts of a scenario that a page sent; what is no text is left out."""
    found = given.get(name)
    if not isinstance(found, dict):
        return {}
    return {
        str(key): text[:_MAX_TEXT]
        for key, text in list(found.items())[:_MAX_TEXTS]
        if isinstance(text, str)
    }


def _add_answer(flask: Flask, desk: Desk) -> None:
    from flask import render_template

    def answer(given: dict[str, Any]) -> Any:
        """Answer a scenario."""
        began = time.perf_counter()
        found = desk.answer(_texts(given))
        if isinstance(found, Refusal):
            return vars(found)
        view = answer_view(found)
        return {
            "html": render_template("answer.html", **view),
            "seconds": view["seconds"],
            "placed": dict(found.placed),
            "taken": dict(found.taken),
            "took_ms": (time.perf_counter() - began) * 1e3,
        }

    def options(given: dict[str, Any]) -> Any:
        """Return the controls of the options of a method and of a fusion policy."""
        texts = _texts(given)
        with desk.turns.take(desk.turns.ANSWER):
            controls = option_controls(texts, desk.session)
        seen, folded = options_view(controls, texts)
        method = texts.get("method", "")
        return {
            "html": render_template(
                "options.html", pane=given.get("pane"), seen=seen, folded=folded, method=method
            )
        }

    makers = {
        "timeline": desk.timeline,
        "scaling": desk.scaling_figure,
        "breakeven": desk.break_even,
    }

    def figure(given: dict[str, Any]) -> Any:
        """Return a figure of a scenario."""
        name, texts = str(given.get("figure")), _texts(given)
        if name not in makers:
            return vars(Refusal("", f"There is no figure {name[:40]!r}."))
        words = ", ".join(filter(None, (texts.get(key, "") for key in _HEADING)))
        heading = figure_label(f"{FIGURES[name]}: {words}")
        return {**figure_view(makers[name](texts)), "heading": heading}

    def compared(given: dict[str, Any]) -> Any:
        """Say how scenario B stands beside A."""
        first, second = (desk.prediction(_texts(given, pane)) for pane in ("a", "b"))
        sentence = compared_words(first, second)
        return {**figure_view(compared_figure(first, second)), "words": sentence}

    _ask(flask, "/answer", answer)
    _ask(flask, "/options", options)
    _ask(flask, "/figure", figure)
    _ask(flask, "/compared", compared)


_HEADING = ("model", "method", "gpus")
"""The texts that name a picture."""


def _add_exports(flask: Flask, desk: Desk) -> None:
    def opened(given: dict[str, Any]) -> Any:
        """Return the texts of a scenario file that was opened."""
        name = str(given.get("name"))
        fields = texts_of(read_opened(name, str(given.get("text"))))
        with spelling(label_of):
            linked = read_link(link_of(fields))
            texts, wrong = desk.readable.shared(linked.first, desk.session)
        return {"texts": texts, "notice": plain(linked.wrong or wrong or f"{name} is open.")}

    def saved(given: dict[str, Any]) -> Any:
        """Return a file of a scenario, or of both: its name and text."""
        kind = given.get("kind")
        texts = _texts(given)
        name = _file_name(texts)
        if kind == "toml":
            return {"name": f"{name}.toml", "text": desk.toml(texts)}
        if kind == "csv":
            panes = {one.upper(): _texts(given, one) for one in ("a", "b") if given.get(one)}
            return {"name": f"{name}.csv", "text": to_csv(desk.rows(panes or {"A": texts}))}
        return {"name": f"{name}.html", "text": desk.page(texts)}

    _ask(flask, "/opened", opened)
    _ask(flask, "/saved", saved)


def _file_name(texts: ControlTexts) -> str:
    """Return a file's name that says what it is of.

    Examples
    --------
    >>> _file_name({"model": "own/config.json", "gpus": "8"})
    'perfsim-own-config-json-ssgd-8'
    """
    words = [texts.get("model", ""), texts.get("method", "ssgd"), texts.get("gpus", "")]
    plain_words = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())[:60]
    return f"perfsim-{plain_words.strip('-')}"
