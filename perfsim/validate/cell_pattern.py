"""Patterns that take a number out of a table's cell, in a number of steps that is known beforehand.

Python's regular expressions try every way to divide a text among repeats: ``(a+)+$`` takes twice as
long with every letter. A rule's pattern is therefore a sequence: characters, classes and one group,
each character or class with a repeat or without. Groups are not repeated, and nothing is chosen
from or looked at ahead. How often such a pattern can try is the product of what its repeats allow.
"""

from __future__ import annotations

import re
import warnings

from perfsim.data.toml import WrongValue
from perfsim.errors import shown

__all__ = ["MAX_CELL_CHARACTERS", "cell_pattern"]

MAX_CELL_CHARACTERS = 512
"""Characters of a cell that are looked at. The longest cell that ships has 299."""

MAX_PATTERN_CHARACTERS = 200
"""No source: chosen, six times the longest that ships."""

MAX_TRIES = 500_000
"""Ways that a pattern may try on one cell: about 10 ms. One ``+`` takes 262,144."""

_ITEM = re.compile(
    r"(?P<open>\((?!\?))|(?P<close>\)(?![*+?{]))|(?P<anchor>[\^$]|\\b)(?![*+?{])"
    r"|(?:\\[^A-Za-z0-9]|\\[dDsSwW]|\[\^?(?:\\[^A-Za-z0-9]|\\[dDsSwW]|[^\]\[\\])+\]"
    r"|[^\\\[\](){}*+?|^$])"
    r"(?P<repeat>[*+?]|\{(?P<least>\d{0,4})(?P<comma>,?)(?P<most>\d{0,4})\})?\??"
)
"""One item of a sequence. A repeat may be the shortest (``+?``), never possessive (``++``)."""


def cell_pattern(text: str) -> re.Pattern[str]:
    r"""Return a pattern with one group, after checking that it ends soon on any cell.

    Raises
    ------
    WrongValue
        If it is no pattern, is no such sequence, or has too many ways to try.

    Examples
    --------
    >>> cell_pattern(r"rank ([0-9]+)").search("density 0.01, rank 4")[1]
    '4'
    >>> cell_pattern(r"(a+)+$")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    perfsim.data.toml.WrongValue: '(a+)+$' is more than a sequence at ')+$'; a pattern has ...
    """
    if len(text) > MAX_PATTERN_CHARACTERS:
        raise WrongValue(f"{shown(text)} has more than {MAX_PATTERN_CHARACTERS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pattern = re.compile(text)
    except (re.error, ArithmeticError, RecursionError, Warning) as error:
        raise WrongValue(f"{shown(text)} is no pattern: {error}") from None
    tries = _tries(text)
    if tries > MAX_TRIES:
        raise WrongValue(
            f"{shown(text)} can match in {tries:,} ways on a cell of {MAX_CELL_CHARACTERS}"
            f" characters, allowed are {MAX_TRIES:,}; write {{1,9}} in place of + and {{0,9}} of *"
        )
    return pattern


def _tries(text: str) -> int:
    """Return how many ways a pattern has to match: where it begins times what its repeats allow."""
    tries, place = MAX_CELL_CHARACTERS, 0
    while place < len(text):
        item = _ITEM.match(text, place)
        if item is None:
            raise WrongValue(
                f"{shown(text)} is more than a sequence at {shown(text[place:])}; a pattern has"
                " characters, classes such as [0-9], \\d, \\w and \\s, repeats of these, and one"
                " group that is not repeated"
            )
        place = item.end()
        repeat = item["repeat"]
        if repeat == "?":
            tries *= 2
        elif repeat is not None:
            tries *= _ways(item)
    return tries


def _ways(item: re.Match[str]) -> int:
    """Return how many lengths a repeat may take on a cell."""
    if item["repeat"] in ("*", "+"):
        return MAX_CELL_CHARACTERS
    least, most = int(item["least"] or 0), item["most"]
    if not item["comma"]:
        return 1
    longest = min(int(most), MAX_CELL_CHARACTERS) if most else MAX_CELL_CHARACTERS
    return max(1, longest - least + 1)
