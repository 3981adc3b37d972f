"""The report of ``sweep`` as one HTML page: its rows drawn over what varies, and all as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfsim.errors import RequestError
from perfsim.report.page.figure import Cell, Figure
from perfsim.report.page.frame import Page, Table, page_text
from perfsim.report.page.rows import SHOWN, rows_figure
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.planning import sweep

__all__ = ["MOST_ROWS", "check_rows", "sweep_figures", "sweep_page"]

MOST_ROWS = 5000
"""Rows of a page: each is an element of its table, which a browser has to lay out."""

MOST_REASONS = 12


def check_rows(count: int, flag: str = "--html") -> None:
    """Refuse a sweep that no page can hold, before any work.

    Raises
    ------
    RequestError
        If it has too many rows.
    """
    if count > MOST_ROWS:
        raise RequestError(
            f"{flag}: {count:,} rows, and it holds at most {MOST_ROWS:,}. Give fewer values, or"
            " --out FILE.csv."
        )


def sweep_figures(table: sweep.Table) -> list[Figure]:
    """Return the figures of the report, in the page's order."""
    fields = {axis.field: axis.values for axis in table.sweep.grid.axes}
    rows = list(table.records())
    return [
        rows_figure(what, fields, rows)
        for what in SHOWN
        if any(row.get(what.column) is not None for row in rows)
    ]


def sweep_page(table: sweep.Table) -> str:
    """Return the page as text, with the sweep as ``--json`` prints it (the element "sweep")."""
    grid = table.sweep.grid
    rows = list(table.records())
    done = [row for row in rows if not row["reason"]]
    reasons = Counter(row["reason"] for row in rows if row["reason"])
    stays = ", ".join(f"{name} {_words(value)}" for name, value in grid.base.items())
    varies = "; ".join(f"{one.field}: {_listed(one.values)}" for one in grid.axes)
    answer = {"rows": f"{len(rows):,}, {len(rows) - len(done):,} of them without a prediction"}
    if done:
        fastest = min(done, key=lambda row: float(row["iteration_s"]))
        most = max(done, key=lambda row: float(row["samples_per_s"]))
        names = [one.field for one in grid.axes]
        answer |= {
            "shortest iteration": f"{format_seconds(fastest['iteration_s'])} with"
            f" {_where(names, fastest)}",
            "most samples a second": f"{most['samples_per_s']:,.0f} with {_where(names, most)}",
        }
    return page_text(
        Page(
            f"Sweep of {grid.base.get('model', 'a scenario')} over"
            f" {', '.join(one.field for one in grid.axes)}",
            f"{stays}. Varies: {varies}.",
            answer,
            sweep_figures(table),
            [
                *(f"{n:,} without: {text}" for text, n in reasons.most_common(MOST_REASONS)),
                "Of predicted time alone; lossy methods may need more iterations.",
            ],
            "sweep",
            table.to_dict(),
            Table(
                "Rows", table.columns, [[_cell(cell) for cell in line] for line in table.lines()]
            ),
        )
    )


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return str(value)


def _listed(values: tuple[Any, ...]) -> str:
    shown = [str(value) for value in values]
    if len(shown) > MOST_REASONS:
        return f"{', '.join(shown[:3])} ... {shown[-1]} ({len(shown)} values)"
    return ", ".join(shown)


def _where(names: list[str], row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {row[name]}" for name in names)


def _cell(value: Any) -> Cell:
    if value is None:
        return ""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if plain else str(value)
