"""Throughput over GPU counts, with intervals, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsim.report.page.figure import COLOURS, Figure, axis, plain

if TYPE_CHECKING:
    from perfsim.planning.measured import Measured
    from perfsim.prediction import Prediction

__all__ = ["scaling"]

LINES = ((COLOURS["blue"], "solid"), (COLOURS["vermilion"], "dash"), (COLOURS["green"], "dot"))
FILL = 0.15
"""Opacity of an interval."""


def scaling(
    curves: Mapping[str, Mapping[int, Prediction]],
    measured: Sequence[Measured] | None,
    asked: str,
) -> Figure:
    """Return the figure of some methods' curves; ``measured`` belongs to the method ``asked``.

    None of ``measured`` where nobody looked for it.
    """
    data: list[dict[str, Any]] = []
    for (name, curve), line in zip(curves.items(), LINES, strict=False):
        data += _curve(name, list(curve.values()), *line)
    alone = [one for curve in curves.values() for one in curve.values()]
    data.append(_linear(alone))
    if measured:
        data.append(_points(measured, asked))
    ends = ", ".join(
        f"{name} {curve[max(curve)].samples_per_s:,.0f} samples/s at {max(curve)} GPUs"
        for name, curve in curves.items()
        if curve
    )
    found = f" {len(measured)} measured values are drawn beside it." if measured else ""
    none = "No measured value of this model, GPU, batch, network and method is stored."
    return Figure(
        "scaling",
        "Scaling",
        f"Throughput over the number of GPUs with 90 % intervals: {ends}.{found}",
        data,
        {
            "xaxis": axis("GPUs", type="log", **_ticks(alone)),
            "yaxis": axis("throughput [samples/s]", type="log", exponentformat="none", dtick=1),
            "height": 460,
        },
        (
            "method",
            "GPUs",
            "throughput [samples/s]",
            "90 % from [samples/s]",
            "90 % to [samples/s]",
            "scaling efficiency",
            "origin",
        ),
        _rows(curves, measured or (), asked),
        (none,) if measured is not None and not measured else (),
    )


def _rows(
    curves: Mapping[str, Mapping[int, Prediction]], measured: Sequence[Measured], asked: str
) -> list[tuple[str | int | float, ...]]:
    predicted = [
        (name, gpus, *_rates(one), one.scaling_efficiency, "predicted")
        for name, curve in curves.items()
        for gpus, one in curve.items()
    ]
    return [
        *predicted,
        *((asked, one.gpus, one.samples_per_s, "", "", "", _origin(one)) for one in measured),
    ]


def _origin(one: Measured) -> str:
    options = "".join(f", {name} {value}" for name, value in one.options.items())
    return f"measured, {one.gpus_per_node} GPUs a node{options}: {one.id}, {one.source}"


def _rates(one: Prediction) -> tuple[float, float, float]:
    """Return throughput and the ends of its interval [samples/s]."""
    samples = one.samples_per_s * one.iteration_s
    low_s, high_s = one.iteration_s_interval
    return one.samples_per_s, samples / high_s, samples / low_s


def _curve(name: str, every: list[Prediction], colour: str, dash: str) -> list[dict[str, Any]]:
    gpus = [one.scenario["gpus"] for one in every]
    rates = [_rates(one) for one in every]
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*gpus, *gpus[::-1]],
        "y": [*(high for *_, high in rates), *(low for _, low, _ in rates[::-1])],
        "fill": "toself",
        "fillcolor": colour,
        "opacity": FILL,
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(name),
        "x": gpus,
        "y": [rate for rate, *_ in rates],
        "customdata": [[low, high] for _, low, high in rates],
        "line": {"color": colour, "dash": dash},
        "hovertemplate": f"{plain(name)}, %{{x}} GPUs<br>%{{y:,.1f}} samples/s<br>90 % interval"
        " %{customdata[0]:,.1f} to %{customdata[1]:,.1f}<extra></extra>",
    }
    return [band, line]


def _linear(every: Sequence[Prediction]) -> dict[str, Any]:
    """Return what scales without loss: one GPU's rate times the GPUs."""
    one = every[0]
    rate = one.samples_per_s / one.scaling_efficiency / one.scenario["gpus"]
    gpus = sorted({each.scenario["gpus"] for each in every})
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "without loss",
        "x": gpus,
        "y": [rate * count for count in gpus],
        "line": {"color": COLOURS["grey"], "width": 1},
        "hoverinfo": "skip",
    }


def _points(measured: Sequence[Measured], asked: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{plain(asked)}, measured",
        "x": [one.gpus for one in measured],
        "y": [one.samples_per_s for one in measured],
        "text": [plain(_origin(one)) for one in measured],
        "marker": {"color": "ink", "symbol": "x", "size": 9},
        "hovertemplate": "%{x} GPUs<br>%{y:,.1f} samples/s<br>%{text}<extra></extra>",
    }


def _ticks(every: Sequence[Prediction]) -> dict[str, Any]:
    gpus = sorted({one.scenario["gpus"] for one in every})
    return {"tickvals": gpus, "ticktext": [str(count) for count in gpus]}
