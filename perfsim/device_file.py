"""The file of a device, ``profiles/devices/<gpu>.toml``: read, checked, in seconds and bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, cast

from perfsim.limits import (
    LAUNCH,
    MATRIX_RATE,
    MEMORY,
    POWER,
    RATE,
    SPREAD,
    shown,
)
from perfsim.profile import PRECISIONS
from perfsim.quantity import KINDS, Kind, Quantity
from perfsim.toml_file import Table, read_toml
from perfsim.units import parse_bytes, parse_fraction, parse_rate, parse_seconds

__all__ = ["DeviceFile", "read_device_file"]

SCHEMA = "perfsim/device/1"
KEYS = (
    "schema",
    "name",
    "title",
    "aliases",
    "memory",
    "power_w",
    "references",
    "memory_bandwidth",
    "launch",
    "rates",
)
VALUE_KEYS = ("value", "spread", "kind", "source")
RATE_KEYS = ("peak", "achieved", "achieved_source", "spread", "kind", "source")
PEAK = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?([GT]FLOP/s)", re.ASCII)
FLOPS = {"GFLOP/s": 1e9, "TFLOP/s": 1e12}
HIGHEST = 1.2
"""A board may run above the clock of its data sheet, but not by more than this."""


class DeviceFile(TypedDict):
    """What a device file states, by the names that ``perfsim.device.Device`` gives it."""

    name: str
    title: str
    aliases: tuple[str, ...]
    memory_bytes: float
    memory_bandwidth: Quantity
    launch_s: Quantity
    rates: Mapping[str, Quantity]
    reference_names: tuple[str, ...]
    power_w: float | None


def read_device_file(path: Path) -> DeviceFile:
    """Read and check one device file.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format: file, key, what was found, what is allowed.
    """
    table = read_toml(path)
    table.check_schema(SCHEMA)
    table.only(KEYS)
    bandwidth, launch = table.inside("memory_bandwidth"), table.inside("launch")
    bandwidth.only(VALUE_KEYS)
    launch.only(VALUE_KEYS)
    rates = table.inside("rates")
    rates.only(PRECISIONS)
    rates.get("fp32")  # in which methods' kernels compute
    return DeviceFile(
        name=table.name(),
        title=table.text("title"),
        aliases=tuple(alias.lower() for alias in table.texts("aliases")),
        memory_bytes=table.number("memory", table.get("memory"), parse_bytes, MEMORY),
        memory_bandwidth=_quantity(
            bandwidth, bandwidth.number("value", bandwidth.get("value"), parse_rate, RATE), "B/s"
        ),
        launch_s=_quantity(
            launch, launch.number("value", launch.get("value"), parse_seconds, LAUNCH), "s"
        ),
        rates={precision: _rate(rates.inside(precision)) for precision in rates.values},
        reference_names=_references(table),
        power_w=_power_w(table),
    )


def _quantity(
    table: Table, value: float, unit: str, kind: Kind | None = None, source: str = ""
) -> Quantity:
    """Return a value with its origin; ``kind`` is the one that an absent key stands for."""
    if kind is None or "kind" in table.values:
        kind = cast(Kind, table.choice("kind", KINDS))
    spread = None
    if "spread" in table.values:
        spread = table.number("spread", table.values["spread"], parse_fraction, SPREAD)
    return Quantity(value, unit, kind, source or table.text("source"), spread)


def _rate(table: Table) -> Quantity:
    table.only(RATE_KEYS)
    peak = table.text("peak")
    match = PEAK.fullmatch(peak)
    if match is None:
        raise table.wrong("peak", f"found {shown(peak)}, allowed is such as '15.7 TFLOP/s'")
    number, unit = match.groups()
    flops = table.limited("peak", peak, float(number) * FLOPS[unit], MATRIX_RATE)
    if "achieved" not in table.values and "achieved_source" not in table.values:
        return _quantity(table, flops, "FLOP/s", "published")
    achieved = table.get("achieved")
    if (
        not isinstance(achieved, int | float)
        or isinstance(achieved, bool)
        or not 0 < achieved < HIGHEST
    ):
        told = f"found {shown(achieved)}, allowed is a fraction of the peak, below {HIGHEST}"
        raise table.wrong("achieved", told)
    told = table.text("achieved_source")
    source = f"{table.text('source')}: {number} {unit} x {achieved}, {told}"
    rate = table.limited("achieved", achieved, flops * achieved, MATRIX_RATE)
    return _quantity(table, rate, "FLOP/s", "fitted", source)


def _references(table: Table) -> tuple[str, ...]:
    names = table.texts("references")
    if table.values["name"] in names:
        raise table.wrong("references", f"{table.values['name']!r} is this GPU itself")
    return names


def _power_w(table: Table) -> float | None:
    if "power_w" not in table.values:
        return None
    value = table.values["power_w"]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise table.wrong("power_w", f"found {shown(value)}, allowed is a number, {POWER.words}")
    return table.limited("power_w", value, value, POWER)
