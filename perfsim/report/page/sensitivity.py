"""What an iteration gains where one thing is twice as good, and its elasticity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfsim.report.explain import WORDS
from perfsim.report.page.figure import COLOURS, Figure, axis, plain

if TYPE_CHECKING:
    from perfsim.planning.explain import Explanation
    from perfsim.planning.sensitivity import Improvement

__all__ = ["sensitivity_figure"]


def sensitivity_figure(found: Explanation) -> Figure:
    """Return the figure: share of the iteration saved, what pays most on top."""
    rows = found.improvements
    names = [f"twice {WORDS[row.what]}".replace("twice half", "half") for row in rows]
    saved = [row.saved * 100 for row in rows]
    told = ", ".join(f"{name} {one:.1f} %" for name, one in zip(names, saved, strict=True))
    labels = [f"{plain(name)}: {one:.1f} %" for name, one in zip(names, saved, strict=True)]
    return Figure(
        "sensitivity",
        "What pays",
        f"Share of the iteration saved if one thing were twice as good: {told}.",
        [_bars(labels, rows)],
        {
            "xaxis": axis("iteration saved [%]", rangemode="tozero"),
            "yaxis": axis("", type="category", categoryarray=labels[::-1]),
            "height": 110 + 34 * len(rows),
            "showlegend": False,
        },
        ("change", "iteration saved [%]", "iteration then [ms]", "elasticity"),
        [
            (
                name,
                row.saved * 100,
                row.iteration_s * 1e3,
                "none" if row.elasticity is None else row.elasticity,
            )
            for name, row in zip(names, rows, strict=True)
        ],
        [
            "Elasticity: per cent of the iteration saved for one per cent faster; a bucket size"
            " has none, as the number of buckets changes in steps."
        ],
    )


def _bars(labels: list[str], rows: Sequence[Improvement]) -> dict[str, Any]:
    elasticities = ["none" if row.elasticity is None else f"{row.elasticity:.3f}" for row in rows]
    return {
        "type": "bar",
        "orientation": "h",
        "y": labels,
        "x": [row.saved * 100 for row in rows],
        "customdata": [
            [row.iteration_s * 1e3, more] for row, more in zip(rows, elasticities, strict=True)
        ],
        "marker": {"color": COLOURS["sky"]},
        "hovertemplate": "%{y}<br>saves %{x:.3f} % of the iteration<br>"
        "then %{customdata[0]:.4f} ms, elasticity %{customdata[1]}<extra></extra>",
    }
