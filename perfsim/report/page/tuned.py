"""One thing tuned: the iteration over its values, with the best and the present one marked."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

from perfsim.report.page.figure import COLOURS, Figure, axis, marker, names, plain, quantity
from perfsim.report.tune import BESIDE, NAMES, sentences, shown
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.planning.knob import Value
    from perfsim.planning.tuned import Tuned

__all__ = ["tuned_figure"]

MOST_TICKS = 12

WHOLE = 1e-6
"""A number nearer to a whole one than this is one."""


def tuned_figure(one: Tuned) -> Figure:
    """Return the figure: a line over numbers, bars of names; a table row is a value tried."""
    name = NAMES[one.knob.name]
    unit = {"bytes": " [B]"}.get(one.knob.unit, "")
    draw = _names if one.low is None else _numbers
    data, layout = draw(one)
    refused = [f"{word} is not for here, as {why}." for word, why in one.refused.items()]
    needs = [f"{word} needs {why}." for word, why in one.needs.items() if _tried(one, word)]
    notes = [" ".join(some) for some in (needs, refused) if some]
    return Figure(
        f"tuned-{one.knob.name}",
        name[0].upper() + name[1:],
        f"Iteration over the {name}. {' '.join(sentences(one))}",
        data,
        layout,
        (f"{name}{unit}", "iteration [ms]", "mark"),
        [
            *((value, time_s * 1e3, _mark(one, value)) for value, time_s in one.curve),
            *(
                (f"--fusion {policy} ({BESIDE[policy]})", time_s * 1e3, "beside it")
                for policy, time_s in one.beside.items()
            ),
        ],
        notes,
    )


def _tried(one: Tuned, word: str) -> bool:
    return any(value == word for value, _ in one.curve)


def _mark(one: Tuned, value: Value) -> str:
    marks = {"asked": one.asked, "fastest": one.fastest, "to take": one.advised}
    said = [word for word, place in marks.items() if place == value]
    return ", ".join([*said, *(["within 1 %"] if value in one.as_good else [])])


def _numbers(one: Tuned) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a line over the values, and the three that matter."""
    places = [float(value) for value, _ in one.curve]
    every = [time_s * 1e3 for _, time_s in one.curve]
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": NAMES[one.knob.name],
        "x": places,
        "y": every,
        "text": [shown(one, value) for value, _ in one.curve],
        "line": {"color": COLOURS["blue"]},
        "marker": {"size": 5},
        "hovertemplate": "%{text}<br>%{y:.4f} ms<extra></extra>",
    }
    step = max(1, -(-len(_grid(one)) // MOST_TICKS))
    ticks = _grid(one)[::step]
    return [line, *_marks(one)], {
        "xaxis": axis(
            NAMES[one.knob.name],
            type="log",
            tickvals=ticks,
            ticktext=[shown(one, value) for value in ticks],
        ),
        "yaxis": quantity("time of an iteration [ms]", every),
        "shapes": [_within(one)],
        "height": 440,
    }


def _marks(one: Tuned) -> list[dict[str, Any]]:
    """Return the values that matter: the one asked for, the fastest, the one to take."""
    marks = (
        ("asked", one.asked, one.asked_s, "grey", "square"),
        ("fastest", one.fastest, one.fastest_s, "vermilion", "star"),
        ("to take", one.advised, one.advised_s, "green", "diamond"),
    )
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{word}: {shown(one, value)}, {format_seconds(time_s)}",
            "x": [float(value)],
            "y": [time_s * 1e3],
            "marker": {"color": COLOURS[colour], "symbol": symbol, "size": 13}
            | {"line": {"color": "ink", "width": 1}},
            "hovertemplate": f"{word}: {shown(one, value)}<br>%{{y:.4f}} ms<extra></extra>",
        }
        for word, value, time_s, colour, symbol in marks
    ]


def _grid(one: Tuned) -> list[float]:
    """Return values for ticks: those of the coarse grid."""
    found = []
    for value, _ in one.curve:
        steps = log(float(value) / one.knob.low) / log(one.knob.factor)
        if abs(steps - round(steps)) < WHOLE:
            found.append(float(value))
    return found or [float(one.curve[0][0]), float(one.curve[-1][0])]


def _within(one: Tuned) -> dict[str, Any]:
    """Return the range within 1 % of the fastest, as a band."""
    return {
        "type": "rect",
        "x0": one.low,
        "x1": one.high,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "fillcolor": COLOURS["green"],
        "opacity": 0.15,
        "line": {"width": 0},
        "layer": "below",
    }


def _names(one: Tuned) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a bar a name, fastest on top, its mark beside it."""
    words = [plain(value) for value, _ in one.curve]
    marks = [_mark(one, value) for value, _ in one.curve]
    times_ms = [time_s * 1e3 for _, time_s in one.curve]
    told = [f"{time_ms:.4g} ms" for time_ms in times_ms]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": words,
        "x": times_ms,
        "text": [", ".join(filter(None, pair)) for pair in zip(told, marks, strict=True)],
        "textposition": "auto",
        "marker": marker(COLOURS["sky"], ""),
        "hovertemplate": "%{y}<br>%{x:.4f} ms<extra></extra>",
    }
    return [bars], {
        "xaxis": axis("time of an iteration [ms]", rangemode="tozero"),
        "yaxis": names(words),
        "height": 110 + 30 * len(words),
        "showlegend": False,
    }
