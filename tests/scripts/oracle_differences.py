"""How two answers differ: numbers, structure and names, with sentences apart.

An answer is plain JSON. What is compared how:

* floating-point numbers to a relative error of ``MAX_RELATIVE`` (fitted ones, of answers that fit:
  ``MAX_RELATIVE_FITTED``), and to zero exactly;
* whole numbers, truth values, null, keys, types and the lengths of lists exactly;
* strings without a space (names, units, kinds), those of ``EXACT`` and values with a unit
  ("1.173 GB/s") exactly;
* all other strings are sentences, and so are the strings of ``SENTENCES``: a sentence that changed
  is told and is no difference. How many sentences a list of ``SENTENCES`` holds may change, too.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "MAX_RELATIVE",
    "MAX_RELATIVE_FITTED",
    "Comparison",
    "Difference",
    "Sentence",
    "compared",
]

MAX_RELATIVE = 1e-12

MAX_RELATIVE_FITTED = 1e-6
"""For numbers of a fit. Its derivatives are taken numerically, so that they differ by 1e-8 from one
processor's linear algebra to another's; a network file keeps 4 digits of what follows from them."""

SENTENCES = frozenset(
    [
        *("caution", "caveat", "comments", "misses", "not_told", "note", "notes", "notices"),
        *("reason", "remarks", "rule", "said", "skipped", "sources", "verdict", "warnings", "why"),
    ]
)
"""Keys whose strings, or lists of strings, are words for the reader, even where it is one word."""

EXACT = frozenset(
    [
        *("against_ssgd", "algorithms", "aliases", "bucket", "collectives", "command", "curve"),
        *("family", "group", "measured kernels", "message", "model", "name", "network", "rows"),
        *("scaled from", "scenario", "stream", "system", "task", "wire", "wire_by_default"),
    ]
)
"""Keys whose strings are names, lists of names, commands or formulas, even with spaces in them."""

VALUE = r"[<>~]?[+-]{0,2}\d[\d.,]*(?:e[+-]?\d+)?(?: ?[A-Za-zµ%][A-Za-z%/^0-9]*(?: a hop)?)?"
QUANTITY = re.compile(
    rf"{VALUE}(?:(?: to |, | )?{VALUE})*(?: (?:measured|derived|fitted|published|assumed))?"
)
"""A value with its unit, a range of two, or one with its error or kind: no sentence."""

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Difference:
    """Something that moved: where in the answer, what it was and what it is."""

    path: str
    old: str
    new: str
    relative: float | None = None

    def __str__(self) -> str:
        """Return the difference as one line."""
        much = "" if self.relative is None else f"  (relative {self.relative:.3g})"
        return f"{self.path}: {self.old} -> {self.new}{much}"


@dataclass(frozen=True)
class Sentence:
    """A sentence that changed, or a list of them."""

    path: str
    old: str
    new: str

    @property
    def numbers_changed(self) -> bool:
        """Whether the numbers in it are others, in whatever order."""
        return sorted(NUMBER.findall(self.old)) != sorted(NUMBER.findall(self.new))


@dataclass
class Comparison:
    """What was found: how many numbers were compared, what differs, which sentences changed."""

    max_relative: float = MAX_RELATIVE
    numbers: int = 0
    numbers_moved: int = 0
    differences: list[Difference] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)

    def compare(self, old: Any, new: Any, path: str = "", key: str = "") -> None:
        """Compare two values at one place, and all that they hold."""
        number, other = _is_number(old), _is_number(new)
        if number and other:
            self._compare_numbers(old, new, path)
        elif type(old) is not type(new):
            self._note(path, old, new)
        elif isinstance(old, dict):
            self._compare_objects(old, new, path)
        elif isinstance(old, list):
            self._compare_lists(old, new, path, key)
        elif isinstance(old, str):
            self._compare_strings(old, new, path, key)
        elif old != new:
            self._note(path, old, new)

    def _compare_numbers(self, old: float, new: float, path: str) -> None:
        self.numbers += 1
        if type(old) is type(new) and (old == new or (math.isnan(old) and math.isnan(new))):
            return
        largest = max(abs(old), abs(new))
        relative = abs(new - old) / largest if 0 < largest < math.inf else math.inf
        inexact = isinstance(old, float) and isinstance(new, float) and 0 not in (old, new)
        if not (inexact and relative <= self.max_relative):
            self.numbers_moved += 1
            self.differences.append(Difference(path, repr(old), repr(new), relative))

    def _compare_objects(self, old: dict, new: dict, path: str) -> None:
        for name in [*old, *(name for name in new if name not in old)]:
            place = f"{path}.{name}" if path else name
            if name not in new:
                self.differences.append(Difference(place, _brief(old[name]), "(missing)"))
            elif name not in old:
                self.differences.append(Difference(place, "(missing)", _brief(new[name])))
            else:
                self.compare(old[name], new[name], place, name)

    def _compare_lists(self, old: list, new: list, path: str, key: str) -> None:
        if key in SENTENCES and all(isinstance(one, str) for one in [*old, *new]):
            if old != new:
                self.sentences.append(Sentence(path, "\n".join(old), "\n".join(new)))
        elif len(old) != len(new):
            lengths = f"a list of {len(old)}", f"a list of {len(new)}"
            self.differences.append(Difference(path, *lengths))
        else:
            for index, (one, other) in enumerate(zip(old, new, strict=True)):
                self.compare(one, other, f"{path}[{index}]", key)

    def _compare_strings(self, old: str, new: str, path: str, key: str) -> None:
        if old == new:
            return
        if bool(old) == bool(new) and _is_sentence(old, key):
            self.sentences.append(Sentence(path, old, new))
        else:
            self._note(path, old, new)

    def _note(self, path: str, old: Any, new: Any) -> None:
        self.differences.append(Difference(path, _brief(old), _brief(new)))


def compared(old: Any, new: Any, max_relative: float = MAX_RELATIVE) -> Comparison:
    """Return how two answers differ.

    Examples
    --------
    >>> found = compared({"iteration_s": 1.0}, {"iteration_s": 1.0 + 1e-9})
    >>> [str(one) for one in found.differences]
    ['iteration_s: 1.0 -> 1.000000001  (relative 1e-09)']
    """
    found = Comparison(max_relative)
    found.compare(old, new)
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_sentence(text: str, key: str) -> bool:
    """Tell whether a string is words for the reader, not a name or a value with its unit."""
    if key in SENTENCES:
        return True
    if key in EXACT:
        return False
    return " " in text.strip() and not QUANTITY.fullmatch(text.strip())


def _brief(value: Any) -> str:
    """Return a value in one line."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
