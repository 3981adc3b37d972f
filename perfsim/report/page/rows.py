"""A sweep's rows: one figure predicted, over a field that varies, a line for each other value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfsim.errors import PerfsimError
from perfsim.report.page.figure import COLOURS, WIDE, Cell, Figure, axis, marker, plain, quantity
from perfsim.units import parse_bytes, parse_fraction, parse_rate, parse_seconds

__all__ = ["MOST_SERIES", "SHOWN", "Shown", "rows_figure"]

MOST_SERIES = 12
"""Lines that are drawn, those with the best value."""

STYLES = tuple(
    (COLOURS[name], dash)
    for dash in ("solid", "dash")
    for name in ("blue", "vermilion", "green", "orange", "purple", "sky")
)
"""Colour and dash of each line."""

NAMED = ("net", "intra_net")
"""Fields whose values are names, even where one reads as a number."""

MANY = 1e4
"""Numbers from here on are told whole."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Shown:
    """One thing of a row that is drawn: its column, heading, unit, factor to that, and its sense.

    ``sense`` is 1 where less is better, -1 where more is.
    """

    column: str
    title: str
    unit: str
    factor: float
    sense: int

    def best(self, rows: Sequence[Record]) -> Record:
        """Return the row with the best value, the first of several."""
        return min(rows, key=lambda row: self.sense * float(row[self.column]))


SHOWN = (
    Shown("iteration_s", "Iteration", "ms", 1e3, 1),
    Shown("samples_per_s", "Throughput", "samples/s", 1.0, -1),
    Shown("speedup", "Speed-up", "over S-SGD", 1.0, -1),
)
"""What is drawn of rows that have it."""


def rows_figure(what: Shown, fields: Mapping[str, Sequence[Any]], rows: Sequence[Record]) -> Figure:
    """Return the figure of one column; a table row is a row of the sweep that is drawn.

    ``fields`` has the values of each that varies, in order. The one with most numbers is across;
    where none is a number, the one with most values, and bars instead of lines.
    """
    numbers = {name: found for name, values in fields.items() if (found := _numbers(name, values))}
    among = numbers or fields
    across = max(among, key=lambda name: len(fields[name]))
    others = [name for name in fields if name != across]
    every: dict[str, list[Record]] = {}
    for row in rows:
        if row.get(what.column) is not None:
            name = ", ".join(f"{_short(one)} {row[one]}" for one in others) or what.title.lower()
            every.setdefault(name, []).append(row)

    best = {name: what.best(found) for name, found in every.items()}
    order = sorted(every, key=lambda name: what.sense * best[name][what.column])[:MOST_SERIES]
    kept = [name for name in every if name in order]
    places = numbers.get(across)
    draw = _lines if places else _bars
    heading = f"{what.title.lower()} [{what.unit}]"
    values = [row[what.column] * what.factor for name in kept for row in every[name]]
    data = draw(what, across, kept, every, dict(zip(fields[across], places or (), strict=False)))
    return Figure(
        f"rows-{what.column}",
        f"{what.title} over {_short(across)}",
        f"{what.title} [{what.unit}] over {_short(across)}: {_words(what, order, best, across)}",
        data,
        {
            "barmode": "group",
            "xaxis": _across(across, fields[across], places),
            "yaxis": quantity(heading, values) if places else axis(heading, rangemode="tozero"),
            "height": 420 + 20 * len(kept),
            "showlegend": bool(others),
        },
        (*map(_short, (across, *others)), heading),
        [_cells(row, (across, *others), what) for name in kept for row in every[name]],
        _left(len(every)),
    )


def _left(series: int) -> list[str]:
    if series <= MOST_SERIES:
        return []
    return [
        f"{MOST_SERIES} of {series} lines are drawn, those with the best value; the table of rows"
        " has all."
    ]


def _words(what: Shown, order: list[str], best: Mapping[str, Record], across: str) -> str:
    """Return the best row in words."""
    first = best[order[0]]
    series = f" with {order[0]}" if len(best) > 1 else ""
    value = first[what.column] * what.factor
    told = f"{value:,.0f}" if value >= MANY else f"{value:.4g}"
    return f"the best is {told} {what.unit} at {_short(across)} {first[across]}{series}."


def _short(field: str) -> str:
    return field.removeprefix("options.")


def _numbers(name: str, values: Sequence[Any]) -> list[float] | None:
    """Return values as numbers if each is one, in the same unit."""
    if name in NAMED or any(isinstance(value, bool) for value in values):
        return None
    for parse in (float, parse_seconds, parse_bytes, parse_rate, parse_fraction):
        try:
            return [float(parse(value)) for value in values]
        except (PerfsimError, TypeError, ValueError):
            continue
    return None


def _across(name: str, values: Sequence[Any], places: list[float] | None) -> dict[str, Any]:
    if places is None:
        return axis(_short(name), type="category")
    wide = min(places) > 0 and max(places) >= WIDE * min(places)
    few = len(values) <= MOST_SERIES
    ticks = {"tickvals": places, "ticktext": [plain(value) for value in values]} if few else {}
    return axis(_short(name), type="log" if wide else "linear", **ticks)


def _hover(what: Shown, across: str, name: str) -> str:
    return (
        f"{plain(name)}<br>{plain(_short(across))} %{{text}}<br>%{{y:.4f}} {what.unit}"
        "<extra></extra>"
    )


def _lines(
    what: Shown,
    across: str,
    kept: list[str],
    every: Mapping[str, list[Record]],
    place: Mapping[Any, float],
) -> list[dict[str, Any]]:
    found = []
    for name, (colour, dash) in zip(kept, STYLES, strict=False):
        rows = sorted(every[name], key=lambda row: place[row[across]])
        found.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plain(name),
                "x": [place[row[across]] for row in rows],
                "y": [row[what.column] * what.factor for row in rows],
                "text": [plain(row[across]) for row in rows],
                "line": {"color": colour, "dash": dash},
                "hovertemplate": _hover(what, across, name),
            }
        )
    return found


def _bars(
    what: Shown,
    across: str,
    kept: list[str],
    every: Mapping[str, list[Record]],
    _: Mapping[Any, float],
) -> list[dict[str, Any]]:
    return [
        {
            "type": "bar",
            "name": plain(name),
            "x": [plain(row[across]) for row in every[name]],
            "y": [row[what.column] * what.factor for row in every[name]],
            "text": [plain(row[across]) for row in every[name]],
            "textposition": "none",
            "marker": marker(colour, "" if dash == "solid" else "/"),
            "hovertemplate": _hover(what, across, name),
        }
        for name, (colour, dash) in zip(kept, STYLES, strict=False)
    ]


def _cells(row: Record, names: Sequence[str], what: Shown) -> tuple[Cell, ...]:
    return (*(str(row[name]) for name in names), row[what.column] * what.factor)
