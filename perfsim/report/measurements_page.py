"""The accuracy page: predicted beside measured, drawn and in tables; one file, no scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from perfsim.report.page import figure, skin
from perfsim.validate.measurements.report import Report, Row, figures

__all__ = ["measurements_page"]

SIDE = 520
MARGIN = 60
COLOURS = tuple(figure.COLOURS.values())
STYLE = (
    skin.STYLE
    + """
svg { width: 100%; max-width: 44em; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.axis { stroke: var(--line); stroke-width: 1; } .same { stroke: var(--ink); stroke-width: 1; }
caption { text-align: left; font-weight: 600; padding: 4px 0; }
.miss { font-weight: 600; }
"""
)
SHARES = ("median", "p90", "worst", "bias", "coverage", "half_width")


def measurements_page(report: Report) -> str:
    """Return the page as text."""
    tables = [_table("All whole iterations", {"all": report.whole})]
    tables += [_table(f"By {by}", named) for by, named in report.groups().items() if named]
    pairs, right = report.ranking()
    missed = "".join(
        f'<li class="miss">{escape(one.group)}: {one.figure} {one.found:.1%}, its limit is'
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
{chr(10).join(f"<p>{escape(notice)}</p>" for notice in report.notices)}
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
        lines.append(f"<tr><td>{escape(name)}</td>{told}</tr>")
    body = chr(10).join(lines)
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _picture(rows: Sequence[Row]) -> str:
    """Return measured against predicted, both logarithmic, a colour a source.

    Rates are drawn as what they are; the line of equality is the same for every metric.
    """
    points = [row for row in rows if row.case.value * row.predicted > 0]
    if not points:
        return ""
    ends = [math.log10(value) for row in points for value in (row.case.value, row.predicted)]
    low, high = math.floor(min(ends)), math.ceil(max(ends))
    sources = sorted({row.case.group for row in points})
    colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(sources)}

    def place(value: float) -> float:
        return (math.log10(value) - low) / max(1, high - low) * SIDE

    shapes = [_grid(place(10.0**power), f"{10.0**power:g}") for power in range(low, high + 1)]
    shapes.append(f'<line class="same" x1="0" y1="{SIDE}" x2="{SIDE}" y2="0"/>')
    shapes += [
        _point(row, place(row.case.value), place(row.predicted), colour[row.case.group])
        for row in points
    ]
    shapes += [_key(name, number, colour[name]) for number, name in enumerate(sources)]
    label = "measured (across) and predicted (up) values in their metric's unit; equal on the line"
    return (
        f'<svg viewBox="-{MARGIN} -10 {SIDE + MARGIN + 130} {SIDE + MARGIN}" role="img"'
        f' aria-label="{label}">{chr(10).join(shapes)}'
        f'<text x="{SIDE / 2}" y="{SIDE + 36}" text-anchor="middle">{label}</text></svg>'
    )


def _grid(at: float, word: str) -> str:
    """Return a line up and a line across at one value, with the value beside both."""
    return (
        f'<line class="axis" x1="{at:.1f}" y1="0" x2="{at:.1f}" y2="{SIDE}"/>'
        f'<line class="axis" x1="0" y1="{SIDE - at:.1f}" x2="{SIDE}" y2="{SIDE - at:.1f}"/>'
        f'<text x="{at:.1f}" y="{SIDE + 16}" text-anchor="middle">{word}</text>'
        f'<text x="-6" y="{SIDE - at + 4:.1f}" text-anchor="end">{word}</text>'
    )


def _point(row: Row, across: float, up: float, colour: str) -> str:
    """Return a row as a dot that says what it is."""
    return (
        f'<circle cx="{across:.1f}" cy="{SIDE - up:.1f}" r="3" fill="{colour}"'
        f' fill-opacity="0.7"><title>{escape(row.case.id)}: {escape(row.case.metric)} measured'
        f" {row.case.value:g}, predicted {row.predicted:.4g}, error of the time"
        f" {row.error:+.1%}</title></circle>"
    )


def _key(name: str, number: int, colour: str) -> str:
    """Return a source's line in the key."""
    return (
        f'<circle cx="{SIDE + 20}" cy="{12 + 16 * number}" r="4" fill="{colour}"/>'
        f'<text x="{SIDE + 30}" y="{16 + 16 * number}">{escape(name)}</text>'
    )
