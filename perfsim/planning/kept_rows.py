"""Rows of a sweep, kept as columns of numbers: a million take a sixth of the memory of tuples."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import eq
from typing import Any, overload

__all__ = ["KeptRows"]

_BLOCK_ROWS = 4096
"""Rows that become columns together."""

_MAX_INTEGER = 2**63

_Column = Sequence[Any]
"""The values of a block's rows in one place; one value alone holds for all of them."""


class KeptRows(Sequence[tuple[Any, ...]]):
    """Rows in order, as they were added, to the type of each value.

    Examples
    --------
    >>> rows = KeptRows()
    >>> rows.extend([(0.5, 3, ""), (None, None, "no")])
    >>> len(rows), rows[1], list(rows)
    (2, (None, None, 'no'), [(0.5, 3, ''), (None, None, 'no')])
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[_Column, ...]] = []
        self._starts: list[int] = []
        self._packed = 0
        self._last: list[tuple[Any, ...]] = []

    def extend(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows behind the others."""
        self._last += map(tuple, rows)
        if len(self._last) >= _BLOCK_ROWS:
            self._blocks.append(tuple(map(_column, zip(*self._last, strict=True))))
            self._starts.append(self._packed)
            self._packed += len(self._last)
            self._last = []

    def __iadd__(self, rows: Iterable[Sequence[Any]]) -> KeptRows:
        """Add rows behind the others."""
        self.extend(rows)
        return self

    def __len__(self) -> int:
        """Count the rows."""
        return self._packed + len(self._last)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row."""
        for place in range(len(self._blocks)):
            whole = (self._whole(column, place) for column in self._blocks[place])
            yield from zip(*whole, strict=True)
        yield from self._last

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[Any, ...]]: ...
    def __getitem__(self, index: int | slice) -> tuple[Any, ...] | list[tuple[Any, ...]]:
        """Return a row, or a list of rows."""
        places = range(len(self))[index]
        return self._row(places) if isinstance(places, int) else list(map(self._row, places))

    def __eq__(self, other: object) -> bool:
        """Say whether another sequence has the same rows."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def _row(self, index: int) -> tuple[Any, ...]:
        if index >= self._packed:
            return self._last[index - self._packed]
        place = bisect_right(self._starts, index) - 1
        within = index - self._starts[place]
        return tuple(column[within % len(column)] for column in self._blocks[place])

    def _whole(self, column: _Column, place: int) -> Iterable[Any]:
        ends = (*self._starts[1:], self._packed)
        return repeat(column[0], ends[place] - self._starts[place]) if len(column) == 1 else column


def _column(values: tuple[Any, ...]) -> _Column:
    """Return values as the smallest column that gives them back as they are."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return array("d", values)
    if kinds == {int} and max(map(abs, values)) < _MAX_INTEGER:
        return array("q", values)
    return values[:1] if len(kinds) == 1 and len(set(values)) == 1 else values
