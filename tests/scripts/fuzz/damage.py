"""Damage a file: its bytes, its tokens, its structure; the same damage for the same seed."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import tomli_w

__all__ = ["damaged"]

NUMBER = re.compile(rb"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
WORD = re.compile(rb"[A-Za-z_][\w/-]*")
UNIT = re.compile(rb"(?<=\d)\s?(?:[kMGT]i?(?:B|bit)(?:/s)?|[num]?s(?:/B)?|B(?:/s)?|%)")
NUMBERS = (
    *(b"nan NaN inf -inf Infinity 1e400 -1e400 1e-400 -0 -0.0 0 -1 1 2 0.5 1e308 5e-324".split()),
    *(b"1e15 1e18 1e19 4294967296 9223372036854775808 1_000 0x10 1e 1.5.2 ++1 .5 5. 1e9".split()),
    *(b"true null None 1,5 1;5 [1] {} '1' 1e999999999 -7 0.1 3 1e-9 100 1000000".split()),
    b"9" * 400, b"9" * 5000, b"1e-" + b"9" * 30, b"", b" ", "\u0663".encode(), "\u00b2".encode(),
)  # fmt: skip
UNITS = (
    *(b"s ms us ns B kB KiB MiB GB TB GiB/s Gbit/s kbit/s B/s s/B ns/B % h min samples/s".split()),
    b"", b" s", b"Gb/s", b"GBps", b"gb", "\u00b5s".encode(), b"s\x00",
)  # fmt: skip
TEXTS = (
    b"\x00", b"\x1b[31m", b"\xef\xbb\xbf", b"\xff\xfe", b"\x80", b"\xc3", b"\r", b"\n", b"\r\n",
    b"\t", b'"', b"'", b'""', b",", b";", b"#", b"=", b"[", b"]", b"{", b"}", b"\\", b"\\u001b",
    b"\\ud800", b"/", b"../", b"x", b"%s", b"{0}", b"*", b"=1+1", b"<script>", "\u202e".encode(),
    "\u2028".encode(), "\x85".encode(), "\U0001f4a3".encode(), "\u00e9".encode(), b"__class__",
    b"\xed\xa0\x80",
)  # fmt: skip
"""What is inserted somewhere in a file."""
CODES = ("utf-16", "utf-16-le", "utf-32", "latin-1", "cp500", "utf-8-sig")


def damaged(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Return ``seed`` with one to four kinds of damage; ``others`` lend their parts.

    Examples
    --------
    >>> damaged(b"a = 1", [], Random(5)) == damaged(b"a = 1", [], Random(5))
    True
    """
    data = seed
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        kind = random.choices(KINDS, WEIGHTS)[0]
        data = kind(data, others, random)
    return data


def _place(data: bytes, random: Random) -> int:
    return random.randrange(len(data) + 1)


def _flip(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8)) if made else 0):
        made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    return bytes(made)


def _delete(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + data[at + random.choice((1, 1, 2, 5, 40, 400)) :]


def _double(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at, length = _place(data, random), random.choice((1, 2, 5, 40, 400))
    return data[: at + length] + data[at:]


def _splice(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others) if others else data
    at = _place(other, random)
    return data[: _place(data, random)] + other[at : at + random.choice((5, 40, 400, 10**6))]


def _truncate(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return data[: _place(data, random)]


def _put(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + random.choice(TEXTS) + data[at:]


def _exchange(
    pattern: re.Pattern[bytes], data: bytes, new: Callable[[bytes], bytes], random: Random
) -> bytes:
    matches = list(pattern.finditer(data))
    if not matches:
        return data
    match = random.choice(matches)
    return data[: match.start()] + new(match[0]) + data[match.end() :]


def _number(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return _exchange(NUMBER, data, lambda _: random.choice(NUMBERS), random)


def _scale(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Change a number to another: larger, smaller, or of the other sign."""
    factor = random.choice((b"0", b"e3", b"e-3", b"e12", b".5"))
    return _exchange(
        NUMBER, data, lambda old: b"-" + old if random.random() < 0.1 else old + factor, random
    )


def _unit(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return _exchange(UNIT, data, lambda _: random.choice(UNITS), random)


def _word(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Replace a word by another of this file, or of another file."""
    source = random.choice(others) if others and random.random() < 0.3 else data
    words = WORD.findall(source) or [b"x"]
    return _exchange(WORD, data, lambda _: random.choice(words), random)


def _code(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return data.decode("utf-8", "replace").encode(random.choice(CODES), "replace")


def _ends(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    return data.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b"")))


def _long(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = _place(data, random)
    part = random.choice((b"x", b"9", b" ", b"[", b",", b"a.", b'"', b"\x1b[0m", b'{"a":', b"<a>"))
    count = random.choice((300, 1000, 5000, 200_000 if random.random() < 0.02 else 2000))
    return data[:at] + part * count + data[at:]


def _lines(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Delete, double or move a line, or take one from another file."""
    lines = data.split(b"\n")
    at, to = random.randrange(len(lines)), random.randrange(len(lines) + 1)
    what = random.randrange(4)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines.insert(to, lines[at])
    elif what == 2:
        lines.insert(to, lines.pop(at))
    else:
        lines.insert(to, random.choice((random.choice(others) if others else data).split(b"\n")))
    return b"\n".join(lines)


def _columns(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Delete, double or move a column, in all lines or from one line on."""
    what, at, to = random.randrange(3), random.randrange(12), random.randrange(12)
    lines = data.split(b"\n")
    first = 0 if random.random() < 0.7 else random.randrange(len(lines))
    separator = b"," if data.count(b",") > len(lines) else None
    for row in range(first, len(lines)):
        cells = lines[row].split(separator)
        if len(cells) <= at or lines[row].startswith(b"# "):
            continue
        if what == 0:
            del cells[at]
        elif what == 1:
            cells.insert(min(to, len(cells)), cells[at])
        else:
            cells.insert(min(to, len(cells) - 1), cells.pop(at))
        lines[row] = (separator or b"  ").join(cells)
    return b"\n".join(lines)


def _blocks(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Delete, double or move a table of TOML or an object of JSON."""
    marks = (b"\n[", b"}, {", b"},\n", b'", "')
    mark = next((mark for mark in marks if mark in data), b"\n\n")
    blocks = data.split(mark)
    at, to = random.randrange(len(blocks)), random.randrange(len(blocks) + 1)
    what = random.randrange(3)
    if what == 0:
        del blocks[at]
    elif what == 1:
        blocks.insert(to, blocks[at])
    else:
        blocks.insert(to, blocks.pop(at))
    return mark.join(blocks)


WRONG: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 0.5, 1e308, -1e308, 2**63, 10**400, math.nan, math.inf, "", "x"),
    *(" ", "nan", "\x00", "\x1b[2J", "\u202eevil", "\ud800", "\u2028", "a" * 5000, "../../x"),
    *("/dev/zero", [], {}, [[]], [None], {"": {}}, {"a": {"b": {"c": 1}}}, "\U0001f4a3\u0301" * 40),
)  # fmt: skip
"""Values of another type, out of range, or that no text may hold."""


def _structure(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Give a value, a cell or a key of JSON, TOML or CSV a wrong one; or nest it deep."""
    wrong = random.choice(WRONG)
    if random.random() < 0.1:
        for _ in range(random.choice((3, 30, 150))):
            wrong = [wrong] if random.random() < 0.5 else {"a": wrong}
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    for text, write in ((data, lambda new: new), (lines[at], partial(_with_line, lines, at))):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict | list) and values:
            return write(json.dumps(_with_wrong(values, wrong, random)).encode())
    try:
        values = tomllib.loads(data.decode())
        if values and "\n[" in data.decode():
            return tomli_w.dumps(_with_wrong(values, wrong, random)).encode(
                "utf-8", "surrogatepass"
            )
    except (ValueError, TypeError, RecursionError):
        pass
    cells = lines[at].split(b",")
    cells[random.randrange(len(cells))] = str(wrong).encode("utf-8", "surrogatepass")
    return _with_line(lines, at, b",".join(cells))


def _with_line(lines: list[bytes], at: int, line: bytes) -> bytes:
    return b"\n".join([*lines[:at], line, *lines[at + 1 :]])


def _with_wrong(values: Any, wrong: Any, random: Random) -> Any:
    """Put a wrong value somewhere into a tree of values."""
    node, key = values, None
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = random.choice(list(keys))
        inside = node[key]
        if not isinstance(inside, dict | list) or not inside or random.random() < 0.2:
            break
        node = inside
    if isinstance(node, dict) and random.random() < 0.15:
        node[str(wrong)[:200]] = node.pop(key)
    else:
        node[key] = wrong
    return values


WEIGHED = {
    _flip: 2, _delete: 3, _double: 2, _splice: 1, _truncate: 1, _put: 4,
    _number: 10, _scale: 8, _unit: 5, _word: 5, _code: 0.3, _ends: 0.5, _long: 0.7,
    _lines: 5, _columns: 4, _blocks: 4, _structure: 8,
}  # fmt: skip
KINDS, WEIGHTS = tuple(WEIGHED), tuple(WEIGHED.values())
