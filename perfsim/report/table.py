"""Tables of ``list`` and ``show`` as a person reads them, however long their texts are.

What does not fit beside the other columns is folded there if that leaves it room; else it stands
below its row or, where a few texts are shared by many rows, once below the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

__all__ = ["print_table", "table_lines"]

WIDTH = 80
"""Columns where the output is no terminal."""

ROOM = 30
"""Columns that a text needs to be folded beside others."""

FOLDS = 3
"""Lines that such a text may take there, at its longest."""

SHARED = 30
LOOKED_UP = 100
"""So many texts at most stand once below a table, and of so many rows: one has to look there."""

LONG = 12
"""Texts that stand there are longer than that."""

GAPS = (2, 1)
"""Spaces between columns, and where that makes all fit."""

NOTHING = ("", "-")


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table whose columns are the first row's keys, in the terminal's width."""
    width = max(40, get_terminal_size().columns) if sys.stdout.isatty() else WIDTH
    for line in table_lines(rows, width) if rows else ["none"]:
        print(line)


def table_lines(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    r"""Yield the lines of a table at most so many columns wide, if words allow that.

    Examples
    --------
    >>> row = {"network": "10gbe", "kind": "fitted", "source": "a median of many runs"}
    >>> print(*table_lines([row], 80), sep="\n")
    network  kind    source
    10gbe    fitted  a median of many runs
    >>> print(*table_lines([row], 30), sep="\n")
    network  kind
    10gbe    fitted
        source: a median of many
          runs
    """
    table = {name: [str(row[name]) for row in rows] for name in rows[0]}
    notes = {} if _gap(_widths(table), width) else _shared(table)
    for name, long in notes.items():
        marks = {text: f"[{number}]" for number, text in enumerate(long, 1)}
        table[name] = [marks.get(text, text) for text in table[name]]
    beside, moved = _layout(table, width)
    widths, gap = list(beside.values()), " " * (_gap(beside, width) or 1)
    yield from _cells([name.replace("_", " ") for name in beside], widths, gap)
    for place in range(len(rows)):
        yield from _cells([table[name][place] for name in beside], widths, gap)
        told = [(name, table[name][place]) for name in moved if table[name][place] not in NOTHING]
        below = "; ".join(f"{name}: {text}" for name, text in told)
        yield from wrap(below, width, initial_indent=" " * 4, subsequent_indent=" " * 6)
    for name, long in notes.items():
        for number, text in enumerate(long, 1):
            yield from wrap(f"{name} [{number}]: {text}", width, subsequent_indent=" " * 4)


def _shared(table: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the long texts of columns in which many rows share few of them."""
    found: dict[str, list[str]] = {}
    if len(next(iter(table.values()))) > LOOKED_UP:
        return found
    for name, texts in table.items():
        long = [text for text in texts if len(text) > LONG]
        each = list(dict.fromkeys(long))
        if 0 < len(each) <= min(SHARED, len(long) // 2):
            found[name] = each
    return found


def _widths(table: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the columns that each takes; its head may be folded between words."""
    return {
        name: max(map(len, [*texts, *name.replace("_", " ").split()]))
        for name, texts in table.items()
    }


def _gap(widths: Mapping[str, int], width: int) -> int:
    """Return the spaces between columns with which they fit, 0 for none."""
    left = width - sum(widths.values())
    return next((gap for gap in GAPS if gap * (len(widths) - 1) <= left), 0)


def _layout(table: Mapping[str, Sequence[str]], width: int) -> tuple[dict[str, int], list[str]]:
    """Return the widths of the columns that stand side by side, and the others, in order."""
    beside = _widths(table)
    first = next(iter(beside))
    while not _gap(beside, width) and len(beside) > 1:
        widest = max((name for name in beside if name != first), key=lambda name: beside[name])
        others = sum(beside.values()) - beside[widest] + GAPS[0] * (len(beside) - 1)
        if width - others >= ROOM and beside[widest] <= FOLDS * (width - others):
            beside[widest] = width - others
            break
        del beside[widest]
    return beside, [name for name in table if name not in beside]


def _cells(texts: Sequence[str], widths: Sequence[int], gap: str) -> Iterator[str]:
    """Yield one row, each of its cells folded to its width."""
    folded = [wrap(text, width) for text, width in zip(texts, widths, strict=True)]
    for line in range(max(1, *map(len, folded))):
        cells = [cell[line] if line < len(cell) else "" for cell in folded]
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        yield gap.join(padded).rstrip()
