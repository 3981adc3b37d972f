"""Letters that would reach a terminal as commands: escape sequences, text that runs backwards.

Data files may not hold them; what logs and traces of other tools hold is read without them; and
what is said of wrong input shows them as escapes.
"""

from __future__ import annotations

import re
from typing import TypeVar

__all__ = ["cell", "escaped", "forbidden", "printable"]

CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)  # Unicode's controls but tab and line end, its own line ends, bidirectional ones, surrogates
FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]|-[a-z])")
"""How a formula begins; numbers and the names of flags do not."""
T = TypeVar("T")
SEQUENCE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""What colours text or moves the cursor."""


def forbidden(text: str) -> re.Match[str] | None:
    r"""Return the first letter that no data file may hold.

    Examples
    --------
    >>> forbidden("25 µs\n"), forbidden("a\x1b[31m")[0]
    (None, '\x1b')
    """
    # Nearly every text is printable, which is quicker to see than what is not.
    return None if text.replace("\n", "").isprintable() else CONTROL.search(text)


def printable(text: str) -> str:
    r"""Return a text without what is not printed: colours and control characters.

    Examples
    --------
    >>> printable("\x1b[32mTesla\x1b[0m V100\x07")
    'Tesla V100'
    """
    return CONTROL.sub("", SEQUENCE.sub("", text)) if CONTROL.search(text) else text


def cell(value: T) -> T | str:
    """Return a value as a cell of a table that a spreadsheet may open: no text is a formula there.

    Examples
    --------
    >>> cell("=1+1"), cell("-0.5"), cell(-0.5), cell("--net: no 'x'")
    ("'=1+1", '-0.5', -0.5, "--net: no 'x'")
    """
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def escaped(text: str) -> str:
    r"""Return a text with control characters as escapes, on as many lines as it had.

    Examples
    --------
    >>> print(escaped("no \x1b[2J"))
    no \x1b[2J
    """
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)
