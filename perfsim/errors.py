"""The errors that perfsim raises on purpose: each is one sentence for the person who asked.

The command line prints the sentence on standard error and leaves with ``exit_code``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

__all__ = [
    "MAX_QUOTED",
    "DataError",
    "PerfsimError",
    "RequestError",
    "nearest",
    "newer",
    "rule",
    "shown",
    "spelled",
    "spelling",
    "unknown",
    "unknown_option",
]

MAX_QUOTED = 60
"""Characters of a wrong value that a message repeats."""


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
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


class PerfsimError(Exception):
    """Anything that perfsim refuses; ``exit_code`` is what the command line returns."""

    exit_code = 1


class RequestError(PerfsimError):
    """The request is wrong: which field, what was given, why, and the nearest allowed value.

    Parameters
    ----------
    field : the field as Python and scenario files name it, such as ``gpus_per_node`` or
        ``options.density``; "" where it is no single field
    why : the sentence that follows the field's name; other fields stand in backticks, such as
        ``needs `overlap` ``
    value : what was given
    nearest : the allowed name that is most like it
    source : the file or job in which it was found

    Examples
    --------
    >>> error = RequestError("gpus_per_node", "3 does not divide `gpus`.", value=3)
    >>> print(error)
    gpus_per_node: 3 does not divide gpus.
    >>> with spelling(lambda field: "--" + field.replace("_", "-")):
    ...     print(error)
    --gpus-per-node: 3 does not divide --gpus.
    """

    exit_code = 2

    def __init__(
        self,
        field: str,
        why: str | None = None,
        *,
        value: object = None,
        nearest: str = "",
        source: str = "",
    ) -> None:
        if why is None:
            field, why = "", field
        self.field, self.why, self.value = field, why, value
        self.nearest, self.source = nearest, source
        super().__init__(field, why)

    def __str__(self) -> str:
        """Return the whole sentence, fields written as the reader knows them (see `spelling`)."""
        parts = [self.source, f"`{self.field}`" if self.field else "", self.why]
        return spelled(": ".join(part for part in parts if part))

    def within(self, source: str) -> RequestError:
        """Return the same error, found in a file or job of this name."""
        where = ": ".join(part for part in (source, self.source) if part)
        return RequestError(
            self.field, self.why, value=self.value, nearest=self.nearest, source=where
        )


_FIELD = re.compile(r"(?<!`)`([a-z]\w*(?:\.\w*)*)`(?!`)")
_SPELL: ContextVar[Callable[[str], str]] = ContextVar("_SPELL", default=str)


@contextmanager
def spelling(spell: Callable[[str], str]) -> Iterator[None]:
    """Write fields as ``spell`` has them meanwhile: the command line sets its flags."""
    token = _SPELL.set(spell)
    try:
        yield
    finally:
        _SPELL.reset(token)


def spelled(text: str) -> str:
    """Return a text for a person, with the fields that stand in backticks as the reader knows them.

    Examples
    --------
    >>> spelled("give `single_gpu` or `net`")
    'give single_gpu or net'
    """
    return _FIELD.sub(lambda found: _SPELL.get()(found[1]), text)


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
        self.why = message
        super().__init__(f"{', '.join(place)}: {message}" if place else message)


_MAX_LISTED = 40
"""So many names a message lists; of more it shows some, those that hold what was written first."""
_SOME_LISTED = 3


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
    of, _, version = str(found)[:MAX_QUOTED].rpartition("/")
    later = of == kind and version.isdecimal() and int(version) > int(number)
    return "; a newer perfsim may read it" if later else ""


def unknown(field: str, name: str, choices: Iterable[str], listing: str = "") -> RequestError:
    """Build the error for a name that does not exist: nearest match and what is allowed."""
    allowed = sorted(choices)
    where = f" (`perfsim list {listing}` shows them)" if listing else ""
    return RequestError(
        field,
        f"no {_short(name)}{_allowed(name, allowed)}{where}.",
        value=name,
        nearest=nearest(name[:MAX_QUOTED], allowed),
    )


def unknown_option(
    owner: str, name: str, choices: Iterable[str], *, field: str = "", source: str = ""
) -> RequestError:
    """Build the error for an option or field that ``owner`` does not have."""
    allowed = sorted(choices)
    return RequestError(
        field,
        f"{owner} has no {_short(name)}{_allowed(name, allowed)}.",
        value=name,
        nearest=nearest(name[:MAX_QUOTED], allowed),
        source=source,
    )


def _allowed(name: str, choices: Iterable[str]) -> str:
    allowed = sorted(choices)
    match = nearest(name[:MAX_QUOTED], allowed)
    hint = f"; did you mean {match!r}?" if match else "."
    if len(allowed) > _MAX_LISTED:
        near = [one for one in allowed if name and (name.lower() in one.lower())]
        named = ", ".join((near or allowed)[:_SOME_LISTED])
        return f"{hint} Allowed are {len(allowed)} names, such as {named}"
    return f"{hint} Allowed: {', '.join(allowed) or 'none'}"


def _short(name: str) -> str:
    return repr(name if len(name) <= MAX_QUOTED else name[:MAX_QUOTED] + "...")


_RULES = {
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
    text = _RULES.get(error["type"])
    if text is None:
        message: str = error["msg"]
        return message[0].lower() + message[1:]
    return text.format(**error.get("ctx", {}))
