"""A figure of a report: what Plotly draws, the same numbers as a table, and its PNG.

Figures are plain data: Plotly reads them in the page, or draws them with Kaleido.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log10, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.errors import RequestError
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as PlotlyFigure

__all__ = [
    "PALETTE",
    "PART_STYLES",
    "WIDE_RANGE",
    "CellText",
    "Figure",
    "TimeUnit",
    "axis",
    "error_bars",
    "figure_label",
    "interval_axis",
    "marker",
    "names_axis",
    "need_kaleido",
    "need_plotly",
    "plotly_figure",
    "png_of",
    "quantity_axis",
    "time_unit",
    "time_words",
    "varies",
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
"""Okabe and Ito's palette, which colour-blind readers can distinguish."""

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
"""Values that span more than this factor are drawn on a logarithmic axis."""

_MAX_REACH = 1.6
"""An axis ends at most at this multiple of its largest value. No source: chosen."""

_TICK_STEPS = ((1.0, 2.0, 5.0), (1.0,))
"""Ticks in a decade: the first for an axis of few decades, the second for more."""
_FEW_DECADES = 2.5

_PNG_WIDTH, _PNG_SCALE = 1000, 2
_PNG_TITLE = 50
"""Pixels above the figure."""

_INK, _GRID = "#1d2733", "#d5dbe1"


class TimeUnit(NamedTuple):
    """The unit of the times of a figure: its name, and how many of it make a second."""

    name: str
    per_second: float

    def of(self, seconds: float) -> float:
        """Return a time [s] in this unit."""
        return seconds * self.per_second

    def title(self, what: str) -> str:
        """Return the title of an axis or a column that shows ``what`` in this unit."""
        return f"{what} [{self.name}]"

    def ends(self, interval_s: Sequence[float]) -> list[float]:
        """Return the two ends of an interval [s] in this unit."""
        return [self.of(end_s) for end_s in interval_s]

    def hover(self, what: str) -> str:
        """Return what a point says of ``what``, a value such as x, when it is pointed at."""
        return f"%{{{what}:,.4~r}} {self.name}"

    @property
    def interval_hover(self) -> str:
        """What a point says of its interval, the first two of its custom data."""
        return f"90 % interval %{{customdata[0]:,.4~r}} to {self.hover('customdata[1]')}"


_TIME_UNITS = (TimeUnit("s", 1.0), TimeUnit("ms", 1e3), TimeUnit("µs", 1e6))
"""Units of time, the largest first."""


def time_unit(times_s: Iterable[float]) -> TimeUnit:
    """Return the unit that suits times [s]: that of the middle between the least and the greatest.

    The middle is on a logarithmic scale, and times of zero do not count.

    Examples
    --------
    >>> [time_unit([one]).name for one in (1.5, 0.2, 3e-5, 0.0)]
    ['s', 'ms', 'µs', 'ms']
    >>> time_unit([0.02, 3.0]).name
    'ms'
    >>> time_unit([0.4]).title("iteration")
    'iteration [ms]'
    """
    used = [time_s for time_s in times_s if time_s > 0]
    middle_s = sqrt(min(used) * max(used)) if used else 1e-3
    fitting = (unit for unit in _TIME_UNITS if unit.of(middle_s) >= 1.0)
    return next(fitting, _TIME_UNITS[-1])


def time_words(seconds: float, digits: int = 4) -> str:
    """Write a time [s] with the unit that suits it, as figures write units.

    Examples
    --------
    >>> time_words(1.25e-5)
    '12.5 µs'
    """
    return format_seconds(seconds, digits).replace(" us", " µs")


def varies(values: Iterable[float]) -> bool:
    """Say whether a chart of values shows anything: they are not all the same.

    Examples
    --------
    >>> varies([1.0, 1.0 + 1e-12]), varies([1.0, 1.1]), varies([])
    (False, True, False)
    """
    every = list(values)
    return bool(every) and max(every) - min(every) > _SAME * max(map(abs, every))


_SAME = 1e-9
"""Values nearer to each other than this share of them are the same."""


@dataclass(frozen=True)
class Figure:
    """One figure.

    Parameters
    ----------
    name : its identifier in the page
    title : its heading
    words : what it shows, in a sentence or two with the main numbers; also the alt text
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


def marker(colour: str, hatch: str) -> dict[str, Any]:
    """Return the style of bars: a colour, and a hatch that shows in print without colour."""
    pattern = {"shape": hatch, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.55}
    return {"color": colour, "pattern": pattern | {"size": 7}, "line": {"width": 0}}


def figure_label(text: object) -> str:
    """Escape text for a label, as Plotly reads some HTML there.

    Examples
    --------
    >>> figure_label("a<b>")
    'a&lt;b&gt;'
    """
    return html.escape(str(text), quote=False)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return a Plotly axis with its title."""
    return {"title": {"text": figure_label(title)}, "automargin": True, **more}


def error_bars(values: Sequence[float], ends: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the error bars of intervals around values.

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
    """Return a vertical line over the whole height."""
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
    """Return a vertical axis of names, the first on top; all are labelled."""
    return axis("", type="category", categoryarray=list(words)[::-1], dtick=1, **more)


def quantity_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return an axis from zero, or a logarithmic one if positive values span a wide range.

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


def interval_axis(
    what: str,
    unit: TimeUnit,
    times_s: Sequence[float],
    ends_s: Mapping[str, Sequence[float]],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return an axis from zero that follows the values, and arrows where it cuts intervals off.

    ``what`` is the title without its unit; ``ends_s`` are the intervals by the names on the other
    axis.

    Examples
    --------
    >>> ends_s = {"a": (4.0, 15.0), "b": (9.0, 30.0)}
    >>> found, arrows = interval_axis("time", time_unit([5.0]), [5.0, 10.0], ends_s)
    >>> found["range"], arrows[0]["y"], arrows[0]["text"]
    ([0.0, 16.0], ['b'], ['up to 30 s'])
    """
    edge_s = _MAX_REACH * max(times_s)
    title = unit.title(what)
    cut = {name: pair for name, pair in ends_s.items() if pair[1] > edge_s}
    if not cut:
        return axis(title, rangemode="tozero"), []
    arrows = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [unit.of(edge_s)] * len(cut),
        "y": [figure_label(name) for name in cut],
        "text": [f"up to {time_words(high_s)}" for _, high_s in cut.values()],
        "textposition": "top left",
        "textfont": {"size": 11, "color": "ink"},
        "customdata": [unit.ends(pair) for pair in cut.values()],
        "marker": {"color": "ink", "symbol": "triangle-right", "size": 11},
        "cliponaxis": False,
        "showlegend": False,
        "hovertemplate": f"%{{y}}<br>{unit.interval_hover}<extra></extra>",
    }
    return axis(title, range=[0.0, unit.of(edge_s)]), [arrows]


def need_plotly(field: str) -> None:
    """Check that Plotly is installed.

    Raises
    ------
    RequestError
        If it is not, with the command that installs it.
    """
    try:
        import plotly  # noqa: F401
    except ImportError:
        raise RequestError(
            field, "Plotly is not installed; pip install 'perfsim[report]'."
        ) from None


def need_kaleido(field: str = "png") -> None:
    """Check that Kaleido and Plotly are installed.

    Raises
    ------
    RequestError
        If one is not, with the command that installs both.
    """
    try:
        import plotly  # noqa: F401, I001 - named first where both are missing

        import kaleido  # noqa: F401
    except ImportError as error:
        missing = "Plotly" if error.name == "plotly" else "Kaleido"
        raise RequestError(
            field,
            f"{missing} is not installed; pip install 'perfsim[png]' (it draws with an"
            " installed Chrome or Chromium).",
        ) from None


def png_of(figure: Figure, title: str, field: str = "png") -> bytes:
    """Return a figure as a PNG with a title.

    Raises
    ------
    RequestError
        If Kaleido is missing, or finds no browser that it can draw with.
    """
    need_kaleido(field)
    import plotly.io

    try:
        image = plotly.io.to_image(
            _for_plotly(figure, title), format="png", width=_PNG_WIDTH, scale=_PNG_SCALE
        )
    except Exception as error:
        # Kaleido's errors share no class: no browser, one that fails, one that never answers.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise RequestError(
            field, f"Kaleido could not draw with Chrome or Chromium ({why})."
        ) from None
    return bytes(image)


def plotly_figure(figure: Figure, title: str, field: str = "plot") -> PlotlyFigure:
    """Return a figure as an object of Plotly, which a notebook draws and a program changes.

    Raises
    ------
    RequestError
        If Plotly is missing.
    """
    need_plotly(field)
    from plotly.graph_objects import Figure as PlotlyFigure

    return PlotlyFigure(_for_plotly(figure, title))


def _for_plotly(figure: Figure, title: str) -> dict[str, Any]:
    """Return what Plotly draws on white, with a title."""
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
    return {"data": _inked(figure.data), "layout": layout}


def _inked(value: Any) -> Any:
    """Return plain data in which "ink" is replaced by the colour of text."""
    if isinstance(value, dict):
        return {key: _inked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_inked(one) for one in value]
    return _INK if value == "ink" else value
