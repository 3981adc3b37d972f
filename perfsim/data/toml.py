"""TOML data files, read and checked as pydantic models.

A model lists the keys of a table with their types (`TomlModel`); the types here know units and
limits. `read_toml` reads a file as a model. A file that breaks it is refused with one sentence:
the file, the line, the key, what was found and what is allowed.

>>> class Wire(TomlModel):
...     rate: BytesPerSecond
...     hop: HopSeconds = 0.0
>>> check_toml(Wire, {"rate": "10Gbit/s", "hop": "5us"}, Path("wire.toml"))
Wire(rate=1250000000.0, hop=5e-06)
>>> check_toml(Wire, {"rate": "10Gbit/s", "hops": "5us"}, Path("wire.toml"))
Traceback (most recent call last):
    ...
perfsim.errors.DataError: wire.toml: hops: unknown key; did you mean 'hop'? Allowed: rate, hop
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from perfsim.data.files import escaped, forbidden, is_there, read_text
from perfsim.errors import MAX_QUOTED, DataError, RequestError, nearest, newer, rule, shown
from perfsim.quantity import (
    COUNT_LIMIT,
    KINDS,
    LATENCY_LIMIT,
    MESSAGE_LIMIT,
    RATE_LIMIT,
    SPREAD_LIMIT,
    TIME_LIMIT,
    Kind,
    NumberLimit,
)
from perfsim.units import (
    parse_bytes,
    parse_fraction,
    parse_rate,
    parse_seconds,
)

__all__ = [
    "BytesPerSecond",
    "Check",
    "FileBeside",
    "HopSeconds",
    "KindOfNumber",
    "MessageBytes",
    "RelativeSpread",
    "Seconds",
    "Tables",
    "Text",
    "Texts",
    "TomlModel",
    "WholeNumber",
    "WrongValue",
    "YesOrNo",
    "check_of",
    "check_toml",
    "in_unit",
    "key_lines",
    "one_of",
    "parse_toml",
    "plain_number",
    "read_checked",
    "read_toml",
    "table_check",
    "tables_check",
    "toml_refusal",
    "whole_number",
]

TomlKey = str | int
"""A key of a table, or the index of an entry of a list, from 0."""

MAX_TOML_BYTES = 4 * 2**20
"""Bytes of a TOML file. No source: chosen, a hundred times the largest that ships.

tomllib takes up to a second for a megabyte."""

_MAX_PARTS = 32
"""Parts of a key: tomllib takes one of so many in the square of their number.

No source: chosen, eight times the longest that ships."""

_KEY_PART = r"(?:[\w-]+|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')[ \t]*\.[ \t]*"
_LONG_KEY = rf"(?<![\w.\"'-])(?:{_KEY_PART}){{{_MAX_PARTS}}}"
"""Compiled where a file has that many dots in a line."""

_MAX_SCANNED = 2**20
"""Characters of a file in which the line of a wrong key is looked for. No source: chosen."""


class WrongValue(ValueError):  # noqa: N818 - it says what is wrong, and is caught here
    """A value that a check refuses: why, and where below the checked value if not the whole.

    ``below`` are the keys, and the indices from 0, that lead to the wrong part.
    """

    def __init__(self, why: str, *below: TomlKey) -> None:
        self.why, self.below = why, below
        super().__init__(why)


# Types of values


def in_unit(parse: Callable[[object, str], float], limit: NumberLimit) -> PlainValidator:
    """Return the check of a number with a unit, such as "5us", within its limit.

    Parameters
    ----------
    parse : one of the parsers of `perfsim.units`
    limit : in SI units

    Examples
    --------
    >>> in_unit(parse_rate, RATE_LIMIT).func("10Gbit/s")
    1250000000.0
    """

    def check(value: object) -> float:
        if isinstance(value, str) and len(value) > MAX_QUOTED:
            raise WrongValue(f"found {shown(value)}, allowed is {limit.words}")
        try:
            number = parse(value, "")
        except RequestError as error:
            raise WrongValue(error.why) from None
        except (ArithmeticError, ValueError):  # a number or exponent of hundreds of digits
            number = math.inf
        if not limit.holds(number):
            raise WrongValue(f"found {shown(value)}, allowed is {limit.words}")
        return float(number)

    return PlainValidator(check)


def plain_number(limit: NumberLimit) -> PlainValidator:
    """Return the check of a number without a unit, within its limit.

    Examples
    --------
    >>> plain_number(NumberLimit(0.0, 1.0, "0 to 1")).func(1)
    1.0
    """

    def check(value: object) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not limit.holds(value):  # type: ignore[arg-type]
            raise WrongValue(f"found {shown(value)}, allowed is a number, {limit.words}")
        return float(value)  # type: ignore[arg-type]

    return PlainValidator(check)


def one_of(allowed: Sequence[str]) -> AfterValidator:
    """Return the check of a text that is one of several words; no other value is one."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            match = nearest(value[:MAX_QUOTED], allowed) if isinstance(value, str) else ""
            hint = f"; did you mean {match!r}? Allowed" if match else ", allowed"
            raise WrongValue(f"found {shown(value)}{hint}: {', '.join(allowed)}")
        return value

    return AfterValidator(check)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise WrongValue(f"found {shown(value)}, allowed is a text")
    return value


def whole_number(value: object) -> int:
    """Return a value that must be a whole number, 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or not COUNT_LIMIT.holds(value):
        raise WrongValue(f"found {shown(value)}, allowed is a whole number, {COUNT_LIMIT.words}")
    return value


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongValue(f"found {shown(value)}, allowed are true and false")
    return value


def _texts_of(value: object) -> tuple[str, ...]:
    several = value if isinstance(value, list) else [None]
    if not all(isinstance(one, str) and one.strip() for one in several):
        raise WrongValue(f"found {shown(value)}, allowed is a list of texts")
    return tuple(several)


def _file(info: ValidationInfo) -> Path:
    """Return the file that is read, as `check_toml` tells it to the checks."""
    assert info.context is not None
    path: Path = info.context["path"]
    return path


def _beside(value: str, info: ValidationInfo) -> str:
    """Return the path of a file that lies beside the one that names it."""
    name, folder = Path(value), _file(info).parent
    if name.is_absolute() or ".." in name.parts:
        raise WrongValue(f"found {shown(value)}, allowed is a file of the same folder")
    if not is_there(str(folder / name)):
        raise WrongValue(f"found {shown(value)}, no such file in {folder}")
    return str(folder / name)


Text = Annotated[str, PlainValidator(_text)]
"""A text that is not empty."""
Texts = Annotated[tuple[str, ...], PlainValidator(_texts_of)]
FileBeside = Annotated[str, PlainValidator(_text), AfterValidator(_beside)]
"""A file of the same folder; its path."""
KindOfNumber = Annotated[Kind, PlainValidator(_text), one_of(KINDS)]
WholeNumber = Annotated[int, PlainValidator(whole_number)]
"""1 or more."""
YesOrNo = Annotated[bool, PlainValidator(_yes_or_no)]
Seconds = Annotated[float, in_unit(parse_seconds, TIME_LIMIT)]
HopSeconds = Annotated[float, in_unit(parse_seconds, LATENCY_LIMIT)]
MessageBytes = Annotated[float, in_unit(parse_bytes, MESSAGE_LIMIT)]
BytesPerSecond = Annotated[float, in_unit(parse_rate, RATE_LIMIT)]
RelativeSpread = Annotated[float, in_unit(parse_fraction, SPREAD_LIMIT)]

_Row = TypeVar("_Row")
Tables = Annotated[list[_Row], Field(min_length=1)]
"""One or more tables ``[[key]]``."""


# Models


class TomlModel(BaseModel):
    """A table of a TOML file: its keys and their types; other keys are refused.

    A model of a whole file names its ``SCHEMA``; the file's key ``schema`` must then say the same.
    Models are built when they are first used (``defer_build``), as few commands need all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)
    SCHEMA: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, values: object) -> object:
        """Refuse what is no table, and keys that nobody reads: a misspelt one would do nothing."""
        if not isinstance(values, dict):
            raise _no_table(values)
        allowed = cls.keys()
        if not values.keys() <= allowed.keys():
            raise _unknown_key(next(key for key in values if key not in allowed), allowed)
        return values

    @classmethod
    @cache
    def keys(cls) -> dict[str, str]:
        """Return the keys of the table, each with what it means where the model says."""
        fields = cls.model_fields.items()
        return {field.alias or name: field.description or "" for name, field in fields}


_Model = TypeVar("_Model", bound=TomlModel)


def read_toml(path: Path, model: type[_Model]) -> _Model:
    """Read a TOML file as a model of its keys.

    Raises
    ------
    DataError
        If it cannot be read, is not TOML or breaks the model: file, line, key, what was found,
        what is allowed.
    """
    values, text = parse_toml(path)
    return check_toml(model, values, path, text=text)


def check_toml(
    model: type[_Model],
    values: Mapping[str, object],
    path: Path,
    at: tuple[TomlKey, ...] = (),
    text: str = "",
) -> _Model:
    """Check the values of a table, or of a whole file, as a model.

    Parameters
    ----------
    model, values : what is allowed, and what was found
    path : the file, for messages and for what lies beside it
    at : where in the file the table stands
    text : of the file, to tell the line of a wrong key

    Raises
    ------
    DataError
        If the values break the model.
    """
    if model.SCHEMA:
        values = dict(values)
        _check_schema(values.pop("schema", None), model.SCHEMA, path, text)
    try:
        return model.model_validate(values, context={"path": path})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = (*at, *first["loc"])
        wrong = first.get("ctx", {}).get("error")
        if isinstance(wrong, WrongValue):
            raise toml_refusal(wrong.why, (*at, *wrong.below), path, text) from None
        raise toml_refusal(_why(first, model), at, path, text) from None


def _check_schema(stated: object, schema: str, path: Path, text: str) -> None:
    """Refuse a file of another schema."""
    if stated != schema:
        found = "is missing" if stated is None else f"found {shown(stated)}"
        why = f"{found}, this perfsim reads {schema!r}{newer(stated, schema)}"
        raise toml_refusal(why, ("schema",), path, text)


def _why(error: Mapping[str, Any], model: type[TomlModel]) -> str:
    """Return in words what one of pydantic's errors says."""
    key = error["loc"][-1] if error["loc"] else ""
    if error["type"] == "missing":
        meaning = model.keys().get(str(key)) if len(error["loc"]) == 1 else ""
        return f"is missing: {meaning}" if meaning else "is missing"
    if error["type"] in ("list_type", "too_short"):
        return f"found {shown(error['input'])}, allowed are one or more tables [[{key}]]"
    return f"found {shown(error['input'])}: {rule(error)}"


# Checks without models, for the files that every start of perfsim reads (GPUs and networks)


Check = Callable[[Any], Any]
"""Returns a value of a file as perfsim uses it, or raises `WrongValue`."""


def table_check(keys: Mapping[str, Check], optional: Collection[str] = ()) -> Check:
    """Return the check of a table: which keys it may have, and the check of each.

    This does what `TomlModel` does, with the same checks of values and the same sentences, and
    returns a dict. `predict` reads GPU and network files at every start: defining and building
    their five and twelve pydantic models took 4 and 9 ms of CPU, these checks take 0.1 ms.

    Examples
    --------
    >>> table_check({"hop": check_of(HopSeconds)})({"hop": "5us"})
    {'hop': 5e-06}
    """

    def check(values: object) -> dict[str, Any]:
        if not isinstance(values, dict):
            raise _no_table(values)
        for key in values:
            if key not in keys:
                raise _unknown_key(key, keys)
        for key in keys:
            if key not in values and key not in optional:
                raise WrongValue("is missing", key)
        checked = {}
        for key, check_value in keys.items():
            if key in values:
                try:
                    checked[key] = check_value(values[key])
                except WrongValue as wrong:
                    raise WrongValue(wrong.why, key, *wrong.below) from None
        return checked

    return check


def tables_check(check: Check, key: str) -> Check:
    """Return the check of one or more tables ``[[key]]``; its value is a list."""

    def check_all(values: object) -> list[Any]:
        if not isinstance(values, list) or not values:
            raise WrongValue(f"found {shown(values)}, allowed are one or more tables [[{key}]]")
        checked = []
        for index, value in enumerate(values):
            try:
                checked.append(check(value))
            except WrongValue as wrong:
                raise WrongValue(wrong.why, index, *wrong.below) from None
        return checked

    return check_all


def check_of(kind: Any) -> Check:
    """Return the checks of a type that models use, such as `Text`, as one function."""
    checks = [validator.func for validator in kind.__metadata__]
    if len(checks) == 1:
        (only,) = checks
        return only  # type: ignore[no-any-return]

    def check(value: object) -> Any:
        for one in checks:
            value = one(value)
        return value

    return check


def read_checked(path: Path, schema: str, check: Check) -> tuple[dict[str, Any], str]:
    """Read a TOML file that says its ``schema`` and its own ``name``; return values and text.

    Raises
    ------
    DataError
        If it cannot be read or a check refuses it: file, line, key, what was found, what is
        allowed.
    """
    values, text = parse_toml(path)
    _check_schema(values.pop("schema", None), schema, path, text)
    try:
        table: dict[str, Any] = check(values)
        stem = path.name.removesuffix(".toml")
        if table["name"] != stem:
            raise WrongValue(f"found {shown(table['name'])}, the file's name says {stem!r}", "name")
    except WrongValue as wrong:
        raise toml_refusal(wrong.why, wrong.below, path, text) from None
    return table, text


def _no_table(value: object) -> WrongValue:
    return WrongValue(f"found {shown(value)}, allowed is a table {{key = value, ...}}")


def _unknown_key(key: str, allowed: Iterable[str]) -> WrongValue:
    match = nearest(key[:MAX_QUOTED], allowed)
    hint = f"; did you mean {match!r}?" if match else "."
    return WrongValue(f"unknown key{hint} Allowed: {', '.join(allowed)}", key)


def toml_refusal(why: str, at: Sequence[TomlKey], path: Path, text: str) -> DataError:
    """Return the error for one key: 'link[2].rate.value: found ...' with file and line."""
    key = ""
    for part in at:
        name = f"[{part + 1}]" if isinstance(part, int) else shown(part)[1:-1]
        key += name if isinstance(part, int) or not key else f".{name}"
    return DataError(f"{key}: {why}" if key else why, path=path, row=_line(text, tuple(at)))


_MAX_KEPT = 50_000
"""Characters of the longest text whose values are kept. No source: chosen, above all that ship."""

_MAX_TOLD = 200
"""Most characters of what the parser says that a message repeats whole."""


def _short(words: str) -> str:
    """Return what the parser says, a long text in it cut, with the place that it ends on."""
    if len(words) <= _MAX_TOLD:
        return words
    head, at, place = words.rpartition(" (at ")
    return f"{(head or words)[:MAX_QUOTED]}...{at[:1] and at}{place if at else ''}"


def parse_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Return the values of a TOML file, with or without a byte-order mark, and its text.

    Raises
    ------
    DataError
        If it cannot be read, is not TOML or holds control characters.
    """
    text = read_text(path, MAX_TOML_BYTES)
    if text.count(".") >= _MAX_PARTS:
        _check_keys(text, path)
    try:
        values = _parsed(text)
    except (ValueError, RecursionError) as error:  # also a number too long, tables too deep
        raise DataError(f"is not TOML: {_short(escaped(str(error)))}", path=path) from None
    # TOML itself refuses most control characters; what is left are escapes and other alphabets.
    if "\\" in text or not text.isascii():
        for at, words in _texts(values):
            if forbidden(words):
                why = f"found {shown(words)}, which holds a control character"
                raise toml_refusal(why, at, path, text)
    return values, text


def _parsed(text: str) -> dict[str, Any]:
    """Return the values of a text, a copy of them where it was parsed before; parsing is slow."""
    if len(text) > _MAX_KEPT:
        return tomllib.loads(text)
    try:
        return _copied(_loaded(text))
    except RecursionError:
        return tomllib.loads(text)


_loaded = lru_cache(maxsize=512)(tomllib.loads)
"""Each session reads the same files again, some 3 kB each."""


def _copied(table: dict[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) for key, value in table.items()}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return _copied(value)
    return [_copy(one) for one in value] if isinstance(value, list) else value


def _check_keys(text: str, path: Path) -> None:
    """Refuse a text with a key of more parts than tomllib reads in a moment."""
    for row, line in enumerate(text.split("\n"), 1):
        if line.count(".") >= _MAX_PARTS and re.search(_LONG_KEY, line):
            why = f"is not TOML that is read: a key of more than {_MAX_PARTS} parts"
            raise DataError(why, path=path, row=row)


def _texts(values: Mapping[str, object]) -> Iterator[tuple[tuple[TomlKey, ...], str]]:
    """Yield all keys and texts of a file, each with its place."""
    left: list[tuple[tuple[TomlKey, ...], object]] = [((), values)]
    while left:
        at, value = left.pop()
        if isinstance(value, dict):
            yield at, "".join(value)
            left += [((*at, key), inside) for key, inside in value.items()]
        elif isinstance(value, list):
            left += [((*at, index), inside) for index, inside in enumerate(value)]
        elif isinstance(value, str):
            yield at, value


# Lines: tomllib tells none, so the text of a refused file is scanned for its keys


_TOKEN = (
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}'  # texts of several lines
    r'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''  # texts
    r"|#[^\n]*|\n|[][{}=,.]|[^\s\[\]{}=,.\"'#]+"
)
"""Compiled where a file is refused, not at each start."""


def _line(text: str, at: tuple[TomlKey, ...]) -> int | None:
    """Return the line of a key, or of the nearest table around it; None where none is found."""
    if not text or len(text) > _MAX_SCANNED:
        return None
    try:
        lines = key_lines(text)
    except (IndexError, RecursionError):  # the end of a file cut short; tables in tables
        return None
    around = (at[:size] for size in range(len(at), 0, -1))
    return next((lines[key] for key in around if key in lines), None)


def key_lines(text: str) -> dict[tuple[TomlKey, ...], int]:
    r"""Return the line of every key and list entry of a text that is TOML.

    Examples
    --------
    >>> lines = key_lines('a = 1\n[b.c]\nd = [\n2,\n{e = "x"}]\n[[f]]\n[[f]]\ng = 2')
    >>> lines["a",], lines["b", "c", "d", 0], lines["b", "c", "d", 1, "e"], lines["f", 1, "g"]
    (1, 4, 5, 8)
    """
    return _KeyScanner(text).lines


class _KeyScanner:
    """Goes once through the tokens of a TOML text and notes the line of each key."""

    def __init__(self, text: str) -> None:
        self.lines: dict[tuple[TomlKey, ...], int] = {}
        self._tokens: list[tuple[str, int]] = []
        line = 1
        for match in re.finditer(_TOKEN, text, re.DOTALL):
            if not match[0].startswith("#"):
                self._tokens.append((match[0], line))
            line += match[0].count("\n")
        self._tokens.append(("\n", line))
        self._next = 0
        self._entries: dict[tuple[TomlKey, ...], int] = {}  # of each [[table]]
        table: tuple[TomlKey, ...] = ()
        while self._next < len(self._tokens):
            if self._here() == "\n":
                self._next += 1
            elif self._here() == "[":
                table = self._header()
            else:
                self._pair(table)

    def _here(self) -> str:
        return self._tokens[self._next][0]

    def _key(self, ends: str) -> list[str]:
        """Return the parts of a dotted key, up to the sign that ends it."""
        parts = []
        while self._here() != ends:
            part = self._here()
            if part != ".":
                parts.append(part[1:-1] if part[0] in "\"'" else part)
            self._next += 1
        self._next += 1
        return parts

    def _note(self, at: tuple[TomlKey, ...], line: int) -> None:
        self.lines.setdefault(at, line)

    def _header(self) -> tuple[TomlKey, ...]:
        """Return the table whose keys follow a line [table] or [[table]]."""
        line = self._tokens[self._next][1]
        self._next += 1
        several = self._here() == "["
        self._next += several
        at: tuple[TomlKey, ...] = ()
        parts = self._key("]")
        self._next += several
        for number, part in enumerate(parts, 1):
            at = (*at, part)
            self._note(at, line)
            if several and number == len(parts):
                self._entries[at] = self._entries.get(at, -1) + 1
            if at in self._entries:
                at = (*at, self._entries[at])
                self._note(at, line)
        return at

    def _pair(self, table: tuple[TomlKey, ...]) -> None:
        """Note ``key = value``."""
        line = self._tokens[self._next][1]
        at = table
        for part in self._key("="):
            at = (*at, part)
            self._note(at, line)
        self._value(at)

    def _value(self, at: tuple[TomlKey, ...]) -> None:
        """Pass over a value, and note the entries of a list and the keys of a table in it."""
        opened = self._here()
        self._next += 1
        if opened == "{":
            while self._here() != "}":
                if self._here() in (",", "\n"):
                    self._next += 1
                else:
                    self._pair(at)
            self._next += 1
        elif opened == "[":
            index = 0
            while self._here() != "]":
                if self._here() in (",", "\n"):
                    self._next += 1
                else:
                    self._note((*at, index), self._tokens[self._next][1])
                    self._value((*at, index))
                    index += 1
            self._next += 1
        else:
            while self._here() not in (",", "]", "}", "\n"):  # the parts of 1.5, of a date
                self._next += 1
