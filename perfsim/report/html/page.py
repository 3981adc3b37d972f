"""A report as one HTML page that opens offline: an answer, figures with tables, notes, sources."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import TYPE_CHECKING, Any

from perfsim.errors import RequestError, spelled
from perfsim.scenario import gpu_words

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = [
    "PALETTE",
    "PART_STYLES",
    "SCRIPT",
    "STYLE",
    "Figure",
    "Page",
    "PageTable",
    "axis",
    "error_bars",
    "figure_label",
    "marker",
    "names_axis",
    "need_kaleido",
    "need_plotly",
    "page_text",
    "png_of",
    "quantity_axis",
    "question_of",
    "sources_of",
    "vertical_line",
]

PALETTE = {
    "blue": "#0072b2",
    "orange": "#e69f00",
    "green": "#009e73",
    "vermilion": "#d55e00",
    "sky": "#56b4e9",
    "purple": "#cc79a7",
    "yellow": "#f0e442",
    "grey": "#8a939c",
}
"""Okabe and Ito's palette, which colour-blind readers tell apart."""

PART_STYLES = {
    "forward": (PALETTE["sky"], ""),
    "backward": (PALETTE["blue"], ""),
    "compression": (PALETTE["purple"], "x"),
    "second_order": (PALETTE["yellow"], "."),
    "communication_exposed": (PALETTE["vermilion"], "/"),
    "update": (PALETTE["green"], ""),
    "other": (PALETTE["grey"], ""),
}
"""Colour and hatch of each part of an iteration."""

CellText = str | int | float

WIDE_RANGE = 8.0
"""Values that span more than this factor stand on a logarithmic axis."""

_TICK_STEPS = ((1.0, 2.0, 5.0), (1.0,))
"""Ticks of a decade, where they span few decades or many."""
_FEW_DECADES = 2.5


def marker(colour: str, hatch: str) -> dict[str, Any]:
    """Return how bars look: a colour, with a hatch over it that prints without colour too."""
    pattern = {"shape": hatch, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.55}
    return {"color": colour, "pattern": pattern | {"size": 7}, "line": {"width": 0}}


@dataclass(frozen=True)
class Figure:
    """One figure.

    Parameters
    ----------
    name : its identifier in the page
    title : its heading
    words : what it shows, in a sentence or two with the figures that matter; the alt text
    data, layout : what Plotly draws, as plain data
    head, rows : the same numbers as a table; every column names its unit
    notes : sentences below it
    """

    name: str
    title: str
    words: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    head: Sequence[str]
    rows: Sequence[Sequence[CellText]]
    notes: Sequence[str] = field(default=())


def figure_label(text: object) -> str:
    """Return text for a figure: Plotly reads a little HTML in labels, and this is none.

    Examples
    --------
    >>> figure_label("a<b>")
    'a&lt;b&gt;'
    """
    return html.escape(str(text), quote=False)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with its title."""
    return {"title": {"text": figure_label(title)}, "automargin": True, **more}


def error_bars(values: Sequence[float], ends: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the bars of intervals around values, each from its low end to its high one.

    Examples
    --------
    >>> found = error_bars([5.0], [(4.0, 8.0)])
    >>> found["array"], found["arrayminus"]
    ([3.0], [1.0])
    """
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for (_, high), value in zip(ends, values, strict=True)],
        "arrayminus": [value - low for (low, _), value in zip(ends, values, strict=True)],
        "color": "ink",
    }


def vertical_line(at: float, **line: Any) -> dict[str, Any]:
    """Return a line over the whole height."""
    return {
        "type": "line",
        "x0": at,
        "x1": at,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": line,
    }


def names_axis(words: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return a vertical axis of names, the first on top; every one is written."""
    return axis("", type="category", categoryarray=list(words)[::-1], dtick=1, **more)


def quantity_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return an axis from zero, or a logarithmic one where positive values span a wide range.

    Examples
    --------
    >>> quantity_axis("time [ms]", [1.0, 2.0])["rangemode"]
    'tozero'
    >>> quantity_axis("time [ms]", [3.0, 70.0])["ticktext"]
    ['2', '5', '10', '20', '50', '100']
    >>> quantity_axis("time [ms]", [1.0, 90000.0])["ticktext"][-1]
    '100,000'
    """
    low, high = min(values), max(values)
    if low <= 0 or high <= WIDE_RANGE * low:
        return axis(title, rangemode="tozero")
    first, last = floor(log10(low)), floor(log10(high)) + 1
    steps = _TICK_STEPS[log10(high / low) > _FEW_DECADES]
    marks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    ends = max(mark for mark in marks if mark <= low), min(mark for mark in marks if mark >= high)
    kept = [mark for mark in marks if ends[0] <= mark <= ends[1]]
    return axis(title, type="log", tickvals=kept, ticktext=[f"{mark:,.10g}" for mark in kept])


STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --paper: #ffffff; --line: #b8c2cc;
  --soft: #f2f5f8; --link: #0b5c9e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --paper: #14191f; --line: #4a5663; --soft: #1e262f; --link: #7cc0f5; }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70em; padding: 1em;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5em; margin: 0.5em 0 0.2em; } h2 { font-size: 1.2em; margin: 2em 0 0.3em; }
a { color: var(--link); } nav a { margin-right: 1.2em; }
.skip { position: absolute; left: -99em; } .skip:focus { left: 1em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2em 1.5em; margin: 1em 0; }
dt { color: inherit; opacity: 0.8; } dd { margin: 0; font-variant-numeric: tabular-nums; }
dd.main { font-weight: 600; font-size: 1.15em; }
figure { margin: 0.5em 0; } figcaption { max-width: 60em; }
.plot { width: 100%; min-height: 8em; margin-top: 0.5em; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
output { display: block; min-height: 1.5em; font-size: 0.9em; }
.scroll { overflow: auto; max-height: 30em; }
table { border-collapse: collapse; margin: 0.5em 0; font-size: 0.9em; }
th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: var(--soft); vertical-align: bottom; }
th:first-child, td:first-child, th.word, td.word { text-align: left; }
td { font-variant-numeric: tabular-nums; } summary { cursor: pointer; }
@media (max-width: 40em) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.5em; } }
@media print {
  :root { color-scheme: light; --ink: #000000; --paper: #ffffff; --line: #999999; --soft: #ffffff; }
  nav, output, .skip { display: none; } body { max-width: none; padding: 0; font-size: 11px; }
  figure { break-inside: auto; } .plot, h2, tr { break-inside: avoid; } h2 { break-after: avoid; }
  .scroll { max-height: none; overflow: visible; } th { position: static; }
  th, td { padding: 1px 4px; }
}
"""

SCRIPT = """
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const inks = {
    light: { ink: "#1d2733", line: "#d5dbe1", paper: "#ffffff" },
    dark: { ink: "#e4e9ee", line: "#3a4551", paper: "#14191f" },
  };
  const PRINTED = 690; // pixels: A4 less its margins
  const PAGE = 930; // and as high
  const MOST_PRINTED = 120; // rows of a table that goes to paper
  const inked = (value, ink) => {
    if (value === "ink") return ink;
    if (Array.isArray(value)) return value.map((one) => inked(one, ink));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, inked(v, ink)]));
  };
  const layout = (figure, colours, width) => {
    const axis = { gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.line };
    const made = {
      ...figure.layout,
      font: { family: "system-ui, sans-serif", size: 13, color: colours.ink },
      paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      margin: { l: 10, r: 20, t: 30, b: figure.layout.showlegend === false ? 50 : 90,
        ...figure.layout.margin },
      legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0,
        ...figure.layout.legend },
      hoverlabel: { font: { family: "system-ui, sans-serif" }, align: "left" },
      hovermode: "closest",
      xaxis: { ...axis, ...figure.layout.xaxis }, yaxis: { ...axis, ...figure.layout.yaxis },
    };
    if (width) {
      made.width = width;
      made.height = Math.min(made.height, PAGE);
    } else made.autosize = true;
    return made;
  };
  const config = { responsive: true, displaylogo: false, showSendToCloud: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  const draw = (printed) => {
    const colours = inks[dark.matches && !printed ? "dark" : "light"];
    for (const figure of figures) {
      Plotly.react(figure.name, inked(figure.data, colours.ink),
        layout(figure, colours, printed ? PRINTED : 0), config);
    }
  };
  draw(false);
  dark.addEventListener("change", () => draw(false));
  const tables = document.querySelectorAll("details");
  addEventListener("beforeprint", () => {
    for (const one of tables) {
      one.dataset.open = one.open ? "1" : "";
      one.open = one.querySelectorAll("tbody tr").length <= MOST_PRINTED;
    }
    draw(true);
  });
  addEventListener("afterprint", () => {
    for (const one of tables) one.open = one.dataset.open === "1";
    draw(false);
  });
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  for (const figure of figures) {
    const said = document.getElementById(figure.name + "-said");
    const rows = [...document.querySelectorAll("#" + figure.name + "-table tbody tr")];
    const heads = [...document.querySelectorAll("#" + figure.name + "-table thead th")];
    let at = -1;
    document.getElementById(figure.name).addEventListener("keydown", (event) => {
      if (!(event.key in steps) || !rows.length) return;
      event.preventDefault();
      at = (at + steps[event.key] + rows.length) % rows.length;
      said.textContent = [...rows[at].cells]
        .map((cell, column) => heads[column].textContent + " " + cell.textContent)
        .filter((text, column) => rows[at].cells[column].textContent).join(", ");
    });
  }
  document.documentElement.dataset.drawn = String(figures.length);
})();
"""


POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""Nothing is fetched: the page is whole."""

_MIN_WHOLE = 1e6
"""Numbers from here on are shown without decimals."""


@dataclass(frozen=True)
class PageTable:
    """A table with its heading; every column names its unit."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[CellText]]

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
    table: PageTable | None = None


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
            flag, "Plotly is not installed; pip install 'perfsim[report]'."
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


def _table(name: str, head: Sequence[str], rows: Sequence[Sequence[CellText]]) -> str:
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


def _cell(value: CellText) -> str:
    """Return a cell; a number is rounded for the eye and whole in the ``value`` of its element."""
    if isinstance(value, str):
        return f'<td class="word">{_plain(value)}</td>'
    return f'<td><data value="{value!r}">{_rounded(value)}</data></td>'


def _rounded(value: float) -> str:
    whole = float(value).is_integer() or abs(value) >= _MIN_WHOLE
    return f"{value:,.0f}" if whole else f"{value:.6g}"


def sources_of(prediction: Prediction) -> PageTable:
    """Return what a prediction's numbers rest on, as a table."""
    return PageTable("Sources", ("term", "value", "kind", "source"), list(_source_rows(prediction)))


def _last_section(table: PageTable | None) -> str:
    if table is None:
        return ""
    inside = _table(f"{table.name}-table", table.head, table.rows)
    return f'<h2 id="{table.name}">{_plain(table.title)}</h2>\n{inside}'


def _source_rows(prediction: Prediction) -> Iterator[tuple[str, ...]]:
    for term in prediction.terms:
        kind = f"{term.quantity.kind}, extrapolated" if term.extrapolated else term.quantity.kind
        yield term.term, str(term.quantity), kind, term.quantity.source


def _plain(text: object) -> str:
    return html.escape(spelled(str(text)))


def _json(value: Any) -> str:
    """Return JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


_PNG_WIDTH, _PNG_SCALE = 1000, 2
_PNG_TITLE = 50
"""Pixels above the figure."""

_INK, _GRID = "#1d2733", "#d5dbe1"


def need_kaleido(flag: str = "png") -> None:
    """Check that Kaleido is there, and Plotly.

    Raises
    ------
    RequestError
        If one is not, with the command that installs it.
    """
    need_plotly(flag)
    try:
        import kaleido  # noqa: F401
    except ImportError:
        raise RequestError(
            flag,
            "Kaleido is not installed; pip install 'perfsim[png]' (it draws with an"
            " installed Chrome or Chromium).",
        ) from None


def png_of(figure: Figure, title: str, flag: str = "png") -> bytes:
    """Return a figure as a PNG with a title.

    Raises
    ------
    RequestError
        If Kaleido is missing, or finds no browser that it can draw with.
    """
    need_kaleido(flag)
    import plotly.io

    axes = {
        name: {"gridcolor": _GRID, "zerolinecolor": _GRID, **_inked(figure.layout[name])}
        for name in ("xaxis", "yaxis")
    }
    layout = {
        **_inked(figure.layout),
        **axes,
        "height": _PNG_TITLE + figure.layout["height"],
        "title": {"text": title, "x": 0.01, "font": {"size": 16}},
        "font": {"size": 13, "color": _INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "legend": {
            **{"orientation": "h", "y": 0, "yref": "container", "yanchor": "bottom", "x": 0},
            **figure.layout.get("legend", {}),
        },
        "margin": {"l": 10, "r": 20, "t": _PNG_TITLE + figure.layout.get("margin", {}).get("t", 20)}
        | {"b": 90},
    }
    drawn = {"data": _inked(figure.data), "layout": layout}
    try:
        return bytes(plotly.io.to_image(drawn, format="png", width=_PNG_WIDTH, scale=_PNG_SCALE))
    except Exception as error:
        # Kaleido's errors share no class: no browser, one that fails, one that never answers.
        told = " ".join(str(error).split())[:200] or type(error).__name__
        raise RequestError(
            flag, f"no picture, as Kaleido could not draw with Chrome or Chromium ({told})."
        ) from None


def _inked(value: Any) -> Any:
    """Return plain data with the colour of text in place of "ink"."""
    if isinstance(value, dict):
        return {key: _inked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_inked(one) for one in value]
    return _INK if value == "ink" else value
