"""The errors that perfsim raises on purpose: each is one sentence for the person who asked.

The command line prints the sentence on standard error and leaves with ``exit_code``. A message
names fields as Python does; only the command line writes them as flags (see `spelling`).
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = [
    "MAX_QUOTED",
    "DataError",
    "MissingFileError",
    "PerfsimError",
    "RequestError",
    "StoppedError",
    "UnknownNameError",
    "any_of",
    "nearest",
    "newer",
    "own_name",
    "plain_name",
    "rule",
    "shown",
    "spelled",
    "spelling",
    "unknown",
    "unknown_in_file",
    "unknown_option",
    "unspelled",
]

MAX_QUOTED = 60
"""Characters of a wrong value that a message repeats."""

_MAX_LISTED = 40
"""So many allowed names a message lists; of more it shows some where it can say what shows all."""

_SOME_LISTED = 3


def shown(value: object) -> str:
    """Return a wrong value as a message repeats it: quoted, on one line, cut if long.

    Examples
    --------
    >>> shown("1 h"), shown(True), len(shown("9" * 400))
    ("'1 h'", 'true', 63)
    """
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
    except RecursionError:
        return "tables in tables in tables"
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def any_of(choices: Sequence[str]) -> str:
    """Return one or more choices as a message offers them.

    Examples
    --------
    >>> any_of(["tp"]), any_of(["tp", "pp"]), any_of(["tp", "pp", "cp"])
    ('tp', 'tp or pp', 'tp, pp or cp')
    """
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


class PerfsimError(Exception):
    """An error that perfsim raises on purpose; ``exit_code`` is what the command line returns."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy is made, whatever the kind of error is made of."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class StoppedError(PerfsimError):
    """The user stopped a run; the sentence says what is kept of it."""

    exit_code = 130


class RequestError(PerfsimError):
    """The request is wrong: which field, what was given, why, and the nearest allowed value.

    Parameters
    ----------
    field : the field as Python and scenario files name it, such as ``gpus_per_node`` or
        ``options.density``; "" where it is no single field
    why : the sentence that follows the field's name, after a colon unless it begins with "is";
        other fields stand in backticks, such as ``needs `overlap` ``
    value : what was given
    nearest : the allowed name that is most like it, or ""
    source : the file or job that holds the field

    Examples
    --------
    >>> error = RequestError("gpus_per_node", "3 does not divide `gpus`.", value=3)
    >>> print(error)
    gpus_per_node: 3 does not divide gpus.
    >>> print(RequestError("gpus", "is needed."))
    gpus is needed.
    >>> with spelling(lambda field: "--" + field.replace("_", "-")):
    ...     print(error)
    --gpus-per-node: 3 does not divide --gpus.
    """

    exit_code = 2

    def __init__(
        self,
        field: str,
        why: str,
        *,
        value: object = None,
        nearest: str = "",
        source: str = "",
    ) -> None:
        self.field, self.why, self.value = field, why, value
        self.nearest, self.source = nearest, source
        self.in_file = False
        super().__init__(field, why)

    def __str__(self) -> str:
        """Return the whole sentence, with fields as the reader knows them (see `spelling`)."""
        spell = str if self.in_file else _SPELL.get()
        sentence = spelled(self.why, spell)
        if self.field:
            joint = " " if sentence.startswith("is ") else ": "
            sentence = f"{spell(self.field)}{joint}{sentence}"
        return f"{spelled(self.source)}: {sentence}" if self.source else sentence

    def within(self, source: str) -> RequestError:
        """Return the same error with the name of the file or job that holds the field."""
        where = ": ".join(part for part in (source, self.source) if part)
        return self._with(source=where)

    def of_file(self, name: str) -> RequestError:
        """Return the same error about a file whose keys are all the fields of the sentence.

        Examples
        --------
        >>> with spelling(lambda field: f"--{field}"):
        ...     print(RequestError("gpus", "is needed.").of_file("a.toml").within("`beside`"))
        --beside: a.toml: gpus is needed.
        """
        return self.within(name)._with(in_file=True)

    def or_else(self, ways: str) -> RequestError:
        """Return the same error with what else may be given.

        Examples
        --------
        >>> print(RequestError("gpu", "no 'x'.").or_else("describe yours."))
        gpu: no 'x'; or describe yours.
        """
        return self._with(why=f"{self.why.removesuffix('.')}; or {ways}")

    def _with(self, **changed: str | bool) -> RequestError:
        """Return an error of the same kind with all that this one knows, some of it changed."""
        made = type(self).__new__(type(self), *self.args)
        made.__dict__.update(self.__dict__, **changed)
        return made


class MissingFileError(RequestError):
    """A field names a file or a folder that is not there.

    Examples
    --------
    >>> error = MissingFileError("net", "there is no file 'none.toml'.")
    >>> print(error, error.within("a.toml").exit_code)
    net: there is no file 'none.toml'. 3
    """

    exit_code = 3


class UnknownNameError(RequestError):
    """A field names what does not exist, whatever stands in the other fields."""


_FIELD = re.compile(r"(?<!`)`([a-z]\w*(?:\.\w*)*)`(?!`)( false\b)?")
_SPELL: ContextVar[Callable[[str], str]] = ContextVar("_SPELL", default=str)


@contextmanager
def spelling(spell: Callable[[str], str]) -> Iterator[None]:
    """Write fields in messages as ``spell`` returns them, within the block.

    Examples
    --------
    >>> with spelling(lambda field: f"--{field}"):
    ...     spelled("give `net`")
    'give --net'
    """
    token = _SPELL.set(spell)
    try:
        yield
    finally:
        _SPELL.reset(token)


def spelled(text: str, spell: Callable[[str], str] | None = None) -> str:
    """Write the fields that stand in backticks in a text as ``spell`` does, or as `spelling` says.

    Examples
    --------
    >>> spelled("give `single_gpu` or `net`")
    'give single_gpu or net'
    >>> spelled("set `overlap` false", "--{}".format)
    'set --no-overlap'
    """
    write = spell or _SPELL.get()

    def written(match: re.Match[str]) -> str:
        name, false = write(match[1]), match[2] or ""
        if false and name == f"--{match[1].replace('_', '-')}":
            return name.replace("--", "--no-", 1)  # a command line has another flag for it
        return name + false

    return _FIELD.sub(written, text)


def unspelled(error: PerfsimError) -> str:
    """Return a refusal with its fields in backticks, for `spelled` to write once a reader is known.

    Examples
    --------
    >>> print(unspelled(RequestError("gpus_per_node", "3 does not divide `gpus`.", value=3)))
    `gpus_per_node`: 3 does not divide `gpus`.
    """
    with spelling("`{}`".format):
        return str(error)


class DataError(PerfsimError):
    """A file is missing or damaged: which file, which row and column, what is wrong.

    Parameters
    ----------
    message : what is wrong
    path, row, column : where; the row counts from 1

    Examples
    --------
    >>> print(DataError("is not a number", path="a.csv", row=7, column="ready_ms"))
    a.csv, line 7, column 'ready_ms': is not a number
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        path: Path | str | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        where = [str(path)] if path is not None else []
        if row is not None:
            where.append(f"line {row}")
        if column is not None:
            where.append(f"column {column!r}")
        self.why = message
        self.path = "" if path is None else str(path)
        super().__init__(f"{', '.join(where)}: {message}" if where else message)


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return the choice most like ``name``, or "" when none is close.

    Letter case, ``-`` and ``_`` do not matter. A choice that begins with the name, or with which
    much of the name begins, goes before one that is only spelled like it. Of a path, as in names on
    Hugging Face, its last part counts. Of a name of up to four letters two in three must agree: two
    letters alone are like many names. Of models spelled alike one of the same size is taken.

    Examples
    --------
    >>> nearest("resnet5O", ["resnet50", "vgg16"])
    'resnet50'
    >>> nearest("gpt-3", ["gpt2", "mpt-3b", "gpt3-175b"])
    'gpt3-175b'
    >>> nearest("meta-llama/Llama-3.1-8B", ["llama2-7b", "llama3-8b", "llama3.2-1b"])
    'llama3-8b'
    >>> nearest("google-bert/bert-base-uncased", ["bert-base", "bert-base-squad"])
    'bert-base'
    >>> nearest("zzz", ["resnet50"]), nearest("foo", ["loco"]), nearest("density", ["gradients"])
    ('', '', '')
    >>> nearest("a10", ["a100", "a10g"])
    'a10g'
    """
    import difflib

    given = plain_name(name.rstrip("/").rpartition("/")[2])
    plain = {plain_name(choice): choice for choice in choices}
    begins = [choice for choice in plain if choice.startswith(given)]
    if given in plain or (len(given) >= _TELLING and begins):
        # Another letter says less than another digit: a10 is of a10g, not of a100.
        at = len(given)
        return plain[min(begins, key=lambda choice: (len(choice), choice[at : at + 1].isdigit()))]
    parts = [choice for choice in plain if given.startswith(choice)]
    longest = max(parts, key=len, default="")
    if len(longest) >= max(_TELLING, len(given) / 2):
        return plain[longest]
    cutoff = 0.65 if len(name) <= 4 else 0.6
    close = difflib.get_close_matches(given, plain, n=_MAX_CLOSE, cutoff=cutoff)
    size = _size(name)
    alike = [one for one in close if size and _size(plain[one]) == size]
    return plain[(alike or close)[0]] if close else ""


def _size(name: str) -> str:
    """Return the parameters that a model's name states, such as 8b; "" where it states none."""
    found = _SIZE.search(name.lower())
    return found[0] if found else ""


_SIZE = re.compile(r"(?<![\d.])\d+(\.\d+)?[bm](?![a-z])")
"""A number of parameters in a name."""
_MAX_CLOSE = 5
"""Choices spelled like a name of which the one of the same size is taken. No source: chosen."""


def own_name(name: str, names: Collection[str]) -> str:
    """Return the one of some names that is written so, in any case, with or without dashes.

    A text that is none of them, or several, is returned as it is.

    Examples
    --------
    >>> own_name("ResNet-50", ["resnet50", "vgg16"]), own_name("resnet5O", ["resnet50"])
    ('resnet50', 'resnet5O')
    """
    if name in names:
        return name
    plain = plain_name(name)
    alike = [known for known in names if plain_name(known) == plain]
    return alike[0] if len(alike) == 1 else name


_TELLING = 3
"""Letters from which on the beginning of a name tells it from others. No source: chosen."""


@lru_cache(maxsize=4096)  # a name is held against the same lists again and again
def plain_name(name: str) -> str:
    """Return a name as it is compared with others; a point between digits stays."""
    return re.sub(r"[-_\s]|(?<!\d)\.|\.(?!\d)", "", name.lower())


def unknown(
    field: str,
    name: str,
    choices: Iterable[str],
    listing: str = "",
    *,
    compared: str = "",
    shown_by: str = "",
) -> RequestError:
    """Build the error for a name that does not exist, with the nearest match and what is allowed.

    Parameters
    ----------
    listing : the kind of ``perfsim list`` that shows all names, or ""
    compared : what of the name is compared with the choices, "" for all of it
    shown_by : what else shows all names, or "": then the message lists them, however many
    """
    where = f"`perfsim list {listing}`" if listing else shown_by
    why, match = _refusal(f"no {_quoted(name)}", compared or name, choices, where)
    return UnknownNameError(field, why, value=name, nearest=match)


def unknown_in_file(
    path: Path, field: str, name: str, choices: Iterable[str], listing: str = ""
) -> DataError:
    """Build the error for a name in a file that does not exist (see `unknown`)."""
    error = unknown(field, name, choices, listing)
    return DataError(f"{error.field}: {error.why}", path=path)


def unknown_option(
    owner: str,
    name: str,
    choices: Iterable[str],
    *,
    field: str = "",
    source: str = "",
    shown_by: str = "",
) -> RequestError:
    """Build the error for an option or field that ``owner`` does not have (see `unknown`)."""
    why, match = _refusal(f"{owner} has no {_quoted(name)}", name, choices, shown_by)
    return RequestError(field, why, value=name, nearest=match, source=source)


def _refusal(begin: str, name: str, choices: Iterable[str], where: str) -> tuple[str, str]:
    """Return a refusal with the allowed names and what shows them, and the nearest match."""
    allowed = sorted(choices)
    match = nearest(name[:MAX_QUOTED], allowed)
    hint = f"; did you mean {match!r}?" if match else "."
    listed = f"{hint} Allowed: {', '.join(allowed) or 'none'}"
    if where and len(allowed) > _MAX_LISTED:
        alike = [one for one in allowed if plain_name(name) and plain_name(name) in plain_name(one)]
        alike.sort(key=lambda one: not plain_name(one).startswith(plain_name(name)))
        some = ", ".join((alike or allowed)[:_SOME_LISTED])
        listed = f"{hint} Allowed are {len(allowed)} names, such as {some}"
    return f"{begin}{listed}{f' ({where} shows them)' if where else ''}.", match


def _quoted(name: str) -> str:
    return repr(name if len(name) <= MAX_QUOTED else name[:MAX_QUOTED] + "...")


def newer(schema: object, known: str) -> str:
    """Return what a message adds where a file's schema is a later version of ``known``, else "".

    Examples
    --------
    >>> newer("perfsim/profile/2", "perfsim/profile/1"), newer("profile", "perfsim/profile/1")
    ('; a newer perfsim may read it', '')
    """
    if not isinstance(schema, str):
        return ""
    kind, _, number = known.rpartition("/")
    own_kind, _, version = schema[:MAX_QUOTED].rpartition("/")
    later = own_kind == kind and version.isdecimal() and int(version) > int(number)
    return "; a newer perfsim may read it" if later else ""


_RULES = {
    "int_parsing": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "int_type": "it must be a whole number",
    "float_parsing": "it must be a number",
    "float_type": "it must be a number",
    "finite_number": "it must be a finite number",
    "bool_parsing": "it must be true or false",
    "bool_type": "it must be true or false",
    "string_type": "it must be a text",
    "dict_type": "it must be a table of names and values",
    "tuple_type": "it must be a list",
    "string_too_short": "it must not be empty",
    "greater_than_equal": "it must be {ge} or more",
    "greater_than": "it must be above {gt}",
    "less_than_equal": "it must be {le} or less",
    "less_than": "it must be below {lt}",
    "literal_error": "it must be {expected}",
}


def rule(error: Mapping[str, Any]) -> str:
    """Return in words what is needed, for one of pydantic's errors.

    Examples
    --------
    >>> rule({"type": "greater_than_equal", "ctx": {"ge": 1}, "msg": "..."})
    'it must be 1 or more'
    """
    text = _RULES.get(error["type"])
    if text is None:
        message: str = error["msg"]
        return message[0].lower() + message[1:]
    return text.format(**error.get("ctx", {}))
