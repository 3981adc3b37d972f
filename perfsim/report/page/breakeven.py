"""Which method is fastest at which bandwidth and on how many GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfsim.report.page.figure import COLOURS, Figure, axis, plain

if TYPE_CHECKING:
    from perfsim.planning.around import Cell
    from perfsim.ranking import Ranking

__all__ = ["breakeven"]

PALETTE = tuple(COLOURS[name] for name in ("sky", "orange", "green", "purple", "yellow", "grey"))
"""Light enough for black text."""

INK = "#000000"


def breakeven(cells: Sequence[Cell], mapped: Sequence[str], notes: Sequence[str]) -> Figure:
    """Return the map: a cell has its fastest method's colour, name and speed-up over ssgd."""
    rates = sorted({cell.rate_bytes_per_s for cell in cells})
    counts = sorted({cell.gpus for cell in cells})
    place = {(cell.rate_bytes_per_s, cell.gpus): cell.ranking for cell in cells}
    found = [[place.get((rate, gpus)) for gpus in counts] for rate in rates]
    won = {name: sum(cell.ranking.winner == name for cell in cells) for name in mapped}
    told = ", ".join(f"{name} in {count}" for name, count in won.items() if count)
    return Figure(
        "breakeven",
        "Break-even map",
        "The fastest method by bandwidth between nodes and number of GPUs: of"
        f" {len(cells)} cells, {told}.",
        [_heatmap(found, rates, counts, mapped)],
        {
            "xaxis": axis("GPUs", type="category"),
            "yaxis": axis("bandwidth between nodes", type="category"),
            "height": 130 + 48 * len(rates),
            "showlegend": False,
        },
        (
            "bandwidth [Gbit/s]",
            "GPUs",
            "fastest",
            *(f"{name} [ms]" for name in mapped),
            "may be as fast",
        ),
        [_row(cell, mapped) for cell in cells],
        [
            f"Methods: {', '.join(mapped)}, each with its defaults unless it is the one asked for;"
            " the number is the speed-up over ssgd, * where another may be as fast.",
            *notes,
        ],
    )


def _row(cell: Cell, mapped: Sequence[str]) -> tuple[str | float, ...]:
    return (
        cell.rate_bytes_per_s * 8 / 1e9,
        cell.gpus,
        cell.ranking.winner,
        *(_time_ms(cell.ranking, name) for name in mapped),
        ", ".join(cell.ranking.undecided()),
    )


def _time_ms(ranking: Ranking, name: str) -> float | str:
    one = ranking.predictions.get(name)
    return one.iteration_s * 1e3 if one else "does not apply"


def _heatmap(
    found: Sequence[Sequence[Ranking | None]],
    rates: Sequence[float],
    counts: Sequence[int],
    mapped: Sequence[str],
) -> dict[str, Any]:
    last = max(len(mapped) - 1, 1)
    steps = len(mapped)
    scale = []
    for number in range(steps):
        colour = PALETTE[number % len(PALETTE)]
        scale += [[number / steps, colour], [(number + 1) / steps, colour]]
    return {
        "type": "heatmap",
        "x": [str(count) for count in counts],
        "y": [f"{rate * 8 / 1e9:g} Gbit/s" for rate in rates],
        "z": [[mapped.index(one.winner) if one else None for one in row] for row in found],
        "zmin": -0.5 if steps > 1 else 0.0,
        "zmax": last + 0.5 if steps > 1 else 1.0,
        "colorscale": scale,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "text": [[_mark(one) if one else "" for one in row] for row in found],
        "texttemplate": "%{text}",
        "textfont": {"color": INK},
        "customdata": [[_words(one) if one else "" for one in row] for row in found],
        "hovertemplate": "%{y}, %{x} GPUs<br>%{customdata}<extra></extra>",
    }


def _mark(ranking: Ranking) -> str:
    star = "*" if ranking.undecided() else ""
    speedup = ranking.predictions[ranking.winner].speedup
    return f"{plain(ranking.winner)}{star}<br>{speedup:.2f}x"


def _words(ranking: Ranking) -> str:
    return "<br>".join(
        f"{plain(name)} {one.iteration_s * 1e3:.4f} ms" for name, one in ranking.predictions.items()
    )
