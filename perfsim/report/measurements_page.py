"""The accuracy page: predicted beside measured, drawn and in tables; one file, no scripts."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from perfsim.validate.measurements.report import Report, Row, figures

__all__ = ["measurements_page"]

SIDE = 520
MARGIN = 60
COLOURS = ("#3b6ea5", "#c0603a", "#4c8c4c", "#8a5aa8", "#b08a1e", "#4a9a9a", "#a8486a", "#666f78")
STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --paper: #ffffff; --line: #b8c2cc; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --paper: #14191f; --line: #4a5663; }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em;
  color: var(--ink); background: var(--paper); }
svg { width: 100%; max-width: 44em; height: auto; } text { font: 12px system-ui, sans-serif;
  fill: var(--ink); }
.axis { stroke: var(--line); stroke-width: 1; } .same { stroke: var(--ink); stroke-width: 1; }
.near { stroke: var(--line); stroke-width: 1; stroke-dasharray: 4 4; }
table { border-collapse: collapse; margin: 1em 0; } th, td { padding: 2px 10px; text-align: right;
  border-bottom: 1px solid var(--line); } th:first-child, td:first-child { text-align: left; }
caption { text-align: left; font-weight: 600; padding: 4px 0; }
.miss { font-weight: 600; }
"""
SHARES = ("median", "p90", "worst", "bias", "coverage", "half_width")


def measurements_page(report: Report) -> str:
    """Return the page as text."""
    tables = [_table("All whole iterations", {"all": report.whole})]
    tables += [_table(f"By {by}", named) for by, named in report.groups().items() if named]
    pairs, right = report.ranking()
    missed = "".join(
        f'<li class="miss">{_plain(one.group)}: {one.figure} {one.found:.1%}, its limit is'
        f" {one.limit:.0%}</li>"
        for one in report.missed
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>perfsim: predicted beside measured</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Predicted beside measured</h1>
<p>{len(report.rows)} measured values; an error is predicted over measured time less 1. Of {pairs}
pairs of systems that measure more than 10 % apart, {right} are ranked right.</p>
{f"<h2>Outside their limits</h2><ul>{missed}</ul>" if missed else ""}
{_picture(report.whole)}
{chr(10).join(tables)}
{chr(10).join(f"<p>{_plain(notice)}</p>" for notice in report.notices)}
</body>
</html>
"""


def _table(title: str, named: dict[str, list[Row]]) -> str:
    words = ("group", "rows", *(share.replace("_", " ") for share in SHARES))
    head = "".join(f'<th scope="col">{word}</th>' for word in words)
    lines = []
    for name, rows in sorted(named.items()):
        found = figures(rows)
        cells = [str(found["count"])]
        cells += ["-" if found[one] is None else f"{found[one]:.1%}" for one in SHARES]
        told = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr><td>{_plain(name)}</td>{told}</tr>")
    body = chr(10).join(lines)
    return (
        f"<table><caption>{_plain(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _picture(rows: Sequence[Row]) -> str:
    """Return measured against predicted, both logarithmic, a colour a source."""
    points = [
        (row, row.case.value, row.predicted) for row in rows if row.case.value * row.predicted > 0
    ]
    if not points:
        return ""
    # Rates are drawn as what they are; the line of equality is the same for every metric.
    ends = [math.log10(value) for _, *pair in points for value in pair]
    low, high = math.floor(min(ends)), math.ceil(max(ends))
    span = max(1, high - low)

    def place(value: float) -> float:
        return (math.log10(value) - low) / span * SIDE

    sources = sorted({row.case.group for row, *_ in points})
    colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(sources)}
    shapes = []
    for power in range(low, high + 1):
        at = place(10.0**power)
        shapes.append(
            f'<line class="axis" x1="{at:.1f}" y1="0" x2="{at:.1f}" y2="{SIDE}"/>'
            f'<line class="axis" x1="0" y1="{SIDE - at:.1f}" x2="{SIDE}"'
            f' y2="{SIDE - at:.1f}"/>'
            f'<text x="{at:.1f}" y="{SIDE + 16}" text-anchor="middle">{10.0**power:g}</text>'
            f'<text x="-6" y="{SIDE - at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
        )
    shapes.append(f'<line class="same" x1="0" y1="{SIDE}" x2="{SIDE}" y2="0"/>')
    shapes += [
        f'<circle cx="{place(measured):.1f}" cy="{SIDE - place(predicted):.1f}" r="3"'
        f' fill="{colour[row.case.group]}" fill-opacity="0.7"><title>'
        f"{_plain(row.case.id)}: {_plain(row.case.metric)} measured {measured:g}, predicted"
        f" {predicted:.4g}, error of the time {row.error:+.1%}</title></circle>"
        for row, measured, predicted in points
    ]
    keys = "".join(
        f'<circle cx="{SIDE + 20}" cy="{12 + 16 * number}" r="4" fill="{colour[name]}"/>'
        f'<text x="{SIDE + 30}" y="{16 + 16 * number}">{_plain(name)}</text>'
        for number, name in enumerate(sources)
    )
    label = "measured (across) and predicted (up) values in their metric's unit; equal on the line"
    return (
        f'<svg viewBox="-{MARGIN} -10 {SIDE + MARGIN + 130} {SIDE + MARGIN}" role="img"'
        f' aria-label="{label}">{chr(10).join(shapes)}{keys}'
        f'<text x="{SIDE / 2}" y="{SIDE + 36}" text-anchor="middle">{label}</text></svg>'
    )


def _plain(text: str) -> str:
    return html.escape(text)
