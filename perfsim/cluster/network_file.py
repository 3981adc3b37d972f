"""Reading a network's TOML file: every number with its unit, range, residual, kind and source."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.errors import DataError, RequestError, nearest
from perfsim.quantity import KINDS, Kind, Quantity
from perfsim.units import (
    parse_bytes,
    parse_fraction,
    parse_rate,
    parse_seconds,
    parse_seconds_per_byte,
)

__all__ = ["Table", "read_link", "read_table"]

LINK_KEYS = ("class", "ranks", "rate", "tree_rate", "gamma", "alpha", "segments")
VALUE_KEYS = ("value", "error", "range", "residual", "kind", "source")
SEGMENT_KEYS = ("algorithm", "knots", "range", "residual", "kind", "source")
ALGORITHMS = ("ring", "tree")
ANY = "any"
"""A segment's algorithm where ring and tree share one curve."""


@dataclass(frozen=True)
class Table:
    """One table of a TOML file, which knows where it stands so that errors can say so."""

    values: Mapping[str, object]
    path: Path
    place: str = ""

    def wrong(self, key: str, found: str) -> DataError:
        """Return the error for one key."""
        return DataError(f"{self.place}{key}: {found}", path=self.path)

    def only(self, allowed: Sequence[str]) -> None:
        """Refuse keys that nobody reads: a misspelt one would be silently without effect."""
        for key in self.values:
            if key not in allowed:
                match = nearest(key, allowed)
                hint = f"; did you mean {match!r}?" if match else "."
                raise self.wrong(key, f"unknown key{hint} Allowed: {', '.join(allowed)}")

    def get(self, key: str) -> object:
        """Return the value of a key that must be there."""
        if key not in self.values:
            raise self.wrong(key, "is missing")
        return self.values[key]

    def text(self, key: str) -> str:
        """Return a text that is not empty."""
        value = self.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"found {value!r}, allowed is a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty when the key is absent."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, f"found {value!r}, allowed is a list of texts")
        return tuple(value)

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """Return a text out of several."""
        value = self.text(key)
        if value not in allowed:
            raise self.wrong(key, f"found {value!r}, allowed: {', '.join(allowed)}")
        return value

    def whole(self, key: str) -> int:
        """Return a whole number above zero."""
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(key, f"found {value!r}, allowed is a whole number above zero")
        return value

    def pair(self, key: str) -> tuple[object, object]:
        """Return the two entries of a range."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) != 2:
            raise self.wrong(key, f"found {value!r}, allowed is [lowest, highest]")
        return value[0], value[1]

    def number(self, key: str, value: object, parse: Callable[[object, str], float]) -> float:
        """Return a number with a unit."""
        try:
            return parse(value, f"{self.place}{key}")
        except RequestError as error:
            raise DataError(str(error), path=self.path) from None

    def inside(self, key: str) -> Table:
        """Return a table inside this one."""
        value = self.get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, f"found {value!r}, allowed is a table {{value = ..., ...}}")
        return Table(value, self.path, f"{self.place}{key}.")

    def tables(self, key: str) -> list[Table]:
        """Return a list of at least one table."""
        value = self.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
            raise self.wrong(key, f"found {value!r}, allowed are one or more tables [[{key}]]")
        return [
            Table(item, self.path, f"{self.place}{key}[{index}].")
            for index, item in enumerate(value, 1)
        ]


def read_table(path: Path) -> Table:
    """Return the whole of a TOML file.

    Raises
    ------
    DataError
        If it cannot be read or is not TOML.
    """
    try:
        return Table(tomllib.loads(path.read_text(encoding="utf-8")), path)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", path=path) from None
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"is not TOML: {error}", path=path) from None


def read_link(table: Table, name: str) -> Link:
    """Return the link of one ``[[link]]`` table.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.
    """
    table.only(LINK_KEYS)
    rate = _quantity(table, "rate", parse_rate, "B/s")
    tree = _quantity(table, "tree_rate", parse_rate, "B/s") if "tree_rate" in table.values else rate
    for key, quantity in (("rate", rate), ("tree_rate", tree)):
        if quantity.value == 0:
            raise table.wrong(key, "the value must be above zero")
    curves = _curves(table)
    return Link(
        name=name,
        rate=rate,
        tree_rate=tree,
        gamma=_quantity(table, "gamma", parse_seconds_per_byte, "s/B"),
        ring=curves["ring"],
        tree=curves["tree"],
        ranks=_ranks(table),
    )


def _ranks(table: Table) -> tuple[int, int] | None:
    if "ranks" not in table.values:
        return None
    low, high = table.pair("ranks")
    if not isinstance(low, int) or not isinstance(high, int) or not 1 <= low <= high:
        raise table.wrong("ranks", f"found {[low, high]!r}, allowed are whole numbers, low to high")
    return low, high


def _origin(
    table: Table, value: float | None, parse: Callable[[object, str], float]
) -> tuple[Kind, str, float | None, float | None, float | None]:
    spread = low = high = None
    if "error" in table.values:
        error = table.number("error", table.values["error"], parse)
        spread = error / value if value else None
    if "residual" in table.values:
        spread = table.number("residual", table.values["residual"], parse_fraction)
    if "range" in table.values:
        low, high = (table.number("range", end, parse_bytes) for end in table.pair("range"))
        if low > high:
            raise table.wrong("range", "the lowest size is above the highest")
    kind = cast(Kind, table.choice("kind", KINDS))
    return kind, table.text("source"), spread, low, high


def _quantity(table: Table, key: str, parse: Callable[[object, str], float], unit: str) -> Quantity:
    inside = table.inside(key)
    inside.only(VALUE_KEYS)
    value = inside.number("value", inside.get("value"), parse)
    return Quantity(value, unit, *_origin(inside, value, parse))


def _curves(table: Table) -> dict[str, Latency]:
    if ("alpha" in table.values) == ("segments" in table.values):
        raise table.wrong("alpha", "a link has either alpha (one value) or segments (by size)")
    if "alpha" in table.values:
        return dict.fromkeys(
            ALGORITHMS, Latency.constant(_quantity(table, "alpha", parse_seconds, "s/hop"))
        )
    curves: dict[str, Latency] = {}
    for segment in table.tables("segments"):
        segment.only(SEGMENT_KEYS)
        algorithm = segment.choice("algorithm", (*ALGORITHMS, ANY))
        served = ALGORITHMS if algorithm == ANY else (algorithm,)
        if not curves.keys().isdisjoint(served):
            raise segment.wrong("algorithm", f"{algorithm!r} has segments already")
        curves.update(dict.fromkeys(served, _curve(segment)))
    for algorithm in ALGORITHMS:
        if algorithm not in curves:
            raise table.wrong("segments", f"none has algorithm = {algorithm!r}")
    return curves


def _curve(segment: Table) -> Latency:
    sizes: list[float] = []
    alphas: list[float] = []
    for knot in segment.tables("knots"):
        knot.only(("size", "alpha"))
        sizes.append(knot.number("size", knot.get("size"), parse_bytes))
        alphas.append(knot.number("alpha", knot.get("alpha"), parse_seconds))
        if sizes[-1] <= (sizes[-2] if len(sizes) > 1 else 0.0):
            raise knot.wrong("size", "sizes start above zero and rise from knot to knot")
    return Latency(tuple(sizes), tuple(alphas), *_origin(segment, None, parse_seconds))
