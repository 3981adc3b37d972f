"""A figure of the report as a PNG, drawn by Kaleido."""

from __future__ import annotations

from typing import Any

from perfsim.errors import RequestError
from perfsim.report.page.figure import Figure
from perfsim.report.page.frame import need_plotly

__all__ = ["need_kaleido", "png_of"]

WIDTH, SCALE = 1000, 2
TITLE = 50
"""Pixels above the figure."""

INK, GRID = "#1d2733", "#d5dbe1"


def need_kaleido(flag: str = "--png") -> None:
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
            f"{flag}: Kaleido is not installed; pip install 'perfsim[png]' (it draws with an"
            " installed Chrome or Chromium)."
        ) from None


def png_of(figure: Figure, title: str, flag: str = "--png") -> bytes:
    """Return a figure as a PNG with a title.

    Raises
    ------
    RequestError
        If Kaleido is missing, or finds no browser that it can draw with.
    """
    need_kaleido(flag)
    import plotly.io

    axes = {
        name: {"gridcolor": GRID, "zerolinecolor": GRID, **_inked(figure.layout[name])}
        for name in ("xaxis", "yaxis")
    }
    layout = {
        **_inked(figure.layout),
        **axes,
        "height": TITLE + figure.layout["height"],
        "title": {"text": title, "x": 0.01, "font": {"size": 16}},
        "font": {"size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "legend": {
            **{"orientation": "h", "y": 0, "yref": "container", "yanchor": "bottom", "x": 0},
            **figure.layout.get("legend", {}),
        },
        "margin": {"l": 10, "r": 20, "t": TITLE + figure.layout.get("margin", {}).get("t", 20)}
        | {"b": 90},
    }
    drawn = {"data": _inked(figure.data), "layout": layout}
    try:
        return bytes(plotly.io.to_image(drawn, format="png", width=WIDTH, scale=SCALE))
    except Exception as error:
        # Kaleido's errors share no class: no browser, one that fails, one that never answers.
        told = " ".join(str(error).split())[:200] or type(error).__name__
        raise RequestError(
            f"{flag}: no picture, as Kaleido could not draw with Chrome or Chromium ({told})."
        ) from None


def _inked(value: Any) -> Any:
    """Return plain data with the colour of text in place of "ink"."""
    if isinstance(value, dict):
        return {key: _inked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_inked(one) for one in value]
    return INK if value == "ink" else value
