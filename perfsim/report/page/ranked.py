"""Methods by iteration time, with intervals, and what cannot be told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfsim.report.page.figure import COLOURS, Figure, interval, names, plain, quantity, upright
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.planning.comparison import Comparison
    from perfsim.prediction import Prediction

__all__ = ["ranked"]

GROUPS = {
    "may be fastest": ("green", "star"),
    "faster than S-SGD": ("sky", "circle"),
    "not told apart from S-SGD": ("grey", "square"),
    "slower than S-SGD": ("vermilion", "triangle-down"),
    "S-SGD": ("blue", "diamond"),
}
"""Colour and symbol of a method by what is sure of it; the first that holds."""

COLUMNS = (
    "rank",
    "method",
    "iteration [ms]",
    "90 % from [ms]",
    "90 % to [ms]",
    "times as fast as S-SGD",
    "behind the first [%]",
    "may be fastest",
    "against S-SGD",
    "learns as S-SGD",
    "sent by a GPU [B]",
    "memory [B]",
)

LINE = 24
"""Pixels of a method."""

HOVER = (
    "%{y}, rank %{customdata[0]}<br>iteration %{x:.4f} ms<br>"
    "90 % interval %{customdata[1]:.4f} to %{customdata[2]:.4f} ms<br>"
    "%{customdata[3]:.3f} times as fast as S-SGD<extra></extra>"
)


def ranked(comparison: Comparison) -> Figure:
    """Return the figure, the fastest on top; a table row is a method."""
    ones = comparison.ranking.predictions
    standings = {row["method"]: row for row in comparison.standings()}
    groups = {name: _group(row) for name, row in standings.items()}
    ends_ms = [end * 1e3 for one in ones.values() for end in one.iteration_s_interval]
    baseline_ms = comparison.baseline.iteration_s * 1e3
    close = [name for name, row in standings.items() if row["may_be_fastest"]]
    first = comparison.ranking.winner
    alike = f"; {', '.join(close[1:])} may be as fast" if len(close) > 1 else ""
    return Figure(
        "ranked",
        "Iteration by method",
        f"{len(ones)} methods by iteration time with 90 % intervals: {first} is fastest with"
        f" {format_seconds(ones[first].iteration_s)}{alike}. The line is S-SGD,"
        f" {format_seconds(comparison.baseline.iteration_s)}.",
        [
            _points(group, [name for name in ones if groups[name] == group], ones, standings)
            for group in GROUPS
            if group in groups.values()
        ],
        {
            "xaxis": quantity("time of an iteration [ms]", ends_ms),
            "yaxis": names([plain(name) for name in ones], range=[-0.7, len(ones) - 0.3]),
            "shapes": [upright(baseline_ms, width=1.5, dash="dash", color="ink")],
            "height": 170 + LINE * len(ones),
        },
        COLUMNS,
        [_row(one, standings[name]) for name, one in ones.items()],
        [comparison.rule],
    )


def _group(row: Mapping[str, Any]) -> str:
    if row["may_be_fastest"]:
        return "may be fastest"
    against = row["against_ssgd"]
    return "S-SGD" if against is None else f"{against} {_THAN[against]} S-SGD"


_THAN = {"faster": "than", "slower": "than", "not told apart": "from"}


def _points(
    group: str,
    own: list[str],
    ones: Mapping[str, Prediction],
    standings: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    times_ms = [ones[name].iteration_s * 1e3 for name in own]
    ends_ms = [[end * 1e3 for end in ones[name].iteration_s_interval] for name in own]
    told = zip(own, ends_ms, strict=True)
    colour, symbol = GROUPS[group]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": group,
        "y": [plain(name) for name in own],
        "x": times_ms,
        "customdata": [[standings[name]["rank"], *ends, ones[name].speedup] for name, ends in told],
        "marker": {"color": COLOURS[colour], "symbol": symbol, "size": 11}
        | {"line": {"color": "ink", "width": 0.5}},
        "error_x": interval(times_ms, ends_ms) | {"thickness": 1.2, "width": 3},
        "hovertemplate": HOVER,
    }


def _row(one: Prediction, standing: Mapping[str, Any]) -> tuple[str | int | float, ...]:
    return (
        standing["rank"],
        standing["method"],
        one.iteration_s * 1e3,
        *(end * 1e3 for end in one.iteration_s_interval),
        one.speedup,
        standing["behind_first_ratio"] * 100,
        "yes" if standing["may_be_fastest"] else "no",
        standing["against_ssgd"] or "itself",
        "yes" if standing["learns_as_ssgd"] else "no",
        one.communication["bytes_per_gpu"],
        sum(one.memory_bytes.values()),
    )
