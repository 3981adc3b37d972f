"""Break-even: a method and S-SGD over bandwidth or over GPUs, and where they take as long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsim.report.explain import break_even_words
from perfsim.report.page.figure import COLOURS, Figure, plain, quantity, upright

if TYPE_CHECKING:
    from perfsim.planning.breakeven import BreakEven

__all__ = ["crossing_figure"]

GBIT = 1e9 / 8
"""Bytes a second in a Gbit/s."""

TITLES = {
    "bandwidth": ("Break-even over bandwidth", "bandwidth of the network [Gbit/s]"),
    "gpus": ("Break-even over GPUs", "GPUs"),
}


def crossing_figure(found: BreakEven, method: str, here: float) -> Figure:
    """Return the figure; ``here`` is the place asked for, as a factor of the rate or GPUs."""
    title, unit = TITLES[found.over]
    scale = (found.rate or GBIT) / GBIT if found.over == "bandwidth" else 1.0
    places = [place * scale for place, _ in found.curve]
    words = break_even_words(found, method)
    curves = {method: (0, "vermilion", "solid"), "S-SGD": (1, "blue", "dash")}
    marks = [_upright(one.at * scale, "dot", "ink") for one in found.crossings]
    each = {"tickvals": places, "ticktext": [f"{place:g}" for place in places]}
    ticks = each if found.over == "gpus" else {}
    times_ms = [one_s * 1e3 for _, times in found.curve for one_s in times]
    return Figure(
        f"crossing-{found.over}",
        title,
        f"Iteration of {method} and of S-SGD, all else as asked. {' '.join(words)}",
        [
            _line(name, places, [times[at] * 1e3 for _, times in found.curve], colour, dash)
            for name, (at, colour, dash) in curves.items()
        ],
        {
            "xaxis": {**quantity(unit, places), "type": "log", **ticks},
            "yaxis": quantity("time of an iteration [ms]", times_ms),
            "shapes": [*marks, _upright(here * scale, "solid", COLOURS["grey"])],
            "annotations": [
                *(_label("break-even", one.at * scale, 1.0) for one in found.crossings),
                _label("asked", here * scale, 0.0),
            ],
            "height": 420,
        },
        (unit, f"{method} [ms]", "S-SGD [ms]", "faster"),
        [
            (
                place * scale,
                times[0] * 1e3,
                times[1] * 1e3,
                _faster(method, times),
            )
            for place, times in found.curve
        ],
    )


def _faster(method: str, times: tuple[float, float]) -> str:
    if times[0] == times[1]:
        return "neither"
    return method if times[0] < times[1] else "S-SGD"


def _line(
    name: str, places: list[float], times_ms: list[float], colour: str, dash: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(name),
        "x": places,
        "y": times_ms,
        "line": {"color": COLOURS[colour], "dash": dash},
        "hovertemplate": f"{plain(name)} at %{{x:,.5g}}<br>%{{y:.4f}} ms<extra></extra>",
    }


def _upright(at: float, dash: str, colour: str) -> dict[str, Any]:
    return upright(at, width=1.5, dash=dash, color=colour) | {"layer": "below"}


def _label(text: str, at: float, height: float) -> dict[str, Any]:
    from math import log10  # an annotation on a log axis stands at the exponent

    return {
        "text": text,
        "x": log10(at),
        "y": height,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }
