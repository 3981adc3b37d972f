"""Where an iteration's time goes, method by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsim.report.page.figure import PARTS, Figure, axis, interval, marker, names, plain
from perfsim.report.terminal import NAMES
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["breakdown"]

ROUNDING = 1e-12
"""Shares below this are what adding up the others leaves over."""

TOTAL = (
    "%{y}<br>iteration %{x:.4f} ms<br>"
    "90 % interval %{customdata[0]:.4f} to %{customdata[1]:.4f} ms<extra></extra>"
)


MOST_WORDS = 8
"""Methods whose times are told in words."""


COLUMNS = ("iteration [ms]", "90 % from [ms]", "90 % to [ms]", "times as fast as ssgd")


def breakdown(
    methods: Mapping[str, Prediction], refused: Mapping[str, str], *, shares: bool = False
) -> Figure:
    """Return the figure of some methods on one scenario, the fastest on top.

    With ``shares`` bars are parts of each method's own iteration, so that those of methods that
    take far longer than others can be read beside them.
    """
    every = list(methods)
    used = [
        part
        for part in NAMES
        if any(one.breakdown_s[part] > ROUNDING * one.iteration_s for one in methods.values())
    ]
    fastest = every[0]
    told = [f"{name} {format_seconds(methods[name].iteration_s)}" for name in every[:MOST_WORDS]]
    left = len(every) - len(told)
    words = ", ".join(told) + (f", and {left} more" if left else "")
    bars = [_trace(part, methods, shares) for part in used]
    return Figure(
        "breakdown",
        "Breakdown by method",
        f"Iteration time by method, with {'the shares that' if shares else 'what'} it is made of"
        f"{'' if shares else ' and its 90 % interval'}: {words}.",
        bars if shares else [*bars, _totals(methods)],
        {
            "barmode": "stack",
            "legend": {"traceorder": "normal"},
            "xaxis": axis("share of the iteration [%]", range=[0, 100])
            if shares
            else axis("time of an iteration [ms]", rangemode="tozero"),
            "yaxis": names([plain(name) for name in every]),
            "height": 200 + (24 if shares else 40) * len(every),
        },
        ("method", *(f"{NAMES[part]} [ms]" for part in used), *COLUMNS),
        [_row(name, one, used) for name, one in methods.items()],
        [
            f"{fastest} is fastest of these by time an iteration; lossy methods may need more"
            " iterations.",
            *(f"Left out: {name}: {reason}" for name, reason in refused.items()),
        ],
    )


def _row(name: str, one: Prediction, used: Sequence[str]) -> tuple[str | float, ...]:
    return (
        name,
        *(one.breakdown_s[part] * 1e3 for part in used),
        one.iteration_s * 1e3,
        *(end * 1e3 for end in one.iteration_s_interval),
        one.speedup,
    )


def _trace(part: str, methods: Mapping[str, Prediction], shares: bool) -> dict[str, Any]:
    colour, hatch = PARTS[part]
    spent = [(one.breakdown_s[part], one.iteration_s) for one in methods.values()]
    unit = "%" if shares else "ms"
    return {
        "type": "bar",
        "orientation": "h",
        "name": NAMES[part],
        "y": [plain(name) for name in methods],
        "x": [100 * part_s / all_s if shares else part_s * 1e3 for part_s, all_s in spent],
        "marker": marker(colour, hatch),
        "hovertemplate": f"%{{y}}<br>{NAMES[part]} %{{x:.4f}} {unit}<extra></extra>",
    }


def _totals(methods: Mapping[str, Prediction]) -> dict[str, Any]:
    """Return the ends of the intervals, around the iteration times."""
    every = list(methods.values())
    total_ms = [one.iteration_s * 1e3 for one in every]
    ends_ms = [[end * 1e3 for end in one.iteration_s_interval] for one in every]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "iteration, 90 % interval",
        "y": [plain(name) for name in methods],
        "x": total_ms,
        "customdata": ends_ms,
        "marker": {"color": "ink", "size": 7, "symbol": "diamond"},
        "error_x": interval(total_ms, ends_ms),
        "hovertemplate": TOTAL,
    }
