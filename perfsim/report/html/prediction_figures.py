"""Figures of predict and compare: timeline, breakdown, scaling, break-even map, ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any

from perfsim.report.html.figure import (
    PALETTE,
    PART_STYLES,
    WIDE_RANGE,
    Figure,
    TimeUnit,
    axis,
    error_bars,
    figure_label,
    interval_axis,
    marker,
    names_axis,
    quantity_axis,
    time_unit,
    time_words,
    vertical_line,
)
from perfsim.report.terminal import PART_NAMES
from perfsim.report.timeline import TimelineSpan, steady_rounds, streams_of
from perfsim.sums import SUM_ROUNDING, sum_in_order

if TYPE_CHECKING:
    from perfsim.planning.compare import Comparison, Standing
    from perfsim.planning.neighbours import GridCell, PublishedValue
    from perfsim.prediction import Prediction
    from perfsim.ranking import Ranking

__all__ = [
    "breakdown_figure",
    "efficiency_figure",
    "interval_band",
    "line_without_loss",
    "map_figure",
    "ranking_figure",
    "savings_figure",
    "scaling_figure",
    "span_bars",
    "timeline_figure",
]

_TIME_TITLE = "time of an iteration"

_ARROW_NOTE = "An arrow at the edge: the interval goes on, to the time written above the arrow."


_MAX_METHODS_TOLD = 8
"""Methods whose times stand in the caption."""

_MAP_STYLES = tuple(
    (PALETTE[name], "") for name in ("sky", "orange", "green", "purple", "yellow", "grey")
)
"""Colour, light enough for black text, and hatch of a method's cells."""

_CELL_GAP = 0.04
"""Between two cells of the map, as a share of one."""

_MAP_INK = "#000000"

_AGAINST_WORDS = {
    "faster": "faster than S-SGD",
    "slower": "slower than S-SGD",
    "not told apart": "too close to S-SGD to call",
    None: "S-SGD",
}

_STANDING_STYLES = {
    "may be fastest": ("green", "star"),
    "faster than S-SGD": ("sky", "circle"),
    "too close to S-SGD to call": ("grey", "square"),
    "slower than S-SGD": ("vermilion", "triangle-down"),
    "S-SGD": ("blue", "diamond"),
}
"""Colour and symbol of a method by what is sure; the first that applies."""

_TIMED_HEAD = ("iteration", "90 % from", "90 % to")
"""Columns of a time and its interval, without their unit."""

_RANKED_HEAD = (
    "times as fast as S-SGD",
    "epochs, times S-SGD's",
    "times sooner at S-SGD's accuracy",
    "behind the first [%]",
    "may be fastest",
    "against S-SGD",
    "learns as S-SGD",
    "sent by a GPU [B]",
    "memory [B]",
)

_RANKED_PIXELS = 24
"""Pixels of a method."""

_CURVE_STYLES = (
    (PALETTE["blue"], "solid"),
    (PALETTE["vermilion"], "dash"),
    (PALETTE["green"], "dot"),
)

_BAND_OPACITY = 0.15
"""Opacity of an interval."""

_KIND_STYLES = {
    "forward": (PALETTE["sky"], ""),
    "backward": (PALETTE["blue"], ""),
    "compress": (PALETTE["purple"], ""),
    "decompress": (PALETTE["purple"], "x"),
    "communicate": (PALETTE["vermilion"], "/"),
    "update": (PALETTE["green"], ""),
    "second_order": (PALETTE["yellow"], "."),
    "other": (PALETTE["grey"], ""),
}

_MAX_SPANS = 2000
"""Spans that are drawn: the longest."""

_TEXT_PIXELS = 18
"""Pixels of a line of text."""

_ITERATION_END = {"width": 1, "dash": "dot", "color": PALETTE["grey"]}
"""Where an iteration ends."""

_ROUND_GAP = 0.03
"""Between two rounds, as a part of the longest."""

_CAUSE_NAMES = {
    "compute": "GPU twice as fast",
    "host": "host launching kernels twice as fast",
    "bandwidth": "bandwidth doubled",
    "latency": "latency halved",
    "compression": "compression kernels twice as fast",
    "second_order": "second-order kernels twice as fast",
}


def breakdown_figure(
    methods: Mapping[str, Prediction], refused: Mapping[str, str], *, shares: bool = False
) -> Figure:
    """Draw what the iterations of some methods consist of, in their order.

    With ``shares`` the bars are shares of each method's own iteration, which stay readable where
    some methods take far longer than others.
    """
    every = list(methods)
    used = [
        part
        for part in PART_NAMES
        if any(one.breakdown_s[part] > SUM_ROUNDING * one.iteration_s for one in methods.values())
    ]
    shortest = min(methods, key=lambda name: methods[name].iteration_s)
    times = [
        f"{name} {time_words(methods[name].iteration_s)}" for name in every[:_MAX_METHODS_TOLD]
    ]
    unit = time_unit(one.iteration_s for one in methods.values())
    left = len(every) - len(times)
    words = ", ".join(times) + (f", and {left} more" if left else "")
    bars = [_trace(part, methods, unit, shares) for part in used]
    arrows: list[dict[str, Any]] = []
    across = axis("share of the iteration [%]", range=[0, 100])
    if not shares:
        times_s = [one.iteration_s for one in methods.values()]
        across, arrows = interval_axis(_TIME_TITLE, unit, times_s, _ends_s(methods))
        bars += [_totals(methods, unit), *arrows]
    return Figure(
        "breakdown",
        "Breakdown by method",
        f"Iteration time by method, with {'the shares that' if shares else 'what'} it is made of"
        f"{'' if shares else ' and its 90 % interval'}: {words}.",
        bars,
        {
            "barmode": "stack",
            "legend": {"traceorder": "normal"},
            "xaxis": across,
            "yaxis": names_axis([figure_label(name) for name in every]),
            "height": 200 + (24 if shares else 40) * len(every),
        },
        (
            "method",
            *(unit.title(what) for what in (*(PART_NAMES[part] for part in used), *_TIMED_HEAD)),
            "times as fast as ssgd",
        ),
        [_breakdown_row(name, one, used, unit) for name, one in methods.items()],
        [
            f"{shortest} has the shortest iteration of these; methods that learn differently may"
            " need more of them.",
            *([_ARROW_NOTE] if arrows else []),
            *(f"Left out: {name}: {reason}" for name, reason in refused.items()),
        ],
    )


def _breakdown_row(
    name: str, prediction: Prediction, used: Sequence[str], unit: TimeUnit
) -> tuple[str | float, ...]:
    return (
        name,
        *(unit.of(prediction.breakdown_s[part]) for part in used),
        unit.of(prediction.iteration_s),
        *unit.ends(prediction.iteration_s_interval),
        prediction.speedup,
    )


def _trace(
    part: str, methods: Mapping[str, Prediction], unit: TimeUnit, shares: bool
) -> dict[str, Any]:
    colour, hatch = PART_STYLES[part]
    spent = [(one.breakdown_s[part], one.iteration_s) for one in methods.values()]
    value = "%{x:.4~r} %" if shares else unit.hover("x")
    return {
        "type": "bar",
        "orientation": "h",
        "name": PART_NAMES[part],
        "y": [figure_label(name) for name in methods],
        "x": [100 * part_s / all_s if shares else unit.of(part_s) for part_s, all_s in spent],
        "marker": marker(colour, hatch),
        "hovertemplate": f"%{{y}}<br>{PART_NAMES[part]} {value}<extra></extra>",
    }


def _ends_s(methods: Mapping[str, Prediction]) -> dict[str, tuple[float, float]]:
    return {name: one.iteration_s_interval for name, one in methods.items()}


def _totals(methods: Mapping[str, Prediction], unit: TimeUnit) -> dict[str, Any]:
    """Return the iteration times with their intervals."""
    totals = [unit.of(one.iteration_s) for one in methods.values()]
    ends = [unit.ends(one.iteration_s_interval) for one in methods.values()]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "iteration, 90 % interval",
        "y": [figure_label(name) for name in methods],
        "x": totals,
        "customdata": ends,
        "marker": {"color": "ink", "size": 7, "symbol": "diamond"},
        "error_x": error_bars(totals, ends),
        "hovertemplate": f"%{{y}}<br>iteration {unit.hover('x')}<br>{unit.interval_hover}"
        "<extra></extra>",
    }


def map_figure(
    cells: Sequence[GridCell], mapped: Sequence[str], notes: Sequence[str], between: str = "nodes"
) -> Figure:
    """Draw the break-even map: each cell shows its fastest method and the speed-up over ssgd.

    ``between`` says what its bandwidth is between: "nodes" or "sites".
    """
    rates = sorted({cell.rate_bytes_per_s for cell in cells})
    counts = sorted({cell.gpus for cell in cells})
    won = {name: sum(cell.ranking.winner == name for cell in cells) for name in mapped}
    wins = ", ".join(f"{name} in {count}" for name, count in won.items() if count)
    unit = time_unit(one.iteration_s for cell in cells for one in cell.ranking.predictions.values())
    return Figure(
        "breakeven",
        "Break-even map",
        f"The fastest method by bandwidth between {between} and number of GPUs: of"
        f" {len(cells)} cells, {wins}.",
        [
            _won_cells(name, style, cells, counts, unit)
            for name, style in zip(mapped, cycle(_MAP_STYLES), strict=False)
            if won[name]
        ],
        {
            "barmode": "overlay",
            "bargap": _CELL_GAP,
            "xaxis": axis(
                "GPUs",
                tickvals=list(range(len(counts))),
                ticktext=[str(count) for count in counts],
                range=[-0.5, len(counts) - 0.5],
                showgrid=False,
                zeroline=False,
            ),
            "yaxis": axis(
                f"bandwidth between {between}",
                type="category",
                categoryarray=[_rate_words(rate) for rate in rates],
                dtick=1,
                showgrid=False,
            ),
            "height": 170 + 48 * len(rates),
            "showlegend": True,
        },
        (
            "bandwidth [Gbit/s]",
            "GPUs",
            "fastest",
            *(unit.title(name) for name in mapped),
            "may be as fast",
        ),
        [_break_even_row(cell, mapped, unit) for cell in cells],
        [
            f"Methods: {', '.join(mapped)}, each with its defaults unless it is the one asked for;"
            " the number is the speed-up over ssgd, * where another may be as fast.",
            *notes,
        ],
    )


def _break_even_row(
    cell: GridCell, mapped: Sequence[str], unit: TimeUnit
) -> tuple[str | float, ...]:
    return (
        cell.rate_bytes_per_s * 8 / 1e9,
        cell.gpus,
        cell.ranking.winner,
        *(_time_in(unit, cell.ranking, name) for name in mapped),
        ", ".join(cell.ranking.undecided()),
    )


def _time_in(unit: TimeUnit, ranking: Ranking, name: str) -> float | str:
    one = ranking.predictions.get(name)
    return unit.of(one.iteration_s) if one else "does not apply"


def _rate_words(rate_bytes_per_s: float) -> str:
    return f"{rate_bytes_per_s * 8 / 1e9:g} Gbit/s"


def _won_cells(
    name: str,
    style: tuple[str, str],
    cells: Sequence[GridCell],
    counts: Sequence[int],
    unit: TimeUnit,
) -> dict[str, Any]:
    """Return the cells that a method wins: bars as wide as a cell, each at its place."""
    own = [cell for cell in cells if cell.ranking.winner == name]
    wide = 1.0 - _CELL_GAP
    return {
        "type": "bar",
        "orientation": "h",
        "name": figure_label(name),
        "x": [wide] * len(own),
        "base": [counts.index(cell.gpus) - wide / 2 for cell in own],
        "y": [_rate_words(cell.rate_bytes_per_s) for cell in own],
        "marker": marker(*style),
        "text": [_mark(cell.ranking) for cell in own],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": _MAP_INK},
        "customdata": [[cell.gpus, _words(cell.ranking, unit)] for cell in own],
        "hovertemplate": "%{y}, %{customdata[0]} GPUs<br>%{customdata[1]}<extra></extra>",
    }


def _mark(ranking: Ranking) -> str:
    star = "*" if ranking.undecided() else ""
    speedup = ranking.predictions[ranking.winner].speedup
    return f"{figure_label(ranking.winner)}{star}<br>{speedup:.2f}x"


def _words(ranking: Ranking, unit: TimeUnit) -> str:
    return "<br>".join(
        f"{figure_label(name)} {unit.of(one.iteration_s):.4g} {unit.name}"
        for name, one in ranking.predictions.items()
    )


def ranking_figure(comparison: Comparison) -> Figure:
    """Draw the methods of a comparison, the first in rank on top; a table row is a method."""
    ones = comparison.ranking.predictions
    standings = {one.method: one for one in comparison.standings()}
    groups = {name: _group(standing) for name, standing in standings.items()}
    baseline_s = comparison.baseline.iteration_s
    times_s = [baseline_s, *(one.iteration_s for one in ones.values())]
    ends_s = _ends_s(ones)
    unit = time_unit(times_s)
    across, arrows = interval_axis(_TIME_TITLE, unit, times_s, ends_s)
    if max(times_s) > WIDE_RANGE * min(times_s):
        # A logarithmic axis has room for whole intervals.
        every = unit.ends([*chain(*ends_s.values())])
        across, arrows = quantity_axis(unit.title(_TIME_TITLE), every), []
    close = [name for name, standing in standings.items() if standing.may_be_fastest]
    first = comparison.ranking.winner
    alike = f"; {', '.join(close[1:])} may be as fast" if len(close) > 1 else ""
    return Figure(
        "ranked",
        "Iteration by method",
        f"Iteration times of {len(ones)} methods with 90 % intervals, in order of the time to the"
        f" same accuracy: {first} is first with {time_words(ones[first].iteration_s)}{alike}."
        " Those without a rank are last: nothing says how many epochs they need. The line is S-SGD,"
        f" {time_words(baseline_s)}.",
        [
            _ranked_points(
                group, [name for name in ones if groups[name] == group], ones, standings, unit
            )
            for group in _STANDING_STYLES
            if group in groups.values()
        ]
        + arrows,
        {
            "xaxis": across,
            "yaxis": names_axis(
                [figure_label(name) for name in ones], range=[-0.7, len(ones) - 0.3]
            ),
            "shapes": [vertical_line(unit.of(baseline_s), width=1.5, dash="dash", color="ink")],
            "height": 170 + _RANKED_PIXELS * len(ones),
        },
        ("rank", "method", *map(unit.title, _TIMED_HEAD), *_RANKED_HEAD),
        [_ranked_row(one, standings[name], unit) for name, one in ones.items()],
        [comparison.rule, *([_ARROW_NOTE] if arrows else [])],
    )


def _group(standing: Standing) -> str:
    return "may be fastest" if standing.may_be_fastest else _AGAINST_WORDS[standing.against_ssgd]


def _ranked_points(
    group: str,
    own: list[str],
    ones: Mapping[str, Prediction],
    standings: Mapping[str, Standing],
    unit: TimeUnit,
) -> dict[str, Any]:
    times = [unit.of(ones[name].iteration_s) for name in own]
    every = [unit.ends(ones[name].iteration_s_interval) for name in own]
    colour, symbol = _STANDING_STYLES[group]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": group,
        "y": [figure_label(name) for name in own],
        "x": times,
        "customdata": [
            [*ends, standings[name].rank or "none", ones[name].speedup]
            for name, ends in zip(own, every, strict=True)
        ],
        "marker": {"color": PALETTE[colour], "symbol": symbol, "size": 11}
        | {"line": {"color": "ink", "width": 0.5}},
        "error_x": error_bars(times, every) | {"thickness": 1.2, "width": 3},
        "hovertemplate": "%{y}, rank %{customdata[2]}<br>iteration "
        f"{unit.hover('x')}<br>{unit.interval_hover}<br>"
        "%{customdata[3]:.3f} times as fast as S-SGD<extra></extra>",
    }


def _ranked_row(
    prediction: Prediction, standing: Standing, unit: TimeUnit
) -> tuple[str | int | float, ...]:
    return (
        standing.rank or "",
        standing.method,
        unit.of(prediction.iteration_s),
        *unit.ends(prediction.iteration_s_interval),
        prediction.speedup,
        "not known" if standing.epochs_ratio is None else standing.epochs_ratio,
        "not known" if standing.accuracy_speedup_ratio is None else standing.accuracy_speedup_ratio,
        standing.behind_first_ratio * 100,
        "yes" if standing.may_be_fastest else "no",
        standing.against_ssgd or "itself",
        "yes" if standing.learns_as_ssgd else "no",
        prediction.communication["bytes_per_gpu"],
        sum_in_order(prediction.memory_bytes.values()),
    )


def scaling_figure(
    curves: Mapping[str, Mapping[int, Prediction]],
    measured: Sequence[PublishedValue] | None,
    asked: str,
) -> Figure:
    """Draw throughput over GPUs; ``measured`` belongs to the method ``asked``.

    ``measured`` is None if published values were not searched.
    """
    data: list[dict[str, Any]] = []
    for (name, curve), line in zip(curves.items(), _CURVE_STYLES, strict=False):
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
    drawn = [value for trace in data for value in trace["y"]]
    upward = quantity_axis("throughput [samples/s]", drawn)
    beside = f" {len(measured)} measured values are drawn beside it." if measured else ""
    none = "No measured value of this model, GPU, batch, network and method is stored."
    return Figure(
        "scaling",
        "Scaling",
        f"Throughput over the number of GPUs with 90 % intervals: {ends}.{beside}",
        data,
        {
            # Both are logarithmic or neither, so that the ideal is a straight line.
            "xaxis": axis("GPUs", type=upward.get("type", "linear"), **_ticks(alone)),
            "yaxis": upward,
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


def efficiency_figure(curves: Mapping[str, Mapping[int, Prediction]]) -> Figure:
    """Draw scaling efficiency over GPUs with its intervals; a table row is a point."""
    data: list[dict[str, Any]] = []
    for (name, curve), (colour, dash) in zip(curves.items(), _CURVE_STYLES, strict=False):
        gpus, shares = list(curve), [_efficiencies(one) for one in curve.values()]
        data += [
            interval_band(gpus, [(low, high) for _, low, high in shares], colour),
            _points_of(name, gpus, shares, colour, dash)
            | {
                "hovertemplate": f"{figure_label(name)}, %{{x}} GPUs<br>%{{y:.4~r}} %"
                "<br>90 % interval %{customdata[0]:.4~r} to %{customdata[1]:.4~r} %<extra></extra>"
            },
        ]
    alone = [one for curve in curves.values() for one in curve.values()]
    gpus = sorted({one.scenario.gpus for one in alone})
    ends = ", ".join(
        f"{name} {curve[max(curve)].scaling_efficiency:.1%} at {max(curve)} GPUs"
        for name, curve in curves.items()
        if curve
    )
    return Figure(
        "efficiency",
        "Scaling efficiency",
        "Share of one GPU's rate that each GPU keeps, over the number of GPUs, with 90 %"
        f" intervals: {ends}.",
        [*data, line_without_loss(gpus, [100.0] * len(gpus))],
        {
            "xaxis": axis("GPUs", type="log", **_ticks(alone)),
            "yaxis": axis("scaling efficiency [%]", rangemode="tozero"),
            "height": 420,
        },
        ("method", "GPUs", "scaling efficiency [%]", "90 % from [%]", "90 % to [%]"),
        [
            (name, gpus, *_efficiencies(one))
            for name, curve in curves.items()
            for gpus, one in curve.items()
        ],
    )


def _efficiencies(prediction: Prediction) -> tuple[float, float, float]:
    """Return the scaling efficiency and the ends of its interval [%]."""
    rate, *ends = _rates(prediction)
    share = prediction.scaling_efficiency * 100
    low, high = (share * end / rate for end in ends)
    return share, low, high


def _rows(
    curves: Mapping[str, Mapping[int, Prediction]], measured: Sequence[PublishedValue], asked: str
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


def _origin(one: PublishedValue) -> str:
    options = "".join(f", {name} {value}" for name, value in one.options.items())
    return f"measured, {one.gpus_per_node} GPUs a node{options}: {one.id}, {one.source}"


def _rates(prediction: Prediction) -> tuple[float, float, float]:
    """Return throughput and the ends of its interval [samples/s]."""
    samples = prediction.samples_per_s * prediction.iteration_s
    low_s, high_s = prediction.iteration_s_interval
    return prediction.samples_per_s, samples / high_s, samples / low_s


def _curve(name: str, every: list[Prediction], colour: str, dash: str) -> list[dict[str, Any]]:
    gpus = [one.scenario.gpus for one in every]
    rates = [_rates(one) for one in every]
    band = interval_band(gpus, [(low, high) for _, low, high in rates], colour)
    line = _points_of(name, gpus, rates, colour, dash) | {
        "hovertemplate": f"{figure_label(name)}, %{{x}} GPUs<br>%{{y:,.1f}} samples/s"
        "<br>90 % interval %{customdata[0]:,.1f} to %{customdata[1]:,.1f}<extra></extra>",
    }
    return [band, line]


def _points_of(
    name: str,
    gpus: Sequence[int],
    values: Sequence[tuple[float, float, float]],
    colour: str,
    dash: str,
) -> dict[str, Any]:
    """Return a line over GPUs; a value has the ends of its interval behind it."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": figure_label(name),
        "x": list(gpus),
        "y": [value for value, *_ in values],
        "customdata": [[low, high] for _, low, high in values],
        "line": {"color": colour, "dash": dash},
    }


def interval_band(
    across: Sequence[float], ends: Sequence[tuple[float, float]], colour: str
) -> dict[str, Any]:
    """Return the area between the lower and the upper ends of intervals."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*across, *across[::-1]],
        "y": [*(high for _, high in ends), *(low for low, _ in ends[::-1])],
        "fill": "toself",
        "fillcolor": colour,
        "opacity": _BAND_OPACITY,
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _linear(every: Sequence[Prediction]) -> dict[str, Any]:
    """Return the line of scaling without loss: one GPU's rate times the GPUs."""
    one = every[0]
    rate = one.samples_per_s / one.scaling_efficiency / one.scenario.gpus
    gpus = sorted({each.scenario.gpus for each in every})
    return line_without_loss(gpus, [rate * count for count in gpus])


def line_without_loss(
    across: Sequence[float], values: Sequence[float], whose: str = ""
) -> dict[str, Any]:
    """Return the line of what there would be if GPUs waited for nothing."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": figure_label(f"ideal{', ' * bool(whose)}{whose}"),
        "x": list(across),
        "y": list(values),
        "line": {"color": PALETTE["grey"], "width": 1.5, "dash": "dashdot"},
        "hoverinfo": "skip",
    }


def _points(measured: Sequence[PublishedValue], asked: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{figure_label(asked)}, measured",
        "x": [one.gpus for one in measured],
        "y": [one.samples_per_s for one in measured],
        "text": [figure_label(_origin(one)) for one in measured],
        "marker": {"color": "ink", "symbol": "x", "size": 9},
        "hovertemplate": "%{x} GPUs<br>%{y:,.1f} samples/s<br>%{text}<extra></extra>",
    }


def _ticks(every: Sequence[Prediction]) -> dict[str, Any]:
    gpus = sorted({one.scenario.gpus for one in every})
    return {"tickvals": gpus, "ticktext": [str(count) for count in gpus]}


def timeline_figure(prediction: Prediction) -> Figure:
    """Draw the steady iteration by stream; a table row is a task."""
    rounds = steady_rounds(prediction)
    gap_s = _ROUND_GAP * max(one.window_s for one in rounds)
    unit = time_unit([sum_in_order(one.window_s for one in rounds)])
    spans: list[tuple[float, str, TimelineSpan]] = []
    shapes: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    offset_s = 0.0
    for number, one in enumerate(rounds, 1):
        words = one.words(number, len(rounds))
        spans += [(offset_s, words, span) for span in one.spans]
        names.append(_label(words, unit.of(offset_s), number))
        shapes += [
            vertical_line(unit.of(offset_s + end_s), **_ITERATION_END)
            for end_s in (0.0, *one.closes_s)
        ]
        offset_s += one.window_s + gap_s
    kept = sorted(spans, key=lambda item: item[2].start_s - item[2].end_s)[:_MAX_SPANS]
    kept.sort(key=lambda item: (item[0], item[2].start_s))
    left = len(spans) - len(kept)
    busy = prediction.communication
    return Figure(
        "timeline",
        "Timeline by stream",
        f"What each stream does in {'; '.join(one['text'] for one in names)}: the mean iteration is"
        f" {time_words(prediction.iteration_s)}; communication is busy for"
        f" {time_words(busy['busy_s'])} of it, and computation hides"
        f" {time_words(busy['hidden_s'])} of that.",
        span_bars([(offset_s, span) for offset_s, _, span in kept], unit),
        {
            "barmode": "overlay",
            "bargap": 0.25,
            "xaxis": axis(unit.title("time"), range=[0.0, unit.of(offset_s - gap_s)]),
            "yaxis": axis("", categoryarray=list(map(figure_label, streams_of(rounds)[::-1]))),
            "shapes": shapes,
            "annotations": names if len(rounds) > 1 else [],
            "margin": {"t": 20 + _TEXT_PIXELS * len(rounds)},
            "height": 180 + _TEXT_PIXELS * len(rounds) + 45 * len(streams_of(rounds)),
        },
        (
            *("round", "stream", "task", "kind", unit.title("start"), unit.title("length")),
            "message [B]",
        ),
        [_timeline_row(words, span, unit) for _, words, span in kept],
        [f"The {left:,} shortest tasks are left out; the trace has all."] if left else [],
    )


def _timeline_row(words: str, span: TimelineSpan, unit: TimeUnit) -> tuple[str | float, ...]:
    times = unit.of(span.start_s), unit.of(span.end_s - span.start_s)
    return (words, span.stream, span.name, span.kind, *times, span.size_bytes or "")


def span_bars(spans: Sequence[tuple[float, TimelineSpan]], unit: TimeUnit) -> list[dict[str, Any]]:
    """Return a bar for each span, shifted by its offset [s], in a trace for each kind."""
    traces = []
    for kind, (colour, hatch) in _KIND_STYLES.items():
        own = [(offset_s, span) for offset_s, span in spans if span.kind == kind]
        if not own:
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": kind.replace("_", " "),
                "y": [figure_label(span.stream) for _, span in own],
                "base": [unit.of(offset_s + span.start_s) for offset_s, span in own],
                "x": [unit.of(span.end_s - span.start_s) for _, span in own],
                "marker": marker(colour, hatch),
                "customdata": [
                    [figure_label(span.name), unit.of(span.end_s - span.start_s), _message(span)]
                    for _, span in own
                ],
                "hovertemplate": f"%{{customdata[0]}}<br>{unit.hover('customdata[1]')} from"
                f" {unit.hover('base')}<br>%{{customdata[2]}}",
            }
        )
    return traces


def _message(span: TimelineSpan) -> str:
    return f"message of {span.size_bytes:,.0f} B" if span.size_bytes else ""


def _label(words: str, at: float, number: int) -> dict[str, Any]:
    # A line each, as a short round leaves no room before the next one.
    return {
        "yshift": _TEXT_PIXELS * (number - 1),
        "text": words,
        "x": at,
        "y": 1.0,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }


def savings_figure(prediction: Prediction) -> Figure:
    """Draw the share of the iteration saved by each cause twice as fast, the largest on top."""
    ordered = sorted(prediction.worth.items(), key=lambda item: -item[1])
    names = [_CAUSE_NAMES.get(cause, cause) for cause, _ in ordered]
    shares = [share * 100 for _, share in ordered]
    words = ", ".join(f"{name} {share:.1f} %" for name, share in zip(names, shares, strict=True))
    unit = time_unit([prediction.iteration_s])
    return Figure(
        "worth",
        "What would help",
        f"Share of the iteration saved if one cause were twice as fast: {words}.",
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": names,
                "x": shares,
                "text": [f"{share:.1f} %" for share in shares],
                "textposition": "auto",
                "textangle": 0,
                "marker": {"color": PALETTE["sky"]},
                "hovertemplate": "%{y}<br>saves %{x:.3~r} % of the iteration<extra></extra>",
            }
        ],
        {
            "xaxis": axis("share of the iteration saved [%]", rangemode="tozero"),
            "yaxis": axis("", categoryarray=names[::-1]),
            "height": 260,
            "showlegend": False,
        },
        ("change", "iteration saved [%]", unit.title("iteration then")),
        [
            (name, share, unit.of(prediction.iteration_s) * (1.0 - share / 100))
            for name, share in zip(names, shares, strict=True)
        ],
    )
