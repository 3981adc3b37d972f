"""The report of a prediction as one HTML page that opens offline."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perfsim.errors import RequestError
from perfsim.gpu_names import gpu_words
from perfsim.report.page.breakdown import breakdown
from perfsim.report.page.breakeven import breakeven
from perfsim.report.page.figure import Cell, Figure
from perfsim.report.page.scaling import scaling
from perfsim.report.page.skin import SCRIPT, STYLE
from perfsim.report.page.timeline import timeline
from perfsim.report.page.worth import worth
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.planning.around import Around
    from perfsim.prediction import Prediction

__all__ = ["figures_of", "need_plotly", "prediction_page"]

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""Nothing is fetched: the page is whole."""


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


def figures_of(prediction: Prediction, near: Around) -> list[Figure]:
    """Return the figures of the report, in the page's order."""
    asked = prediction.scenario["method"]
    found = [
        timeline(prediction),
        breakdown(near.methods, near.refused),
        scaling(near.scaling, near.measured, asked),
    ]
    if near.cells:
        found.append(breakeven(near.cells, near.mapped, near.notes))
    return [*found, worth(prediction)]


def prediction_page(prediction: Prediction, near: Around, notes: Sequence[str] = ()) -> str:
    """Return the page as text; ``notes`` come before those of the prediction.

    It holds Plotly's script, the figures' numbers as JSON and as tables, and the prediction as
    ``--json`` prints it (the element "prediction").
    """
    from plotly.offline import get_plotlyjs

    figures = figures_of(prediction, near)
    scenario = prediction.scenario
    title = f"{scenario['model']}, {scenario['method']}, {scenario['gpus']} GPUs, {scenario['net']}"
    drawn = [{"name": one.name, "data": one.data, "layout": one.layout} for one in figures]
    links = "".join(f'<a href="#{one.name}-head">{_plain(one.title)}</a>' for one in figures)
    said = [*notes, *prediction.notes, *(() if near.cells else near.notes)]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>perfsim: {_plain(title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header>
<h1>{_plain(title)}</h1>
<p>{_plain(_question(scenario))}</p>
{_answer(prediction)}
<nav aria-label="Figures">{links}<a href="#notes">Notes</a><a href="#sources">Sources</a></nav>
</header>
<noscript><p>The figures need JavaScript; the tables below hold the same numbers.</p></noscript>
<main id="main">
{chr(10).join(_section(one) for one in figures)}
<h2 id="notes">Notes</h2>
<ul>{"".join(f"<li>{_plain(note)}</li>" for note in said)}</ul>
<h2 id="sources">Sources</h2>
{_table("sources-table", *_sources(prediction))}
</main>
<script type="application/json" id="prediction">{_json(prediction.to_dict())}</script>
<script type="application/json" id="figures">{_json(drawn)}</script>
<script>{get_plotlyjs()}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _question(scenario: dict[str, Any]) -> str:
    given = ", ".join(f"{name} {value}" for name, value in scenario["options"].items())
    return (
        f"{gpu_words(scenario)} on {scenario['nodes']} nodes, {scenario['net']}"
        f" between nodes, {scenario['intra_net']} inside; batch {scenario['batch']} a GPU,"
        f" {scenario['precision']}; {scenario['method']}{f' ({given})' if given else ''}, fusion"
        f" {scenario['fusion']}, {'overlap' if scenario['overlap'] else 'no overlap'}."
    )


def _answer(prediction: Prediction) -> str:
    """Return the answer in a few lines, as the terminal has it."""
    low, high = prediction.iteration_s_interval
    sent = prediction.communication
    cause = prediction.bottleneck
    iteration = format_seconds(prediction.iteration_s)
    known = f"90 % interval {format_seconds(low)} to {format_seconds(high)}"
    lines = {
        "iteration": f"{iteration} ({known if low < high else '90 % interval not known'})",
        "throughput": f"{prediction.samples_per_s:,.0f} samples/s, scaling efficiency"
        f" {prediction.scaling_efficiency:.1%}",
        "against S-SGD": f"{prediction.speedup:.2f} times as fast (S-SGD"
        f" {format_seconds(prediction.baseline_s)})",
        "held back by": f"{cause.replace('_', ' ')} (twice as fast would save"
        f" {prediction.worth[cause]:.0%})",
        "sent by each GPU": f"{format_bytes(sent['bytes_per_gpu'])} in {sent['calls']:g} calls",
        "memory held": f"{format_bytes(sum(prediction.memory_bytes.values()))} without activations",
    }
    told = (
        f"<dt>{name}</dt><dd{' class=main' if name == 'iteration' else ''}>{_plain(text)}</dd>"
        for name, text in lines.items()
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
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.6g}"


def _sources(prediction: Prediction) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    head = ("term", "value", "kind", "source")
    return head, list(_source_rows(prediction))


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
