"""Figures of explain, tune, sweep and plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose, isfinite, log
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from perfsim.errors import PerfsimError, unknown
from perfsim.planning.capacity import HOUR_S
from perfsim.planning.tune import value_words
from perfsim.report.html.figure import (
    PALETTE,
    WIDE_RANGE,
    CellText,
    Figure,
    TimeUnit,
    axis,
    error_bars,
    figure_label,
    marker,
    names_axis,
    quantity_axis,
    time_unit,
    time_words,
    varies,
    vertical_line,
)
from perfsim.report.html.prediction_figures import (
    interval_band,
    line_without_loss,
    span_bars,
)
from perfsim.report.parallelism import best_words, division_words
from perfsim.report.planning import (
    FUSION_WORDS,
    TUNABLE_NAMES,
    break_even_words,
    improvement_words,
    tuned_verdict,
)
from perfsim.report.timeline import TimelineSpan
from perfsim.sums import sum_in_order
from perfsim.units import parse_bytes, parse_fraction, parse_rate, parse_seconds

if TYPE_CHECKING:
    from perfsim.planning.break_even import BreakEven
    from perfsim.planning.capacity import ClusterPlan, ParetoChoice
    from perfsim.planning.explain import CriticalPath, Explanation, Exposed, Improvement, PathStep
    from perfsim.planning.parallelism import ParallelSearch, TriedDivision
    from perfsim.planning.tune import TunableValue, TunedValue

__all__ = [
    "DRAWN_COLUMNS",
    "EFFICIENCY",
    "MAX_SERIES",
    "DrawnColumn",
    "crossing_figure",
    "exposed_figure",
    "field_words",
    "parallelism_figure",
    "path_figure",
    "plan_figure",
    "rows_figure",
    "sensitivity_figure",
    "tuned_figure",
]

_GBIT_PER_S = 1e9 / 8
"""Bytes a second in a Gbit/s."""

_CROSSING_TITLES = {
    "bandwidth": ("Break-even over bandwidth", "bandwidth of the network [Gbit/s]"),
    "gpus": ("Break-even over GPUs", "GPUs"),
}

_MAX_EXPOSED_BARS = 40
"""Buckets that are drawn, those with the most exposed time."""

_BAR_PIXELS = 22
"""Pixels of a bar."""

_MAX_PATH_STEPS = 2000
"""Steps that are drawn, the longest ones."""

_NOTHING_RUNS = "nothing runs"
"""Stream of a step in which no task of this worker runs."""

MAX_SERIES = 12
"""Lines that are drawn, those with the best values."""

_MAX_LISTED = 250
"""Rows of a figure of a sweep that stand in its table; the page's table of rows has more."""

_LINE_STYLES = tuple(
    (PALETTE[name], dash)
    for dash in ("solid", "dash")
    for name in ("blue", "vermilion", "green", "orange", "purple", "sky")
)
"""Colour and dash of each line."""

_NAME_FIELDS = ("net", "intra_net")
"""Fields whose values are names, even if one looks like a number."""

_MIN_WHOLE = 1e4
"""Numbers from here on are written without decimals."""

FlatRecord = Mapping[str, Any]

_MAX_TICKS = 12

_SAME_DRAWN = 1e-6
"""Numbers that differ by less than this share look the same in a figure. No source: chosen."""


def crossing_figure(search: BreakEven, method: str, here: float) -> Figure:
    """Draw a break-even; ``here`` is the scenario's own rate, as a factor, or its GPUs."""
    title, unit = _CROSSING_TITLES[search.over]
    scale = (search.rate or _GBIT_PER_S) / _GBIT_PER_S if search.over == "bandwidth" else 1.0
    points = [point * scale for point, _ in search.curve]
    words = break_even_words(search, method)
    curves = {method: (0, "vermilion", "solid"), "S-SGD": (1, "blue", "dash")}
    marks = [_upright(one.at * scale, "dot", "ink") for one in search.crossings]
    each = {"tickvals": points, "ticktext": [f"{point:g}" for point in points]}
    ticks = each if search.over == "gpus" else {}
    time = time_unit(one_s for _, times in search.curve for one_s in times)
    every = [time.of(one_s) for _, times in search.curve for one_s in times]
    return Figure(
        f"crossing-{search.over}",
        title,
        f"Iteration of {method} and of S-SGD, all else as asked. {' '.join(words)}",
        [
            _line(
                name,
                points,
                [time.of(times[at]) for _, times in search.curve],
                (colour, dash),
                time,
            )
            for name, (at, colour, dash) in curves.items()
        ],
        {
            "xaxis": {**quantity_axis(unit, points), "type": "log", **ticks},
            "yaxis": quantity_axis(time.title("time of an iteration"), every),
            "shapes": [*marks, _upright(here * scale, "solid", PALETTE["grey"])],
            "annotations": [
                *(_label("break-even", one.at * scale, 1.0) for one in search.crossings),
                _label("asked", here * scale, 0.0),
            ],
            "height": 420,
        },
        (unit, time.title(method), time.title("S-SGD"), "faster"),
        [
            (
                point * scale,
                time.of(times[0]),
                time.of(times[1]),
                _faster(method, times),
            )
            for point, times in search.curve
        ],
    )


def _faster(method: str, times: tuple[float, float]) -> str:
    if times[0] == times[1]:
        return "neither"
    return method if times[0] < times[1] else "S-SGD"


def _line(
    name: str,
    points: list[float],
    times: list[float],
    style: tuple[str, str],
    unit: TimeUnit,
) -> dict[str, Any]:
    colour, dash = style
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": figure_label(name),
        "x": points,
        "y": times,
        "line": {"color": PALETTE[colour], "dash": dash},
        "hovertemplate": f"{figure_label(name)} at %{{x:,.5~r}}<br>{unit.hover('y')}"
        "<extra></extra>",
    }


def _upright(at: float, dash: str, colour: str) -> dict[str, Any]:
    return vertical_line(at, width=1.5, dash=dash, color=colour) | {"layer": "below"}


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


def exposed_figure(rows: Sequence[Exposed]) -> Figure:
    """Draw the exposed time of buckets in the order of sending; a table row is a bucket."""
    several = len({row.round for row in rows}) > 1
    buckets = [f"round {row.round + 1}: {row.bucket}" if several else row.bucket for row in rows]
    total_s = sum_in_order(row.exposed_s for row in rows)
    order = sorted(range(len(rows)), key=lambda at: (-rows[at].exposed_s, -rows[at].busy_s, at))
    shown = sorted(order[:_MAX_EXPOSED_BARS])
    names = [figure_label(buckets[at]) for at in shown]
    most = order[0]
    left = len(rows) - len(shown)
    rest_s = sum_in_order(rows[at].exposed_s for at in order[_MAX_EXPOSED_BARS:])
    unit = time_unit(one_s for row in rows for one_s in (row.exposed_s, row.busy_s))
    return Figure(
        "exposed",
        "Exposed communication by bucket",
        f"Of {len(rows):,} bucket{'s' if len(rows) > 1 else ''},"
        f" {sum(row.exposed_s > 0 for row in rows):,} not wholly hidden by computation,"
        f" {time_words(total_s)} an iteration in all; most is exposed of bucket {buckets[most]},"
        f" {time_words(rows[most].exposed_s)}.",
        [
            _exposed_bars(what, *style, [own(rows[at]) for at in shown], names, unit)
            for what, style, own in (
                ("exposed", ("vermilion", "/"), attrgetter("exposed_s")),
                ("on the wire", ("sky", ""), attrgetter("busy_s")),
            )
        ],
        {
            "barmode": "group",
            "bargap": 0.15,
            "xaxis": axis(unit.title("mean of an iteration"), rangemode="tozero"),
            "yaxis": names_axis(names) | {"title": {"text": "bucket"}},
            "height": 150 + _BAR_PIXELS * max(3, len(shown)),
        },
        ("bucket", "messages", *map(unit.title, ("exposed", "on the wire", "kernels"))),
        [_row(name, row, unit) for name, row in zip(buckets, rows, strict=True)],
        [f"{left:,} more buckets with {time_words(rest_s)} in all are in the table only."]
        if left
        else [],
    )


def _row(name: str, row: Exposed, unit: TimeUnit) -> tuple[str | float, ...]:
    return (name, row.collectives, *map(unit.of, (row.exposed_s, row.busy_s, row.kernels_s)))


def _exposed_bars(
    what: str, colour: str, hatch: str, spent_s: list[float], names: list[str], unit: TimeUnit
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": what,
        "y": names,
        "x": [unit.of(one_s) for one_s in spent_s],
        "marker": marker(PALETTE[colour], hatch),
        "hovertemplate": f"%{{y}}<br>{what} {unit.hover('x')}<extra></extra>",
    }


def path_figure(path: CriticalPath, number: int, paths: int) -> Figure:
    """Draw the critical path of one round; a table row is a step."""
    kept = sorted(path.steps, key=lambda step: step.start_s - step.end_s)[:_MAX_PATH_STEPS]
    kept.sort(key=lambda step: step.start_s)
    left = len(path.steps) - len(kept)
    shares = ", ".join(
        f"{kind.replace('_', ' ')} {spent_s / path.length_s:.0%}"
        for kind, spent_s in path.by_kind().items()
    )
    many = f"{path.iterations} iteration{'s' if path.iterations > 1 else ''}"
    times = "once" if path.count == 1 else f"{path.count:g} times"
    round_ = f" (round {number} of {paths}, run {times})" if paths > 1 else ""
    streams = list(dict.fromkeys(step.stream or _NOTHING_RUNS for step in kept))
    unit = time_unit([path.length_s])
    return Figure(
        f"path{number}",
        f"Critical path{round_}",
        f"The {len(path.steps):,} steps that determine {many} of {time_words(path.length_s)},"
        f" each on its stream: {shares}.",
        span_bars([(0.0, _span(step)) for step in kept], unit),
        {
            "barmode": "overlay",
            "bargap": 0.25,
            "xaxis": axis(unit.title("time"), range=[0.0, unit.of(path.length_s)]),
            "yaxis": names_axis([figure_label(name) for name in streams]),
            "height": 180 + 45 * len(streams),
        },
        ("task", "stream", "kind", unit.title("start"), unit.title("length")),
        [
            (
                step.task,
                step.stream or _NOTHING_RUNS,
                step.kind,
                unit.of(step.start_s),
                unit.of(step.end_s - step.start_s),
            )
            for step in kept
        ],
        [f"The {left:,} shortest steps are left out; `json` has all."] if left else [],
    )


def _span(step: PathStep) -> TimelineSpan:
    kind = step.kind if step.stream else "other"
    return TimelineSpan(
        step.task, step.stream or _NOTHING_RUNS, kind, step.start_s, step.end_s, 0.0
    )


@dataclass(frozen=True)
class DrawnColumn:
    """A column of a sweep that is drawn.

    ``factor`` converts it to ``unit``; ``sense`` is 1 if less is better, -1 if more is. It
    ``follows`` the time of the iteration, or its inverse, the rate; else nothing is known of its
    interval.
    """

    column: str
    title: str
    unit: str
    factor: float
    sense: int
    follows: Literal["time", "rate", ""] = ""

    def fitting(self, rows: Sequence[FlatRecord]) -> DrawnColumn:
        """Return the column in the unit that suits the times of some rows; no other changes."""
        if self.follows != "time":
            return self
        unit = time_unit(row[self.column] for row in rows)
        return replace(self, unit=unit.name, factor=unit.per_second)

    def drawn(self, rows: Sequence[FlatRecord]) -> list[FlatRecord]:
        """Return the rows that a chart of this column shows something of, none if all are alike.

        S-SGD over S-SGD is 1 wherever it is asked for: such rows are not drawn.
        """
        known = [row for row in rows if row.get(self.column) is not None]
        if not varies(row[self.column] for row in known):
            return []
        if self.column != _SPEEDUP:
            return known
        return [row for row in known if abs(row[_SPEEDUP] - 1.0) > _SAME_DRAWN]

    def best(self, rows: Sequence[FlatRecord]) -> FlatRecord:
        """Return the row with the best value, the first of several."""
        return min(rows, key=lambda row: self.sense * float(row[self.column]))

    def ends(self, row: FlatRecord) -> tuple[float, float] | None:
        """Return the ends of a row's 90 % interval, in ``unit``; None where it has none."""
        low_s = row.get("iteration_s_low")
        if not self.follows or low_s is None:
            return None
        value = row[self.column] * self.factor
        shares = low_s / row["iteration_s"], row["iteration_s_high"] / row["iteration_s"]
        if self.follows == "time":
            return value * shares[0], value * shares[1]
        return value / shares[1], value / shares[0]

    def without_loss(self, row: FlatRecord) -> float:
        """Return a row's value if GPUs waited for nothing, in ``unit``."""
        value, efficiency = row[self.column] * self.factor, row["scaling_efficiency"]
        return float(value * efficiency if self.follows == "time" else value / efficiency)


_SPEEDUP = "speedup"

DRAWN_COLUMNS = (
    DrawnColumn("iteration_s", "Iteration", "ms", 1e3, 1, "time"),
    DrawnColumn("samples_per_s", "Throughput", "samples/s", 1.0, -1, "rate"),
    DrawnColumn(_SPEEDUP, "Speed-up", "times as fast as S-SGD", 1.0, -1),
)
"""The columns that are drawn, of rows that have them."""

EFFICIENCY = DrawnColumn("scaling_efficiency", "Scaling efficiency", "%", 100.0, -1, "rate")
"""A column that is drawn where it is asked for."""


def rows_figure(
    what: DrawnColumn,
    fields: Mapping[str, Sequence[Any]],
    rows: Sequence[FlatRecord],
    over: str = "",
    *,
    guides: bool = False,
) -> Figure:
    """Draw one column of a sweep; a table row is a row of the sweep that is drawn.

    Parameters
    ----------
    fields : the values of each field that varies
    over : the field along the horizontal axis; "": the one of numbers with most values, or if none
        has numbers, that with most values, with bars for lines
    guides : whether lines have their intervals beside them, and what there would be without loss

    Raises
    ------
    RequestError
        If ``over`` is no field that varies.
    """
    numbers = {
        name: result for name, values in fields.items() if (result := _row_numbers(name, values))
    }
    if over and over not in fields:
        raise unknown("over", over, fields)
    among = numbers or fields
    across = over or max(among, key=lambda name: len(fields[name]))
    others = [name for name in fields if name != across]
    every: dict[str, list[FlatRecord]] = {}
    for row in what.drawn(rows) or rows:
        if row.get(what.column) is not None:
            every.setdefault(_series(row, others, what), []).append(row)

    what = what.fitting([row for one in every.values() for row in one])
    best = {name: what.best(result) for name, result in every.items()}
    order = sorted(every, key=lambda name: what.sense * best[name][what.column])[:MAX_SERIES]
    kept = [name for name in every if name in order]
    positions = numbers.get(across)
    styles = dict(
        zip(dict.fromkeys(_series(row, others, what) for row in rows), _LINE_STYLES, strict=False)
    )
    if len(every) > MAX_SERIES:
        styles = dict(zip(kept, _LINE_STYLES, strict=False))
    draw = _lines if positions else _row_bars
    heading = f"{what.title.lower()} [{what.unit}]"
    shown = {name: every[name] for name in kept}
    place = dict(zip(fields[across], positions or (), strict=False))
    data = draw(what, across, {name: styles[name] for name in kept}, every, place)
    if guides and positions and what.follows:
        data = _guides(what, across, shown, place, data)
    # Arrows of an interval reach beyond the points.
    values = [value for trace in data for value in trace["y"]]
    listed = [row for rows in shown.values() for row in rows]
    bounded = any(what.ends(row) for row in listed)
    return Figure(
        f"rows-{what.column}",
        f"{what.title} over {field_words(across)}",
        f"{what.title} [{what.unit}] over {field_words(across)}"
        f"{', with 90 % intervals' * bounded}: {_words(what, order, best, across)}",
        data,
        {
            "barmode": "group",
            "xaxis": _across(across, fields[across], positions),
            "yaxis": quantity_axis(heading, values)
            if positions and what.unit != "%"
            else axis(heading, rangemode="tozero"),
            "height": 420 + 20 * len(kept),
            "showlegend": bool(others),
        },
        (*map(field_words, (across, *others)), heading, *(_ENDS_HEAD * bounded)),
        [_cells(row, (across, *others), what, bounded) for row in listed[:_MAX_LISTED]],
        [
            *_left(len(every)),
            *(
                [f"Numbers of the first {_MAX_LISTED} of {len(listed):,} points."]
                if len(listed) > _MAX_LISTED
                else []
            ),
        ],
    )


def _series(row: FlatRecord, others: Sequence[str], what: DrawnColumn) -> str:
    """Return the name of the line that a row is on: the values of the other fields that vary."""
    return ", ".join(_value_words(one, row[one]) for one in others) or what.title.lower()


def _value_words(field: str, value: object) -> str:
    return f"{value} GPUs" if field == "gpus" else f"{field_words(field)} {value}"


def _left(series: int) -> list[str]:
    if series <= MAX_SERIES:
        return []
    return [
        f"{MAX_SERIES} of {series} lines are drawn, those with the best values; the table of rows"
        " has all."
    ]


def _words(what: DrawnColumn, order: list[str], best: Mapping[str, FlatRecord], across: str) -> str:
    """Say which row is the best."""
    first = best[order[0]]
    series = f" with {order[0]}" if len(best) > 1 else ""
    value = first[what.column] * what.factor
    text = f"{value:,.0f}" if value >= _MIN_WHOLE else f"{value:.4g}"
    return f"the best is {text} {what.unit} at {_value_words(across, first[across])}{series}."


def field_words(field: str) -> str:
    """Return how a figure writes a field of a scenario."""
    return _FIELD_WORDS.get(field, field.removeprefix("options."))


_FIELD_WORDS = {"gpus": "GPUs", "gpu": "GPU", "gpus_per_node": "GPUs a node", "net": "network"}
"""Fields that are written otherwise than their names."""

_ENDS_HEAD = ("90 % from", "90 % to")
"""Columns of the ends of an interval, in the unit of the column before them."""


def _row_numbers(name: str, values: Sequence[Any]) -> list[float] | None:
    """Return values as numbers, if all are numbers of one unit."""
    if name in _NAME_FIELDS or any(isinstance(value, bool) for value in values):
        return None
    for parse in (float, parse_seconds, parse_bytes, parse_rate, parse_fraction):
        try:
            return [float(parse(value)) for value in values]
        except (PerfsimError, TypeError, ValueError):
            continue
    return None


def _across(name: str, values: Sequence[Any], positions: list[float] | None) -> dict[str, Any]:
    if positions is None:
        return axis(field_words(name), type="category")
    wide = min(positions) > 0 and max(positions) >= WIDE_RANGE * min(positions)
    few = len(values) <= MAX_SERIES
    ticks = (
        {"tickvals": positions, "ticktext": [figure_label(value) for value in values]}
        if few
        else {}
    )
    return axis(field_words(name), type="log" if wide else "linear", **ticks)


def _hover(what: DrawnColumn, across: str, name: str) -> str:
    at = "%{text} GPUs" if across == "gpus" else f"{figure_label(field_words(across))} %{{text}}"
    return (
        f"{figure_label(name)}<br>{at}<br>%{{y:,.4~r}} {what.unit}%{{customdata[0]}}<extra></extra>"
    )


def _interval_words(what: DrawnColumn, row: FlatRecord) -> str:
    """Return what a point adds of its interval when it is pointed at; "" where it has none."""
    ends = what.ends(row)
    return "" if ends is None else f"<br>90 % interval {ends[0]:,.4g} to {ends[1]:,.4g} {what.unit}"


def _lines(
    what: DrawnColumn,
    across: str,
    kept: Mapping[str, tuple[str, str]],
    every: Mapping[str, list[FlatRecord]],
    position: Mapping[Any, float],
) -> list[dict[str, Any]]:
    result = []
    for name, (colour, dash) in kept.items():
        rows = sorted(every[name], key=lambda row: position[row[across]])
        result.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": figure_label(name),
                "x": [position[row[across]] for row in rows],
                "y": [row[what.column] * what.factor for row in rows],
                "text": [figure_label(row[across]) for row in rows],
                "customdata": [[_interval_words(what, row)] for row in rows],
                "line": {"color": colour, "dash": dash},
                "hovertemplate": _hover(what, across, name),
            }
        )
    return result


def _guides(
    what: DrawnColumn,
    across: str,
    every: Mapping[str, Sequence[FlatRecord]],
    position: Mapping[Any, float],
    lines: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return lines with their intervals behind them, and what there would be without loss."""
    bands: list[dict[str, Any]] = []
    ideals: list[tuple[str, dict[float, float]]] = []
    for (name, unsorted), line in zip(every.items(), lines, strict=True):
        rows = sorted(unsorted, key=lambda row: position[row[across]])
        ends = [pair for row in rows if (pair := what.ends(row)) is not None]
        if len(ends) == len(rows) > 1:
            bands.append(interval_band(line["x"], ends, line["line"]["color"]))
        own = dict(zip(line["x"], map(what.without_loss, rows), strict=True))
        # Lines that differ in the network or the method alone have the same one.
        same = next((ideal for _, ideal in ideals if _agree(own, ideal)), None)
        if same is None:
            ideals.append((name, own))
        else:
            same.update(own)
    several = len(ideals) > 1
    free = [
        line_without_loss(sorted(ideal), [ideal[at] for at in sorted(ideal)], name * several)
        for name, ideal in ideals
    ]
    return [*bands, *lines, *free]


def _agree(one: Mapping[float, float], other: Mapping[float, float]) -> bool:
    """Say whether two lines have places in common, and the same values there."""
    shared = one.keys() & other.keys()
    return bool(shared) and all(isclose(one[at], other[at], rel_tol=_SAME_DRAWN) for at in shared)


def _row_bars(
    what: DrawnColumn,
    across: str,
    kept: Mapping[str, tuple[str, str]],
    every: Mapping[str, list[FlatRecord]],
    _: Mapping[Any, float],
) -> list[dict[str, Any]]:
    return [
        {
            "type": "bar",
            "name": figure_label(name),
            "x": [figure_label(row[across]) for row in every[name]],
            "y": [row[what.column] * what.factor for row in every[name]],
            "text": [figure_label(row[across]) for row in every[name]],
            "customdata": [[_interval_words(what, row)] for row in every[name]],
            "textposition": "none",
            "marker": marker(colour, "" if dash == "solid" else "/"),
            "hovertemplate": _hover(what, across, name),
            **_bar_ends(what, every[name]),
        }
        for name, (colour, dash) in kept.items()
    ]


def _bar_ends(what: DrawnColumn, rows: Sequence[FlatRecord]) -> dict[str, Any]:
    """Return the error bars of rows that all have an interval."""
    ends = [pair for row in rows if (pair := what.ends(row)) is not None]
    if len(ends) < len(rows):
        return {}
    values = [row[what.column] * what.factor for row in rows]
    return {"error_y": error_bars(values, ends) | {"thickness": 1.2, "width": 4}}


def _cells(
    row: FlatRecord, names: Sequence[str], what: DrawnColumn, bounded: bool
) -> tuple[CellText, ...]:
    ends = (what.ends(row) or ("", "")) if bounded else ()
    return (*(str(row[name]) for name in names), row[what.column] * what.factor, *ends)


def sensitivity_figure(explanation: Explanation) -> Figure:
    """Draw the share of the iteration that each improvement saves, the largest on top."""
    rows = explanation.improvements
    method = explanation.prediction.scenario.method
    names = [
        f"twice {improvement_words(row.what, method)}".replace("twice half", "half") for row in rows
    ]
    saved = [row.saved * 100 for row in rows]
    text = ", ".join(f"{name} {one:.1f} %" for name, one in zip(names, saved, strict=True))
    labels = [f"{figure_label(name)}: {one:.1f} %" for name, one in zip(names, saved, strict=True)]
    unit = time_unit(row.iteration_s for row in rows)
    return Figure(
        "sensitivity",
        "What pays",
        f"Share of the iteration saved if one thing were twice as good: {text}.",
        [_sensitivity_bars(labels, rows, unit)],
        {
            "xaxis": axis("iteration saved [%]", rangemode="tozero"),
            "yaxis": axis("", type="category", categoryarray=labels[::-1]),
            "height": 110 + 34 * len(rows),
            "showlegend": False,
        },
        ("change", "iteration saved [%]", unit.title("iteration then"), "elasticity"),
        [
            (
                name,
                row.saved * 100,
                unit.of(row.iteration_s),
                "none" if row.elasticity is None else row.elasticity,
            )
            for name, row in zip(names, rows, strict=True)
        ],
        [
            "Elasticity: per cent of the iteration saved for one per cent faster; a bucket size"
            " has none, as the number of buckets changes in steps."
        ],
    )


def _sensitivity_bars(
    labels: list[str], rows: Sequence[Improvement], unit: TimeUnit
) -> dict[str, Any]:
    elasticities = ["none" if row.elasticity is None else f"{row.elasticity:.3f}" for row in rows]
    return {
        "type": "bar",
        "orientation": "h",
        "y": labels,
        "x": [row.saved * 100 for row in rows],
        "customdata": [
            [unit.of(row.iteration_s), more] for row, more in zip(rows, elasticities, strict=True)
        ],
        "marker": {"color": PALETTE["sky"]},
        "hovertemplate": "%{y}<br>saves %{x:.3~r} % of the iteration<br>"
        f"then {unit.hover('customdata[0]')}, elasticity %{{customdata[1]}}<extra></extra>",
    }


def tuned_figure(one: TunedValue) -> Figure:
    """Draw one tuned thing: a line over numbers or bars of names; a table row is a value tried."""
    name = TUNABLE_NAMES[one.tunable.name]
    unit = {"bytes": " [B]"}.get(one.tunable.unit, "")
    time = time_unit(time_s for _, time_s in one.curve)
    draw = _names if one.low is None else _numbers
    data, layout = draw(one, time)
    refused = [f"{word} cannot be used: {why}." for word, why in one.refused.items()]
    needs = [f"{word} needs {why}." for word, why in one.needs.items() if _tried(one, word)]
    notes = [" ".join(some) for some in (needs, refused) if some]
    return Figure(
        f"tuned-{one.tunable.name}",
        name[0].upper() + name[1:],
        f"Iteration over the {name}. {' '.join(tuned_verdict(one))}",
        data,
        layout,
        (f"{name}{unit}", time.title("iteration"), "mark"),
        [
            *((value, time.of(time_s), _mark(one, value)) for value, time_s in one.curve),
            *(
                (f"fusion {policy} ({FUSION_WORDS[policy]})", time.of(time_s), "for comparison")
                for policy, time_s in one.other_fusion.items()
            ),
        ],
        notes,
    )


def plan_figure(plan: ClusterPlan) -> Figure:
    """Draw the time of a run over its cost: the Pareto front and the others; a row is a choice."""
    front, known = plan.front, set(plan.known)
    behind = known.difference(front)
    groups = {
        plan.front_title: front,
        "slower or dearer": [one for one in plan.choices if one in behind],
        "by iteration time only": plan.by_iteration_only,
    }
    unit, target = plan.unit, plan.target
    spent = "GPU hours" if unit == "GPU h" else f"cost of the run [{unit}]"
    limits = [("y", target.deadline_s and target.deadline_s / HOUR_S), ("x", target.budget)]
    hours = [one.seconds / HOUR_S for one in plan.choices]
    return Figure(
        "time-and-cost",
        "Time and cost",
        f"Time of the run over its {spent.partition(' of')[0]}: the fastest is"
        f" {plan.fastest.words}, the cheapest {plan.cheapest.words}.",
        [
            _choices(name, some, *style, unit)
            for (name, some), style in zip(groups.items(), _CHOICE_STYLES, strict=True)
            if some
        ],
        {
            "xaxis": quantity_axis(spent, [one.spent for one in plan.choices]),
            "yaxis": quantity_axis("time of the run [h]", hours),
            "shapes": [_limit(side, at) for side, at in limits if at],
            "height": 420,
        },
        ("choice", "hours", "90 % from [h]", "90 % to [h]", spent, "kind"),
        [
            (
                one.words,
                one.seconds / HOUR_S,
                *(end / HOUR_S if isfinite(end) else "and more" for end in one.interval_s),
                one.spent,
                name,
            )
            for name, some in groups.items()
            for one in some
        ],
        ["A dotted line is a limit of the target."],
    )


_CHOICE_STYLES = (
    ("lines+markers", "blue", "circle"),
    ("markers", "grey", "circle"),
    ("markers", "purple", "circle-open"),
)
"""How the front, other choices, and those of methods whose epochs are not known are drawn."""


def _choices(
    name: str, some: Sequence[ParetoChoice], mode: str, colour: str, symbol: str, unit: str
) -> dict[str, Any]:
    hours = [one.seconds / HOUR_S for one in some]
    ends = [[end / HOUR_S for end in one.interval_s] for one in some]
    # An open end is drawn to the value itself; what is pointed at says that it is open.
    closed = [
        (low, high if isfinite(high) else at) for (low, high), at in zip(ends, hours, strict=True)
    ]
    bars = {"error_y": error_bars(hours, closed) | {"thickness": 1.2, "width": 3}}
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": [one.spent for one in some],
        "y": hours,
        "text": [figure_label(one.words) for one in some],
        "customdata": [
            [f"{low:.3g} to {high:.3g} h" if isfinite(high) else f"{low:.3g} h and more"]
            for low, high in ends
        ],
        "line": {"color": PALETTE[colour]},
        "marker": {"size": 8, "symbol": symbol},
        **(bars if "lines" in mode else {}),
        "hovertemplate": f"%{{text}}<br>%{{y:.4g}} h (90 % %{{customdata[0]}}), %{{x:,.4g}} {unit}"
        "<extra></extra>",
    }


def _limit(side: str, at: float) -> dict[str, Any]:
    """Return a dotted line at a deadline (y) or a budget (x)."""
    if side == "x":
        return _upright(at, "dot", "ink")
    other = {"type": "line", "y0": at, "y1": at, "x0": 0, "x1": 1, "xref": "paper"}
    return other | {"line": {"width": 1.5, "dash": "dot", "color": "ink"}, "layer": "below"}


def parallelism_figure(search: ParallelSearch) -> Figure:
    """Draw the best ways to divide training and the front; a table row is a way."""
    several = len(search.gpus) > 1
    unit = "GPU hours for a million samples" if several else "memory of the fullest GPU [GB]"
    best = [one.tried for one in search.ranked]
    others = [one for one in search.front if one not in best]
    shown = [*best, *others]
    time = time_unit(one.iteration_s for one in shown)

    def second(one: TriedDivision) -> float:
        return one.gpu_hours_per_million if several else one.memory_bytes / 1e9

    def points(name: str, some: Sequence[TriedDivision], mode: str, colour: str) -> dict[str, Any]:
        return {
            "type": "scatter",
            "mode": mode,
            "name": name,
            "x": [second(one) for one in some],
            "y": [time.of(one.iteration_s) for one in some],
            "text": [figure_label(_way(one, several)) for one in some],
            "line": {"color": PALETTE[colour]},
            "marker": {"size": 8},
            "hovertemplate": f"%{{text}}<br>{time.hover('y')}<extra></extra>",
        }

    return Figure(
        "parallelism",
        "Ways to divide training",
        " ".join(best_words(search)),
        [
            points("Pareto front", search.front, "lines+markers", "blue"),
            points("best", best, "markers", "vermilion"),
        ],
        {
            "xaxis": quantity_axis(unit, [second(one) for one in shown]),
            "yaxis": quantity_axis(
                time.title("time of an iteration"), [time.of(one.iteration_s) for one in shown]
            ),
            "height": 420,
        },
        ("way", time.title("iteration"), unit, "on the front"),
        [
            (
                _way(one, several),
                time.of(one.iteration_s),
                second(one),
                "yes" if one in search.front else "no",
            )
            for one in shown
        ],
    )


def _way(one: TriedDivision, several: bool) -> str:
    return f"{one.division.gpus} GPUs, " * several + division_words(one)


def _tried(tuned: TunedValue, word: str) -> bool:
    return any(value == word for value, _ in tuned.curve)


def _taken(tuned: TunedValue) -> str:
    """Name the value to take: by time alone where published results with it fell short."""
    return "by time alone" if tuned.by_time_alone else "to take"


def _mark(tuned: TunedValue, value: TunableValue) -> str:
    marks = {"asked": tuned.asked, "fastest": tuned.fastest, _taken(tuned): tuned.advised}
    words = [word for word, marked in marks.items() if marked == value]
    return ", ".join([*words, *(["within 1 %"] if value in tuned.as_good else [])])


def _numbers(tuned: TunedValue, unit: TimeUnit) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a line over the values, with marks at the three that matter."""
    values = [float(value) for value, _ in tuned.curve]
    every = [unit.of(time_s) for _, time_s in tuned.curve]
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": TUNABLE_NAMES[tuned.tunable.name],
        "x": values,
        "y": every,
        "text": [value_words(tuned, value) for value, _ in tuned.curve],
        "line": {"color": PALETTE["blue"]},
        "marker": {"size": 5},
        "hovertemplate": f"%{{text}}<br>{unit.hover('y')}<extra></extra>",
    }
    step = max(1, -(-len(_grid(tuned)) // _MAX_TICKS))
    ticks = _grid(tuned)[::step]
    return [line, *_marks(tuned, unit)], {
        "xaxis": axis(
            TUNABLE_NAMES[tuned.tunable.name],
            type="log",
            tickvals=ticks,
            ticktext=[value_words(tuned, value) for value in ticks],
        ),
        "yaxis": quantity_axis(unit.title("time of an iteration"), every),
        "shapes": [_within(tuned)],
        "height": 440,
    }


def _marks(tuned: TunedValue, unit: TimeUnit) -> list[dict[str, Any]]:
    """Return marks at the value asked for, the fastest, and the one to take."""
    marks = (
        ("asked", tuned.asked, tuned.asked_s, "grey", "square"),
        ("fastest", tuned.fastest, tuned.fastest_s, "vermilion", "star"),
        (_taken(tuned), tuned.advised, tuned.advised_s, "green", "diamond"),
    )
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{word}: {value_words(tuned, value)}, {time_words(time_s)}",
            "x": [float(value)],
            "y": [unit.of(time_s)],
            "marker": {"color": PALETTE[colour], "symbol": symbol, "size": 13}
            | {"line": {"color": "ink", "width": 1}},
            "hovertemplate": f"{word}: {value_words(tuned, value)}<br>{unit.hover('y')}"
            "<extra></extra>",
        }
        for word, value, time_s, colour, symbol in marks
    ]


def _grid(tuned: TunedValue) -> list[float]:
    """Return the values of the coarse grid, for ticks."""
    result = []
    for value, _ in tuned.curve:
        steps = log(float(value) / tuned.tunable.low) / log(tuned.tunable.factor)
        if abs(steps - round(steps)) < _SAME_DRAWN:
            result.append(float(value))
    return result or [float(tuned.curve[0][0]), float(tuned.curve[-1][0])]


def _within(tuned: TunedValue) -> dict[str, Any]:
    """Return the range within 1 % of the fastest, as a band."""
    return {
        "type": "rect",
        "x0": tuned.low,
        "x1": tuned.high,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "fillcolor": PALETTE["green"],
        "opacity": 0.15,
        "line": {"width": 0},
        "layer": "below",
    }


def _names(tuned: TunedValue, unit: TimeUnit) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a bar for each name, the fastest on top, with its mark."""
    marks = [(str(value), _mark(tuned, value)) for value, _ in tuned.curve]
    words = [figure_label(": ".join(filter(None, pair))) for pair in marks]
    times = [unit.of(time_s) for _, time_s in tuned.curve]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": words,
        "x": times,
        "text": [time_words(time_s) for _, time_s in tuned.curve],
        "textposition": "auto",
        "textangle": 0,
        "marker": marker(PALETTE["sky"], ""),
        "hovertemplate": f"%{{y}}<br>{unit.hover('x')}<extra></extra>",
    }
    return [bars], {
        "xaxis": axis(unit.title("time of an iteration"), rangemode="tozero"),
        "yaxis": names_axis(words),
        "height": 110 + 30 * len(words),
        "showlegend": False,
    }
