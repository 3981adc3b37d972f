"""What readers of measurement files share: where a run stood, its rows, and what damages them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from perfsim.calibrate.cells import (
    DIGITS,
    NAMES,
    busbw_factor,
    collective_name,
    decimal_of,
    seconds_of,
    size_of,
)
from perfsim.cluster.measured import Curve
from perfsim.errors import DataError, RequestError, nearest
from perfsim.limits import shown

__all__ = ["MOST", "Given", "Row", "Rows", "Run", "known"]

OFF = 0.1
"""A bus bandwidth further than this from its time and size is a damaged line."""
CONFLICT = 10.0
"""Repeats of one size this many times apart contradict each other."""
MOST = 10**9
"""No cluster has as many GPUs."""
CHECKED = 5
"""Rows whose bandwidth can be checked before all of a run is doubted."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the user says about a file that does not say it itself."""

    collective: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None

    def __post_init__(self) -> None:
        """Refuse counts that cannot be."""
        for name in ("ranks", "nodes", "gpus_per_node"):
            count = getattr(self, name)
            if count is not None and not 0 < count < MOST:
                option = name.replace("_", "-")
                raise RequestError(f"--{option}: {count} is not a count; at least 1.")


@dataclass(slots=True)
class Rows:
    """The damaged lines of one file: the first is an error, unless they are to be left out."""

    path: Path
    skip_bad: bool = False
    skipped: list[str] = field(default_factory=list)

    def bad(self, row: int, what: str) -> None:
        """Note a damaged line.

        Raises
        ------
        DataError
            Unless damaged lines are skipped; it names file, line and what was found.
        """
        if not self.skip_bad:
            raise DataError(f"{what} (--skip-bad leaves such lines out)", path=self.path, row=row)
        self.skipped.append(f"{self.path}:{row}: {what}")

    def fatal(self, what: str, row: int | None = None) -> DataError:
        """Return the error for what no skipping mends."""
        return DataError(what, path=self.path, row=row)


def known(text: str, rows: Rows, row: int | None = None) -> str:
    """Return perfsim's name of a collective; refuses one that it does not know."""
    name = collective_name(text)
    if not name:
        allowed = sorted(set(NAMES.values()))
        match = nearest(text, allowed)
        hint = f"; did you mean {match!r}?" if match else ""
        raise rows.fatal(f"no collective {shown(text)}{hint} (allowed: {', '.join(allowed)})", row)
    return name


@dataclass(frozen=True, slots=True)
class Row:
    """One time of one size: where it stands, and the bus bandwidth printed beside it ('' none)."""

    row: int
    size_bytes: float
    seconds: float
    busbw: str = ""


@dataclass(slots=True)
class Run:
    """Rows measured in one go: ``columns`` are out of place, in place or whatever was repeated.

    ``facts`` are the fields of `Curve` that the file says about it, but for the points.
    """

    facts: dict[str, Any]
    columns: dict[str, list[Row]] = field(default_factory=dict)
    row: int | None = None

    def add(self, column: str, row: int, size: str, time: str, busbw: str, unit: int) -> None:
        """Add a time; raises ValueError where it is damaged."""
        found = Row(row, size_of(size), seconds_of(time, unit), busbw)
        self.columns.setdefault(column, []).append(found)

    def place(self, given: Given, rows: Rows) -> None:
        """Settle ranks, nodes and GPUs a node from the file and the user."""
        facts = self.facts
        for name in ("collective", "ranks", "nodes", "gpus_per_node"):
            told, stated = getattr(given, name), facts.get(name)
            if told is not None and stated is not None and told != stated:
                option = name.replace("_", "-")
                raise rows.fatal(f"says {name} {stated}, --{option} says {told}", self.row)
            if stated is None:
                facts[name] = told
        if facts["collective"] is None:
            raise rows.fatal("does not say which collective it measured: --collective", self.row)
        ranks, nodes, most = facts["ranks"], facts["nodes"], facts["gpus_per_node"]
        if ranks is None and nodes is not None and most is not None:
            ranks = nodes * most
        if nodes is None and ranks is not None and most is not None:
            nodes = -(-ranks // most)
        if ranks is None or nodes is None:
            lacks = "ranks and nodes: --ranks and --nodes" if ranks is None else "nodes: --nodes"
            raise rows.fatal(f"does not say the number of {lacks}", self.row)
        facts.update(ranks=ranks, nodes=nodes, gpus_per_node=most or -(-ranks // nodes))

    def curves(self, rows: Rows) -> Iterable[Curve]:
        """Give one curve for each column and each repeat of its sweep."""
        self._drop_contradicted(rows)
        for points in self.columns.values():
            for sweep in _sweeps(points, rows):
                sizes = tuple(point.size_bytes for point in sweep)
                seconds = tuple(point.seconds for point in sweep)
                try:
                    yield Curve(size_bytes=sizes, seconds=seconds, **self.facts)
                except DataError as error:
                    raise rows.fatal(str(error), self.row) from None

    def _drop_contradicted(self, rows: Rows) -> None:
        """Name rows whose bus bandwidth contradicts time and size; doubt the run if most do."""
        collective, ranks = self.facts["collective"], self.facts["ranks"]
        factor = busbw_factor(collective, ranks)
        tested = [
            (point, _agrees(point, factor)) for points in self.columns.values() for point in points
        ]
        told = [agrees for _, agrees in tested if agrees is not None]
        if len(told) >= CHECKED and sum(told) < len(told) / 2:
            raise rows.fatal(
                f"its bus bandwidths are not those of {collective} on {ranks} ranks; is this"
                " the collective, and the number of ranks?",
                self.row,
            )
        wrong = {id(point) for point, agrees in tested if agrees is False}
        for name, points in self.columns.items():
            for point in points:
                if id(point) in wrong:
                    rate = factor * point.size_bytes / point.seconds / 1e9
                    rows.bad(
                        point.row,
                        f"bus bandwidth {shown(point.busbw)[1:-1]} GB/s, but"
                        f" {point.size_bytes:g} B in {point.seconds * 1e6:g} us are"
                        f" {rate:.4g} GB/s",
                    )
            self.columns[name] = [point for point in points if id(point) not in wrong]


def _agrees(point: Row, factor: float) -> bool | None:
    """Say whether a bus bandwidth fits time and size; None where it says nothing."""
    printed = decimal_of(point.busbw)
    if printed is None or not printed.is_finite() or factor == 0:
        return None
    exponent = printed.as_tuple().exponent
    if abs(printed.adjusted()) > DIGITS or not isinstance(exponent, int):
        return False
    last_digit = 10.0**exponent
    rate = factor * point.size_bytes / point.seconds / 1e9
    if rate < last_digit and float(printed) <= last_digit:
        return None
    return abs(float(printed) - rate) <= OFF * rate + 0.51 * last_digit


def _sweeps(points: list[Row], rows: Rows) -> list[list[Row]]:
    """Return the points in sweeps of rising size: the nth time of a size is in the nth sweep."""
    by_size: dict[float, list[Row]] = {}
    for point in points:
        same = by_size.setdefault(point.size_bytes, [])
        if same and not 1 / CONFLICT <= point.seconds / same[0].seconds <= CONFLICT:
            rows.bad(
                point.row,
                f"{point.size_bytes:g} B in {point.seconds * 1e6:g} us, but line {same[0].row} says"
                f" {same[0].seconds * 1e6:g} us",
            )
            continue
        same.append(point)
    ordered = [by_size[size] for size in sorted(by_size)]
    return [[point for point in nth if point] for nth in zip_longest(*ordered)]
