"""Values of one field of a sweep: lists, and ranges that double, step or are spread evenly.

``8..64`` doubles (8, 16, 32, 64); ``8..64:8`` adds 8; ``8..64:lin5`` and ``8..64:log5`` are five
values from end to end, evenly apart or by equal factors. Ends may carry units, which the values
keep: those of the first end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

from perfsim.errors import RequestError
from perfsim.limits import LONGEST, Limit, shown
from perfsim.units import BYTES, RATES, SAMPLES_PER_S, SECONDS

__all__ = ["MOST_VALUES", "expand", "values_of"]

MOST_VALUES = 1_000_000
"""So many values one field may take."""

MOST_SPREAD = 100_000
"""So many values may be spread between two ends: powers of decimals take their time."""

LINKS = ("net", "intra_net")
LISTS = ("placement",)
UNITS = {
    "net": "1Gbit/s..100Gbit/s",
    "intra_net": "4GB/s..32GB/s",
    "bucket": "1MiB..32MiB",
    "single_gpu": "100ms..400ms",
    "single_gpu_kernels": "1ms..8ms",
}
"""Fields whose numbers mean nothing without a unit, and a range as it should be."""

DIGITS = 12
"""Significant digits of a value between the ends of a range."""

ENDS = Limit(1e-30, 1e30, "1e-30 to 1e30")
"""Of the numbers at the ends of a range: beyond them nothing can be asked for."""

WORDS = "A..B doubles, A..B:S steps by S, A..B:linN and A..B:logN are N values"

_NUMBER = re.compile(
    r"\s*+([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)\s*+([^\d\s.]\S*+)?\s*+"
)
_UNITS = (SECONDS, BYTES, RATES, SAMPLES_PER_S, {"%": 1.0}, {"": 1.0})


def values_of(field: str, text: str, *, whole: bool | None = None) -> list[str]:
    """Return the values that ``text`` lists for a field, each as a user would write it.

    Parts are separated by commas, or by semicolons where a value has commas itself (placement).
    In a network, a latency belongs to the rate before it.

    Parameters
    ----------
    whole : the field takes whole numbers; None for where both ends of a range tell

    Raises
    ------
    RequestError
        If there is no value, or a range is empty or cannot be read.

    Examples
    --------
    >>> values_of("gpus", "8..32,48")
    ['8', '16', '32', '48']
    >>> values_of("net", "1gbe,1Gbit/s..100Gbit/s:log3,50us")
    ['1gbe', '1Gbit/s,50us', '10Gbit/s,50us', '100Gbit/s,50us']
    >>> values_of("placement", "3,5;4,4")
    ['3,5', '4,4']
    """
    apart = ";" if ";" in text or field in LISTS else ","
    parts = [part.strip() for part in text.split(apart)]
    if not all(parts):
        raise RequestError(f"--vary {field}: {shown(text)} has an empty value.")
    if field in LINKS:
        parts = _links(parts)
    found: list[str] = []
    for part in parts:
        if field in LISTS:
            found.append(part)
        elif field in LINKS and "," in part:
            rate, latency = part.split(",", 1)
            latencies = expand(field, latency.strip())
            found += [
                f"{one},{other}" for one in expand(field, rate.strip()) for other in latencies
            ]
        else:
            found += expand(field, part, whole=whole)
        if len(found) > MOST_VALUES:
            raise RequestError(f"--vary {field}: more than {MOST_VALUES:,} values.")
    return list(dict.fromkeys(found))


def _links(parts: Sequence[str]) -> list[str]:
    """Return parts with each latency joined to the rate before it."""
    found: list[str] = []
    for part in parts:
        match = _NUMBER.fullmatch(part.partition("..")[0])
        if found and match and match[2] in SECONDS:
            found[-1] = f"{found[-1]},{part}"
        else:
            found.append(part)
    return found


def expand(field: str, text: str, *, whole: bool | None = None) -> list[str]:
    """Return the values of a range, or the text itself where it is none.

    Raises
    ------
    RequestError
        If the range is empty, or its ends or step cannot be read.

    Examples
    --------
    >>> expand("bucket", "1MiB..8MiB")
    ['1MiB', '2MiB', '4MiB', '8MiB']
    >>> expand("gpus", "8..24:8"), expand("gpus", "8..64:log3", whole=True)
    (['8', '16', '24'], ['8', '23', '64'])
    >>> expand("options.density", "0.001..0.1:log3")
    ['0.001', '0.01', '0.1']
    """
    if ".." not in text or (field in LINKS and not _NUMBER.fullmatch(text.partition("..")[0])):
        return [text]
    ends, _, step = text.partition(":")
    first, unit = _end(field, text, ends.partition("..")[0])
    last, other = _end(field, text, ends.partition("..")[2])
    if field in UNITS and not unit:
        raise RequestError(
            f"--vary {field}: {shown(text)} has no unit where it begins; write such as"
            f" {UNITS[field]}."
        )
    last *= _ratio(field, text, other or unit, unit)
    if last < first:
        raise RequestError(
            f"--vary {field}: {shown(text)} is empty: it ends below where it begins."
        )
    if whole is None:
        whole = not unit and first == int(first) and last == int(last)
    numbers = _between(field, text, first, last, step.strip(), unit)
    if whole and step.strip().startswith(("lin", "log")):
        numbers = [Decimal(round(number)) for number in numbers]
    return list(dict.fromkeys(f"{_plain(number)}{unit}" for number in numbers))


def _between(
    field: str, text: str, first: Decimal, last: Decimal, step: str, unit: str
) -> list[Decimal]:
    if not step:
        if first <= 0:
            raise RequestError(
                f"--vary {field}: {shown(text)} doubles from what is not above zero."
            )
        return _until(field, first, last, lambda number: number * 2)
    if step.startswith(("lin", "log")):
        return _spread(field, text, first, last, step)
    by, own = _end(field, text, step)
    by *= _ratio(field, text, own or unit, unit)
    if by <= 0:
        raise RequestError(f"--vary {field}: the step of {shown(text)} is not above zero.")
    return _until(field, first, last, lambda number: number + by)


def _until(
    field: str, first: Decimal, last: Decimal, following: Callable[[Decimal], Decimal]
) -> list[Decimal]:
    numbers = [first]
    while (number := following(numbers[-1])) <= last:
        numbers.append(number)
        if len(numbers) > MOST_VALUES:
            raise RequestError(f"--vary {field}: more than {MOST_VALUES:,} values.")
    return numbers


def _spread(field: str, text: str, first: Decimal, last: Decimal, step: str) -> list[Decimal]:
    """Return so many values from end to end, evenly apart or by equal factors."""
    even, count = step[:3], step[3:]
    if not count.isdecimal() or len(count) > LONGEST or not 2 <= int(count) <= MOST_SPREAD:
        raise RequestError(
            f"--vary {field}: {shown(text)} asks for {count[:LONGEST] or 'no'} values; write how"
            f" many, from 2 to {MOST_SPREAD:,}, such as {even}5."
        )
    if even == "log" and first <= 0:
        raise RequestError(f"--vary {field}: {shown(text)} has no logarithm at its beginning.")
    parts = [Decimal(place) / (int(count) - 1) for place in range(1, int(count) - 1)]
    if even == "log":
        inner = [first * (last / first) ** part for part in parts]
    else:
        inner = [first + (last - first) * part for part in parts]
    return [first, *(Decimal(f"{number:.{DIGITS - 1}e}") for number in inner), last]


def _end(field: str, text: str, part: str) -> tuple[Decimal, str]:
    match = _NUMBER.fullmatch(part)
    if match is None or not any((match[2] or "") in units for units in _UNITS):
        raise RequestError(
            f"--vary {field}: {shown(part.strip())} in {shown(text)} is no number, with a unit"
            f" where the field has one; {WORDS}."
        )
    if float(match[1]) and not ENDS.holds(abs(float(match[1]))):
        raise RequestError(
            f"--vary {field}: {shown(part.strip())} in {shown(text)} is outside {ENDS.words}."
        )
    return Decimal(match[1] if float(match[1]) else 0), match[2] or ""


def _ratio(field: str, text: str, of: str, to: str) -> Decimal:
    """Return how many of one unit another is."""
    if of == to:
        return Decimal(1)
    for units in _UNITS:
        if of in units and to in units:
            return Decimal(repr(units[of])) / Decimal(repr(units[to]))
    raise RequestError(
        f"--vary {field}: {shown(text)} mixes {of or 'no unit'!r} with {to or 'no unit'!r}."
    )


def _plain(number: Decimal) -> str:
    """Return a number without exponent or zeros at the end."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
