"""The errors that perfsim raises on purpose: each is one sentence for the person who asked.

The command line prints the sentence on standard error and leaves with ``exit_code``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "COUNT",
    "ELEMENTS",
    "LATENCY",
    "LAUNCH",
    "LONGEST",
    "MATRIX_RATE",
    "MEMORY",
    "MESSAGE",
    "POWER",
    "RATE",
    "REDUCTION",
    "SPREAD",
    "TIME",
    "DataError",
    "NumberLimit",
    "PerfsimError",
    "RequestError",
    "nearest",
    "newer",
    "rule",
    "shown",
    "unknown",
    "unknown_option",
]

LONGEST = 60
"""Characters of a wrong value that a message repeats."""


class NumberLimit(NamedTuple):
    """The lowest and highest value of a quantity, in SI units, and both in words.

    Examples
    --------
    >>> RATE.holds(1.25e9), RATE.holds(1e-300)
    (True, False)
    """

    least: float
    most: float
    words: str

    def holds(self, value: float) -> bool:
        """Say whether a value lies inside; what is no number does not."""
        return self.least <= value <= self.most


RATE = NumberLimit(1.0, 1e18, "1 B/s to 1e18 B/s")
MATRIX_RATE = NumberLimit(1e6, 1e21, "1e6 FLOP/s to 1e21 FLOP/s")
TIME = NumberLimit(1e-15, 1e9, "1e-15 s to 1e9 s")
LAUNCH = NumberLimit(1e-9, 1.0, "1 ns to 1 s")
LATENCY = NumberLimit(0.0, 10.0, "0 s to 10 s")
REDUCTION = NumberLimit(0.0, 1.0, "0 s/B to 1 s/B")
MEMORY = NumberLimit(1e6, 1e15, "1 MB to 1e15 B")
MESSAGE = NumberLimit(1.0, 1e18, "1 B to 1e18 B")
SPREAD = NumberLimit(0.0, 3.0, "0 % to 300 %")
POWER = NumberLimit(1.0, 1e5, "1 W to 100000 W")
ELEMENTS = NumberLimit(1.0, 1e15, "1 to 1e15")
COUNT = NumberLimit(1.0, 1e9, "1 to 1e9")


def shown(value: object) -> str:
    """Return a wrong value as a message repeats it: quoted, on one line, cut where it is long.

    Examples
    --------
    >>> shown("1 h"), len(shown("9" * 400))
    ("'1 h'", 63)
    """
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
    except RecursionError:
        return "tables in tables in tables"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


class PerfsimError(Exception):
    """Anything that perfsim refuses; ``exit_code`` is what the command line returns."""

    exit_code = 1


class RequestError(PerfsimError):
    """The request is wrong: a field, what was given, what is allowed."""

    exit_code = 2


class DataError(PerfsimError):
    """A file is missing or damaged: which file, which row and column, what was found."""

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        path: Path | str | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        place = [str(path)] if path is not None else []
        if row is not None:
            place.append(f"line {row}")
        if column is not None:
            place.append(f"column {column!r}")
        super().__init__(f"{', '.join(place)}: {message}" if place else message)


MOST_NAMED = 40
"""So many names a message lists; of more it shows some, those that hold what was written first."""
SOME_NAMED = 3


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return the choice most like ``name``, or '' when none is close.

    Examples
    --------
    >>> nearest("resnet5O", ["resnet50", "vgg16"])
    'resnet50'
    >>> nearest("zzz", ["resnet50"])
    ''
    """
    import difflib

    plain = {choice.lower().replace("_", "-"): choice for choice in choices}
    found = difflib.get_close_matches(name.lower().replace("_", "-"), plain, n=1, cutoff=0.5)
    return plain[found[0]] if found else ""


def newer(found: object, schema: str) -> str:
    """Return what a message adds where a file is of a later version than ``schema``, else ''.

    Examples
    --------
    >>> newer("perfsim/profile/2", "perfsim/profile/1"), newer("profile", "perfsim/profile/1")
    ('; a newer perfsim may read it', '')
    """
    kind, _, number = schema.rpartition("/")
    of, _, version = str(found)[:LONGEST].rpartition("/")
    later = of == kind and version.isdecimal() and int(version) > int(number)
    return "; a newer perfsim may read it" if later else ""


def unknown(field: str, name: str, choices: Iterable[str], listing: str = "") -> RequestError:
    """Build the error for a name that does not exist: nearest match and what is allowed."""
    where = f" (`perfsim list {listing}` shows them)" if listing else ""
    return RequestError(f"{field}: no {_short(name)}{_allowed(name, choices)}{where}.")


def unknown_option(where: str, owner: str, name: str, choices: Iterable[str]) -> RequestError:
    """Build the error for an option or field that ``owner`` does not have."""
    return RequestError(f"{where}{owner} has no {_short(name)}{_allowed(name, choices)}.")


def _allowed(name: str, choices: Iterable[str]) -> str:
    allowed = sorted(choices)
    match = nearest(name[:LONGEST], allowed)
    hint = f"; did you mean {match!r}?" if match else "."
    if len(allowed) > MOST_NAMED:
        near = [one for one in allowed if name and (name.lower() in one.lower())]
        named = ", ".join((near or allowed)[:SOME_NAMED])
        return f"{hint} Allowed are {len(allowed)} names, such as {named}"
    return f"{hint} Allowed: {', '.join(allowed) or 'none'}"


def _short(name: str) -> str:
    return repr(name if len(name) <= LONGEST else name[:LONGEST] + "...")


RULES = {
    "int_parsing": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "int_type": "a whole number is needed",
    "float_parsing": "a number is needed",
    "float_type": "a number is needed",
    "finite_number": "a finite number is needed",
    "bool_parsing": "true or false is needed",
    "bool_type": "true or false is needed",
    "string_type": "a text is needed",
    "dict_type": "a table of names and values is needed",
    "tuple_type": "a list is needed",
    "string_too_short": "it must not be empty",
    "greater_than_equal": "at least {ge} is needed",
    "greater_than": "more than {gt} is needed",
    "less_than_equal": "at most {le} is allowed",
    "less_than": "less than {lt} is needed",
    "literal_error": "allowed are {expected}",
}


def rule(error: Mapping[str, Any]) -> str:
    """Return in words what one of pydantic's errors asks for.

    Examples
    --------
    >>> rule({"type": "greater_than_equal", "ctx": {"ge": 1}, "msg": "..."})
    'at least 1 is needed'
    """
    text = RULES.get(error["type"])
    if text is None:
        message: str = error["msg"]
        return message[0].lower() + message[1:]
    return text.format(**error.get("ctx", {}))
