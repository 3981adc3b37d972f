"""A report as one HTML page that opens offline: an answer, figures with tables, notes, sources."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsim.errors import RequestError
from perfsim.gpu_names import gpu_words
from perfsim.report.page.figure import Cell, Figure
from perfsim.report.page.skin import SCRIPT, STYLE

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["Page", "Table", "need_plotly", "page_text", "question_of", "sources_of"]

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""Nothing is fetched: the page is whole."""

MANY = 1e6
"""Numbers from here on are shown without decimals."""


@dataclass(frozen=True)
class Table:
    """A table with its heading; every column names its unit."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @property
    def name(self) -> str:
        """Its identifier in the page."""
        return self.title.lower()


@dataclass(frozen=True)
class Page:
    """What a page holds.

    Parameters
    ----------
    title, question : the heading, and what was asked in a sentence
    answer : lines of the answer by what each is of; the first is the main one
    figures : in their order; their numbers stand in the page as JSON and as tables
    notes : sentences below the figures
    kind, result : the name of the element that has the result as ``--json`` prints it, and that
    table : below the notes: what the numbers rest on, or all rows
    """

    title: str
    question: str
    answer: Mapping[str, str]
    figures: Sequence[Figure]
    notes: Sequence[str]
    kind: str
    result: Mapping[str, Any]
    table: Table | None = None


def need_plotly(flag: str) -> None:
    """Check that Plotly is there.

    Raises
    ------
    RequestError
        If it is not, with the command that installs it.
    """
    try:
        import plotly  # noqa: F401
    except ImportError:
        raise RequestError(
            f"{flag}: Plotly is not installed; pip install 'perfsim[report]'."
        ) from None


def page_text(page: Page) -> str:
    """Return the page as text, with Plotly's script in it."""
    from plotly.offline import get_plotlyjs

    drawn = [{"name": one.name, "data": one.data, "layout": one.layout} for one in page.figures]
    links = "".join(f'<a href="#{one.name}-head">{_plain(one.title)}</a>' for one in page.figures)
    last = f'<a href="#{page.table.name}">{page.table.title}</a>' if page.table else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>perfsim: {_plain(page.title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header>
<h1>{_plain(page.title)}</h1>
<p>{_plain(page.question)}</p>
{_answer(page.answer)}
<nav aria-label="Figures">{links}<a href="#notes">Notes</a>{last}</nav>
</header>
<noscript><p>The figures need JavaScript; the tables below hold the same numbers.</p></noscript>
<main id="main">
{chr(10).join(_section(one) for one in page.figures)}
<h2 id="notes">Notes</h2>
<ul>{"".join(f"<li>{_plain(note)}</li>" for note in page.notes)}</ul>
{_last_section(page.table)}
</main>
<script type="application/json" id="{page.kind}">{_json(page.result)}</script>
<script type="application/json" id="figures">{_json(drawn)}</script>
<script>{get_plotlyjs()}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def question_of(scenario: Mapping[str, Any]) -> str:
    """Return what was asked of one scenario, in a sentence."""
    given = ", ".join(f"{name} {value}" for name, value in scenario["options"].items())
    return (
        f"{gpu_words(scenario)} on {scenario['nodes']} nodes, {scenario['net']}"
        f" between nodes, {scenario['intra_net']} inside; batch {scenario['batch']} a GPU,"
        f" {scenario['precision']}; {scenario['method']}{f' ({given})' if given else ''}, fusion"
        f" {scenario['fusion']}, {'overlap' if scenario['overlap'] else 'no overlap'}."
    )


def _answer(lines: Mapping[str, str]) -> str:
    """Return the answer in a few lines, the first of them the main one."""
    told = (
        f"<dt>{_plain(name)}</dt><dd{'' if place else ' class=main'}>{_plain(text)}</dd>"
        for place, (name, text) in enumerate(lines.items())
    )
    return f"<dl>{''.join(told)}</dl>"


def _section(figure: Figure) -> str:
    """Return a figure with its words, its plot and its table."""
    name = figure.name
    notes = "".join(f"<p>{_plain(note)}</p>" for note in figure.notes)
    return f"""<section aria-labelledby="{name}-head">
<h2 id="{name}-head">{_plain(figure.title)}</h2>
<figure>
<figcaption id="{name}-words">{_plain(figure.words)}</figcaption>
<div class="plot" id="{name}" role="img" tabindex="0" aria-label="{_plain(figure.words)}"></div>
<output id="{name}-said" aria-live="polite"></output>
{notes}
<details><summary>Numbers of this figure</summary>
{_table(f"{name}-table", figure.head, figure.rows)}
</details>
</figure>
</section>"""


def _table(name: str, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    first = rows[0] if rows else head
    heads = "".join(
        f'<th scope="col"{" class=word" if isinstance(cell, str) else ""}>{_plain(word)}</th>'
        for word, cell in zip(head, first, strict=True)
    )
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_plain(name)}">'
        f'<table id="{_plain(name)}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _cell(value: Cell) -> str:
    """Return a cell; a number is rounded for the eye and whole in the ``value`` of its element."""
    if isinstance(value, str):
        return f'<td class="word">{_plain(value)}</td>'
    return f'<td><data value="{value!r}">{_rounded(value)}</data></td>'


def _rounded(value: float) -> str:
    whole = float(value).is_integer() or abs(value) >= MANY
    return f"{value:,.0f}" if whole else f"{value:.6g}"


def sources_of(prediction: Prediction) -> Table:
    """Return what a prediction's numbers rest on, as a table."""
    return Table("Sources", ("term", "value", "kind", "source"), list(_source_rows(prediction)))


def _last_section(table: Table | None) -> str:
    if table is None:
        return ""
    inside = _table(f"{table.name}-table", table.head, table.rows)
    return f'<h2 id="{table.name}">{_plain(table.title)}</h2>\n{inside}'


def _source_rows(prediction: Prediction) -> Iterator[tuple[str, ...]]:
    for term in prediction.terms:
        kind = f"{term.quantity.kind}, extrapolated" if term.extrapolated else term.quantity.kind
        yield term.term, str(term.quantity), kind, term.quantity.source


def _plain(text: object) -> str:
    return html.escape(str(text))


def _json(value: Any) -> str:
    """Return JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
