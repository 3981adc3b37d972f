"""What a fabric's file says of the keys that it reads from a network file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Option"]


@dataclass(frozen=True, slots=True)
class Option:
    """One key of a fabric's table.

    Parameters
    ----------
    form : what a value looks like: count (a whole number), counts, ratio (a number from 1 on),
        ratios (one or a list), rate ("25Gbit/s"), flag, word, words or file
    meaning : for the message where it is missing
    allowed : the words, for ``word``
    needed : whether the key must be there
    """

    form: Literal[
        "count", "counts", "ratio", "ratios", "share", "rate", "flag", "word", "words", "file"
    ]
    meaning: str
    allowed: tuple[str, ...] = ()
    needed: bool = False
