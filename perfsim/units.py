"""Texts with a unit to SI floats, and back: inside perfsim there are only seconds, bytes, ratios.

GB is 1e9 bytes, GiB is 2**30 bytes, Gbit/s is 1e9 bits a second. A bare number is refused
wherever a unit is needed.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from perfsim.errors import RequestError, shown

__all__ = [
    "format_bit_rate",
    "format_bytes",
    "format_count",
    "format_rate",
    "format_seconds",
    "parse_bytes",
    "parse_fraction",
    "parse_iteration",
    "parse_rate",
    "parse_seconds",
    "parse_seconds_per_byte",
    "size_for_rate",
]

TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
SIZE_UNITS = {
    "B": 1.0,
    "kB": 1e3,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
BIT_UNITS = {"bit": 1.0, "kbit": 1e3, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}
RATE_UNITS = {f"{unit}/s": factor for unit, factor in SIZE_UNITS.items()} | {
    f"{unit}/s": factor / 8 for unit, factor in BIT_UNITS.items()
}
SAMPLE_RATE_UNITS = {"samples/s": 1.0, "images/s": 1.0, "sequences/s": 1.0}
TIME_PER_BYTE_UNITS = {
    f"{time}/{size}": TIME_UNITS[time] / SIZE_UNITS[size]
    for time in ("s", "ms", "us", "ns")
    for size in ("B", "kB", "MB", "GB")
}

_NUMBER = re.compile(r"\s*+([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)\s*+(\S*+)\s*+")

_BITS = re.compile(r"([kMGT])bps|([kMGT])b/s")
"""Other ways to write a rate in bits."""


def _parse(
    text: object,
    units: dict[str, float],
    field: str,
    what: str,
    example: str,
    *,
    zero: bool = True,
) -> float:
    """Return a text's number in SI units; refuse another unit, no unit, and negative numbers.

    Parameters
    ----------
    zero : False where the caller takes no 0: a refusal of a negative number says so at once
    """
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        given = text if isinstance(text, str) else repr(text)
        reason = ""
        if match is not None:
            bits = _BITS.fullmatch(match[2])
            meant = f"; write '{bits[1] or bits[2]}bit/s'" if bits and units is RATE_UNITS else ""
            wrong = f"unit {shown(match[2])} is not one{meant}"
            if units is RATE_UNITS and match[2] in SIZE_UNITS:
                wrong = size_for_rate(match[2])
            reason = f" ({wrong if match[2] else 'a bare number has no unit'})"
        allowed = ", ".join(unit or "none" for unit in units if unit != "µs")
        raise RequestError(
            field,
            f"{shown(given)} is not {what}{reason}; give a number and a unit such as"
            f" {example!r}. Units: {allowed}.",
            value=text,
        )
    value = float(match[1])
    if value and math.isfinite(value):  # in decimal, so that "50us" is 5e-05 to the last digit
        value = float(Decimal(match[1]) * Decimal(repr(units[match[2]])))
    if not math.isfinite(value) or value < 0:
        least = "0 or more" if zero else "above 0"
        why = f"{shown(text)} is not {what}; it must be finite and {least}."
        raise RequestError(field, why, value=text)
    return value


def size_for_rate(unit: str) -> str:
    """Say what to write in place of a unit of sizes where a rate is needed.

    Examples
    --------
    >>> size_for_rate("GB")
    "'GB' is a unit of sizes; rates are 'GB/s' or 'Gbit/s'"
    """
    bits = f"{unit[:1]}bit/s" if f"{unit[:1]}bit" in BIT_UNITS else "bit/s"
    return f"{unit!r} is a unit of sizes; rates are {f'{unit}/s'!r} or {bits!r}"


def parse_seconds(
    text: object, field: str = "time", example: str = "50us", *, zero: bool = True
) -> float:
    """Parse a time such as "50us" [s]; a refusal shows ``example``.

    Examples
    --------
    >>> parse_seconds("50us")
    5e-05
    """
    return _parse(text, TIME_UNITS, field, "a time", example, zero=zero)


def parse_iteration(text: object, samples: int, field: str = "iteration") -> float:
    """Parse the time of an iteration of so many samples: a time, or a rate in samples [s].

    Examples
    --------
    >>> parse_iteration("250ms", 32), parse_iteration("128 samples/s", 32)
    (0.25, 0.25)
    """
    units = TIME_UNITS | SAMPLE_RATE_UNITS
    what = "the time of an iteration or a rate"
    value = _parse(text, units, field, what, "253ms", zero=False)
    if str(text).rstrip().endswith(tuple(SAMPLE_RATE_UNITS)):
        return samples / value if value else math.inf
    return value


def parse_seconds_per_byte(text: object, field: str = "cost") -> float:
    """Parse a time a byte such as "0.5ns/B" [s/B].

    Examples
    --------
    >>> parse_seconds_per_byte("0.5ns/B")
    5e-10
    """
    return _parse(text, TIME_PER_BYTE_UNITS, field, "a time a byte", "0.8ns/B")


def parse_bytes(text: object, field: str = "size", *, zero: bool = True) -> float:
    """Parse a size such as "25MiB" [B].

    Examples
    --------
    >>> parse_bytes("25MiB")
    26214400.0
    """
    return _parse(text, SIZE_UNITS, field, "a size", "25MiB", zero=zero)


def parse_rate(text: object, field: str = "rate") -> float:
    """Parse a rate such as "10Gbit/s" [B/s].

    Examples
    --------
    >>> parse_rate("10Gbit/s")
    1250000000.0
    """
    return _parse(text, RATE_UNITS, field, "a rate", "10Gbit/s", zero=False)


def parse_fraction(text: object, field: str = "fraction") -> float:
    """Parse a fraction: a plain number, or per cent.

    Examples
    --------
    >>> parse_fraction("5%"), parse_fraction("0.05")
    (0.05, 0.05)
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = repr(float(text))
    return _parse(text, {"": 1.0, "%": 0.01}, field, "a fraction", "5%")


def _scaled(value: float, steps: list[tuple[float, str]], digits: int) -> str:
    """Write a value in the largest of some units (factor, name) that it reaches."""
    if value == 0:
        return f"0 {steps[-1][1]}"
    factor, unit = next(
        ((factor, unit) for factor, unit in steps if abs(value) >= factor * 0.9995), steps[-1]
    )
    large = abs(value) >= 1000 * factor
    return f"{value / factor:.0f} {unit}" if large else f"{value / factor:.{digits}g} {unit}"


def format_seconds(seconds: float, digits: int = 4) -> str:
    """Write a time [s] with the unit that suits it.

    Examples
    --------
    >>> format_seconds(0.0123)
    '12.3 ms'
    """
    return _scaled(seconds, [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")], digits)


def format_bytes(size: float, digits: int = 4) -> str:
    """Write a size [B] in decimal units.

    Examples
    --------
    >>> format_bytes(102228128)
    '102.2 MB'
    """
    return _scaled(size, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")], digits)


def format_rate(bytes_per_s: float, digits: int = 4) -> str:
    """Write a rate [B/s] in decimal units.

    Examples
    --------
    >>> format_rate(1.25e9)
    '1.25 GB/s'
    """
    return format_bytes(bytes_per_s, digits) + "/s"


def format_bit_rate(bytes_per_s: float) -> str:
    """Write the rate of a line as data sheets do, in bits.

    Examples
    --------
    >>> format_bit_rate(50e9), format_bit_rate(125e6)
    ('400 Gbit/s', '1 Gbit/s')
    """
    return f"{8.0 * bytes_per_s / 1e9:g} Gbit/s"


def format_count(value: float) -> str:
    """Write a count with commas between thousands.

    Examples
    --------
    >>> format_count(25557032)
    '25,557,032'
    """
    return f"{value:,.0f}"
