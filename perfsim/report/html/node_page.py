"""The page of a node type: its drawing, what collectives reach over message size, and sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfsim.report.html.figure import PALETTE, Figure, TimeUnit, axis, time_unit, time_words
from perfsim.report.html.page import Page, PageTable, page_text
from perfsim.report.node_drawing import LineRate, NodePicture, RateCurve, RatePoint, node_drawing
from perfsim.units import format_rate

__all__ = ["node_figures", "node_page"]

_STYLES = tuple(
    (PALETTE[colour], dash)
    for colour, dash in (
        *(("blue", "solid"), ("orange", "dash"), ("green", "dashdot")),
        *(("vermilion", "dot"), ("purple", "longdash")),
    )
)
"""Colour and dash of the curves, by number of nodes."""

_BAND_OPACITY = 0.14
_MARKS = {"1 KiB": 10, "16 KiB": 14, "256 KiB": 18, "4 MiB": 22, "64 MiB": 26, "1 GiB": 30}
"""Marks of the axis of sizes, as powers of two."""

_NAMED_BYTES = 2.0**30
"""The message whose rate the words of a figure say."""

_HEAD = (*("bus rate [GB/s]", "90 % from [GB/s]", "90 % to [GB/s]", "algorithm"),)


def node_page(picture: NodePicture) -> str:
    """Return the page as text; it holds its numbers as JSON (the element "node")."""
    figures = node_figures(picture)
    answer = {
        "GPUs": f"{picture.gpus} x {picture.gpu}",
        "inside": picture.inside_words,
        "NICs": picture.nic_words,
    }
    page = Page(
        f"{picture.name}: {picture.title}",
        "What a node of this type is made of by its data sheet, and what collectives reach on one"
        " such node and on several.",
        answer,
        figures,
        picture.notes,
        "node",
        picture.result,
        PageTable("Facts", ("what", "value", "origin", "source"), picture.facts),
        node_drawing(picture),
    )
    return page_text(page)


def node_figures(picture: NodePicture) -> list[Figure]:
    """Return a figure for each collective: bus rate, or time, over message size."""
    names = dict.fromkeys(curve.collective for curve in picture.curves)
    return [_figure(picture, name) for name in names]


def _figure(picture: NodePicture, collective: str) -> Figure:
    curves = [curve for curve in picture.curves if curve.collective == collective]
    lines = picture.line_rates.get(collective, ())
    unit = time_unit(point.seconds for curve in curves for point in curve.points)
    rates, times = (
        [
            trace
            for curve, style in zip(curves, _STYLES, strict=False)
            for trace in _traces(curve, *style, time)
        ]
        for time in (None, unit)
    )
    bounds = [_line(line, curves[0].points) for line in lines]
    shown = [True] * (len(rates) + len(bounds)) + [False] * len(times)
    return Figure(
        collective,
        collective,
        _words(collective, curves, lines),
        [*rates, *bounds, *({**trace, "visible": False} for trace in times)],
        {
            "xaxis": axis(
                "message size",
                type="log",
                tickvals=[2.0**power for power in _MARKS.values()],
                ticktext=list(_MARKS),
            ),
            "yaxis": axis(_RATE, type="log", exponentformat="none", dtick=1),
            "height": 480,
            "margin": {"t": 60},
            "updatemenus": [_buttons(shown, unit)],
        },
        ("nodes", "GPUs", "size [B]", *map(unit.title, ("time", "90 % from", "90 % to")), *_HEAD),
        [_row(curve, point, unit) for curve in curves for point in curve.points],
    )


_RATE = "bus rate [GB/s]"


def _buttons(shown: Sequence[bool], unit: TimeUnit) -> dict[str, Any]:
    """Return the buttons that change between rate and time."""
    return {
        "type": "buttons",
        "direction": "right",
        "x": 0.0,
        "xanchor": "left",
        "y": 1.0,
        "yanchor": "bottom",
        "pad": {"b": 8},
        "bgcolor": "#d5dbe1",
        "font": {"color": "#1d2733"},
        "buttons": [
            {
                "label": label,
                "method": "update",
                "args": [{"visible": seen}, {"yaxis.title.text": title}],
            }
            for label, seen, title in zip(
                ("bus rate", "time"),
                (list(shown), [not one for one in shown]),
                (_RATE, unit.title("time")),
                strict=True,
            )
        ],
    }


def _traces(
    curve: RateCurve, colour: str, dash: str, unit: TimeUnit | None
) -> list[dict[str, Any]]:
    """Return the band and the line of one curve: times in ``unit``, or bus rates without one."""
    sizes = [point.size_bytes for point in curve.points]

    def scaled(size: float, seconds: float) -> float:
        return unit.of(seconds) if unit else curve.bus(size, seconds) / 1e9

    low = [scaled(point.size_bytes, point.low_s) for point in curve.points]
    high = [scaled(point.size_bytes, point.high_s) for point in curve.points]
    name = _nodes(curve.nodes)
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*sizes, *sizes[::-1]],
        "y": [*low, *high[::-1]],
        "fill": "toself",
        "fillcolor": colour,
        "opacity": _BAND_OPACITY,
        "line": {"width": 0},
        "hoverinfo": "skip",
        "legendgroup": name,
        "showlegend": False,
        "name": f"{name}, 90 %",
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": name,
        "x": sizes,
        "y": [scaled(point.size_bytes, point.seconds) for point in curve.points],
        "line": {"color": colour, "dash": dash, "width": 2},
        "customdata": [_told(curve, point) for point in curve.points],
        "hovertemplate": f"{name}, %{{customdata}}<extra></extra>",
    }
    return [band, line]


def _told(curve: RateCurve, point: RatePoint) -> str:
    bus = [curve.bus(point.size_bytes, s) for s in (point.seconds, point.high_s, point.low_s)]
    return (
        f"{point.size_bytes:,.0f} B: {time_words(point.seconds, 3)}, bus rate"
        f" {format_rate(bus[0], 3)} (90 % {format_rate(bus[1], 3)} to {format_rate(bus[2], 3)}),"
        f" {point.algorithm}"
    )


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def _line(line: LineRate, points: Sequence[RatePoint]) -> dict[str, Any]:
    """Return a rate of the data sheet as a line across the figure."""
    ends = [points[0].size_bytes, points[-1].size_bytes]
    words = f"data sheet: {line.what}, {format_rate(line.rate, 3)}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": words,
        "x": ends,
        "y": [line.rate / 1e9] * 2,
        "line": {"color": "ink", "width": 1, "dash": "dot"},
        "hovertemplate": f"{words}<extra></extra>",
    }


def _words(collective: str, curves: Sequence[RateCurve], lines: Sequence[LineRate]) -> str:
    """Say what the figure shows with the rates at 1 GiB."""
    told = []
    for curve in curves:
        point = next(point for point in curve.points if point.size_bytes == _NAMED_BYTES)
        rate, low, high = (
            format_rate(curve.bus(point.size_bytes, seconds), 3)
            for seconds in (point.seconds, point.high_s, point.low_s)
        )
        told.append(f"{_nodes(curve.nodes)} {rate} ({low} to {high})")
    bounds = "; ".join(f"{line.what} {format_rate(line.rate, 3)}" for line in lines)
    return (
        f"Bus rate of {collective} over message size with 90 % intervals. At 1 GiB:"
        f" {', '.join(told)}. By data sheet: {bounds}."
    )


def _row(curve: RateCurve, point: RatePoint, unit: TimeUnit) -> tuple[str | int | float, ...]:
    times = (point.seconds, point.low_s, point.high_s)
    rates = (point.seconds, point.high_s, point.low_s)
    return (
        curve.nodes,
        curve.gpus,
        int(point.size_bytes),
        *map(unit.of, times),
        *(curve.bus(point.size_bytes, seconds) / 1e9 for seconds in rates),
        point.algorithm,
    )
