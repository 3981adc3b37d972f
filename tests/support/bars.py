"""Bars of characters: the pictures of README.md and of scenarios/README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["LEGEND", "Row", "bar", "chart", "parts_of"]

WIDTH = 80
OWN_SCALE = 20
"""Groups whose longest bars differ by more than this many times have a scale each."""

LEGEND = "# computation, + the method's kernels, - communication that nothing hides"
Parts = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Row:
    """One bar: what stands before it, and its parts, each a mark and an amount."""

    cells: tuple[str, ...]
    parts: Parts

    @property
    def length(self) -> float:
        """The amount of all parts."""
        return sum(amount for _, amount in self.parts)


def bar(parts: Parts, longest: float, width: int) -> str:
    """Return the parts one behind the other, ``width`` characters for ``longest``."""
    ends, drawn = 0.0, ""
    for mark, amount in parts:
        ends += amount
        drawn += mark * (round(width * ends / longest) - len(drawn))
    return drawn


def parts_of(breakdown_s: Mapping[str, float]) -> Parts:
    """Return what a prediction's breakdown makes of a bar."""
    compute_s = sum(breakdown_s[part] for part in ("forward", "backward", "update", "other"))
    kernels_s = breakdown_s["compression"] + breakdown_s["second_order"]
    return ("#", compute_s), ("+", kernels_s), ("-", breakdown_s["communication_exposed"])


def chart(head: Sequence[str], groups: Sequence[Sequence[Row]], notes: Sequence[str] = ()) -> str:
    """Return groups of bars, a blank line between them, in lines of 80 columns.

    The first column stands left, the others right; the bars take what is left of the width.
    """
    rows = [row for group in groups for row in group]
    lines = [head, *(row.cells for row in rows)]
    widths = [max(len(cells[at]) for cells in lines) for at in range(len(head))]
    room = WIDTH - sum(widths) - 2 * len(widths)
    longest = [max(row.length for row in group) for group in groups]
    own = max(longest) > OWN_SCALE * min(longest)
    drawn = [*notes, *(["each group has a scale of its own"] if own else [])]
    drawn += ["", _cells(head, widths).rstrip()]
    for group, most in zip(groups, longest, strict=True):
        scale = most if own else max(longest)
        drawn += [
            f"{_cells(row.cells, widths)}  {bar(row.parts, scale, room)}".rstrip() for row in group
        ]
        drawn.append("")
    return "\n".join(drawn).strip("\n")


def _cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = f"{cells[0]:{widths[0]}}"
    rest = [f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  ".join([first, *rest])
