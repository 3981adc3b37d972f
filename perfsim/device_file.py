"""The file of a device, ``profiles/devices/<gpu>.toml``: read, checked, in seconds and bytes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, cast

from perfsim.errors import DataError, RequestError
from perfsim.quantity import KINDS, Kind, Quantity
from perfsim.units import parse_bytes, parse_rate, parse_seconds

__all__ = ["DeviceFile", "read_device_file"]

SCHEMA = "perfsim/device/1"
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
        If it cannot be read or breaks the format.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"cannot be read: {error}", path=path) from None
    if data.get("schema") != SCHEMA:
        raise DataError(f"schema is {data.get('schema')!r}, needed is {SCHEMA!r}", path=path)
    for key in ("name", "title", "memory", "memory_bandwidth", "launch", "rates"):
        if key not in data:
            raise DataError(f"has no {key!r}", path=path)
    if not isinstance(data["rates"], Mapping):
        raise DataError("rates holds no table a precision", path=path)
    try:
        memory_bytes = parse_bytes(data["memory"], "memory")
        bandwidth = parse_rate(data["memory_bandwidth"].get("value"), "memory_bandwidth.value")
        launch_s = parse_seconds(data["launch"].get("value"), "launch.value")
    except (RequestError, AttributeError) as error:
        raise DataError(str(error), path=path) from None
    return DeviceFile(
        name=str(data["name"]),
        title=str(data["title"]),
        aliases=tuple(str(alias).lower() for alias in data.get("aliases", [])),
        memory_bytes=memory_bytes,
        memory_bandwidth=_quantity(
            data["memory_bandwidth"], bandwidth, "B/s", "memory_bandwidth", path
        ),
        launch_s=_quantity(data["launch"], launch_s, "s", "launch", path),
        rates={key: _rate(table, f"rates.{key}", path) for key, table in data["rates"].items()},
        reference_names=tuple(str(other) for other in data.get("references", [])),
        power_w=float(data["power_w"]) if "power_w" in data else None,
    )


def _quantity(table: Mapping[str, Any], value: float, unit: str, key: str, path: Path) -> Quantity:
    kind, source, spread = table.get("kind"), table.get("source"), table.get("spread")
    if kind not in KINDS:
        raise DataError(f"{key}.kind is {kind!r}; allowed: {', '.join(KINDS)}", path=path)
    if not source:
        raise DataError(f"{key} has no source", path=path)
    if value <= 0 or not (spread is None or isinstance(spread, int | float)):
        raise DataError(f"{key}: value must be above zero and spread a fraction", path=path)
    return Quantity(value, unit, cast(Kind, kind), str(source), spread)


def _rate(table: object, key: str, path: Path) -> Quantity:
    if not isinstance(table, Mapping):
        raise DataError(f"{key} is not a table with a peak", path=path)
    number, _, unit = str(table.get("peak", "")).partition(" ")
    if unit not in FLOPS or not number.replace(".", "", 1).isdecimal():
        raise DataError(
            f"{key}.peak is {table.get('peak')!r}, not such as '15.7 TFLOP/s'", path=path
        )
    achieved = table.get("achieved")
    if achieved is None:
        told = {"kind": "published", **table}
        return _quantity(told, float(number) * FLOPS[unit], "FLOP/s", key, path)
    if (
        not isinstance(achieved, float)
        or not 0 < achieved < HIGHEST
        or "achieved_source" not in table
    ):
        raise DataError(f"{key}.achieved is a fraction with an achieved_source", path=path)
    source = f"{table.get('source')}: {number} {unit} x {achieved}, {table['achieved_source']}"
    told = {"kind": table.get("kind", "fitted"), "source": source, "spread": table.get("spread")}
    return _quantity(told, float(number) * FLOPS[unit] * achieved, "FLOP/s", key, path)
