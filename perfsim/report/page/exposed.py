"""Communication by bucket: what computation hides of it, and what shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfsim.report.page.figure import COLOURS, Figure, axis, marker, names, plain
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.planning.exposed import Exposed

__all__ = ["exposed_figure"]

MOST = 40
"""Buckets that are drawn, those that show most."""

LINE = 22
"""Pixels of a bar."""


def exposed_figure(rows: Sequence[Exposed]) -> Figure:
    """Return the figure, in the order of sending; a table row is a bucket."""
    several = len({row.round for row in rows}) > 1
    buckets = [f"round {row.round + 1}: {row.bucket}" if several else row.bucket for row in rows]
    total_s = sum(row.exposed_s for row in rows)
    order = sorted(range(len(rows)), key=lambda at: (-rows[at].exposed_s, -rows[at].busy_s, at))
    shown = sorted(order[:MOST])
    most = order[0]
    left = len(rows) - len(shown)
    rest_s = sum(rows[at].exposed_s for at in order[MOST:])
    return Figure(
        "exposed",
        "Exposed communication by bucket",
        f"Of {len(rows):,} bucket{'s' if len(rows) > 1 else ''},"
        f" {sum(row.exposed_s > 0 for row in rows):,} not wholly hidden by computation,"
        f" {format_seconds(total_s)} an iteration in all; {buckets[most]} shows most,"
        f" {format_seconds(rows[most].exposed_s)}.",
        [
            _bars(
                "exposed", "vermilion", "/", [rows[at].exposed_s for at in shown], buckets, shown
            ),
            _bars("on the wire", "sky", "", [rows[at].busy_s for at in shown], buckets, shown),
        ],
        {
            "barmode": "group",
            "bargap": 0.15,
            "xaxis": axis("mean of an iteration [ms]", rangemode="tozero"),
            "yaxis": names([plain(buckets[at]) for at in shown]),
            "height": 150 + LINE * max(3, len(shown)),
        },
        ("bucket", "messages", "exposed [ms]", "on the wire [ms]", "kernels [ms]"),
        [_row(name, row) for name, row in zip(buckets, rows, strict=True)],
        [f"{left:,} buckets more show {format_seconds(rest_s)} in all; the table has them."]
        if left
        else [],
    )


def _row(name: str, row: Exposed) -> tuple[str | float, ...]:
    return (name, row.collectives, row.exposed_s * 1e3, row.busy_s * 1e3, row.kernels_s * 1e3)


def _bars(
    what: str, colour: str, hatch: str, spent_s: list[float], buckets: list[str], shown: list[int]
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": what,
        "y": [plain(buckets[at]) for at in shown],
        "x": [one * 1e3 for one in spent_s],
        "marker": marker(COLOURS[colour], hatch),
        "hovertemplate": f"%{{y}}<br>{what} %{{x:.4f}} ms<extra></extra>",
    }
