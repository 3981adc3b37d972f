"""TOML data files (devices, networks): keys read one by one, each refusal naming file and key."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perfsim.data.files import escaped, forbidden, read_text
from perfsim.errors import MAX_QUOTED, DataError, RequestError, nearest, newer, shown
from perfsim.quantity import COUNT_LIMIT, NumberLimit

__all__ = ["TomlTable", "read_toml"]

MOST_DOTS = 1000
"""In one line: tomllib takes a key of so many parts in the square of their number."""


class TomlTable(NamedTuple):
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
                told = f"unknown key{hint} Allowed: {', '.join(allowed)}"
                raise self.wrong(shown(key)[1:-1], told)

    def check_schema(self, schema: str) -> None:
        """Refuse a file of another schema."""
        found = self.text("schema")
        if found != schema:
            told = f"found {shown(found)}, this perfsim reads {schema!r}{newer(found, schema)}"
            raise self.wrong("schema", told)

    def name(self) -> str:
        """Return the file's ``name``, which is that of the file: what a user writes."""
        name, stem = self.text("name"), self.path.name.removesuffix(".toml")
        if name != stem:
            raise self.wrong("name", f"found {shown(name)}, the file's name says {stem!r}")
        return name

    def get(self, key: str) -> object:
        """Return the value of a key that must be there."""
        if key not in self.values:
            raise self.wrong(key, "is missing")
        return self.values[key]

    def text(self, key: str) -> str:
        """Return a text that is not empty."""
        value = self.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, f"found {shown(value)}, allowed is a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty when the key is absent."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
            raise self.wrong(key, f"found {shown(value)}, allowed is a list of texts")
        return tuple(value)

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """Return a text out of several."""
        value = self.text(key)
        if value not in allowed:
            raise self.wrong(key, f"found {shown(value)}, allowed: {', '.join(allowed)}")
        return value

    def whole(self, key: str, value: object) -> int:
        """Return a value of a key that must be a whole number above zero."""
        if not isinstance(value, int) or isinstance(value, bool) or not COUNT_LIMIT.holds(value):
            told = f"found {shown(value)}, allowed is a whole number, {COUNT_LIMIT.words}"
            raise self.wrong(key, told)
        return value

    def pair(self, key: str) -> tuple[object, object]:
        """Return the two entries of a range."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) != 2:
            raise self.wrong(key, f"found {shown(value)}, allowed is [lowest, highest]")
        return value[0], value[1]

    def number(
        self, key: str, value: object, parse: Callable[[object, str], float], limit: NumberLimit
    ) -> float:
        """Return a number with a unit, inside its limit."""
        if isinstance(value, str) and len(value) > MAX_QUOTED:
            raise self.wrong(key, f"found {shown(value)}, allowed is {limit.words}")
        try:
            number = parse(value, f"{self.place}{key}")
        except RequestError as error:
            raise DataError(str(error), path=self.path) from None
        except (ArithmeticError, ValueError):  # a number or exponent of hundreds of digits
            number = math.inf
        return self.limited(key, value, number, limit)

    def limited(self, key: str, value: object, number: float, limit: NumberLimit) -> float:
        """Return the number that a value says; refuses one outside its limit."""
        if not limit.holds(number):
            raise self.wrong(key, f"found {shown(value)}, allowed is {limit.words}")
        return float(number)

    def inside(self, key: str) -> TomlTable:
        """Return a table inside this one."""
        value = self.get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, f"found {shown(value)}, allowed is a table {{value = ..., ...}}")
        return TomlTable(value, self.path, f"{self.place}{key}.")

    def tables(self, key: str) -> list[TomlTable]:
        """Return a list of at least one table."""
        value = self.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
            raise self.wrong(key, f"found {shown(value)}, allowed are one or more tables [[{key}]]")
        return [
            TomlTable(item, self.path, f"{self.place}{key}[{index}].")
            for index, item in enumerate(value, 1)
        ]


def read_toml(path: Path) -> TomlTable:
    """Return the whole of a TOML file, with or without a byte-order mark.

    Raises
    ------
    DataError
        If it cannot be read or is not TOML.
    """
    text = read_text(path)
    if (
        text.count(".") > MOST_DOTS
        and max(line.count(".") for line in text.split("\n")) > MOST_DOTS
    ):
        raise DataError(f"is not TOML: a line with more than {MOST_DOTS:,} dots", path=path)
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number too long, tables too deep
        raise DataError(f"is not TOML: {escaped(str(error))}", path=path) from None
    # TOML itself refuses most control characters; what is left are escapes and other alphabets.
    if "\\" in text or not text.isascii():
        _refuse(values, TomlTable(values, path))
    return TomlTable(values, path)


def _refuse(value: object, table: TomlTable) -> None:
    """Refuse texts with control characters, wherever they are.

    Raises
    ------
    DataError
        If there is one; names its key.
    """
    found: list[tuple[str, object]] = [("", value)]
    while found:
        key, one = found.pop()
        if isinstance(one, dict):
            found += [(shown(name)[1:-1], inside) for name, inside in one.items()]
            texts = "".join(one)
        else:
            texts = one if isinstance(one, str) else ""
        if isinstance(one, list):
            found += [(key, inside) for inside in one]
        if forbidden(texts):
            raise table.wrong(key, f"found {shown(texts)}, which holds a control character")
