"""The keys of a config.json of Hugging Face transformers, checked as they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from perfsim.errors import DataError, shown
from perfsim.models.limits import MAX_LAYERS, MAX_NUMBER

__all__ = ["MAX_TOKENS", "ConfigKeys"]

MAX_TOKENS = 8192
"""Most tokens a sample where nothing is asked: those of Llama 3's pre-training (Dubey et al., arXiv
2407.21783, section 3.4.1). Files that state more positions mean those that a model can be used
with, such as 131072 of Qwen2.5, which was pre-trained with 4096 (arXiv 2412.15115, section 3.3)."""


_SIDES = 2
"""Sides of an image."""


class ConfigKeys:
    """The keys of a config.json, checked as they are read; ``within`` names the table around."""

    def __init__(self, values: Mapping[str, Any], path: Path, within: str = "") -> None:
        self._values, self._path, self._within = values, path, within

    def wrong(self, key: str, why: str) -> NoReturn:
        """Refuse the value of a key."""
        raise DataError(f"{self._within}{key} {why}", path=self._path)

    def has(self, key: str) -> bool:
        """Tell whether a key has a value other than null."""
        return self._values.get(key) is not None

    def count(
        self,
        key: str,
        absent: int | None = None,
        null: int | None = None,
        *,
        least: int = 1,
        most: int = MAX_NUMBER,
    ) -> int:
        """Return a whole number: ``absent`` without its key, ``null`` where that is null."""
        value = self._values.get(key, absent)
        value = null if value is None else value
        allowed = f"a whole number from {least} to {most}"
        if value is None:
            self.wrong(key, f"is needed: {allowed}")
        if type(value) is not int or not least <= value <= most:
            self.wrong(key, f"is {_said(value)}, not {allowed}")
        return value

    def repeated(self, key: str, absent: int, *, most: int = MAX_NUMBER) -> int:
        """Return a whole number, or the one that a list repeats for each layer."""
        value = self._values.get(key)
        if not isinstance(value, list):
            return self.count(key, absent, most=most)
        if not value or any(one != value[0] for one in value):
            self.wrong(key, f"is {_said(value)}; perfsim knows the same number for each layer only")
        return ConfigKeys({key: value[0]}, self._path, self._within).count(key, most=most)

    def sides(self, key: str, absent: int) -> tuple[int, int]:
        """Return the height and width of an image: a number for both, or a list of two."""
        value = self._values.get(key)
        if not isinstance(value, list):
            side = self.count(key, absent)
            return side, side
        if len(value) != _SIDES:
            self.wrong(key, f"is {_said(value)}, not a number or a list of two")
        high, wide = (ConfigKeys({key: side}, self._path).count(key) for side in value)
        return high, wide

    def layers(self, key: str) -> int:
        """Return how many layers there are."""
        return self.count(key, most=MAX_LAYERS)

    def switch(self, key: str, absent: bool) -> bool:
        """Return true or false."""
        value = self._values.get(key)
        value = absent if value is None else value
        if type(value) is not bool:
            self.wrong(key, f"is {_said(value)}, not true or false")
        return value

    def share(self, key: str, absent: float, *, most: float = 1.0) -> float:
        """Return a number from 0 to ``most``; 0 where it is null."""
        value = self._values.get(key, absent)
        value = 0.0 if value is None else value
        if type(value) not in (int, float) or not 0.0 <= value <= most:
            self.wrong(key, f"is {_said(value)}, not a number from 0 to {most:g}")
        return float(value)

    def word(self, key: str, absent: str, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed words."""
        value = self._values.get(key)
        value = absent if value is None else value
        if not isinstance(value, str) or value not in allowed:
            self.wrong(key, f"is {_said(value)}; perfsim knows {', '.join(allowed)}")
        return value

    def text(self, key: str, absent: str) -> str:
        """Return a text."""
        value = self._values.get(key)
        value = absent if value is None else value
        if not isinstance(value, str):
            self.wrong(key, f"is {_said(value)}, not a text")
        return value

    def only(self, key: str, known: bool | int | None) -> None:
        """Refuse a key that states another kind of layer than perfsim knows."""
        value = self._values.get(key, known)
        if type(value) is not type(known) or value != known:
            self.wrong(key, f"is {_said(value)}; perfsim knows {json.dumps(known)} only")

    def table(self, key: str) -> ConfigKeys:
        """Return the keys of a table; none where it is absent."""
        value = self._values.get(key)
        value = {} if value is None else value
        if not isinstance(value, dict):
            self.wrong(key, f"is {_said(value)}, not a table of names and values")
        return ConfigKeys(value, self._path, f"{key}.")

    def words(self, key: str) -> list[Any]:
        """Return a list; an empty one where it is absent."""
        value = self._values.get(key)
        value = [] if value is None else value
        if not isinstance(value, list):
            self.wrong(key, f"is {_said(value)}, not a list")
        return value

    def size(self, key: str) -> int:
        """Return how many names a table has; 0 where it is absent."""
        return len(self.table(key)._values)

    def head(self, hidden: str, heads: str, stated: str = "") -> int:
        """Return the width of a head: the stated one, else the share of ``hidden``."""
        if stated and self.has(stated):
            return self.count(stated)
        width, number = self.count(hidden), self.count(heads)
        if width % number:
            fix = f"; give {stated}" if stated else ""
            self.wrong(heads, f"is {number}, which does not divide {hidden} {width}{fix}")
        return width // number

    def shared_heads(self, key: str, heads: str, absent: int | None = None) -> int:
        """Return the heads of keys and values: as many as there are others where it is null."""
        number = self.count(heads)
        found = self.count(key, absent, number)
        if number % found:
            self.wrong(key, f"is {found}, which does not divide {heads} {number}")
        return found

    def tokens(self, key: str, absent: int) -> int:
        """Return the tokens of a sample: the positions of a key, at most 8192."""
        return min(self.count(key, absent), MAX_TOKENS)


def _said(value: object) -> str:
    """Return a wrong value as JSON spells it."""
    return "null" if value is None else shown(value)
